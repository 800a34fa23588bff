//! Attributes of files.

use std::time::{SystemTime, UNIX_EPOCH};

use deepram_core::units::PAGE_BYTES;

use crate::layout::Inode;

/// Permission bits, with those for set-user-id, set-group-id and sticky.
const PERMISSIONS: u32 = 0o7777;

/// Nanoseconds since 1970, now.
pub(crate) fn now() -> i64 {
    to_ns(SystemTime::now())
}

/// Nanoseconds since 1970; times that 64 bits cannot hold become the nearest that they can.
pub(crate) fn to_ns(time: SystemTime) -> i64 {
    let saturated = |ns: u128| i64::try_from(ns).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => saturated(since.as_nanos()),
        Err(before) => -saturated(before.duration().as_nanos()),
    }
}

/// Attributes of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Type (`S_IFMT`) and permissions.
    pub mode: u32,
    /// The user.
    pub uid: u32,
    /// The group; a directory with the set-group-id bit gives its own.
    pub gid: u32,
    /// Number of a device.
    pub rdev: u32,
}

impl Attributes {
    /// A regular file of user 0 with these permissions.
    #[must_use]
    pub const fn file(permissions: u32) -> Self {
        Self { mode: libc::S_IFREG | permissions & PERMISSIONS, uid: 0, gid: 0, rdev: 0 }
    }

    /// A directory of user 0 with these permissions.
    #[must_use]
    pub const fn directory(permissions: u32) -> Self {
        Self { mode: libc::S_IFDIR | permissions & PERMISSIONS, uid: 0, gid: 0, rdev: 0 }
    }

    /// The inode of a new file in a directory.
    pub(crate) fn inode(&self, directory: &Inode, parent: u64) -> Inode {
        let now = now();
        let is_directory = self.mode & libc::S_IFMT == libc::S_IFDIR;
        let gives_group = directory.mode & libc::S_ISGID != 0;
        Inode {
            mode: self.mode | if gives_group && is_directory { libc::S_ISGID } else { 0 },
            links: if is_directory { 2 } else { 1 },
            uid: self.uid,
            gid: if gives_group { directory.gid } else { self.gid },
            mtime: now,
            ctime: now,
            atime: now,
            rdev: self.rdev,
            parent: if is_directory { parent } else { 0 },
            ..Inode::default()
        }
    }
}

/// Attributes to change; none stays as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permissions.
    pub permissions: Option<u32>,
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Size of a regular file, bytes: it is cut, or extended by zeros.
    pub size: Option<u64>,
    /// Time of the last access, nanoseconds since 1970.
    pub atime: Option<i64>,
    /// Time of the last change of the contents, nanoseconds since 1970.
    pub mtime: Option<i64>,
    /// Time of the last change of the attributes, nanoseconds since 1970; none: now.
    pub ctime: Option<i64>,
}

impl SetAttributes {
    /// Changes all but the size.
    pub(crate) fn apply(&self, inode: &mut Inode) {
        if let Some(permissions) = self.permissions {
            inode.mode = inode.mode & libc::S_IFMT | permissions & PERMISSIONS;
        }
        inode.uid = self.uid.unwrap_or(inode.uid);
        inode.gid = self.gid.unwrap_or(inode.gid);
        inode.atime = self.atime.unwrap_or(inode.atime);
        inode.mtime = self.mtime.unwrap_or(inode.mtime);
        inode.ctime = self.ctime.unwrap_or_else(now);
    }
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Type (`S_IFMT`) and permissions.
    pub mode: u32,
    /// Number of names; 2 and one for each subdirectory for a directory.
    pub links: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Number of a device.
    pub rdev: u32,
    /// Size, bytes.
    pub size: u64,
    /// Memory of the pool that the file has allocated, bytes. Flash is used only for what was written.
    pub allocated: u64,
    /// Time of the last access that a program has set, nanoseconds since 1970; reads do not change it.
    pub atime: i64,
    /// Time of the last change of the contents, nanoseconds since 1970.
    pub mtime: i64,
    /// Time of the last change of contents or attributes, nanoseconds since 1970.
    pub ctime: i64,
    /// Tells files apart that have the same inode number one after the other.
    pub generation: u32,
}

impl Status {
    /// Attributes of a file that does not exist.
    pub(crate) fn none() -> Self {
        Self::from(&Inode::default())
    }
}

impl From<&Inode> for Status {
    fn from(inode: &Inode) -> Self {
        Self {
            mode: inode.mode,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            allocated: inode.pages * PAGE_BYTES,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            generation: inode.generation,
        }
    }
}
