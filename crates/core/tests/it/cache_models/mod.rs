//! Plain implementations of the policies, straight from the papers: vectors with the oldest key in front,
//! searched from end to end.

/// A cache that is slow and obviously correct.
pub(crate) trait Model {
    /// The cached keys.
    fn held(&self) -> Vec<u32>;
    fn capacity(&self) -> usize;
    fn hit(&mut self, key: u32);
    /// Prepares for a key that is not cached. Returns the list that remembers the key: B2 (ARC), the ghosts,
    /// or none.
    fn recall(&mut self, _key: u32) -> Past {
        Past::None
    }
    fn evict(&mut self, past: Past, eligible: &dyn Fn(u32) -> bool) -> Option<u32>;
    fn admit(&mut self, past: Past, key: u32);
    fn remove(&mut self, key: u32);

    /// Accesses a key. Returns `None` on a hit; on a miss, the evicted key if a key was evicted.
    fn access(&mut self, key: u32) -> Option<Option<u32>> {
        if self.held().contains(&key) {
            self.hit(key);
            return None;
        }
        let past = self.recall(key);
        let full = self.held().len() >= self.capacity();
        let evicted = if full { self.evict(past, &|_| true) } else { None };
        self.admit(past, key);
        Some(evicted)
    }

    fn insert(&mut self, key: u32) {
        if self.held().contains(&key) {
            return self.hit(key);
        }
        let past = self.recall(key);
        self.admit(past, key);
    }

    fn touch(&mut self, key: u32) {
        if self.held().contains(&key) {
            self.hit(key);
        }
    }

    fn victim(&mut self, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.evict(Past::None, eligible)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Past {
    None,
    Ghost,
    B1,
    B2,
}

/// Keys with a count, the oldest first.
type List = Vec<(u32, u8)>;

fn position(list: &List, key: u32) -> Option<usize> {
    list.iter().position(|(its, _)| *its == key)
}

fn drop_key(list: &mut List, key: u32) -> bool {
    let at = position(list, key);
    if let Some(at) = at {
        list.remove(at);
    }
    at.is_some()
}

fn drop_first(list: &mut List) {
    if !list.is_empty() {
        list.remove(0);
    }
}

fn first_eligible(list: &List, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
    list.iter().map(|(key, _)| *key).find(|key| eligible(*key))
}

fn count_up(list: &mut List, key: u32, most: u8) {
    if let Some(at) = position(list, key) {
        list[at].1 = most.min(list[at].1 + 1);
    }
}

/// Evicts the oldest key with a count of 0. Each key before it loses one count and goes to the end of the
/// list. A key that may not be evicted goes to the end too.
fn reinsert_until_zero(list: &mut List, most: usize, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
    for _ in 0..(most + 1) * list.len() {
        let (key, count) = list.remove(0);
        if count == 0 && eligible(key) {
            return Some(key);
        }
        list.push((key, count.saturating_sub(1)));
    }
    None
}

pub(crate) enum Rule {
    Lru,
    Fifo,
    Clock(u8),
}

/// LRU, FIFO and CLOCK: one list.
pub(crate) struct PlainQueue {
    capacity: usize,
    rule: Rule,
    list: List,
}

impl PlainQueue {
    pub(crate) fn new(capacity: usize, rule: Rule) -> Self {
        Self { capacity, rule, list: List::new() }
    }
}

impl Model for PlainQueue {
    fn held(&self) -> Vec<u32> {
        self.list.iter().map(|(key, _)| *key).collect()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn hit(&mut self, key: u32) {
        match self.rule {
            Rule::Fifo => {}
            Rule::Clock(most) => count_up(&mut self.list, key, most),
            Rule::Lru => {
                drop_key(&mut self.list, key);
                self.list.push((key, 0));
            }
        }
    }

    fn evict(&mut self, _: Past, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        if let Rule::Clock(most) = self.rule {
            return reinsert_until_zero(&mut self.list, usize::from(most), eligible);
        }
        let key = first_eligible(&self.list, eligible)?;
        drop_key(&mut self.list, key);
        Some(key)
    }

    fn admit(&mut self, _: Past, key: u32) {
        self.list.push((key, 0));
    }

    fn remove(&mut self, key: u32) {
        drop_key(&mut self.list, key);
    }
}

/// Keys in the order of their numbers, with count and arrival.
pub(crate) struct PlainSweep {
    capacity: usize,
    list: Vec<(u32, u8, usize)>,
    /// Keys below this number have been passed in this lap.
    hand: u32,
    inserted: usize,
}

impl PlainSweep {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, list: Vec::new(), hand: 0, inserted: 0 }
    }
}

impl Model for PlainSweep {
    fn held(&self) -> Vec<u32> {
        self.list.iter().map(|(key, ..)| *key).collect()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn hit(&mut self, key: u32) {
        let held = self.list.iter_mut().find(|held| held.0 == key).unwrap();
        held.1 = (held.1 + 1).min(16);
    }

    fn evict(&mut self, _: Past, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        let newest = self.list.len() / 8;
        for lap in 0..17 {
            for _ in 0..self.list.len() {
                let at = self.list.iter().position(|held| held.0 >= self.hand).unwrap_or(0);
                let (key, count, since) = self.list[at];
                self.hand = key + 1;
                if count > 0 {
                    self.list[at].1 -= 1;
                } else if (lap == 16 || self.inserted - since > newest) && eligible(key) {
                    self.list.remove(at);
                    return Some(key);
                }
            }
        }
        None
    }

    fn admit(&mut self, _: Past, key: u32) {
        self.list.push((key, 0, self.inserted));
        self.list.sort_unstable();
        self.inserted += 1;
    }

    fn remove(&mut self, key: u32) {
        self.list.retain(|held| held.0 != key);
    }
}

pub(crate) struct PlainSieve {
    capacity: usize,
    list: List,
    /// Position that the hand examines next.
    hand: usize,
}

impl PlainSieve {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, list: List::new(), hand: 0 }
    }

