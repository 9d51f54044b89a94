//! The requests that wait for room, and which is next. Owners take turns; the requests of one owner are
//! served in order of arrival. A request that needs more than is free may be passed by others a few times,
//! and holds them up after that: neither does it block small requests for long, nor do they starve it.

use super::Need;
use atoll_store::SandboxId;
use std::collections::{HashMap, VecDeque};
use tokio::sync::oneshot;

/// How often a request that does not fit may be passed.
const PASSES: u32 = 16;
/// How many requests of one owner may wait.
pub(super) const LONGEST_LINE: usize = 256;

/// A waiting request.
pub(super) struct Waiter {
    pub(super) ticket: u64,
    pub(super) id: SandboxId,
    pub(super) need: Need,
    pub(super) tell: oneshot::Sender<()>,
    passed: u32,
}

/// The waiting requests.
#[derive(Default)]
pub(super) struct Queue {
    /// The owners with waiting requests, the next one first.
    turns: VecDeque<String>,
    lines: HashMap<String, VecDeque<Waiter>>,
    tickets: u64,
}

impl Queue {
    /// Puts a request at the end of its owner's line; none where that is too long.
    pub(super) fn join(
        &mut self,
        owner: &str,
        id: SandboxId,
        need: Need,
    ) -> Option<(u64, oneshot::Receiver<()>)> {
        let line = self.lines.entry(owner.to_owned()).or_default();
        if line.len() >= LONGEST_LINE {
            return None;
        }
        if line.is_empty() {
            self.turns.push_back(owner.to_owned());
        }
        self.tickets += 1;
        let (tell, told) = oneshot::channel();
        line.push_back(Waiter { ticket: self.tickets, id, need, tell, passed: 0 });
        Some((self.tickets, told))
    }

    /// Removes a request that no longer waits.
    pub(super) fn leave(&mut self, owner: &str, ticket: u64) {
        if let Some(line) = self.lines.get_mut(owner) {
            line.retain(|waiter| waiter.ticket != ticket);
            self.tidy(owner);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Removes and returns the next request that fits, if any. Its owner goes to the end.
    pub(super) fn next(&mut self, fits: impl Fn(&Need) -> bool) -> Option<Waiter> {
        let mut found = None;
        for (at, owner) in self.turns.iter().enumerate() {
            let first = self.lines.get(owner).and_then(VecDeque::front)?;
            if fits(&first.need) {
                found = Some(at);
                break;
            }
            if first.passed >= PASSES {
                return None;
            }
        }
        let at = found?;
        for owner in self.turns.iter().take(at) {
            if let Some(first) = self.lines.get_mut(owner).and_then(VecDeque::front_mut) {
                first.passed += 1;
            }
        }
        let owner = self.turns.remove(at)?;
        let waiter = self.lines.get_mut(&owner).and_then(VecDeque::pop_front);
        self.turns.push_back(owner.clone());
        self.tidy(&owner);
        waiter
    }

    /// An owner without waiting requests has no turn.
    fn tidy(&mut self, owner: &str) {
        if self.lines.get(owner).is_some_and(VecDeque::is_empty) {
            self.lines.remove(owner);
            self.turns.retain(|other| other != owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(memory_bytes: u64) -> Need {
        Need { memory_bytes, ..Need::default() }
    }

    fn join(queue: &mut Queue, owner: &str, memory: u64) -> u64 {
        // The receiver is dropped: this test does not use it.
        queue.join(owner, SandboxId::random(), need(memory)).unwrap().0
    }

    fn order(queue: &mut Queue, free: u64) -> Vec<u64> {
        std::iter::from_fn(|| queue.next(|need| need.memory_bytes <= free)).map(|w| w.ticket).collect()
    }

    #[test]
    fn owners_take_turns_and_each_owners_line_is_in_order() {
        let mut queue = Queue::default();
        let ann: Vec<u64> = (0..4).map(|_| join(&mut queue, "ann", 1)).collect();
        let bob = join(&mut queue, "bob", 1);
        let cid: Vec<u64> = (0..2).map(|_| join(&mut queue, "cid", 1)).collect();
        assert_eq!(order(&mut queue, 1), [ann[0], bob, cid[0], ann[1], cid[1], ann[2], ann[3]]);
        assert!(queue.is_empty() && queue.lines.is_empty());
    }

    #[test]
    fn who_leaves_is_out_and_its_owner_with_it() {
        let mut queue = Queue::default();
        let (one, two) = (join(&mut queue, "ann", 1), join(&mut queue, "ann", 1));
        queue.leave("ann", one);
        queue.leave("ann", 99);
        queue.leave("nobody", two);
        assert_eq!(order(&mut queue, 1), [two]);
        let last = join(&mut queue, "ann", 1);
        queue.leave("ann", last);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_large_one_is_passed_a_few_times_and_then_waited_for() {
        let mut queue = Queue::default();
        let large = join(&mut queue, "ann", 100);
        for _ in 0..40 {
            join(&mut queue, "bob", 1);
        }
        assert_eq!(order(&mut queue, 1).len(), PASSES as usize);
        assert_eq!(queue.next(|n| n.memory_bytes <= 100).map(|w| w.ticket), Some(large));
        assert_eq!(order(&mut queue, 1).len(), 40 - PASSES as usize);
    }

    #[test]
    fn a_line_has_an_end() {
        let mut queue = Queue::default();
        for _ in 0..LONGEST_LINE {
            join(&mut queue, "ann", 1);
        }
        assert!(queue.join("ann", SandboxId::random(), need(1)).is_none());
        assert!(queue.join("bob", SandboxId::random(), need(1)).is_some());
    }
}
