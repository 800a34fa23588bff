//! The registers of a thread.

use iced_x86::{ConditionCode, Register};

/// Bits of the flags register.
const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const OVERFLOW: u64 = 1 << 11;
/// A debugger single-steps the thread.
pub(super) const TRAP: u64 = 1 << 8;

/// General registers, flags and instruction pointer of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Registers {
    /// `rax`, `rcx`, `rdx`, `rbx`, `rsp`, `rbp`, `rsi`, `rdi`, `r8` to `r15`: the order of the instruction set's encoding.
    pub general: [u64; 16],
    /// The flags.
    pub flags: u64,
    /// Address of the next instruction.
    pub rip: u64,
}

/// Place of `rsp` in [`Registers::general`].
pub const RSP: usize = 4;

impl Registers {
    /// The value of a register that takes part in an address; `None` if it is not known.
    pub(super) fn value(&self, register: Register) -> Option<u64> {
        match register {
            Register::FS => Some(fs_base()),
            Register::GS => None,
            Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
            _ if register.is_gpr64() => Some(self.general[register.number()]),
            _ if register.is_gpr32() => Some(self.general[register.number()] & 0xffff_ffff),
            _ if register.is_gpr16() => Some(self.general[register.number()] & 0xffff),
            _ => None,
        }
    }

    /// Whether the flags fulfil the condition.
    pub(super) fn fulfils(&self, condition: ConditionCode) -> bool {
        let is = |bits| self.flags & bits != 0;
        let less = is(SIGN) != is(OVERFLOW);
        match condition {
            ConditionCode::None => true,
            ConditionCode::o => is(OVERFLOW),
            ConditionCode::no => !is(OVERFLOW),
            ConditionCode::b => is(CARRY),
            ConditionCode::ae => !is(CARRY),
            ConditionCode::e => is(ZERO),
            ConditionCode::ne => !is(ZERO),
            ConditionCode::be => is(CARRY | ZERO),
            ConditionCode::a => !is(CARRY | ZERO),
            ConditionCode::s => is(SIGN),
            ConditionCode::ns => !is(SIGN),
            ConditionCode::p => is(PARITY),
            ConditionCode::np => !is(PARITY),
            ConditionCode::l => less,
            ConditionCode::ge => !less,
            ConditionCode::le => less || is(ZERO),
            ConditionCode::g => !less && !is(ZERO),
        }
    }
}

/// Base of the thread's `fs` segment: the C library stores it in the segment's first word (System V ABI).
fn fs_base() -> u64 {
    let base: u64;
    // SAFETY: reads the word that the ABI of threads defines.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) base, options(nostack, readonly, preserves_flags));
    }
    base
}
