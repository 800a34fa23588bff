//! Enumerates the states that a model of several threads can reach, whatever the order of their steps.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

/// A thread of the program, as the models see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Thread {
    Runs,
    /// Its fault is in the kernel's queue, or has been taken from there.
    Faulted {
        write: bool,
        taken: bool,
    },
}

/// A state of such a model.
pub(crate) trait Interleaved: Clone + Debug + Eq + Hash {
    /// The rule of the driver that is broken in a run.
    type Broken: Copy;

    /// The states after each step that a thread can take now, or what was found wrong in one.
    fn successors(&self, broken: Self::Broken) -> Result<Vec<Self>, String>;

    /// Checks what holds at every moment.
    fn check(&self) -> Result<(), String>;

    /// Whether no thread waits.
    fn is_settled(&self) -> bool;
}

/// Visits all states. Returns their number, or what was found wrong; also if there is a state from which none is reached in
/// which no thread waits.
pub(crate) fn explore<W: Interleaved>(start: W, broken: W::Broken) -> Result<usize, String> {
    let mut numbers = HashMap::from([(start.clone(), 0)]);
    let mut open = VecDeque::from([start]);
    // The states from which each state is reached, and those in which no thread waits.
    let mut before: Vec<Vec<u32>> = vec![Vec::new()];
    let mut settled = Vec::new();
    while let Some(world) = open.pop_front() {
        world.check()?;
        let number = numbers[&world];
        if world.is_settled() {
            settled.push(number);
        }
        for next in world.successors(broken)? {
            let count = numbers.len() as u32;
            let to = *numbers.entry(next.clone()).or_insert(count);
            if to == count {
                before.push(Vec::new());
                open.push_back(next);
            }
            before[to as usize].push(number);
        }
    }
    let mut can_settle = vec![false; before.len()];
    while let Some(number) = settled.pop() {
        if !std::mem::replace(&mut can_settle[number as usize], true) {
            settled.extend(&before[number as usize]);
        }
    }
    match numbers.iter().find(|(_, number)| !can_settle[**number as usize]) {
        Some((world, _)) => Err(format!("a thread waits for ever\n{world:#?}")),
        None => Ok(numbers.len()),
    }
}