    fn drop_at(&mut self, at: usize) -> u32 {
        let (key, _) = self.list.remove(at);
        if at < self.hand {
            self.hand -= 1;
        }
        if self.hand == self.list.len() {
            self.hand = 0;
        }
        key
    }
}

impl Model for PlainSieve {
    fn held(&self) -> Vec<u32> {
        self.list.iter().map(|(key, _)| *key).collect()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn hit(&mut self, key: u32) {
        count_up(&mut self.list, key, 1);
    }

    fn evict(&mut self, _: Past, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..2 * self.list.len() {
            let at = self.hand;
            let (key, marked) = self.list[at];
            if marked == 0 && eligible(key) {
                return Some(self.drop_at(at));
            }
            self.list[at].1 = 0;
            self.hand = (at + 1) % self.list.len();
        }
        None
    }

    fn admit(&mut self, _: Past, key: u32) {
        self.list.push((key, 0));
    }

    fn remove(&mut self, key: u32) {
        if let Some(at) = position(&self.list, key) {
            self.drop_at(at);
        }
    }
}

pub(crate) struct PlainS3Fifo {
    capacity: usize,
    small: List,
    main: List,
    ghost: List,
    evicting: bool,
}

impl PlainS3Fifo {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, small: List::new(), main: List::new(), ghost: List::new(), evicting: false }
    }

    fn small_share(&self) -> usize {
        (self.capacity / 10).max(1)
    }

    fn evict_small(&mut self, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        let mut at = 0;
        while at < self.small.len() {
            let (key, count) = self.small[at];
            if count >= 2 {
                self.small.remove(at);
                self.main.push((key, 0));
            } else if eligible(key) {
                self.small.remove(at);
                let most = self.capacity * 9 / 10;
                if most > 0 {
                    if self.ghost.len() >= most {
                        drop_first(&mut self.ghost);
                    }
                    self.ghost.push((key, 0));
                }
                return Some(key);
            } else {
                at += 1;
            }
        }
        None
    }
}

impl Model for PlainS3Fifo {
    fn held(&self) -> Vec<u32> {
        self.small.iter().chain(&self.main).map(|(key, _)| *key).collect()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn hit(&mut self, key: u32) {
        count_up(&mut self.small, key, 3);
        count_up(&mut self.main, key, 3);
    }

    fn recall(&mut self, key: u32) -> Past {
        if drop_key(&mut self.ghost, key) { Past::Ghost } else { Past::None }
    }

    fn evict(&mut self, _: Past, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.evicting = true;
        if self.main.len() <= self.capacity - self.small_share() {
            let gone = self.evict_small(eligible);
            if gone.is_some() {
                return gone;
            }
        }
        let gone = reinsert_until_zero(&mut self.main, 3, eligible);
        if gone.is_some() { gone } else { self.evict_small(eligible) }
    }

    fn admit(&mut self, past: Past, key: u32) {
        if past == Past::Ghost || (!self.evicting && self.small.len() >= self.small_share()) {
            self.main.push((key, 0));
        } else {
            self.small.push((key, 0));
        }
    }

    fn remove(&mut self, key: u32) {
        for list in [&mut self.small, &mut self.main, &mut self.ghost] {
            drop_key(list, key);
        }
    }
}

/// ARC, split into the steps that a pool's driver calls.
#[derive(Default)]
pub(crate) struct PlainArc {
    capacity: usize,
    p: f64,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
}

impl PlainArc {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }
}

