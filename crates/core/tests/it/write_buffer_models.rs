//! Plain write buffers, straight from the publications: vectors with the oldest entry in front, searched from
//! end to end. The tests of `deepram-sim` use this file, too.

use deepram_core::write_buffer::{BufferAccess, Evicted, PageState, WriteBufferOptions, WriteBufferPolicy};

/// A write buffer that is slow and obviously correct.
pub(crate) trait PlainBuffer {
    /// The pages in the buffer, and whether each is dirty.
    fn pages(&self) -> Vec<(u64, bool)>;
    fn access(&mut self, page: u64, write: bool, evicted: &mut Evicted) -> BufferAccess;
    fn evict(&mut self, evicted: &mut Evicted);
    fn discard(&mut self, page: u64) -> Option<PageState>;

    fn state(&self, page: u64) -> Option<PageState> {
        self.pages().iter().find(|(held, _)| *held == page).map(|(_, dirty)| state(*dirty))
    }
}

fn state(dirty: bool) -> PageState {
    if dirty { PageState::Dirty } else { PageState::Clean }
}

/// The plain buffer of a policy.
pub(crate) fn plain(policy: WriteBufferPolicy, options: &WriteBufferOptions) -> Box<dyn PlainBuffer> {
    let capacity = options.capacity_pages.max(1);
    let window = options.clean_first_pages.unwrap_or(capacity.div_ceil(2)).min(capacity);
    let pages = |rule, keeps_reads| {
        let keep_reads = options.keep_reads.unwrap_or(keeps_reads);
        Box::new(PlainPages { rule, capacity, keep_reads, list: Vec::new(), cold_clean: Vec::new() })
    };
    let blocks = |rule, keeps_reads| {
        let keep_reads = options.keep_reads.unwrap_or(keeps_reads);
        let size = u64::from(options.pages_per_block.max(1));
        Box::new(PlainBlocks { rule, capacity, keep_reads, size, groups: Vec::new() })
    };
    match policy {
        WriteBufferPolicy::Lru => pages(PageRule::Lru, false),
        WriteBufferPolicy::Cflru => pages(PageRule::Cflru { window }, true),
        WriteBufferPolicy::LruWsr => pages(PageRule::LruWsr, true),
        WriteBufferPolicy::CcfLru => pages(PageRule::CcfLru, true),
        WriteBufferPolicy::Fab => blocks(BlockRule::Fab, true),
        WriteBufferPolicy::Bplru => blocks(BlockRule::Bplru { padding: options.padding }, false),
    }
}

enum PageRule {
    Lru,
    Cflru { window: usize },
    LruWsr,
    CcfLru,
}

struct PlainPage {
    number: u64,
    dirty: bool,
    cold: bool,
}

/// The policies that evict single pages.
struct PlainPages {
    rule: PageRule,
    capacity: usize,
    keep_reads: bool,
    list: Vec<PlainPage>,
    /// CCF-LRU: the cold clean pages.
    cold_clean: Vec<PlainPage>,
}

impl PlainPages {
    fn take(&mut self, page: u64) -> Option<PlainPage> {
        [&mut self.list, &mut self.cold_clean].into_iter().find_map(|list| {
            let at = list.iter().position(|held| held.number == page)?;
            Some(list.remove(at))
        })
    }

    fn victim(&mut self) -> PlainPage {
        match self.rule {
            PageRule::Lru => self.list.remove(0),
            PageRule::Cflru { window } => {
                // The window holds what is left beyond the newest pages.
                let in_window = self.list.len().saturating_sub(self.capacity - window);
                let clean = self.list[..in_window].iter().position(|page| !page.dirty);
                self.list.remove(clean.unwrap_or(0))
            }
            PageRule::LruWsr => loop {
                let mut oldest = self.list.remove(0);
                if !oldest.dirty || oldest.cold {
                    return oldest;
                }
                oldest.cold = true;
                self.list.push(oldest);
            },
            PageRule::CcfLru => {
                if !self.cold_clean.is_empty() {
                    return self.cold_clean.remove(0);
                }
                while !self.list.is_empty() {
                    let mut oldest = self.list.remove(0);
                    if oldest.cold {
                        return oldest;
                    }
                    oldest.cold = true;
                    let list = if oldest.dirty { &mut self.list } else { &mut self.cold_clean };
                    list.push(oldest);
                }
                self.cold_clean.remove(0)
            }
        }
    }
}

impl PlainBuffer for PlainPages {
    fn pages(&self) -> Vec<(u64, bool)> {
        self.list.iter().chain(&self.cold_clean).map(|page| (page.number, page.dirty)).collect()
    }

