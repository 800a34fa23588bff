//! `deepram run` keeps within its DRAM budget, also for processes that do not load the library. A test binary of its own: memory
//! peaks depend on the scheduler, so no other test of the command runs at the same time.

#[path = "../it/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::common::paged::{library, program, text, within};
use serde_json::Value;

const DEEPRAM: &str = env!("CARGO_BIN_EXE_deepram");

/// Returns a `deepram` command with a time limit.
fn deepram(arguments: &[&str]) -> Command {
    assert!(library().is_file());
    let mut command = within(120, DEEPRAM);
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    deepram(&[&["run"], arguments].concat()).output().expect("timeout runs")
}

/// Links hog statically, so that the library is not loaded into it. Returns None and prints the reason where that fails.
fn unpaged(hog: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/hog.c");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (new, built) = (folder.path().join("new"), hog.with_file_name("hog-static"));
    let compiled = Command::new("cc").args(["-O1", "-static", "-o"]).arg(&new).arg(&source).output();
    if !compiled.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: nothing can be linked statically here");
        return None;
    }
    std::fs::rename(new, &built).expect("the program takes its place");
    Some(built)
}

/// Returns the cgroup in which runs started by this process make theirs; None where no group can be made.
fn groups() -> Option<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let line = own.lines().find(|line| line.split(':').nth(1) == Some("memory"));
    let path = match line {
        Some(line) => {
            Path::new("/sys/fs/cgroup/memory").join(line.rsplit(':').next()?.trim_start_matches('/'))
        }
        None => Path::new("/sys/fs/cgroup")
            .join(own.rsplit(':').next()?.trim().trim_start_matches('/'))
            .parent()?
            .into(),
    };
    let trial = path.join(format!("test-{}-{:?}", std::process::id(), std::thread::current().id()));
    if std::fs::create_dir(&trial).is_err() {
        eprintln!("skipped: no memory cgroup can be made here");
        return None;
    }
    let limited = ["memory.limit_in_bytes", "memory.max"].iter().any(|file| trial.join(file).is_file());
    std::fs::remove_dir(&trial).expect("nothing is in it");
    limited.then_some(path)
}

/// Waits until `holds` returns true. Panics with `what` after a minute.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what}");
}

#[test]
fn what_the_library_is_not_in_is_bounded_by_the_kernel() {
    let Some(hog) = program("hog") else { return };
    let (Some(unpaged), Some(_)) = (unpaged(&hog), groups()) else { return };
    let (hog, unpaged) = (hog.display(), unpaged.display());
    let script =
        format!("{unpaged} 600; echo $?; env -i {hog} 600; echo $?; {unpaged} 1; {hog} 200; echo $?");
    let output = run(&["--dram", "64MiB", "--", "sh", "-c", &script]);
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "137\n137\nhas 1\nhas 1\n0\n", "{said}");
    assert_eq!(output.status.code(), Some(0), "the program itself continues: {said}");
    assert!(
        said.contains("the kernel killed processes of this run") && said.contains("budget of 64 MiB"),
        "{said}"
    );
    let output = run(&["--dram", "64MiB", "--", "sh", "-c", &format!("exec {unpaged} 600")]);
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
}

