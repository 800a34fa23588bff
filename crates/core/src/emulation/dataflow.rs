//! The time of a sequence of instructions on an out-of-order processor.

/// Number of registers that [`Dataflow`] tracks; the flags count as one.
pub const REGISTERS: usize = 64;
/// Instructions between the oldest one that has not retired and the newest one that has begun (reorder buffer).
const WINDOW: usize = 512;
/// Misses at the same time (fill buffers).
const MISSES: usize = 16;
/// Instructions that begin in one cycle.
const WIDTH: u64 = 4;

/// The processor's figures. [`Default`] is a core of 3 GHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Core {
    /// One cycle, picoseconds.
    pub cycle_ps: u64,
    /// Latency of a load from the first-level cache, picoseconds.
    pub hit_ps: u64,
}

impl Default for Core {
    fn default() -> Self {
        Self { cycle_ps: 333, hit_ps: 5 * 333 }
    }
}

/// The slowest line that an instruction loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineLoad {
    /// Latency, picoseconds.
    pub latency_ps: u64,
    /// Whether the line comes from memory.
    pub miss: bool,
}

/// One instruction. Stores wait in the store buffer, so they delay nothing (the paper models no write latency).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Instruction {
    /// Registers that it reads, one bit each.
    pub reads: u64,
    /// Registers that it writes, one bit each.
    pub writes: u64,
    /// Cycles from operands to result, without the load.
    pub cycles: u64,
    /// The load, if it has one.
    pub load: Option<LineLoad>,
    /// Later instructions begin after it has retired, and it begins after earlier ones have.
    pub serializes: bool,
}

/// Schedules instructions on an out-of-order processor: each begins when its operands are ready, no earlier than the
/// instruction 512 places before it has retired, and retires in order.
#[derive(Debug, Clone)]
pub struct Dataflow {
    core: Core,
    ready: [u64; REGISTERS],
    retired: [u64; WINDOW],
    misses: [u64; MISSES],
    count: usize,
    miss_count: usize,
    begin: u64,
    in_cycle: u64,
    now: u64,
}

impl Dataflow {
    /// A processor that has nothing to do.
    #[must_use]
    pub const fn new(core: Core) -> Self {
        Self {
            core,
            ready: [0; REGISTERS],
            retired: [0; WINDOW],
            misses: [0; MISSES],
            count: 0,
            miss_count: 0,
            begin: 0,
            in_cycle: 0,
            now: 0,
        }
    }

    /// Adds the next instruction, whose miss takes `miss_ps`.
    pub fn push(&mut self, one: &Instruction, miss_ps: u64) {
        let slot = self.count % WINDOW;
        let mut begin = self.begin.max(self.retired[slot]);
        if one.serializes {
            begin = begin.max(self.now);
        }
        if begin == self.begin && self.in_cycle == WIDTH {
            begin += self.core.cycle_ps;
        }
        self.in_cycle = if begin == self.begin { self.in_cycle + 1 } else { 1 };
        self.begin = begin;
        let mut start = begin;
        for_each_bit(one.reads, |register| start = start.max(self.ready[register]));
        let mut end = start + one.cycles * self.core.cycle_ps;
        match one.load {
            Some(LineLoad { miss: true, .. }) => {
                let place = self.miss_count % MISSES;
                end += miss_ps + self.misses[place].saturating_sub(start);
                self.misses[place] = end;
                self.miss_count += 1;
            }
            Some(load) => end += load.latency_ps.max(self.core.hit_ps),
            None => {}
        }
        for_each_bit(one.writes, |register| self.ready[register] = end);
        self.now = self.now.max(end);
        self.retired[slot] = self.now;
        if one.serializes {
            self.begin = self.now;
            self.in_cycle = 0;
        }
        self.count += 1;
    }

    /// Time at which the last instruction has retired, picoseconds.
    #[must_use]
    pub const fn now_ps(&self) -> u64 {
        self.now
    }
}

fn for_each_bit(mut bits: u64, mut f: impl FnMut(usize)) {
    while bits != 0 {
        f(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORE: Core = Core { cycle_ps: 100, hit_ps: 500 };
    const MISS: LineLoad = LineLoad { latency_ps: 0, miss: true };

    fn time(instructions: impl IntoIterator<Item = Instruction>, miss_ps: u64) -> u64 {
        let mut flow = Dataflow::new(CORE);
        instructions.into_iter().for_each(|one| flow.push(&one, miss_ps));
        flow.now_ps()
    }

    #[test]
    fn misses_that_depend_on_each_other_add_up() {
        let chase = Instruction { reads: 1, writes: 1, load: Some(MISS), ..Instruction::default() };
        assert_eq!(time([chase; 100], 200_000), 100 * 200_000);
    }

    #[test]
    fn independent_misses_overlap_up_to_the_fill_buffers() {
        let load = Instruction { reads: 2, writes: 1, load: Some(MISS), ..Instruction::default() };
        let sixteen = time([load; MISSES], 200_000);
        assert!((200_000..=200_000 + 4 * 100).contains(&sixteen), "{sixteen}");
        let more = time([load; MISSES + 1], 200_000);
        assert!((400_000..=400_000 + 4 * 100).contains(&more), "{more}");
    }

    #[test]
    fn a_miss_hides_work_of_one_window_only() {
        let load = Instruction { writes: 1, load: Some(MISS), ..Instruction::default() };
        let add = Instruction { reads: 2, writes: 2, cycles: 1, ..Instruction::default() };
        // The additions depend on each other: 100 ps each. The miss of 30 ns covers those that fit beside it.
        let hidden = time(core::iter::once(load).chain([add; 200]), 30_000);
        assert_eq!(hidden, 30_000);
        // The instruction WINDOW places after the miss waits until it has retired.
        let blocked = time(core::iter::once(load).chain([add; WINDOW + 10]), 1_000_000);
        assert!(blocked > 1_000_000, "{blocked}");
    }

    #[test]
    fn instructions_without_operands_begin_four_in_a_cycle() {
        let nop = Instruction::default();
        assert_eq!(time([nop; 401], 0), 100 * 100);
    }

    #[test]
    fn a_fence_orders_what_is_around_it() {
        let load = Instruction { writes: 1, load: Some(MISS), ..Instruction::default() };
        let fence = Instruction { serializes: true, ..Instruction::default() };
        assert_eq!(time([load, load], 200_000), 200_000);
        assert_eq!(time([load, fence, load], 200_000), 400_000);
    }

    #[test]
    fn the_slowdown_of_a_chase_is_the_ratio_of_the_latencies_and_that_of_hits_is_one() {
        let hit = Instruction {
            reads: 1,
            writes: 1,
            load: Some(LineLoad { latency_ps: 2_000, miss: false }),
            ..Instruction::default()
        };
        assert_eq!(time([hit; 50], 1_000), time([hit; 50], 9_000_000));
    }
}
