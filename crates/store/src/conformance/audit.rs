//! Rows of the audit trail.

use super::{Failure, NOW, Outcome as Checked, Shared, add, clashes, ensure, read, same, sandbox};
use crate::{
    Activity, ActivityKind, AuditBatch, AuditOutput, AuditRow, Begin, BegunColumns, Checkpoint, Clash,
    Detail, End, EndedColumns, Entry, EventKind, EventQuery, Facts, FileChanged, KeyId, Mac, Millis,
    NewEvent, Note, NoteKind, OpenOperation, OperationEnd, OperationId, OperationQuery, OperationRow,
    Outcome, Output, Part, Problem, Projection, RawRow, SandboxId, Sha256, StoreError, Thing,
};
use atoll_types::files::FileAction;
use std::collections::BTreeMap;

/// A row with its sequence number. Its MAC is made up: no store checks it.
#[must_use]
pub fn linked(seq: u64, operation: Option<OperationId>, at: Millis, facts: Facts) -> AuditRow {
    let entry = Entry { operation, at, facts };
    let encoded = entry.encode(seq, seq).unwrap_or_else(|_| unreachable!("it is plain"));
    let mut mac = [7; 32];
    mac[..8].copy_from_slice(&seq.to_le_bytes());
    AuditRow { seq, entry, encoded, mac: Mac(mac) }
}

/// A beginning that checks start from.
#[must_use]
pub fn begin() -> Begin {
    Begin {
        front: "rest".into(),
        owner: "owner".into(),
        kind: "exec".into(),
        detail: Detail::new("ls -l"),
        ..Begin::default()
    }
}

pub(super) fn begins(begin: Begin) -> Facts {
    Facts::Begin(Box::new(begin))
}

pub(super) fn ends(end: End) -> Facts {
    Facts::End(Box::new(end))
}

pub(super) fn rows(rows: Vec<AuditRow>) -> AuditBatch {
    AuditBatch { rows, ..AuditBatch::default() }
}

fn full_begin() -> Begin {
    Begin {
        front: "rest".into(),
        key: Some(KeyId::random()),
        owner: "Ада \"O'Neil\" \u{1f600}".into(),
        address: Some("[::1]:5".into()),
        kind: "exec".into(),
        sandbox: Some(SandboxId::random()),
        detail: Detail { text: "Echo \0 \"é\"\n%_".into(), length: 1 << 40 },
        directory: Some("/workspace".into()),
        variables: vec!["PATH".into(), "TOKEN".into()],
        extra: [("session".into(), "x".into())].into(),
    }
}

fn full_end() -> End {
    let output = |bytes: Vec<u8>, hash| Output {
        length: u64::MAX,
        sha256: hash,
        head: 3,
        tail: 2,
        packed: bytes.len() as u32,
        bytes,
    };
    End {
        outcome: Outcome::Failed,
        error: Some(Problem { code: "timeout".into(), message: "it took too long".into() }),
        exit_code: Some(-9),
        signal: Some(9),
        duration_us: u64::MAX,
        cpu_us: Some(5),
        peak_memory: Some(6),
        stdout: Some(output((0..=255).collect(), Some(Sha256([9; 32])))),
        stderr: Some(output(vec![1; 70_000], None)),
        files: vec![FileChanged { path: "a/b".into(), action: FileAction::Created, size: Some(5) }],
        files_count: 700,
        files_truncated: true,
        bytes: Some(8),
    }
}

fn raw(row: &AuditRow, projection: Option<Projection>) -> RawRow {
    RawRow {
        seq: row.seq as i64,
        operation: row.entry.operation.map(|id| id.uuid().as_bytes().to_vec()),
        part: row.entry.facts.part().as_str().into(),
        at: row.entry.at,
        mac: row.mac.0.to_vec(),
        facts: row.encoded.facts.clone(),
        output: row.encoded.output.clone(),
        projection,
    }
}

