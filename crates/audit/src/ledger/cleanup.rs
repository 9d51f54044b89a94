//! Removing old rows. The task removes them from the beginning on, some at a time between two batches, each
//! time with a checkpoint that the rest continues from. Rows are verified before they are removed: a cleanup
//! must not remove the evidence of tampering.

use super::{Responder, task::Task};
use crate::walk::{Fault, Stop, Walk};
use atoll_store::{
    Checkpoint, Decoded, Entry, Facts, Mac, Millis, OperationId, Part, Result as StoreResult, StoreError,
};
use atoll_types::{Error, ErrorCode, time::now_ms};

/// How many rows are removed at once: other writers wait meanwhile.
const AT_ONCE: u32 = 500;

/// How many notes of evidence a checkpoint carries: the first.
const EVIDENCE_KEPT: usize = 100;

/// The result of a cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaned {
    /// How many rows.
    pub rows: u64,
    /// The first row that is left.
    pub first: u64,
    /// An old operation that has not ended: it and what follows it stay.
    pub held_by: Option<OperationId>,
}

pub(super) struct Cleaning {
    before: Millis,
    operation: Option<OperationId>,
    done: Cleaned,
    answer: Responder<Cleaned>,
}

enum Halt {
    Store(StoreError),
    Fault(Fault),
    Other(String),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Halt> for Error {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Store(error) => {
                tracing::error!(error = %error, cause = ?error, "old audit rows cannot be removed");
                error.into()
            }
            Halt::Fault(fault) => {
                let text =
                    format!("nothing more was removed, because the trail is not sound: {}", fault.text);
                Error::new(ErrorCode::Conflict, text)
            }
            Halt::Other(why) => Error::internal(format!("old audit rows cannot be removed: {why}")),
        }
    }
}

impl Task {
    pub(super) fn clean_from(
        &mut self,
        before: Millis,
        operation: Option<OperationId>,
        answer: Responder<Cleaned>,
    ) {
        if self.cleaning.is_some() {
            let busy = Error::new(ErrorCode::Conflict, "old audit rows are being removed already");
            let _ = answer.send(Err(busy));
            return;
        }
        self.cleaning = Some(Cleaning { before, operation, done: Cleaned::default(), answer });
    }

    /// Removes some rows, where a cleanup was requested.
    pub(super) async fn clean(&mut self) {
        let Some(mut cleaning) = self.cleaning.take() else { return };
        match self.clean_some(&mut cleaning).await {
            Ok(true) => self.cleaning = Some(cleaning),
            Ok(false) => {
                let _ = cleaning.answer.send(Ok(cleaning.done));
            }
            Err(halt) => {
                let _ = cleaning.answer.send(Err(halt.into()));
            }
        }
    }

    /// The last row that was removed, after which the rows begin.
    async fn removed(&self) -> StoreResult<(u64, Mac)> {
        let marks = self.store.audit_marks(Part::Checkpoint, 1).await?;
        let last = marks.first().and_then(|row| Decoded::facts(&row.facts).ok());
        Ok(match last.map(|decoded| decoded.entry.facts) {
            Some(Facts::Checkpoint(checkpoint)) => (checkpoint.removed_to, checkpoint.mac),
            _ => (0, Mac([0; 32])),
        })
    }

    /// Removes some rows, and returns whether there may be more.
    async fn clean_some(&mut self, cleaning: &mut Cleaning) -> Result<bool, Halt> {
        // As for a batch: the head may lack one transaction and no more.
        self.write_head().map_err(|e| Halt::Other(format!("its head cannot be written: {e}")))?;
        let (removed, mac) = self.removed().await?;
        cleaning.done.first = removed + 1;
        let oldest = self.open.values().min_by_key(|open| open.seq).copied();
        let rows = self.store.audit_rows(removed + 1, AT_ONCE).await?;
        let mut walk = Walk::after(&self.key, removed, mac);
        let mut last = None;
        for row in &rows {
            // The last row stays, so that the head always has its row.
            if row.at >= cleaning.before || walk.next >= self.seq {
                break;
            }
            if let Some(open) = oldest.filter(|open| open.seq == walk.next) {
                cleaning.done.held_by = Some(open.id);
                break;
            }
            walk.pass(row).map_err(|stop| match stop {
                Stop::Fault(fault) => Halt::Fault(fault),
                Stop::Elsewhere => {
                    let text = format!("row {} is not in its place", walk.next);
                    Halt::Fault(Fault::new(crate::FaultKind::Moved, walk.next, text))
                }
                Stop::Unreadable(why) => Halt::Other(format!("a row cannot be read: {why}")),
            })?;
            last = Some((walk.next - 1, walk.before));
        }
        let Some((removed_to, mac)) = last else { return Ok(false) };
        let evidence = self.evidence.iter().take(EVIDENCE_KEPT).cloned().collect();
        let checkpoint = Checkpoint { removed_to, mac, before: cleaning.before, evidence };
        let entry =
            Entry { operation: cleaning.operation, at: now_ms(), facts: Facts::Checkpoint(checkpoint) };
        let row = self.row(entry)?;
        let (seq, mac) = (row.seq, row.mac);
        match self.store.remove_audit(removed_to, row).await {
            Ok(_) => {}
            Err(_) if self.happened(seq, mac).await => {}
            Err(error) => return Err(error.into()),
        }
        (self.seq, self.mac) = (seq, mac);
        if let Err(error) = self.write_head() {
            tracing::error!(error = %error, "the head of the audit trail cannot be written");
            return Ok(false);
        }
        cleaning.done.rows += removed_to - removed;
        cleaning.done.first = removed_to + 1;
        Ok(rows.len() as u32 == AT_ONCE && cleaning.done.held_by.is_none())
    }
}
