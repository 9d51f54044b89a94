//! The index of details by three letters. Adding to it row by row would cost more than all the rest, so it
//! follows behind, many rows at once; what it does not have yet is few enough to be read.

use crate::{SqliteStore, error::failed};
use atoll_store::{Result, search_detail};
use sqlx::SqliteConnection;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many operations are added at once: everybody else who writes waits meanwhile.
const AT_ONCE: i64 = 128;

/// How many triples of letters are looked up at most; the rest is compared.
const TRIPLES: usize = 12;

/// Whether somebody fills the index, and how much there may be to do.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    busy: AtomicBool,
    begun: std::sync::atomic::AtomicI64,
}

/// The last operation that the index has.
pub(super) const INDEXED_TO: &str = "SELECT coalesce(max(id), 0) FROM audit_text_docsize";

/// Adds the next operations, and says whether there may be more.
async fn fill(conn: &mut SqliteConnection) -> Result<bool> {
    let sql = format!(
        "INSERT INTO audit_text (rowid, letters) SELECT seq, search FROM audit_operations \
         WHERE seq > ({INDEXED_TO}) ORDER BY seq LIMIT {AT_ONCE}"
    );
    let added = sqlx::query(&sql).execute(conn).await.map_err(failed("indexing the audit trail"))?;
    Ok(added.rows_affected() >= AT_ONCE.unsigned_abs())
}

/// Fills the index, in a task of its own, once enough operations have begun.
pub(super) fn fill_soon(store: &SqliteStore, begun: usize) {
    let begun = i64::try_from(begun).unwrap_or(i64::MAX);
    let waiting = store.filling.begun.fetch_add(begun, Ordering::Relaxed) + begun;
    if waiting < AT_ONCE || store.filling.busy.swap(true, Ordering::AcqRel) {
        return;
    }
    store.filling.begun.fetch_sub(waiting, Ordering::Relaxed);
    let (writer, filling) = (store.writer.clone(), store.filling.clone());
    tokio::spawn(async move {
        // Where it fails, searches read more; the next time tries again.
        while writer.write("indexing the audit trail", |conn| Box::pin(fill(conn))).await.unwrap_or(false) {}
        filling.busy.store(false, Ordering::Release);
    });
}

/// A text to look for.
#[derive(Debug, Clone)]
pub(super) struct Needle {
    /// The text, folded.
    pub(super) text: String,
    /// What to ask the index; `None` when the text is too short for it.
    pub(super) index: Option<String>,
}

impl Needle {
    /// What to look for; `None` when everything matches.
    pub(super) fn new(text: &str) -> Option<Self> {
        let text = search_detail(text);
        let letters: Vec<char> = text.chars().collect();
        let all: Vec<&[char]> = letters.windows(3).collect();
        // Spread over the text: neighbours say nearly the same.
        let step = all.len().div_ceil(TRIPLES).max(1);
        let quoted =
            |triple: &&[char]| format!("\"{}\"", triple.iter().collect::<String>().replace('"', "\"\""));
        let asked: Vec<String> = all.iter().step_by(step).map(quoted).collect();
        let index = (!asked.is_empty()).then(|| asked.join(" AND "));
        (!text.is_empty()).then_some(Self { text, index })
    }
}
