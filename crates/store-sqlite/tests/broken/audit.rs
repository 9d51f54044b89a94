//! Faults with the audit trail and with events.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{
    AuditBatch, AuditOutput, AuditRow, Audits, Clash, EgressQuery, EgressRow, EgressTotals, EventPage,
    EventQuery, Events, FileHistoryQuery, ListQuery, NewEvent, OpenOperation, OperationEnd, OperationId,
    OperationQuery, OperationRow, Part, RawRow, Result, SandboxId, Sandboxes, Status, StoreError, Summary,
    Thing,
};
use std::cmp::Reverse;

#[async_trait]
impl Audits for Broken {
    async fn append_audit(&self, mut batch: AuditBatch) -> Result<()> {
        match self.fault {
            Fault::ForgetsActivities => batch.activities.clear(),
            Fault::ForgetsEvents => batch.events.clear(),
            Fault::FailsForTheGone => {
                for activity in &batch.activities {
                    if self.inner.sandbox(activity.sandbox).await?.is_none() {
                        return Err(StoreError::NotFound(Thing::Sandbox));
                    }
                }
            }
            _ => {}
        }
        match (self.inner.append_audit(batch).await, self.fault) {
            (Err(StoreError::Conflict(Clash::Chain)), Fault::TakesAnyRow)
            | (Err(StoreError::Conflict(Clash::Taken)), Fault::LetsBeginTwice)
            | (Err(StoreError::Conflict(Clash::Ended)), Fault::LetsEndTwice) => Ok(()),
            (result, _) => result,
        }
    }

    async fn last_audit_row(&self) -> Result<Option<RawRow>> {
        self.inner.last_audit_row().await
    }

    async fn audit_rows(&self, from: u64, limit: u32) -> Result<Vec<RawRow>> {
        self.inner.audit_rows(from, limit).await
    }

    async fn audit_marks(&self, part: Part, limit: u32) -> Result<Vec<RawRow>> {
        let mut marks = self.inner.audit_marks(part, limit).await?;
        if self.is(Fault::ShowsOldMarksFirst) {
            marks.reverse();
        }
        Ok(marks)
    }

    async fn audit_operations(&self, query: &OperationQuery) -> Result<Vec<OperationRow>> {
        let mut query = query.clone();
        match self.fault {
            Fault::IgnoresTheExitCode => query.exit_code = None,
            Fault::IgnoresTheOwner => query.owner = None,
            Fault::IgnoresTheCursor => query.before = query.before.map(|before| before + 1),
            Fault::TakesQuotesForAPhrase => query.text = query.text.map(|text| text.replace('"', "")),
            _ => {}
        }
        let mut page = self.inner.audit_operations(&query).await?;
        match self.fault {
            // As if the rows' order were that of their times.
            Fault::IgnoresTheLateOnes => {
                page.retain(|operation| query.until.is_none() || operation.seq < 200);
            }
            Fault::GivesAsManyAsAsked if query.limit > 500 => page.extend(page.clone()),
            Fault::MindsTheCase => page.retain(|operation| {
                query.text.as_ref().is_none_or(|text| operation.begin.detail.text.contains(text))
            }),
            Fault::ForgetsTheDestroyed => {
                let gone = ListQuery { statuses: vec![Status::Destroyed], ..ListQuery::default() };
                let gone = self.inner.list_sandboxes(&gone).await?.items;
                page.retain(|operation| {
                    !gone.iter().any(|record| Some(record.id) == operation.begin.sandbox)
                });
            }
            _ => {}
        }
        Ok(page)
    }

    async fn audit_operation(&self, id: OperationId) -> Result<Option<OperationRow>> {
        self.inner.audit_operation(id).await
    }

    async fn audit_output(&self, id: OperationId) -> Result<Option<AuditOutput>> {
        let output = self.inner.audit_output(id).await?;
        Ok(if self.is(Fault::LosesTheOutput) { output.map(|_| AuditOutput::default()) } else { output })
    }

