//! The figures of single pages: stack distances, working sets, simulated caches. A thread of its own computes them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::hit_ratio::DistanceHistogram;
use super::optimum::Optimum;
use super::options::{CharacterizeError, CharacterizeOptions};
use super::page_index::{Page, PageIndex};
use super::policies::SimulatedCache;
use super::sampling::{Sample, Sampling};
use super::stack_distance::StackDistances;
use super::working_set::WorkingSets;

/// Accesses that one step after another is applied to, so that the waits for memory of each step overlap.
const STEP: usize = 256;
/// Accesses that are sent to the thread at once.
const BATCH: usize = 4096;
/// Batches that may wait for the thread.
const WAITING: usize = 8;

/// An access to a page.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) page: Page,
    pub(super) write: bool,
    /// Number of the shortest window.
    pub(super) window: u32,
}

/// The figures of single pages.
pub(super) struct PageFigures {
    pub(super) sample: Option<Sample>,
    pub(super) index: PageIndex,
    pub(super) distances: DistanceHistogram,
    pub(super) write_distances: DistanceHistogram,
    pub(super) working_sets: WorkingSets,
    pub(super) caches: Vec<SimulatedCache>,
    /// The optimal replacement, if it is asked for.
    pub(super) optimum: Option<Optimum>,
    stack: StackDistances,
    /// The stack of writes only, if it is asked for.
    write_stack: Option<StackDistances>,
    /// Numbers of the pages of the current step.
    numbers: Vec<u32>,
    /// Stack distances of the current step.
    step_distances: Vec<Option<u32>>,
}

impl PageFigures {
    /// The figures of no access.
    fn new(options: &CharacterizeOptions) -> Self {
        let rate = match options.sampling {
            Sampling::Rate(rate) => rate,
            Sampling::Exact | Sampling::Pages(_) => 1.0,
        };
        let capacities = options.cache_bytes.iter().map(|bytes| bytes / options.page_bytes);
        let caches = options.policies.iter().flat_map(|&policy| {
            capacities.clone().map(move |capacity| SimulatedCache::new(policy, capacity, rate))
        });
        Self {
            sample: Sample::new(options.sampling),
            index: PageIndex::new(),
            distances: DistanceHistogram::default(),
            write_distances: DistanceHistogram::default(),
            working_sets: WorkingSets::new(options.window_requests),
            caches: caches.collect(),
            optimum: options.optimum.then(|| Optimum::new(capacities.collect(), rate)),
            stack: StackDistances::new(),
            write_stack: options.write_only_stack.then(StackDistances::new),
            numbers: Vec::with_capacity(STEP),
            step_distances: Vec::with_capacity(STEP),
        }
    }

    /// Uses the pages, in order.
    ///
    /// # Errors
    /// The trace has more distinct pages than can be numbered.
    fn add(&mut self, accesses: &[Access]) -> Result<(), CharacterizeError> {
        if self.sample.is_none() {
            return accesses.chunks(STEP).try_for_each(|step| self.add_step(step));
        }
        // Each access may change the pages of the sample, on which the next depends.
        for access in accesses {
            if self.sample.as_ref().is_some_and(|sample| sample.contains(access.page)) {
                self.add_step(std::slice::from_ref(access))?;
            }
        }
        Ok(())
    }

    fn add_step(&mut self, accesses: &[Access]) -> Result<(), CharacterizeError> {
        self.index.number_all(accesses.iter().map(|access| access.page), &mut self.numbers)?;
        let numbers = &self.numbers;
        let weight = self.sample.as_ref().map_or(1.0, |sample| 1.0 / sample.rate());
        self.working_sets.load(numbers);
        for (access, &number) in accesses.iter().zip(numbers) {
            self.working_sets.add(number, access.write, access.window, weight);
        }
        match &mut self.sample {
            None => {
                self.stack.load(numbers);
                self.step_distances.clear();
                self.step_distances.extend(numbers.iter().map(|&number| self.stack.touch(number)));
                for (access, &distance) in accesses.iter().zip(&self.step_distances) {
                    self.distances.add(distance, access.write);
                }
            }
            Some(sample) => {
                for (access, &number) in accesses.iter().zip(numbers) {
                    let removed = |page| self.working_sets.remove(page);
                    sample.add(access.page, number, access.write, &mut self.index, removed);
                }
            }
        }
        if let Some(stack) = &mut self.write_stack {
            for (_, &number) in accesses.iter().zip(numbers).filter(|(access, _)| access.write) {
                self.write_distances.add(stack.touch(number), true);
            }
        }
        let numbered = || numbers.iter().copied().zip(accesses.iter().map(|access| access.write));
        self.caches.iter_mut().for_each(|cache| cache.access_all(numbered()));
        self.optimum.iter_mut().for_each(|optimum| optimum.access_all(numbered()));
        Ok(())
    }
}

/// The thread that computes the figures of single pages, and the accesses that it has not been sent yet.
pub(super) struct PageFiguresThread {
    batch: Vec<Access>,
    batches: SyncSender<Vec<Access>>,
    /// Emptied batches come back, so that their memory is used again.
    emptied: Receiver<Vec<Access>>,
    figures: JoinHandle<Result<PageFigures, CharacterizeError>>,
}

impl PageFiguresThread {
    /// Starts the thread. It ends when this value is dropped.
    pub(super) fn new(options: &CharacterizeOptions) -> Self {
        let (batches, received) = sync_channel::<Vec<Access>>(WAITING);
        let (give_back, emptied) = sync_channel(WAITING);
        let mut figures = PageFigures::new(options);
        let compute = move || {
            for mut batch in received {
                figures.add(&batch)?;
                batch.clear();
                // Nobody takes it back once the trace has ended.
                let _ = give_back.try_send(batch);
            }
            Ok(figures)
        };
        Self { batch: Vec::with_capacity(BATCH), batches, emptied, figures: std::thread::spawn(compute) }
    }

    /// Adds an access.
    ///
    /// # Errors
    /// The trace has more distinct pages than can be numbered.
    #[inline]
    pub(super) fn add(&mut self, access: Access) -> Result<(), CharacterizeError> {
        self.batch.push(access);
        if self.batch.len() == BATCH { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), CharacterizeError> {
        let empty = self.emptied.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH));
        let batch = std::mem::replace(&mut self.batch, empty);
        // The thread stops receiving for this one reason only.
        self.batches.send(batch).map_err(|_| CharacterizeError::TooManyPages)
    }

    /// The figures of all accesses.
    ///
    /// # Errors
    /// The trace has more distinct pages than can be numbered.
    pub(super) fn finish(mut self) -> Result<PageFigures, CharacterizeError> {
        self.send()?;
        drop(self.batches);
        self.figures.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
