//! What `cargo build` makes of the workspace, for tests that run it from outside.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds the libraries, commands and examples of the whole workspace. Returns the folder of the profile, such as
/// `target/debug`. `temporary` is the `CARGO_TARGET_TMPDIR` of the test.
///
/// Cargo compiles a crate once for each set of features. This selection has the features of `cargo test --workspace`, because
/// examples may use what tests may: a build of fewer packages would compile most dependencies again.
///
/// # Panics
///
/// If the build fails.
pub fn build_workspace(temporary: &str) -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(temporary).parent().expect("the folder lies in the target folder");
        let release = !cfg!(debug_assertions);
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.args(["build", "--locked", "--quiet", "--workspace", "--lib", "--bins", "--examples"]);
        build.args(release.then_some("--release")).arg("--target-dir").arg(target);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(build.status().expect("cargo runs").success(), "the workspace cannot be built");
        target.join(if release { "release" } else { "debug" })
    })
}
