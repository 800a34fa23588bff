//! Executes windows of a program's instructions and measures them.

use std::io;

use deepram_core::emulation::{
    Access, Core, Dataflow, Instruction, LINE_BYTES, LineLoad, Touch, Transfers, WindowCost,
};
use iced_x86::{Mnemonic, OpAccess, Register, UsedMemory};

use super::{Machine, probe};
use crate::step::{Decoded, ExtendedState, Registers, Stepper};

/// Instructions that are executed before the window: the processor had begun them, and fetched their lines, when the thread
/// was interrupted.
const WARM_UP: usize = 256;
/// Instructions of a window.
const WINDOW: usize = 1024;
/// Latency from which a load has met a page fault or an interrupt, picoseconds.
const FAULT_PS: u64 = 3_000_000;
/// Lines of one access that are looked at; a copy of a longer range is judged by these.
const LINES: u64 = 4;
/// Cycles of instructions by kind.
const CYCLES: u64 = 1;
const CYCLES_MULTIPLY: u64 = 3;
const CYCLES_DIVIDE: u64 = 14;
const CYCLES_ATOMIC: u64 = 18;
/// Bits of [`Instruction::reads`]: general registers, vector registers, mask registers, the flags.
const VECTOR_BIT: usize = 16;
const MASK_BIT: usize = 48;
const FLAGS: u64 = 1 << 56;

/// Measures windows of one thread's instructions.
#[derive(Debug)]
pub struct Sampler {
    stepper: Stepper,
    machine: Machine,
    /// Emulated read latency, picoseconds.
    read_ps: u64,
    dram: Dataflow,
    emulated: Dataflow,
    transfers: Transfers,
}

/// Accesses of one instruction: address, bytes, kind.
type Accesses = [Option<(u64, u64, Access)>; 3];

impl Sampler {
    /// A sampler for a machine whose memory is to take `read_ps` for a read.
    ///
    /// # Errors
    /// The operating system refuses a page that is writable and executable.
    pub fn new(machine: Machine, read_ps: u64) -> io::Result<Self> {
        let core = Core { cycle_ps: machine.cycle_ps, hit_ps: 5 * machine.cycle_ps };
        let flow = Dataflow::new(core);
        Ok(Self {
            stepper: Stepper::new()?,
            machine,
            read_ps,
            dram: flow.clone(),
            emulated: flow,
            transfers: Transfers::new(),
        })
    }

    /// Executes the next instructions of a thread, up to a system call or another instruction that the thread must execute
    /// itself. Returns the cost of the window; `None` if there was none behind the first instructions, which do not count.
    ///
    /// # Safety
    /// The registers and the extended state are those of a thread that waits for this call. If an instruction faults, no
    /// handler of the program runs on the thread's stack.
    pub unsafe fn window(
        &mut self,
        registers: &mut Registers,
        extended: ExtendedState,
    ) -> Option<WindowCost> {
        let core = Core { cycle_ps: self.machine.cycle_ps, hit_ps: 5 * self.machine.cycle_ps };
        (self.dram, self.emulated) = (Dataflow::new(core), Dataflow::new(core));
        self.transfers.clear();
        let (mut begin, mut begin_loaded, mut count) = (WindowCost::default(), 0, 0);
        while count < WARM_UP + WINDOW {
            if count == WARM_UP {
                (begin, begin_loaded) = (self.cost(), self.transfers.loaded());
            }
            // SAFETY: the caller's promise.
            let Ok(decoded) = (unsafe { self.stepper.decode(registers) }) else { break };
            // SAFETY: the thread is about to execute this instruction.
            unsafe { self.look(&decoded, registers) };
            // SAFETY: decoded with these registers; the rest is the caller's promise.
            if unsafe { self.stepper.execute(&decoded, registers, extended) }.is_err() {
                break;
            }
            count += 1;
        }
        if count <= WARM_UP {
            return None;
        }
        let end = self.cost();
        let bytes = end.bytes - begin.bytes;
        // Lines that arrive ahead of their use still take the memory's time.
        let loading = (self.transfers.loaded() - begin_loaded) * self.machine.thread_line_ps;
        let least = loading.max(bytes / LINE_BYTES * self.machine.thread_copy_ps);
        Some(WindowCost {
            dram_ps: (end.dram_ps - begin.dram_ps).max(least),
            emulated_ps: (end.emulated_ps - begin.emulated_ps).max(least),
            bytes,
        })
    }

