//! Verifying the trail from its first row to its head, a page at a time. It may run beside a server that
//! writes: the last row is read before the head, and the head is written after the rows.

use crate::{
    AuditKey, Fault, FaultKind, Head, HeadFile, HeadState,
    head::boot,
    walk::{Stop, Walk},
};
use atoll_store::{
    Audits, Checkpoint, Decoded, Encoded, Evidence, Facts, Mac, NoteKind, Part, RawRow, Result, StoreError,
};
use std::path::Path;

/// How many rows are read at once. A row may have 128 KiB of output.
const PAGE: u32 = 256;

/// How often a walk is restarted because rows were removed on purpose meanwhile.
const TRIES: u32 = 5;

/// The findings of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The first row; those before it were removed on purpose.
    pub first: u64,
    /// The last row; zero when there is none.
    pub last: u64,
    /// Its MAC. An auditor who notes both can check later that nothing before it was replaced.
    pub mac: Mac,
    /// How many operations were begun.
    pub operations: u64,
    /// How many of them have not ended.
    pub open: u64,
    /// Remarks that are no fault, such as a power cut.
    pub remarks: Vec<String>,
}

/// The verdict of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every row is as it was written.
    Sound(Report),
    /// Some row is not.
    Faulty {
        /// The first fault.
        first: Fault,
        /// Faults that the server noted itself when it started, beside that.
        noted: Vec<Fault>,
    },
    /// Verification was not possible, and why.
    Unsure(String),
}

/// Verifies the trail against its head, and against a row and its MAC that an auditor noted earlier.
pub async fn verify(
    store: &dyn Audits,
    key: &AuditKey,
    head: &Path,
    expected: Option<(u64, Mac)>,
) -> Result<Verdict> {
    let mut tries = 0;
    loop {
        let removed = removed_to(store, key).await?;
        let verdict = once(store, key, head, expected, removed.as_ref()).await?;
        tries += 1;
        let moved = matches!(verdict, Verdict::Faulty { .. }) && removed_to(store, key).await? != removed;
        if !moved || tries == TRIES {
            return Ok(verdict);
        }
    }
}

/// The beginning of the rows, by the last checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Removed {
    checkpoint: Checkpoint,
    /// The row of the checkpoint.
    seq: u64,
    /// Whether that row follows the one before it; that one is verified on the way.
    sound: bool,
}

async fn removed_to(store: &dyn Audits, key: &AuditKey) -> Result<Option<Removed>> {
    let mark = store.audit_marks(Part::Checkpoint, 1).await?;
    let Some(mark) = mark.first() else { return Ok(None) };
    let seq = u64::try_from(mark.seq).unwrap_or(0);
    let Ok(Facts::Checkpoint(checkpoint)) = Decoded::facts(&mark.facts).map(|decoded| decoded.entry.facts)
    else {
        return Ok(None);
    };
    let place = seq.saturating_sub(1).max(1);
    let before = store.audit_rows(place, 1).await?;
    let follows = |before: Mac| key.proves(&before, seq, &mark.facts, &mark.output, &mark.mac);
    // Where that row is gone, nothing contradicts the checkpoint.
    let sound = before.first().filter(|row| i64::try_from(place) == Ok(row.seq)).is_none_or(|row| {
        let stored = row.mac[..].try_into().is_ok_and(|mac| follows(Mac(mac)));
        // Where that row is the first, its MAC follows from the checkpoint itself.
        let encoded = Encoded { facts: row.facts.clone(), output: row.output.clone() };
        stored || follows(key.prove(&checkpoint.mac, place, &encoded))
    });
    Ok(Some(Removed { checkpoint, seq, sound }))
}

/// The state of a verification.
struct Finder<'a> {
    store: &'a dyn Audits,
    walk: Walk<'a>,
    head: Option<Head>,
    expected: Option<(u64, Mac)>,
    removed: Option<&'a Removed>,
    noted: Vec<Evidence>,
    checkpoint: Option<Checkpoint>,
    remarks: Vec<String>,
    /// Rows behind the head that were not written together with the first of them.
    strayed: Option<u64>,
}

async fn once(
    store: &dyn Audits,
    key: &AuditKey,
    head: &Path,
    expected: Option<(u64, Mac)>,
    removed: Option<&Removed>,
) -> Result<Verdict> {
    let last = store.last_audit_row().await?.map_or(0, |row| u64::try_from(row.seq).unwrap_or(0));
    let state = match HeadFile::new(head, key).read() {
        Ok(state) => state,
        Err(e) => return Ok(Verdict::Unsure(format!("the head cannot be read: {e}"))),
    };
    let signed = match &state {
        HeadState::Signed(head) => Some(head.clone()),
        HeadState::Missing | HeadState::Forged(_) => None,
    };
    let start = removed.map(|removed| (removed.checkpoint.removed_to, removed.checkpoint.mac));
    let (from, mac) = start.unwrap_or((0, Mac([0; 32])));
    let mut finder = Finder {
        store,
        walk: Walk::after(key, from, mac),
        head: signed,
        expected,
        removed,
        noted: Vec::new(),
        checkpoint: None,
        remarks: Vec::new(),
        strayed: None,
    };
    let fault = match finder.along(last).await {
        Ok(()) => finder.end(&state, last).await?,
        Err(Halt::Fault(fault)) => Some(finder.at_the_start(fault, last)),
        Err(Halt::Unsure(why)) => return Ok(Verdict::Unsure(why)),
        Err(Halt::Store(error)) => return Err(error),
    };
    Ok(finder.verdict(fault))
}

