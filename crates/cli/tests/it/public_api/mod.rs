//! The public items of the library crates are those of the listings in docs/reference/public-api.
//!
//! A listing has a line for each public item, sorted: its path, and its declaration without documentation and bodies. A change
//! of the interface therefore shows in the diff of a change. `UPDATE_DOCS=1` writes the listings anew.

mod listing;
mod sources;

use std::path::{Path, PathBuf};

use listing::listing;
use sources::Crate;

/// The folder of a crate, and the name of its library. The facade is the library of the command's package.
const LIBRARIES: [(&str, &str); 12] = [
    ("cli", "deepram"),
    ("core", "deepram_core"),
    ("ecc", "deepram_ecc"),
    ("files", "deepram_files"),
    ("linux", "deepram_linux"),
    ("media", "deepram_media"),
    ("metrics", "deepram_metrics"),
    ("pager", "deepram_pager"),
    ("pool", "deepram_pool"),
    ("repro", "deepram_repro"),
    ("sim", "deepram_sim"),
    ("trace", "deepram_trace"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_listings_of_the_public_items_are_what_the_sources_say() {
    let mut outdated = Vec::new();
    for (folder, library) in LIBRARIES {
        let source = Crate::read(&root().join("crates").join(folder).join("src/lib.rs"));
        let listed = listing(&source, library);
        let path = root().join(format!("docs/reference/public-api/{library}.txt"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &listed).expect("writing the listing");
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let first = listed.lines().zip(committed.lines()).find(|(listed, committed)| listed != committed);
        if committed != listed {
            outdated.push(format!("{}: {first:?}", path.display()));
        }
    }
    assert!(
        outdated.is_empty(),
        "out of date: UPDATE_DOCS=1 cargo test -p deepram --test it public_api\n{}",
        outdated.join("\n")
    );
}

#[test]
fn a_listing_has_what_users_can_name_and_nothing_else() {
    let folder = crate::common::folder();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a source");
    write(
        "lib.rs",
        "pub mod shown; mod hidden; #[cfg(test)] mod tests; pub use hidden::{Kept as Renamed, deep}; pub use std::fmt::Debug;
         pub const N: usize = 5; struct Private; pub(crate) fn inner() {}",
    );
    write(
        "hidden.rs",
        "/// Docs.
         #[derive(Clone, Debug)] pub struct Kept { pub a: u8, b: u8 } pub struct Lost;
         impl Kept { pub fn new(a: u8) -> Self { Self { a, b: 0 } } fn own(&self) {} }
         impl Default for Kept { fn default() -> Self { Self::new(0) } }
         pub mod deep { pub use super::*; pub enum E { A(u8), B } }",
    );
    write(
        "shown.rs",
        "use crate::hidden::Lost; impl Lost { pub fn f() {} }
         pub trait T { fn must(&self); fn may(&self) { self.must() } } pub struct P(pub u8, u8);",
    );
    let listed = listing(&Crate::read(&folder.path().join("lib.rs")), "a");
    let wanted = "\
a: pub const N: usize
a: pub use std::fmt::Debug
a::Renamed: #[derive(Clone, Debug)] pub struct Kept { pub a: u8, .. }
a::Renamed: impl Default for Kept
a::Renamed: pub fn new(a: u8) -> Self
a::deep: pub mod
a::deep::E: pub enum E { A(u8), B }
a::deep::Kept: #[derive(Clone, Debug)] pub struct Kept { pub a: u8, .. }
a::deep::Kept: impl Default for Kept
a::deep::Kept: pub fn new(a: u8) -> Self
a::deep::Lost: pub fn f()
a::deep::Lost: pub struct Lost
a::shown: pub mod
a::shown::P: pub struct P(pub u8, _)
a::shown::T: pub trait T { fn must(&self); fn may(&self) {} }
";
    assert_eq!(listed, wanted);
}
