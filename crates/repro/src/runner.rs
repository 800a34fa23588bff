//! Carries out runs on several threads and caches each result as soon as it is finished.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Instant;

use crate::error::ReproError;
use crate::result_cache::{CachedResult, ResultCache, ResultsByDigest};
use crate::simulation_run::SimulationRun;

/// Progress of [`execute`].
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// The number of runs is known.
    Planned {
        /// Runs to carry out.
        missing: usize,
        /// Runs whose result was cached.
        cached: usize,
    },
    /// A run starts.
    Started(&'a SimulationRun),
    /// A run has finished and its result is cached.
    Finished(&'a SimulationRun),
}

/// Drops runs with a repeated digest, keeping the first of each in the order given.
pub(crate) fn distinct<'a>(runs: impl IntoIterator<Item = &'a SimulationRun>) -> Vec<&'a SimulationRun> {
    let mut seen = std::collections::BTreeSet::new();
    runs.into_iter().filter(|run| seen.insert(run.digest.as_str())).collect()
}

/// Carries out the runs that `cache` lacks on `jobs` threads, and returns the results of all `runs`.
///
/// After the first error no further run starts; runs in progress finish and are cached.
///
/// # Errors
/// The error of a run or of the cache.
pub fn execute(
    runs: &[&SimulationRun],
    cache: &ResultCache,
    jobs: usize,
    observe: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<ResultsByDigest, ReproError> {
    let runs = distinct(runs.iter().copied());
    let mut results = ResultsByDigest::new();
    let mut missing = VecDeque::new();
    for run in runs {
        match cache.load(run)? {
            Some(cached) => {
                results.insert(run.digest.clone(), cached);
            }
            None => missing.push_back(run),
        }
    }
    observe(Progress::Planned { missing: missing.len(), cached: results.len() });
    let threads = jobs.clamp(1, missing.len().max(1));
    let shared = Mutex::new(Shared { missing, results, error: None });
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&shared, cache, observe));
        }
    });
    let shared = shared.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    shared.error.map_or(Ok(shared.results), Err)
}

/// State shared by the threads.
struct Shared<'a> {
    missing: VecDeque<&'a SimulationRun>,
    results: ResultsByDigest,
    error: Option<ReproError>,
}

fn work(shared: &Mutex<Shared<'_>>, cache: &ResultCache, observe: &(dyn Fn(Progress<'_>) + Sync)) {
    let lock = || shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    loop {
        let next = {
            let mut shared = lock();
            if shared.error.is_some() { None } else { shared.missing.pop_front() }
        };
        let Some(run) = next else { return };
        observe(Progress::Started(run));
        let done = perform(run).and_then(|cached| cache.save(&cached).map(|()| cached));
        match done {
            Ok(cached) => {
                lock().results.insert(run.digest.clone(), cached);
                observe(Progress::Finished(run));
            }
            Err(error) => {
                lock().error.get_or_insert(error);
            }
        }
    }
}

fn perform(run: &SimulationRun) -> Result<CachedResult, ReproError> {
    let begun = Instant::now();
    let metrics = run.execute()?;
    Ok(CachedResult {
        digest: run.digest.clone(),
        name: run.name.clone(),
        procedure: run.procedure.into(),
        config: run.config.clone(),
        metrics,
        wall_s: begun.elapsed().as_secs_f64(),
    })
}
