//! A set of files on a device, some of which exist: the data of filebench's loops.
//!
//! Every entry has an inode and a region of sixteen times its initial size. A file that would
//! outgrow its region is first truncated to zero with a trim, like a mail or log spool.

use super::rng::Rng;

const GROWTH: u64 = 16;
/// Maximum number of files, which limits the tables to a few hundred MiB.
pub(super) const MAX_FILES: u64 = 1 << 24;

#[derive(Clone, Copy, Default)]
struct File {
    bytes: u64,
    /// Number of threads that have the file open.
    users: u32,
    /// Position in `existing` or `absent`.
    at: u32,
    exists: bool,
}

pub(super) struct FileSet {
    files: Vec<File>,
    existing: Vec<u32>,
    absent: Vec<u32>,
    inode: u64,
    region: u64,
    data: u64,
}

impl FileSet {
    /// Creates `count` entries, of which the first `share` exist with `size` bytes each. `None` if
    /// they take more than 2^62 bytes.
    pub(super) fn new(count: u64, size: u64, inode: u64, share: f64) -> Option<FileSet> {
        let region = size.max(4096).checked_mul(GROWTH)?;
        let data = count.checked_mul(inode)?.checked_next_multiple_of(4096)?;
        data.checked_add(region.checked_mul(count)?).filter(|end| *end < 1 << 62)?;
        let present = (count as f64 * share).round() as u64;
        let mut set = FileSet {
            files: vec![File::default(); count as usize],
            existing: Vec::new(),
            absent: Vec::new(),
            inode,
            region,
            data,
        };
        for i in 0..count as u32 {
            let exists = u64::from(i) < present;
            let list = if exists { &mut set.existing } else { &mut set.absent };
            set.files[i as usize] =
                File { bytes: if exists { size } else { 0 }, users: 0, at: list.len() as u32, exists };
            list.push(i);
        }
        Some(set)
    }

    /// Offset after the last file's region.
    pub(super) fn end(&self) -> u64 {
        self.data + self.region * self.files.len() as u64
    }

    pub(super) fn inode(&self, file: u32) -> u64 {
        u64::from(file) * self.inode
    }

    pub(super) fn start(&self, file: u32) -> u64 {
        self.data + u64::from(file) * self.region
    }

    pub(super) fn bytes(&self, file: u32) -> u64 {
        self.files[file as usize].bytes
    }

    pub(super) fn region(&self) -> u64 {
        self.region
    }

    pub(super) fn set_bytes(&mut self, file: u32, bytes: u64) {
        self.files[file as usize].bytes = bytes.min(self.region);
    }

    /// Opens a uniformly drawn existing file.
    pub(super) fn open(&mut self, rng: &mut Rng) -> Option<u32> {
        let file = self.any(rng)?;
        self.files[file as usize].users += 1;
        Some(file)
    }

    /// Draws an existing file uniformly.
    pub(super) fn any(&self, rng: &mut Rng) -> Option<u32> {
        self.existing.get(rng.below(self.existing.len() as u64) as usize).copied()
    }

    /// Creates and opens an absent entry; `None` if all entries exist.
    pub(super) fn create(&mut self, rng: &mut Rng) -> Option<u32> {
        let file = *self.absent.get(rng.below(self.absent.len() as u64) as usize)?;
        self.shift(file);
        let entry = &mut self.files[file as usize];
        entry.bytes = 0;
        entry.users = 1;
        Some(file)
    }

    /// Deletes a randomly drawn existing file, or the next one that no thread has open; returns the
    /// file and its size.
    pub(super) fn delete(&mut self, rng: &mut Rng) -> Option<(u32, u64)> {
        let n = self.existing.len();
        let first = rng.below(n as u64) as usize;
        let file =
            (0..n).map(|i| self.existing[(first + i) % n]).find(|f| self.files[*f as usize].users == 0)?;
        self.shift(file);
        Some((file, std::mem::take(&mut self.files[file as usize].bytes)))
    }

    pub(super) fn close(&mut self, file: u32) {
        let users = &mut self.files[file as usize].users;
        *users = users.saturating_sub(1);
    }

    /// Moves a file between the two lists.
    fn shift(&mut self, file: u32) {
        let entry = self.files[file as usize];
        let (from, to) = if entry.exists {
            (&mut self.existing, &mut self.absent)
        } else {
            (&mut self.absent, &mut self.existing)
        };
        from.swap_remove(entry.at as usize);
        if let Some(moved) = from.get(entry.at as usize) {
            self.files[*moved as usize].at = entry.at;
        }
        let entry = &mut self.files[file as usize];
        entry.at = to.len() as u32;
        entry.exists = !entry.exists;
        to.push(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_one_list_each_whatever_is_created_and_deleted() {
        let mut set = FileSet::new(50, 1000, 256, 0.8).unwrap();
        let mut rng = Rng::new(1, "t");
        assert_eq!((set.existing.len(), set.absent.len()), (40, 10));
        for round in 0..10_000 {
            if round % 3 == 0 {
                if let Some(file) = set.create(&mut rng) {
                    set.set_bytes(file, 77);
                    set.close(file);
                }
            } else if round % 3 == 1 {
                set.delete(&mut rng);
            } else if let Some(file) = set.open(&mut rng) {
                assert!(set.files[file as usize].exists);
                set.close(file);
            }
            assert_eq!(set.existing.len() + set.absent.len(), 50);
            for (list, exists) in [(&set.existing, true), (&set.absent, false)] {
                for (at, file) in list.iter().enumerate() {
                    let entry = &set.files[*file as usize];
                    assert!(entry.exists == exists && entry.at as usize == at);
                }
            }
        }
    }
}
