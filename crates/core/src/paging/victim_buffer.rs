//! The victim buffer: frames of pages that have left memory and are still in DRAM (ADR 15).
//!
//! A page that is used again while it is in the buffer gets a second chance: it comes back without I/O. Pages leave the
//! buffer in the order in which they entered, once they are in the swap file. The pages that come back show the
//! replacement policy which pages are used.
//!
//! [`VictimBuffer`] decides which frame a page gets, which page leaves next, and what becomes of a page's copies when a
//! write or a return ends. The driver owns the frames' memory, and keeps the state of each page (`page_state`).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::mem::size_of;

/// The victim buffer has one frame in this many of the process's frames. A larger buffer shows more about which pages are
/// used, and makes more pages come back (ADR 57).
const SHARE: usize = 16;
/// The same in a process that was forked, or that shares memory with a process forked from it. Copies of pages that the
/// other process also has in memory take DRAM and free none.
const FORKED_SHARE: usize = 32;
/// Part of the frames that the victim buffer leaves to memory while uses of pages are recorded, and the least number of such
/// frames.
const RECORDED_SHARE: usize = 16;
const LEAST_RECORDED: usize = 256;
/// Pages whose first use has to be seen stay in the buffer until they hold more than one in this many of the used frames.
const AWAITED_SHARE: usize = 4;
/// Largest number of frames that keep their memory while they hold no page.
const MAX_IDLE: usize = 256;
/// Part of the frames that writing back alone needs, and the least number of such frames.
const WRITES_SHARE: usize = 64;
const MIN_WRITES: usize = 256;
/// Largest heat of a page.
const MAX_HEAT: u8 = 16;

/// Largest number of frames in the victim buffer of a process with `frames` frames.
#[must_use]
pub fn frames_of_buffer(frames: usize, shares_with_fork: bool) -> usize {
    frames / if shares_with_fork { FORKED_SHARE } else { SHARE }
}

/// Smallest number of frames in the victim buffer of a process with `frames` frames: pages stay only until they are written, and
/// hardly any comes back.
#[must_use]
pub const fn frames_of_writes(frames: usize) -> usize {
    let part = frames / WRITES_SHARE;
    if part < MIN_WRITES { MIN_WRITES } else { part }
}

/// Number of frames in the victim buffer of a process with `frames` frames whose uses of pages are recorded: few pages stay in
/// memory, so that nearly every use is a fault.
#[must_use]
pub fn frames_while_recording(frames: usize) -> usize {
    frames.saturating_sub(LEAST_RECORDED.max(frames / RECORDED_SHARE))
}

/// Number of pages that move from memory into the buffer so that `count` frames become free. Where the buffer, of at most
/// `limit` frames of which `used` hold a page, is not full, more pages enter it than leave it: a page that moves into it
/// frees no frame.
#[must_use]
pub fn pages_to_move(count: usize, used: usize, limit: usize) -> usize {
    count + count.min(limit.saturating_sub(used))
}

/// Number of pages that leave the buffer before `arriving` pages enter it.
#[must_use]
pub fn pages_to_drain(arriving: usize, used: usize, limit: usize) -> usize {
    (used + arriving).saturating_sub(limit)
}

/// Largest number of frames without a page that keep their memory, where `headroom` frames are kept free: as many as the
/// next victims take.
#[must_use]
pub fn most_idle(headroom: usize) -> usize {
    MAX_IDLE.min(headroom / 2)
}

/// Estimated reuse of a page: doubled when the page comes back from the victim buffer, halved when it leaves the buffer
/// for the swap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Heat(u8);

impl Heat {
    /// Records that the page came back from the victim buffer.
    pub fn warm(&mut self) {
        self.0 = (self.0 * 2).clamp(1, MAX_HEAT);
    }

    /// Records that the page left the victim buffer for the swap file.
    pub fn cool(&mut self) {
        self.0 /= 2;
    }

    /// How many uses the replacement policy is told when the page enters memory.
    #[must_use]
    pub fn touches(self) -> u8 {
        self.0
    }
}

/// The state of a frame of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FrameState {
    /// Holds no page.
    Free,
    /// Holds a page that can come back.
    Buffered,
    /// Holds a page that is being written to the swap file.
    Writing,
    /// Being written to the swap file, although its page has gone back to memory.
    WritingReturned,
}

