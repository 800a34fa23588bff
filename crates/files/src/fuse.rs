//! The file system as the kernel asks for it through FUSE.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use deepram_core::units::PAGE_BYTES;
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use crate::attributes::{Attributes, SetAttributes, Status, now, to_ns};
use crate::error::{FilesError, Result};
use crate::files::Files;
use crate::layout::NAME;
use crate::names::{DirectoryEntry, Replace, link_attributes};

/// How long the kernel may keep names and attributes. Only the kernel changes them, so it may keep them for good.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Largest write that the kernel sends at once, bytes.
const MOST_WRITE: u32 = 1 << 20;
/// Requests of readahead and write-back that the kernel sends at once.
const BACKGROUND: u16 = 64;
/// The places of "." and ".." in a listing come first.
const DOTS: u64 = 2;

/// Gets place, inode, type and name of an entry. Returns whether there is room for more.
type Each<'a> = &'a mut dyn FnMut(u64, u64, FileType, &[u8]) -> bool;

/// The side of a file system that faces the kernel.
pub(crate) struct Front {
    pub(crate) files: Arc<Files>,
    /// Whether the kernel collects writes in its page cache.
    pub(crate) writeback: bool,
    /// Whether reads and writes bypass the kernel's page cache.
    pub(crate) direct: bool,
}

fn errno(error: &FilesError) -> Errno {
    Errno::from_i32(error.errno())
}

fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

fn attributes(number: u64, status: &Status) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: status.size,
        blocks: status.allocated / 512,
        atime: time(status.atime),
        mtime: time(status.mtime),
        ctime: time(status.ctime),
        crtime: time(status.ctime),
        kind: kind(status.mode),
        perm: (status.mode & 0o7777) as u16,
        nlink: status.links,
        uid: status.uid,
        gid: status.gid,
        rdev: status.rdev,
        blksize: PAGE_BYTES as u32,
        flags: 0,
    }
}

fn generation(status: &Status) -> Generation {
    Generation(status.generation.into())
}

fn entry(reply: ReplyEntry, result: Result<(u64, Status)>) {
    match result {
        Ok((number, status)) => reply.entry(&KEPT, &attributes(number, &status), generation(&status)),
        Err(error) => reply.error(errno(&error)),
    }
}

