//! Memory controllers lose lines that were not flushed: a stand-in for the processor records for each line what has been
//! written back, and what a barrier has made durable. A crash leaves each line as it was made durable last, or as it was
//! stored later.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

use crate::memory::{again, memory_file, searches};
use deepram_pool::memory::{MemoryController, MemoryOptions, MemoryRegion, Processor, Selective};
use deepram_testkit::seeds;
use rand::{Rng, RngExt};

const LINE: usize = 64;
const KERNEL_PAGE: u64 = 4096;
const PAGE: u64 = 64 << 10;

type Line = [u8; LINE];
type Meanwhile = Box<dyn FnMut(u64) + Send>;

/// What of a file's memory survives a crash.
struct Shadow {
    /// Address of the file's first byte, known when it is open.
    base: OnceLock<usize>,
    state: Mutex<State>,
    /// Called when a line has been written back, with its offset: other threads store at that moment.
    meanwhile: Mutex<Option<Meanwhile>>,
}

struct State {
    durable: Vec<Line>,
    /// The lines that a thread has written back since its last barrier.
    written_back: HashMap<ThreadId, BTreeMap<usize, Line>>,
}

impl Shadow {
    fn new(file: &File) -> Arc<Self> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let durable = bytes.as_chunks::<LINE>().0.to_vec();
        let state = Mutex::new(State { durable, written_back: HashMap::new() });
        Arc::new(Self { base: OnceLock::new(), state, meanwhile: Mutex::new(None) })
    }

    fn line(&self, number: usize) -> Line {
        let start = self.base.get().unwrap() + number * LINE;
        let word = |n: usize| {
            let word = std::ptr::with_exposed_provenance_mut::<u64>(start + n * 8);
            // SAFETY: an aligned word of the mapped file, to which others store through atomics.
            unsafe { AtomicU64::from_ptr(word) }.load(SeqCst)
        };
        let mut line = [0; LINE];
        for (n, bytes) in line.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *bytes = word(n).to_ne_bytes();
        }
        line
    }

    /// The version that a line's first word is.
    fn durable_version(&self, offset: u64) -> u64 {
        version(&self.state.lock().unwrap().durable[offset as usize / LINE])
    }

    /// The file after a crash: each line as it is durable, or as it is now.
    fn crash(&self, rng: &mut impl Rng) -> File {
        let mut bytes = Vec::new();
        let durable = self.state.lock().unwrap().durable.clone();
        for (number, durable) in durable.iter().enumerate() {
            let now = self.line(number);
            bytes.extend_from_slice(if rng.random_ratio(1, 2) { durable } else { &now });
        }
        let file = File::from(rustix::fs::memfd_create("crash", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        file.write_all_at(&bytes, 0).unwrap();
        file
    }
}

fn version(line: &Line) -> u64 {
    u64::from_ne_bytes(line[..8].try_into().unwrap())
}

impl Processor for Shadow {
    fn write_back(&self, start: *const u8, len: usize) {
        if len == 0 {
            return;
        }
        let first = start.addr() - self.base.get().unwrap();
        for number in first / LINE..(first + len).div_ceil(LINE) {
            let line = self.line(number);
            let mut state = self.state.lock().unwrap();
            state.written_back.entry(std::thread::current().id()).or_default().insert(number, line);
            drop(state);
            if let Some(meanwhile) = &mut *self.meanwhile.lock().unwrap() {
                meanwhile((number * LINE) as u64);
            }
        }
    }

    fn barrier(&self) {
        let mut state = self.state.lock().unwrap();
        let lines = state.written_back.remove(&std::thread::current().id()).unwrap_or_default();
        for (number, line) in lines {
            // Another thread may have written back a later version meanwhile.
            let is_data = number * LINE >= 2 * PAGE as usize;
            if !is_data || version(&line) >= version(&state.durable[number]) {
                state.durable[number] = line;
            }
        }
    }
}

/// A controller on shadowed memory, with one region of this many pages of the kernel.
struct World {
    shadow: Arc<Shadow>,
    memory: MemoryController,
    region: MemoryRegion,
    /// The version of each line in the region that a flush has promised, by offset.
    promised: BTreeMap<u64, u64>,
}

impl World {
    fn new(selective: Selective, pages: u64) -> Self {
        let len = (pages * KERNEL_PAGE).next_multiple_of(PAGE);
        let file = memory_file(len + 8 * PAGE);
        let shadow = Shadow::new(&file);
        let options = MemoryOptions { selective, ..MemoryOptions::default() };
        let memory = MemoryController::open_with(again(&file), &options, shadow.clone()).unwrap();
        shadow.base.set(memory.info().base as usize).unwrap();
        let region = memory.create_region("region", len).unwrap();
        Self { shadow, memory, region, promised: BTreeMap::new() }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        word(self.shadow.base.get().unwrap(), offset)
    }

    /// The versions of the lines of a range, which a flush that begins now promises.
    fn promise(&self, offset: u64, len: u64) -> BTreeMap<u64, u64> {
        let lines = offset / LINE as u64..(offset + len).div_ceil(LINE as u64);
        lines.map(|line| line * LINE as u64).map(|at| (at, self.word(at).load(SeqCst))).collect()
    }

    /// Compares the durable lines with what was promised.
    fn check_durable(&self) {
        for (&offset, &promised) in &self.promised {
            let durable = self.shadow.durable_version(offset);
            assert!(
                durable >= promised,
                "a crash loses version {promised} at {offset}: {durable} is durable"
            );
        }
    }
}

fn word<'a>(base: &usize, offset: u64) -> &'a AtomicU64 {
    let word = std::ptr::with_exposed_provenance_mut(base + offset as usize);
    // SAFETY: an aligned word of the mapped file; the tests drop no controller while they use its words.
    unsafe { AtomicU64::from_ptr(word) }
}

/// One thread stores and flushes; other stores fall between the write-backs of a flush.
fn run(selective: Selective, seed: u64) {
    const PAGES: u64 = 48;
    let mut rng = seeds::rng(seed);
    let mut world = World::new(selective, PAGES);
    let (base, start) = (*world.shadow.base.get().unwrap(), world.region.offset);
    let versions = Arc::new(AtomicU64::new(1));
    let mut other = seeds::rng(seed ^ 1);
    let next = versions.clone();
    *world.shadow.meanwhile.lock().unwrap() = Some(Box::new(move |offset: u64| {
        // A store to the page whose line has just been written back: to that line, or to another one.
        if offset >= start && other.random_ratio(1, 16) {
            let in_page = other.random_range(0..KERNEL_PAGE / LINE as u64) * LINE as u64;
            let page = offset - offset % KERNEL_PAGE;
            let at = if other.random_ratio(1, 2) { offset } else { page + in_page };
            word(&base, at).store(next.fetch_add(1, SeqCst), SeqCst);
        }
    }));
    for _ in 0..400 {
        // A few pages are stored to again and again, which stay dirty; others only now and then.
        let page = if rng.random_ratio(2, 3) { rng.random_range(0..3) } else { rng.random_range(0..PAGES) };
        let line = start + page * KERNEL_PAGE + rng.random_range(0..64) * LINE as u64;
        match rng.random_range(0..4) {
            0 | 1 => world.word(line).store(versions.fetch_add(1, SeqCst), SeqCst),
            choice => {
                let (offset, len) = match rng.random_range(0..4) {
                    0 => (start, world.region.len),
                    1 => (start + page * KERNEL_PAGE, KERNEL_PAGE),
                    2 => (line, rng.random_range(1..=100).min(start + world.region.len - line)),
                    _ => {
                        let end = start + world.region.len;
                        let offset = rng.random_range(start..end);
                        (offset, rng.random_range(1..=end - offset))
                    }
                };
                let promise = world.promise(offset, len);
                if choice == 2 || len > 1000 {
                    world.memory.flush(offset, len).unwrap();
                } else {
                    world.memory.persist(offset, len).unwrap();
                }
                for (at, version) in promise {
                    let before = world.promised.entry(at).or_default();
                    *before = version.max(*before);
                }
                world.check_durable();
            }
        }
    }
}

#[test]
fn no_crash_loses_a_store_that_was_flushed() {
    for selective in searches() {
        seeds::each(12, |seed| run(selective, seed));
    }
}

#[test]
fn no_crash_loses_a_store_that_one_of_several_threads_flushed() {
    const THREADS: u64 = 3;
    for selective in searches() {
        seeds::each(4, |seed| {
            let world = World::new(selective, 16);
            let (base, start) = (*world.shadow.base.get().unwrap(), world.region.offset);
            let versions = AtomicU64::new(1);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (world, versions) = (&world, &versions);
                    scope.spawn(move || {
                        let _guard = seeds::SeedGuard::new(seed);
                        let mut rng = seeds::rng(seed * THREADS + thread);
                        for _ in 0..300 {
                            let page = start + rng.random_range(0..16) * KERNEL_PAGE;
                            // Lines of a thread's own, so that their versions ascend.
                            let line = page + (rng.random_range(0..20) * THREADS + thread) * LINE as u64;
                            word(&base, line).store(versions.fetch_add(1, SeqCst), SeqCst);
                            let (offset, len) = match rng.random_range(0..3) {
                                0 => (start, world.region.len),
                                1 => (page, KERNEL_PAGE),
                                _ => (line, 8),
                            };
                            let promise = world.promise(offset, len);
                            world.memory.flush(offset, len).unwrap();
                            for (at, promised) in promise {
                                let durable = world.shadow.durable_version(at);
                                assert!(
                                    durable >= promised,
                                    "{selective:?}: a crash loses version {promised} at {at}: {durable} is durable"
                                );
                            }
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn regions_are_there_whole_or_not_at_all_after_any_crash() {
    seeds::each(20, |seed| {
        let mut rng = seeds::rng(seed);
        let world = World::new(Selective::Off, 16);
        // A crash at each write-back of a line, while a region is entered or removed.
        let crashes: Arc<Mutex<Vec<File>>> = Arc::default();
        let (images, shadow, mut of_crash) = (crashes.clone(), world.shadow.clone(), seeds::rng(seed ^ 1));
        *world.shadow.meanwhile.lock().unwrap() = Some(Box::new(move |_| {
            images.lock().unwrap().push(shadow.crash(&mut of_crash));
        }));
        let mut regions = vec![world.region.clone()];
        let sorted = |regions: &[MemoryRegion]| {
            let mut regions = regions.to_vec();
            regions.sort_by_key(|region| region.offset);
            regions
        };
        for n in 0..20 {
            let before = sorted(&regions);
            if regions.len() > 1 && rng.random_ratio(1, 3) {
                let gone = regions.pop().unwrap();
                world.memory.remove_region(gone.offset).unwrap();
            } else {
                // A long name takes both lines of a record.
                let name = format!("{n}{}", "n".repeat(rng.random_range(0..100)));
                regions.extend(world.memory.create_region(&name, PAGE));
            }
            let after = sorted(&regions);
            assert_eq!(inspect(&world.shadow.crash(&mut rng)), after);
            for image in crashes.lock().unwrap().drain(..) {
                let found = inspect(&image);
                assert!(found == before || found == after, "{found:?} is neither {before:?} nor {after:?}");
            }
        }
        *world.shadow.meanwhile.lock().unwrap() = None;
        let image = world.shadow.crash(&mut rng);
        // The image is mapped at the same address.
        drop(world);
        let memory = MemoryController::open_file(image, &MemoryOptions::default()).unwrap();
        for region in regions {
            assert_eq!(memory.region(&region.name), Some(region));
        }
    });
}

fn inspect(file: &File) -> Vec<MemoryRegion> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    MemoryController::inspect(std::path::Path::new(&path)).unwrap().regions
}