enum Halt {
    Fault(Fault),
    Unsure(String),
    Store(StoreError),
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Finder<'_> {
    /// The first row that should be there.
    fn first(&self) -> u64 {
        self.removed.map_or(1, |removed| removed.checkpoint.removed_to + 1)
    }

    /// Where not even the first row is right, the checkpoint that names the first row may be wrong.
    fn at_the_start(&self, fault: Fault, last: u64) -> Fault {
        if self.walk.next > self.first() {
            return fault;
        }
        if let Some(seq) = self.removed.filter(|removed| !removed.sound).map(|removed| removed.seq) {
            let text = format!(
                "the checkpoint in row {seq}, which says where the rows begin, is not what was written"
            );
            return self.named(Fault::new(FaultKind::Changed, seq, text));
        }
        match &self.head {
            Some(head) if head.seq > last && fault.kind == FaultKind::Removed => {
                let text = format!("rows {} to {} are gone, and row {} too", last + 1, head.seq, fault.seq);
                Fault::new(FaultKind::CutOff, last + 1, text)
            }
            _ => fault,
        }
    }

    /// How far to walk: to the last row, and to the head, which may be later by now.
    fn goal(&self, last: u64) -> u64 {
        last.max(self.head.as_ref().map_or(0, |head| head.seq))
    }

    async fn along(&mut self, last: u64) -> Result<(), Halt> {
        let first = self.walk.next;
        // Rows with numbers before the first.
        if let Some(row) = self.store.audit_rows(0, 1).await?.first().filter(|row| !is_at_least(row, first)) {
            let text = format!("row {} stands before row {first}, the first that should be there", row.seq);
            return Err(Fault::new(FaultKind::Added, u64::try_from(row.seq).unwrap_or(0), text).into());
        }
        while self.walk.next <= self.goal(last) {
            let rows = self.store.audit_rows(self.walk.next, PAGE).await?;
            if rows.is_empty() {
                return Ok(());
            }
            for row in &rows {
                if !is_at_least(row, self.walk.next) || is_at_least(row, self.walk.next + 1) {
                    return Err(self.missing(row.seq).await?.into());
                }
                match self.walk.pass(row) {
                    Ok(decoded) => self.passed(&decoded)?,
                    Err(Stop::Fault(fault)) => return Err(self.named(fault).into()),
                    Err(Stop::Elsewhere) => return Err(self.missing(row.seq).await?.into()),
                    Err(Stop::Unreadable(why)) => {
                        let seq = self.walk.next;
                        return Err(Halt::Unsure(format!("row {seq} is genuine and cannot be read: {why}")));
                    }
                }
            }
        }
        Ok(())
    }

    /// A row with a wrong MAC behind the head was added, not changed.
    fn named(&self, fault: Fault) -> Fault {
        let behind = self.head.as_ref().is_some_and(|head| fault.seq > head.seq);
        match fault.kind {
            FaultKind::Changed if behind => {
                let text = format!(
                    "row {} was never written: its code is wrong, and the head ends before it",
                    fault.seq
                );
                Fault { kind: FaultKind::Added, text, ..fault }
            }
            _ => fault,
        }
    }

    /// The row that should come next is not in its place.
    async fn missing(&self, found: i64) -> Result<Fault, StoreError> {
        let seq = self.walk.next;
        if self.head.as_ref().is_some_and(|head| seq > head.seq) {
            let found = u64::try_from(found).unwrap_or(0);
            return Ok(Fault::new(FaultKind::Added, found, format!("row {found} was never written there")));
        }
        let mut from = seq;
        loop {
            let rows = self.store.audit_rows(from, PAGE).await?;
            for row in &rows {
                if Decoded::facts(&row.facts).is_ok_and(|decoded| decoded.seq == seq) {
                    return Ok(Fault::new(
                        FaultKind::Moved,
                        seq,
                        format!("row {seq} was moved to place {}", row.seq),
                    ));
                }
            }
            match rows.last().and_then(|row| u64::try_from(row.seq).ok()) {
                Some(last) => from = last + 1,
                None => return Ok(Fault::new(FaultKind::Removed, seq, format!("row {seq} is gone"))),
            }
        }
    }

