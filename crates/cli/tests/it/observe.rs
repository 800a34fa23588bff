//! Observes runs while they run and pools while they are open: by requests to their sockets or ports, and by `deepram top`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use crate::common::paged::{library, program, text, within};
use serde_json::Value;

const DEEPRAM: &str = env!("CARGO_BIN_EXE_deepram");

/// A `deepram run` of a program that scans 32 MiB in 16 MiB of DRAM until its standard input ends.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    /// Standard error of the run.
    said: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(options: &[&str]) -> Option<Self> {
        let scan = program("scan")?;
        let scan = scan.to_str().expect("UTF-8");
        Some(Self::command(&[&["--dram", "16MiB"], options].concat(), &[scan, "32", "1", "wait"], 1))
    }

    /// Starts `deepram run` of a command, and waits until the command has printed `ready` `readies` times.
    fn command(options: &[&str], command: &[&str], readies: usize) -> Self {
        assert!(library().is_file());
        let mut child = Command::new(DEEPRAM)
            .arg("run")
            .args(options)
            .arg("--")
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("deepram runs");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        for _ in 0..readies {
            let mut line = String::new();
            output.read_line(&mut line).expect("the program says something");
            let mut said = String::new();
            if line != "ready\n" {
                child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
            }
            assert_eq!(line, "ready\n", "{said}");
        }
        child.stdout = Some(output.into_inner());
        let (input, said) = (child.stdin.take(), child.stderr.take().expect("a pipe"));
        Self { child, input, said: BufReader::new(said) }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Ends the program. Returns the rest of the run's standard error.
    fn end(mut self) -> String {
        drop(self.input.take());
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "{said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test leaves no process behind: the program ends when its standard input is closed.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Sends the bytes. Returns the whole answer.
fn ask<S: Read + Write>(mut stream: S, request: &[u8]) -> String {
    // The server may close the connection before it has read all of a refused request.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}

fn get<S: Read + Write>(stream: S, path: &str) -> String {
    let answer = ask(stream, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    body.to_owned()
}

fn deepram(arguments: &[&str]) -> Output {
    within(60, DEEPRAM).args(arguments).output().expect("timeout runs")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn a_run_that_listens_tells_its_figures_in_three_forms() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.sock");
    let address = format!("unix:{}", path.display());
    let Some(running) = Running::start(&["--listen", &address, "--stats", "json"]) else { return };
    let connect = || UnixStream::connect(&path).expect("it listens");
    let figures = || -> Value { serde_json::from_str(&get(connect(), "/stats.json")).expect("JSON") };
    // A process publishes its figures ten times a second, and may print `ready` before the first time.
    let shown = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        figures()["faults_fresh"].as_u64() > Some(0)
    });
    assert!(shown, "{}", figures());
    let early = crate::common::prometheus::check(&get(connect(), "/metrics"));
    let all = figures();
    assert_eq!(all["pid"].as_u64(), Some(running.child.id().into()));
    assert_eq!(all["budget_bytes"], 16 << 20);
    assert_eq!(all["processes"], 1);
    let counted: u64 = all["fault_latency_us"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|row| row[1].as_u64().expect("a count"))
        .sum();
    assert!(counted > 0 && all["fault_us"]["p99"].as_f64() >= all["fault_us"]["p50"].as_f64(), "{all}");
    assert!(get(connect(), "/stats").contains("Page fault latency, p99.9"));
    let head = ask(connect(), b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    let late = crate::common::prometheus::check(&get(connect(), "/metrics"));
    for (name, value) in &early {
        let grows = !name.ends_with("_bytes") && name != "deepram_processes";
        assert!(!grows || late[name] >= *value, "{name} has shrunk from {value} to {}", late[name]);
    }
    let again = deepram(&["run", "--listen", &address, "--", "/bin/true"]);
    assert!(text(&again.stderr).contains("exists already"), "{}", text(&again.stderr));
    let last: Value = serde_json::from_str(&running.end()).expect("JSON");
    assert!(last["evicted_pages"].as_u64() >= Some(late["deepram_evicted_pages_total"]), "{last}");
    assert!(!path.exists(), "the socket is removed at the end");
}

#[test]
fn hostile_clients_are_answered_or_dropped_and_hold_nobody_up() {
    let Some(mut running) = Running::start(&["--listen", "127.0.0.1:0"]) else { return };
    let mut line = String::new();
    running.said.read_line(&mut line).expect("the port is told");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    let connect = || {
        let stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    };
    // Clients that send nothing, one that sends half of a request, and one that does not read its answer.
    let silent: Vec<_> = (0..20).map(|_| connect()).collect();
    let mut half = connect();
    half.write_all(b"GET /metrics HTTP/1.1\r\nHo").expect("sent");
    let mut deaf = connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 16));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(500));
    for (request, status) in [
        (&b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"[..], "405"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", "404"),
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", "404"),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", "404"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (b"\0\0\0\0\0\0\0\0", "400"),
        (b"GET /\xff\xfe HTTP/1.1\r\nA: \0\r\n\r\n", "400"),
        (long.as_bytes(), "431"),
        (many.as_bytes(), "431"),
    ] {
        let answer = ask(connect(), request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{status} for {}: {answer}",
            text(request)
        );
    }
    let gone = connect();
    gone.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(ask(gone, b""), "");
    crate::common::prometheus::check(&get(connect(), "/metrics"));
    drop((silent, half, deaf));
    running.end();
}

