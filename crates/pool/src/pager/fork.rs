//! A process that forks: the child sees memory as at the fork, and pages it by itself from then on.
//!
//! The kernel gives the child the frames, but neither the userfaultfd's watch over them nor any thread. So
//! the child makes a pager of its own out of the parent's states. Pages on the store stay readable in the
//! parent's file; what the child writes goes to its own. The parent keeps the slots that the child may read
//! until the child has ended or become another program, which closes a pipe.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, RwLock, RwLockWriteGuard};

use super::fault::Jobs;
use super::ranges::{Place, lock};
use super::watch::Watch;
use super::{Ground, Inner, Pager, Room};

/// Everything at rest, from just before a fork to just after it. Either [`Forking::parent`] or
/// [`Forking::child`] ends it; dropping it is what to do if the fork failed.
pub struct Forking<'a> {
    inner: &'a Arc<Inner>,
    ground: RwLockWriteGuard<'a, Ground>,
    reader: OwnedFd,
    /// Whoever holds it may read the store; closed by `exec`, and when the process ends.
    writer: OwnedFd,
}

impl Pager {
    /// Brings everything to rest.
    ///
    /// # Errors
    /// There are no descriptors left for a pipe.
    pub fn forking(&self) -> io::Result<Forking<'_>> {
        let (reader, writer) = io::pipe()?;
        let ground = self.inner.write();
        Ok(Forking { inner: &self.inner, ground, reader: reader.into(), writer: writer.into() })
    }
}

impl Forking<'_> {
    /// In the parent, after the fork.
    pub fn parent(self) {
        self.ground.store.keep_for(self.reader);
    }

    /// In the child, after the fork: its own pager. The parent's, which the child has inherited, must be
    /// left alone (`std::mem::forget`): its threads are not here.
    ///
    /// # Errors
    /// The kernel refuses another userfaultfd, or the directory another file.
    pub fn child(mut self) -> io::Result<Pager> {
        let old = self.inner;
        let ground = &mut *self.ground;
        let store = ground.store.inherit(&old.options.directory)?;
        let layout = std::mem::take(&mut ground.layout);
        let watch = Watch::new()?;
        for (start, end) in layout.all() {
            watch.register(start, end - start)?;
            // The fork took the protection away: what is clean may be stored to unseen.
            layout.each(start, end, |_, page| {
                if matches!(page.place, Place::Clean(_)) {
                    page.place = Place::Dirty;
                }
            });
        }
        let frames = old.frames.inherited();
        // Nobody holds these: who does holds the ground as well.
        let policy = std::mem::replace(&mut *lock(&old.policy), old.options.policy.build(1));
        let room = std::mem::replace(&mut *lock(&old.room), Room::new(1)?);
        let inner = Arc::new(Inner {
            ground: RwLock::new(Ground { layout, watch, store }),
            policy: Mutex::new(policy),
            room: Mutex::new(room),
            runs: Mutex::default(),
            jobs: Jobs::new()?,
            frames,
            dram: AtomicUsize::new(old.dram.load(Relaxed)),
            evictor: Mutex::default(),
            work: (Mutex::new(false), Condvar::new()),
            stopping: AtomicBool::new(false),
            overcommitted: AtomicBool::new(false),
            counters: super::Counters::default(),
            descriptors: Mutex::new(vec![self.writer.as_raw_fd()]),
            options: old.options.clone(),
        });
        let pager = Pager { inner, threads: Mutex::new(None) };
        *lock(&pager.threads) = Some(pager.inner.start()?);
        // Kept open for as long as the process is this one: the parent's store is needed.
        std::mem::forget(self.writer);
        drop(self.reader);
        std::mem::forget(self.ground);
        Ok(pager)
    }
}
