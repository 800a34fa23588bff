//! `deepram run`: memory calls and forks of every kind behave as without it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::paged::{library, program, text, within};

const MIB: usize = 1 << 20;

fn run(options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    assert!(library().is_file());
    let mut command = within(240, env!("CARGO_BIN_EXE_deepram"));
    command.arg("run");
    command.args(options).arg("--").arg(program).args(arguments);
    command.output().expect("timeout runs")
}

/// Runs a program without and with paging, and compares the outputs.
fn agrees(name: &str, dram: &str, arguments: &[&str]) {
    let Some(built) = program(name) else { return };
    let plain = within(240, &built).args(arguments).output();
    let plain = plain.expect("timeout runs");
    assert!(plain.status.success(), "without paging: {} {}", plain.status, text(&plain.stderr));
    let paged = run(&["--dram", dram], &built, arguments);
    assert_eq!(text(&paged.stdout), text(&plain.stdout), "{}", text(&paged.stderr));
    assert!(paged.status.success(), "{} {}", paged.status, text(&paged.stderr));
}

/// Returns whether shared memory can be paged to this directory; prints the reason if not.
fn can_share(store: &str) -> bool {
    match deepram_pager::can_share(Path::new(store)) {
        Ok(()) => true,
        Err(error) => {
            eprintln!("skipped: shared memory cannot be paged here ({error})");
            false
        }
    }
}

#[test]
fn memory_calls_say_the_same_with_and_without_paging() {
    agrees("calls", "24MiB", &[&(48 * MIB).to_string()]);
}

#[test]
fn children_of_every_kind_see_the_memory() {
    agrees("children", "16MiB", &[&(32 * MIB).to_string()]);
}

#[test]
fn what_the_c_library_handlers_and_threads_do_at_forks_may_use_paged_memory() {
    for how in ["plain", "handlers", "threads"] {
        agrees("forks", "16MiB", &[how, &(32 * MIB).to_string()]);
    }
}

#[test]
fn a_process_ends_with_the_last_of_its_own_threads() {
    let Some(ends) = program("ends") else { return };
    for how in ["main", "alone", "fork", "call", "raw", "signal"] {
        let bytes = (32 * MIB).to_string();
        let plain = within(60, &ends).args([how, &bytes]).output();
        let plain = plain.expect("timeout runs");
        let paged = run(&["--dram", "16MiB"], &ends, &[how, &bytes]);
        let said = text(&paged.stderr);
        assert_eq!(paged.status.code(), plain.status.code(), "{how}: {said}");
        assert_eq!(text(&paged.stdout), text(&plain.stdout), "{how}: {said}");
    }
}

#[test]
fn functions_on_stacks_that_are_paged_may_make_memory_calls_and_forks() {
    agrees("stacks", "16MiB", &[&(64 * MIB).to_string(), "12"]);
}

#[test]
fn libraries_that_were_there_first_may_use_memory_at_forks() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/atfork.c");
    let folder = tempfile::tempdir().expect("a folder");
    let built = folder.path().join("libatfork.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&built).arg(&source).status();
    let Ok(compiled) = compiled else { return eprintln!("skipped: no C compiler") };
    assert!(compiled.success() && library().is_file());
    let output = within(60, env!("CARGO_BIN_EXE_deepram"))
        .args(["run", "--dram", "16MiB", "--"])
        .args(["sh", "-c", "for n in 1 2 3; do (echo $n); done"])
        .env("LD_PRELOAD", &built)
        .output()
        .expect("timeout runs");
    assert_eq!(text(&output.stdout), "1\n2\n3\n", "{} {}", output.status, text(&output.stderr));
}

