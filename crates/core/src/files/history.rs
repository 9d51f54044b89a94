//! A file's story: which operations changed it, from the changed files that the audit trail keeps. It reads
//! nothing of the sandbox, so it works for destroyed ones too. A fork begins with files of another sandbox, and so the story of
//! its files ends with the fork, which names that one.

use super::checked;
use crate::{Caller, Files, changes::observed};
use atoll_store::{
    FileChanged, FileHistoryQuery, Millis, OPERATIONS_PER_PAGE, OperationQuery, OperationRow, Outcome,
    SandboxId, SandboxRecord,
};
use atoll_types::{Error, ErrorCode, Operation, Result, files::FileAction};

/// One change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHistoryEntry {
    /// When the operation had ended, which is when the change was recorded.
    pub at: Millis,
    /// None where the operation changed files that its row does not name, or began the sandbox with files, and this one may be
    /// among them.
    pub action: Option<FileAction>,
    /// The file's size afterwards, where that is known.
    pub size: Option<u64>,
    /// The operation, where the caller may see it: an admin's in a sandbox of another owner it may not.
    pub operation: Option<OperationRow>,
}

/// Some changes of a file, the latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHistory {
    /// The file, relative to /workspace.
    pub path: String,
    /// The latest first.
    pub entries: Vec<FileHistoryEntry>,
    /// Where the next page begins.
    pub next_before: Option<u64>,
}

/// A path as the audit trail names it.
fn recorded(path: &str) -> Result<String> {
    checked(path)?;
    let wrong = |code, message| Err(Error::new(code, message).at("path"));
    match observed(path) {
        Some(path) if path.split('/').any(|part| part == "..") => {
            wrong(ErrorCode::PathOutsideRoot, "the path of a file's history may not hold ..")
        }
        Some(path) if !path.is_empty() => Ok(path),
        Some(_) => wrong(ErrorCode::IsADirectory, "/workspace is a folder; only files have a history"),
        None => wrong(ErrorCode::PathOutsideRoot, "only files in /workspace have a history"),
    }
}

fn entry(caller: &Caller, path: &str, operation: OperationRow) -> Option<FileHistoryEntry> {
    let end = operation.end.as_ref()?;
    let file = end.facts.files.iter().find(|file| file.path == path).cloned();
    let (action, size) = file.map(|FileChanged { action, size, .. }| (action, size)).unzip();
    let (at, size) = (end.at, size.flatten());
    let operation = Some(operation).filter(|operation| caller.may_see(&operation.begin.owner));
    Some(FileHistoryEntry { at, action, size, operation })
}

impl Files {
    /// The operations that changed a file, or may have, the last ended first: from `before`, the row of an
    /// end.
    pub async fn history(
        &self,
        caller: &Caller,
        id: SandboxId,
        path: &str,
        before: Option<u64>,
        limit: u32,
    ) -> Result<FileHistory> {
        if !(1..=OPERATIONS_PER_PAGE).contains(&limit) {
            let message = format!("limit must be between 1 and {OPERATIONS_PER_PAGE}");
            return Err(Error::invalid("limit", message));
        }
        let record = self.operations.visible(caller, id).await?;
        let path = recorded(path)?;
        let query = FileHistoryQuery { sandbox: id, path, before, limit };
        let found = self.operations.store.audit_file_history(&query).await?;
        let full = found.len() >= limit as usize;
        let last = found.last().and_then(|operation| operation.end.as_ref()).map(|end| end.seq);
        let FileHistoryQuery { path, .. } = query;
        let mut entries: Vec<_> =
            found.into_iter().filter_map(|operation| entry(caller, &path, operation)).collect();
        // A file that was created here is none of those that a fork began with.
        let created = entries.last().is_some_and(|oldest| oldest.action == Some(FileAction::Created));
        if !full && !created {
            entries.extend(self.fork_of(&record).await?.and_then(|fork| entry(caller, &path, fork)));
        }
        Ok(FileHistory { entries, next_before: last.filter(|_| full), path })
    }

    /// The operation that made a sandbox of another one, where the trail still has it.
    async fn fork_of(&self, record: &SandboxRecord) -> Result<Option<OperationRow>> {
        let query = OperationQuery {
            kind: Some(Operation::SandboxFork.name().into()),
            text: Some(record.id.uuid().to_string()),
            outcome: Some(Outcome::Ok),
            until: Some(record.created_at),
            limit: 1,
            ..OperationQuery::default()
        };
        Ok(self.operations.store.audit_operations(&query).await?.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_what_rows_name() {
        for path in ["a/b", "/workspace/a/b", "./a//b/"] {
            assert_eq!(recorded(path).as_deref(), Ok("a/b"), "{path}");
        }
        for path in ["", "/workspace", ".", "/tmp/a", "a/../b", "..", "/workspace/../etc/passwd", "a\0b"] {
            assert_eq!(recorded(path).unwrap_err().field.as_deref(), Some("path"), "{path:?}");
        }
    }
}
