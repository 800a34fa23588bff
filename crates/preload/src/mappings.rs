//! What is known of the program's mappings beyond what the pager knows, by address.

use std::sync::{Mutex, MutexGuard, PoisonError};

use deepram_pool::pager::Spans;

/// See the fields. Whoever holds it must not wait for the pager.
pub(crate) struct Marks {
    /// Mappings that are too small to be paged, while there are few of them. They are, once they grow; so none is among them of which
    /// the kernel was asked anything that rules that out.
    pub(crate) small: Spans,
    /// Mappings that will be paged when the process gets its pager.
    pub(crate) early: Spans,
    /// Reserved memory that nobody can use yet: paged from when it is opened.
    pub(crate) reserved: Spans,
    /// A forked child does not get it (`MADV_DONTFORK`).
    pub(crate) left_out: Spans,
    /// A forked child sees zeros (`MADV_WIPEONFORK`).
    pub(crate) wiped: Spans,
    /// It has a protection key: a thread of ours may not be allowed to read it.
    pub(crate) keyed: Spans,
}

static MARKS: Mutex<Marks> = Mutex::new(Marks {
    small: Spans::new(),
    early: Spans::new(),
    reserved: Spans::new(),
    left_out: Spans::new(),
    wiped: Spans::new(),
    keyed: Spans::new(),
});

pub(crate) fn marks() -> MutexGuard<'static, Marks> {
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Marks {
    fn all(&mut self) -> [&mut Spans; 6] {
        [
            &mut self.small,
            &mut self.early,
            &mut self.reserved,
            &mut self.left_out,
            &mut self.wiped,
            &mut self.keyed,
        ]
    }

    /// Whether anything in the range is to be paged one day.
    pub(crate) fn touches(&self, start: usize, end: usize) -> bool {
        [&self.early, &self.reserved].into_iter().any(|spans| !spans.within(start, end).is_empty())
    }

    /// The same, or is known for anything else.
    pub(crate) fn touches_any(&mut self, start: usize, end: usize) -> bool {
        self.all().into_iter().any(|spans| !spans.within(start, end).is_empty())
    }

    /// The range is unmapped, or mapped anew.
    pub(crate) fn forget(&mut self, start: usize, len: usize) {
        self.all().into_iter().for_each(|spans| spans.remove(start, start.saturating_add(len)));
    }

    /// A mapping of `len` bytes at `from` is now at `to` and `new_len` long; with `keep` the old one stays.
    pub(crate) fn moved(&mut self, from: usize, len: usize, to: usize, new_len: usize, keep: bool) {
        for spans in self.all() {
            let moved = spans.within(from, from + len);
            if !keep {
                spans.remove(from, from + len);
            }
            spans.remove(to, to + new_len);
            for (start, end) in moved {
                // What is added to a mapping is as its end was.
                let end = if end == from + len { to + new_len } else { (end - from + to).min(to + new_len) };
                spans.insert(start - from + to, end);
            }
        }
    }
}
