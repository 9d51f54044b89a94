//! Reading the audit trail. An admin sees all of it, any other caller the operations of its own owner; what
//! is about the whole trail needs an admin. Of what writes to it only the cleanup is here.
//!
//! A query is narrowed to the caller's owner before the store sees it, so a front cannot forget it; an
//! operation of another owner does not exist. An error breaks an export off, so that half a trail never looks
//! like a whole one.

use crate::{
    Caller,
    operation::{OperationSpec, Operations},
};
use atoll_audit::{Cleaned, Export, Ledger, Verdict, unpack};
use atoll_store::{
    AuditOutput, Mac, Millis, OPERATIONS_PER_PAGE, OperationId, OperationQuery, OperationRow, Output, Scope,
    Sha256, Store, Summary,
};
use atoll_types::{Error, ErrorCode, Operation, Result, time::now_ms};
use std::sync::Arc;

/// What is kept of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutput {
    /// Its beginning; all of it where nothing is missing.
    pub head: Vec<u8>,
    /// Its end, where something between is missing.
    pub tail: Vec<u8>,
    /// How long the whole was.
    pub length: u64,
    /// The hash of the whole, where the whole was seen.
    pub sha256: Option<Sha256>,
    /// Whether something is missing.
    pub truncated: bool,
}

/// What is kept of both outputs of an operation; `None` where there was none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutputs {
    pub stdout: Option<KeptOutput>,
    pub stderr: Option<KeptOutput>,
}

fn kept(output: &Output) -> Result<KeptOutput> {
    let (mut head, mut tail) = unpack(output).ok_or_else(|| {
        let message = "what is kept of the output is not what was kept; see `atoll audit verify`";
        Error::internal(message)
    })?;
    let truncated = output.length > (head.len() + tail.len()) as u64;
    if !truncated {
        head.append(&mut tail);
    }
    Ok(KeptOutput { head, tail, length: output.length, sha256: output.sha256, truncated })
}

/// The audit trail as JSON Lines, some at a time.
pub struct AuditExport {
    store: Arc<dyn Store>,
    export: Export,
}

impl AuditExport {
    /// The next lines; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<String>> {
        Ok(self.export.lines(&*self.store).await?)
    }
}

/// The query as far as this caller may see; `None` when that is nothing.
fn seen_by(caller: &Caller, mut query: OperationQuery) -> Option<OperationQuery> {
    if caller.scope != Scope::Admin {
        // Operations of another owner do not exist for this caller.
        if query.owner.as_ref().is_some_and(|owner| *owner != caller.owner) {
            return None;
        }
        query.owner = Some(caller.owner.clone());
    }
    Some(query)
}

/// Reads the audit trail.
#[derive(Clone)]
pub struct AuditTrail {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ledger: Ledger,
}

impl AuditTrail {
    /// Some of the operations that the caller may see, the last begun first.
    pub async fn page(&self, caller: &Caller, query: OperationQuery) -> Result<Vec<OperationRow>> {
        if !(1..=OPERATIONS_PER_PAGE).contains(&query.limit) {
            let message = format!("limit must be between 1 and {OPERATIONS_PER_PAGE}");
            return Err(Error::invalid("limit", message));
        }
        match seen_by(caller, query) {
            Some(query) => Ok(self.store.audit_operations(&query).await?),
            None => Ok(Vec::new()),
        }
    }

    /// One operation.
    pub async fn operation(&self, caller: &Caller, id: OperationId) -> Result<OperationRow> {
        match self.store.audit_operation(id).await? {
            Some(operation) if caller.may_see(&operation.begin.owner) => Ok(operation),
            _ => Err(Error::new(ErrorCode::NotFound, "there is no operation with this id")),
        }
    }

    /// What is kept of what an operation wrote.
    pub async fn output(&self, caller: &Caller, id: OperationId) -> Result<KeptOutputs> {
        self.operation(caller, id).await?;
        // Old operations may go at any time.
        let missing = || Error::new(ErrorCode::NotFound, "there is no operation with this id");
        let AuditOutput { stdout, stderr } = self.store.audit_output(id).await?.ok_or_else(missing)?;
        let kept = |output: Option<Output>| output.as_ref().map(kept).transpose();
        Ok(KeptOutputs { stdout: kept(stdout)?, stderr: kept(stderr)? })
    }

    /// What the operations that the caller may see add up to.
    pub async fn summary(&self, caller: &Caller, query: OperationQuery) -> Result<Summary> {
        match seen_by(caller, query) {
            Some(query) => Ok(self.store.audit_summary(&query).await?),
            None => Ok(Summary::default()),
        }
    }

    /// The whole audit trail from a row on, with what commands wrote or without.
    pub fn export(&self, caller: &Caller, from: u64, with_output: bool) -> Result<AuditExport> {
        caller.must_administer()?;
        Ok(AuditExport { store: Arc::clone(&self.store), export: Export::new(from, with_output) })
    }

    /// Whether the audit trail is as it was written, and still has a row and its MAC that were noted earlier.
    pub async fn verify(&self, caller: &Caller, expect: Option<(u64, Mac)>) -> Result<Verdict> {
        caller.must_administer()?;
        Ok(self.ledger.verify(&*self.store, expect).await?)
    }

    /// Removes rows that are older than this. The removal is itself audited.
    pub async fn cleanup(&self, caller: &Caller, before: Millis) -> Result<Cleaned> {
        let audited = self
            .operations
            .audited(caller, OperationSpec::new(Operation::AuditCleanup).with(format!("before {before}")))
            .await?;
        let result = async {
            if before > now_ms() {
                return Err(Error::invalid("before", "before must not lie in the future"));
            }
            self.ledger.cleanup(before, Some(audited.operation())).await
        }
        .await;
        audited.done(result).await
    }
}
