//! Stalls the threads, for the read latency and the bandwidth of the emulated memory.
//!
//! A thread's timer raises a signal every few milliseconds of its processor time. The handler now and then executes a window of
//! the thread's next instructions and measures it ([`Sampler`]); from the newest windows follow the stall and the bytes of the
//! time since the last signal. The handler waits as long as the stall lasts, and as long as the memory that all threads share is
//! busy with their bytes. It waits on the processor, as a stalled processor would.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_core::emulation::{BusClock, Debt, Estimate};
use deepram_linux::clock::{monotonic_ns, thread_cpu_ns};
use deepram_linux::slow_memory::Sampler;
use deepram_linux::step::{ExtendedState, Registers};
use libc::{c_int, c_void, siginfo_t, ucontext_t};

use super::threads::{SIGNAL, begin_thread};
use super::{Speed, settings};
use crate::kernel;
use crate::malloc::{errno, set_errno};
use crate::thread_state::thread_state;

/// Processor time between two signals, nanoseconds. The kernel looks at timers once a tick, 1 to 10 ms.
pub(super) const TICK_NS: i64 = 1_000_000;
/// Windows that a new thread begins with, one a signal.
const FIRST_WINDOWS: u32 = 16;
/// Largest part of a thread's time that is spent on windows, if no stall covers them: one part in this number.
const COST_SHARE: u64 = 20;
const PS_PER_NS: u64 = 1_000;

/// The clock of the memory that all processes of the run share, picoseconds of the monotonic clock.
static BUS: OnceLock<&'static AtomicU64> = OnceLock::new();

pub(super) fn speed() -> Option<Speed> {
    settings()?.speed
}

/// Installs the handler and starts the timer of the main thread.
///
/// # Errors
/// What cannot be had.
pub(super) fn begin(speed: Speed, bus: Option<&[u8]>) -> Result<(), String> {
    let of = |what: &str| format!("{what}: {}", io::Error::last_os_error());
    if speed.line_ps > 0 {
        let path = bus.ok_or("a cap of the bandwidth needs DEEPRAM_RUN_MEDIA_BUS")?;
        let _ = BUS.set(map_bus(path).ok_or_else(|| of("the shared clock"))?);
    }
    // SAFETY: zeros are a valid action; the handler exists as long as the library.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_tick as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut())
    };
    if installed != 0 {
        return Err(of("the handler of a signal"));
    }
    begin_thread();
    if thread_state().timer.get().is_null() { Err(of("the timer of the program")) } else { Ok(()) }
}

fn map_bus(path: &[u8]) -> Option<&'static AtomicU64> {
    let path = std::ffi::CString::new(path).ok()?;
    // SAFETY: opens a file and maps its first page for as long as the process lives.
    unsafe {
        let fd = kernel::call(
            libc::SYS_openat,
            [
                libc::AT_FDCWD as usize,
                path.as_ptr().addr(),
                (libc::O_RDWR | libc::O_CLOEXEC) as usize,
                0,
                0,
                0,
            ],
        ) as c_int;
        if fd < 0 {
            return None;
        }
        let at = kernel::mmap(0, 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
        kernel::close(fd);
        (at != libc::MAP_FAILED).then(|| &*at.cast::<AtomicU64>())
    }
}

/// What the stalls of a thread follow from.
pub(super) struct Stalls {
    speed: Speed,
    sampler: Box<Sampler>,
    estimate: Estimate,
    debt: Debt,
    /// Processor time of the thread at the end of the last signal, picoseconds.
    processor_ps: u64,
    /// Run time since the last window, picoseconds.
    unsampled_ps: u64,
    /// Time that the last window took, picoseconds.
    window_ps: u64,
}

impl Stalls {
    pub(super) fn new(speed: Speed) -> io::Result<Self> {
        Ok(Self {
            speed,
            sampler: Box::new(Sampler::new(speed.machine, speed.read_ps)?),
            estimate: Estimate::new(),
            debt: Debt::new(),
            processor_ps: 0,
            unsampled_ps: 0,
            window_ps: 0,
        })
    }

    /// Begins to count the thread's time.
    pub(super) fn begin(&mut self) {
        self.processor_ps = now_ps(thread_cpu_ns);
    }

