//! Sweeps: the grid against brute force, outcomes, the journal after kills, the files of results.

use std::path::Path;

use deepram_media::Registry;
use deepram_sim::System;
use deepram_sim::simulation::Simulation;
use deepram_sim::sweep::{Cell, Journal, Sweep, SweepError, execute, write_results};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use proptest::prelude::*;
use serde_json::Value;

fn parse(text: &str) -> Sweep {
    Sweep::parse("s.toml", text, Path::new("")).unwrap_or_else(|error| panic!("{error}"))
}

fn small() -> Sweep {
    parse(
        "system = \"ssd\"\nworkload = \"uniform:span=1MiB,count=40\"\n\
         [axes]\npreset = [\"z-ssd\", \"tlc\"]\nset.nand.read = [\"10us\", \"30us\"]\nseed = { from = 1, to = 3 }\n\
         [pareto]\nminimize = [\"latency.mean_ns\", \"energy_total_nj\"]\n",
    )
}

proptest! {
    #[test]
    fn the_grid_has_every_combination_that_keeps_the_constraints_once_and_in_order(
        a in prop::collection::btree_set(1..40u32, 1..6),
        b in prop::collection::btree_set(1..40u32, 1..6),
        c in prop::collection::btree_set(1..40u32, 1..6),
        factor in 1..4u32,
    ) {
        let (a, b, c): (Vec<_>, Vec<_>, Vec<_>) =
            (a.into_iter().collect(), b.into_iter().rev().collect(), c.into_iter().collect());
        // A combination that always holds keeps the sweep from being empty.
        let text = format!(
            "system = \"ssd\"\nworkload = \"uniform:span=1MiB,count=9\"\n\
             constraints = [\"{factor} * threads <= depth\", \"seed != {}\"]\n\
             [axes]\nseed = {a:?}\nthreads = {b:?}\ndepth = {c:?}\n", a[0]
        );
        let mut expected = Vec::new();
        for &seed in &a {
            for &threads in &b {
                for &depth in &c {
                    if factor * threads <= depth && seed != a[0] {
                        expected.push([seed, threads, depth].map(|n| n.to_string()));
                    }
                }
            }
        }
        match Sweep::parse("s.toml", &text, Path::new("")) {
            Ok(sweep) => {
                let found: Vec<Vec<&str>> = (0..sweep.len()).map(|n| sweep.values(n).unwrap()).collect();
                prop_assert_eq!(found, expected);
                let missing = matches!(sweep.values(sweep.len()), Err(SweepError::NoPoint { .. }));
                prop_assert!(missing);
            }
            Err(error) => {
                prop_assert!(expected.is_empty(), "{}", error);
                prop_assert!(error.to_string().contains("keeps the constraints"));
            }
        }
    }
}

#[test]
fn a_point_is_the_simulation_that_its_values_describe() {
    let sweep = small();
    for point in [0, 4, 11] {
        let values = sweep.values(point).unwrap();
        let mut simulation = Simulation::new(System::Ssd);
        simulation.set_option("workload", "uniform:span=1MiB,count=40").unwrap();
        simulation.set_option("preset", values[0]).unwrap();
        simulation.set.push(format!("nand.read={}", values[1]));
        simulation.set_option("seed", values[2]).unwrap();
        let (result, _) = simulation.run(&Registry::builtin().unwrap(), &|_| true).unwrap();
        let outcome: Value = serde_json::from_str(&sweep.outcome(point).unwrap()).unwrap();
        assert_eq!(outcome["status"], "done");
        assert_eq!(outcome["result"], serde_json::to_value(&result).unwrap());
    }
}

#[test]
fn keys_differ_exactly_where_results_may_differ() {
    let sweep = small();
    let mut keys: Vec<String> = (0..sweep.len()).map(|n| sweep.key(n).unwrap()).collect();
    // The same point of another grid has the same key.
    let one = parse(
        "system = \"ssd\"\nworkload = \"uniform:span=1MiB,count=40\"\npreset = \"tlc\"\nseed = 2\n[set]\nnand.read = \"30us\"\n",
    );
    assert_eq!((one.len(), one.key(0).unwrap()), (1, keys[10].clone()));
    assert_eq!(sweep.values(10).unwrap(), ["tlc", "30us", "2"]);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), sweep.len());
}

