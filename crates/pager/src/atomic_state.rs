//! Small states of core (`deepram_core::paging`) that several threads change without a lock.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepram_core::paging::PackedState;

/// A state in an atomic word.
pub(super) struct AtomicState<S> {
    word: AtomicU64,
    state: PhantomData<S>,
}

impl<S: PackedState> AtomicState<S> {
    /// Applies a change, and returns what it returned. The change is repeated if another thread was faster.
    pub(super) fn update<R>(&self, change: impl Fn(&mut S) -> R) -> R {
        let mut before = self.word.load(Relaxed);
        loop {
            let mut state = S::from_word(before);
            let result = change(&mut state);
            let after = state.to_word();
            // A state that stays is not stored: the threads' processors share its cache line.
            if after == before {
                return result;
            }
            match self.word.compare_exchange_weak(before, after, Relaxed, Relaxed) {
                Ok(_) => return result,
                Err(other) => before = other,
            }
        }
    }
}

impl<S: PackedState> Default for AtomicState<S> {
    fn default() -> Self {
        Self { word: AtomicU64::new(S::default().to_word()), state: PhantomData }
    }
}

impl<S: PackedState + fmt::Debug> fmt::Debug for AtomicState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        S::from_word(self.word.load(Relaxed)).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use deepram_core::paging::ReadaheadAdmission;

    #[test]
    fn no_change_of_any_thread_is_lost() {
        let state = AtomicState::<ReadaheadAdmission>::default();
        (0..100).for_each(|_| state.update(ReadaheadAdmission::page_departed));
        let admitted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..4000).filter(|_| state.update(ReadaheadAdmission::admit)).count())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(admitted, 4 * 4000 / 16, "one refused page in 16 is a sample: {state:?}");
    }
}
