//! Walking along the chain: one row after the other, each compared with its MAC, its columns, and its
//! operation's columns. It reads no store: it is given raw rows.

use crate::AuditKey;
use atoll_store::{
    BegunColumns, Decoded, EndedColumns, Facts, Mac, Millis, NoteKind, OperationId, Projection, RawRow,
};
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
};

/// The kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// A row is not what was written.
    Changed,
    /// A row is gone.
    Removed,
    /// A row is in another place.
    Moved,
    /// A row is there that was never written.
    Added,
    /// The last rows are gone.
    CutOff,
    /// There is no head.
    HeadMissing,
    /// The head was not signed by this server, or is an old one.
    HeadForged,
    /// The columns say something else than their row.
    Projection,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultKind::Changed => "changed",
            FaultKind::Removed => "removed",
            FaultKind::Moved => "moved",
            FaultKind::Added => "added",
            FaultKind::CutOff => "cut_off",
            FaultKind::HeadMissing => "head_missing",
            FaultKind::HeadForged => "head_forged",
            FaultKind::Projection => "projection",
        })
    }
}

/// Something that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// The row.
    pub seq: u64,
    /// One sentence.
    pub text: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, seq: u64, text: impl Into<String>) -> Self {
        Self { kind, seq, text: text.into() }
    }

    /// The fault that a note of the ledger reports.
    pub(crate) fn noted(kind: NoteKind, seq: u64, text: &str) -> Option<Self> {
        let kind = match kind {
            NoteKind::Genesis | NoteKind::PowerCut => return None,
            NoteKind::HeadMissing => FaultKind::HeadMissing,
            NoteKind::HeadForged | NoteKind::HeadOld => FaultKind::HeadForged,
            NoteKind::HeadAhead => FaultKind::CutOff,
            NoteKind::HeadDiffers => FaultKind::Changed,
        };
        Some(Self::new(kind, seq, format!("noted by the server when it started: {text}")))
    }
}

/// Why a row cannot be passed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It was tampered with.
    Fault(Fault),
    /// Another row should be here; the caller must look for it.
    Elsewhere,
    /// Its MAC is right, but it cannot be parsed.
    Unreadable(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

struct Begun {
    seq: u64,
    /// The end that its columns claimed when they were read.
    claims: Option<i64>,
}

/// The state of a walk.
pub(crate) struct Walk<'k> {
    key: &'k AuditKey,
    /// The row that must come next.
    pub(crate) next: u64,
    /// The MAC of the row before it.
    pub(crate) before: Mac,
    /// Operations that were begun on the way and have not ended.
    open: HashMap<OperationId, Begun>,
    high: Option<Millis>,
    pub(crate) begins: u64,
}

impl<'k> Walk<'k> {
    /// A walk that begins after a row with this number and MAC.
    pub(crate) fn after(key: &'k AuditKey, seq: u64, mac: Mac) -> Self {
        Self { key, next: seq + 1, before: mac, open: HashMap::new(), high: None, begins: 0 }
    }

    /// How many operations have not ended so far.
    pub(crate) fn open(&self) -> u64 {
        self.open.len() as u64
    }

    /// Passes the next row, if it is what was written.
    pub(crate) fn pass(&mut self, row: &RawRow) -> Result<Decoded, Stop> {
        let seq = self.next;
        if !self.key.proves(&self.before, seq, &row.facts, &row.output, &row.mac) {
            return Err(match Decoded::facts(&row.facts) {
                Ok(other) if other.seq != seq => Stop::Elsewhere,
                _ => Fault::new(FaultKind::Changed, seq, format!("row {seq} is not what was written")).into(),
            });
        }
        let decoded = Decoded::new(&row.facts, &row.output).map_err(|e| Stop::Unreadable(e.to_string()))?;
        own_columns(seq, row, &decoded)?;
        self.operation(row, &decoded)?;
        self.before =
            Mac(row.mac[..].try_into().map_err(|_| Stop::Unreadable("a code is too short".into()))?);
        self.next += 1;
        Ok(decoded)
    }

