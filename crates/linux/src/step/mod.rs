//! Executes a program's instructions one by one, with a look at each before it is executed.
//!
//! A trap after each instruction would cost microseconds, more in a virtual machine. Here a signal handler has the registers of
//! the interrupted thread, and executes the thread's next instructions itself: [`Stepper`] copies each to a page of its own,
//! loads the thread's registers, executes it and stores the registers. Only transfers of control are interpreted. When the
//! handler returns with the new registers, the thread continues behind these instructions.

mod native;
mod registers;

use std::io;

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpKind, Register, UsedMemory,
};

use native::{LONGEST, NativePages};
use registers::TRAP;

pub use native::ExtendedState;
pub use registers::{RSP, Registers};

const PAGE: u64 = 4096;

/// The thread must execute the next instruction itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A system call.
    SystemCall,
    /// An instruction that is not executed here.
    Other,
}

/// Decodes and executes instructions of one thread.
pub struct Stepper {
    pages: NativePages,
    encoder: Encoder,
    info: InstructionInfoFactory,
}

impl std::fmt::Debug for Stepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepper").finish_non_exhaustive()
    }
}

/// A decoded instruction, not executed yet.
#[derive(Debug, Clone, Copy)]
pub struct Decoded {
    pub(crate) instruction: Instruction,
    bytes: [u8; LONGEST],
}

impl Stepper {
    /// A stepper with an executable page. Also decodes one instruction, so that later calls need no locks.
    ///
    /// # Errors
    /// The operating system refuses a page that is writable and executable.
    pub fn new() -> io::Result<Self> {
        let mut encoder = Encoder::new(64);
        encoder.set_buffer(Vec::with_capacity(64));
        let mut new = Self { pages: NativePages::new()?, encoder, info: InstructionInfoFactory::new() };
        // add rax, [rip]
        let instruction =
            Decoder::with_ip(64, &[0x48, 0x03, 0x05, 0, 0, 0, 0], 0, DecoderOptions::NONE).decode();
        let _ = new.info.info(&instruction);
        // vzeroall and fxrstor64 [rax]: those with the most registers, so that the lists have grown.
        for bytes in [&[0xc5, 0xfc, 0x77][..], &[0x48, 0x0f, 0xae, 0x08]] {
            let _ = new.info.info(&Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode());
        }
        let _ = new.encoder.encode(&instruction, 0);
        let _ = new.encoder.take_buffer();
        new.encoder.set_buffer(Vec::with_capacity(64));
        Ok(new)
    }

    /// Decodes the next instruction of a thread with these registers.
    ///
    /// # Errors
    /// The instruction cannot be executed here.
    ///
    /// # Safety
    /// `registers.rip` is where a thread of this process is about to execute an instruction.
    pub unsafe fn decode(&self, registers: &Registers) -> Result<Decoded, Stop> {
        if registers.flags & TRAP != 0 {
            return Err(Stop::Other);
        }
        let in_page = (PAGE - registers.rip % PAGE) as usize;
        let mut bytes = [0; LONGEST];
        let mut instruction = Instruction::default();
        for len in [LONGEST.min(in_page), LONGEST] {
            let from: *const u8 = std::ptr::with_exposed_provenance(registers.rip as usize);
            // SAFETY: the instruction begins in this page; the next page is read only if it continues there.
            unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
            instruction = Decoder::with_ip(64, &bytes[..len], registers.rip, DecoderOptions::NONE).decode();
            if !instruction.is_invalid() {
                break;
            }
        }
        match instruction.code() {
            Code::INVALID => return Err(Stop::Other),
            Code::Syscall => return Err(Stop::SystemCall),
            _ => {}
        }
        if is_refused(&instruction) { Err(Stop::Other) } else { Ok(Decoded { instruction, bytes }) }
    }

    /// Registers and memory that the instruction uses.
    pub(crate) fn info(&mut self, decoded: &Decoded) -> &InstructionInfo {
        self.info.info(&decoded.instruction)
    }