/// An allocator that a program is linked with stays the program's, and what it maps is paged.
#[test]
fn programs_keep_the_allocator_that_they_are_linked_with() {
    if let Err(error) = deepram_pager::available() {
        return eprintln!("skipped: memory cannot be paged here ({error})");
    }
    assert!(library().is_file());
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let [allocator, linked] = ["liballocator.so", "linked"].map(|name| folder.path().join(name));
    let compile = |arguments: &[&OsStr]| {
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-fno-builtin", "-o"]).args(arguments).status()
    };
    let flags = ["-shared", "-fPIC"].map(OsStr::new);
    let library = [allocator.as_os_str(), flags[0], flags[1], source("linked_allocator.c").as_os_str()]
        .map(OsStr::to_owned);
    let program =
        [linked.as_os_str(), source("linked.c").as_os_str(), allocator.as_os_str()].map(OsStr::to_owned);
    for arguments in [&library[..], &program[..]] {
        let arguments: Vec<&OsStr> = arguments.iter().map(|argument| argument.as_os_str()).collect();
        let Ok(status) = compile(&arguments) else { return eprintln!("skipped: no C compiler") };
        assert!(status.success());
    }
    let output = run(&["--dram", "16MiB", "--stats=json"], &linked, &[&(64 * MIB).to_string()]);
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "right\n", "{said}");
    let stats: serde_json::Value = serde_json::from_str(&said).expect("statistics");
    assert!(stats["evicted_pages"].as_u64().is_some_and(|pages| pages > 8192), "{stats}");
}

#[test]
fn signals_come_to_the_programs_own_threads_and_may_use_its_memory() {
    agrees("signals", "16MiB", &[&(64 * MIB).to_string(), "600"]);
}

#[test]
fn what_a_device_stores_to_memory_by_itself_is_kept() {
    let Some(direct) = program("direct") else { return };
    let file = tempfile::tempdir_in("/var/tmp").expect("a folder on a disk");
    let file = file.path().join("data");
    let arguments = [&(64 * MIB).to_string(), file.to_str().expect("a plain name"), "300", "3"];
    let output = run(&["--dram", "16MiB", "--store", "/var/tmp"], &direct, &arguments);
    if output.status.code() == Some(77) {
        eprintln!("skipped: no direct I/O here ({})", text(&output.stderr));
        return;
    }
    assert_eq!(text(&output.stdout), "right\n", "{}", text(&output.stderr));
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
}

#[test]
fn a_program_that_gives_up_rights_keeps_its_memory() {
    let Some(rights) = program("rights") else { return };
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder on a disk");
    let folder = folder.path().to_str().expect("a plain name");
    for (what, store) in [("user", "/var/tmp"), ("user", folder), ("root", "/var/tmp")] {
        let arguments = [what, &(48 * MIB).to_string(), folder];
        let output = run(&["--dram", "16MiB", "--store", store], &rights, &arguments);
        let said = text(&output.stderr);
        if output.status.code() == Some(77) {
            eprintln!("skipped: rights can only be given up by root");
            return;
        }
        assert_eq!(text(&output.stdout), "the child: 500\n", "{what}, store in {store}: {said}");
        assert!(output.status.success(), "{what}, store in {store}: {} {said}", output.status);
    }
}

#[test]
fn a_program_that_changes_its_user_and_keeps_capabilities_goes_on_and_all_its_threads_are_that_user() {
    let Some(users) = program("users") else { return };
    let output = run(&["--dram", "16MiB"], &users, &[&(32 * MIB).to_string()]);
    let said = text(&output.stderr);
    if output.status.code() == Some(77) {
        eprintln!("skipped: users can only be changed by root");
        return;
    }
    assert_eq!(text(&output.stdout), "right\n", "{} {said}", output.status);
    assert!(output.status.success(), "{} {said}", output.status);
}

#[test]
fn nothing_of_deepram_runs_in_a_process_until_it_has_memory_to_page() {
    agrees("late", "64MiB", &[&(96 * MIB).to_string()]);
}

#[test]
fn low_numbers_of_descriptors_are_the_programs() {
    let script =
        "for n in 3 4 5 6 7 8 9; do eval \"exec $n</dev/null\" || exit 1; done; (exec 3<&4; echo all)";
    let output = run(&["--dram", "16MiB"], Path::new("/bin/sh"), &["-c", script]);
    assert_eq!(text(&output.stdout), "all\n", "{}", text(&output.stderr));
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
}

