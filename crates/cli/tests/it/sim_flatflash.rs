//! `deepram sim flatflash` and its baselines on the command line.

use crate::common::{deepram, folder};

const SYSTEMS: [&str; 3] = ["flatflash", "unified-mmap", "traditional-stack"];

#[test]
fn the_three_systems_take_the_same_options_and_give_the_same_bytes_again() {
    let folder = folder();
    for system in SYSTEMS {
        let arguments = [
            "sim",
            system,
            "--preset",
            "p3700-32gib",
            "--workload",
            "gups:table=32MiB,updates=2k",
            "--dram",
            "4MiB",
            "--persist",
            "0..1MiB",
            "--persist",
            "2MiB..3MiB",
            "--set",
            "algorithm=literal",
            "--json",
        ];
        let result = deepram(folder.path(), &arguments).json();
        assert_eq!(result["system"], system);
        assert_eq!(result["requests"], 4000);
        assert_eq!(result["config"]["options"]["regions"][1]["start"], 2 << 20);
        assert_eq!(result["config"]["figures"]["algorithm"], "literal name");
        assert!(result["counters"]["page_movements"].as_u64().is_some_and(|pages| pages > 0), "{result}");
        assert_eq!(result, deepram(folder.path(), &arguments).json());
    }
}

#[test]
fn options_that_cannot_be_or_mean_nothing_are_wrong_usage() {
    let folder = folder();
    let cases: &[(&[&str], &str)] = &[
        (&["dram", "--persist", "0..1MiB"], "--persist is for flatflash"),
        (&["flatflash", "--persist", "1MiB..0"], "FIRST less than END"),
        (&["flatflash", "--persist", "1MiB"], "FIRST..END"),
        (&["flatflash", "--persist", "0..64TiB"], "are outside the memory"),
        (&["flatflash", "--set", "lokaside=3"], "did you mean `look_aside`?"),
        (&["flatflash", "--preset", "p370"], "did you mean `hierarchy.p3700`?"),
        (&["flat-flash"], "did you mean flatflash?"),
    ];
    for (arguments, words) in cases {
        let all = [&["sim"], *arguments, &["--workload", "uniform:span=1MiB,count=10"]].concat();
        let run = deepram(folder.path(), &all);
        assert!(run.status == 2 && run.err.contains(words), "{arguments:?}: {run:?}");
    }
}

#[test]
fn clients_write_one_log_or_their_own_and_say_so() {
    let folder = folder();
    let spec = "tpcb:branches=1,grain=row,log=4MiB";
    let arguments =
        ["--preset", "p3700-32gib", "--workload", spec, "--clients", "8", "--requests", "500", "--json"];
    for (system, own) in [("flatflash", true), ("unified-mmap", false)] {
        for logging in [None, Some("own"), Some("central")] {
            let mut all = [&["sim", system], &arguments[..]].concat();
            all.extend(logging.into_iter().flat_map(|logging| ["--logging", logging]));
            let result = deepram(folder.path(), &all).json();
            let count = |name: &str| result["counters"][name].as_u64().expect("a count");
            let each = logging.map_or(own, |logging| logging == "own");
            assert_eq!(count("commits") == count("log_writes"), each, "{all:?}: {}", result["counters"]);
            assert_eq!(result["config"]["clients"]["clients"], 8);
        }
    }
}

#[test]
fn clients_without_transactions_or_a_log_are_wrong_usage() {
    let folder = folder();
    let cases: &[(&[&str], &str)] = &[
        (&["--workload", "tpcb", "--clients", "4"], "give --requests N"),
        (&["--workload", "gups:table=1MiB", "--clients", "4", "--requests", "9"], "tpcc, tpcb and tatp"),
        (&["--workload", "tpcb", "--logging", "own"], "--clients"),
        (&["--workload", "tpcb", "--clients", "4", "--threads", "2"], "--threads"),
        (&["--workload", "tpcb", "--clients", "0", "--requests", "9"], "1..=4096"),
    ];
    for (arguments, words) in cases {
        let run = deepram(folder.path(), &[&["sim", "flatflash"], *arguments].concat());
        assert!(run.status == 2 && run.err.contains(words), "{arguments:?}: {run:?}");
    }
}