#[test]
fn where_others_could_ask_nobody_listens() {
    for wrong in ["0.0.0.0:0", "192.0.2.1:80", "here", "unix:"] {
        let output = deepram(&["run", "--listen", wrong, "--", "/bin/true"]);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", text(&output.stderr));
    }
    let output = deepram(&["run", "--listen", "unix:/no/such/folder/x", "--", "/bin/true"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn top_shows_a_run_by_its_number_its_programs_or_its_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("unix:{}", folder.path().join("x").display());
    let Some(running) = Running::start(&["--listen", &address]) else { return };
    let pid = running.pid();
    let once = ["top", "--once", "--interval", "0.3"];
    let by_number = json(&deepram(&[&once[..], &["--json", &pid]].concat()));
    let run = &by_number["runs"][0];
    assert_eq!(run["pid"].as_u64(), Some(running.child.id().into()));
    assert!(run["command"].as_str().is_some_and(|command| command.ends_with("scan 32 1 wait")), "{run}");
    assert!(run["now"]["evicted_pages"].as_u64() > Some(0), "{run}");
    // The program scans more memory than the DRAM throughout, so that it evicts pages in every interval.
    assert!(run["interval"]["evicted_pages"].as_u64() <= run["now"]["evicted_pages"].as_u64(), "{run}");
    assert!(run["interval"]["seconds"].as_f64() < run["now"]["seconds"].as_f64(), "{run}");
    let member = run["now"]["process_dram_bytes"][0][0].to_string();
    assert_ne!(member, pid);
    for arguments in [&[&*member][..], &["--listen-address", &address]] {
        let found = json(&deepram(&[&once[..], &["--json"], arguments].concat()));
        assert_eq!(found["runs"][0]["pid"], run["pid"], "{arguments:?}");
        let shown = text(&deepram(&[&once[..], arguments].concat()).stdout);
        for part in ["DRAM    [", "of 16 MiB", "read from the swap file", "reads in flight"] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }
    let all = json(&deepram(&[&once[..], &["--json"]].concat()));
    let runs = all["runs"].as_array().expect("a list");
    assert!(runs.iter().any(|one| one["pid"] == run["pid"]), "{all}");
    running.end();
    for gone in [&[&*pid][..], &["--listen-address", &address], &["1"]] {
        let output = deepram(&[&once[..], gone].concat());
        assert_eq!(output.status.code(), Some(1), "{gone:?}: {}", text(&output.stdout));
    }
}

/// Returns the resident anonymous memory of a process, bytes.
fn anonymous(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a number");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Returns an argument that occurs only in command lines of processes of this test run.
fn mark() -> String {
    format!("mark-{}", std::process::id())
}

/// Returns the shell prefix that runs a command in a PID namespace of its own; None where no namespace can be made.
fn apart() -> Option<&'static str> {
    let apart = "unshare --pid --fork --mount-proc --kill-child";
    let possible = Command::new("sh").args(["-c", &format!("{apart} true")]).output();
    if possible.is_ok_and(|output| output.status.success()) {
        return Some(apart);
    }
    eprintln!("skipped: no PID namespaces can be made here");
    None
}

#[test]
fn processes_with_numbers_of_their_own_share_the_budget() {
    let Some(scan) = program("scan") else { return };
    let Some(apart) = apart() else { return };
    let scan = format!("{} 64 1 wait <&3", scan.display());
    // Two programs that have process number 1 in their own namespaces, and one program outside.
    let script = format!("exec 3<&0; {apart} {scan} & {apart} {scan} & {scan}; wait");
    let running = Running::command(&["--dram", "32MiB"], &["sh", "-c", &script], 3);
    for _ in 0..3 {
        let shown = json(&deepram(&["top", "--once", "--interval", "0.5", "--json", &running.pid()]));
        let now = &shown["runs"][0]["now"];
        let members = now["process_dram_bytes"].as_array().expect("a list");
        let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let pids: Vec<_> = members.iter().map(|member| member[0].to_string()).collect();
        let scans: Vec<_> = pids.iter().filter(|pid| name(pid) == "scan\n").collect();
        assert_eq!(scans.len(), 3, "{now}");
        let used: u64 = scans.iter().map(|pid| anonymous(pid)).sum();
        assert!(used < 48 << 20, "{used} bytes: {now}");
        assert!(now["dram_bytes"].as_u64() > Some(24 << 20), "{now}");
    }
    let said = running.end();
    assert_eq!(said, "", "the run prints no warning");
}

#[test]
fn a_run_in_a_namespace_of_its_own_is_seen_from_outside() {
    let (Some(scan), Some(apart)) = (program("scan"), apart()) else { return };
    // The mark distinguishes this run from other runs of the same program.
    let command = format!("{} 32 1 wait {}", scan.display(), mark());
    let script = format!("{apart} {DEEPRAM} run --dram 16MiB -- {command}");
    let running = Running::command(&["--dram", "64MiB"], &["sh", "-c", &script], 1);
    let shown = json(&deepram(&["top", "--once", "--interval", "0.2", "--json"]));
    let runs = shown["runs"].as_array().expect("a list");
    let inner = runs.iter().find(|run| run["command"] == command.as_str());
    let inner = inner.unwrap_or_else(|| panic!("{shown}"));
    let pid = inner["pid"].to_string();
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs, by this number");
    assert!(line.contains("run\0--dram\x0016MiB") && line.contains(&mark()), "{line:?}");
    drop(running.end());
    let shown = deepram(&["top", "--once", "--interval", "0.2", "--json", &pid]);
    assert!(!shown.status.success(), "{}", text(&shown.stdout));
}

/// Opens a new pool that serves its statistics at a socket beside it, makes one token, and prints `ready`. Keeps the pool open
/// until its standard input ends.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn keeps_a_pool_open_for_another_test() {
    let path = std::env::var("DEEPRAM_TEST_POOL").expect("the test that starts it sets it");
    let pool = open_pool(Path::new(&path), Some(format!("unix:{path}.sock").parse().expect("an address")));
    println!("\nready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("standard input");
    pool.close().expect("closed");
}

fn open_pool(path: &Path, listen: Option<deepram::pool::ListenAddress>) -> deepram::pool::Pool {
    use deepram::pool::{CreateOptions, Lifetime, Mapping, OpenOptions, Pool};
    Pool::create(&[path], &CreateOptions::new(16 << 20)).expect("created");
    let options = OpenOptions { listen, ..OpenOptions::new(8 << 20).mapping(Mapping::Off) };
    let pool = Pool::open(&[path], &options).expect("opened");
    let addr = pool.alloc(1 << 20, Lifetime::Permanent).expect("allocated");
    pool.write(addr, &[7; 1 << 20]).expect("written");
    pool.sync().expect("durable");
    pool.write(addr, &[8; 4096]).expect("written");
    pool
}

/// Returns the pools of `deepram top --json` that have this file.
fn shown_pools(arguments: &[&str], path: &str) -> Vec<Value> {
    let once = ["top", "--once", "--json", "--interval", "0.3"];
    let shown = json(&deepram(&[&once[..], arguments].concat()));
    let all = shown["pools"].as_array().expect("a list");
    all.iter().filter(|pool| pool["pool"] == path).cloned().collect()
}

#[test]
fn an_open_pool_is_shown_and_served_until_its_process_dies() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a folder").join("a.pool");
    let path = path.to_str().expect("UTF-8");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "--ignored", "--nocapture", "observe::keeps_a_pool_open_for_another_test"])
        .env("DEEPRAM_TEST_POOL", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.expect("text") == "ready"), "the pool is open");
    let pid = child.id().to_string();
    let socket = format!("{path}.sock");
    let connect = || UnixStream::connect(&socket).expect("it listens");

    let metrics = crate::common::prometheus::check(&get(connect(), "/metrics"));
    assert_eq!((metrics["deepram_pool_syncs_total"], metrics["deepram_pool_budget_bytes"]), (1, 8 << 20));
    assert_eq!(metrics["deepram_pool_dirty_segments"], 1);
    assert!(get(connect(), "/stats").contains("Syncs that returned a token"));
    let served: Value = serde_json::from_str(&get(connect(), "/stats.json")).expect("JSON");
    assert_eq!((&served["pool"], &served["syncs"]), (&path.into(), &1.into()));

    // What `top` reads is published five times a second, perhaps not since the sync.
    let names = ["syncs", "fills", "bytes_user", "budget_bytes", "dirty_segments"];
    let published = (0..100).find_map(|_| {
        let [pool] = &shown_pools(&[&pid], path)[..] else { panic!("one pool") };
        names.iter().all(|name| pool["now"][name] == served[name]).then(|| pool.clone())
    });
    let pool = published.expect("it is published");
    let now = &pool["now"];
    assert!(
        now["write_amplification"].as_f64() > Some(0.0) && now["dram_bytes"].as_u64() > Some(1 << 20),
        "{now}"
    );
    assert_eq!(now["pid"].as_u64(), Some(child.id().into()));
    assert!(pool["interval"]["seconds"].as_f64() < now["seconds"].as_f64(), "{pool}");
    let address = format!("unix:{socket}");
    assert_eq!(shown_pools(&["--listen-address", &address], path).len(), 1);
    assert_eq!(shown_pools(&[], path).len(), 1);
    let text = text(&deepram(&["top", "--once", "--interval", "0.1", &pid]).stdout);
    for part in [path, "DRAM    [", "of 8 MiB", "1 of them dirty", "syncs", "write amplification"] {
        assert!(text.contains(part), "{part}\n{text}");
    }

    child.kill().expect("killed");
    child.wait().expect("it ends");
    assert_eq!(shown_pools(&[], path).len(), 0);
    let output = deepram(&["top", "--once", &pid]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_closed_pool_is_shown_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("a folder").join("a.pool");
    let pid = std::process::id().to_string();
    let pool = open_pool(&path, None);
    let path = path.to_str().expect("UTF-8");
    assert_eq!(shown_pools(&[&pid], path).len(), 1);
    pool.close().expect("closed");
    assert_eq!(shown_pools(&[], path).len(), 0);
}

