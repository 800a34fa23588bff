//! Random operations beside the model. The crash tests use the same.

use std::collections::BTreeMap;

use deepram_files::{Attributes, Files, FilesError, Replace, SetAttributes};
use deepram_testkit::{FaultyDevice, seeds};
use rand::Rng;
use rand::RngExt;

use crate::common::{MIB, PAGE, check_pages, listing, new_pool_of, open};
use crate::model::{Model, Node, TOP};

const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"a name that is longer than the others", b"\xff\xfe"];
/// Most bytes of a file: more than the direct pages.
const FILE_BYTES: u64 = 20 * PAGE;

/// A file system and its model.
pub(crate) struct Pair {
    pub(crate) files: Files,
    pub(crate) model: Model,
    /// Inode of each node.
    inodes: BTreeMap<usize, u64>,
    /// Nodes that are held.
    held: Vec<usize>,
}

impl Pair {
    pub(crate) fn new(files: Files) -> Self {
        let inodes = [(TOP, deepram_files::TOP)].into();
        Self { files, model: Model::new(), inodes, held: Vec::new() }
    }

    /// The same after the file system was opened anew.
    pub(crate) fn reopened(files: Files, mut model: Model) -> Self {
        model.forget_nameless();
        let mut pair = Self::new(files);
        let mut waiting = vec![TOP];
        while let Some(node) = waiting.pop() {
            let Ok(entries) = model.entries(node) else { continue };
            for (name, &below) in entries {
                let (inode, _) = pair.files.lookup(pair.inodes[&node], name).expect("a name of the model");
                pair.inodes.insert(below, inode);
                waiting.push(below);
            }
        }
        Self { model, ..pair }
    }

    fn nameless(&self) -> Vec<u64> {
        let nameless = self.held.iter().filter(|&&node| self.model.links(node) == 0);
        nameless.map(|node| self.inodes[node]).collect()
    }

    /// Checks that the file system is as the model.
    pub(crate) fn check(&self) {
        assert!(listing(&self.files) == self.model.listing(), "{}", self.difference());
        check_pages(&self.files, &self.nameless());
    }

    fn difference(&self) -> String {
        let (ours, model) = (listing(&self.files), self.model.listing());
        let paths: Vec<_> = ours.keys().chain(model.keys()).collect();
        let differing = paths.into_iter().find(|path| ours.get(*path) != model.get(*path));
        let Some(path) = differing else { return "no difference".into() };
        let short = |text: String| text.chars().take(300).collect::<String>();
        let (ours, model) = (format!("{:?}", ours.get(path)), format!("{:?}", model.get(path)));
        format!("{:?}: {} instead of {}", String::from_utf8_lossy(path), short(ours), short(model))
    }

    fn any(&self, rng: &mut impl Rng, directories: bool) -> Option<usize> {
        let is_wanted = |node: &Node| matches!(node, Node::Directory { .. }) == directories;
        let all: Vec<usize> =
            self.model.nodes.iter().filter(|(_, node)| is_wanted(node)).map(|(&number, _)| number).collect();
        (!all.is_empty()).then(|| all[rng.random_range(0..all.len())])
    }

