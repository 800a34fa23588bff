//! The disk cache: what its steps do to the data, its regions, and its behaviour under errors.

use std::collections::HashMap;

use deepram_core::disk_cache::*;
use deepram_core::reliability::*;
use proptest::prelude::*;

use crate::reliability::policy;

/// Options of a cache with a programmable controller.
pub(crate) fn options(
    dram_pages: u32,
    blocks: u32,
    slots: u16,
    write_share: Option<f64>,
) -> DiskCacheOptions {
    DiskCacheOptions {
        dram_pages,
        shape: FlashShape { blocks, slots },
        write_share,
        reclaim: ReclaimScope::Greedy,
        least_dead: 1,
        low_blocks: 1,
        age_reads: 500,
        policy: policy(Controller::Programmable),
    }
}

/// Uniform numbers of a seed (SplitMix64).
pub(crate) struct Uniform(pub(crate) u64);

impl Uniform {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % n
    }
}

/// Flash whose pages fail bit by bit: a page has a fault for each so many cycles, ten times as many with
/// single-level cells, and transient errors now and then.
pub(crate) struct Failing {
    pub(crate) random: Uniform,
    pub(crate) cycles_a_fault: u32,
    /// One of so many reads has a transient error; 0 for none.
    pub(crate) transient: u64,
}

impl FlashReads for Failing {
    fn read(&mut self, page: PhysicalPage, cycles: u32) -> ReadErrors {
        let factor = if page.density == Density::Slc { 10 } else { 1 };
        let own = 1 + page.page.0 % 5;
        let consistent = cycles * own / (3 * factor * self.cycles_a_fault);
        let transient = self.transient > 0 && self.random.below(self.transient) == 0;
        ReadErrors { errors: consistent + 3 * u32::from(transient), consistent }
    }
}

/// The data behind the cache: the version of each disk page in each place.
#[derive(Default)]
struct Data {
    /// What the host wrote last.
    newest: HashMap<u32, u64>,
    dram: HashMap<u32, u64>,
    /// Programmed pages since the erase of their block: disk page and version.
    flash: HashMap<FlashPage, (u32, u64)>,
    disk: HashMap<u32, u64>,
    programs: u64,
    erases: u64,
    losses: u64,
}

impl Data {
    fn program(&mut self, to: PhysicalPage, data: (u32, u64)) {
        assert!(self.flash.insert(to.page, data).is_none(), "{to:?} is programmed twice without an erase");
        if to.density == Density::Slc {
            assert_eq!(to.page, to.page.first());
            assert!(!self.flash.contains_key(&to.page.neighbour()), "{to:?} shares its cells");
        }
        self.programs += 1;
    }

    /// Carries the steps out.
    fn carry_out(&mut self, steps: &mut Vec<Step>, shape: FlashShape) {
        for step in steps.drain(..) {
            match step {
                Step::Program { to, disk, cause } => {
                    let from = if cause == Cause::Fill { &self.disk } else { &self.dram };
                    let version = from.get(&disk).copied().unwrap_or(0);
                    self.program(to, (disk, version));
                }
                Step::Move { from, to, .. } => {
                    let data = self.flash[&from.page];
                    self.program(to, data);
                }
                Step::Flush { from, disk } => {
                    let (key, version) = self.flash[&from.page];
                    assert_eq!(key, disk);
                    self.disk.insert(disk, version);
                }
                Step::DiskWrite(key) => {
                    let version = self.dram[&key];
                    self.disk.insert(key, version);
                }
                Step::Erase(block) => {
                    self.flash.retain(|page, _| shape.block(*page) != block);
                    self.erases += 1;
                }
                Step::Note(Note::Lost) => self.losses += 1,
                Step::Read(_) | Step::Note(_) => {}
            }
        }
    }
}

/// A run of a cache with the data behind it.
struct Checked {
    cache: DiskCache,
    data: Data,
    steps: Vec<Step>,
    wrong: u64,
    notes: HashMap<String, u64>,
}

