//! A file system as it should behave, in ordinary memory.

use std::collections::BTreeMap;

use crate::common::Listed;

/// The topmost directory.
pub(crate) const TOP: usize = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File(Vec<u8>),
    Directory { parent: usize, entries: BTreeMap<Vec<u8>, usize> },
    Link(Vec<u8>),
}

/// The model. Nodes are never reused, so a node stands for one file for good.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) nodes: BTreeMap<usize, Node>,
    next: usize,
}

/// An error number.
type Outcome<T> = Result<T, i32>;

impl Model {
    pub(crate) fn new() -> Self {
        let top = Node::Directory { parent: TOP, entries: BTreeMap::new() };
        Self { nodes: [(TOP, top)].into(), next: 1 }
    }

    pub(crate) fn entries(&self, directory: usize) -> Outcome<&BTreeMap<Vec<u8>, usize>> {
        match self.nodes.get(&directory) {
            Some(Node::Directory { entries, .. }) => Ok(entries),
            _ => Err(libc::ENOTDIR),
        }
    }

    fn entries_mut(&mut self, directory: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory { entries, .. }) => entries,
            other => panic!("{other:?} is no directory"),
        }
    }

    pub(crate) fn find(&self, directory: usize, name: &[u8]) -> Outcome<usize> {
        self.entries(directory)?.get(name).copied().ok_or(libc::ENOENT)
    }

    fn is_directory(&self, node: usize) -> bool {
        matches!(self.nodes[&node], Node::Directory { .. })
    }

    pub(crate) fn bytes(&mut self, node: usize) -> Option<&mut Vec<u8>> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(bytes)) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn links(&self, node: usize) -> u32 {
        let entries = self.nodes.values().filter_map(|node| match node {
            Node::Directory { entries, .. } => Some(entries.values()),
            _ => None,
        });
        entries.flatten().filter(|&&found| found == node).count() as u32
    }

    pub(crate) fn make(&mut self, directory: usize, name: &[u8], node: Node) -> Outcome<usize> {
        if self.entries(directory)?.contains_key(name) {
            return Err(libc::EEXIST);
        }
        let number = self.next;
        self.next += 1;
        self.nodes.insert(number, node);
        self.entries_mut(directory).insert(name.to_vec(), number);
        Ok(number)
    }

    pub(crate) fn link(&mut self, node: usize, directory: usize, name: &[u8]) -> Outcome<()> {
        if self.is_directory(node) {
            return Err(libc::EINVAL);
        }
        if self.links(node) == 0 {
            return Err(libc::ENOENT);
        }
        if self.entries(directory)?.contains_key(name) {
            return Err(libc::EEXIST);
        }
        self.entries_mut(directory).insert(name.to_vec(), node);
        Ok(())
    }

    pub(crate) fn unlink(&mut self, directory: usize, name: &[u8]) -> Outcome<()> {
        if self.is_directory(self.find(directory, name)?) {
            return Err(libc::EISDIR);
        }
        self.entries_mut(directory).remove(name);
        Ok(())
    }

    pub(crate) fn remove_directory(&mut self, directory: usize, name: &[u8]) -> Outcome<()> {
        let node = self.find(directory, name)?;
        if !self.entries(node)?.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.entries_mut(directory).remove(name);
        self.nodes.remove(&node);
        Ok(())
    }

    fn is_inside(&self, directory: usize, of: usize) -> bool {
        let mut at = directory;
        loop {
            if at == of {
                return true;
            }
            match self.nodes[&at] {
                Node::Directory { parent, .. } if parent != at => at = parent,
                _ => return false,
            }
        }
    }

    fn set_parent(&mut self, node: usize, to: usize) {
        if let Some(Node::Directory { parent, .. }) = self.nodes.get_mut(&node) {
            *parent = to;
        }
    }

    pub(crate) fn rename(
        &mut self,
        (from, name): (usize, &[u8]),
        (to, new): (usize, &[u8]),
        replace: deepram_files::Replace,
    ) -> Outcome<()> {
        use deepram_files::Replace;

        let moved = self.find(from, name)?;
        let target = self.find(to, new).ok();
        if self.is_directory(moved) && self.is_inside(to, moved) {
            return Err(libc::EINVAL);
        }
        match (target, replace) {
            (Some(_), Replace::No) => return Err(libc::EEXIST),
            (None, Replace::Exchange) => return Err(libc::ENOENT),
            (Some(target), _) if target == moved => return Ok(()),
            (Some(target), Replace::Exchange) => {
                if self.is_directory(target) && self.is_inside(from, target) {
                    return Err(libc::EINVAL);
                }
                self.entries_mut(from).insert(name.to_vec(), target);
                self.set_parent(target, from);
            }
            (Some(target), Replace::Yes) => match (self.is_directory(moved), self.is_directory(target)) {
                (true, false) => return Err(libc::ENOTDIR),
                (false, true) => return Err(libc::EISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(libc::ENOTEMPTY),
                (true, true) => {
                    self.nodes.remove(&target);
                    self.entries_mut(from).remove(name);
                }
                _ => drop(self.entries_mut(from).remove(name)),
            },
            (None, _) => drop(self.entries_mut(from).remove(name)),
        }
        self.entries_mut(to).insert(new.to_vec(), moved);
        self.set_parent(moved, to);
        Ok(())
    }

    /// Forgets files without names, as a crash does.
    pub(crate) fn forget_nameless(&mut self) {
        let nameless: Vec<usize> =
            self.nodes.keys().copied().filter(|&node| node != TOP && self.links(node) == 0).collect();
        nameless.iter().for_each(|node| drop(self.nodes.remove(node)));
    }

    pub(crate) fn listing(&self) -> BTreeMap<Vec<u8>, Listed> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![(Vec::new(), TOP)];
        while let Some((path, node)) = waiting.pop() {
            let listed = match &self.nodes[&node] {
                Node::File(bytes) => Listed::File { bytes: bytes.clone(), links: self.links(node) },
                Node::Link(target) => Listed::Link { target: target.clone() },
                Node::Directory { entries, .. } => {
                    for (name, &node) in entries {
                        waiting.push(([&path[..], b"/", name].concat(), node));
                    }
                    let below = entries.values().filter(|&&node| self.is_directory(node)).count();
                    Listed::Directory { links: 2 + below as u32 }
                }
            };
            found.insert(path, listed);
        }
        found
    }
}
