//! A row as bytes. The facts are one JSON object whose members have a fixed order, so that the same row has
//! the same bytes; the bytes are stored and MACed as written, never encoded again. Outputs are stored beside
//! it, because lists do not read them.

use crate::{Millis, OperationId, Result, StoreError};
use atoll_types::audit::{Begin, Checkpoint, Egress, End, Note, Output, Part};
use serde::{Deserialize, Serialize};

/// The version of the encoding.
const VERSION: u32 = 1;

/// The content of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facts {
    Begin(Box<Begin>),
    End(Box<End>),
    Egress(Box<Egress>),
    Note(Note),
    Checkpoint(Checkpoint),
}

impl Facts {
    /// The kind of row that holds this.
    #[must_use]
    pub fn part(&self) -> Part {
        match self {
            Facts::Begin(_) => Part::Begin,
            Facts::End(_) => Part::End,
            Facts::Egress(_) => Part::Egress,
            Facts::Note(_) => Part::Note,
            Facts::Checkpoint(_) => Part::Checkpoint,
        }
    }

    fn outputs(&mut self) -> impl Iterator<Item = &mut Output> {
        let (out, err) = match self {
            Facts::End(end) => (end.stdout.as_mut(), end.stderr.as_mut()),
            Facts::Begin(_) | Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => (None, None),
        };
        out.into_iter().chain(err)
    }
}

/// A row without its sequence number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The operation that it belongs to.
    pub operation: Option<OperationId>,
    /// When.
    pub at: Millis,
    /// Its content.
    pub facts: Facts,
}

/// A row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// JSON.
    pub facts: Vec<u8>,
    /// The outputs, one after the other.
    pub output: Vec<u8>,
}

/// A row as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// The sequence number that it was written for.
    pub seq: u64,
    /// The first row of its batch.
    pub batch: u64,
    /// The row.
    pub entry: Entry,
}

/// Why bytes are not a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRow(String);

#[derive(Serialize, Deserialize)]
struct Envelope<F> {
    v: u32,
    seq: u64,
    batch: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<OperationId>,
    at: Millis,
    facts: F,
}

impl Entry {
    /// The bytes of the row with its sequence number.
    pub fn encode(&self, seq: u64, batch: u64) -> Result<Encoded> {
        let Self { operation, at, facts } = self;
        let envelope = Envelope { v: VERSION, seq, batch, operation: *operation, at: *at, facts };
        let json = serde_json::to_vec(&envelope)
            .map_err(|e| StoreError::Internal("writing an audit row", e.into()))?;
        let outputs = match facts {
            Facts::End(end) => [end.stdout.as_ref(), end.stderr.as_ref()],
            Facts::Begin(_) | Facts::Egress(_) | Facts::Note(_) | Facts::Checkpoint(_) => [None, None],
        };
        let output = outputs.into_iter().flatten().flat_map(|output| &output.bytes).copied().collect();
        Ok(Encoded { facts: json, output })
    }
}

impl Decoded {
    /// Decodes a row.
    pub fn new(facts: &[u8], output: &[u8]) -> Result<Self, BadRow> {
        let mut decoded = Self::facts(facts)?;
        let mut rest = output;
        for output in decoded.entry.facts.outputs() {
            let (bytes, after) = rest
                .split_at_checked(output.packed as usize)
                .ok_or_else(|| BadRow("the output is shorter than the row says".into()))?;
            output.bytes = bytes.to_vec();
            rest = after;
        }
        if rest.is_empty() {
            Ok(decoded)
        } else {
            Err(BadRow("the output is longer than the row says".into()))
        }
    }

