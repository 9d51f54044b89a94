//! Which files a command changed. The observer reports each change once; what the API itself wrote belongs to
//! no command, so it is taken out when it is written, and what a background process wrote until then is kept
//! for the next command.
//!
//! A change is reported once, or the answer says `truncated`. The observer keeps a report until this
//! server acknowledges it or takes the next one. What is kept here for the next command is in memory alone, and its report is
//! not acknowledged: after a server that was killed, the next one's first answer says `truncated`.

use atoll_provider::{ChangeReport, Changed, Container, FileChange};
use atoll_store::SandboxId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Changes that the observer has reported and that belong to the next command.
#[derive(Default)]
pub(crate) struct FileChanges {
    sandboxes: Mutex<HashMap<SandboxId, Changed>>,
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

/// A report is recorded.
pub(crate) fn acknowledge_changes(container: &Arc<dyn Container>, sequence: u64) {
    if let Some(changes) = container.changes() {
        changes.acknowledge(sequence);
    }
}

impl FileChanges {
    /// What changed since the last command; none where that is not known. To be acknowledged when it is recorded.
    pub(crate) async fn take(&self, id: SandboxId, container: &Arc<dyn Container>) -> Option<ChangeReport> {
        let ChangeReport { sequence, changed } = match container.changes()?.take().await {
            Ok(report) => report,
            Err(error) => {
                tracing::warn!(%error, "the changed files of a sandbox are not known");
                return None;
            }
        };
        let mut all = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        Some(ChangeReport { sequence, changed: all.remove(&id).unwrap_or_default().then(changed) })
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
            acknowledge_changes(container, sequence);
            return own;
        }
        // Not recorded yet, so not acknowledged.
        let mut all = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.remove(&id).unwrap_or_default();
        all.insert(id, before.then(changed));
        own
    }

    /// Forgets what was kept for a sandbox whose container ended.
    pub(crate) fn forget(&self, id: SandboxId) {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
