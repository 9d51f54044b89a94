//! One transaction: entries become rows, each with the MAC that links it to the one before.

use super::{Ending, Responder, task::Task};
use atoll_store::{
    Activity, AuditBatch, AuditRow, Entry, Facts, NewEvent, OpenOperation, OperationId, Result, StoreError,
};

/// How many rows are written together at most.
pub(super) const BATCH: usize = 256;

/// One row to be written.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) entry: Entry,
    pub(super) activities: Vec<Activity>,
    pub(super) events: Vec<NewEvent>,
    pub(super) answer: Option<Responder<()>>,
}

impl Write {
    pub(super) fn note(entry: Entry) -> Self {
        Self { entry, activities: Vec::new(), events: Vec::new(), answer: None }
    }

    pub(super) fn end(ending: Ending, answer: Option<Responder<()>>) -> Self {
        let Ending { operation, at, facts, activities, events } = ending;
        let entry = Entry { operation: Some(operation), at, facts: Facts::End(Box::new(facts)) };
        Self { entry, activities, events, answer }
    }

    /// The operation that this begins.
    pub(super) fn begins(&self) -> Option<OperationId> {
        self.entry.operation.filter(|_| matches!(self.entry.facts, Facts::Begin(_)))
    }

    /// The operation that this ends.
    pub(super) fn ends(&self) -> Option<OperationId> {
        self.entry.operation.filter(|_| matches!(self.entry.facts, Facts::End(_)))
    }

    pub(super) fn answer(&mut self, said: atoll_types::Result<()>) {
        if let Some(answer) = self.answer.take() {
            // The caller may be gone.
            let _ = answer.send(said);
        }
    }
}

impl Task {
    /// The rows that follow the last one.
    fn rows(&self, entries: impl Iterator<Item = Entry>) -> Result<Vec<AuditRow>> {
        let (batch, mut mac) = (self.seq + 1, self.mac);
        let mut rows = Vec::new();
        for (entry, seq) in entries.zip(batch..) {
            let encoded = entry.encode(seq, batch)?;
            mac = self.key.prove(&mac, seq, &encoded);
            rows.push(AuditRow { seq, entry, encoded, mac });
        }
        Ok(rows)
    }

    /// The one row that follows the last one.
    pub(super) fn row(&self, entry: Entry) -> Result<AuditRow> {
        self.rows(std::iter::once(entry))?
            .pop()
            .ok_or_else(|| StoreError::Internal("writing an audit row", "there is none".into()))
    }

    /// Writes these together; nothing of it on an error. The writes are returned whole, to be tried again.
    pub(super) async fn append(&mut self, writes: Vec<Write>) -> Result<Vec<Write>, Failed> {
        let rows = match self.rows(writes.iter().map(|write| write.entry.clone())) {
            Ok(rows) => rows,
            Err(error) => return Err(Failed { error, writes }),
        };
        let first = self.seq + 1;
        let Some((seq, mac)) = rows.last().map(|row| (row.seq, row.mac)) else { return Ok(writes) };
        let activities = writes.iter().flat_map(|write| write.activities.clone()).collect();
        let events = writes.iter().flat_map(|write| write.events.clone()).collect();
        let appended = self.store.append_audit(AuditBatch { rows, activities, events }).await;
        if let Err(error) = appended
            && !self.happened(seq, mac).await
        {
            return Err(Failed { error, writes });
        }
        (self.seq, self.mac) = (seq, mac);
        for (write, seq) in writes.iter().zip(first..) {
            let entry = &write.entry;
            match (&entry.facts, entry.operation) {
                (Facts::Begin(_), Some(id)) => {
                    self.open.insert(id, OpenOperation { seq, id, at: entry.at });
                }
                (Facts::End(_), Some(id)) => {
                    self.open.remove(&id);
                }
                (
                    Facts::Begin(_)
                    | Facts::End(_)
                    | Facts::Egress(_)
                    | Facts::Note(_)
                    | Facts::Checkpoint(_),
                    _,
                ) => {}
            }
        }
        Ok(writes)
    }

    /// Whether a write that failed did happen: an error may come after the commit. Where another process
    /// wrote, or the rows cannot be read, this ledger stops: it could not know which row is the last.
    pub(super) async fn happened(&mut self, seq: u64, mac: atoll_store::Mac) -> bool {
        let last = match self.store.last_audit_row().await {
            Ok(last) => last,
            Err(error) => {
                self.broken(&format!("its end cannot be read: {error}"));
                return false;
            }
        };
        let place = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
        let is = |seq, mac: atoll_store::Mac| {
            last.as_ref().is_some_and(|row| row.seq == place(seq) && row.mac == mac.0)
        };
        if is(seq, mac) {
            return true;
        }
        let unchanged = is(self.seq, self.mac) || self.seq == 0 && last.is_none();
        if !unchanged {
            self.broken("another process wrote to it");
        }
        false
    }
}

/// A transaction that was rolled back.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: StoreError,
    pub(super) writes: Vec<Write>,
}