/// Runs `deepram top` in a pseudo-terminal until it shows a run, then calls `end`, which must end it. Returns whether it
/// succeeded, and its output.
fn in_terminal(arguments: &[&str], end: impl FnOnce(&mut dyn Write, u32)) -> (bool, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("a terminal");
    unlockpt(&master).expect("a terminal");
    let name = ptsname(&master, Vec::new()).expect("a terminal");
    let path = Path::new(name.to_str().expect("UTF-8"));
    let slave = std::fs::File::options().read(true).write(true).open(path).expect("a terminal");
    let before = rustix::termios::tcgetattr(&slave).expect("a terminal");
    let copy = || Stdio::from(slave.try_clone().expect("a descriptor"));
    let mut child = Command::new(DEEPRAM)
        .args(arguments)
        .stdin(copy())
        .stdout(copy())
        .stderr(copy())
        .spawn()
        .expect("deepram runs");
    let mut master = std::fs::File::from(master);
    let (mut shown, mut bytes) = (Vec::new(), [0; 4096]);
    while !text(&shown).contains("of 16 MiB") {
        let count = master.read(&mut bytes).expect("top shows something");
        shown.extend(&bytes[..count]);
        assert!(shown.len() < 1 << 20, "{}", text(&shown));
    }
    let during = rustix::termios::tcgetattr(&slave).expect("a terminal");
    assert_ne!(during.local_modes, before.local_modes);
    end(&mut master, child.id());
    let status = child.wait().expect("it ends");
    let after = rustix::termios::tcgetattr(&slave).expect("a terminal");
    assert_eq!((after.local_modes, after.input_modes), (before.local_modes, before.input_modes));
    drop(slave);
    // A read fails once no process has the other side open.
    while let Ok(count @ 1..) = master.read(&mut bytes) {
        shown.extend(&bytes[..count]);
    }
    (status.success(), text(&shown))
}

#[test]
fn top_gives_the_terminal_back_however_it_ends() {
    let Some(running) = Running::start(&[]) else { return };
    let pid = running.pid();
    let arguments = ["top", "--interval", "0.2", &pid];
    let kill = |pid: u32| {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    };
    let typed =
        |key: &'static [u8]| move |terminal: &mut dyn Write, _| terminal.write_all(key).expect("typed");
    for (good, shown) in [
        in_terminal(&arguments, typed(b"q")),
        in_terminal(&arguments, typed(b"x\x03")),
        in_terminal(&arguments, |_, pid| kill(pid)),
    ] {
        assert!(good, "{shown}");
        assert!(shown.starts_with("\x1b[?1049h") && shown.trim_end().ends_with("\x1b[?1049l"), "{shown:?}");
    }
    let (good, shown) = in_terminal(&arguments, move |_, _| drop(running.end()));
    assert!(!good && shown.contains("has ended"), "{shown:?}");
    let back = shown.find("\x1b[?1049l").expect("the screen is given back");
    assert!(shown[back..].contains("has ended"), "the message must be on the main screen: {shown:?}");
}