#[test]
fn descriptors_of_other_threads_stay_theirs_while_the_pager_starts() {
    for how in ["alone", "several"] {
        agrees("descriptors", "64MiB", &[how, &(12 * MIB).to_string(), "60"]);
    }
}

#[test]
fn descriptors_of_the_pager_are_not_open_for_the_program() {
    agrees("listed", "16MiB", &[&(32 * MIB).to_string()]);
}

#[test]
fn limits_of_address_space_and_of_descriptors_are_kept_within() {
    let Some(shadow) = program("shadow") else { return };
    for limit in ["-v 2000000", "-v 300000", "-n 64"] {
        is_right_within(limit, &shadow, &["11", "1", "60"]);
    }
}

/// Runs a program with paging within a limit of the shell. It must print `right`, and nothing else may be printed.
fn is_right_within(limit: &str, program: &Path, arguments: &[&str]) {
    assert!(library().is_file());
    let script = format!("ulimit {limit}; exec \"$@\"");
    let output = within(240, "sh")
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_deepram")])
        .args(["run", "--dram", "24MiB", "--"])
        .arg(program)
        .args(arguments)
        .output()
        .expect("a shell runs");
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "right\n", "ulimit {limit}: {said}");
    assert_eq!(said, "", "ulimit {limit}");
}

