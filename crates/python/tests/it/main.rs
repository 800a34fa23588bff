//! Runs the tests of the Python package (`tests/python`) against the module that cargo builds.
//!
//! The tests need Python 3.9 or later, and packages from a registry, which are installed once into a virtual environment
//! in the target folder. Where either is missing, the test says so and passes. Set `PYTHON` to choose an interpreter, and
//! `DEEPRAM_PYTHON_LIBRARIES=1` to test with the larger libraries too (minutes, and a gigabyte).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the tests import. The versions are those that the environment was made with.
const PACKAGES: [&str; 8] =
    ["numpy", "pytest", "mypy", "pandas", "matplotlib", "cloudpickle", "nbclient", "ipykernel"];
/// Libraries whose tests are skipped without them.
const LIBRARIES: [&str; 9] =
    ["pyarrow", "dask[array]", "distributed", "scikit-learn", "joblib", "polars", "torch", "zarr", "h5py"];

fn target() -> PathBuf {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().expect("the folder lies in the target folder").to_owned()
}

fn output(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Result<Output, String> {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{} {arguments:?}: {}", program.display(), String::from_utf8_lossy(&output.stderr)))
}

/// Returns the interpreter of an environment with these packages, which is made if it does not exist.
fn environment(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let base = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))";
    output(&base, &["-c".as_ref(), check.as_ref()])
        .map_err(|why| format!("no Python 3.9 with venv: {why}"))?;
    let folder = target().join("python").join(name);
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&complete).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    output(&base, &["-m".as_ref(), "venv".as_ref(), "--clear".as_ref(), folder.as_os_str()])?;
    let mut install: Vec<&OsStr> =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"].map(OsStr::new).into();
    install.extend(packages.iter().map(OsStr::new));
    output(&python, &install).map_err(|why| format!("packages cannot be installed: {why}"))?;
    std::fs::write(complete, wanted).map_err(|error| error.to_string())?;
    Ok(python)
}

/// Puts the package together: its Python files and the module. Returns the folder for `PYTHONPATH`.
fn package(module: &Path) -> PathBuf {
    let folder = target().join("python/package");
    let _ = std::fs::remove_dir_all(&folder);
    let inner = folder.join("deepram");
    std::fs::create_dir_all(&inner).expect("a folder");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/deepram");
    for file in std::fs::read_dir(sources).expect("the sources") {
        let file = file.expect("a file").path();
        // A module that maturin has put among the sources is not the one that is tested.
        if file.is_file() && file.extension().is_some_and(|extension| extension != "so") {
            std::fs::copy(&file, inner.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    std::fs::copy(module, inner.join("_native.abi3.so")).expect("a copy of the module");
    folder
}

#[test]
fn the_python_package_passes_its_tests() {
    let with_libraries = std::env::var_os("DEEPRAM_PYTHON_LIBRARIES").is_some();
    let mut packages = PACKAGES.to_vec();
    if with_libraries {
        packages.extend(LIBRARIES);
    }
    let python = match environment(if with_libraries { "libraries" } else { "venv" }, &packages) {
        Ok(python) => python,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let binaries = deepram_testkit::build_workspace(env!("CARGO_TARGET_TMPDIR"));
    let package = package(&binaries.join("libdeepram_python.so"));
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--basetemp"]);
    tests.arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-tests"));
    tests.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python"));
    tests.env("PYTHONPATH", package).env("PYTHONDONTWRITEBYTECODE", "1").env("MPLBACKEND", "Agg");
    if deepram_pager::available().is_ok() {
        tests.env("DEEPRAM", binaries.join("deepram"));
    }
    let done = tests.output().expect("Python runs");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
    println!("{text}");
}