    fn access(&mut self, number: u64, write: bool, evicted: &mut Evicted) -> BufferAccess {
        if let Some(page) = self.take(number) {
            self.list.push(PlainPage { number, dirty: page.dirty || write, cold: false });
            return BufferAccess::Hit;
        }
        if !write && !self.keep_reads {
            return BufferAccess::Bypassed;
        }
        if self.pages().len() == self.capacity {
            self.evict(evicted);
        }
        let cold_clean = matches!(self.rule, PageRule::CcfLru) && !write;
        let list = if cold_clean { &mut self.cold_clean } else { &mut self.list };
        list.push(PlainPage { number, dirty: write, cold: false });
        BufferAccess::Filled
    }

    fn evict(&mut self, evicted: &mut Evicted) {
        if !self.pages().is_empty() {
            let page = self.victim();
            let list = if page.dirty { &mut evicted.writes } else { &mut evicted.dropped };
            list.push(page.number);
        }
    }

    fn discard(&mut self, page: u64) -> Option<PageState> {
        self.take(page).map(|page| state(page.dirty))
    }
}

enum BlockRule {
    Fab,
    Bplru { padding: bool },
}

struct PlainGroup {
    block: u64,
    /// The pages in the buffer, with their numbers in the drive.
    pages: Vec<(u64, bool)>,
    /// All pages written since the group began, in order.
    history: Vec<u64>,
}

/// The policies that evict blocks.
struct PlainBlocks {
    rule: BlockRule,
    capacity: usize,
    keep_reads: bool,
    /// Pages of a block.
    size: u64,
    groups: Vec<PlainGroup>,
}

impl PlainBlocks {
    fn of(&self, page: u64) -> Option<usize> {
        self.groups.iter().position(|group| group.block == page / self.size)
    }

    /// The pages of a block in order.
    fn whole(&self, block: u64) -> Vec<u64> {
        (block * self.size..(block + 1) * self.size).collect()
    }
}

impl PlainBuffer for PlainBlocks {
    fn pages(&self) -> Vec<(u64, bool)> {
        self.groups.iter().flat_map(|group| group.pages.clone()).collect()
    }

    fn access(&mut self, page: u64, write: bool, evicted: &mut Evicted) -> BufferAccess {
        let hit = self.state(page).is_some();
        if !hit && !write && !self.keep_reads {
            return BufferAccess::Bypassed;
        }
        if let Some(at) = self.of(page)
            && (write || matches!(self.rule, BlockRule::Fab))
        {
            let group = self.groups.remove(at);
            self.groups.push(group);
        }
        if !hit && self.pages().len() == self.capacity {
            self.evict(evicted);
        }
        let at = self.of(page).unwrap_or_else(|| {
            let block = page / self.size;
            self.groups.push(PlainGroup { block, pages: Vec::new(), history: Vec::new() });
            self.groups.len() - 1
        });
        let whole = self.whole(page / self.size);
        let group = &mut self.groups[at];
        let dirty = write || group.pages.contains(&(page, true));
        group.pages.retain(|(held, _)| *held != page);
        group.pages.push((page, dirty));
        if write {
            group.history.push(page);
            if matches!(self.rule, BlockRule::Bplru { .. }) && group.history.ends_with(&whole) {
                let group = self.groups.remove(at);
                self.groups.insert(0, group);
            }
        }
        if hit { BufferAccess::Hit } else { BufferAccess::Filled }
    }

    fn evict(&mut self, evicted: &mut Evicted) {
        let at = match self.rule {
            BlockRule::Fab => {
                let most = self.groups.iter().map(|group| group.pages.len()).max();
                self.groups.iter().position(|group| Some(group.pages.len()) == most)
            }
            BlockRule::Bplru { .. } => (!self.groups.is_empty()).then_some(0),
        };
        let Some(at) = at else { return };
        let group = self.groups.remove(at);
        let any_dirty = group.pages.iter().any(|(_, dirty)| *dirty);
        let pad = matches!(self.rule, BlockRule::Bplru { padding: true }) && any_dirty;
        for page in self.whole(group.block) {
            let list = match group.pages.iter().find(|(held, _)| *held == page) {
                Some((_, dirty)) if *dirty || pad => &mut evicted.writes,
                Some(_) => &mut evicted.dropped,
                None if pad => &mut evicted.padding,
                None => continue,
            };
            list.push(page);
        }
    }

    fn discard(&mut self, page: u64) -> Option<PageState> {
        let was = self.state(page)?;
        let at = self.of(page)?;
        self.groups[at].pages.retain(|(held, _)| *held != page);
        if self.groups[at].pages.is_empty() {
            self.groups.remove(at);
        }
        Some(was)
    }
}