#[test]
fn a_limit_set_within_a_run_leaves_its_budget_shared() {
    let script = "ulimit -n 256; exec \"$@\"";
    let output = run(&["--dram", "16MiB"], Path::new("/bin/sh"), &["-c", script, "sh", "/bin/echo", "all"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("all\n".into(), String::new()));
    assert!(output.status.success(), "{}", output.status);
}

#[test]
fn memory_is_moved_in_one_while_others_map() {
    let Some(onto) = program("onto") else { return };
    let output = run(&["--dram", "24MiB"], &onto, &["800"]);
    assert_eq!(text(&output.stdout), "right\n", "{}", text(&output.stderr));
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
}

#[test]
fn threads_that_are_started_without_the_library_may_make_memory_calls() {
    agrees("outside", "16MiB", &["32", "100"]);
}

#[test]
fn processes_share_memory_four_times_the_dram_within_the_budget() {
    let (Some(shared), true) = (program("shared"), can_share("/var/tmp")) else { return };
    let (dram, bytes) = (16 * MIB, 64 * MIB);
    let options = ["--dram", "16MiB", "--store", "/var/tmp"];
    let output = run(&options, &shared, &[&bytes.to_string(), "2"]);
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
    let there: usize = text(&output.stdout).trim().parse().expect("a number of pages");
    assert!(there * 4096 <= dram, "{there} pages in DRAM, budget {} pages", dram / 4096);
}

#[test]
fn a_pass_through_shared_memory_reads_many_pages_at_once() {
    let (Some(pass), true) = (program("pass"), can_share("/var/tmp")) else { return };
    let options = ["--dram", "64MiB", "--store", "/var/tmp"];
    let output = run(&options, &pass, &["128"]);
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
    let waits: usize = text(&output.stdout).trim().parse().expect("a number of faults");
    // The bound is the kernel's swap readahead: 8 pages at a time.
    assert!(waits <= 128 * MIB / 4096 / 8, "major faults: {waits} for {} pages", 128 * MIB / 4096);
}

#[test]
fn shared_memory_outlives_the_one_that_made_it() {
    let (Some(shared), true) = (program("shared"), can_share("/var/tmp")) else { return };
    let options = ["--dram", "24MiB", "--store", "/var/tmp"];
    let output = run(&options, &shared, &[&(48 * MIB).to_string(), "2", "first"]);
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
}

#[test]
fn memory_that_is_not_paged_counts_against_the_budget() {
    let Some(beside) = program("beside") else { return };
    let options = ["--dram", "64MiB", "--store", "/var/tmp"];
    let output = run(&options, &beside, &[&(96 * MIB).to_string(), &(32 * MIB).to_string()]);
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
    let there: usize = text(&output.stdout).trim().parse().expect("a number of pages");
    // The margin is the library's own memory that is in no table, and pages that the kernel has not counted yet.
    assert!(there * 4096 <= (64 + 6) * MIB, "{there} pages in DRAM, budget {} pages", 64 * MIB / 4096);
}

#[test]
fn many_small_mappings_and_those_that_grow_are_paged() {
    let Some(small) = program("small") else { return };
    let output = run(&["--dram", "32MiB", "--store", "/var/tmp"], &small, &[&(64 * MIB).to_string()]);
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
    let there: usize = text(&output.stdout).trim().parse().expect("a number of pages");
    assert!(there * 4096 <= (32 + 6) * MIB, "{there} pages in DRAM, budget {} pages", 32 * MIB / 4096);
}

#[test]
fn blocks_of_malloc_keep_their_contents() {
    for (seed, threads) in [("1", "1"), ("2", "4")] {
        agrees("blocks", "24MiB", &["check", seed, threads, "10000"]);
    }
}

#[test]
fn children_of_processes_that_are_not_paged_may_allocate() {
    let Some(blocks) = program("blocks") else { return };
    for seed in ["1", "2", "3", "4", "5", "6"] {
        let arguments = ["check", seed, "4", "3000"];
        let output = within(60, &blocks).args(arguments).env("LD_PRELOAD", library()).output();
        let output = output.expect("timeout runs");
        let printed = (text(&output.stdout), text(&output.stderr));
        assert_eq!(printed, ("right\n".into(), String::new()), "{}", output.status);
    }
}

#[test]
fn blocks_of_malloc_are_allocated_within_a_limit_of_address_space() {
    let Some(blocks) = program("blocks") else { return };
    is_right_within("-v 500000", &blocks, &["check", "4", "2", "10000"]);
}

#[test]
fn blocks_of_malloc_take_as_much_memory_as_those_of_the_c_library() {
    let Some(blocks) = program("blocks") else { return };
    let arguments = ["fill", &(256 * MIB).to_string()];
    let kib = |output: Output| -> usize {
        assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
        text(&output.stdout).trim().parse().expect("a number of KiB")
    };
    let plain = kib(within(240, &blocks).args(arguments).output().expect("timeout runs"));
    let paged = kib(run(&["--dram", "1GiB"], &blocks, &arguments));
    // The margin is the library's own memory, and huge pages of which the program uses a part.
    assert!(paged <= plain + plain / 20 + (8 << 10), "{paged} KiB with the library, {plain} KiB without");
}

#[test]
fn the_error_of_a_failed_dlopen_stays() {
    let Some(dlerror) = program("dlerror") else { return };
    let output = run(&["--dram", "16MiB", "--store", "/var/tmp"], &dlerror, &[&(32 * MIB).to_string()]);
    assert!(output.status.success(), "{} {}", output.status, text(&output.stderr));
    assert_eq!(text(&output.stdout), "right\n");
}

#[test]
fn a_thread_that_is_kept_on_a_processor_is_not_when_it_matters() {
    let Some(places) = program("places") else { return };
    let output = run(&["--dram", "16MiB", "--store", "/var/tmp"], &places, &[&(64 * MIB).to_string()]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{} {said}", output.status);
    assert_eq!(text(&output.stdout), "0 wrong\n", "{said}");
    let kept = said.lines().find_map(|line| line.strip_prefix("kept ")?.parse::<u32>().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors == 1 || processors > 4 {
        eprintln!("not tested: on {processors} processors no thread is kept on one processor");
    } else {
        assert!(kept.is_some_and(|kept| kept > 0), "the thread was never kept on a processor: {said}");
    }
}