    async fn audit_file_history(&self, query: &FileHistoryQuery) -> Result<Vec<OperationRow>> {
        let mut found = self.inner.audit_file_history(query).await?;
        match self.fault {
            Fault::HidesWhatIsNotNamed => found.retain(|operation| {
                let named = |end: &OperationEnd| end.facts.files.iter().any(|file| file.path == query.path);
                operation.end.as_ref().is_some_and(named)
            }),
            Fault::SortsHistoryByBeginnings => found.sort_by_key(|operation| Reverse(operation.seq)),
            _ => {}
        }
        Ok(found)
    }

    async fn audit_summary(&self, query: &OperationQuery) -> Result<Summary> {
        let query = match (self.fault, query.before) {
            (Fault::AddsUpAPage, Some(_)) => OperationQuery { until: Some(0), ..query.clone() },
            _ => query.clone(),
        };
        self.inner.audit_summary(&query).await
    }

    async fn audit_egress(&self, query: &EgressQuery) -> Result<Vec<EgressRow>> {
        let mut query = query.clone();
        match self.fault {
            Fault::IgnoresTheVerdict => query.allowed = None,
            Fault::MixesSandboxes => query.sandbox = None,
            Fault::MindsTheCaseOfHosts if query.host.as_ref().is_some_and(|h| *h != h.to_lowercase()) => {
                return Ok(Vec::new());
            }
            _ => {}
        }
        self.inner.audit_egress(&query).await
    }

    async fn egress_totals(&self, sandbox: SandboxId) -> Result<EgressTotals> {
        let totals = self.inner.egress_totals(sandbox).await?;
        Ok(match self.fault {
            Fault::AddsUpTheRefused => EgressTotals { allowed: totals.allowed + totals.refused, ..totals },
            _ => totals,
        })
    }

    async fn open_operations(&self, after: u64, limit: u32) -> Result<Vec<OpenOperation>> {
        if self.is(Fault::ListsTheEnded) {
            let all = self.inner.audit_operations(&OperationQuery::default()).await?;
            let open = |o: &OperationRow| OpenOperation { seq: o.seq, id: o.id, at: o.at };
            return Ok(all.iter().rev().filter(|o| o.seq > after).map(open).take(limit as usize).collect());
        }
        self.inner.open_operations(after, limit).await
    }

    async fn count_operations(&self, up_to: u64) -> Result<u64> {
        let count = self.inner.count_operations(up_to).await?;
        Ok(if self.is(Fault::CountsTheRemoved) { count + 1 } else { count })
    }

    async fn remove_audit(&self, up_to: u64, checkpoint: AuditRow) -> Result<u64> {
        if self.is(Fault::RemovesNothing) {
            let rows = AuditBatch { rows: vec![checkpoint], ..AuditBatch::default() };
            return self.inner.append_audit(rows).await.map(|()| up_to);
        }
        match (self.inner.remove_audit(up_to, checkpoint).await, self.fault) {
            (Err(StoreError::Conflict(Clash::Open)), Fault::RemovesTheOpen) => Ok(0),
            (result, _) => result,
        }
    }

    async fn flush_audit(&self) -> Result<()> {
        self.inner.flush_audit().await
    }
}

#[async_trait]
impl Events for Broken {
    async fn append_events(&self, events: Vec<NewEvent>) -> Result<()> {
        self.inner.append_events(events).await
    }

    async fn events(&self, query: &EventQuery) -> Result<EventPage> {
        let mut query = query.clone();
        match self.fault {
            Fault::StartsOverWithEvents => query.after = None,
            Fault::MixesOwners => query.owner = None,
            _ => {}
        }
        let mut page = self.inner.events(&query).await?;
        match self.fault {
            Fault::ForgetsTheReason => page.items.iter_mut().for_each(|row| row.event.reason = None),
            Fault::NeverSaysMissed => page.missed = false,
            Fault::KeepsEveryEvent => page.items.iter_mut().for_each(|row| row.id = row.id.min(1)),
            _ => {}
        }
        Ok(page)
    }

    async fn await_event(&self, after: u64) -> Result<()> {
        if self.is(Fault::WakesNobody) {
            return Err(StoreError::NotFound(Thing::Sandbox));
        }
        self.inner.await_event(after).await
    }
}
