//! Reports that were handed out, until they are acknowledged: a reply that is lost on its way loses no change.
//!
//! The invariant: a change is handed out again until its report is received or acknowledged, and to another reader
//! only as `truncated`, since the first may have recorded it. A report that was received and not acknowledged may be in
//! its reader's memory alone: another reader is told that something may be missing.

use super::MOST;
use atoll_types::{ContainerId, files::Changed};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;

/// The bytes that one report may have as JSON; it fits into an answer.
const REPORT_BYTES: usize = 4 << 20;
/// The bytes of all reports that are kept; the largest loses its files first.
const ALL_BYTES: usize = 64 << 20;
/// What a file costs beside its path.
const ENTRY: usize = 80;

struct KeptReport {
    sequence: u64,
    reader: u64,
    changed: Changed,
    bytes: usize,
}

/// The last report of each container, where it is not acknowledged.
pub(super) struct Reports {
    last: u64,
    kept: HashMap<ContainerId, KeptReport>,
    /// The last report that a reader has received and not acknowledged, and which reader.
    unrecorded: HashMap<ContainerId, (u64, u64)>,
}

impl Reports {
    pub(super) fn new() -> Self {
        // Higher than every sequence of the observers before this one, which made less than one report in a
        // nanosecond: a reader may still have one of those.
        let now = clock_gettime(ClockId::Monotonic);
        let nanos = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        Self { last: u64::try_from(nanos).unwrap_or(0), kept: HashMap::new(), unrecorded: HashMap::new() }
    }

    /// A reader has a report, though perhaps not recorded: it is not handed out again.
    pub(super) fn received(&mut self, container: ContainerId, sequence: u64) {
        if let Some(kept) = self.remove(container, sequence) {
            self.unrecorded.insert(container, (sequence, kept.reader));
        }
    }

    /// A reader has recorded this report and all before it.
    pub(super) fn acknowledge(&mut self, container: ContainerId, sequence: u64) {
        self.remove(container, sequence);
        if self.unrecorded.get(&container).is_some_and(|(last, _)| *last <= sequence) {
            self.unrecorded.remove(&container);
        }
    }

    fn remove(&mut self, container: ContainerId, sequence: u64) -> Option<KeptReport> {
        self.kept.get(&container).filter(|kept| kept.sequence == sequence)?;
        self.kept.remove(&container)
    }

    /// What a reader gets: what changed now, together with what was not acknowledged.
    pub(super) fn hand_out(&mut self, container: ContainerId, reader: u64, fresh: Changed) -> (u64, Changed) {
        let mut changed = match self.kept.remove(&container) {
            None => fresh,
            Some(kept) => {
                let both = kept.changed.then(fresh);
                Changed { truncated: both.truncated || kept.reader != reader, ..both }
            }
        };
        if self.unrecorded.get(&container).is_some_and(|(_, of)| *of != reader) {
            self.unrecorded.remove(&container);
            changed.truncated = true;
        }
        let bytes = cut(&mut changed);
        self.last += 1;
        if changed != Changed::default() {
            let kept = KeptReport { sequence: self.last, reader, changed: changed.clone(), bytes };
            self.kept.insert(container, kept);
        }
        while self.kept.values().map(|kept| kept.bytes).sum::<usize>() > ALL_BYTES {
            let Some(largest) = self.kept.values_mut().max_by_key(|kept| kept.bytes) else { break };
            largest.changed = Changed { files: Vec::new(), truncated: true };
            largest.bytes = 0;
        }
        (self.last, changed)
    }

    /// Forgets a container.
    pub(super) fn forget(&mut self, container: ContainerId) {
        self.unrecorded.remove(&container);
        self.kept.remove(&container);
    }
}

