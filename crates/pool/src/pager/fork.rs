//! A process that forks: the child sees memory as at the fork, and pages it by itself from then on.
//!
//! The kernel gives the child the frames, but neither the userfaultfd's watch over them nor any thread. So
//! the child makes a pager of its own out of the parent's states. Pages on the store stay readable in the
//! parent's file; what the child writes goes to its own. The parent keeps the slots that the child may read
//! until the child has ended or become another program, which closes a pipe.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, RwLockWriteGuard};

use deepram_core::cache::Replacement;

use super::ranges::{Layout, Place};
use super::sharing::{Sharing, Table};
use super::{Ground, Inner, PAGE, Pager, Parts, Room, Spans, runs_of};
use crate::crew::{Crew, Unkept};
use crate::descriptors::{Low, Own};
use crate::lock::lock;
use crate::uffd::{self, WatchMode};

/// Everything at rest, from just before a fork to just after it. Either [`Forking::parent`] or
/// [`Forking::child`] ends it; dropping it is what to do if the fork failed.
pub struct Forking<'a> {
    inner: &'a Arc<Inner>,
    /// The child is not to be kept where the thread that forks is.
    unkept: Option<Unkept<'a>>,
    ground: RwLockWriteGuard<'a, Ground>,
    table: MutexGuard<'a, Table>,
    /// An evictor trims the room without the ground.
    room: MutexGuard<'a, Room>,
    /// Frames that the stages hold, which the child does not have.
    staged: usize,
    reader: Own,
    /// Whoever holds it may read the store; closed by `exec`, and when the process ends.
    writer: Own,
}

impl Pager {
    /// Brings everything to rest.
    ///
    /// # Errors
    /// There are no descriptors left for a pipe.
    pub fn forking(&self) -> io::Result<Forking<'_>> {
        let low = Low::hold();
        let (reader, writer) = io::pipe()?;
        let [reader, writer] = [OwnedFd::from(reader), writer.into()].map(|fd| Own::from(low.raise(fd)));
        drop(low);
        let unkept = self.inner.crew.get().map(Crew::hold);
        let ground = self.inner.write();
        self.inner.split_dirty(&ground);
        let table = self.inner.sharing.lock();
        let room = lock(&self.inner.room);
        let staged = self.inner.stages.frames();
        Ok(Forking { inner: &self.inner, unkept, ground, table, room, staged, reader, writer })
    }
}

impl Forking<'_> {
    /// In the parent, after the fork.
    pub fn parent(self) {
        self.ground.store.keep_for(self.reader);
        self.inner.kin.store(true, Relaxed);
    }

    /// In the child, after the fork: its own pager. The parent's, which the child has inherited, must be
    /// left alone (`std::mem::forget`): its threads are not here. What is `left_out` is not mapped in the
    /// child (`MADV_DONTFORK`), what is `wiped` reads as zeros there (`MADV_WIPEONFORK`).
    ///
    /// # Errors
    /// The kernel refuses another userfaultfd, or the directory another file.
    pub fn child(mut self, left_out: &Spans, wiped: &Spans) -> io::Result<Pager> {
        // It is to start threads of its own.
        self.unkept = None;
        let old = self.inner;
        let ground = &mut *self.ground;
        let store = ground.store.inherit(&old.options.directory)?;
        let layout = std::mem::take(&mut ground.layout);
        let advice = std::mem::take(&mut ground.advice);
        let watch = ground.watch.again(WatchMode::All)?;
        ground.store.forget_children();
        for fd in old.serving_descriptors(ground) {
            // SAFETY: of the parent's threads, which are not here; nobody else in this process knows it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let there = layout.all().flat_map(|(start, end)| left_out.outside(start, end));
        for (start, end) in there {
            watch.register(start, end - start)?;
        }
        // No thread holds the policy: it would hold the ground as well.
        let mut policy = std::mem::replace(&mut *lock(&old.policy), old.options.policy.build(1));
        let mut room = std::mem::replace(&mut *self.room, Room::new(1)?);
        Inner::forget_huge(&layout, &mut *policy);
        let shed = shed(&layout, left_out, &mut *policy, &mut room)?;
        let frames = old.frames.inherited(shed + Sharing::counted(&self.table) + self.staged);
        let inner = Arc::new(Inner::new(Parts {
            ground: Ground { layout, watch, store, advice },
            policy,
            room,
            sharing: Sharing::inherited(self.table, left_out),
            frames,
            dram: old.dram.load(Relaxed),
            forked: true,
            direct: old.direct.load(Relaxed),
            lifelines: old.lifelines.iter().copied().chain([self.writer.as_raw_fd()]).collect(),
            options: old.options.clone(),
        })?);
        {
            let mut ground = inner.write();
            for (start, end) in left_out.iter().chain(wiped.iter()) {
                inner.forget(&mut ground, start, end, true);
            }
            left_out.iter().for_each(|(start, end)| ground.layout.remove(start, end));
        }
        let pager = Pager { inner, threads: Mutex::new(None) };
        *lock(&pager.threads) = Some(pager.inner.start()?);
        pager.inner.start_sweeping(&mut pager.inner.sharing.lock())?;
        // Kept open for as long as the process is this one: the parent's store is needed.
        std::mem::forget(self.writer);
        drop(self.reader);
        std::mem::forget(self.ground);
        Ok(pager)
    }
}

/// Leaves to the parent what is on its store as well: the fork took the protection of clean pages away, and
/// what both have in memory would count twice. Returns how many frames the child has less.
fn shed(
    layout: &Layout,
    left_out: &Spans,
    policy: &mut dyn Replacement<u64>,
    room: &mut Room,
) -> io::Result<usize> {
    let mut clean = Vec::new();
    for (start, end) in layout.all().flat_map(|(start, end)| left_out.outside(start, end)) {
        layout.each(start, end, |address, page| {
            if let Place::Clean(slot) = page.place {
                page.place = Place::Stored(slot);
                clean.push(address);
            }
        });
    }
    clean.iter().for_each(|address| policy.remove((address / PAGE) as u64));
    // SAFETY: managed memory of this process, whose contents are on the store.
    unsafe { uffd::discard(&runs_of(&clean)) }?;
    let mut vacated = 0;
    while let Some((number, frame)) = room.oldest() {
        if let (Some((mut chunk, at)), Some(slot)) = (layout.chunk(frame.page), frame.slot)
            && chunk[at].place == Place::Waiting(number)
        {
            chunk[at].place = Place::Stored(slot);
            room.leave(number);
            vacated += 1;
        }
    }
    if room.used() == 0 {
        // What the parent writes to its frames from now on is not kept for the child.
        *room = Room::new(room.vacant())?;
    }
    Ok(clean.len() + vacated)
}
