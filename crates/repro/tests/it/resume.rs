//! An interrupted reproduction resumes from the runs that it has completed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{Hook, SETTINGS, counting, small, square};
use deepram_repro::{Options, Progress, Report, ReproError, reproduce};

fn options(out: &Path) -> Options {
    Options { out: out.into(), only: Vec::new(), jobs: 1 }
}

fn reproduced(hook: &Hook, studied: bool, options: &Options) -> Result<Report, ReproError> {
    reproduce(&small(hook, studied), &SETTINGS, options, &|_| {})
}

fn files(out: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(out.join("runs"))
        .expect("there is a folder of runs")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// Not a test by itself: the next test starts it as a process that dies in the middle of its third run.
#[test]
fn child_that_dies() {
    let Ok(out) = std::env::var("DEEPRAM_REPRO_DIES_IN") else { return };
    let hook: Hook = Arc::new(|n| if n == 3 { std::process::abort() } else { Ok(()) });
    let _ = reproduced(&hook, false, &options(Path::new(&out)));
    unreachable!("the third run ends the process");
}

#[test]
fn a_process_that_dies_in_its_third_run_leaves_two_and_only_the_others_run_again() {
    let out = tempfile::tempdir().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resume::child_that_dies", "--test-threads=1"])
        .env("DEEPRAM_REPRO_DIES_IN", out.path())
        .output()
        .unwrap()
        .status;
    assert!(!status.success());
    assert_eq!(files(out.path()).len(), 2);

    let (count, hook) = counting();
    let resumed = reproduced(&hook, false, &options(out.path())).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2, "two of the four runs were stored");
    let again = reproduced(&hook, false, &options(out.path())).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2, "all runs are stored");

    let elsewhere = tempfile::tempdir().unwrap();
    let at_once = reproduced(&hook, false, &options(elsewhere.path())).unwrap();
    let json = |report: &Report| report.to_json().unwrap();
    assert_eq!(json(&resumed), json(&at_once), "resuming gives the same bytes");
    assert_eq!(json(&again), json(&at_once));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let (one, many) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (count, hook) = counting();
    let first = reproduced(&hook, true, &options(one.path())).unwrap();
    // The paper's four runs are also the study's base and both ends of `offset`, which equal its base. The parameter
    // `factor` adds four runs at each of its two ends.
    assert_eq!(count.swap(0, Ordering::SeqCst), 12);
    let second = reproduced(&hook, true, &Options { jobs: 7, ..options(many.path()) }).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 12);
    assert_eq!(first.to_json().unwrap(), second.to_json().unwrap());
    assert_eq!(files(one.path()), files(many.path()));
}

#[test]
fn a_failing_run_is_an_error_that_names_it_and_what_was_done_is_kept() {
    let out = tempfile::tempdir().unwrap();
    let failing: Hook = Arc::new(|n| match n {
        3 => Err(ReproError::Run { run: "square 3".into(), why: "a law was broken".into() }),
        _ => Ok(()),
    });
    let error = reproduced(&failing, false, &options(out.path())).unwrap_err();
    assert_eq!(error.to_string(), "run square 3: a law was broken");
    assert_eq!(files(out.path()).len(), 2);
    let (count, hook) = counting();
    reproduced(&hook, false, &options(out.path())).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn only_what_is_asked_for_runs_and_what_is_there_is_reported() {
    let out = tempfile::tempdir().unwrap();
    let (count, hook) = counting();
    let only = |name: &str| Options { only: vec![name.into()], ..options(out.path()) };
    let report = reproduced(&hook, true, &only("order")).unwrap();
    assert_eq!(count.swap(0, Ordering::SeqCst), 4, "a claim selects its experiment");
    assert!(report.sensitivity.is_none());
    let report = reproduced(&hook, true, &only("sensitivity")).unwrap();
    assert_eq!(count.swap(0, Ordering::SeqCst), 8);
    assert!(report.sensitivity.is_some());
    assert!(report.experiments[0].outcome.is_some(), "the runs of the experiment are stored");
    let report = reproduced(&hook, true, &only("elsewhere")).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 0, "its experiment does not exist yet");
    assert!(report.sensitivity.is_some());
    let error = reproduced(&hook, true, &only("sumz")).unwrap_err().to_string();
    assert!(error.contains("\"sumz\"") && error.contains("sums, sensitivity, sum-inside"), "{error}");
}

#[test]
fn contents_that_are_no_results_are_errors_that_name_the_file() {
    let (_, hook) = counting();
    let mine = square(2, 1.0, &hook).digest;
    let other = square(3, 1.0, &hook).digest;
    let out = tempfile::tempdir().unwrap();
    reproduced(&hook, false, &options(out.path())).unwrap();
    let file = out.path().join("runs").join(format!("{mine}.json"));
    let whole = fs::read_to_string(&file).unwrap();
    let foreign = fs::read_to_string(out.path().join("runs").join(format!("{other}.json"))).unwrap();
    let strange = whole.replacen('{', "{\"strange\": 1,", 1);
    let no_number = whole.replacen("4.0", "null", 1);
    assert_ne!(no_number, whole);
    for bad in ["", "{}", &whole[..whole.len() / 2], &foreign, &strange, &no_number, "\u{0}"] {
        fs::write(&file, bad).unwrap();
        let error = reproduced(&hook, false, &options(out.path())).unwrap_err().to_string();
        assert!(error.contains(&mine) && error.contains("remove it"), "{error}");
    }
    fs::write(&file, whole).unwrap();
    reproduced(&hook, false, &options(out.path())).unwrap();

    let taken = out.path().join("taken");
    fs::write(&taken, "a file").unwrap();
    let error = reproduced(&hook, false, &options(&taken)).unwrap_err().to_string();
    assert!(error.contains("taken"), "{error}");
}

#[test]
fn progress_tells_what_is_missing_and_each_run_once() {
    let out = tempfile::tempdir().unwrap();
    let (_, hook) = counting();
    reproduced(&hook, false, &options(out.path())).unwrap();
    fs::remove_file(out.path().join("runs").join(&files(out.path())[0])).unwrap();
    let told = std::sync::Mutex::new(Vec::new());
    let observe = |event: Progress<'_>| {
        told.lock().unwrap().push(match event {
            Progress::Planned { missing, cached } => format!("{missing} of {}", missing + cached),
            Progress::Started(_) => "begun".into(),
            Progress::Finished(_) => "done".into(),
        });
    };
    reproduce(&small(&hook, false), &SETTINGS, &options(out.path()), &observe).unwrap();
    assert_eq!(*told.lock().unwrap(), ["1 of 4", "begun", "done"]);
}
