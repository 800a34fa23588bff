//! The active and inactive lists of pages, as in Linux.
//!
//! 1. A page enters the inactive list as its newest. A use sets the page's reference bit and moves
//!    nothing.
//! 2. When a frame is needed, the oldest inactive page is examined. If it was referenced, its bit is
//!    cleared and it becomes the newest inactive page; if that had happened to it before, the newest
//!    active page. If it was not referenced, it is the eviction candidate.
//! 3. Before each examination, while the inactive list is too short, the oldest active page becomes the
//!    newest inactive page, unreferenced.

/// No frame.
const NONE: u32 = u32::MAX;

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

#[derive(Debug, Clone, Copy)]
struct Node {
    /// The next node towards the oldest.
    older: u32,
    newer: u32,
    list: u8,
    referenced: bool,
    /// The page was found referenced at an earlier examination.
    referenced_before: bool,
}

/// In no list.
const UNLISTED: u8 = 2;

#[derive(Debug, Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
    len: usize,
}

/// The active and the inactive list of frames. Frames are small numbers; each is in one list or in none.
#[derive(Debug, Clone)]
pub struct ActiveInactiveLists {
    nodes: Vec<Node>,
    lists: [Ends; 2],
    /// The maximum length of the active list relative to the inactive one.
    ratio: usize,
}

impl ActiveInactiveLists {
    /// Empty lists. The active list may be `ratio` times as long as the inactive one.
    #[must_use]
    pub fn new(ratio: usize) -> Self {
        let ends = Ends { oldest: NONE, newest: NONE, len: 0 };
        Self { nodes: Vec::new(), lists: [ends; 2], ratio: ratio.max(1) }
    }

    /// Linux's ratio for a memory of `bytes`: 1 below one gibibyte, then the square root of ten times
    /// the gibibytes.
    #[must_use]
    pub fn ratio_of(bytes: u64) -> usize {
        ((bytes >> 30) * 10).isqrt().max(1) as usize
    }

    /// The lengths of the inactive and of the active list.
    #[must_use]
    pub fn lens(&self) -> (usize, usize) {
        (self.lists[INACTIVE].len, self.lists[ACTIVE].len)
    }

    /// True if the frame is in a list.
    #[must_use]
    pub fn contains(&self, frame: u32) -> bool {
        self.nodes.get(frame as usize).is_some_and(|node| node.list != UNLISTED)
    }

    /// Inserts a frame into the inactive list, unreferenced: as the newest, or as the oldest, which is
    /// evicted next.
    pub fn insert(&mut self, frame: u32, newest: bool) {
        let out =
            Node { older: NONE, newer: NONE, list: UNLISTED, referenced: false, referenced_before: false };
        if self.nodes.len() <= frame as usize {
            self.nodes.resize(frame as usize + 1, out);
        }
        self.remove(frame);
        self.nodes[frame as usize] = out;
        self.link(frame, INACTIVE, newest);
    }

