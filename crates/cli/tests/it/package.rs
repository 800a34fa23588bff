//! The release packages: every crate as a self-contained package, and a Debian package that works where it is unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::folder;
use crate::common::paged::{binaries, program, text, within};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command that must succeed. Returns its standard output.
fn good(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {} {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// Returns every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the files that a source includes and that do not exist.
fn missing(source: &Path) -> Vec<PathBuf> {
    let code = fs::read_to_string(source).expect("a source is text");
    let folder = source.parent().expect("a source is in a folder");
    let after = ["include_str!(\"", "include_bytes!(\"", "include!(\""].map(|name| code.split(name).skip(1));
    let names = after.into_iter().flatten().filter_map(|rest| rest.split('"').next());
    names.map(|name| folder.join(name)).filter(|path| !path.is_file()).collect()
}

#[test]
fn every_crate_is_packaged_with_all_that_it_includes() {
    let target = folder();
    good(
        Command::new(env!("CARGO"))
            .args(["package", "--workspace", "--exclude", "deepram-testkit", "--target-dir"])
            .arg(target.path())
            .args(["--no-verify", "--offline", "--locked", "--allow-dirty", "--quiet"])
            .current_dir(root()),
    );
    let packages = target.path().join("package");
    // Files in subfolders are cargo's own copies.
    let made = files(&packages).into_iter().filter(|path| path.parent() == Some(&packages));
    let crates = made.filter(|path| path.extension().is_some_and(|e| e == "crate"));
    let mut names = Vec::new();
    for file in crates {
        good(Command::new("tar").arg("xzf").arg(&file).arg("-C").arg(&packages));
        let unpacked = file.with_extension("");
        let name = unpacked.file_name().expect("a name").to_string_lossy().into_owned();
        for part in ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(unpacked.join(part).is_file(), "{name} has no {part}");
        }
        let manifest = fs::read_to_string(unpacked.join("Cargo.toml")).expect("a manifest");
        for key in ["description", "license", "keywords", "categories", "rust-version"] {
            assert!(manifest.contains(&format!("\n{key} = ")), "{name} has no {key}");
        }
        assert!(!manifest.contains("testkit"), "{name} depends on a crate that is not published");
        let sources = files(&unpacked).into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs"));
        let missing: Vec<_> = sources.flat_map(|source| missing(&source)).collect();
        assert!(missing.is_empty(), "{name} includes files that are not in its package: {missing:?}");
        names.push(name);
    }
    let manifests = files(&root().join("crates")).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    // Every crate except the testkit is packaged.
    assert_eq!(names.len(), manifests.count() - 1, "{names:?}");
}

#[test]
fn an_included_file_that_is_not_there_is_found() {
    let folder = folder();
    let source = folder.path().join("lib.rs");
    fs::write(folder.path().join("there"), "").expect("a file");
    fs::write(&source, "include_str!(\"there\"); include_bytes!(\"../../else\"); include!(\"x.rs\")")
        .expect("a source");
    let found: Vec<_> =
        missing(&source).iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_owned()).collect();
    assert_eq!(found, [Path::new("../../else"), Path::new("x.rs")]);
}

/// Makes a Debian package of the binaries that the tests use. Returns None and prints the reason where there is no dpkg-deb.
fn debian_package(out: &Path) -> Option<PathBuf> {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        eprintln!("skipped: there is no dpkg-deb");
        return None;
    }
    let binaries = binaries();
    let printed =
        good(Command::new(root().join(".ci/deb")).arg(binaries).arg(out).env("DEB_COMPRESSION", "none"));
    Some(PathBuf::from(printed.trim_end()))
}

#[test]
fn the_debian_package_works_where_it_is_unpacked() {
    let out = folder();
    let Some(package) = debian_package(out.path()) else { return };

    let field = |name: &str| {
        good(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name)).trim_end().to_owned()
    };
    assert_eq!(field("Package"), "deepram");
    assert_eq!(field("Version"), concat!(env!("CARGO_PKG_VERSION"), "-1"));
    assert_eq!(field("Architecture"), good(Command::new("dpkg").arg("--print-architecture")).trim_end());
    assert!(field("Depends").contains("libc6 (>= 2."), "{}", field("Depends"));
    assert!(field("Maintainer").ends_with('>') && field("Description").lines().count() > 1);

    // Every file is owned by root and writable only by root.
    let listing = good(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for line in listing.lines() {
        assert!(
            line.contains(" root/root ") && line.as_bytes()[5] == b'-' && line.as_bytes()[8] == b'-',
            "{line}"
        );
    }

    let root = out.path().join("root");
    good(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&root));
    good(Command::new("dpkg-deb").arg("--control").arg(&package).arg(out.path().join("control")));
    good(
        Command::new("md5sum")
            .arg("--check")
            .arg("--quiet")
            .arg(out.path().join("control/md5sums"))
            .current_dir(&root),
    );
    let share = root.join("usr/share");
    for part in [
        "bash-completion/completions/deepram",
        "zsh/vendor-completions/_deepram",
        "fish/vendor_completions.d/deepram.fish",
        "doc/deepram/copyright",
    ] {
        let content = fs::read_to_string(share.join(part)).unwrap_or_else(|error| panic!("{part}: {error}"));
        assert!(content.contains("deepram"), "{part}");
    }
    for (part, content) in [
        ("man/man1/deepram.1.gz", ".TH deepram 1"),
        ("man/man1/deepram-run.1.gz", ".TH deepram-run 1"),
        ("doc/deepram/changelog.gz", concat!("## [", env!("CARGO_PKG_VERSION"), "] - ")),
        ("doc/deepram/changelog.Debian.gz", concat!("deepram (", env!("CARGO_PKG_VERSION"), "-1) ")),
    ] {
        let unpacked = good(Command::new("gzip").args(["-dc"]).arg(share.join(part)));
        assert!(unpacked.contains(content), "{part} has no {content}");
    }

    let command = root.join("usr/bin/deepram");
    let version = good(Command::new(&command).arg("--version"));
    assert_eq!(version.trim_end(), concat!("deepram ", env!("CARGO_PKG_VERSION")));
    let sections = good(Command::new("objdump").arg("-h").arg(&command));
    assert!(
        ![".debug_info", ".debug_line"].iter().any(|name| sections.contains(name)),
        "the command has debug sections:\n{sections}"
    );
    // The unpacked command loads the unpacked library: no other library is in its search path.
    let Some(shadow) = program("shadow") else { return };
    let mut run = within(240, &command);
    run.args(["run", "--dram", "24MiB", "--"]).arg(shadow).args(["1", "1", "50"]);
    assert_eq!(good(&mut run), "right\n");
}

#[test]
fn a_debian_package_of_a_folder_without_the_binaries_is_an_error() {
    let out = folder();
    let output =
        Command::new(root().join(".ci/deb")).arg(out.path()).arg(out.path()).output().expect(".ci/deb runs");
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("has no deepram"), "{}", text(&output.stderr));
}