pub(super) async fn rows_come_back_as_they_went_in(store: Shared) -> Checked {
    same("before the first", store.last_audit_row().await?, None)?;
    let id = OperationId::random();
    let (begin, end) = (full_begin(), full_end());
    let first = linked(1, Some(id), NOW, begins(begin.clone()));
    let second = linked(2, Some(id), NOW - 5, ends(end.clone()));
    let note = Note { kind: NoteKind::Genesis, text: "a".into(), head: None, found: None };
    let third = linked(3, None, NOW, Facts::Note(note));
    store.append_audit(rows(vec![first.clone()])).await?;
    store.append_audit(rows(vec![second.clone(), third.clone()])).await?;
    let projection = Projection {
        seq: 1,
        operation: id.uuid().as_bytes().to_vec(),
        high: NOW,
        begun: BegunColumns::of(NOW, &begin),
        ended: Some(EndedColumns::of(2, &end)),
        paths: vec![String::new(), "a/b".into()],
    };
    let wanted = [raw(&first, Some(projection.clone())), raw(&second, Some(projection)), raw(&third, None)];
    same("the rows", store.audit_rows(0, 10).await?, wanted.to_vec())?;
    same("some of them", store.audit_rows(2, 1).await?, vec![wanted[1].clone()])?;
    same("past the end", store.audit_rows(4, 10).await?, vec![])?;
    same("the last", store.last_audit_row().await?, Some(wanted[2].clone()))?;
    same("how many operations", store.count_operations(3).await?, 1)?;
    same("how many before", store.count_operations(0).await?, 0)?;
    let outputs = AuditOutput { stdout: end.stdout.clone(), stderr: end.stderr.clone() };
    same("its output", store.audit_output(id).await?, Some(outputs))?;
    same("unknown output", store.audit_output(OperationId::random()).await?, None)?;
    let facts = without_bytes(end);
    let operation =
        OperationRow { seq: 1, id, at: NOW, begin, end: Some(OperationEnd { seq: 2, at: NOW - 5, facts }) };
    same("the operation", store.audit_operation(id).await?, Some(operation.clone()))?;
    same("as it is listed", store.audit_operations(&OperationQuery::default()).await?, vec![operation])?;
    same("unknown", store.audit_operation(OperationId::random()).await?, None)?;
    store.flush_audit().await?;
    Ok(())
}

pub(super) fn without_bytes(mut end: End) -> End {
    for output in end.stdout.iter_mut().chain(&mut end.stderr) {
        output.bytes.clear();
    }
    end
}

pub(super) async fn rows_follow_each_other(store: Shared) -> Checked {
    let one = |seq| linked(seq, Some(OperationId::random()), NOW, begins(begin()));
    for wrong in [0, 2, 9] {
        clashes("not the first", store.append_audit(rows(vec![one(wrong)])).await, Clash::Chain)?;
    }
    store.append_audit(rows(vec![one(1), one(2)])).await?;
    for wrong in [vec![one(2)], vec![one(1)], vec![one(4)], vec![one(3), one(5)], vec![one(3), one(3)]] {
        clashes("not the next", store.append_audit(rows(wrong)).await, Clash::Chain)?;
    }
    same("rows", store.audit_rows(0, 10).await?.len(), 2)?;
    same("operations", store.count_operations(u64::MAX).await?, 2)?;
    store.append_audit(rows(vec![one(3)])).await?;
    store.append_audit(AuditBatch::default()).await?;
    same("rows", store.audit_rows(0, 10).await?.len(), 3)
}

