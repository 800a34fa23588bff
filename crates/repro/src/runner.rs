//! Runs simulations on several threads, and keeps what is done.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use crate::error::ReproError;
use crate::run::Run;
use crate::store::{Results, Store, Stored};

/// What happens while runs are run.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// So many runs are to be done, so many have been done before.
    Planned {
        /// To be done.
        missing: usize,
        /// Done before.
        kept: usize,
    },
    /// A run begins.
    Begun(&'a Run),
    /// It has ended and its result is kept.
    Done(&'a Run),
}

/// The runs of a list, each digest once, in the order of the list.
pub(crate) fn distinct<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<&'a Run> {
    let mut seen = std::collections::BTreeSet::new();
    runs.into_iter().filter(|run| seen.insert(run.digest.as_str())).collect()
}

/// Does the runs that the store does not have, on `jobs` threads; returns all results.
///
/// The first error ends it: no further run begins, those under way end and are kept.
///
/// # Errors
/// A run's own, or the store's.
pub fn execute(
    runs: &[&Run],
    store: &Store,
    jobs: usize,
    fresh: bool,
    observe: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Results, ReproError> {
    let runs = distinct(runs.iter().copied());
    let mut results = Results::new();
    let mut missing = VecDeque::new();
    for run in runs {
        match if fresh { None } else { store.load(run)? } {
            Some(stored) => {
                results.insert(run.digest.clone(), stored);
            }
            None => missing.push_back(run),
        }
    }
    observe(Progress::Planned { missing: missing.len(), kept: results.len() });
    let threads = jobs.clamp(1, missing.len().max(1));
    let shared = Mutex::new(Shared { missing, results, error: None });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&shared, store, observe));
        }
    });
    let shared = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    shared.error.map_or(Ok(shared.results), Err)
}

/// What the threads share.
struct Shared<'a> {
    missing: VecDeque<&'a Run>,
    results: Results,
    error: Option<ReproError>,
}

fn work(shared: &Mutex<Shared<'_>>, store: &Store, observe: &(dyn Fn(Progress<'_>) + Sync)) {
    let lock = || shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        let next = {
            let mut shared = lock();
            if shared.error.is_some() { None } else { shared.missing.pop_front() }
        };
        let Some(run) = next else { return };
        observe(Progress::Begun(run));
        let done = perform(run).and_then(|stored| store.save(&stored).map(|()| stored));
        match done {
            Ok(stored) => {
                lock().results.insert(run.digest.clone(), stored);
                observe(Progress::Done(run));
            }
            Err(error) => {
                lock().error.get_or_insert(error);
            }
        }
    }
}

fn perform(run: &Run) -> Result<Stored, ReproError> {
    let begun = Instant::now();
    let figures = run.execute()?;
    Ok(Stored {
        digest: run.digest.clone(),
        name: run.name.clone(),
        procedure: run.procedure.name.into(),
        config: run.config.clone(),
        figures,
        wall_s: begun.elapsed().as_secs_f64(),
    })
}