    fn cost(&self) -> WindowCost {
        WindowCost {
            dram_ps: self.dram.now_ps(),
            emulated_ps: self.emulated.now_ps(),
            bytes: self.transfers.bytes(),
        }
    }

    /// Measures what the instruction will do.
    ///
    /// # Safety
    /// The thread is about to execute the instruction with these registers.
    unsafe fn look(&mut self, decoded: &Decoded, registers: &Registers) {
        let (mut one, accesses) = self.describe(decoded, registers);
        for (at, len, access) in accesses.into_iter().flatten() {
            // SAFETY: the thread is about to access these bytes.
            let load = unsafe { self.access(at, len, access) };
            if access == Access::Load {
                let slower = |old: LineLoad| if old.latency_ps > load.latency_ps { old } else { load };
                one.load = Some(one.load.map_or(load, slower));
            }
        }
        let latency = one.load.map_or(0, |load| load.latency_ps);
        self.dram.push(&one, latency);
        self.emulated.push(&one, self.emulated_ps(latency));
    }

    /// Registers and accesses of an instruction.
    fn describe(&mut self, decoded: &Decoded, registers: &Registers) -> (Instruction, Accesses) {
        let instruction = &decoded.instruction;
        let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let info = self.stepper.info(decoded);
        let mut one = Instruction {
            cycles: cycles(instruction),
            serializes: instruction.has_lock_prefix() || is_fence(instruction.mnemonic()),
            ..Instruction::default()
        };
        for used in info.used_registers() {
            let bit = register_bit(used.register());
            let (reads, writes) = reads_writes(used.access());
            one.reads |= if reads { bit } else { 0 };
            one.writes |= if writes { bit } else { 0 };
        }
        if instruction.rflags_read() != 0 {
            one.reads |= FLAGS;
        }
        if instruction.rflags_modified() != 0 {
            one.writes |= FLAGS;
        }
        let mut accesses: Accesses = [None; 3];
        for (memory, place) in info.used_memory().iter().zip(&mut accesses) {
            let count = if repeated { registers.general[1] } else { 1 };
            *place = access_of(memory, registers, instruction.mnemonic(), count);
        }
        (one, accesses)
    }

    /// Looks at an access: times the lines that the window has not touched yet. Returns the slowest line.
    ///
    /// # Safety
    /// The thread is about to access the bytes.
    unsafe fn access(&mut self, at: u64, len: u64, access: Access) -> LineLoad {
        let mut slowest = LineLoad { latency_ps: 0, miss: false };
        let (first, last) = (at / LINE_BYTES, (at + len.max(1) - 1) / LINE_BYTES);
        let mut moves = false;
        for line in first..=last.min(first + LINES - 1) {
            let Touch::New { lead } = self.transfers.touch(line, access) else { continue };
            if let Some(lead) = lead {
                let slow = probe::is_present(lead * LINE_BYTES)
                    // SAFETY: the page is in memory and readable.
                    && unsafe { self.latency_ps(lead * LINE_BYTES) }.is_some_and(|ps| ps >= self.machine.miss_ps());
                self.transfers.set_lead(slow);
            }
            // SAFETY: a byte of the access.
            let latency = unsafe { self.latency_ps(at.max(line * LINE_BYTES)) }.unwrap_or(0);
            let miss = latency >= self.machine.miss_ps();
            moves = self.transfers.moved(line, access, miss);
            // The measurement is slower than the program: the processor has less to fetch ahead than it would have.
            let miss = miss && !self.transfers.is_sequence();
            let latency_ps = if miss { latency } else { latency.min(self.machine.near_ps) };
            if latency_ps > slowest.latency_ps {
                slowest = LineLoad { latency_ps, miss };
            }
        }
        if moves {
            self.transfers.add_lines((last - first).saturating_sub(LINES - 1), access);
        }
        slowest
    }

