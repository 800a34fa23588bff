//! The seeds that a test runs, and the output when one fails. Environment variables apply to a whole process,
//! so each case is an ignored test that this test program runs in a child process.

use std::process::{Command, Output};

use deepram_testkit::seeds;
use rand::RngExt;

fn run(case: &str, seed: Option<&str>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("seeds::{case}"), "--ignored", "--nocapture"]);
    match seed {
        Some(seed) => command.env(seeds::SEED_VARIABLE, seed),
        None => command.env_remove(seeds::SEED_VARIABLE),
    };
    command.output().unwrap()
}

#[test]
#[ignore = "run by the tests below"]
fn case_prints_its_seeds() {
    seeds::each(3, |seed| eprintln!("ran <{seed}>"));
}

#[test]
#[ignore = "run by the tests below"]
fn case_fails_at_two() {
    seeds::each(5, |seed| assert_ne!(seed, 2));
}

fn ran(seed: Option<&str>) -> Vec<String> {
    let output = run("case_prints_its_seeds", seed);
    assert!(output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("rerun"));
    text.lines()
        .filter_map(|line| line.split_once("ran <")?.1.split_once('>'))
        .map(|(seed, _)| seed.to_owned())
        .collect()
}

#[test]
fn all_seeds_run_unless_the_environment_names_one() {
    assert_eq!(ran(None), ["0", "1", "2"]);
    assert_eq!(ran(Some("41")), ["41"]);
    assert_eq!(ran(Some("18446744073709551615")), ["18446744073709551615"]);
}

#[test]
fn a_seed_that_is_no_number_is_refused() {
    let output = run("case_prints_its_seeds", Some("x"));
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("DEEPRAM_SEED is \"x\"; it should be a number"), "{text}");
}

#[test]
fn a_failure_says_with_which_seed_to_rerun() {
    let output = run("case_fails_at_two", None);
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.matches("seed 2: rerun with DEEPRAM_SEED=2\n").count(), 1, "{text}");
    assert_eq!(text.matches("rerun").count(), 1, "{text}");
    assert!(run("case_fails_at_two", Some("3")).status.success());
}

#[test]
fn the_generator_of_a_seed_is_the_same_on_any_machine() {
    // The first output of rand_chacha's ChaCha8, seeded as rand_core does, recorded once. If a new version of
    // either crate changes it, seeds in old reports no longer reproduce: say so in the change log.
    assert_eq!(seeds::rng(1).random::<u64>(), 7424550030962593201);
}