    /// Executes the instruction: changes the registers, the extended state and memory as the thread would.
    ///
    /// # Errors
    /// The instruction cannot be executed here; nothing has changed.
    ///
    /// # Safety
    /// The instruction was decoded with these registers, which are those of a thread that waits for this call, as is its
    /// extended state. If it faults, no handler of the program runs on the thread's stack.
    pub unsafe fn execute(
        &mut self,
        decoded: &Decoded,
        registers: &mut Registers,
        extended: ExtendedState,
    ) -> Result<(), Stop> {
        let instruction = &decoded.instruction;
        match instruction.flow_control() {
            FlowControl::Next => {
                // SAFETY: the caller's promise; the instruction does not transfer control.
                unsafe { self.execute_next(decoded, registers, extended)? };
                registers.rip = instruction.next_ip();
                Ok(())
            }
            // SAFETY: the caller's promise.
            _ => unsafe { transfer(instruction, registers) },
        }
    }

    /// # Safety
    /// As [`Stepper::execute`]; the instruction does not transfer control.
    unsafe fn execute_next(
        &mut self,
        decoded: &Decoded,
        registers: &mut Registers,
        extended: ExtendedState,
    ) -> Result<(), Stop> {
        let instruction = &decoded.instruction;
        let extended = (!is_integer(instruction)).then_some(extended);
        if !instruction.is_ip_rel_memory_operand() {
            // SAFETY: the caller's promise; no operand is relative to the instruction's address.
            unsafe { self.pages.execute(&decoded.bytes[..instruction.len()], registers, extended) };
            return Ok(());
        }
        // The copy addresses its operand by a register that the instruction does not use.
        let used = self.info.info(instruction).used_registers();
        let is_free =
            |register: &Register| used.iter().all(|one| one.register().full_register() != *register);
        let all = [Register::RAX, Register::RCX, Register::RDX, Register::RBX, Register::RSI, Register::RDI];
        let base = all.into_iter().find(is_free).ok_or(Stop::Other)?;
        let mut copy = *instruction;
        copy.set_memory_base(base);
        copy.set_memory_displacement64(0);
        copy.set_memory_displ_size(1);
        let length = self.encoder.encode(&copy, 0).map_err(|_| Stop::Other);
        let mut buffer = self.encoder.take_buffer();
        let saved = registers.general[base.number()];
        registers.general[base.number()] = instruction.ip_rel_memory_address();
        if length.is_ok() {
            // SAFETY: the caller's promise; the copy has the address of the operand in a register.
            unsafe { self.pages.execute(&buffer, registers, extended) };
        }
        registers.general[base.number()] = saved;
        buffer.clear();
        self.encoder.set_buffer(buffer);
        length.map(|_| ())
    }
}

/// Address of an access to memory with these registers; `None` if it is not known.
pub(crate) fn address(memory: &UsedMemory, registers: &Registers) -> Option<u64> {
    memory.virtual_address(0, |register, _, _| registers.value(register))
}

