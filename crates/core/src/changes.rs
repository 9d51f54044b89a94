//! Which files a command changed. The observer reports each change once; what the API itself wrote belongs to
//! no command, so it is taken out when it is written, and what a background process wrote until then is kept
//! for the next command.
//!
//! A change is reported once, or the answer says `truncated`. The observer keeps a report until this
//! server acknowledges it or takes the next one, and takes an acknowledgement for that of all reports before. So a
//! report is acknowledged when it and all before it are recorded: two commands may take reports and write their ends
//! in any order. What is kept here for the next command is in memory alone, and its report is not recorded: after a
//! server that was killed, the next one's first answer says `truncated`.

use atoll_provider::{ChangeReport, Changed, Container, FileChange};
use atoll_store::SandboxId;
use atoll_types::ContainerId;
use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Changes that the observer has reported, by sandbox.
#[derive(Default)]
pub(crate) struct FileChanges {
    sandboxes: Mutex<HashMap<SandboxId, SandboxReports>>,
}

/// Where the changes of a report are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// In the hands of the command or request that took the report with this number, which records them.
    Taken(u64),
    /// Among those that belong to the next command.
    Kept,
    Recorded,
}

/// The reports of one sandbox.
#[derive(Default)]
struct SandboxReports {
    /// Changes that belong to the next command.
    kept: Changed,
    /// Whose reports these are; a sandbox that is resumed has another container.
    container: Option<ContainerId>,
    /// Reports that are on their way.
    taking: u32,
    /// The reports that are not acknowledged.
    reports: BTreeMap<u64, Carrier>,
}

impl SandboxReports {
    fn begin(&mut self, container: ContainerId) {
        if self.container.replace(container) != Some(container) {
            self.reports.clear();
        }
        self.taking += 1;
    }

    /// A report arrived: it and what was kept are one report from now on.
    fn arrived(&mut self, sequence: u64) {
        self.pass(Carrier::Kept, Carrier::Taken(sequence));
        self.reports.insert(sequence, Carrier::Taken(sequence));
    }

    fn pass(&mut self, from: Carrier, to: Carrier) {
        self.reports.values_mut().filter(|carrier| **carrier == from).for_each(|carrier| *carrier = to);
    }

    /// A report is recorded. Returns which one to acknowledge: the last of those before which all are recorded.
    fn recorded(&mut self, sequence: u64) -> Option<u64> {
        self.pass(Carrier::Taken(sequence), Carrier::Recorded);
        let mut last = None;
        while let Some(first) = self.reports.first_entry().filter(|it| *it.get() == Carrier::Recorded) {
            last = Some(first.remove_entry().0);
        }
        // One that is on its way may have an earlier number than it seems; its own acknowledgement covers this one.
        last.filter(|_| self.taking == 0)
    }
}

/// A report that is asked for; dropped, it has arrived or will not.
struct Taking<'a> {
    changes: &'a FileChanges,
    sandbox: SandboxId,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if let Some(reports) = self.changes.all().get_mut(&self.sandbox) {
            reports.taking = reports.taking.saturating_sub(1);
        }
    }
}

/// A path of a request as the observer names it; none outside of /workspace.
pub(crate) fn observed(path: &str) -> Option<String> {
    let inside = match path.strip_prefix('/') {
        None => path,
        Some(absolute) => match absolute.trim_start_matches('/').strip_prefix("workspace")? {
            "" => "",
            below => below.strip_prefix('/')?,
        },
    };
    let parts: Vec<&str> = inside.split('/').filter(|p| !matches!(*p, "" | ".")).collect();
    Some(parts.join("/"))
}

fn is_at_or_below(path: &str, top: &str) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A report is recorded, and all before it.
pub(crate) fn acknowledge_changes(container: &Arc<dyn Container>, sequence: u64) {
    if let Some(changes) = container.changes() {
        changes.acknowledge(sequence);
    }
}