impl Checked {
    fn new(options: &DiskCacheOptions) -> Self {
        let cache = DiskCache::new(options).unwrap();
        Self { cache, data: Data::default(), steps: Vec::new(), wrong: 0, notes: HashMap::new() }
    }

    fn settle(&mut self) {
        for step in &self.steps {
            if let Step::Note(note) = step {
                let name = format!("{note:?}");
                let name = name.split(' ').next().unwrap().to_owned();
                *self.notes.entry(name).or_default() += 1;
            }
        }
        self.data.carry_out(&mut self.steps, self.cache.flash().shape());
    }

    fn count(&self, note: &str) -> u64 {
        self.notes.get(note).copied().unwrap_or(0)
    }

    fn read(&mut self, page: u32, reads: &mut dyn FlashReads) -> ReadOutcome {
        let before = self.data.flash.clone();
        let outcome = self.cache.read(page, reads, &mut self.steps);
        let version = match outcome {
            ReadOutcome::Dram => self.data.dram[&page],
            ReadOutcome::Flash(at) => {
                let (key, version) = before[&at.page];
                assert_eq!(key, page);
                version
            }
            ReadOutcome::Disk { .. } => self.data.disk.get(&page).copied().unwrap_or(0),
        };
        // A page that left DRAM for this one is written back from DRAM, so that its data stay until then.
        self.data.dram.insert(page, version);
        self.settle();
        let newest = self.data.newest.entry(page).or_insert(0);
        self.wrong += u64::from(*newest != version);
        *newest = version;
        outcome
    }

    fn write(&mut self, page: u32, version: u64, reads: &mut dyn FlashReads) {
        self.cache.write(page, reads, &mut self.steps);
        self.settle();
        self.data.dram.insert(page, version);
        self.data.newest.insert(page, version);
    }

    /// The tables agree with each other and with the data.
    fn check(&self) {
        let flash = self.cache.flash();
        let shape = flash.shape();
        let valid: Vec<FlashPage> = (0..shape.blocks)
            .flat_map(|block| shape.pages_of(block))
            .filter(|page| flash.page(*page).is_valid())
            .collect();
        assert_eq!(valid.len(), flash.len() as usize);
        for page in &valid {
            let (key, _) = self.data.flash[page];
            assert_eq!(flash.find(key).map(|at| at.page), Some(*page));
        }
        for block in 0..shape.blocks {
            let of = |dirty: bool| {
                let pages = shape.pages_of(block).map(|page| flash.page(page));
                pages.filter(|page| page.is_valid() && (page.is_dirty() || !dirty)).count()
            };
            assert_eq!(usize::from(flash.blocks().live(block)), of(false), "block {block}");
            assert_eq!(usize::from(flash.blocks().dirty(block)), of(true), "block {block}");
            let programmed = self.data.flash.keys().filter(|page| shape.block(**page) == block).count();
            if flash.region_of(block).is_some() {
                assert_eq!(usize::from(flash.blocks().programmed(block)), programmed, "block {block}");
            }
        }
        assert!(self.cache.dirty_in_dram() <= self.cache.pages_in_dram());
    }
}

