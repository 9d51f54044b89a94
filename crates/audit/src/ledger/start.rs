//! Opening the trail. A mismatch with its head is noted in the trail before anything else is written, so that
//! writing on does not overwrite the evidence.

use super::{Job, Opened, task::Task};
use crate::{
    AuditKey, Head, HeadFile, HeadState,
    head::boot,
    ledger::batch::{BATCH, Write},
};
use atoll_store::{
    Audits, Decoded, Entry, Evidence, Facts, Mac, Note, NoteKind, OpenOperation, Part, RawRow, StoreError,
};
use atoll_types::{Error, Result, time::now_ms};
use std::{collections::HashMap, path::Path, sync::Arc};
use tokio::sync::mpsc::WeakUnboundedSender;

/// How many notes and open operations are read at once.
const PAGE: u32 = 500;

/// The end of the rows.
#[derive(Clone, Copy)]
struct Found {
    seq: u64,
    mac: Mac,
}

impl From<&RawRow> for Found {
    fn from(row: &RawRow) -> Self {
        // Verification reports a value that is invalid here.
        Self { seq: u64::try_from(row.seq).unwrap_or(0), mac: Mac(row.mac[..].try_into().unwrap_or([0; 32])) }
    }
}

fn failed(error: StoreError) -> Error {
    tracing::error!(error = %error, cause = ?error, "the audit trail cannot be opened");
    Error::from(error).context("the audit trail cannot be opened")
}

pub(super) async fn start(
    store: Arc<dyn Audits>,
    key: AuditKey,
    head: &Path,
    sender: WeakUnboundedSender<Job>,
) -> Result<(Task, Opened)> {
    let file = HeadFile::new(head, &key);
    let last = store.last_audit_row().await.map_err(failed)?;
    let found = last.as_ref().map(Found::from);
    let state = file
        .read()
        .map_err(|e| Error::internal(format!("the head of the audit trail cannot be read: {e}")))?;
    let note = compare(&*store, &state, found).await.map_err(failed)?;
    let evidence = evidence(&*store).await.map_err(failed)?;
    let left = open(&*store).await.map_err(failed)?;
    let Found { seq, mac } = found.unwrap_or(Found { seq: 0, mac: Mac([0; 32]) });
    let durable = match &state {
        HeadState::Signed(head) if head.seq <= seq => head.durable,
        HeadState::Signed(_) | HeadState::Missing | HeadState::Forged(_) => 0,
    };
    let open: HashMap<_, _> = left.iter().map(|open| (open.id, *open)).collect();
    let mut task = Task::new(store, key, file, sender);
    (task.seq, task.mac, task.durable, task.open) = (seq, mac, durable, open);
    (task.left, task.evidence) = (left, evidence);
    if let Some(note) = note {
        if note.kind.is_evidence() {
            tracing::error!(note = note.text, "the audit trail does not fit its head");
        }
        let (at, kind, text) = (now_ms(), note.kind, note.text.clone());
        let entry = Entry { operation: None, at, facts: Facts::Note(note) };
        task.append(vec![Write::note(entry)]).await.map_err(|lost| failed(lost.error))?;
        if kind.is_evidence() {
            task.evidence.push(Evidence { seq: task.seq, at, kind, text });
        }
    }
    task.write_head()
        .map_err(|e| Error::internal(format!("the head of the audit trail cannot be written: {e}")))?;
    let opened =
        Opened { evidence: task.evidence.clone(), open: task.left.iter().map(|open| open.id).collect() };
    Ok((task, opened))
}

/// The notes to write before the trail continues.
async fn compare(
    store: &dyn Audits,
    state: &HeadState,
    found: Option<Found>,
) -> Result<Option<Note>, StoreError> {
    let ends = |found: Option<Found>| found.map(|found| (found.seq, found.mac));
    let note = |kind, text: String, head: Option<&Head>| {
        Some(Note { kind, text, head: head.map(|head| (head.seq, head.mac)), found: ends(found) })
    };
    Ok(match (state, found) {
        (HeadState::Missing, None) => note(NoteKind::Genesis, "the trail begins".into(), None),
        (HeadState::Missing, Some(found)) => {
            let text = format!(
                "the head was missing and the rows ended at {}; rows may have been cut off",
                found.seq
            );
            note(NoteKind::HeadMissing, text, None)
        }
        (HeadState::Forged(why), found) => {
            let end = found.map_or(0, |found| found.seq);
            let text = format!("the head was not signed by this server ({why}) and the rows ended at {end}");
            note(NoteKind::HeadForged, text, None)
        }
        (HeadState::Signed(head), None) => ahead(head, 0, note),
        (HeadState::Signed(head), Some(found)) if head.seq > found.seq => ahead(head, found.seq, note),
        (HeadState::Signed(head), Some(found)) => match behind(store, head, found).await? {
            None => None,
            Some((kind, text)) => note(kind, text, Some(head)),
        },
    })
}

fn ahead(
    head: &Head,
    end: u64,
    note: impl Fn(NoteKind, String, Option<&Head>) -> Option<Note>,
) -> Option<Note> {
    if head.boot != boot() && end >= head.durable {
        let text =
            format!("rows {} to {} had not reached the disk when the machine went down", end + 1, head.seq);
        return note(NoteKind::PowerCut, text, Some(head));
    }
    let text = format!("the head ended at row {} and the rows at {end}: rows were cut off", head.seq);
    note(NoteKind::HeadAhead, text, Some(head))
}

