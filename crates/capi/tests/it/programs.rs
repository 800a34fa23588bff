//! C and C++ programs, compiled against the header and both libraries, run plainly, under sanitizers and under Valgrind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn manifest() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds the libraries and returns their folder.
fn libraries() -> &'static Path {
    deepram_testkit::build_workspace(env!("CARGO_TARGET_TMPDIR"))
}

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("making a folder")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether pools can be mapped here; prints the reason if not.
fn can_map() -> bool {
    let folder = folder();
    let path = folder.path().join("probe.pool");
    let paths = [&path];
    deepram_pool::Pool::create(&paths, &deepram_pool::CreateOptions::new(1 << 20)).expect("creating a pool");
    let options = deepram_pool::OpenOptions::new(32 << 20).mapping(deepram_pool::Mapping::UserOnly);
    match deepram_pool::Pool::open(&paths, &options) {
        Ok(pool) => {
            pool.close().expect("closing the pool");
            true
        }
        Err(error) => {
            eprintln!("skipped: a pool cannot be mapped here ({error})");
            false
        }
    }
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq)]
enum Link {
    Shared,
    Static,
}

/// Compiles a program; `None` with a message where there is no compiler, or it lacks the flags.
fn compile(source: &str, out: &Path, link: Link, flags: &[&str]) -> Option<PathBuf> {
    let cpp = source.ends_with(".cpp");
    let (compiler, standard) = if cpp { ("c++", "-std=c++17") } else { ("cc", "-std=gnu11") };
    let source = manifest().join(source);
    let program = out.join(source.file_stem().expect("a name"));
    let mut command = Command::new(compiler);
    command.args([standard, "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]).args(flags);
    command.arg("-I").arg(manifest().join("include")).arg(&source).arg("-o").arg(&program);
    match link {
        Link::Shared => {
            command.arg("-L").arg(libraries()).arg("-ldeepram");
            command.arg(format!("-Wl,-rpath,{}", libraries().display()));
        }
        Link::Static => {
            command.arg(libraries().join("libdeepram.a")).args(["-lm", "-ldl", "-lrt"]);
        }
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: no {compiler} ({error})");
            return None;
        }
    };
    let errors = text(&output.stderr);
    // A compiler without the libraries of its sanitizers fails at linking.
    if !output.status.success()
        && flags.iter().any(|flag| flag.contains("sanitize"))
        && errors.contains("san")
    {
        eprintln!("skipped: {compiler} has no sanitizers ({})", errors.lines().next().unwrap_or(""));
        return None;
    }
    assert!(output.status.success(), "{command:?}: {errors}");
    Some(program)
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn good(command: &mut Command) -> String {
    let output = run(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The ways in which each program is built.
const BUILDS: [(Link, &[&str]); 3] = [
    (Link::Shared, &[]),
    (Link::Static, &[]),
    (Link::Shared, &["-fsanitize=address,undefined", "-fno-sanitize-recover"]),
];

/// Runs a program in all builds, each in a folder of its own.
fn in_all_builds(source: &str, check: impl Fn(&Path, &Path)) {
    if !can_map() {
        return;
    }
    for (link, flags) in BUILDS {
        let folder = folder();
        if let Some(program) = compile(source, folder.path(), link, flags) {
            check(&program, &folder.path().join("a.pool"));
        }
    }
}

/// Whether Valgrind is there; says so if not.
fn has_valgrind() -> bool {
    let found =
        Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: no valgrind (Debian: apt-get install valgrind)");
    }
    found
}

#[test]
fn valgrind_finds_no_error_in_the_functions_and_no_leak() {
    if !has_valgrind() {
        return;
    }
    let folder = folder();
    let Some(program) = compile("tests/programs/interface.c", folder.path(), Link::Shared, &[]) else {
        return;
    };
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    valgrind
        .args(["--track-origins=yes", "--fair-sched=yes", "--quiet"])
        .arg(&program)
        .arg(folder.path().join("a.pool"))
        .arg("unmapped");
    assert_eq!(good(&mut valgrind), "all as expected\n");
}

#[test]
fn every_function_does_as_the_header_says() {
    in_all_builds("tests/programs/interface.c", |program, pool| {
        assert_eq!(good(Command::new(program).arg(pool)), "all as expected\n");
    });
}

#[test]
fn the_hash_table_survives_its_process_and_a_wrong_batch() {
    in_all_builds("examples/hash_table.c", |program, pool| {
        let first = good(Command::new(program).arg(pool));
        assert_eq!(first, "found: 0\nupdated: 10000\nwrong: 5000005000\nrolled back: 10000\n");
        let second = good(Command::new(program).arg(pool));
        assert_eq!(second, "found: 10000\nupdated: 20000\nwrong: 5000010000\nrolled back: 20000\n");
    });
}

#[test]
fn the_vector_is_larger_than_the_dram_that_it_uses() {
    in_all_builds("examples/vector.cpp", |program, pool| {
        let n = 8_u64 << 20;
        let expected = format!(
            "sum: {}\nallocated at the end: 0\nwithin the budget: yes\nevicted more than fits: yes\n",
            n * (n + 1) / 2
        );
        assert_eq!(good(Command::new(program).arg(pool)), expected);
    });
}

#[test]
fn an_error_of_an_example_is_one_line() {
    let folder = folder();
    let Some(program) = compile("examples/hash_table.c", folder.path(), Link::Shared, &[]) else { return };
    let file = folder.path().join("no.pool");
    std::fs::write(&file, "something else".repeat(10_000)).expect("writing a file");
    let output = run(Command::new(program).arg(&file));
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("is not a deepram pool") && error.lines().count() == 1, "{error}");
}

#[test]
fn the_library_exports_the_functions_of_the_header_and_no_others() {
    let library = libraries().join("libdeepram.so");
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output() else {
        eprintln!("skipped: no nm");
        return;
    };
    let listing = text(&output.stdout);
    let exported: std::collections::BTreeSet<&str> =
        listing.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = std::fs::read_to_string(manifest().join("include/deepram.h")).expect("the header");
    let declared: std::collections::BTreeSet<&str> = header
        .lines()
        .filter(|line| !line.trim_start().starts_with("//") && !line.starts_with(" *"))
        .flat_map(|line| line.match_indices("deepram_").map(move |(at, _)| &line[at..]))
        .filter_map(|rest| rest.split_once('(').map(|(name, _)| name))
        .filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
        .collect();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(exported, declared);
}