pub(super) async fn an_operation_begins_and_ends_once(store: Shared) -> Checked {
    let id = OperationId::random();
    let end = || ends(End::new(Outcome::Ok, 5));
    let unknown = store.append_audit(rows(vec![linked(1, Some(id), NOW, end())])).await;
    ensure(matches!(unknown, Err(StoreError::NotFound(Thing::Operation))), || format!("{unknown:?}"))?;
    store.append_audit(rows(vec![linked(1, Some(id), NOW, begins(begin()))])).await?;
    let again = store.append_audit(rows(vec![linked(2, Some(id), NOW, begins(begin()))])).await;
    clashes("begun twice", again, Clash::Taken)?;
    store.append_audit(rows(vec![linked(2, Some(id), NOW, end())])).await?;
    clashes(
        "ended twice",
        store.append_audit(rows(vec![linked(3, Some(id), NOW, end())])).await,
        Clash::Ended,
    )?;
    same("rows", store.audit_rows(0, 10).await?.len(), 2)?;
    // Both in one batch.
    let short = OperationId::random();
    let both = vec![linked(3, Some(short), NOW, begins(begin())), linked(4, Some(short), NOW, end())];
    store.append_audit(rows(both)).await?;
    let ended = store.audit_operation(short).await?.and_then(|operation| operation.end);
    same("its end", ended.map(|end| end.seq), Some(4))
}

pub(super) async fn a_batch_carries_what_happened(store: Shared) -> Checked {
    let id = add(&store, sandbox()).await?.id;
    let told = store.events(&EventQuery::default()).await?.newest;
    let activity = |sandbox| Activity {
        sandbox,
        kind: ActivityKind::Exec,
        at: NOW,
        detail: "ls".into(),
        exit_code: Some(0),
        duration_ms: Some(20),
        bytes: None,
    };
    let event = NewEvent {
        at: NOW,
        owner: "owner".into(),
        sandbox: Some(id),
        kind: EventKind::ExecEnded,
        reason: Some("it was \"done\"\n".into()),
        data: "{\"a\":1}".into(),
    };
    let batch = |seq| AuditBatch {
        rows: vec![linked(seq, Some(OperationId::random()), NOW, begins(begin()))],
        activities: vec![activity(SandboxId::random()), activity(id)],
        events: vec![event.clone()],
    };
    store.append_audit(batch(1)).await?;
    same("what is counted", read(&store, id).await?.exec_count, 1)?;
    let page = store.events(&EventQuery { after: Some(told), ..EventQuery::default() }).await?;
    same("what is told", page.items.into_iter().map(|row| row.event).collect(), vec![event.clone()])?;
    clashes("out of order", store.append_audit(batch(9)).await, Clash::Chain)?;
    same("what is counted then", read(&store, id).await?.exec_count, 1)?;
    same("what is told then", store.events(&EventQuery::default()).await?.newest, told + 1)?;
    same("rows", store.audit_rows(0, 9).await?.len(), 1)
}

pub(super) async fn what_has_not_ended_is_listed(store: Shared) -> Checked {
    let ids: Vec<_> = (0..5).map(|_| OperationId::random()).collect();
    let begun =
        ids.iter().zip(1..).map(|(id, seq)| linked(seq, Some(*id), NOW + seq as i64, begins(begin())));
    store.append_audit(rows(begun.collect())).await?;
    let end = ends(End::new(Outcome::Ok, 5));
    store.append_audit(rows(vec![linked(6, Some(ids[1]), NOW, end)])).await?;
    let open = |n: usize| OpenOperation { seq: n as u64 + 1, id: ids[n], at: NOW + n as i64 + 1 };
    same("all", store.open_operations(0, 10).await?, vec![open(0), open(2), open(3), open(4)])?;
    same("two", store.open_operations(1, 2).await?, vec![open(2), open(3)])?;
    same("none", store.open_operations(5, 2).await?, vec![])
}

fn checkpoint(seq: u64, removed_to: u64) -> AuditRow {
    let mac = Mac([1; 32]);
    linked(seq, None, NOW, Facts::Checkpoint(Checkpoint { removed_to, mac, before: NOW, evidence: vec![] }))
}

