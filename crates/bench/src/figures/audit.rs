//! The cost of the audit trail per operation, compared with as many plain transactions in the same database;
//! and a page of operations found by owner, exit code and text among many, compared with one found by its id.

use super::Bench;
use crate::{
    Result,
    pace::{Pace, timed},
    report::{Baseline, Row},
};
use atoll_audit::{AuditKey, Ledger};
use atoll_store::{
    Audits, Begin, Detail, End, EventKind, Events, NewEvent, OperationId, OperationQuery, Outcome, SandboxId,
};
use atoll_store_sqlite::SqliteStore;
use std::sync::Arc;

/// Operations that are written together while the trail is filled.
const TOGETHER: u64 = 1000;

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let folder = tempfile::Builder::new().prefix("atoll-bench-audit-").tempdir()?;
    let store = Arc::new(SqliteStore::open(&folder.path().join("audit.db")).await?);
    let key = AuditKey::from_secret(&[7; 32]);
    let (ledger, _) = Ledger::open(Arc::clone(&store) as _, key, &folder.path().join("head")).await?;
    let (name, count) = bench.scale.pick(
        ("audit page, 500 operations", 500),
        ("audit page, 100,000 operations", 100_000),
        ("audit page, 1,000,000 operations", 1_000_000),
    );
    let mut rows = Vec::new();
    for pace in bench.paces(300) {
        rows.push(both(&ledger, &store, pace).await?);
    }
    let known = fill(&ledger, count).await?;
    rows.push(page(&store, known, Pace::tight(bench.scale.pick(3, 50, 200)), name).await?);
    ledger.close().await;
    store.close().await;
    Ok(rows)
}

fn begin(number: u64) -> Begin {
    // Pseudo-random numbers that are the same in every run.
    let dice = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    Begin {
        front: "rest".into(),
        owner: format!("owner-{}", dice % 100),
        kind: "exec".into(),
        sandbox: Some(SandboxId::random()),
        detail: Detail::new(&format!("python3 -m pytest -q tests/test_{}.py -k case_{number}", dice % 5000)),
        ..Begin::default()
    }
}

fn end(number: u64) -> End {
    let exit_code = Some(i32::from(number.is_multiple_of(7)));
    End { exit_code, ..End::new(Outcome::Ok, number % 100_000) }
}

async fn both(ledger: &Ledger, store: &SqliteStore, pace: Pace) -> Result<Row> {
    let event = || NewEvent {
        at: 0,
        owner: "owner".into(),
        sandbox: None,
        kind: EventKind::ExecEnded,
        reason: None,
        data: "{}".into(),
    };
    let round = async || {
        pace.wait().await;
        let own = timed(async {
            let operation = ledger.start(begin(1)).await?;
            operation.end(end(1), Vec::new(), Vec::new()).await
        });
        let own = own.await?.0;
        pace.wait().await;
        let plain = timed(async {
            store.append_events(vec![event()]).await?;
            store.append_events(vec![event()]).await
        });
        Ok(vec![own, plain.await?.0])
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, plain) = (next()?, Baseline::new("two plain transactions", next()?));
    Ok(Row::latency("audit, both rows", pace.name, own, vec![plain]))
}

/// Writes so many operations; returns one of them.
async fn fill(ledger: &Ledger, count: u64) -> Result<OperationId> {
    let mut known = None;
    for from in (0..count).step_by(usize::try_from(TOGETHER)?) {
        let starts: Vec<_> = (from..(from + TOGETHER).min(count))
            .map(|number| {
                let ledger = ledger.clone();
                tokio::spawn(async move { (number, ledger.begin(begin(number)).await) })
            })
            .collect();
        let mut ends = Vec::new();
        for start in starts {
            let (number, operation) = start.await?;
            let operation = operation?;
            known = Some(operation);
            ends.push(ledger.end(operation, end(number), Vec::new(), Vec::new()));
        }
        for end in ends {
            end.await?;
        }
    }
    known.ok_or_else(|| "nothing was written".into())
}

async fn page(store: &SqliteStore, known: OperationId, pace: Pace, name: &str) -> Result<Row> {
    let query = OperationQuery {
        owner: Some("owner-7".into()),
        exit_code: Some(0),
        text: Some("pytest -q tests".into()),
        ..OperationQuery::default()
    };
    let round = async || {
        let (own, found) = timed(store.audit_operations(&query)).await?;
        let (one, operation) = timed(store.audit_operation(known)).await?;
        if found.is_empty() || operation.is_none() {
            return Err("what was written is not found".into());
        }
        Ok(vec![own, one])
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, one) = (next()?, Baseline::new("one by its id", next()?));
    Ok(Row::latency(name, pace.name, own, vec![one]))
}