    fn passed(&mut self, decoded: &Decoded) -> Result<(), Fault> {
        let (seq, mac) = (decoded.seq, self.walk.before);
        for (wanted, whose) in
            [(self.head.as_ref().map(|head| (head.seq, head.mac)), "head"), (self.expected, "memory")]
        {
            if wanted.is_some_and(|(at, wanted)| at == seq && wanted != mac) {
                let text =
                    format!("row {seq} is another one than the {whose} knows, and all before it may be");
                return Err(Fault::new(FaultKind::Changed, seq, text));
            }
        }
        if self.head.as_ref().is_some_and(|head| seq > head.seq && decoded.batch != head.seq + 1) {
            self.strayed.get_or_insert(seq);
        }
        match &decoded.entry.facts {
            Facts::Note(note) => {
                let (at, kind, text) = (decoded.entry.at, note.kind, note.text.clone());
                match kind {
                    NoteKind::PowerCut => self.remarks.push(format!("row {seq}: {text}")),
                    kind if kind.is_evidence() => self.noted.push(Evidence { seq, at, kind, text }),
                    _ => {}
                }
            }
            Facts::Checkpoint(checkpoint) => {
                for evidence in &checkpoint.evidence {
                    if !self.noted.contains(evidence) {
                        self.noted.push(evidence.clone());
                    }
                }
                self.checkpoint = Some(checkpoint.clone());
            }
            Facts::Begin(_) | Facts::End(_) | Facts::Egress(_) => {}
        }
        Ok(())
    }

    /// The checks that need the whole walk.
    async fn end(&mut self, state: &HeadState, last: u64) -> Result<Option<Fault>> {
        let end = self.walk.next - 1;
        if self.checkpoint.as_ref() != self.removed.map(|removed| &removed.checkpoint) {
            let text = "the rows do not begin where the last checkpoint says";
            return Ok(Some(Fault::new(FaultKind::Removed, self.first(), text)));
        }
        if let Some(fault) = self.head_fault(state, end, last) {
            return Ok(Some(fault));
        }
        let removed = self.removed.map(|removed| (removed.checkpoint.removed_to, removed.checkpoint.mac));
        if let (Some((seq, mac)), Some((known, was))) = (self.expected, removed)
            && seq == known
            && mac != was
        {
            let text = format!("row {seq} was removed on purpose, and was another one than the memory knows");
            return Ok(Some(Fault::new(FaultKind::Changed, seq, text)));
        }
        if let Some((seq, _)) = self.expected.filter(|(seq, _)| *seq > end) {
            let text = format!("rows after {end} are gone: row {seq} was there once");
            return Ok(Some(Fault::new(FaultKind::CutOff, end + 1, text)));
        }
        if let Some(fault) = self.walk.claimed(end) {
            return Ok(Some(fault));
        }
        let found = self.store.count_operations(end).await?;
        let begins = self.walk.begins;
        Ok((found != begins).then(|| {
            let text = format!("{found} operations can be found, and rows tell of {begins}");
            Fault::new(FaultKind::Projection, end, text)
        }))
    }

    fn head_fault(&mut self, state: &HeadState, end: u64, last: u64) -> Option<Fault> {
        match state {
            HeadState::Missing if end == 0 => None,
            HeadState::Missing => Some(Fault::new(
                FaultKind::HeadMissing,
                end,
                "there are rows and no head: rows may be cut off",
            )),
            HeadState::Forged(why) => {
                let text = format!("the head was not signed by this server: {why}");
                Some(Fault::new(FaultKind::HeadForged, end, text))
            }
            HeadState::Signed(head) if head.seq > end => {
                let text = format!("rows {} to {} are gone", end + 1, head.seq);
                if head.boot != boot() && end >= head.durable {
                    self.remarks
                        .push(format!("{text}: they had not reached the disk when the machine went down"));
                    return None;
                }
                Some(Fault::new(FaultKind::CutOff, end + 1, text))
            }
            HeadState::Signed(head) => {
                let old = head.seq < self.first() || self.strayed.is_some_and(|strayed| strayed <= last);
                let text =
                    format!("the head is an old one: it ends at row {} and the rows at {end}", head.seq);
                old.then(|| Fault::new(FaultKind::HeadForged, end, text))
            }
        }
    }

    fn verdict(self, fault: Option<Fault>) -> Verdict {
        let mut noted: Vec<Fault> =
            self.noted.iter().filter_map(|e| Fault::noted(e.kind, e.seq, &e.text)).collect();
        noted.sort_by_key(|fault| fault.seq);
        let earlier =
            noted.first().is_some_and(|first| fault.as_ref().is_none_or(|fault| first.seq < fault.seq));
        let first = if earlier { Some(noted.remove(0)) } else { None };
        if let Some(first) = first {
            noted.extend(fault);
            return Verdict::Faulty { first, noted };
        }
        if let Some(first) = fault {
            return Verdict::Faulty { first, noted };
        }
        let first = self.first();
        if let Some((seq, _)) = self.expected.filter(|(seq, _)| *seq + 1 < first) {
            return Verdict::Unsure(format!("row {seq} was removed on purpose; note a later one"));
        }
        Verdict::Sound(Report {
            first,
            last: self.walk.next - 1,
            mac: self.walk.before,
            operations: self.walk.begins,
            open: self.walk.open(),
            remarks: self.remarks,
        })
    }
}

fn is_at_least(row: &RawRow, seq: u64) -> bool {
    u64::try_from(row.seq).is_ok_and(|place| place >= seq)
}
