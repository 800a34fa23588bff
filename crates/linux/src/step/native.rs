//! Executes one instruction with given registers: copies it to a page of its own, loads the registers, jumps there, and
//! stores the registers.

use std::arch::naked_asm;
use std::io;
use std::mem::offset_of;

use super::registers::Registers;

const PAGE: usize = 4096;
/// Place of the code that stores the registers, in the page of code.
const EXIT: usize = 64;
/// Longest instruction, bytes.
pub(super) const LONGEST: usize = 15;
/// Bytes of the load of `rdi` before the instruction.
const LOAD_RDI: usize = 7;
/// Extended states that are loaded and stored: x87, SSE, AVX and AVX-512.
const EXTENDED: u64 = 0b1110_0111;

/// What the page of data begins with.
#[repr(C)]
struct Data {
    registers: Registers,
    /// The caller's stack pointer.
    host_rsp: u64,
    /// Address of the page of code.
    code: u64,
}

/// The extended state (x87, vector and mask registers) of a thread, as `xsave` stores it.
#[derive(Debug, Clone, Copy)]
pub struct ExtendedState {
    area: *mut u8,
    mask: u64,
}

impl ExtendedState {
    /// The state at `area`, of which `features` are present (bits as in `xcr0`).
    ///
    /// # Safety
    /// The area is aligned to 64 bytes, in the standard format of `xsave`, has room for these features, and stays valid and
    /// unused by others as long as this value is used.
    #[must_use]
    pub const unsafe fn new(area: *mut u8, features: u64) -> Self {
        Self { area, mask: features & EXTENDED }
    }
}

/// Two pages: code, and the data that it uses. They are apart, as a store near code that is being executed is slow.
#[derive(Debug)]
pub(super) struct NativePages {
    start: *mut u8,
}

// SAFETY: the pages belong to this value alone.
unsafe impl Send for NativePages {}

impl NativePages {
    pub(super) fn new() -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: maps new memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * PAGE, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mut pages = Self { start: start.cast() };
        pages.write_exit();
        let code = pages.start.addr() as u64;
        pages.data().code = code;
        Ok(pages)
    }

    fn data(&mut self) -> &mut Data {
        // SAFETY: the second page begins with it; zeros are a valid value.
        unsafe { &mut *self.start.add(PAGE).cast::<Data>() }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= PAGE, "code fits in its page");
        // SAFETY: within the page of code, which nothing executes now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    /// Writes the code around the instruction.
    fn write_exit(&mut self) {
        // A displacement is counted from the end of its instruction, which it ends.
        let displacement = |end: usize, field: usize| ((PAGE + field) as i32 - end as i32).to_le_bytes();
        let general = |register: usize| offset_of!(Data, registers.general) + register * 8;
        // mov rdi, [rip + ...]
        let mut load = vec![0x48, 0x8b, 0x3d];
        load.extend(displacement(LOAD_RDI, general(7)));
        self.write(0, &load);
        let mut code: Vec<u8> = Vec::new();
        for register in 0..16_usize {
            // mov [rip + ...], register
            let rex = 0x48 | if register >= 8 { 4 } else { 0 };
            code.extend([rex, 0x89, ((register as u8 & 7) << 3) | 5]);
            code.extend(displacement(EXIT + code.len() + 4, general(register)));
        }
        // mov rsp, [rip + ...]; pushfq; pop [rip + ...]; cld
        code.extend([0x48, 0x8b, 0x25]);
        code.extend(displacement(EXIT + code.len() + 4, offset_of!(Data, host_rsp)));
        code.extend([0x9c, 0x8f, 0x05]);
        code.extend(displacement(EXIT + code.len() + 4, offset_of!(Data, registers.flags)));
        code.push(0xfc);
        // pop r15, r14, r13, r12, rbp, rbx; ret
        code.extend([0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3]);
        self.write(EXIT, &code);
    }

    /// Executes an instruction with these registers and stores the registers that result; `rip` stays. The extended state
    /// is loaded and stored if it is given.
    ///
    /// # Safety
    /// The instruction does not transfer control and does not depend on its address; what it does to memory is what its owner
    /// wants. Its memory accesses raise no signal that is handled on the thread's stack.
    pub(super) unsafe fn execute(
        &mut self,
        instruction: &[u8],
        registers: &mut Registers,
        extended: Option<ExtendedState>,
    ) {
        assert!(instruction.len() <= LONGEST, "an instruction is at most {LONGEST} bytes long");
        let end = LOAD_RDI + instruction.len();
        let mut code = [0; LONGEST + 5];
        code[..instruction.len()].copy_from_slice(instruction);
        // jmp EXIT
        code[instruction.len()] = 0xe9;
        code[instruction.len() + 1..][..4].copy_from_slice(&(EXIT as i32 - (end + 5) as i32).to_le_bytes());
        self.write(LOAD_RDI, &code[..instruction.len() + 5]);
        let rip = registers.rip;
        self.data().registers = *registers;
        let data: *mut Data = self.data();
        match extended {
            // SAFETY: the caller's promise; the data are those that the code expects.
            None => unsafe { enter(data) },
            // SAFETY: as above, and the area is as promised to `ExtendedState::new`.
            Some(state) => unsafe { enter_extended(data, state.area, state.mask) },
        }
        *registers = Registers { rip, ..self.data().registers };
    }
}

impl Drop for NativePages {
    fn drop(&mut self) {
        // SAFETY: unmaps the pages that this value has mapped.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}

/// Loads flags and registers and jumps to the code, which returns to the caller.
///
/// # Safety
/// The data name a page of code as [`NativePages::write_exit`] makes it.
#[unsafe(naked)]
unsafe extern "C" fn enter(data: *mut Data) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi + {host_rsp}], rsp",
        "push qword ptr [rdi + {flags}]",
        "popfq",
        "mov rax, [rdi]",
        "mov rcx, [rdi + 8]",
        "mov rdx, [rdi + 16]",
        "mov rbx, [rdi + 24]",
        "mov rsp, [rdi + 32]",
        "mov rbp, [rdi + 40]",
        "mov rsi, [rdi + 48]",
        "mov r8, [rdi + 64]",
        "mov r9, [rdi + 72]",
        "mov r10, [rdi + 80]",
        "mov r11, [rdi + 88]",
        "mov r12, [rdi + 96]",
        "mov r13, [rdi + 104]",
        "mov r14, [rdi + 112]",
        "mov r15, [rdi + 120]",
        "jmp qword ptr [rdi + {code}]",
        host_rsp = const offset_of!(Data, host_rsp),
        flags = const offset_of!(Data, registers.flags),
        code = const offset_of!(Data, code),
    )
}

/// As [`enter`], between loading and storing the extended state. Afterwards the x87 unit and `mxcsr` are as the ABI expects.
///
/// # Safety
/// As [`enter`]; the area has the format of `xsave` and room for the states in `mask`.
#[unsafe(naked)]
unsafe extern "C" fn enter_extended(data: *mut Data, area: *mut u8, mask: u64) {
    naked_asm!(
        "push rsi",
        "push rdx",
        "mov eax, edx",
        "shr rdx, 32",
        "xrstor64 [rsi]",
        "call {enter}",
        "pop rdx",
        "pop rsi",
        "mov eax, edx",
        "shr rdx, 32",
        "xsave64 [rsi]",
        "fninit",
        "push 0x1f80",
        "ldmxcsr [rsp]",
        "pop rax",
        "ret",
        enter = sym enter,
    )
}