    /// The emulated latency of a miss. A read from memory takes longer by the difference of the two memories, however busy this
    /// machine's is. A line from the third-level cache, which is much nearer, keeps its proportion.
    fn emulated_ps(&self, latency: u64) -> u64 {
        let memory = self.machine.memory_ps.max(1);
        if latency >= memory / 2 {
            return latency + self.read_ps.saturating_sub(memory);
        }
        (u128::from(latency) * u128::from(self.read_ps) / u128::from(memory)) as u64
    }

    /// Latency of a load from this address, picoseconds; `None` if it met a page fault or an interrupt.
    ///
    /// # Safety
    /// The byte may be read.
    unsafe fn latency_ps(&self, at: u64) -> Option<u64> {
        // SAFETY: the caller's promise.
        let ticks = unsafe { probe::ticks(at) }.saturating_sub(self.machine.probe_ticks);
        Some(self.machine.ps(ticks)).filter(|ps| *ps < FAULT_PS)
    }
}

fn access_of(
    memory: &UsedMemory,
    registers: &Registers,
    mnemonic: Mnemonic,
    count: u64,
) -> Option<(u64, u64, Access)> {
    let past_caches = matches!(
        mnemonic,
        Mnemonic::Movnti
            | Mnemonic::Movntdq
            | Mnemonic::Movntps
            | Mnemonic::Movntpd
            | Mnemonic::Vmovntdq
            | Mnemonic::Vmovntps
            | Mnemonic::Vmovntpd
    );
    let repeats = matches!(
        mnemonic,
        Mnemonic::Movsb
            | Mnemonic::Movsw
            | Mnemonic::Movsd
            | Mnemonic::Movsq
            | Mnemonic::Stosb
            | Mnemonic::Stosw
            | Mnemonic::Stosd
            | Mnemonic::Stosq
    );
    let access = match memory.access() {
        OpAccess::Read => Access::Load,
        OpAccess::Write if past_caches => Access::NonTemporal,
        OpAccess::Write | OpAccess::ReadWrite => Access::Store,
        OpAccess::CondRead if repeats && count > 0 => Access::Load,
        OpAccess::CondWrite | OpAccess::ReadCondWrite if repeats && count > 0 => Access::Store,
        // Whether the memory is accessed hangs on other values.
        _ => return None,
    };
    let at = crate::step::address(memory, registers)?;
    let len = (memory.memory_size().size() as u64).saturating_mul(count.max(1));
    // Addresses of user space.
    (at < 1 << 47 && len < 1 << 40).then_some((at, len, access))
}

const fn reads_writes(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write => (false, true),
        OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

fn register_bit(register: Register) -> u64 {
    let full = register.full_register();
    if full.is_gpr() {
        1 << full.number()
    } else if full.is_vector_register() {
        1 << (VECTOR_BIT + full.number() % 32)
    } else if full.is_k() {
        1 << (MASK_BIT + full.number() % 8)
    } else {
        0
    }
}

fn is_fence(mnemonic: Mnemonic) -> bool {
    matches!(mnemonic, Mnemonic::Mfence | Mnemonic::Lfence | Mnemonic::Cpuid | Mnemonic::Xchg)
}

fn cycles(instruction: &iced_x86::Instruction) -> u64 {
    match instruction.mnemonic() {
        _ if instruction.has_lock_prefix() => CYCLES_ATOMIC,
        Mnemonic::Div | Mnemonic::Idiv | Mnemonic::Divsd | Mnemonic::Divss | Mnemonic::Sqrtsd => {
            CYCLES_DIVIDE
        }
        Mnemonic::Imul | Mnemonic::Mul | Mnemonic::Mulx => CYCLES_MULTIPLY,
        _ if instruction.op0_register().is_vector_register() => CYCLES_MULTIPLY,
        _ => CYCLES,
    }
}

#[cfg(test)]
mod tests;