    /// The same without the outputs' bytes.
    pub fn facts(facts: &[u8]) -> Result<Self, BadRow> {
        let Envelope { v, seq, batch, operation, at, facts } =
            serde_json::from_slice(facts).map_err(|e| BadRow(format!("the facts cannot be read: {e}")))?;
        if v != VERSION {
            return Err(BadRow(format!("the facts have version {v}, and this release knows {VERSION}")));
        }
        Ok(Self { seq, batch, entry: Entry { operation, at, facts } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Detail, Evidence, FileChanged, KeyId, Mac, NoteKind, Outcome, Problem, SandboxId, Sha256};
    use atoll_types::files::FileAction;
    use proptest::{collection::vec, option, prelude::*, sample::select};

    fn output() -> impl Strategy<Value = Output> {
        (any::<u64>(), option::of(any::<[u8; 32]>()), any::<u32>(), vec(any::<u8>(), 0..40)).prop_map(
            |(length, hash, head, bytes)| Output {
                length,
                sha256: hash.map(Sha256),
                head,
                tail: 7,
                packed: bytes.len() as u32,
                bytes,
            },
        )
    }

    prop_compose! {
        fn begin()(
            texts in vec(".{0,12}", 5), key: Option<u128>, sandbox: Option<u128>, address in option::of(".{0,9}"),
            variables in vec(".{0,9}", 0..3), extra in proptest::collection::btree_map(".{0,4}", ".{0,4}", 0..3),
        ) -> Facts {
            let id = uuid::Uuid::from_u128;
            Facts::Begin(Box::new(Begin {
                front: texts[0].clone(), key: key.map(|k| KeyId::from_uuid(id(k))), owner: texts[1].clone(), address,
                kind: texts[2].clone(), sandbox: sandbox.map(|s| SandboxId::from_uuid(id(s))),
                detail: Detail::new(&texts[3]), directory: Some(texts[4].clone()), variables, extra,
            }))
        }
    }

    prop_compose! {
        fn end()(
            outcome in select(Outcome::ALL), message in option::of(".{0,9}"), exit_code: Option<i32>,
            figures: (u64, Option<u64>, Option<u64>, Option<u64>), stdout in option::of(output()),
            stderr in option::of(output()), files in vec(".{0,9}", 0..3),
        ) -> Facts {
            let file = |path| FileChanged { path, action: FileAction::Created, size: figures.1 };
            Facts::End(Box::new(End {
                outcome, error: message.map(|message| Problem { code: "x".into(), message }), exit_code,
                signal: exit_code, duration_us: figures.0, cpu_us: figures.1, peak_memory: figures.2, stdout, stderr,
                files: files.into_iter().map(file).collect(), files_count: 3,
                files_truncated: exit_code.is_some(), bytes: figures.3,
            }))
        }
    }

    prop_compose! {
        fn mark()(kind in select(NoteKind::ALL), text in ".{0,9}", seq: u64, mac: [u8; 32], checkpoint: bool) -> Facts {
            let mac = Mac(mac);
            if checkpoint {
                let evidence = vec![Evidence { seq, at: -3, kind, text }];
                Facts::Checkpoint(Checkpoint { removed_to: seq, mac, before: 5, evidence })
            } else {
                Facts::Note(Note { kind, text, head: Some((seq, mac)), found: None })
            }
        }
    }

    prop_compose! {
        fn egress()(
            sandbox: u128, texts in vec(".{0,12}", 3), port: Option<u16>, rest in vec(option::of(".{0,9}"), 4),
            allowed: bool, figures: (u64, u64, u64, u64),
        ) -> Facts {
            Facts::Egress(Box::new(Egress {
                sandbox: SandboxId::from_uuid(uuid::Uuid::from_u128(sandbox)), via: texts[0].clone(),
                host: texts[1].clone(), port, address: rest[0].clone(), method: rest[1].clone(),
                path: rest[2].clone(), allowed, rule: texts[2].clone(), error: rest[3].clone(), sent: figures.0,
                received: figures.1, duration_us: figures.2, count: figures.3,
            }))
        }
    }

    proptest! {
        #[test]
        fn a_row_comes_back_and_has_one_spelling(
            facts in prop_oneof![begin(), end(), egress(), mark()], seq: u64, batch: u64, at: i64, operation: Option<u128>
        ) {
            let operation = operation.map(|o| OperationId::from_uuid(uuid::Uuid::from_u128(o)));
            let entry = Entry { operation, at, facts };
            let encoded = entry.encode(seq, batch).unwrap();
            let decoded = Decoded::new(&encoded.facts, &encoded.output).unwrap();
            prop_assert_eq!(&decoded, &Decoded { seq, batch, entry });
            prop_assert_eq!(&decoded.entry.encode(seq, batch).unwrap(), &encoded);
            prop_assert!(Decoded::new(&encoded.facts, &[&encoded.output[..], b"x"].concat()).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(facts in vec(any::<u8>(), 0..60), output in vec(any::<u8>(), 0..9)) {
            let _ = Decoded::new(&facts, &output);
        }

        #[test]
        fn what_is_kept_has_a_bound(text in "[aé\u{1f600}\"\u{0}]{0,900}", many in 0..400_usize) {
            let long = text.repeat(9);
            let extra = (0..many).map(|n| (format!("{n}{long}"), long.clone())).take(40).collect();
            let begin = Begin {
                front: long.clone(), owner: long.clone(), address: Some(long.clone()), kind: long.clone(),
                detail: Detail { text: long.clone(), length: 1 }, directory: Some(long.clone()),
                variables: vec![long.clone(); many.min(300)], extra, ..Begin::default()
            };
            let file = FileChanged { path: long.clone(), action: FileAction::Created, size: Some(u64::MAX) };
            let end = End { files: vec![file; many], ..End::new(Outcome::Failed, 1) }
                .because(Problem { code: long.clone(), message: long.clone() });
            let (begin, end) = (begin.kept(), end.kept());
            prop_assert!(begin.detail.text.len() <= crate::DETAIL_KEPT);
            prop_assert_eq!((end.files.len(), end.files_count), (many.min(crate::FILES_KEPT), many as u64));
            let egress = Egress {
                sandbox: SandboxId::random(), via: long.clone(), host: long.clone(), port: None,
                address: Some(long.clone()), method: Some(long.clone()), path: Some(long.clone()), allowed: true,
                rule: long.clone(), error: Some(long), sent: 0, received: 0, duration_us: 0, count: 1,
            };
            let egress = Entry { operation: None, at: 0, facts: Facts::Egress(Box::new(egress.kept())) };
            prop_assert!(egress.encode(1, 1).unwrap().facts.len() < 6 * 5000);
            for facts in [Facts::Begin(Box::new(begin)), Facts::End(Box::new(end))] {
                let row = Entry { operation: None, at: 0, facts }.encode(1, 1).unwrap();
                // A control character takes six bytes in JSON.
                prop_assert!(row.facts.len() < 6 * (100 * 1300 + 20_000), "{}", row.facts.len());
            }
        }
    }
}
