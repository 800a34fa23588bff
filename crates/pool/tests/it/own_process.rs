//! Tests that need a process of their own: they fork, limit, or measure the whole process.

use std::process::Command;

/// Names the test that runs in the child.
const TEST: &str = "DEEPRAM_TEST_OWN_PROCESS";

/// Returns from the test in the shared process after a child process has run the test alone; goes on in that child.
macro_rules! in_own_process {
    () => {
        fn test() {}
        if !crate::own_process::is_child(std::any::type_name_of_val(&test)) {
            return;
        }
    };
}
pub(crate) use in_own_process;

/// Returns whether this process is the child for the test that encloses `function`. If it is not, runs the child, and panics with
/// its output if the test fails there.
pub(crate) fn is_child(function: &str) -> bool {
    let test = function
        .split_once("::")
        .and_then(|(_, path)| path.rsplit_once("::"))
        .expect("crate::module::test::function")
        .0;
    if std::env::var(TEST).is_ok_and(|child| child == test) {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(TEST, test);
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && out.contains("1 passed"), "{}\n{out}\n{err}", output.status);
    err.lines().filter(|line| line.starts_with("skipped")).for_each(|line| eprintln!("{line}"));
    false
}