impl FileChanges {
    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, SandboxReports>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What changed since the last command; none where that is not known. To be passed to [`Self::recorded`] when it
    /// is.
    pub(crate) async fn take(&self, id: SandboxId, container: &Arc<dyn Container>) -> Option<ChangeReport> {
        let power = container.changes()?;
        self.all().entry(id).or_default().begin(container.id());
        let _taking = Taking { changes: self, sandbox: id };
        let ChangeReport { sequence, changed } = match power.take().await {
            Ok(report) => report,
            Err(error) => {
                tracing::warn!(%error, "the changed files of a sandbox are not known");
                return None;
            }
        };
        let mut all = self.all();
        let reports = all.entry(id).or_default();
        reports.arrived(sequence);
        Some(ChangeReport { sequence, changed: mem::take(&mut reports.kept).then(changed) })
    }

    /// A report that was taken is recorded.
    pub(crate) fn recorded(&self, id: SandboxId, container: &Arc<dyn Container>, sequence: u64) {
        let last = self.all().get_mut(&id).and_then(|reports| reports.recorded(sequence));
        if let Some(last) = last {
            acknowledge_changes(container, last);
        }
    }

    /// Takes what the API itself wrote out of what the next command will be said to have changed, and
    /// returns it; nothing where that is not known.
    pub(crate) async fn set_aside(
        &self,
        id: SandboxId,
        container: &Arc<dyn Container>,
        own: &[&str],
    ) -> Changed {
        let Some(ChangeReport { sequence, changed }) = self.take(id, container).await else {
            return Changed::default();
        };
        let own: Vec<String> = own.iter().filter_map(|path| observed(path)).collect();
        let Changed { files, truncated } = changed;
        let is_own = |change: &FileChange| own.iter().any(|top| is_at_or_below(&change.path, top));
        let (files, others) = files.into_iter().partition(is_own);
        let (own, changed) = (Changed { files, truncated }, Changed { files: others, truncated });
        if changed == Changed::default() {
            self.recorded(id, container, sequence);
            return own;
        }
        // Not recorded yet, so not acknowledged.
        let mut all = self.all();
        let reports = all.entry(id).or_default();
        reports.pass(Carrier::Taken(sequence), Carrier::Kept);
        reports.kept = mem::take(&mut reports.kept).then(changed);
        own
    }

    /// Forgets what was kept for a sandbox whose container ended.
    pub(crate) fn forget(&self, id: SandboxId) {
        self.all().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_acknowledged_when_all_before_it_are_recorded() {
        let (mut reports, container) = (SandboxReports::default(), ContainerId::random());
        let mut take = |sequence| {
            reports.begin(container);
            reports.arrived(sequence);
            reports.taking -= 1;
        };
        [3, 5, 9].into_iter().for_each(&mut take);
        // Two commands end in the other order: a server that is killed in between must not lose the first one's.
        assert_eq!(reports.recorded(5), None);
        assert_eq!(reports.recorded(3), Some(5));
        reports.begin(container);
        assert_eq!(reports.recorded(9), None, "one is on its way, and may be an earlier one");
        reports.arrived(12);
        reports.taking -= 1;
        assert_eq!(reports.recorded(12), Some(12));
        assert!(reports.reports.is_empty());
    }

    #[test]
    fn what_is_kept_for_the_next_command_is_recorded_with_it() {
        let (mut reports, container) = (SandboxReports::default(), ContainerId::random());
        reports.begin(container);
        reports.arrived(1);
        reports.pass(Carrier::Taken(1), Carrier::Kept);
        reports.arrived(2);
        reports.arrived(4);
        reports.taking = 0;
        assert_eq!(reports.recorded(4), None);
        assert_eq!(reports.recorded(2), Some(4));
        // Another container's reports are not those of this one.
        reports.arrived(6);
        reports.begin(ContainerId::random());
        assert!(reports.reports.is_empty());
    }

    #[test]
    fn paths_of_requests_and_of_the_observer_meet() {
        for path in ["a/b", "/workspace/a/b", "//workspace/a/b", "./a//b", "/workspace/./a/b"] {
            assert_eq!(observed(path).as_deref(), Some("a/b"), "{path}");
        }
        for path in ["/workspace", "/workspace/", "."] {
            assert_eq!(observed(path).as_deref(), Some(""), "{path}");
        }
        assert!(is_at_or_below("a", ""));
        assert_eq!((observed("/tmp/a"), observed("/workspaces/a")), (None, None));
        assert!(is_at_or_below("a/b", "a") && is_at_or_below("a", "a") && !is_at_or_below("ab", "a"));
    }
}