    /// Carries out one operation on both. Returns what it was.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn step(&mut self, rng: &mut impl Rng) -> Result<String, FilesError> {
        let directory = self.any(rng, true).expect("there is the topmost one");
        let name = NAMES[rng.random_range(0..NAMES.len())];
        let at = self.inodes[&directory];
        match rng.random_range(0..20) {
            0..=2 => {
                let made = self.files.create(at, name, &Attributes::file(0o644));
                let what = format!("create {directory} {name:?}");
                self.made(made, directory, name, Node::File(Vec::new()), what)
            }
            3 => {
                let made = self.files.create(at, name, &Attributes::directory(0o755));
                let node = Node::Directory { parent: directory, entries: BTreeMap::new() };
                self.made(made, directory, name, node, format!("directory {directory} {name:?}"))
            }
            4 => {
                let target = vec![b't'; rng.random_range(1..300)];
                let made = self.files.symlink(at, name, &target, 1, 2);
                self.made(made, directory, name, Node::Link(target), format!("link {directory} {name:?}"))
            }
            5..=6 => {
                let done = self.files.unlink(at, name);
                let model = &mut self.model;
                let what = format!("unlink {directory} {name:?}");
                let what = same(done, what, || model.unlink(directory, name))?.0;
                let held = &self.held;
                let gone: Vec<usize> = self.gone(held);
                gone.iter().for_each(|node| drop(self.model.nodes.remove(node)));
                Ok(what)
            }
            7 => {
                let done = self.files.remove_directory(at, name);
                let model = &mut self.model;
                let what = format!("remove directory {directory} {name:?}");
                Ok(same(done, what, || model.remove_directory(directory, name))?.0)
            }
            8..=9 => self.rename(rng, directory, name),
            10 => {
                let Some(node) = self.any(rng, false) else { return Ok("nothing".into()) };
                let done = self.files.link(self.inodes[&node], at, name).map(drop);
                let model = &mut self.model;
                Ok(same(done, format!("name {node} {directory} {name:?}"), || {
                    model.link(node, directory, name)
                })?
                .0)
            }
            11 => {
                let Some(node) = self.any(rng, false) else { return Ok("nothing".into()) };
                self.files.hold(self.inodes[&node]);
                self.held.push(node);
                Ok(format!("hold {node}"))
            }
            12 if !self.held.is_empty() => {
                let node = self.held.swap_remove(rng.random_range(0..self.held.len()));
                self.files.release(self.inodes[&node], 1)?;
                if self.model.links(node) == 0 && !self.held.contains(&node) {
                    self.model.nodes.remove(&node);
                }
                Ok(format!("release {node}"))
            }
            _ => self.contents(rng),
        }
    }

    /// Files whose names are gone and that nobody holds.
    fn gone(&self, held: &[usize]) -> Vec<usize> {
        let is_gone = |node: &usize| *node != TOP && self.model.links(*node) == 0 && !held.contains(node);
        self.model.nodes.keys().copied().filter(is_gone).collect()
    }

    fn made(
        &mut self,
        made: Result<(u64, deepram_files::Status), FilesError>,
        directory: usize,
        name: &[u8],
        node: Node,
        what: String,
    ) -> Result<String, FilesError> {
        let inode = made.as_ref().map_or(0, |made| made.0);
        let model = &mut self.model;
        let (what, node) = same(made.map(drop), what, || model.make(directory, name, node))?;
        if let Some(node) = node {
            self.inodes.insert(node, inode);
        }
        Ok(what)
    }

    fn rename(&mut self, rng: &mut impl Rng, directory: usize, name: &[u8]) -> Result<String, FilesError> {
        let to = self.any(rng, true).expect("there is the topmost one");
        let new = NAMES[rng.random_range(0..NAMES.len())];
        let replace = [Replace::Yes, Replace::Yes, Replace::No, Replace::Exchange][rng.random_range(0..4)];
        let done = self.files.rename(self.inodes[&directory], name, self.inodes[&to], new, replace);
        let model = &mut self.model;
        let what = format!("rename {directory} {name:?} to {to} {new:?} {replace:?}");
        let what = same(done, what, || model.rename((directory, name), (to, new), replace))?.0;
        let gone = self.gone(&self.held);
        gone.iter().for_each(|node| drop(self.model.nodes.remove(node)));
        Ok(what)
    }

    /// Writes, cuts, reads.
    fn contents(&mut self, rng: &mut impl Rng) -> Result<String, FilesError> {
        let Some(node) = self.any(rng, false) else { return Ok("nothing".into()) };
        let inode = self.inodes[&node];
        let Some(bytes) = self.model.bytes(node) else { return Ok("nothing".into()) };
        let offset = rng.random_range(0..FILE_BYTES);
        let longest = if rng.random_bool(0.2) { 3 * PAGE } else { 5000 };
        let len = rng.random_range(1..longest);
        let end = (offset + len) as usize;
        match rng.random_range(0..8) {
            0..=3 => {
                let offset = if rng.random_bool(0.5) { offset.min(bytes.len() as u64) } else { offset };
                let from: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_add(rng.random())).collect();
                let what = format!("write {node} {offset} {len}");
                let done = self.files.write(inode, offset, &from);
                let write = || {
                    bytes.resize(bytes.len().max(offset as usize + from.len()), 0);
                    bytes[offset as usize..offset as usize + from.len()].copy_from_slice(&from);
                    Ok(())
                };
                Ok(same(done, what, write)?.0)
            }
            4 => {
                let size = if rng.random_bool(0.3) { 0 } else { offset };
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                let done = self.files.set_attributes(inode, &set).map(drop);
                Ok(same(done, format!("cut {node} {size}"), || {
                    bytes.resize(size as usize, 0);
                    Ok(())
                })?
                .0)
            }
            5 => {
                let done = self.files.punch_hole(inode, offset, len);
                Ok(same(done, format!("punch {node} {offset} {len}"), || {
                    let have = bytes.len();
                    bytes[(offset as usize).min(have)..end.min(have)].fill(0);
                    Ok(())
                })?
                .0)
            }
            6 => {
                let done = self.files.allocate(inode, offset, len);
                Ok(same(done, format!("allocate {node} {offset} {len}"), || {
                    bytes.resize(bytes.len().max(end), 0);
                    Ok(())
                })?
                .0)
            }
            _ => {
                let read = self.files.read(inode, offset, len as usize)?;
                let have = bytes.len();
                assert!(
                    read == bytes[(offset as usize).min(have)..end.min(have)],
                    "read {node} {offset} {len}"
                );
                Ok(format!("read {node}"))
            }
        }
    }
}

