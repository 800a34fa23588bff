//! The two lists of pages, as Linux keeps them.
//!
//! 1. A page enters the inactive list as its newest. Use sets its bit, and moves nothing.
//! 2. The oldest inactive page is looked at when room is needed. If it was used since, its bit is cleared
//!    and it becomes the newest inactive page; or, if that had happened to it before, the newest active
//!    one. If it was not used, it is the candidate.
//! 3. Before each look, while the inactive list is too short, the oldest active page becomes the newest
//!    inactive one, as unused.

/// No frame.
const NONE: u32 = u32::MAX;

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

#[derive(Debug, Clone, Copy)]
struct Node {
    /// Towards the oldest.
    older: u32,
    newer: u32,
    list: u8,
    referenced: bool,
    /// It has been found used once.
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

/// Frames in two lists. Frames are small numbers, in a list or out.
#[derive(Debug, Clone)]
pub struct ActiveInactiveLists {
    nodes: Vec<Node>,
    lists: [Ends; 2],
    /// The active list may be this many times as long as the inactive one.
    ratio: usize,
}

impl ActiveInactiveLists {
    /// Empty lists; the active one may be `ratio` times as long as the inactive one.
    #[must_use]
    pub fn new(ratio: usize) -> Self {
        let ends = Ends { oldest: NONE, newest: NONE, len: 0 };
        Self { nodes: Vec::new(), lists: [ends; 2], ratio: ratio.max(1) }
    }

    /// Linux's ratio for a memory of so many bytes: 1 below a gibibyte, then the root of ten times the
    /// gibibytes.
    #[must_use]
    pub fn ratio_of(bytes: u64) -> usize {
        ((bytes >> 30) * 10).isqrt().max(1) as usize
    }

    /// Frames in the inactive and in the active list.
    #[must_use]
    pub fn lens(&self) -> (usize, usize) {
        (self.lists[INACTIVE].len, self.lists[ACTIVE].len)
    }

    /// True if the frame is in a list.
    #[must_use]
    pub fn contains(&self, frame: u32) -> bool {
        self.nodes.get(frame as usize).is_some_and(|node| node.list != UNLISTED)
    }

    /// Enters a frame that is in no list: as the newest inactive one, or as the oldest, which is next to
    /// go. It counts as not used.
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

    /// Takes the frame out. Nothing happens if it is in no list.
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

    /// The page in the frame is used.
    #[inline]
    pub fn touch(&mut self, frame: u32) {
        if let Some(node) = self.nodes.get_mut(frame as usize) {
            node.referenced = true;
        }
    }

    /// The frame to evict next, which stays where it is; `None` if the inactive list runs empty.
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

    /// The same rules with queues, oldest in front.
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
