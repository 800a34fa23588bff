//! The file system: opening, syncing, closing, and what its operations share.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use deepram_linux::lock::lock;
use deepram_pool::{Epoch, Pool};

use crate::attributes::{Attributes, SetAttributes, Status};
use crate::directory::Directories;
use crate::error::{FilesError, Result};
use crate::inodes::{Inodes, TOP};
use crate::layout::Inode;
use crate::memory::{Change, Memory};

/// A file system in the memory of a pool. Threads may share it.
///
/// Every operation takes place whole or not at all, but for [`Files::write`], which may write a part. A [`Files::sync`]
/// captures whole operations; after a crash the file system is as at the last sync that returned, or a later one.
///
/// An inode number stays valid as long as the file has a name or is held ([`Files::hold`]).
pub struct Files {
    pub(crate) inodes: Inodes,
    pub(crate) directories: Directories,
    /// Held shared by readers of structures, by writers of bytes where nothing else changes, and by a sync; exclusively by
    /// changes of structures.
    structures: RwLock<()>,
    /// How often each inode is held.
    holds: Mutex<HashMap<u64, u64>>,
    /// Number of changes so far, those that are complete.
    changes: AtomicU64,
    /// The changes that the last sync contains. Locked during a sync.
    synced: Mutex<u64>,
}

/// Space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Memory of the pool, bytes.
    pub total: u64,
    /// Memory that files can still allocate and the device can hold without giving up older tokens, bytes.
    pub free: u64,
    /// Files and directories.
    pub files: u64,
    /// Most files and directories.
    pub most_files: u64,
}

impl Files {
    /// Opens the file system of a pool, or makes an empty one in a pool without. Files that had lost their names before a crash
    /// while they were open are removed.
    ///
    /// # Errors
    /// [`FilesError::Version`], [`FilesError::Damaged`], [`FilesError::Pool`].
    pub fn open(pool: Pool) -> Result<Self> {
        let files = Self::with(Memory::new(pool, None, true))?;
        files.free_orphans()?;
        Ok(files)
    }

    /// Opens the file system of a pool for reading only: as it is, or as it was at a token.
    ///
    /// # Errors
    /// [`FilesError::NoFiles`] if there was no file system then; the errors of [`Files::open`].
    pub fn open_read_only(pool: Pool, token: Option<Epoch>) -> Result<Self> {
        Self::with(Memory::new(pool, token, false))
    }

    fn with(memory: Memory) -> Result<Self> {
        let is_new = memory.superblock()?.is_none();
        let top = Attributes::directory(0o755).inode(&Inode::default(), TOP);
        let inodes = Inodes::open(memory, &top)?;
        if !inodes.get(TOP)?.is_directory() {
            return Err(FilesError::Damaged("inode 1 is not a directory".into()));
        }
        Ok(Self {
            inodes,
            directories: Directories::default(),
            structures: RwLock::default(),
            holds: Mutex::default(),
            // The structures of a new file system are a change.
            changes: AtomicU64::new(is_new.into()),
            synced: Mutex::default(),
        })
    }