fn empty(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn attr(reply: ReplyAttr, number: u64, result: Result<Status>) {
    match result {
        Ok(status) => reply.attr(&KEPT, &attributes(number, &status)),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Front {
    /// Calls `each` with the entries of a directory from a place on, "." and ".." first.
    fn list(&self, directory: u64, first: u64, each: Each<'_>) -> Result<()> {
        if first == 0 && !each(1, directory, FileType::Directory, b".") {
            return Ok(());
        }
        if first <= 1 && !each(DOTS, self.files.parent(directory)?, FileType::Directory, b"..") {
            return Ok(());
        }
        self.files.list(directory, first.saturating_sub(DOTS), &mut |found| {
            let DirectoryEntry { next, inode, kind: mode, name } = found;
            each(next + DOTS, inode, kind(mode), &name)
        })
    }
}

impl Filesystem for Front {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if self.direct {
            wanted |= InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        } else {
            wanted |= InitFlags::FUSE_NO_OPEN_SUPPORT;
        }
        if self.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        // What the kernel lacks only costs time.
        self.writeback &= config.capabilities().contains(InitFlags::FUSE_WRITEBACK_CACHE);
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(MOST_WRITE);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.files.lookup_and_hold(parent.0, name.as_bytes()) {
            // An entry without an inode: the kernel remembers that there is none.
            Err(FilesError::NotFound) => {
                let none = Status::none();
                reply.entry(&KEPT, &attributes(0, &none), generation(&none));
            }
            found => entry(reply, found),
        }
    }

    fn forget(&self, _request: &Request, number: INodeNo, count: u64) {
        // Nobody waits for an answer. A file that could not be removed stays an orphan, which the next mount removes.
        let _ = self.files.release(number.0, count);
    }

    fn getattr(&self, _request: &Request, number: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        attr(reply, number.0, self.files.status(number.0));
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let ns = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => to_ns(time),
            TimeOrNow::Now => now(),
        };
        let set = SetAttributes {
            permissions: mode,
            uid,
            gid,
            size,
            atime: atime.map(ns),
            mtime: mtime.map(ns),
            ctime: ctime.map(to_ns),
        };
        attr(reply, number.0, self.files.set_attributes(number.0, &set));
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        match self.files.read_link(number.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        // A mode without a type means a regular file.
        let mode = if mode & libc::S_IFMT == 0 { mode | libc::S_IFREG } else { mode };
        let made = Attributes { mode, uid: request.uid(), gid: request.gid(), rdev };
        entry(reply, self.files.make(parent.0, name.as_bytes(), &made, b"", true));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = libc::S_IFDIR | mode & 0o7777;
        let made = Attributes { mode, uid: request.uid(), gid: request.gid(), rdev: 0 };
        entry(reply, self.files.make(parent.0, name.as_bytes(), &made, b"", true));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.files.unlink(parent.0, name.as_bytes()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.files.remove_directory(parent.0, name.as_bytes()));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let made = link_attributes(target, request.uid(), request.gid())
            .and_then(|made| self.files.make(parent.0, name.as_bytes(), &made, target, true));
        entry(reply, made);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let replace = match flags {
            RenameFlags::RENAME_NOREPLACE => Replace::No,
            RenameFlags::RENAME_EXCHANGE => Replace::Exchange,
            _ if flags.is_empty() => Replace::Yes,
            _ => return reply.error(Errno::EINVAL),
        };
        empty(reply, self.files.rename(parent.0, name.as_bytes(), to.0, new.as_bytes(), replace));
    }

    fn link(&self, _request: &Request, number: INodeNo, to: INodeNo, new: &OsStr, reply: ReplyEntry) {
        let linked = self.files.link(number.0, to.0, new.as_bytes());
        if linked.is_ok() {
            // The kernel already holds the file, so it has not gone meanwhile.
            self.files.hold(number.0);
        }
        entry(reply, linked.map(|status| (number.0, status)));
    }

    fn open(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.direct {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        // The kernel then opens files by itself and keeps what it has of them.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _request: &Request, _number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.files.read(number.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _open: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel itself keeps the times of files whose writes it collects.
        let touch = !(self.writeback && flags.contains(WriteFlags::FUSE_WRITE_CACHE));
        match self.files.write_at(number.0, offset, data, touch) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.files.sync());
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.files.sync());
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // There is nothing to do at the end of a file's use, and the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.list(number.0, offset, &mut |next, inode, kind, name| {
            !reply.add(INodeNo(inode), next, kind, OsStr::from_bytes(name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut found = Vec::new();
        // The kernel's buffer takes fewer.
        const MOST: usize = 256;
        let listed = self.list(number.0, offset, &mut |next, inode, _, name| {
            found.push((next, inode, name.to_vec()));
            found.len() < MOST
        });
        if let Err(error) = listed {
            return reply.error(errno(&error));
        }
        for (next, inode, name) in found {
            let is_dot = name == b"." || name == b"..";
            // The kernel holds what it is told, but for "." and "..".
            let status = if is_dot {
                self.files.status(inode)
            } else {
                match self.files.lookup_and_hold(number.0, &name) {
                    Ok((same, status)) if same == inode => Ok(status),
                    Ok((other, _)) => {
                        let _ = self.files.release(other, 1);
                        continue;
                    }
                    Err(FilesError::NotFound) => continue,
                    Err(error) => Err(error),
                }
            };
            let status = match status {
                Ok(status) => status,
                Err(error) => return reply.error(errno(&error)),
            };
            let attr = attributes(inode, &status);
            let name = OsStr::from_bytes(&name);
            if reply.add(INodeNo(inode), next, name, &KEPT, &attr, generation(&status)) {
                if !is_dot {
                    let _ = self.files.release(inode, 1);
                }
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        const BLOCK: u64 = 4096;
        match self.files.space() {
            Ok(space) => {
                let (total, free) = (space.total / BLOCK, space.free / BLOCK);
                let left = space.most_files.saturating_sub(space.files);
                let (size, name) = (BLOCK as u32, NAME as u32);
                reply.statfs(total, free, free, space.most_files, left, size, name, size);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        match mode {
            0 => empty(reply, self.files.allocate(number.0, offset, len)),
            PUNCH => empty(reply, self.files.punch_hole(number.0, offset, len)),
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }
}
