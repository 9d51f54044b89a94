//! Ids as these clients spell them: UUIDs with hyphens. Both spellings are read.

use atoll_http::Failure;
use atoll_types::{AssistantId, Error, ErrorCode, Result, RunId, ThreadCheckpointId, ThreadId};
use uuid::Uuid;

fn uuid(text: &str, field: &str) -> Result<Uuid> {
    let known = matches!(text.len(), 32 | 36).then(|| Uuid::try_parse(text).ok()).flatten();
    known.ok_or_else(|| Error::invalid(field, "expected a UUID"))
}

pub(crate) fn assistant_id(text: &str) -> Result<AssistantId> {
    uuid(text, "assistant_id").map(AssistantId::from_uuid)
}

pub(crate) fn checkpoint_id(text: &str) -> Result<ThreadCheckpointId> {
    uuid(text, "checkpoint_id").map(ThreadCheckpointId::from_uuid)
}

pub(crate) fn run_id(text: &str) -> Result<RunId> {
    uuid(text, "run_id").map(RunId::from_uuid)
}

/// The thread of a path.
pub(crate) fn thread_of(text: &str) -> Result<ThreadId, Failure> {
    text.parse().map_err(Failure::in_path)
}

/// The thread and the run of a path.
pub(crate) fn run_of(thread: &str, run: &str) -> Result<(ThreadId, RunId), Failure> {
    Ok((thread_of(thread)?, run_id(run).map_err(Failure::in_path)?))
}

/// An id with hyphens.
pub(crate) fn hyphenated(id: Uuid) -> String {
    id.hyphenated().to_string()
}

pub(crate) fn not_found(what: &str) -> Error {
    Error::new(ErrorCode::NotFound, format!("there is no such {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read_and_no_other() {
        let id = RunId::random();
        let text = hyphenated(id.uuid());
        assert_eq!(run_id(&text).ok(), Some(id));
        assert_eq!(run_id(&id.to_string()).ok(), Some(id));
        for other in ["", "x", &format!("{{{text}}}"), &format!("urn:uuid:{text}"), &text[1..]] {
            assert!(run_id(other).is_err(), "{other}");
        }
    }
}