/// A frame of the buffer; `S` names a slot of the swap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Frame<S> {
    /// Address of the page; meaningless in a free frame.
    page: usize,
    /// Slot of the page in the swap file, once it is written.
    slot: Option<S>,
    /// Number of the arrival of the page.
    arrival: u32,
    state: FrameState,
    /// Whether the page's first use has to be seen.
    awaited: bool,
}

impl<S> Frame<S> {
    /// Whether the frame still holds the page of this arrival, as one whose first use has to be seen (`awaited`) or not.
    fn holds(&self, arrival: u32, awaited: bool) -> bool {
        self.state != FrameState::Free && self.arrival == arrival && self.awaited == awaited
    }
}

/// A page in the buffer that can leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Leaving {
    /// Number of its frame.
    pub frame: u32,
    /// Address of the page.
    pub page: usize,
}

/// What becomes of the copies of a page that has come back into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Returned<S> {
    /// Whether the page's frame is free again. Otherwise it is being written, and [`VictimBuffer::write_ended`] frees it.
    pub frame_freed: bool,
    /// The slot of the page's equal copy in the swap file, if it has one: the page is clean.
    pub clean: Option<S>,
    /// A slot of the swap file that nothing needs any more.
    pub obsolete: Option<S>,
}

/// The frames and the pages in them; `S` names a slot of the swap file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VictimBuffer<S> {
    frames: Vec<Frame<S>>,
    free: Vec<u32>,
    /// Largest number of frames in use at once since the last trim: these frames are backed by memory.
    touched: usize,
    arrivals: u32,
    /// Frames and arrivals, in the order of arrival: of pages, and of those whose first use has to be seen. An entry is obsolete if
    /// the page of its arrival has left the frame, or belongs into the other queue.
    queues: [VecDeque<(u32, u32)>; 2],
    /// Number of pages whose first use has to be seen.
    awaited: usize,
}