#[test]
fn the_contents_of_an_input_count_and_its_folder_does_not() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let text = "system = \"ssd\"\ntrace = \"t.csv\"\n[axes]\nseed = [1, 2]\n";
    let write = |folder: &Path, offset: u32| {
        let lines = format!("time_us,op,offset,size\n0,read,{offset},4096\n9,write,8192,4096\n");
        std::fs::write(folder.join("t.csv"), lines).unwrap();
    };
    let of = |folder: &Path| {
        let sweep = Sweep::parse("s.toml", text, folder).unwrap();
        (sweep.key(0).unwrap(), sweep.outcome(0).unwrap())
    };
    folders.iter().for_each(|folder| write(folder.path(), 0));
    let (first, second) = (of(folders[0].path()), of(folders[1].path()));
    assert_eq!(first, second);
    assert!(first.1.contains(r#""workload":"t.csv""#), "{}", first.1);
    write(folders[1].path(), 4096);
    assert_ne!(first.0, of(folders[1].path()).0);
    std::fs::remove_file(folders[1].path().join("t.csv")).unwrap();
    let error = Sweep::parse("s.toml", text, folders[1].path()).unwrap().key(0).unwrap_err().to_string();
    assert!(error.contains("t.csv: opening the input failed"), "{error}");
}

/// The two files of results of a sweep carried out in `folder`.
fn results(sweep: &Sweep, folder: &Path, jobs: usize) -> (Vec<u8>, Vec<u8>) {
    let journal = Journal::open(folder).unwrap();
    execute(sweep, &journal, jobs, &|_| {}).unwrap();
    write_results(sweep, &journal, folder).unwrap();
    let read = |name| std::fs::read(folder.join(name)).unwrap();
    (read("results.jsonl"), read("results.parquet"))
}

#[test]
fn results_have_the_same_bytes_wherever_a_kill_cuts_the_journal() {
    let sweep = small();
    let whole = tempfile::tempdir().unwrap();
    let expected = results(&sweep, whole.path(), 1);
    let text = std::fs::read(whole.path().join("journal.jsonl")).unwrap();
    let ends: Vec<usize> =
        text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    assert_eq!(ends.len(), sweep.len());
    for (jobs, cut) in
        [(2, 0), (1, ends[3]), (2, ends[3] + 1), (1, ends[4] - 1), (2, ends[5] + 80), (3, ends[11])]
    {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("journal.jsonl"), &text[..cut]).unwrap();
        assert_eq!(results(&sweep, folder.path(), jobs), expected, "cut at {cut}");
        let journal = std::fs::read(folder.path().join("journal.jsonl")).unwrap();
        assert_eq!(journal.iter().filter(|b| **b == b'\n').count(), sweep.len(), "cut at {cut}");
    }
}

#[test]
fn a_journal_that_is_damaged_or_in_use_is_an_error() {
    let sweep = small();
    let folder = tempfile::tempdir().unwrap();
    results(&sweep, folder.path(), 1);
    let file = folder.path().join("journal.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"status\":\"done\"", "\"status\":\"dome\"", 1)).unwrap();
    let error = Journal::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("line 1 is no line of a journal"), "{error}");
    std::fs::write(&file, &text).unwrap();
    let open = Journal::open(folder.path()).unwrap();
    let error = Journal::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("another sweep writes"), "{error}");
    assert!(open.append("short", "{\"status\":\"done\"}").is_err());
    assert!(open.append(&"0".repeat(64), "{\"status\":\"done\"\n}").is_err());
    open.append(&"0".repeat(64), "{\"status\":\"failed\",\"error\":\"x\"}").unwrap();
    drop(open);
    let again = Journal::open(folder.path()).unwrap();
    assert_eq!(again.outcome(&"0".repeat(64)).unwrap().unwrap(), "{\"status\":\"failed\",\"error\":\"x\"}");
    assert_eq!(again.outcome(&"1".repeat(64)).unwrap(), None);
}