    /// Removes the frame from its list. Has no effect if it is in no list.
    pub fn remove(&mut self, frame: u32) {
        let Some(&Node { older, newer, list, .. }) = self.nodes.get(frame as usize) else { return };
        let Some(ends) = self.lists.get_mut(list as usize) else { return };
        ends.len -= 1;
        match older {
            NONE => ends.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => ends.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        self.nodes[frame as usize].list = UNLISTED;
    }

    /// Sets the frame's reference bit.
    #[inline]
    pub fn touch(&mut self, frame: u32) {
        if let Some(node) = self.nodes.get_mut(frame as usize) {
            node.referenced = true;
        }
    }

    /// Selects the frame to evict next, which stays in its list; `None` if the inactive list runs empty.
    pub fn candidate(&mut self) -> Option<u32> {
        loop {
            while self.lists[ACTIVE].len > self.ratio * self.lists[INACTIVE].len {
                let frame = self.lists[ACTIVE].oldest;
                self.remove(frame);
                let node = &mut self.nodes[frame as usize];
                node.referenced = false;
                node.referenced_before = false;
                self.link(frame, INACTIVE, true);
            }
            let frame = self.lists[INACTIVE].oldest;
            let node = self.nodes.get_mut(frame as usize)?;
            if !node.referenced {
                return Some(frame);
            }
            node.referenced = false;
            let active = std::mem::replace(&mut node.referenced_before, true);
            self.remove(frame);
            if active {
                self.nodes[frame as usize].referenced_before = false;
            }
            self.link(frame, if active { ACTIVE } else { INACTIVE }, true);
        }
    }

    fn link(&mut self, frame: u32, list: usize, newest: bool) {
        let ends = &mut self.lists[list];
        let (older, newer) = if newest { (ends.newest, NONE) } else { (NONE, ends.oldest) };
        if newest || ends.len == 0 {
            ends.newest = frame;
        }
        if !newest || ends.len == 0 {
            ends.oldest = frame;
        }
        ends.len += 1;
        let node = &mut self.nodes[frame as usize];
        (node.older, node.newer, node.list) = (older, newer, list as u8);
        if older != NONE {
            self.nodes[older as usize].newer = frame;
        }
        if newer != NONE {
            self.nodes[newer as usize].older = frame;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};

    /// A model of the same rules: queues with the oldest in front.
    #[derive(Default)]
    struct Model {
        inactive: VecDeque<u32>,
        active: VecDeque<u32>,
        referenced: BTreeSet<u32>,
        referenced_before: BTreeSet<u32>,
    }

    impl Model {
        fn remove(&mut self, frame: u32) {
            self.inactive.retain(|f| *f != frame);
            self.active.retain(|f| *f != frame);
        }

        fn candidate(&mut self, ratio: usize) -> Option<u32> {
            loop {
                while self.active.len() > ratio * self.inactive.len() {
                    let frame = self.active.pop_front()?;
                    self.referenced.remove(&frame);
                    self.referenced_before.remove(&frame);
                    self.inactive.push_back(frame);
                }
                let frame = *self.inactive.front()?;
                if !self.referenced.remove(&frame) {
                    return Some(frame);
                }
                self.inactive.pop_front();
                if self.referenced_before.insert(frame) {
                    self.inactive.push_back(frame);
                } else {
                    self.referenced_before.remove(&frame);
                    self.active.push_back(frame);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_lists_behave_as_queues_would(
            ratio in 1usize..4,
            steps in prop::collection::vec((0u8..6, 0u32..24), 1..400),
        ) {
            let mut lists = ActiveInactiveLists::new(ratio);
            let mut model = Model::default();
            for (what, frame) in steps {
                match what {
                    0 | 1 => {
                        lists.insert(frame, what == 0);
                        model.remove(frame);
                        model.referenced.remove(&frame);
                        model.referenced_before.remove(&frame);
                        if what == 0 { model.inactive.push_back(frame) } else { model.inactive.push_front(frame) }
                    }
                    2 => {
                        lists.remove(frame);
                        model.remove(frame);
                    }
                    3 | 4 => {
                        if lists.contains(frame) {
                            lists.touch(frame);
                            model.referenced.insert(frame);
                        }
                    }
                    _ => {
                        let victim = lists.candidate();
                        prop_assert_eq!(victim, model.candidate(ratio));
                        if let Some(victim) = victim {
                            lists.remove(victim);
                            model.remove(victim);
                        }
                    }
                }
                prop_assert_eq!(lists.lens(), (model.inactive.len(), model.active.len()));
                prop_assert_eq!(lists.contains(frame), model.inactive.contains(&frame) || model.active.contains(&frame));
            }
        }
    }

    #[test]
    fn the_ratio_is_1_at_half_a_gibibyte_3_at_one_and_17_at_32() {
        let gib = 1 << 30;
        assert_eq!([gib / 2, gib, 32 * gib].map(ActiveInactiveLists::ratio_of), [1, 3, 17]);
    }
}