/// Compares a head with rows that go as far or further: a server that was killed after a commit leaves one
/// transaction that its head does not have.
async fn behind(
    store: &dyn Audits,
    head: &Head,
    found: Found,
) -> Result<Option<(NoteKind, String)>, StoreError> {
    let rows = store.audit_rows(head.seq.max(1), BATCH as u32 + 2).await?;
    let known = rows.first().map(Found::from).filter(|row| row.seq == head.seq);
    if known.is_none_or(|row| row.mac != head.mac) {
        let text = format!("row {} is another one than the head knew", head.seq);
        return Ok(Some((NoteKind::HeadDiffers, text)));
    }
    let together = |row: &RawRow| Decoded::facts(&row.facts).is_ok_and(|row| row.batch == head.seq + 1);
    let one_batch = rows.len() <= BATCH + 1 && rows[1..].iter().all(together);
    let text = format!("the head was an old one: it ended at row {} and the rows at {}", head.seq, found.seq);
    Ok((!one_batch).then_some((NoteKind::HeadOld, text)))
}

/// Earlier notes, in rows and in checkpoints.
async fn evidence(store: &dyn Audits) -> Result<Vec<Evidence>, StoreError> {
    let mut evidence = Vec::new();
    for row in store.audit_marks(Part::Checkpoint, 1).await? {
        if let Ok(Decoded { entry: Entry { facts: Facts::Checkpoint(checkpoint), .. }, .. }) =
            Decoded::facts(&row.facts)
        {
            evidence = checkpoint.evidence;
        }
    }
    for row in store.audit_marks(Part::Note, PAGE).await?.into_iter().rev() {
        if let Ok(Decoded { seq, entry: Entry { facts: Facts::Note(note), at, .. }, .. }) =
            Decoded::facts(&row.facts)
        {
            let known = evidence.iter().any(|known: &Evidence| known.seq == seq);
            if note.kind.is_evidence() && !known {
                evidence.push(Evidence { seq, at, kind: note.kind, text: note.text });
            }
        }
    }
    Ok(evidence)
}

async fn open(store: &dyn Audits) -> Result<Vec<OpenOperation>, StoreError> {
    let mut all: Vec<OpenOperation> = Vec::new();
    loop {
        let page = store.open_operations(all.last().map_or(0, |open| open.seq), PAGE).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FaultKind, Ledger, Verdict, verify};
    use atoll_store::{AuditBatch, Begin};
    use atoll_store_sqlite::SqliteStore;

    /// A trail whose head is three rows ahead, as a power cut leaves it, or an attacker who wants it to look
    /// so.
    async fn cut(durable: u64, boot: &str) -> (Verdict, Opened, Verdict) {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("audit.head"), AuditKey::from_secret(&[1; 32]));
        let store = SqliteStore::open(&folder.path().join("atoll.db")).await.unwrap();
        let (ledger, _) = Ledger::open(Arc::new(store.clone()), key.clone(), &path).await.unwrap();
        for _ in 0..4 {
            ledger.begin(Begin::default()).await.unwrap();
        }
        ledger.close().await;
        let head = Head { seq: 8, mac: Mac([4; 32]), at: 0, durable, boot: boot.into() };
        HeadFile::new(&path, &key).write(&head).unwrap();
        let before = verify(&store, &key, &path, None).await.unwrap();
        let (ledger, opened) = Ledger::open(Arc::new(store.clone()), key.clone(), &path).await.unwrap();
        ledger.close().await;
        (before, opened, verify(&store, &key, &path, None).await.unwrap())
    }

    #[tokio::test]
    async fn a_power_cut_is_told_and_is_no_tampering() {
        let (before, opened, after) = cut(5, "another run of the machine").await;
        assert_eq!(opened.evidence, vec![]);
        for verdict in [before, after] {
            let Verdict::Sound(report) = verdict else { panic!("{verdict:?}") };
            assert!(report.remarks[0].contains("6 to 8") && report.remarks[0].contains("machine went down"));
        }
    }

    #[tokio::test]
    async fn what_had_reached_the_disk_is_not_lost_in_a_power_cut() {
        for (durable, boot) in [(6, "another run of the machine".to_owned()), (5, boot())] {
            let (before, opened, after) = cut(durable, &boot).await;
            assert_eq!(opened.evidence.len(), 1);
            for verdict in [before, after] {
                let Verdict::Faulty { first, .. } = verdict else { panic!("{verdict:?}") };
                assert_eq!((first.kind, first.seq), (FaultKind::CutOff, 6));
            }
        }
    }

    #[tokio::test]
    async fn the_head_learns_what_reached_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path().join("audit.head"), AuditKey::from_secret(&[1; 32]));
        let store = SqliteStore::open(&folder.path().join("atoll.db")).await.unwrap();
        store.append_audit(AuditBatch::default()).await.unwrap();
        let (ledger, _) = Ledger::open(Arc::new(store), key.clone(), &path).await.unwrap();
        ledger.begin(Begin::default()).await.unwrap();
        let file = HeadFile::new(&path, &key);
        loop {
            let HeadState::Signed(head) = file.read().unwrap() else { panic!("no head") };
            assert_eq!(head.seq, 2);
            if head.durable == 2 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        ledger.close().await;
    }
}