#[test]
fn a_failed_point_is_recorded_and_the_others_are_not_disturbed() {
    let sweep = parse(
        "system = \"ssd\"\nworkload = \"uniform:span=1MiB,count=40\"\n[axes]\npreset = [\"tlc\", \"tcl\"]\nwarm-up = [0, 40]\n",
    );
    let folder = tempfile::tempdir().unwrap();
    let (lines, _) = results(&sweep, folder.path(), 2);
    let lines: Vec<Value> =
        String::from_utf8(lines).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let status: Vec<&str> = lines.iter().map(|line| line["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["done", "failed", "failed", "failed"]);
    assert!(lines[1]["error"].as_str().unwrap().contains("covers all 40 requests"));
    assert!(lines[2]["error"].as_str().unwrap().contains("did you mean `ssd.tlc`?"));
    let journal = Journal::open(folder.path()).unwrap();
    let summary = write_results(&sweep, &journal, folder.path()).unwrap();
    assert_eq!((summary.points, summary.failed, summary.first_failure.unwrap().0), (4, 3, 1));
}

#[test]
fn the_table_has_units_and_the_parquet_file_has_the_table() {
    let sweep = small();
    let folder = tempfile::tempdir().unwrap();
    results(&sweep, folder.path(), 2);
    let journal = Journal::open(folder.path()).unwrap();
    let summary = write_results(&sweep, &journal, folder.path()).unwrap();
    let table = &summary.table;
    let names: Vec<&str> = table.columns.iter().take(6).map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["point", "axis.preset", "axis.set.nand.read_ns", "axis.seed", "status", "error"]);
    assert_eq!(table.column("axis.set.nand.read_ns").unwrap().cells[4], Some(Cell::Float(30_000.0)));
    let file = std::fs::File::open(folder.path().join("results.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    assert_eq!(reader.metadata().file_metadata().num_rows(), sweep.len() as i64);
    let position = |name: &str| table.columns.iter().position(|column| column.name == name).unwrap();
    let (mean, seed, preset, error) =
        (position("latency.mean_ns"), position("axis.seed"), position("axis.preset"), position("error"));
    for (at, row) in reader.get_row_iter(None).unwrap().enumerate() {
        let row = row.unwrap();
        assert_eq!(Some(Cell::Float(row.get_double(mean).unwrap())), table.columns[mean].cells[at]);
        assert_eq!(Some(Cell::Int(row.get_long(seed).unwrap())), table.columns[seed].cells[at]);
        assert_eq!(row.get_string(preset).unwrap(), sweep.values(at).unwrap()[0]);
        assert!(row.get_string(error).is_err(), "no point failed, so the cell is null");
    }
}

#[test]
fn the_front_is_that_of_all_pairs_of_points() {
    let sweep = small();
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    execute(&sweep, &journal, 2, &|_| {}).unwrap();
    let summary = write_results(&sweep, &journal, folder.path()).unwrap();
    let figure = |name: &str, point: usize| {
        summary.table.column(name).unwrap().cells[point].as_ref().unwrap().number().unwrap()
    };
    let of = |point| (figure("latency.mean_ns", point), figure("energy_total_nj", point));
    let beaten = |point| {
        let (mean, energy) = of(point);
        (0..sweep.len()).map(of).any(|(m, e)| m <= mean && e <= energy && (m < mean || e < energy))
    };
    let expected: Vec<usize> = (0..sweep.len()).filter(|point| !beaten(*point)).collect();
    assert!(!expected.is_empty() && expected.len() < sweep.len());
    assert_eq!(summary.front, expected);
    let wrong = parse(
        "system = \"ssd\"\nworkload = \"uniform:span=1MiB,count=40\"\n[pareto]\nminimize = [\"latency.p98_ns\"]\n",
    );
    let journal = Journal::open(&folder.path().join("wrong")).unwrap();
    execute(&wrong, &journal, 1, &|_| {}).unwrap();
    let error = write_results(&wrong, &journal, folder.path()).unwrap_err().to_string();
    assert!(error.contains("did you mean latency.p9"), "{error}");
}
