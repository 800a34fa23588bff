//! `deepram run`: programs behave the same with and without paging.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::paged::{library, program, text, within};

fn run(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    assert!(library().is_file());
    let mut command = within(240, env!("CARGO_BIN_EXE_deepram"));
    command.arg("run").args(options).arg("--").arg(program);
    command.args(arguments).output().expect("timeout runs")
}

#[test]
fn every_memory_call_at_random_agrees_with_a_shadow_copy() {
    let Some(shadow) = program("shadow") else { return };
    for seed in 1..=6 {
        let output = run(&["--dram", "24MiB"], &shadow, &[&seed.to_string(), "3", "250"]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {} {said}", output.status);
        assert_eq!(text(&output.stdout), "right\n", "seed {seed}");
    }
}

#[test]
fn one_thread_for_long_agrees_as_well() {
    let Some(shadow) = program("shadow") else { return };
    for seed in [11, 12] {
        let output = run(&["--dram", "24MiB"], &shadow, &[&seed.to_string(), "1", "1500"]);
        assert!(output.status.success(), "seed {seed}: {} {}", output.status, text(&output.stderr));
    }
}

#[test]
fn statistics_are_told_in_three_forms() {
    let Some(shadow) = program("shadow") else { return };
    let arguments = ["3", "1", "100"];
    let json = run(&["--dram", "24MiB", "--stats", "json"], &shadow, &arguments);
    let all: serde_json::Value = serde_json::from_slice(&json.stderr).expect("one JSON object");
    let figure = |name: &str| all[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {all}"));
    assert!(figure("faults_fresh") > 0 && figure("evicted_pages") > 0, "{all}");
    assert_eq!(figure("budget_bytes"), 24 << 20);
    assert_eq!(figure("processes"), 0, "no process is left");
    assert_eq!(figure("dram_bytes"), 0, "no DRAM is in use");
    let prometheus = text(&run(&["--dram", "24MiB", "--stats", "prometheus"], &shadow, &arguments).stderr);
    for line in prometheus.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.split_once(' ').expect("name and value");
        assert!(name.starts_with("deepram_") && value.parse::<u64>().is_ok(), "{line}");
    }
    let plain = text(&run(&["--dram", "24MiB", "--stats"], &shadow, &arguments).stderr);
    assert_eq!(plain.lines().count(), 10, "{plain}");
    assert!(plain.contains("Major page faults (page read from the swap file)"), "{plain}");
}

#[test]
fn without_a_size_it_keeps_within_its_memory_cgroup() {
    if deepram_pager::available().is_err() {
        eprintln!("skipped: memory cannot be paged here");
        return;
    }
    assert!(library().is_file());
    let name = format!("deepram-test-run-{}", std::process::id());
    let versions = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let made = versions.iter().find_map(|(root, limit)| {
        let group = Path::new(root).join(&name);
        std::fs::create_dir(&group).ok()?;
        let limited = std::fs::write(group.join(limit), (256 << 20).to_string());
        limited.map_err(|_| std::fs::remove_dir(&group)).ok().map(|()| group)
    });
    let Some(group) = made else {
        eprintln!("skipped: no memory cgroup can be made here");
        return;
    };
    let script = "echo $$ > \"$0\" && exec \"$@\"";
    let mut command = within(240, "sh");
    command.args(["-c", script]).arg(group.join("cgroup.procs"));
    let done = command.args([env!("CARGO_BIN_EXE_deepram"), "run", "--stats", "json", "--", "true"]).output();
    // The last process may still be exiting.
    let tries = std::iter::repeat_with(|| std::fs::remove_dir(&group)).take(100);
    let gone = tries.inspect(|_| std::thread::sleep(std::time::Duration::from_millis(20))).any(|r| r.is_ok());
    assert!(gone, "processes are left in the group");
    let done = done.expect("sh runs");
    let all: serde_json::Value = serde_json::from_slice(&done.stderr).expect("one JSON object");
    let budget = all["budget_bytes"].as_u64().expect("a budget");
    assert!(budget <= 128 << 20, "more than half of the group's limit: {budget}");
    assert!(budget >= 96 << 20, "far below half of the group's limit: {budget}");
}

#[test]
fn paged_memory_and_page_cache_keep_within_one_limit() {
    let Some(shadow) = program("shadow") else { return };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("read-again-and-again");
    std::fs::write(&file, vec![7; 24 << 20]).expect("the folder can be written");
    let script = "\"$0\" 5 2 400 & while kill -0 $! 2> /dev/null; do cat \"$1\" > /dev/null; done; wait $!";
    let arguments = ["-c", script, &shadow.display().to_string(), &file.display().to_string()];
    let output = run(&["--memory", "40MiB", "--stats", "json"], Path::new("/bin/sh"), &arguments);
    std::fs::remove_file(&file).expect("the file is there");
    let said = text(&output.stderr);
    if said.contains("needs a memory cgroup") {
        eprintln!("skipped: {said}");
        return;
    }
    assert!(output.status.success(), "{} {said}", output.status);
    assert_eq!(text(&output.stdout), "right\n");
    let all: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one JSON object");
    let figure = |name: &str| all[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {all}"));
    assert_eq!(figure("budget_bytes"), 40 << 20);
    assert!(figure("evicted_pages") > 0, "{all}");
    let peak = figure("dram_peak_bytes");
    assert!(peak > 20 << 20, "the page cache has more than its largest part: {peak}");
}

#[test]
fn the_page_cache_gets_code_in_small_pieces_where_it_has_a_limit() {
    if deepram_pager::available().is_err() {
        eprintln!("skipped: memory cannot be paged here");
        return;
    }
    /// Size of the largest mapping of code, bytes.
    fn largest_code(limit: &str) -> Option<usize> {
        let output = run(&[limit, "64MiB"], Path::new("/bin/cat"), &["/proc/self/maps"]);
        if text(&output.stderr).contains("needs a memory cgroup") {
            eprintln!("skipped: {}", text(&output.stderr));
            return None;
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        let maps = text(&output.stdout);
        let code = maps.lines().filter(|line| line.contains(" r-xp ") && line.contains('/'));
        let sizes = code.map(|line| {
            let (range, _) = line.split_once(' ').expect("a range of addresses");
            let (start, end) = range.split_once('-').expect("a range has an end");
            let number = |text| usize::from_str_radix(text, 16).expect("addresses are hexadecimal");
            number(end) - number(start)
        });
        sizes.max()
    }
    let Some(bounded) = largest_code("--memory") else { return };
    assert!(bounded <= 64 << 10, "{bounded} bytes");
    let whole = largest_code("--dram").expect("code is mapped");
    assert!(whole > 64 << 10, "the C library has more code than {whole} bytes");
}

#[test]
fn the_status_is_the_programs_own() {
    if deepram_pager::available().is_err() {
        eprintln!("skipped: memory cannot be paged here");
        return;
    }
    let shell = Path::new("/bin/sh");
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        assert_eq!(run(&[], shell, &["-c", script]).status.code(), Some(status), "{script}");
    }
    let twice = run(&[], shell, &["-c", "echo $(echo a | cat) b"]);
    assert_eq!(text(&twice.stdout), "a b\n");
}

#[test]
fn what_cannot_be_run_is_said() {
    if deepram_pager::available().is_err() {
        eprintln!("skipped: memory cannot be paged here");
        return;
    }
    let missing = run(&[], Path::new("no-such-program-here"), &[]);
    assert!(text(&missing.stderr).contains("no such program in PATH"), "{}", text(&missing.stderr));
    let folder = run(&["--store", "/no/such/folder"], Path::new("/bin/true"), &[]);
    assert!(text(&folder.stderr).contains("no such folder"), "{}", text(&folder.stderr));
    let little = run(&["--dram", "1MiB"], Path::new("/bin/true"), &[]);
    assert!(text(&little.stderr).contains("at least 16MiB"), "{}", text(&little.stderr));
    let little = run(&["--memory", "20MiB"], Path::new("/bin/true"), &[]);
    assert!(text(&little.stderr).contains("at least 32MiB"), "{}", text(&little.stderr));
    let both = run(&["--memory", "64MiB", "--dram", "32MiB"], Path::new("/bin/true"), &[]);
    assert!(text(&both.stderr).contains("cannot be used with"), "{}", text(&both.stderr));
    let persist = run(&["--persist", "x"], Path::new("/bin/true"), &[]);
    assert!(
        text(&persist.stderr).contains("cannot keep the memory of a program yet"),
        "{}",
        text(&persist.stderr)
    );
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-program");
    std::fs::write(&data, "\x7fELF and nothing else").expect("the folder can be written");
    let broken = run(&[], &data, &[]);
    assert!(text(&broken.stderr).contains("not an executable file"), "{}", text(&broken.stderr));
}

#[test]
fn a_statically_linked_program_is_refused() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static.c");
    let built = source.with_extension("");
    std::fs::write(&source, "int main(void) { return 0; }").expect("the folder can be written");
    let compiled = Command::new("cc").args(["-static", "-o"]).arg(&built).arg(&source).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: nothing can be linked statically here");
        return;
    }
    let refused = text(&run(&[], &built, &[]).stderr);
    assert!(refused.contains("statically linked"), "{refused}");
}

#[test]
fn twenty_runs_leave_nothing_behind() {
    let Some(shadow) = program("shadow") else { return };
    let store = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let folder = store.path().to_str().expect("UTF-8");
    for seed in 0..20 {
        let output =
            run(&["--dram", "16MiB", "--store", folder], &shadow, &[&(seed + 100).to_string(), "2", "40"]);
        assert!(output.status.success(), "seed {seed}: {}", text(&output.stderr));
    }
    assert_eq!(std::fs::read_dir(store.path()).expect("it is there").count(), 0);
}
