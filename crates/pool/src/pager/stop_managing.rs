//! Memory that is not to be paged any more.

use std::io;

use super::fatal::{call_failed, fatal};
use super::ranges::Place;
use super::{Ground, Inner, PAGE, Pager};
use crate::buffer::AlignedBuf;
use crate::lock::lock;

impl Pager {
    /// Pages this memory no longer, as far as it is managed: all that it holds comes into DRAM and stays.
    ///
    /// # Errors
    /// The kernel refuses; what it refuses for is managed as before.
    pub fn unmanage(&self, start: usize, len: usize) -> io::Result<()> {
        let mut ground = self.inner.write();
        let end = start.saturating_add(len);
        self.inner.make_small(&ground, start, end);
        for (from, to) in ground.layout.within(start, end) {
            self.inner.bring_all(&ground, from, to);
            ground.layout.each(from, to, |_, page| {
                if let Place::Clean(slot) = page.place {
                    ground.store.give_up(slot);
                    page.place = Place::Dirty;
                }
            });
            ground.watch.unprotect(from, to - from)?;
            ground.watch.unregister(from, to - from)?;
            let mut there = Vec::new();
            ground.layout.each(from, to, |address, page| {
                there.extend((page.place == Place::Dirty).then_some(address));
            });
            let mut policy = lock(&self.inner.policy);
            there.iter().for_each(|address| policy.remove((address / PAGE) as u64));
            drop(policy);
            self.inner.frames.give(there.len());
            ground.layout.remove(from, to);
            ground.advice.set(from, to, None);
        }
        Ok(())
    }
}

impl Inner {
    /// Brings all that is not fresh into memory. Everything is at rest.
    fn bring_all(&self, ground: &Ground, start: usize, end: usize) {
        let mut out = Vec::new();
        ground.layout.each(start, end, |address, page| match page.place {
            Place::Stored(_) | Place::Waiting(_) => out.push(address),
            Place::Fresh | Place::Clean(_) | Place::Dirty => {}
            // Nothing moves while the ground is held for writing.
            Place::Coming | Place::Leaving => fatal(format_args!("{page:?} moves at {address:#x}")),
        });
        let mut bytes = AlignedBuf::zeroed(PAGE);
        for address in out {
            let Some((mut chunk, at)) = ground.layout.chunk(address) else { continue };
            let page = &mut chunk[at];
            match page.place {
                Place::Stored(slot) => {
                    let read = ground.store.read(slot, &mut bytes);
                    let read = read.or_else(|_| self.read_again(ground, slot, &mut bytes));
                    if let Err(error) = read {
                        call_failed("pread", address, PAGE, &error);
                    }
                    ground.store.give_up(slot);
                    self.frames.take(1);
                }
                Place::Waiting(number) => {
                    let mut room = self.room();
                    // SAFETY: a frame of the room, whose page waits there: nobody stores to it.
                    bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(room.bytes(number), PAGE) });
                    if let Some(slot) = room.frame(number).slot {
                        ground.store.give_up(slot);
                    }
                    room.leave(number);
                }
                _ => continue,
            }
            page.place = Place::Dirty;
            (page.ahead, page.trigger) = (false, None);
            lock(&self.policy).insert((address / PAGE) as u64);
            // What is not mapped any more the caller meets at once.
            ground.install(address, &bytes, false);
        }
    }
}