/// A run whose program has printed that it has its memory. Dropping it kills the run, unless it has ended.
struct Running {
    run: Child,
    /// The process number that the program has printed.
    process: String,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        assert!(library().is_file());
        // A signal that the tests' parent ignores would be ignored by the run and its program too.
        let mut command = Command::new("env");
        command.args(["--default-signal", DEEPRAM, "run"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut run = command.spawn().expect("deepram runs");
        let mut output = BufReader::new(run.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("text");
        assert!(line.starts_with("has "), "{line}");
        let process = line.trim_start_matches("has ").trim().to_owned();
        Self { run, process, output }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.run.id().cast_signed()).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The kill fails if the run has ended.
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

#[test]
fn the_group_of_a_run_goes_with_it_and_that_of_a_killed_one_with_the_next() {
    let (Some(hog), Some(groups)) = (program("hog"), groups()) else { return };
    let hog = hog.to_str().expect("UTF-8");
    let mut running = Running::start(&["--dram", "64MiB", "--", hog, "1", "2000"]);
    let group = |run: &Running| groups.join(format!("deepram-run-{}", run.run.id()));
    assert!(group(&running).is_dir());
    assert!(running.run.wait().expect("it ends").success());
    assert!(!group(&running).exists());
    let mut killed = Running::start(&["--dram", "64MiB", "--", hog, "1", "2000"]);
    let group = group(&killed);
    killed.signal(rustix::process::Signal::KILL);
    killed.run.wait().expect("it ends");
    assert!(group.is_dir(), "the program continues, within the limit");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut killed.output, &mut rest).expect("the program ends");
    // The kernel may count the ended program in the group for a moment.
    until("the group of a killed run stays", || {
        assert!(run(&["--dram", "64MiB", "--", "true"]).status.success());
        !group.exists()
    });
}

/// Samples the anonymous memory of a process until it ends. Returns the peak, bytes.
fn most_anonymous(pid: &str) -> u64 {
    let mut most = 0;
    while let Ok(sizes) = std::fs::read_to_string(format!("/proc/{pid}/statm")) {
        let pages: Vec<u64> = sizes.split(' ').filter_map(|size| size.trim().parse().ok()).collect();
        most = most.max(pages.get(1).unwrap_or(&0).saturating_sub(*pages.get(2).unwrap_or(&0)));
        std::thread::sleep(std::time::Duration::from_micros(500));
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if state.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")) {
            break;
        }
    }
    most * 4096
}

#[test]
fn arrays_that_come_and_go_keep_within_a_hundredth_of_the_dram() {
    let Some(churn) = program("churn") else { return };
    let dram: u64 = 128 << 20;
    let command = ["--dram", "128MiB", "--", churn.to_str().expect("UTF-8"), "256", "4"];
    let mut running = Running::start(&command);
    let most = most_anonymous(&running.process);
    assert!(running.run.wait().expect("it ends").success());
    assert!(most <= dram + dram / 100, "{most} bytes of {dram}");
    assert!(most >= dram / 4 * 3, "too few samples: peak of {most} bytes");
}

/// Returns the anonymous memory of all processes of a group, bytes.
fn anonymous_of(group: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(group.join("memory.stat")).ok()?;
    let figure = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    figure("total_rss ").or_else(|| figure("anon "))
}

#[test]
fn processes_together_keep_within_a_hundredth_of_the_dram() {
    let (Some(churn), Some(groups)) = (program("churn"), groups()) else { return };
    let dram: u64 = 128 << 20;
    let churn = churn.display();
    // The memory of a process that ends must not be used twice, so short processes follow each other as well.
    let short = format!("(for n in 1 2 3 4; do {churn} 96 1; done)");
    for part in [format!("{churn} 96 3"), short] {
        let script = format!("{part} & {part} & {part}; wait");
        let mut running = Running::start(&["--dram", "128MiB", "--", "sh", "-c", &script]);
        let group = groups.join(format!("deepram-run-{}", running.run.id()));
        let mut most = 0;
        until("it does not end", || {
            // The pauses of `until` are too long to catch a peak.
            for _ in 0..20 {
                most = most.max(anonymous_of(&group).unwrap_or(0));
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
            running.run.try_wait().expect("a child").is_some()
        });
        assert!(running.run.wait().expect("it ends").success());
        assert!(most <= dram + dram / 100, "{part}: {most} bytes of {dram}");
        assert!(most >= dram / 4 * 3, "{part}: too few samples: peak of {most} bytes");
    }
}

#[test]
fn forked_processes_are_charged_once_for_unpaged_memory_that_they_share() {
    let (Some(inherit), Some(_)) = (program("inherit"), groups()) else { return };
    // 8 MiB and 24 MiB are in DRAM; with the 8 MiB charged to each of 7 processes, 80 MiB would be.
    let (inherit, pages) = (inherit.to_str().expect("UTF-8"), 6 * (4 << 20) / 4096);
    let command = ["--dram", "48MiB", "--stats", "json", "--", inherit, "6", "8192", "4096", "2000"];
    let done = run(&command);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let stats: Value = serde_json::from_slice(&done.stderr).expect("JSON");
    let major = stats["faults_major"].as_u64().expect("a counter");
    // Some pages leave before the first measurement.
    assert!(major < 2 * pages, "{major} major faults for {pages} pages");
}

#[test]
fn a_run_within_a_run_has_no_more_than_is_left_there() {
    let Some(hog) = program("hog") else { return };
    let hog = hog.to_str().expect("UTF-8");
    let output = run(&[
        "--dram", "64MiB", "--", DEEPRAM, "run", "--dram", "1GiB", "--stats", "json", "--", hog, "150",
    ]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let (first, figures) = said.split_once('\n').expect("a line and an object");
    assert!(first.contains("is reduced from 1 GiB to 48 MiB"), "{said}");
    let figures: Value = serde_json::from_str(figures).expect("one JSON object");
    assert_eq!(figures["budget_bytes"], 48 << 20);
    let little = run(&["--dram", "16MiB", "--", DEEPRAM, "run", "--", hog, "1"]);
    assert!(text(&little.stderr).contains("at least 16MiB") && !little.status.success(), "{little:?}");
}

#[test]
fn where_there_are_no_groups_the_first_process_that_escapes_is_named_and_no_other() {
    let Some(hog) = program("hog") else { return };
    let Some(unpaged) = unpaged(&hog) else { return };
    let hide = "mount --make-rprivate / && mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    let apart = ["--mount", "sh", "-c", hide, "sh"];
    if !Command::new("unshare").args(apart).arg("true").output().is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: cgroups cannot be hidden here (unshare, mount)");
    }
    assert!(library().is_file());
    let script = format!("{0} 100 3000 & {0} 100 3000; wait; {1} 100", unpaged.display(), hog.display());
    let mut command = within(120, "unshare");
    command.args(apart).args([DEEPRAM, "run", "--dram", "32MiB", "--"]);
    let output = command.args(["sh", "-c", &script]).output().expect("timeout runs");
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "has 1\nhas 1\nhas 1\n", "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("(hog-static) uses 100") && said.contains("no memory cgroup"), "{said}");
}

/// One instruction may need several pages at once: each page must stay in DRAM until the others have been read.
#[test]
fn a_store_across_two_pages_ends_though_what_is_not_paged_takes_all_dram() {
    let Some(across) = program("across") else { return };
    let across = across.to_str().expect("UTF-8");
    let output = run(&["--dram", "16MiB", "--", across, "4", "16", "2000"]);
    assert_eq!(text(&output.stdout), "4 right\n", "{} {}", output.status, text(&output.stderr));
}

#[test]
fn a_program_that_cannot_be_paged_is_not_begun() {
    let Some(hog) = program("hog") else { return };
    let hog = hog.to_str().expect("UTF-8");
    let limited = |script: &str| {
        assert!(library().is_file());
        let mut command = within(120, "sh");
        command.args(["-c", script, DEEPRAM, hog]).output().expect("timeout runs")
    };
    let output = limited("ulimit -n 16; exec \"$0\" run --dram 64MiB -- \"$1\" 1");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(text(&output.stderr).contains("the program's memory cannot be paged"), "{output:?}");
    // Children that cannot be paged run unpaged, and one of them prints a warning.
    let children =
        "exec \"$0\" run --dram 64MiB -- sh -c 'ulimit -n 16; \"$0\" 40; \"$0\" 40; \"$0\" 40' \"$1\"";
    let output = limited(children);
    assert_eq!(text(&output.stdout), "has 1\nhas 1\nhas 1\n");
    let said = text(&output.stderr);
    assert!(said.contains("cannot be paged") && said.lines().count() == 1, "{said}");
}

#[test]
fn valgrind_is_refused_with_a_reason() {
    let Some(hog) = program("hog") else { return };
    let hog = hog.to_str().expect("UTF-8");
    let refused = |output: &Output| {
        assert!(!output.status.success(), "{output:?}");
        assert!(text(&output.stderr).contains("under Valgrind memory cannot be paged"), "{output:?}");
        assert!(!text(&output.stdout).contains("has"), "{output:?}");
    };
    if Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success()) {
        refused(&run(&["--dram", "64MiB", "--", "valgrind", "-q", hog, "100"]));
    } else {
        eprintln!("not tested with Valgrind itself, which is not installed");
    }
    // Valgrind's preloaded library is simulated by a name alone: the loader skips a file that does not exist.
    let output = run(&[
        "--dram",
        "64MiB",
        "--",
        "sh",
        "-c",
        "LD_PRELOAD=$LD_PRELOAD:/x/vgpreload_core.so \"$0\" 1",
        hog,
    ]);
    refused(&output);
}

#[test]
fn a_store_in_memory_is_refused() {
    if !deepram_pager::is_in_memory(Path::new("/dev/shm")).unwrap_or(false) {
        return eprintln!("skipped: /dev/shm is no tmpfs here");
    }
    let output = run(&["--store", "/dev/shm", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--store /dev/shm is in memory"), "{output:?}");
}

#[test]
fn what_cannot_be_started_has_the_status_that_shells_give_it() {
    if let Err(error) = deepram_pager::available() {
        return eprintln!("skipped: memory cannot be paged here ({error})");
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let script = |name: &str, text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
        path.display().to_string()
    };
    for (program, status) in [
        ("no-such-program-here".to_owned(), 127),
        ("/no/such/program".into(), 127),
        (script("interpreter", "#!/no/such/interpreter\n", 0o755), 127),
        (folder.path().display().to_string(), 126),
        (script("plain", "#!/bin/sh\n", 0o644), 126),
        (script("broken", "\x7fELF and nothing else", 0o755), 126),
        (script("right", "#!/bin/sh\nexit 7\n", 0o755), 7),
    ] {
        let output = run(&["--dram", "16MiB", "--", &program]);
        assert_eq!(output.status.code(), Some(status), "{program}: {}", text(&output.stderr));
    }
    let little = run(&["--dram", "1000k", "--", "true"]);
    assert_eq!(little.status.code(), Some(2));
    let said = text(&little.stderr);
    assert!(said.contains("'1000k'") && said.contains("at least 16MiB"), "{said}");
    assert!(text(&run(&["--help"]).stdout).contains("at least 16MiB"));
    // An unknown option is not taken for the program; options of the program are its own.
    let unknown = run(&["--dramm", "1G", "--", "true"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("'--dram"), "{}", text(&unknown.stderr));
    assert_eq!(text(&run(&["--dram", "16MiB", "echo", "--dram", "-n"]).stdout), "--dram -n\n");
}

#[test]
fn what_a_run_is_to_ignore_its_program_ignores() {
    assert!(library().is_file());
    let script = format!("{DEEPRAM} run --dram 16MiB -- sh -c 'kill -INT $$; kill -HUP $$; echo goes on'");
    let mut command = Command::new("env");
    let output = command.args(["--ignore-signal=INT,HUP", "sh", "-c", &script]).output().expect("env runs");
    assert_eq!(text(&output.stdout), "goes on\n", "{} {}", output.status, text(&output.stderr));
}

#[test]
fn signals_sent_to_the_run_reach_the_program() {
    use rustix::process::Signal;
    if program("hog").is_none() {
        return;
    }
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let script = format!("trap 'exit 7' {name}; echo has it; while :; do sleep 0.05; done");
        let mut running = Running::start(&["--dram", "16MiB", "--", "sh", "-c", &script]);
        running.signal(signal);
        let mut ended = None;
        until(&format!("{name} does not reach the program"), || {
            ended = running.run.try_wait().expect("a child");
            ended.is_some()
        });
        assert_eq!(ended.and_then(|status| status.code()), Some(7), "{name}");
    }
}
