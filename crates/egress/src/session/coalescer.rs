//! Passes decisions to the recorder. Equal refusals and equal queries within a second are recorded as one: the
//! first at once, the rest together when the second is over. However many different ones come, only so many a
//! second are recorded by name, so that a flood of refusals is not a flood of rows.

use crate::{Decision, Recorder, Via};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

const TOGETHER: Duration = Duration::from_secs(1);
/// Different ones that are recorded by name in a second.
const MOST_NAMED: usize = 64;

#[derive(PartialEq, Eq, Hash, Clone)]
struct Key {
    via: Via,
    host: String,
    port: u16,
    request: Option<(String, String)>,
    allowed: bool,
    rule: String,
}

struct Waiting {
    asker: u64,
    decision: Decision,
    /// How many came after the first.
    more: u32,
}

struct Second {
    began: Instant,
    waiting: HashMap<Key, Waiting>,
}

pub(crate) struct DecisionCoalescer {
    recorder: Arc<dyn Recorder>,
    second: Mutex<Second>,
}

impl DecisionCoalescer {
    pub(crate) fn new(recorder: Arc<dyn Recorder>) -> Self {
        let second = Second { began: Instant::now(), waiting: HashMap::new() };
        Self { recorder, second: Mutex::new(second) }
    }

    pub(crate) fn recorder(&self) -> &Arc<dyn Recorder> {
        &self.recorder
    }

    /// A decision about a connection that has ended: recorded as it is.
    pub(crate) fn ended(&self, asker: u64, decision: Decision) {
        self.recorder.decided(asker, decision);
    }

    /// A decision that is final at once.
    pub(crate) fn at_once(&self, asker: u64, mut decision: Decision) {
        let due = self.take_due(false);
        let told = {
            let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
            if !second.waiting.contains_key(&key(&decision)) && second.waiting.len() >= MOST_NAMED {
                // Too many to name: only what they have in common is recorded.
                decision.host.clear();
                decision.port = 0;
                decision.request = None;
            }
            match second.waiting.get_mut(&key(&decision)) {
                Some(waiting) => {
                    waiting.more = waiting.more.saturating_add(1);
                    None
                }
                None => {
                    let waiting = Waiting { asker, decision: decision.clone(), more: 0 };
                    second.waiting.insert(key(&decision), waiting);
                    Some(decision)
                }
            }
        };
        self.deliver(due);
        if let Some(decision) = told {
            self.recorder.decided(asker, decision);
        }
    }

    /// Records what waits, if its second is over.
    pub(crate) fn flush(&self) {
        self.deliver(self.take_due(false));
    }

    /// Records what waits now, before the decisions are read.
    pub(crate) fn flush_all(&self) {
        self.deliver(self.take_due(true));
    }

    fn take_due(&self, all: bool) -> Vec<Waiting> {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if !all && second.began.elapsed() < TOGETHER {
            return Vec::new();
        }
        second.began = Instant::now();
        second.waiting.drain().map(|(_, waiting)| waiting).filter(|w| w.more > 0).collect()
    }

    fn deliver(&self, due: Vec<Waiting>) {
        for Waiting { asker, decision, more } in due {
            self.recorder.decided(asker, Decision { count: more, ..decision });
        }
    }
}

impl Drop for DecisionCoalescer {
    fn drop(&mut self) {
        self.deliver(self.take_due(true));
    }
}

fn key(decision: &Decision) -> Key {
    let Decision { via, host, port, request, allowed, rule, .. } = decision;
    Key {
        via: *via,
        host: host.clone(),
        port: *port,
        request: request.clone(),
        allowed: *allowed,
        rule: rule.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[derive(Default)]
    struct CoalescedDecision(Mutex<Vec<(u64, Decision)>>);

    impl Recorder for CoalescedDecision {
        fn asked(&self, _: SocketAddr) -> u64 {
            0
        }
        fn decided(&self, asker: u64, decision: Decision) {
            self.0.lock().unwrap().push((asker, decision));
        }
    }

    fn refusal(host: &str) -> Decision {
        Decision {
            via: Via::Connect,
            host: host.to_owned(),
            port: 443,
            address: None,
            request: None,
            allowed: false,
            rule: "not listed".to_owned(),
            error: None,
            sent: 0,
            received: 0,
            duration: Duration::ZERO,
            count: 1,
        }
    }

    #[test]
    fn equal_ones_are_told_as_one_and_none_is_lost() {
        let told = Arc::new(CoalescedDecision::default());
        let coalescer = DecisionCoalescer::new(told.clone());
        for asker in 0..100 {
            coalescer.at_once(asker, refusal("a.example"));
        }
        coalescer.at_once(100, refusal("b.example"));
        drop(coalescer);
        let told = told.0.lock().unwrap();
        let of = |host: &str| told.iter().filter(|(_, d)| d.host == host).map(|(_, d)| d.count).sum::<u32>();
        assert_eq!((of("a.example"), of("b.example")), (100, 1));
        assert!(told.len() <= 4, "{}", told.len());
        assert_eq!((told[0].0, told[0].1.count), (0, 1), "the first at once");
    }

    #[test]
    fn what_waits_is_told_at_once_to_one_who_wants_to_read_it() {
        let told = Arc::new(CoalescedDecision::default());
        let coalescer = DecisionCoalescer::new(told.clone());
        let counts = || told.0.lock().unwrap().iter().map(|(_, d)| d.count).collect::<Vec<_>>();
        (0..3).for_each(|asker| coalescer.at_once(asker, refusal("a.example")));
        assert_eq!(counts(), [1]);
        coalescer.flush_all();
        assert_eq!(counts(), [1, 2]);
        coalescer.flush_all();
        assert_eq!(counts(), [1, 2], "nothing is told twice");
    }

    #[test]
    fn a_flood_of_different_ones_is_told_in_a_few() {
        let told = Arc::new(CoalescedDecision::default());
        let coalescer = DecisionCoalescer::new(told.clone());
        for n in 0..10_000 {
            coalescer.at_once(n, refusal(&format!("data{n}.example")));
        }
        drop(coalescer);
        let told = told.0.lock().unwrap();
        assert_eq!(told.iter().map(|(_, d)| d.count).sum::<u32>(), 10_000);
        assert!(told.len() < 1000, "{}", told.len());
    }
}