    /// Compares the columns of the row's operation.
    fn operation(&mut self, row: &RawRow, decoded: &Decoded) -> Result<(), Fault> {
        let seq = decoded.seq;
        let differs = |what: &str| {
            let text =
                format!("row {seq} is as it was written, but it is found by other values: {what} differs");
            Err(Fault::new(FaultKind::Projection, seq, text))
        };
        match (&decoded.entry.facts, decoded.entry.operation) {
            (Facts::Begin(begin), Some(id)) => {
                let Some(found) = &row.projection else { return differs("its operation is gone, which") };
                let wanted = BegunColumns::of(decoded.entry.at, begin);
                let high = self.high.map_or(found.high, |high| high.max(decoded.entry.at));
                if let Some(what) = begun_differs(found, id, &wanted, high) {
                    return differs(what);
                }
                self.high = Some(found.high);
                self.begins += 1;
                let claims = found.ended.as_ref().map(|ended| ended.seq);
                self.open.insert(id, Begun { seq, claims });
            }
            (Facts::End(end), Some(id)) => match (self.open.remove(&id), &row.projection) {
                (Some(begun), Some(found)) => {
                    if i64::try_from(begun.seq) != Ok(found.seq) {
                        return differs("the row of its beginning");
                    }
                    if let Some(what) = ended_differs(found.ended.as_ref(), &EndedColumns::of(seq, end)) {
                        return differs(what);
                    }
                    let has_sandbox = found.begun.sandbox.is_some();
                    let wanted = if has_sandbox { end.changed_paths() } else { BTreeSet::new() };
                    if !wanted.iter().copied().eq(found.paths.iter().map(String::as_str)) {
                        return differs("the list of its files");
                    }
                }
                (Some(_), None) => return differs("its operation is gone, which"),
                // Its beginning was removed on purpose, and its operation with it.
                (None, None) => {}
                (None, Some(_)) => return differs("an operation that was removed"),
            },
            (
                Facts::Begin(_) | Facts::End(_) | Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_),
                _,
            ) => {}
        }
        Ok(())
    }

    /// Finds an operation whose columns claim an end that no row up to this one has.
    pub(crate) fn claimed(&self, up_to: u64) -> Option<Fault> {
        let past = |claim: i64| u64::try_from(claim).map_or(true, |claim| claim <= up_to);
        let wrong =
            self.open.values().filter(|begun| begun.claims.is_some_and(past)).map(|begun| begun.seq).min()?;
        let text = format!("the operation of row {wrong} is shown as ended, and no row has its end");
        Some(Fault::new(FaultKind::Projection, wrong, text))
    }
}

fn own_columns(seq: u64, row: &RawRow, decoded: &Decoded) -> Result<(), Fault> {
    let entry = &decoded.entry;
    let operation = entry.operation.map(|id| id.uuid().as_bytes().to_vec());
    let what = if row.operation != operation {
        "operation"
    } else if row.part != entry.facts.part().as_str() {
        "part"
    } else if row.at != entry.at {
        "at"
    } else if decoded.seq != seq {
        "seq"
    } else {
        return Ok(());
    };
    let text = format!("the facts of row {seq} are as they were written, but its column `{what}` differs");
    Err(Fault::new(FaultKind::Projection, seq, text))
}

fn begun_differs(
    found: &Projection,
    id: OperationId,
    wanted: &BegunColumns,
    high: Millis,
) -> Option<&'static str> {
    let BegunColumns { at, owner, key, kind, sandbox, search } = &found.begun;
    [
        (found.operation != id.uuid().as_bytes(), "operation"),
        (*at != wanted.at, "at"),
        (found.high != high || found.high < *at, "high"),
        (*owner != wanted.owner, "owner"),
        (*key != wanted.key, "key"),
        (*kind != wanted.kind, "kind"),
        (*sandbox != wanted.sandbox, "sandbox"),
        (*search != wanted.search, "search"),
    ]
    .into_iter()
    .find_map(|(differs, what)| differs.then_some(what))
}

fn ended_differs(found: Option<&EndedColumns>, wanted: &EndedColumns) -> Option<&'static str> {
    let Some(EndedColumns { seq, outcome, exit_code, duration_us }) = found else { return Some("end_seq") };
    [
        (*seq != wanted.seq, "end_seq"),
        (*outcome != wanted.outcome, "outcome"),
        (*exit_code != wanted.exit_code, "exit_code"),
        (*duration_us != wanted.duration_us, "duration_us"),
    ]
    .into_iter()
    .find_map(|(differs, what)| differs.then_some(what))
}
