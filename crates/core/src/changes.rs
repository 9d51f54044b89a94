//! Which files a command changed. The observer reports each change once; what the API itself wrote belongs to
//! no command, so it is taken out when it is written, and what a background process wrote until then is kept
//! for the next command.
//!
//! A change is reported once, or the answer says `truncated`.

use atoll_provider::{Changed, Container, FileAction, FileChange};
use atoll_store::SandboxId;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

/// Changes that the observer has reported and that belong to the next command.
#[derive(Default)]
pub(crate) struct FileChanges {
    sandboxes: Mutex<HashMap<SandboxId, Changed>>,
}

/// Two things that happened to one file, as one; none when nothing is left of them.
fn joined(first: FileAction, second: FileAction) -> Option<FileAction> {
    use FileAction::{Created, Deleted, Modified};
    match (first, second) {
        (Created, Deleted) => None,
        (Created, _) => Some(Created),
        (Deleted, Created | Modified) => Some(Modified),
        (_, second) => Some(second),
    }
}

fn join(before: Changed, after: Changed) -> Changed {
    let mut files: BTreeMap<String, FileChange> =
        before.files.into_iter().map(|change| (change.path.clone(), change)).collect();
    for change in after.files {
        let action = match files.remove(&change.path) {
            None => Some(change.action),
            Some(earlier) => joined(earlier.action, change.action),
        };
        if let Some(action) = action {
            files.insert(change.path.clone(), FileChange { action, ..change });
        }
    }
    Changed { files: files.into_values().collect(), truncated: before.truncated || after.truncated }
}

/// A path of a request as the observer names it; none outside of /workspace.
fn observed(path: &str) -> Option<String> {
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

impl FileChanges {
    /// What changed since the last command; none where that is not known.
    pub(crate) async fn take(&self, id: SandboxId, container: &Arc<dyn Container>) -> Option<Changed> {
        let fresh = match container.changes()?.take().await {
            Ok(changed) => changed,
            Err(error) => {
                tracing::warn!(%error, "the changed files of a sandbox are not known");
                return None;
            }
        };
        let mut all = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        Some(join(all.remove(&id).unwrap_or_default(), fresh))
    }

    /// Takes what the API itself wrote out of what the next command will be said to have changed.
    pub(crate) async fn set_aside(&self, id: SandboxId, container: &Arc<dyn Container>, own: &[&str]) {
        let Some(mut changed) = self.take(id, container).await else { return };
        let own: Vec<String> = own.iter().filter_map(|path| observed(path)).collect();
        changed.files.retain(|change| !own.iter().any(|top| is_at_or_below(&change.path, top)));
        let mut all = self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if changed != Changed::default() {
            all.insert(id, changed);
        }
    }

    /// Forgets what was kept for a sandbox whose container ended.
    pub(crate) fn forget(&self, id: SandboxId) {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileAction::{Created, Deleted, Modified};

    fn changed(list: &[(&str, FileAction)]) -> Changed {
        let file = |(path, action): &(&str, FileAction)| FileChange {
            path: (*path).to_owned(),
            action: *action,
            size_bytes: 1,
        };
        Changed { files: list.iter().map(file).collect(), truncated: false }
    }

    #[test]
    fn two_reports_become_one() {
        let before =
            changed(&[("a", Created), ("b", Created), ("c", Modified), ("d", Deleted), ("e", Modified)]);
        let after =
            changed(&[("a", Deleted), ("b", Modified), ("c", Deleted), ("d", Created), ("f", Created)]);
        let wanted =
            changed(&[("b", Created), ("c", Deleted), ("d", Modified), ("e", Modified), ("f", Created)]);
        assert_eq!(join(before, after), wanted);
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