pub(super) async fn marks_are_found(store: Shared) -> Checked {
    let note = |seq: u64| {
        let note = Note { kind: NoteKind::Genesis, text: seq.to_string(), head: None, found: None };
        linked(seq, None, NOW, Facts::Note(note))
    };
    let other = |seq| linked(seq, Some(OperationId::random()), NOW, begins(begin()));
    store.append_audit(rows(vec![note(1), other(2), checkpoint(3, 0), note(4), other(5)])).await?;
    let seqs = async |part, limit| {
        let found = store.audit_marks(part, limit).await?;
        Ok::<_, Failure>(found.iter().map(|row| row.seq).collect::<Vec<_>>())
    };
    same("notes", seqs(Part::Note, 9).await?, vec![4, 1])?;
    same("the last note", seqs(Part::Note, 1).await?, vec![4])?;
    same("checkpoints", seqs(Part::Checkpoint, 9).await?, vec![3])
}

pub(super) async fn removing_rows_leaves_a_checkpoint_or_nothing(store: Shared) -> Checked {
    let ids: Vec<_> = (0..6).map(|_| OperationId::random()).collect();
    let mut all: Vec<AuditRow> = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        all.push(linked(all.len() as u64 + 1, Some(*id), NOW, begins(begin())));
        if n != 4 {
            all.push(linked(all.len() as u64 + 1, Some(*id), NOW, ends(End::new(Outcome::Ok, 1))));
        }
    }
    store.append_audit(rows(all)).await?;
    clashes("an open one", store.remove_audit(9, checkpoint(12, 9)).await, Clash::Open)?;
    clashes("out of order", store.remove_audit(4, checkpoint(13, 4)).await, Clash::Chain)?;
    clashes("itself", store.remove_audit(12, checkpoint(12, 12)).await, Clash::Chain)?;
    same("nothing is gone", store.audit_rows(0, 99).await?.len(), 11)?;
    // An end stays when only its beginning goes.
    same("how many go", store.remove_audit(3, checkpoint(12, 3)).await?, 3)?;
    let left: Vec<i64> = store.audit_rows(0, 99).await?.iter().map(|row| row.seq).collect();
    same("what is left", left, (4..=12).collect())?;
    same("the end alone", store.audit_rows(4, 1).await?[0].projection.clone(), None)?;
    same("operations", store.count_operations(u64::MAX).await?, 4)?;
    same("a removed one", store.audit_operation(ids[0]).await?, None)?;
    let named = OperationQuery { text: Some("ls -l".into()), ..OperationQuery::default() };
    let found = store.audit_operations(&named).await?;
    same("by text", found.iter().map(|o| o.id).collect(), vec![ids[5], ids[4], ids[3], ids[2]])?;
    store.append_audit(rows(vec![linked(13, Some(OperationId::random()), NOW, begins(begin()))])).await?;
    Ok(())
}

/// The operations that the checks of pages fill a store with, with their expected form.
pub(super) struct Trail {
    pub(super) next: u64,
    pub(super) operations: BTreeMap<u64, OperationRow>,
    pub(super) batch: Vec<AuditRow>,
}

impl Trail {
    pub(super) fn new() -> Self {
        Self { next: 1, operations: BTreeMap::new(), batch: Vec::new() }
    }

    pub(super) fn add(&mut self, at: Millis, begin: Begin, end: Option<End>) {
        let id = OperationId::random();
        let seq = self.next;
        self.batch.push(linked(seq, Some(id), at, begins(begin.clone())));
        self.next += 1;
        let end = end.map(|end| {
            self.batch.push(linked(self.next, Some(id), at + 1, ends(end.clone())));
            self.next += 1;
            OperationEnd { seq: self.next - 1, at: at + 1, facts: without_bytes(end) }
        });
        self.operations.insert(seq, OperationRow { seq, id, at, begin, end });
    }

    pub(super) async fn write(&mut self, store: &Shared) -> Result<Vec<OperationRow>, Failure> {
        store.append_audit(rows(std::mem::take(&mut self.batch))).await?;
        Ok(self.operations.values().cloned().collect())
    }
}