/// Cuts a report to its limits, and returns its size.
fn cut(changed: &mut Changed) -> usize {
    let (mut bytes, mut files) = (0, 0);
    for file in changed.files.iter().take(MOST) {
        let escaped = |byte: u8| if byte < b' ' || byte == b'"' || byte == b'\\' { 6 } else { 1 };
        let more = ENTRY + file.path.bytes().map(escaped).sum::<usize>();
        if bytes + more > REPORT_BYTES {
            break;
        }
        bytes += more;
        files += 1;
    }
    changed.truncated |= files < changed.files.len();
    changed.files.truncate(files);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_launch_proto::{MAX_ANSWER, ObserveAnswer, encode};
    use atoll_types::files::{FileAction, FileChange};

    fn changed(paths: impl IntoIterator<Item = String>, action: FileAction) -> Changed {
        let file = |path| FileChange { path, action, size_bytes: u64::MAX };
        Changed { files: paths.into_iter().map(file).collect(), truncated: false }
    }

    fn made(path: &str) -> Changed {
        changed([path.to_owned()], FileAction::Created)
    }

    #[test]
    fn what_is_not_acknowledged_is_handed_out_again() {
        let (mut reports, id) = (Reports::new(), ContainerId::random());
        assert_eq!(reports.hand_out(id, 1, made("a")).1, made("a"));
        let (second, both) = reports.hand_out(id, 1, made("b"));
        assert_eq!(both, changed(["a".into(), "b".into()], FileAction::Created));
        reports.acknowledge(ContainerId::random(), second);
        reports.acknowledge(id, second - 1);
        let gone = changed(["a".into()], FileAction::Deleted);
        let (third, rest) = reports.hand_out(id, 1, gone);
        assert_eq!(rest, made("b"), "created and deleted again is no change");
        reports.acknowledge(id, third);
        assert_eq!(reports.hand_out(id, 1, Changed::default()).1, Changed::default());
    }

    #[test]
    fn another_reader_is_told_that_it_is_not_sure() {
        let (mut reports, id) = (Reports::new(), ContainerId::random());
        let (first, _) = reports.hand_out(id, 1, made("a"));
        let unsure = Changed { truncated: true, ..made("a") };
        assert_eq!(reports.hand_out(id, 2, Changed::default()).1, unsure);
        reports.acknowledge(id, first);
        assert!(reports.hand_out(id, 2, Changed::default()).1.truncated, "its own is not acknowledged");
        reports.forget(id);
        assert_eq!(reports.hand_out(id, 3, Changed::default()).1, Changed::default());
        assert_eq!(reports.hand_out(id, 4, Changed::default()).1, Changed::default(), "nothing is sure");
    }

    #[test]
    fn what_a_reader_has_in_memory_alone_may_be_missing_for_the_next() {
        let (mut reports, id) = (Reports::new(), ContainerId::random());
        let received = |reports: &mut Reports| {
            let (first, _) = reports.hand_out(id, 1, made("a"));
            reports.received(id, first);
            let (second, nothing) = reports.hand_out(id, 1, Changed::default());
            assert_eq!(nothing, Changed::default(), "its reader has it");
            second
        };
        received(&mut reports);
        let unsure = Changed { truncated: true, ..Changed::default() };
        let (third, told) = reports.hand_out(id, 2, Changed::default());
        assert_eq!(told, unsure);
        reports.acknowledge(id, third);
        assert_eq!(reports.hand_out(id, 3, Changed::default()).1, Changed::default(), "it was told");
        let second = received(&mut reports);
        reports.acknowledge(id, second);
        assert_eq!(reports.hand_out(id, 2, Changed::default()).1, Changed::default(), "it is recorded");
    }

    #[test]
    fn sequences_of_a_restarted_observer_are_new() {
        let (mut before, id) = (Reports::new(), ContainerId::random());
        let last = (0..1000).map(|_| before.hand_out(id, 1, made("a")).0).last().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(Reports::new().hand_out(id, 1, made("a")).0 > last);
    }

    #[test]
    fn reports_are_bounded() {
        let (mut reports, id) = (Reports::new(), ContainerId::random());
        let (_, most) =
            reports.hand_out(id, 1, changed((0..=MOST).map(|n| n.to_string()), FileAction::Created));
        assert_eq!((most.files.len(), most.truncated), (MOST, true));
        let (_, both) =
            reports.hand_out(id, 1, changed((0..9).map(|n| format!("new {n}")), FileAction::Created));
        assert_eq!((both.files.len(), both.truncated), (MOST, true));
        // The longest paths there are, of bytes that are long in JSON.
        let long = |n: usize| format!("{n:05}{}", "\u{1}".repeat(4000));
        for _ in 0..40 {
            let container = ContainerId::random();
            let (sequence, changed) =
                reports.hand_out(container, 1, changed((0..MOST).map(long), FileAction::Modified));
            assert!(changed.truncated && !changed.files.is_empty());
            assert!(encode(&ObserveAnswer::Changes { sequence, changed }, MAX_ANSWER).is_ok());
        }
        assert!(reports.kept.values().map(|kept| kept.bytes).sum::<usize>() <= ALL_BYTES);
        assert!(reports.kept.values().any(|kept| kept.changed.files.is_empty() && kept.changed.truncated));
    }
}