impl<S: Copy> VictimBuffer<S> {
    /// An empty buffer of `frames` frames.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        let free = Frame { page: 0, slot: None, arrival: 0, state: FrameState::Free, awaited: false };
        Self {
            frames: vec![free; frames],
            free: (0..frames as u32).rev().collect(),
            touched: 0,
            arrivals: 0,
            queues: [VecDeque::with_capacity(frames), VecDeque::new()],
            awaited: 0,
        }
    }

    /// Number of frames.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Frames that hold a page.
    #[must_use]
    pub fn used_frames(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Frames that hold no page.
    #[must_use]
    pub fn free_frames(&self) -> usize {
        self.free.len()
    }

    /// Free frames that are still backed by memory: the next ones to be used.
    #[must_use]
    pub fn idle_frames(&self) -> usize {
        self.touched - self.used_frames()
    }

    /// Returns the free frames whose memory the driver returns to the kernel before it uses the buffer again, in runs of
    /// neighbouring frames: (first frame, number of frames).
    #[must_use]
    pub fn trim(&mut self) -> Vec<(u32, usize)> {
        // Backed frames are at the end of the free list, where frames are taken first.
        let mut idle = self.free.split_off(self.free.len() - self.idle_frames());
        idle.sort_unstable();
        let runs = idle.chunk_by(|a, b| a + 1 == *b).map(|run| (run[0], run.len())).collect();
        self.free.extend(idle.into_iter().rev());
        self.touched = self.used_frames();
        runs
    }

    /// Whether any frame is being written.
    #[must_use]
    pub fn has_writes(&self) -> bool {
        let writing =
            |frame: &Frame<S>| matches!(frame.state, FrameState::Writing | FrameState::WritingReturned);
        self.frames.iter().any(writing)
    }

    /// Inserts a page and returns its frame, whose bytes the driver fills; `None` if the buffer is full. A page without a
    /// slot is dirty: the driver writes it and then calls [`VictimBuffer::write_ended`].
    pub fn insert(&mut self, page: usize, slot: Option<S>) -> Option<u32> {
        let number = self.free.pop()?;
        self.touched = self.touched.max(self.used_frames());
        self.arrivals = self.arrivals.wrapping_add(1);
        let state = if slot.is_some() { FrameState::Buffered } else { FrameState::Writing };
        self.frames[number as usize] = Frame { page, slot, arrival: self.arrivals, state, awaited: false };
        self.enqueue(number);
        Some(number)
    }

    /// Marks the page of a frame as one whose first use has to be seen: it stays for longer than others, up to a quarter of the
    /// used frames.
    pub fn await_use(&mut self, number: u32) {
        let frame = &mut self.frames[number as usize];
        if !core::mem::replace(&mut frame.awaited, true) {
            self.awaited += 1;
            self.enqueue(number);
        }
    }

    /// Makes the page of a frame the youngest of its queue. A queue with more obsolete entries than frames loses them.
    fn enqueue(&mut self, number: u32) {
        let Frame { arrival, awaited, .. } = self.frames[number as usize];
        let queue = &mut self.queues[usize::from(awaited)];
        if queue.len() >= 2 * self.frames.len() {
            queue.retain(|(number, arrival)| self.frames[*number as usize].holds(*arrival, awaited));
        }
        queue.push_back((number, arrival));
    }

    /// Has the page of a frame written that was inserted with a slot, and that its copy shows to be changed since. Returns the
    /// slot, which nothing needs any more.
    pub fn write_back_changed(&mut self, number: u32) -> Option<S> {
        let frame = &mut self.frames[number as usize];
        frame.state = FrameState::Writing;
        frame.slot.take()
    }

    /// The page that has been in the buffer longest and is in the swap file. It stays in the buffer, but is not returned
    /// again: the driver calls [`VictimBuffer::leave`] for it, or [`VictimBuffer::keep`], or the page is coming back. A page whose
    /// first use has to be seen leaves only while more than a quarter of the used frames hold such pages, or no other page can.
    pub fn oldest(&mut self) -> Option<Leaving> {
        let too_many_awaited = self.awaited * AWAITED_SHARE > self.used_frames();
        self.oldest_of(too_many_awaited).or_else(|| self.oldest_of(!too_many_awaited))
    }

    /// The oldest page in the swap file, of those whose first use has to be seen (`awaited`), or of the others.
    fn oldest_of(&mut self, awaited: bool) -> Option<Leaving> {
        let queue = &mut self.queues[usize::from(awaited)];
        let mut unwritten = Vec::new();
        let mut found = None;
        while let Some((number, arrival)) = queue.pop_front() {
            let frame = &self.frames[number as usize];
            if !frame.holds(arrival, awaited) {
                continue;
            }
            if frame.state == FrameState::Buffered && frame.slot.is_some() {
                found = Some(Leaving { frame: number, page: frame.page });
                break;
            }
            unwritten.push((number, arrival));
        }
        for entry in unwritten.into_iter().rev() {
            queue.push_front(entry);
        }
        found
    }

    /// The slot of a page that can leave its frame for the swap file; `None` while the page is being written.
    #[must_use]
    pub fn stored_at(&self, number: u32) -> Option<S> {
        let frame = &self.frames[number as usize];
        if frame.state == FrameState::Buffered { frame.slot } else { None }
    }

    /// Frees the frame of a page that leaves for the swap file, and returns its slot there. `None` if it cannot leave yet: it is
    /// being written, because it has been changed, or has come back and left memory again meanwhile.
    pub fn leave(&mut self, number: u32) -> Option<S> {
        let slot = self.stored_at(number);
        if slot.is_some() {
            self.remove(number)
        } else {
            self.keep(number)
        }
        slot
    }

    /// Frees the frame of a page whose contents are no longer needed in it. Returns the page's slot in the swap file, if it
    /// has one.
    pub fn take(&mut self, number: u32) -> Option<S> {
        self.remove(number);
        self.frames[number as usize].slot
    }

    /// Makes the page of a frame that [`VictimBuffer::oldest`] has returned the oldest of all: it is still in memory, and cannot
    /// leave yet.
    pub fn keep(&mut self, number: u32) {
        let Frame { arrival, awaited, .. } = self.frames[number as usize];
        self.queues[usize::from(awaited)].push_front((number, arrival));
    }

    /// The page's slot in the swap file, if it has one.
    #[must_use]
    pub fn slot(&self, number: u32) -> Option<S> {
        self.frames[number as usize].slot
    }

    /// Records that a page has come back into memory, for a store if `store`. `slot` is the page's slot when its return began
    /// ([`VictimBuffer::slot`]): a write that ended later is too late.
    pub fn returned(&mut self, number: u32, slot: Option<S>, store: bool) -> Returned<S> {
        let frame = &mut self.frames[number as usize];
        let written = frame.slot;
        let frame_freed = frame.state != FrameState::Writing;
        if frame_freed {
            self.remove(number);
        } else {
            frame.state = FrameState::WritingReturned;
        }
        match slot {
            Some(slot) if !store => Returned { frame_freed, clean: Some(slot), obsolete: None },
            Some(slot) => Returned { frame_freed, clean: None, obsolete: Some(slot) },
            None => Returned { frame_freed, clean: None, obsolete: written },
        }
    }

    /// Records that the write of a page to `slot` has ended well. Returns whether its frame is free again, because the page
    /// has come back and is dirty in memory: nothing needs the slot then.
    pub fn write_ended(&mut self, number: u32, slot: S) -> bool {
        let frame = &mut self.frames[number as usize];
        if frame.state == FrameState::WritingReturned {
            self.remove(number);
            return true;
        }
        (frame.slot, frame.state) = (Some(slot), FrameState::Buffered);
        false
    }

    /// Records that the write of a page has failed. If it was in the buffer alone, the driver has put it back into memory
    /// (`restored`). Returns whether the frame is free again; otherwise the page is coming back just now, and
    /// [`VictimBuffer::returned`] frees it.
    pub fn write_failed(&mut self, number: u32, restored: bool) -> bool {
        let frame = &mut self.frames[number as usize];
        if restored || frame.state == FrameState::WritingReturned {
            self.remove(number);
            return true;
        }
        frame.state = FrameState::Buffered;
        false
    }

    /// Changes the address of the page in a frame.
    pub fn set_address(&mut self, number: u32, page: usize) {
        self.frames[number as usize].page = page;
    }

    fn remove(&mut self, number: u32) {
        let frame = &mut self.frames[number as usize];
        debug_assert!(frame.state != FrameState::Free, "frame {number} is free");
        frame.state = FrameState::Free;
        self.awaited -= usize::from(core::mem::take(&mut frame.awaited));
        self.free.push(number);
    }

    /// Bytes of the tables.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let entries: usize = self.queues.iter().map(VecDeque::capacity).sum();
        self.frames.len() * (size_of::<Frame<S>>() + 4) + entries * size_of::<(u32, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn more_pages_move_than_are_freed_until_the_buffer_is_full() {
        assert_eq!(pages_to_move(64, 0, 1000), 128);
        assert_eq!((pages_to_move(64, 990, 1000), pages_to_drain(32, 990, 1000)), (74, 22));
        assert_eq!((pages_to_move(64, 1000, 1000), pages_to_drain(32, 900, 1000)), (64, 0));
        // A budget that shrinks leaves the buffer too full.
        assert_eq!((pages_to_move(64, 1000, 500), pages_to_drain(32, 1000, 500)), (64, 532));
        assert_eq!((frames_of_buffer(6400, false), frames_of_buffer(6400, true)), (400, 200));
        assert_eq!((most_idle(64), most_idle(2048)), (32, 256));
        assert_eq!((frames_of_writes(6400), frames_of_writes(64_000)), (256, 1000));
    }

    #[test]
    fn heat_doubles_with_each_return_and_halves_with_each_departure() {
        let mut heat = Heat::default();
        let warm: Vec<u8> = (0..6).map(|_| (heat.warm(), heat.touches()).1).collect();
        assert_eq!(warm, [1, 2, 4, 8, 16, 16]);
        let cool: Vec<u8> = (0..6).map(|_| (heat.cool(), heat.touches()).1).collect();
        assert_eq!(cool, [8, 4, 2, 1, 0, 0]);
    }

    #[test]
    fn a_page_that_came_back_and_left_again_is_as_young_as_its_last_arrival() {
        let mut buffer = VictimBuffer::new(2);
        let first = buffer.insert(1, Some('a')).unwrap();
        let second = buffer.insert(2, Some('b')).unwrap();
        assert_eq!(buffer.returned(first, Some('a'), false).clean, Some('a'));
        assert_eq!(buffer.insert(1, Some('a')), Some(first));
        let oldest = Leaving { frame: second, page: 2 };
        assert_eq!(buffer.oldest(), Some(oldest));
        buffer.keep(oldest.frame);
        assert_eq!(buffer.oldest(), Some(oldest));
        assert_eq!(buffer.oldest(), Some(Leaving { frame: first, page: 1 }));
    }

    #[test]
    fn pages_that_come_back_leave_nothing_in_the_tables() {
        for awaited in [false, true] {
            let mut buffer = VictimBuffer::new(8);
            // A page that does not come back, in front of all others.
            let stays = buffer.insert(0, Some('a')).unwrap();
            buffer.await_use(stays);
            let bytes: Vec<usize> = (1..1000)
                .map(|page| {
                    let frame = buffer.insert(page, Some('b')).unwrap();
                    if awaited {
                        buffer.await_use(frame);
                    }
                    assert!(buffer.returned(frame, Some('b'), false).frame_freed);
                    buffer.memory_bytes()
                })
                .collect();
            assert_eq!(bytes[99], bytes[998], "awaited: {awaited}");
            assert_eq!(buffer.oldest(), Some(Leaving { frame: stays, page: 0 }));
        }
    }

    /// A page in the model: in the buffer, or on its way back from it.
    #[derive(Debug, Clone, PartialEq)]
    struct Page {
        address: usize,
        frame: u32,
        slot: Option<u32>,
        /// Whether its write is under way.
        writing: bool,
        /// The slot with which its return began.
        returning: Option<Option<u32>>,
        /// Whether it is back in memory, and only its frame is being written.
        returned: bool,
        /// Whether [`VictimBuffer::oldest`] may still name it.
        queued: bool,
        /// Whether its first use has to be seen.
        awaited: bool,
        /// Its place in the order in which pages leave.
        order: i64,
    }

    impl Page {
        fn new(address: usize, frame: u32, slot: Option<u32>) -> Self {
            let (writing, order) = (slot.is_none(), address as i64);
            Self {
                address,
                frame,
                slot,
                writing,
                returning: None,
                returned: false,
                queued: true,
                awaited: false,
                order,
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert {
            clean: bool,
        },
        /// A clean page that turns out to be changed.
        InsertChanged,
        Leave,
        /// The oldest page is still in memory.
        Keep,
        AwaitUse(prop::sample::Index),
        WriteEnds(prop::sample::Index),
        WriteFails(prop::sample::Index),
        ReturnBegins(prop::sample::Index),
        ReturnEnds(prop::sample::Index, bool),
        Take(prop::sample::Index),
        Trim,
    }

    fn step() -> impl Strategy<Value = Step> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            4 => any::<bool>().prop_map(|clean| Step::Insert { clean }),
            1 => Just(Step::InsertChanged),
            2 => Just(Step::Leave),
            1 => Just(Step::Keep),
            1 => index().prop_map(Step::AwaitUse),
            2 => index().prop_map(Step::WriteEnds),
            1 => index().prop_map(Step::WriteFails),
            2 => index().prop_map(Step::ReturnBegins),
            2 => (index(), any::<bool>()).prop_map(|(index, store)| Step::ReturnEnds(index, store)),
            1 => index().prop_map(Step::Take),
            1 => Just(Step::Trim),
        ]
    }

    proptest! {
        /// Compares the buffer with a list of pages in the order of their arrival.
        #[test]
        fn pages_leave_in_the_order_of_arrival_and_no_copy_is_lost(
            frames in 0usize..9,
            steps in proptest::collection::vec(step(), 0..300),
        ) {
            let mut buffer = VictimBuffer::<u32>::new(frames);
            let mut model: Vec<Page> = Vec::new();
            let (mut backed, mut slots) = (0, 0u32);
            for (address, step) in steps.into_iter().enumerate() {
                // The index of one of the pages for which `which` holds.
                let choose = |model: &[Page], index: prop::sample::Index, which: &dyn Fn(&Page) -> bool| {
                    let all: Vec<usize> = (0..model.len()).filter(|n| which(&model[*n])).collect();
                    (!all.is_empty()).then(|| *index.get(&all))
                };
                match step {
                    Step::Insert { clean } => {
                        slots += 1;
                        let slot = clean.then_some(slots);
                        let found = buffer.insert(address, slot);
                        prop_assert_eq!(found.is_some(), model.len() < frames);
                        if let Some(frame) = found {
                            prop_assert!(model.iter().all(|page| page.frame != frame));
                            model.push(Page::new(address, frame, slot));
                        }
                    }
                    Step::InsertChanged => {
                        slots += 1;
                        if let Some(frame) = buffer.insert(address, Some(slots)) {
                            prop_assert_eq!(buffer.write_back_changed(frame), Some(slots));
                            model.push(Page::new(address, frame, None));
                        }
                    }
                    Step::Leave | Step::Keep => {
                        let ready = |page: &Page| page.queued && !page.writing && page.slot.is_some();
                        let oldest = |awaited: bool| {
                            let may_leave = (0..model.len()).filter(|n| ready(&model[*n]) && model[*n].awaited == awaited);
                            may_leave.min_by_key(|n| model[*n].order)
                        };
                        let too_many = model.iter().filter(|page| page.awaited).count() * AWAITED_SHARE > model.len();
                        let expected = oldest(too_many).or_else(|| oldest(!too_many));
                        let found = buffer.oldest();
                        let leaving = expected.map(|n| Leaving { frame: model[n].frame, page: model[n].address });
                        prop_assert_eq!(found, leaving);
                        let Some(n) = expected else { continue };
                        if let Step::Keep = step {
                            buffer.keep(model[n].frame);
                            model[n].order = -(address as i64);
                        } else {
                            model[n].queued = false;
                            // The driver leaves a page that is coming back to the thread that brings it back.
                            if model[n].returning.is_none() {
                                prop_assert_eq!(buffer.leave(model[n].frame), model[n].slot);
                                model.remove(n);
                            }
                        }
                    }
                    Step::AwaitUse(index) => {
                        let Some(n) = choose(&model, index, &|page| page.returning.is_none() && !page.returned) else { continue };
                        buffer.await_use(model[n].frame);
                        if !core::mem::replace(&mut model[n].awaited, true) {
                            (model[n].queued, model[n].order) = (true, address as i64);
                        }
                    }
                    Step::WriteEnds(index) => {
                        let Some(n) = choose(&model, index, &|page| page.writing) else { continue };
                        slots += 1;
                        prop_assert_eq!(buffer.stored_at(model[n].frame), None, "it is being written");
                        let freed = buffer.write_ended(model[n].frame, slots);
                        prop_assert_eq!(freed, model[n].returned);
                        if freed {
                            model.remove(n);
                        } else {
                            (model[n].writing, model[n].slot) = (false, Some(slots));
                        }
                    }
                    Step::WriteFails(index) => {
                        let Some(n) = choose(&model, index, &|page| page.writing) else { continue };
                        let restored = model[n].returning.is_none() && !model[n].returned;
                        let freed = buffer.write_failed(model[n].frame, restored);
                        prop_assert_eq!(freed, model[n].returning.is_none());
                        if freed {
                            model.remove(n);
                        } else {
                            model[n].writing = false;
                        }
                    }
                    Step::ReturnBegins(index) => {
                        let Some(n) = choose(&model, index, &|page| page.returning.is_none() && !page.returned) else { continue };
                        model[n].returning = Some(buffer.slot(model[n].frame));
                        prop_assert_eq!(model[n].returning, Some(model[n].slot));
                    }
                    Step::ReturnEnds(index, store) => {
                        let Some(n) = choose(&model, index, &|page| page.returning.is_some()) else { continue };
                        let page = &mut model[n];
                        let slot = page.returning.take().unwrap();
                        let returned = buffer.returned(page.frame, slot, store || slot.is_none());
                        // A page is clean only with a slot that was written before it came back, and every other slot is freed.
                        let clean = slot.filter(|_| !store);
                        prop_assert_eq!(returned.clean, clean);
                        prop_assert_eq!(returned.obsolete, page.slot.filter(|_| clean.is_none()));
                        prop_assert_eq!(returned.frame_freed, !page.writing);
                        if returned.frame_freed {
                            model.remove(n);
                        } else {
                            page.returned = true;
                        }
                    }
                    Step::Take(index) => {
                        // Memory is dropped only while no page is in transit.
                        let Some(n) = choose(&model, index, &|page| page.returning.is_none() && !page.writing) else { continue };
                        prop_assert_eq!(buffer.take(model[n].frame), model[n].slot);
                        model.remove(n);
                    }
                    Step::Trim => {
                        let idle = buffer.idle_frames();
                        let runs = buffer.trim();
                        let trimmed = runs.iter().flat_map(|(first, count)| *first..first + *count as u32);
                        prop_assert!(trimmed.clone().all(|frame| model.iter().all(|page| page.frame != frame)));
                        prop_assert_eq!(trimmed.count(), idle);
                        prop_assert!(runs.windows(2).all(|pair| pair[0].0 as usize + pair[0].1 < pair[1].0 as usize));
                        backed = model.len();
                    }
                }
                backed = backed.max(model.len());
                prop_assert_eq!(buffer.used_frames(), model.len());
                prop_assert_eq!(buffer.free_frames() + model.len(), frames);
                prop_assert_eq!(buffer.idle_frames(), backed - model.len());
                prop_assert_eq!(buffer.has_writes(), model.iter().any(|page| page.writing));
            }
        }
    }
}