/// A random stream of operations. Returns the run.
fn stream(options: &DiskCacheOptions, reads: &mut Failing, operations: u64, span: u64) -> Checked {
    let mut run = Checked::new(options);
    for number in 1..=operations {
        // Half of the accesses go to a tenth of the pages.
        let near = reads.random.below(2) == 0;
        let page = reads.random.below(if near { span.div_ceil(10) } else { span }) as u32;
        match reads.random.below(100) {
            0..=54 => drop(run.read(page, reads)),
            55..=94 => run.write(page, number, reads),
            95..=96 => {
                run.cache.write_back(reads.random.below(10) as u32, reads, &mut run.steps);
                run.settle();
            }
            97 => {
                run.cache.flush(reads.random.below(50) as u32, reads, &mut run.steps);
                run.settle();
            }
            _ => {
                run.cache.reclaim(reads, &mut run.steps);
                run.settle();
            }
        }
        if number % 64 == 0 {
            run.check();
        }
    }
    run.check();
    run
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_read_returns_the_data_written_last_whatever_wears_out(
        seed in any::<u64>(),
        blocks in 5u32..14,
        slots in 2u16..9,
        share in prop::option::of(0.1f64..0.9),
        all in any::<bool>(),
        least_dead in 1u16..6,
        low_blocks in 0u32..3,
        cycles_a_fault in prop::sample::select(vec![1u32, 3, 1000]),
        by_page in any::<bool>(),
        fixed in any::<bool>(),
        level in prop::option::of(2.0f64..10.0),
        hot in prop::option::of(2u16..8),
        single in any::<bool>(),
    ) {
        let mut options = options(4, blocks, slots, share);
        (options.least_dead, options.low_blocks) = (least_dead, low_blocks);
        options.reclaim = if all { ReclaimScope::All } else { ReclaimScope::Greedy };
        let policy = &mut options.policy;
        policy.controller = if fixed { Controller::Fixed } else { Controller::Programmable };
        policy.retirement = if by_page { Retirement::Page } else { Retirement::Block };
        policy.density = if single { Density::Slc } else { Density::Mlc };
        (policy.wear_difference, policy.hot_limit) = (level, hot);
        let mut reads = Failing { random: Uniform(seed), cycles_a_fault, transient: 0 };
        let span = u64::from(blocks) * u64::from(slots) * 3;
        let run = stream(&options, &mut reads, 3_000, span);
        prop_assert!(run.wrong <= run.data.losses, "{} wrong, {} lost", run.wrong, run.data.losses);
        prop_assert!(cycles_a_fault < 1000 || run.data.losses == 0);
        prop_assert_eq!(run.data.losses, run.count("Lost"));
    }

    #[test]
    fn transient_errors_lose_no_more_than_they_report_and_change_nothing(seed in any::<u64>()) {
        let mut options = options(4, 8, 8, Some(0.3));
        // Without faults that stay, only reads with three errors at once are suspect.
        options.policy.hot_limit = None;
        let mut reads = Failing { random: Uniform(seed), cycles_a_fault: u32::MAX / 1000, transient: 20 };
        let run = stream(&options, &mut reads, 2_000, 200);
        prop_assert!(run.wrong <= run.data.losses);
        prop_assert!(run.count("Uncorrectable") > 0);
        let changes = ["Strengthen", "FaultToSlc", "RetireBlock", "RetirePage"].map(|note| run.count(note));
        prop_assert_eq!(changes, [0; 4]);
    }
}

#[test]
fn worn_flash_strengthens_its_codes_then_turns_single_level_then_retires_until_it_is_dead() {
    let mut options = options(4, 8, 8, Some(0.3));
    options.policy.hot_limit = None;
    let seed = 7;
    let mut reads = Failing { random: Uniform(seed), cycles_a_fault: 1, transient: 0 };
    let mut run = Checked::new(&options);
    let mut seen = Vec::new();
    for number in 0..2_000_000u64 {
        let page = reads.random.below(400) as u32;
        if number % 2 == 0 {
            run.write(page, number, &mut reads);
        } else {
            run.read(page, &mut reads);
        }
        for note in ["Strengthen", "FaultToSlc", "RetireBlock", "Dead"] {
            if run.count(note) > 0 && !seen.contains(&note) {
                seen.push(note);
            }
        }
        if run.cache.flash().is_dead() {
            break;
        }
    }
    assert_eq!(seen, ["Strengthen", "FaultToSlc", "RetireBlock", "Dead"], "seed {seed}");
    assert!(run.cache.flash().is_empty() && run.wrong <= run.data.losses);
    // Without flash the cache still works.
    run.write(1, 5, &mut reads);
    for page in 2..20 {
        run.read(page, &mut reads);
    }
    assert!(matches!(run.read(1, &mut reads), ReadOutcome::Disk { failed: None }));
    run.check();
}

