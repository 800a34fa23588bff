//! Functions are executed natively and by the stepper: results and memory must be the same.

use std::arch::x86_64::{__cpuid_count, _xgetbv};
use std::hint::black_box;

use super::*;

/// Where the function returns to: a system call, which the stepper leaves to the thread.
static END: [u8; 16] = [0x0f, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Address of [`END`].
pub(crate) fn end() -> u64 {
    END.as_ptr().expose_provenance() as u64
}

const STACK: usize = 1 << 20;

/// An area for `xsave` with the state of this thread.
#[repr(C, align(64))]
pub(crate) struct Area([u8; 16 << 10]);

impl Area {
    pub(crate) fn new() -> Box<Self> {
        // SAFETY: every processor with AVX has the instruction.
        assert!(__cpuid_count(13, 0).ebx as usize <= size_of::<Self>());
        let mut area = Box::new(Self([0; 16 << 10]));
        let to = area.0.as_mut_ptr();
        // SAFETY: the area is aligned and large enough, as checked.
        unsafe {
            std::arch::asm!("xsave64 [{}]", in(reg) to, in("eax") 0b1110_0111, in("edx") 0, options(nostack));
        }
        area
    }

    pub(crate) fn state(&mut self) -> ExtendedState {
        // SAFETY: as in `new`; the area outlives the state in these tests.
        unsafe { ExtendedState::new(self.0.as_mut_ptr(), _xgetbv(0)) }
    }
}

/// Registers at the call of a function with these arguments, on a stack of its own.
pub(crate) fn call_of(function: usize, arguments: [u64; 3], stack: &mut [u64]) -> Registers {
    let top = stack.len() - 64 - (stack.as_ptr().addr() / 8) % 2;
    stack[top - 1] = end();
    let mut registers = Registers { flags: 0x202, rip: function as u64, ..Registers::default() };
    registers.general[RSP] = stack.as_mut_ptr().wrapping_add(top - 1).expose_provenance() as u64;
    (registers.general[7], registers.general[6], registers.general[2]) =
        (arguments[0], arguments[1], arguments[2]);
    registers
}

/// Executes a function by the stepper. Returns `rax` and the number of instructions.
fn run(function: usize, arguments: [u64; 3]) -> (u64, usize) {
    let mut stack = vec![0_u64; STACK / 8];
    let mut registers = call_of(function, arguments, &mut stack);
    let (mut stepper, mut area) = (Stepper::new().expect("a page"), Area::new());
    let mut count = 0;
    while registers.rip != end() {
        // SAFETY: the registers are those of a call of the function, which goes on here.
        let decoded = unsafe { stepper.decode(&registers) };
        let decoded = decoded.unwrap_or_else(|stop| panic!("{stop:?} after {count} at {:#x}", registers.rip));
        // SAFETY: as above.
        let done = unsafe { stepper.execute(&decoded, &mut registers, area.state()) };
        done.unwrap_or_else(|stop| panic!("{stop:?} after {count}: {:?}", decoded.instruction.code()));
        count += 1;
    }
    (registers.general[0], count)
}

extern "C" fn sum(words: *const u64, count: u64, add: u64) -> u64 {
    // SAFETY: the tests pass that many words.
    let words = unsafe { std::slice::from_raw_parts(words, count as usize) };
    words.iter().fold(add, |sum, word| sum.rotate_left(5).wrapping_mul(31) ^ word)
}

extern "C" fn sort(words: *mut u64, count: u64, _: u64) -> u64 {
    // SAFETY: as above.
    let words = unsafe { std::slice::from_raw_parts_mut(words, count as usize) };
    words.sort_unstable();
    words[count as usize / 2]
}

extern "C" fn float(words: *const u64, count: u64, _: u64) -> u64 {
    // SAFETY: as above.
    let words = unsafe { std::slice::from_raw_parts(words, count as usize) };
    let mean = words.iter().map(|word| *word as f64).sum::<f64>() / count as f64;
    let square = words.iter().map(|word| (*word as f64 - mean).powi(2)).sum::<f64>();
    (square / count as f64).sqrt().to_bits() % 1_000_003
}

extern "C" fn text(words: *const u64, count: u64, other: u64) -> u64 {
    let table: [fn(u64) -> u64; 4] = [|x| x + 1, |x| x * 3, |x| x / 7, |x| x % 1000];
    // SAFETY: as above.
    let words = unsafe { std::slice::from_raw_parts(words, count as usize) };
    let mut all = 0_u64;
    for word in words {
        all = all.wrapping_add(black_box(table)[(*word % 4) as usize](*word % 10_000));
    }
    all ^ other
}

fn words(seed: u64, count: usize) -> Vec<u64> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 11
        })
        .collect()
}

#[test]
fn functions_compute_the_same_as_on_the_processor() {
    for seed in 1..20 {
        let mut own = words(seed, 200);
        let mut other = own.clone();
        let at = own.as_mut_ptr().expose_provenance() as u64;
        for function in [sum, float, text] {
            let native = function(own.as_ptr(), 200, seed);
            let (value, count) = run(function as *const () as usize, [at, 200, seed]);
            assert_eq!(value, native, "seed {seed}");
            assert!(count > 400, "{count}");
        }
        let native = sort(other.as_mut_ptr(), 200, 0);
        assert_eq!(run(sort as *const () as usize, [at, 200, 0]).0, native, "seed {seed}");
        assert_eq!(own, other, "seed {seed}");
    }
}

#[test]
fn functions_of_the_c_library_do_what_they_do_on_the_processor() {
    let source: Vec<u8> = words(5, 1000).iter().flat_map(|word| word.to_le_bytes()).collect();
    for len in [0, 1, 7, 15, 16, 31, 64, 100, 255, 256, 1000, 4097, 8000] {
        let mut target = vec![0_u8; 8000];
        let (to, from) = (target.as_mut_ptr().expose_provenance(), source.as_ptr().expose_provenance());
        let (value, _) = run(libc::memcpy as *const () as usize, [to as u64, from as u64, len as u64]);
        assert_eq!(value, to as u64);
        assert_eq!(target[..len], source[..len], "{len}");
        assert!(target[len..].iter().all(|byte| *byte == 0), "{len}");
        let (value, _) = run(libc::memcmp as *const () as usize, [to as u64, from as u64, len as u64]);
        assert_eq!(value as u32, 0, "{len}");
    }
    let long = format!("{}\0", "x".repeat(777));
    let (len, _) = run(libc::strlen as *const () as usize, [long.as_ptr().expose_provenance() as u64, 0, 0]);
    assert_eq!(len, 777);
}

#[test]
fn a_system_call_and_an_unknown_instruction_stop_before_they_are_executed() {
    for (code, stop) in [
        (&[0x0f_u8, 0x05][..], Stop::SystemCall),
        (&[0x9d], Stop::Other),
        (&[0x06], Stop::Other),
        (&[0xcc], Stop::Other),
    ] {
        let mut bytes = code.to_vec();
        bytes.resize(32, 0x90);
        let mut registers = Registers {
            rip: bytes.as_ptr().expose_provenance() as u64,
            flags: 0x202,
            ..Registers::default()
        };
        let before = registers;
        let (mut stepper, mut area) = (Stepper::new().expect("a page"), Area::new());
        // SAFETY: the bytes are readable; nothing is executed of what is refused.
        let found = unsafe {
            stepper.decode(&registers).and_then(|one| stepper.execute(&one, &mut registers, area.state()))
        };
        assert_eq!(found, Err(stop), "{code:x?}");
        assert_eq!(registers, before);
    }
}