    /// Whether the file system can be written to.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.inodes.memory.is_writable()
    }

    pub(crate) fn shared(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let guard = self.structures.read().unwrap_or_else(PoisonError::into_inner);
        self.inodes.memory.ensure_running()?;
        Ok(guard)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.structures.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out a change of structures whole, or takes it back.
    pub(crate) fn change<T>(&self, f: impl FnOnce(&mut Change<'_>) -> Result<T>) -> Result<T> {
        let _structures = self.exclusive();
        let mut change = self.inodes.memory.change()?;
        let done = f(&mut change).and_then(|value| change.commit().map(|()| value));
        match done {
            Ok(_) => self.changed(),
            Err(_) => self.directories.forget(),
        }
        done
    }

    /// Notes that something has changed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, AcqRel);
    }

    /// Makes all changes so far durable. Does nothing if there are none. Threads that call at the same time share a sync.
    ///
    /// # Errors
    /// The errors of [`Pool::sync`]: nothing has become durable, nothing is lost, and a later sync may succeed.
    /// [`FilesError::Stopped`].
    pub fn sync(&self) -> Result<()> {
        let wanted = self.changes.load(Acquire);
        let mut synced = lock(&self.synced);
        if *synced >= wanted || !self.is_writable() {
            return Ok(());
        }
        // No change of structures is under way at the moment that the sync captures.
        let structures = self.shared()?;
        let contained = self.changes.load(Acquire);
        self.inodes.memory.pool().sync()?;
        drop(structures);
        *synced = contained;
        Ok(())
    }

    /// Syncs and closes the pool; later operations fail. A file system that was opened for reading only leaves no trace in the pool.
    ///
    /// # Errors
    /// The errors of [`Files::sync`] and [`Pool::close`]: the pool is then closed at its last token.
    pub fn close(&self) -> Result<()> {
        let pool = self.pool().clone();
        let ready = if self.is_writable() { self.free_orphans() } else { Ok(()) }
            .and_then(|()| self.shared().map(drop));
        if ready.is_ok() && self.is_writable() {
            return Ok(pool.close()?);
        }
        pool.abandon()?;
        ready
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.inodes.memory.pool()
    }

    fn free_orphans(&self) -> Result<()> {
        let shared = self.shared()?;
        let orphans = self.inodes.orphans()?;
        drop(shared);
        for number in orphans {
            self.change(|change| self.inodes.free_orphan(change, number))?;
        }
        Ok(())
    }

    /// Keeps an inode as it is when its last name is removed, until it is released as often as it was held.
    pub fn hold(&self, number: u64) {
        *lock(&self.holds).entry(number).or_default() += 1;
    }

    /// Releases an inode `count` times. A file without a name that nobody holds any more is removed.
    ///
    /// # Errors
    /// [`FilesError::Pool`], [`FilesError::Damaged`], [`FilesError::Stopped`].
    pub fn release(&self, number: u64, count: u64) -> Result<()> {
        let is_last = {
            let mut holds = lock(&self.holds);
            let left = holds.get(&number).copied().unwrap_or(0).saturating_sub(count);
            if left > 0 {
                holds.insert(number, left);
            } else {
                holds.remove(&number);
            }
            left == 0
        };
        if !is_last || !self.is_writable() {
            return Ok(());
        }
        let inode = {
            let _shared = self.shared()?;
            self.inodes.get(number)
        };
        // Only a file without a name can be an orphan, and such a file never gets a name again.
        if inode.is_ok_and(|inode| inode.links == 0) {
            return self.change(|change| {
                let inode = self.inodes.get(number);
                let is_unused = inode.is_ok_and(|inode| inode.links == 0) && !self.is_held(number);
                if is_unused { self.inodes.free_orphan(change, number) } else { Ok(()) }
            });
        }
        Ok(())
    }

    pub(crate) fn is_held(&self, number: u64) -> bool {
        lock(&self.holds).contains_key(&number)
    }

    /// Returns the attributes of a file.
    ///
    /// # Errors
    /// [`FilesError::Stale`], [`FilesError::Pool`].
    pub fn status(&self, number: u64) -> Result<Status> {
        let _shared = self.shared()?;
        Ok(Status::from(&self.inodes.get(number)?))
    }

    /// Changes attributes of a file. Returns all of them.
    ///
    /// # Errors
    /// [`FilesError::Stale`], [`FilesError::ReadOnly`], [`FilesError::Pool`]; [`FilesError::TooLarge`],
    /// [`FilesError::IsADirectory`] and [`FilesError::Invalid`] for a size.
    pub fn set_attributes(&self, number: u64, set: &SetAttributes) -> Result<Status> {
        self.change(|change| {
            let mut inode = self.inodes.get(number)?;
            if let Some(size) = set.size {
                self.resize(change, &mut inode, size)?;
            }
            set.apply(&mut inode);
            self.inodes.put(change, number, &inode)?;
            Ok(Status::from(&inode))
        })
    }

    /// Returns the space of the file system.
    ///
    /// # Errors
    /// [`FilesError::Pool`].
    pub fn space(&self) -> Result<Space> {
        let _shared = self.shared()?;
        let info = self.pool().info()?;
        Ok(Space {
            total: info.size.0,
            free: info.size.0.saturating_sub(info.allocated.0).min(info.flash_room.0),
            files: self.inodes.used()?,
            most_files: Inodes::most(),
        })
    }
}