#[test]
fn a_page_that_is_read_often_moves_to_single_level_cells_once() {
    let mut options = options(1, 8, 8, None);
    (options.policy.hot_limit, options.age_reads) = (Some(4), 0);
    let mut reads = Failing { random: Uniform(1), cycles_a_fault: u32::MAX / 1000, transient: 0 };
    let mut run = Checked::new(&options);
    // DRAM has one page, so that each read is one of flash.
    for page in 0..5 {
        run.read(page, &mut reads);
    }
    let density = |run: &Checked| run.cache.flash().find(3).unwrap().density;
    for round in 1..=10 {
        let before = density(&run);
        assert_eq!(before, if round <= 4 { Density::Mlc } else { Density::Slc }, "{round}");
        run.read(3, &mut reads);
        run.read(1000 + round % 2, &mut reads);
    }
    // Page 1000 and 1001 are read five times each as well.
    assert_eq!(run.count("HotToSlc"), 3);
    run.check();
}

#[test]
fn a_split_cache_has_fewer_candidates_of_reclamation_than_a_unified_one() {
    // Figure 4: blocks of five pages. Five blocks' worth of data, three fifths read and two fifths written;
    // then every written page is written again.
    let run = |write_share: Option<f64>| {
        let mut options = options(1, 8, 5, write_share);
        options.policy.density = Density::Slc;
        options.policy.controller = Controller::Fixed;
        let mut reads = Failing { random: Uniform(1), cycles_a_fault: u32::MAX / 1000, transient: 0 };
        let mut run = Checked::new(&options);
        let write = |run: &mut Checked, reads: &mut Failing, page: u32, version: u64| {
            run.write(page, version, reads);
            run.cache.write_back(1, reads, &mut run.steps);
            run.settle();
        };
        for block in 0..5 {
            for page in 0..3 {
                run.read(10 * block + page, &mut reads);
            }
            for page in 0..2 {
                write(&mut run, &mut reads, 100 + 2 * block + page, 1);
            }
        }
        for page in 100..110 {
            write(&mut run, &mut reads, page, 2);
        }
        run.check();
        run
    };
    let (unified, split) = (run(None), run(Some(4.0 / 7.0)));
    let candidates = |run: &Checked, region| run.cache.flash().reclaimable(region).collect::<Vec<_>>();
    assert_eq!(candidates(&unified, Region::Read), [(2, 0), (2, 1), (2, 2), (2, 3), (2, 4)]);
    let of_split = candidates(&split, Region::Write);
    assert_eq!(of_split.iter().map(|(dead, _)| *dead).collect::<Vec<_>>(), [5, 5]);
    assert_eq!(candidates(&split, Region::Read), []);
    // Reclaiming all of them moves 15 pages and erases 5 blocks, or moves none and erases 2.
    let cost = |mut run: Checked| {
        let before = (run.data.programs, run.data.erases);
        let mut reads = Failing { random: Uniform(1), cycles_a_fault: u32::MAX / 1000, transient: 0 };
        // Ten more writes need two blocks.
        for page in 100..110 {
            run.write(page, 3, &mut reads);
            run.cache.write_back(1, &mut reads, &mut run.steps);
            run.settle();
        }
        (run.data.programs - before.0 - 10, run.data.erases - before.1)
    };
    let (unified, split) = (cost(unified), cost(split));
    assert!(split.0 < unified.0 && split.1 < unified.1, "{split:?} {unified:?}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let refused = |change: fn(&mut DiskCacheOptions)| {
        let mut options = options(4, 8, 8, Some(0.3));
        change(&mut options);
        DiskCache::new(&options).unwrap_err().to_string()
    };
    assert!(refused(|options| options.dram_pages = 0).contains("DRAM"));
    assert!(refused(|options| options.shape.blocks = 4).contains("it needs 5 blocks"));
    assert!(refused(|options| options.shape.slots = 0).contains("blocks"));
    assert!(refused(|options| options.write_share = Some(1.0)).contains("write_share"));
    assert!(refused(|options| options.policy.strength = 13).contains("strength"));
    assert!(refused(|options| options.shape = FlashShape { blocks: 1 << 20, slots: 4096 }).contains("2^31"));
    // Flash of no block is no flash.
    assert!(DiskCache::new(&options(4, 0, 8, Some(0.3))).unwrap().flash().is_dead());
}