/// Carries out an operation on the model if it succeeded or should have failed, and compares the errors. An operation that found no
/// space has changed nothing.
fn same<T>(
    done: Result<(), FilesError>,
    what: String,
    model: impl FnOnce() -> Result<T, i32>,
) -> Result<(String, Option<T>), FilesError> {
    match done {
        Err(error) if error.errno() == libc::EIO => Err(error),
        Err(error) if error.errno() == libc::ENOSPC => Ok((format!("{what}: {error}"), None)),
        _ => {
            let expected = model();
            let found = done.as_ref().map_err(FilesError::errno).copied();
            assert_eq!(found, expected.as_ref().map(|_| ()).map_err(|&errno| errno), "{what}");
            Ok((what, expected.ok()))
        }
    }
}

#[test]
fn random_operations_do_what_the_model_does_also_when_memory_is_full() {
    let mut found_none = 0;
    seeds::each(12, |seed| {
        let mut rng = seeds::rng(seed);
        // The memory of every other pool is too small for the files.
        let device = FaultyDevice::from_image(new_pool_of([4 * MIB, 16 * MIB][(seed % 2) as usize]));
        let files = open(&device).expect("an empty file system");
        let mut pair = Pair::new(files);
        let mut full = 0;
        for n in 0..1500 {
            let what = pair.step(&mut rng).expect("the device works");
            full += u32::from(what.contains("address space"));
            if n % 100 == 0 {
                pair.check();
            }
            if n % 500 == 499 {
                pair.files.close().expect("closing");
                let files = open(&device).expect("opening again");
                pair = Pair::reopened(files, pair.model);
                pair.check();
            }
        }
        pair.check();
        found_none += full;
    });
    // DEEPRAM_SEED runs one seed alone.
    assert!(
        found_none > 0 || std::env::var_os(seeds::SEED_VARIABLE).is_some(),
        "no operation found the memory full"
    );
}