impl Model for PlainArc {
    fn held(&self) -> Vec<u32> {
        self.t1.iter().chain(&self.t2).map(|(key, _)| *key).collect()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn hit(&mut self, key: u32) {
        drop_key(&mut self.t1, key);
        drop_key(&mut self.t2, key);
        self.t2.push((key, 0));
    }

    fn recall(&mut self, key: u32) -> Past {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if drop_key(&mut self.b1, key) {
            self.p = f64::min(self.capacity as f64, self.p + f64::max(1.0, b2 / b1));
            Past::B1
        } else if drop_key(&mut self.b2, key) {
            self.p = f64::max(0.0, self.p - f64::max(1.0, b1 / b2));
            Past::B2
        } else {
            Past::None
        }
    }

    fn evict(&mut self, past: Past, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        let length = self.t1.len() as f64;
        let from_t1 = length > self.p || (length == self.p && past == Past::B2);
        let first = first_eligible(if from_t1 { &self.t1 } else { &self.t2 }, eligible);
        let key = first.or_else(|| first_eligible(if from_t1 { &self.t2 } else { &self.t1 }, eligible))?;
        if drop_key(&mut self.t1, key) {
            self.b1.push((key, 0));
        } else {
            drop_key(&mut self.t2, key);
            self.b2.push((key, 0));
        }
        if self.t1.len() + self.b1.len() > self.capacity {
            drop_first(&mut self.b1);
        } else if self.held().len() + self.b1.len() + self.b2.len() > 2 * self.capacity {
            drop_first(&mut self.b2);
        }
        Some(key)
    }

    fn admit(&mut self, past: Past, key: u32) {
        if past != Past::None {
            return self.t2.push((key, 0));
        }
        if self.t1.len() + self.b1.len() >= self.capacity {
            drop_first(&mut self.b1);
        } else if self.held().len() + self.b1.len() + self.b2.len() >= 2 * self.capacity {
            drop_first(&mut self.b2);
        }
        self.t1.push((key, 0));
    }

    fn remove(&mut self, key: u32) {
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            drop_key(list, key);
        }
    }
}

/// The four cases of the paper's Figure 4 as printed, except that a cache with free space evicts no key.
/// Never holds more keys than its capacity.
pub(crate) struct Figure4(PlainArc);

impl Figure4 {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(PlainArc::new(capacity))
    }

    fn replace(&mut self, in_b2: bool) -> Option<u32> {
        let length = self.0.t1.len() as f64;
        if !self.0.t1.is_empty() && (length > self.0.p || (in_b2 && length == self.0.p)) {
            self.0.b1.push(self.0.t1.remove(0));
            self.0.b1.last().map(|(key, _)| *key)
        } else {
            self.0.b2.push(self.0.t2.remove(0));
            self.0.b2.last().map(|(key, _)| *key)
        }
    }
}

impl Model for Figure4 {
    fn held(&self) -> Vec<u32> {
        self.0.held()
    }

    fn capacity(&self) -> usize {
        self.0.capacity
    }

    fn hit(&mut self, key: u32) {
        self.0.hit(key);
    }

    fn evict(&mut self, _: Past, eligible: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.0.evict(Past::None, eligible)
    }

    fn admit(&mut self, past: Past, key: u32) {
        self.0.admit(past, key);
    }

    fn remove(&mut self, key: u32) {
        self.0.remove(key);
    }

    fn access(&mut self, key: u32) -> Option<Option<u32>> {
        let c = self.0.capacity;
        if drop_key(&mut self.0.t1, key) || drop_key(&mut self.0.t2, key) {
            self.0.t2.push((key, 0));
            return None;
        }
        let full = self.0.t1.len() + self.0.t2.len() >= c;
        let (b1, b2) = (self.0.b1.len() as f64, self.0.b2.len() as f64);
        let mut evicted = None;
        if position(&self.0.b1, key).is_some() {
            self.0.p = f64::min(c as f64, self.0.p + f64::max(1.0, b2 / b1));
            if full {
                evicted = self.replace(false);
            }
            drop_key(&mut self.0.b1, key);
            self.0.t2.push((key, 0));
            return Some(evicted);
        }
        if position(&self.0.b2, key).is_some() {
            self.0.p = f64::max(0.0, self.0.p - f64::max(1.0, b1 / b2));
            if full {
                evicted = self.replace(true);
            }
            drop_key(&mut self.0.b2, key);
            self.0.t2.push((key, 0));
            return Some(evicted);
        }
        let all = self.0.t1.len() + self.0.t2.len() + self.0.b1.len() + self.0.b2.len();
        if self.0.t1.len() + self.0.b1.len() == c {
            if self.0.t1.len() < c {
                drop_first(&mut self.0.b1);
                if full {
                    evicted = self.replace(false);
                }
            } else {
                evicted = Some(self.0.t1.remove(0).0);
            }
        } else if all >= c {
            if all == 2 * c {
                drop_first(&mut self.0.b2);
            }
            if full {
                evicted = self.replace(false);
            }
        }
        self.0.t1.push((key, 0));
        Some(evicted)
    }
}
