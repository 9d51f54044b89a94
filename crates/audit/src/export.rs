//! The trail as JSON Lines: one object a row, with the members `seq`, `part`, `operation`, `at`, `mac`,
//! `facts` and, where requested and present, `output` (the packed outputs in Base64). Rows that cannot be
//! read are marked as such and not left out.

use atoll_store::{Audits, Decoded, Facts, Mac, Millis, OperationId, Part, RawRow, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::json;

/// How many rows are written at once.
const PAGE: u32 = 256;

/// An export under way.
#[derive(Debug, Clone)]
pub struct Export {
    next: u64,
    with_output: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    part: Part,
    operation: Option<OperationId>,
    at: Millis,
    mac: Mac,
    facts: serde_json::Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a str>,
}

impl Export {
    /// An export from this row on, with the outputs of commands or without.
    #[must_use]
    pub fn new(from: u64, with_output: bool) -> Self {
        Self { next: from, with_output }
    }

    /// The next lines; `None` at the end.
    pub async fn lines(&mut self, store: &dyn Audits) -> Result<Option<String>> {
        let rows = store.audit_rows(self.next, PAGE).await?;
        let Some(last) = rows.last() else { return Ok(None) };
        self.next = u64::try_from(last.seq).unwrap_or(0) + 1;
        Ok(Some(rows.iter().map(|row| self.line(row)).collect()))
    }

    fn line(&self, row: &RawRow) -> String {
        let text = self.whole(row).unwrap_or_else(|| {
            let (facts, mac) = (STANDARD.encode(&row.facts), STANDARD.encode(&row.mac));
            json!({ "seq": row.seq, "unreadable": { "facts": facts, "mac": mac } }).to_string()
        });
        text + "\n"
    }

    fn whole(&self, row: &RawRow) -> Option<String> {
        let mac = Mac(row.mac[..].try_into().ok()?);
        let Decoded { seq, batch: _, entry } = Decoded::facts(&row.facts).ok()?;
        let facts = match &entry.facts {
            Facts::Begin(facts) => serde_json::to_value(facts),
            Facts::End(facts) => serde_json::to_value(facts),
            Facts::Egress(facts) => serde_json::to_value(facts),
            Facts::Note(facts) => serde_json::to_value(facts),
            Facts::Checkpoint(facts) => serde_json::to_value(facts),
        };
        let output = (self.with_output && !row.output.is_empty()).then(|| STANDARD.encode(&row.output));
        let line = Line {
            seq,
            part: entry.facts.part(),
            operation: entry.operation,
            at: entry.at,
            mac,
            facts: facts.ok()?,
            output: output.as_deref(),
        };
        serde_json::to_string(&line).ok().filter(|_| i64::try_from(seq) == Ok(row.seq))
    }
}