/// Interprets a transfer of control.
///
/// # Safety
/// As [`Stepper::execute`].
unsafe fn transfer(instruction: &Instruction, registers: &mut Registers) -> Result<(), Stop> {
    let next = instruction.next_ip();
    let direct = || match instruction.op0_kind() {
        OpKind::NearBranch64 => Ok(instruction.near_branch_target()),
        _ => Err(Stop::Other),
    };
    let indirect = |registers: &Registers| match (instruction.code(), instruction.op0_kind()) {
        (Code::Jmp_rm64 | Code::Call_rm64, OpKind::Register) => {
            registers.value(instruction.op0_register()).ok_or(Stop::Other)
        }
        (Code::Jmp_rm64 | Code::Call_rm64, OpKind::Memory) => {
            let at = instruction.virtual_address(0, 0, |register, _, _| registers.value(register));
            // SAFETY: the thread is about to load the target from there.
            at.map(|at| unsafe { load(at) }).ok_or(Stop::Other)
        }
        _ => Err(Stop::Other),
    };
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch => registers.rip = direct()?,
        FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
            let target = direct()?;
            registers.rip = if registers.fulfils(instruction.condition_code()) { target } else { next };
        }
        FlowControl::IndirectBranch => registers.rip = indirect(registers)?,
        FlowControl::Call if matches!(instruction.code(), Code::Call_rel32_64) => {
            let target = direct()?;
            // SAFETY: the thread is about to push the return address.
            unsafe { push(registers, next) };
            registers.rip = target;
        }
        FlowControl::IndirectCall => {
            let target = indirect(registers)?;
            // SAFETY: as above.
            unsafe { push(registers, next) };
            registers.rip = target;
        }
        FlowControl::Return if matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16) => {
            // SAFETY: the thread is about to pop the return address.
            registers.rip = unsafe { load(registers.general[RSP]) };
            let more = if instruction.op_count() == 0 { 0 } else { u64::from(instruction.immediate16()) };
            registers.general[RSP] = registers.general[RSP].wrapping_add(8 + more);
        }
        _ => return Err(Stop::Other),
    }
    Ok(())
}

/// # Safety
/// The thread may read the word at this address.
unsafe fn load(at: u64) -> u64 {
    let at: *const u64 = std::ptr::with_exposed_provenance(at as usize);
    // SAFETY: the caller's promise.
    unsafe { at.read_unaligned() }
}

/// # Safety
/// The thread may push a word.
unsafe fn push(registers: &mut Registers, value: u64) {
    registers.general[RSP] = registers.general[RSP].wrapping_sub(8);
    let at: *mut u64 = std::ptr::with_exposed_provenance_mut(registers.general[RSP] as usize);
    // SAFETY: the caller's promise.
    unsafe { at.write_unaligned(value) };
}

/// Instructions that would change what the handler relies on, or that depend on where they are.
fn is_refused(instruction: &Instruction) -> bool {
    let refused = matches!(
        instruction.mnemonic(),
        Mnemonic::Popf
            | Mnemonic::Popfd
            | Mnemonic::Popfq
            | Mnemonic::Wrpkru
            | Mnemonic::Wrfsbase
            | Mnemonic::Wrgsbase
    );
    let segment = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().is_segment_register();
    let tiles = instruction.cpuid_features().iter().any(|feature| {
        matches!(
            feature,
            CpuidFeature::AMX_TILE
                | CpuidFeature::AMX_INT8
                | CpuidFeature::AMX_BF16
                | CpuidFeature::AMX_FP16
                | CpuidFeature::RTM
                | CpuidFeature::UINTR
        )
    });
    refused || segment || tiles || instruction.memory_base() == Register::EIP
}

/// Whether the instruction leaves the extended state alone.
fn is_integer(instruction: &Instruction) -> bool {
    instruction.cpuid_features().iter().all(|feature| {
        matches!(
            feature,
            CpuidFeature::INTEL8086
                | CpuidFeature::INTEL186
                | CpuidFeature::INTEL286
                | CpuidFeature::INTEL386
                | CpuidFeature::INTEL486
                | CpuidFeature::X64
                | CpuidFeature::MULTIBYTENOP
                | CpuidFeature::CET_IBT
                | CpuidFeature::CMOV
                | CpuidFeature::CX8
                | CpuidFeature::CMPXCHG16B
                | CpuidFeature::POPCNT
                | CpuidFeature::LZCNT
                | CpuidFeature::BMI1
                | CpuidFeature::BMI2
                | CpuidFeature::ADX
                | CpuidFeature::MOVBE
                | CpuidFeature::TSC
                | CpuidFeature::RDTSCP
                | CpuidFeature::PAUSE
                | CpuidFeature::CLFSH
                | CpuidFeature::CLFLUSHOPT
                | CpuidFeature::CLWB
        )
    })
}

#[cfg(test)]
pub(crate) mod tests;