    /// Looks at the thread, and stalls it for the time since the last signal.
    ///
    /// # Safety
    /// The registers and the state are those of this thread, which was interrupted.
    unsafe fn tick(&mut self, registers: &mut Registers, extended: ExtendedState) {
        let run_ps = now_ps(thread_cpu_ns).saturating_sub(self.processor_ps);
        self.unsampled_ps += run_ps;
        if self.is_window_due() {
            let begin = now_ps(monotonic_ns);
            // SAFETY: the caller's promise; a fault of an instruction is the program's own.
            let window = unsafe { self.sampler.window(registers, extended) };
            if let Some(window) = window {
                self.estimate.add(window);
            }
            self.window_ps = now_ps(monotonic_ns) - begin;
            self.debt.pay(self.window_ps);
            self.unsampled_ps = 0;
        }
        self.debt.owe(self.estimate.stall_ps(run_ps));
        let now = now_ps(monotonic_ns);
        let free_at = self.book(now, run_ps);
        let due = self.debt.due_ps();
        wait_until(free_at.max(now + due));
        self.debt.pay(due);
        self.processor_ps = now_ps(thread_cpu_ns);
    }

    fn is_window_due(&self) -> bool {
        let stall = self.estimate.stall_ps(self.unsampled_ps);
        self.estimate.windows() < FIRST_WINDOWS
            || self.unsampled_ps / COST_SHARE >= self.window_ps
            || stall >= 2 * self.window_ps
    }

    /// Books the bytes of a run time on the shared memory. Returns the time at which it is free again.
    fn book(&self, now: u64, run_ps: u64) -> u64 {
        let Some(bus) = BUS.get().filter(|_| self.speed.line_ps > 0) else { return 0 };
        let bytes = self.estimate.bytes(run_ps);
        if bytes == 0 {
            return 0;
        }
        let booked =
            |clock: u64| BusClock(clock).after(now.saturating_sub(run_ps), bytes, self.speed.line_ps).0;
        let before = bus.fetch_update(Relaxed, Relaxed, |clock| Some(booked(clock)));
        booked(before.unwrap_or(0))
    }
}

/// A clock in picoseconds. The count wraps when the machine has been up for 213 days; runs that include that moment are stalled
/// wrongly once.
fn now_ps(clock: fn() -> u64) -> u64 {
    clock().wrapping_mul(PS_PER_NS)
}

fn wait_until(end: u64) {
    while now_ps(monotonic_ns) < end {
        std::hint::spin_loop();
    }
}

/// Whether the thread was in a system call when its time was up: the signal is delivered behind the call's instruction.
fn is_behind_system_call(rip: u64) -> bool {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    // The instruction may lie in the page before, which need not be readable.
    if rip % 4096 < 2 {
        return false;
    }
    let at: *const [u8; 2] = std::ptr::with_exposed_provenance(rip as usize - 2);
    // SAFETY: the thread executes instructions of this page.
    unsafe { at.read_unaligned() == SYSCALL }
}

/// The kernel's software bytes of an extended state: where they are, what they begin with, and where the features are named.
const SOFTWARE_BYTES: usize = 464;
const EXTENDED_MAGIC: u32 = 0x4650_5853;

/// The handler of the timer's signal.
extern "C" fn on_tick(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    /// Places of `rax` to `r15` in the context, in the order of [`Registers::general`].
    const PLACES: [c_int; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];
    let timer = thread_state().timer.get();
    if timer.is_null() {
        return;
    }
    let saved = errno();
    // SAFETY: the thread's own; no other code uses it while the handler runs, as all signals are blocked.
    let thread = unsafe { &mut *timer };
    // SAFETY: the kernel passes the context of the interrupted thread.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    let machine = &mut context.uc_mcontext;
    let area: *mut u8 = machine.fpregs.cast();
    let word = |at: usize| area.wrapping_add(SOFTWARE_BYTES + at);
    // SAFETY: the area has at least 512 bytes, of which these are the kernel's.
    let (magic, features) =
        unsafe { (word(0).cast::<u32>().read_unaligned(), word(8).cast::<u64>().read_unaligned()) };
    let rip = machine.gregs[libc::REG_RIP as usize] as u64;
    if magic == EXTENDED_MAGIC && !is_behind_system_call(rip) {
        let mut registers = Registers {
            general: PLACES.map(|place| machine.gregs[place as usize] as u64),
            flags: machine.gregs[libc::REG_EFL as usize] as u64,
            rip,
        };
        // SAFETY: the kernel's area is in the format of `xsave`, with these features, and is the handler's until it returns.
        let extended = unsafe { ExtendedState::new(area, features) };
        // SAFETY: registers and state of this thread. Its own handlers cannot run: all signals are blocked.
        unsafe { thread.stalls.tick(&mut registers, extended) };
        for (place, value) in PLACES.into_iter().zip(registers.general) {
            machine.gregs[place as usize] = value.cast_signed();
        }
        machine.gregs[libc::REG_EFL as usize] = registers.flags.cast_signed();
        machine.gregs[libc::REG_RIP as usize] = registers.rip.cast_signed();
    } else {
        // Time of the kernel is not slowed down.
        thread.stalls.begin();
    }
    thread.arm(TICK_NS);
    set_errno(saved);
}
