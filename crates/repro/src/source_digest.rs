//! Digest of source files. The build script includes this file; the library only tests it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// SHA-256 of the names and the contents of all files among and below `sources`, in hexadecimal. Each source is given with
/// the name that stands for its path, so that the digest does not depend on where the sources are.
///
/// Hidden files are left out, and files whose name, such as `sim/src/lib.rs`, begins with one of `without`.
///
/// # Errors
/// A folder or file cannot be read, or no file begins with one of `without`.
pub(crate) fn digest(sources: &[(String, PathBuf)], without: &[&str]) -> io::Result<String> {
    let mut files = Vec::new();
    for (name, path) in sources {
        collect(name, path, &mut files)?;
    }
    for prefix in without {
        let all = files.len();
        files.retain(|(name, _)| !name.starts_with(prefix));
        if files.len() == all {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("no source file begins with {prefix}"),
            ));
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for (name, path) in files {
        let contents = fs::read(&path).map_err(naming(&path))?;
        // The lengths keep the bytes of one file apart from the name of the next.
        for part in [name.as_bytes(), &contents] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Adds name and path of `path`, or of every file below it.
fn collect(name: &str, path: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    if !path.is_dir() {
        files.push((name.to_owned(), path.to_owned()));
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(naming(path))? {
        let inner = entry.map_err(naming(path))?;
        let file = inner.file_name().to_string_lossy().into_owned();
        if !file.starts_with('.') {
            collect(&format!("{name}/{file}"), &inner.path(), files)?;
        }
    }
    Ok(())
}

/// Puts the path in front of an error.
fn naming(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, contents) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        }
        folder
    }

    fn of(files: &[(&str, &str)], without: &[&str]) -> io::Result<String> {
        let folder = folder(files);
        digest(&[("sim".into(), folder.path().into())], without)
    }

    const FILES: [(&str, &str); 3] =
        [("lib.rs", "mod a;"), ("a/mod.rs", "fn f() {}"), ("html/page.rs", "fn page() {}")];

    #[test]
    fn equal_sources_have_equal_digests_wherever_they_are() {
        let digest = of(&FILES, &[]).unwrap();
        assert_eq!(digest.len(), 64);
        assert_eq!(of(&FILES, &[]).unwrap(), digest);
        let mut reversed = FILES;
        reversed.reverse();
        assert_eq!(of(&reversed, &[]).unwrap(), digest, "the order of creation does not count");
        let hidden = [&FILES[..], &[(".lib.rs.swp", "an editor's file")]].concat();
        assert_eq!(of(&hidden, &[]).unwrap(), digest);
    }

    #[test]
    fn every_byte_and_every_name_counts() {
        let mut seen = vec![of(&FILES, &[]).unwrap()];
        for file in 0..FILES.len() {
            for byte in 0..FILES[file].1.len() {
                let mut contents = FILES[file].1.as_bytes().to_vec();
                contents[byte] ^= 1;
                let mut files = FILES;
                let contents = String::from_utf8(contents).unwrap();
                files[file].1 = &contents;
                seen.push(of(&files, &[]).unwrap());
            }
        }
        for others in [
            &[FILES[0], FILES[1]][..],
            &[FILES[0], FILES[1], ("html/pages.rs", FILES[2].1)],
            &[FILES[0], FILES[1], FILES[2], ("empty.rs", "")],
            // The bytes of all names and contents in a row are those of FILES.
            &[FILES[1], ("html/page.rs", "fn page() {}lib.rsmod a;")],
        ] {
            seen.push(of(others, &[]).unwrap());
        }
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn files_left_out_do_not_count_and_must_exist() {
        let without = ["sim/html/"];
        let digest = of(&FILES, &without).unwrap();
        assert_eq!(digest, of(&FILES[..2], &[]).unwrap());
        let mut files = FILES;
        files[2].1 = "fn other() {}";
        assert_eq!(of(&files, &without).unwrap(), digest);
        let error = of(&FILES[..2], &without).unwrap_err().to_string();
        assert!(error.contains("sim/html/"), "{error}");
    }

    #[test]
    fn a_source_that_does_not_exist_is_named() {
        let error = digest(&[("sim".into(), "/nowhere".into())], &[]).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }
}
