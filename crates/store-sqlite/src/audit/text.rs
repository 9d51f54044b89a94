//! The trigram index of details. Adding to it row by row would cost more than the rest of a write, so a task
//! adds many rows at once later; the rows that it does not have yet are few enough to be scanned.

use crate::{SqliteStore, error::failed};
use atoll_store::{Result, search_detail};
use sqlx::SqliteConnection;
use std::{
    cmp::Reverse,
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

/// How many operations are added at once: other writers wait meanwhile.
const AT_ONCE: i64 = 128;

/// How many trigrams are looked up at most; the rest is compared. Each costs a walk along its list, and those
/// of common letters are long and select little.
const TRIPLES: usize = 4;

/// Letters from the most to the least common in commands and code; a letter that is not here is rarer still.
const COMMON: &str = " etaoinrslcdpmuhfgb/.-_ywvkx=\"'0():1,j2qz";

/// Whether a task fills the index, and how many operations it may have to add.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    busy: AtomicBool,
    begun: AtomicI64,
}

/// The last operation that the index has.
pub(super) const INDEXED_TO: &str = "SELECT coalesce(max(id), 0) FROM audit_text_docsize";

/// Adds the next operations, and returns whether there may be more.
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
    /// The query of the index; `None` when the text is too short for it.
    pub(super) index: Option<String>,
}

impl Needle {
    /// What to look for; `None` when everything matches.
    pub(super) fn new(text: &str) -> Option<Self> {
        let text = search_detail(text);
        let letters: Vec<char> = text.chars().collect();
        let rarity = |letter: &char| COMMON.find(*letter).unwrap_or(COMMON.len());
        let mut triples: Vec<&[char]> = letters.windows(3).collect();
        triples.sort_by_key(|triple| (Reverse(triple.iter().map(rarity).sum::<usize>()), *triple));
        triples.dedup();
        let quoted = |triple: &&[char]| {
            let text: String = triple.iter().collect();
            format!("\"{}\"", text.replace('"', "\"\""))
        };
        let asked: Vec<String> = triples.iter().take(TRIPLES).map(quoted).collect();
        let index = (!asked.is_empty()).then(|| asked.join(" AND "));
        (!text.is_empty()).then_some(Self { text, index })
    }
}
