//! Everything moves to another database and back, and nothing is left out.

use crate::fixture::Folder;
use atoll_store::{
    AuditBatch, Audits, EventKind, Events, Facts, Inserted, NewEvent, OperationId, Sandboxes, Settings,
    StoreError,
    conformance::{begin, linked, sandbox},
    transfer::{Cell, Kind, RowSink, TABLES, Table, Transfer},
};
use atoll_store_postgres::PostgresStore;
use atoll_store_sqlite::SqliteStore;
use std::collections::BTreeMap;

/// Every row that passes by.
#[derive(Default, PartialEq, Debug)]
struct Seen(BTreeMap<&'static str, Vec<Vec<Cell>>>);

#[async_trait::async_trait]
impl RowSink for Seen {
    async fn take(&mut self, table: &'static Table, rows: Vec<Vec<Cell>>) -> Result<(), StoreError> {
        self.0.entry(table.name).or_default().extend(rows);
        Ok(())
    }
}

async fn all(store: &dyn Transfer) -> Seen {
    let mut seen = Seen::default();
    store.export(&mut seen).await.unwrap();
    seen
}

/// Two rows for each table, of every kind of value; what they refer to is in the first row of another.
fn rows(table: &Table) -> Vec<Vec<Cell>> {
    let refers = |column: &str| {
        matches!(
            (table.name, column),
            ("console_sessions", "key") | ("attachments" | "image_tags" | "image_uses", "volume" | "image")
        )
    };
    let row = |number: u8| {
        let cell = |(name, kind): &(&'static str, Kind)| match kind {
            _ if refers(name) => Cell::Bytes(vec![1; 16]),
            Kind::Integer if ["sandbox", "thread", "session", "assistant", "conversation"].contains(name) => {
                Cell::Integer(1)
            }
            Kind::Integer => Cell::Integer(i64::from(number)),
            Kind::Flag => Cell::Flag(number == 1),
            Kind::Text if *name == "status" => Cell::Text("ready".into()),
            Kind::Text => Cell::Text(format!("{name}\0\u{1}\u{e9}{number}")),
            Kind::Path => Cell::Text(format!("a/\u{1}{number}")),
            Kind::Bytes => Cell::Bytes(vec![number; 16]),
        };
        table.columns.iter().map(cell).collect()
    };
    // One sandbox uses one image.
    if table.name == "image_uses" || table.name == "attachments" {
        vec![row(1)]
    } else {
        vec![row(1), row(2)]
    }
}

async fn fill(store: &dyn Transfer) {
    let mut import = store.import().await.unwrap().expect("it is empty");
    for table in TABLES {
        import.take(table, rows(table)).await.unwrap();
    }
    import.finish().await.unwrap();
}

async fn copy(from: &dyn Transfer, to: &dyn Transfer) {
    struct Passing(Box<dyn atoll_store::transfer::Import>);
    #[async_trait::async_trait]
    impl RowSink for Passing {
        async fn take(&mut self, table: &'static Table, rows: Vec<Vec<Cell>>) -> Result<(), StoreError> {
            self.0.take(table, rows).await
        }
    }
    let mut passing = Passing(to.import().await.unwrap().expect("it is empty"));
    from.export(&mut passing).await.unwrap();
    passing.0.finish().await.unwrap();
}

async fn sqlite(folder: &tempfile::TempDir, name: &str) -> SqliteStore {
    SqliteStore::open(&folder.path().join(name)).await.unwrap()
}

#[tokio::test]
async fn every_row_moves_either_way() {
    let (folder, files) = (Folder::new(), tempfile::tempdir().unwrap());
    let old = sqlite(&files, "old.db").await;
    fill(&old).await;
    let before = all(&old).await;
    assert_eq!(before.0.len(), TABLES.len(), "every table has rows");
    let postgres = folder.fresh().await;
    copy(&old, &postgres).await;
    assert_eq!(all(&postgres).await, before);
    let back = sqlite(&files, "back.db").await;
    copy(&postgres, &back).await;
    assert_eq!(all(&back).await, before);
    for full in [&postgres as &dyn Transfer, &back] {
        assert!(full.import().await.unwrap().is_none(), "one with records is not filled");
    }
}

#[tokio::test]
async fn a_copy_that_is_given_up_leaves_nothing() {
    let folder = Folder::new();
    let store = folder.fresh().await;
    let mut import = store.import().await.unwrap().unwrap();
    import.take(&TABLES[0], rows(&TABLES[0])).await.unwrap();
    drop(import);
    assert_eq!(all(&store).await, Seen::default());
}

#[tokio::test]
async fn a_copy_goes_on_where_the_other_ended() {
    let (folder, files) = (Folder::new(), tempfile::tempdir().unwrap());
    let old = sqlite(&files, "old.db").await;
    let Inserted::New(one) = old.insert_sandbox(sandbox()).await.unwrap() else { panic!() };
    old.put_setting("a", serde_json::json!({"b": "\0"})).await.unwrap();
    let row = |seq, id| linked(seq, Some(id), 5, Facts::Begin(Box::new(begin())));
    let rows = vec![row(1, OperationId::random())];
    old.append_audit(AuditBatch { rows, ..AuditBatch::default() }).await.unwrap();
    let new: PostgresStore = folder.fresh().await;
    copy(&old, &new).await;
    assert_eq!(new.sandbox(one.id).await.unwrap(), Some(one));
    assert_eq!(new.get_setting("a").await.unwrap(), old.get_setting("a").await.unwrap());
    let Inserted::New(two) = new.insert_sandbox(sandbox()).await.unwrap() else { panic!() };
    assert!(new.sandbox(two.id).await.unwrap().is_some());
    let rows = vec![row(2, OperationId::random())];
    new.append_audit(AuditBatch { rows, ..AuditBatch::default() }).await.unwrap();
    let event = NewEvent {
        at: 0,
        owner: "o".into(),
        sandbox: None,
        kind: EventKind::Created,
        reason: None,
        data: "{}".into(),
    };
    new.append_events(vec![event]).await.unwrap();
    let events = new.events(&atoll_store::EventQuery { limit: 9, ..Default::default() }).await.unwrap();
    let ids: Vec<u64> = events.items.iter().map(|row| row.id).collect();
    assert_eq!(ids, [1, 2, 3]);
}

/// The tables and columns that a database has, but for those that only one of them needs.
#[tokio::test]
async fn no_table_and_no_column_is_left_out() {
    let (folder, files) = (Folder::new(), tempfile::tempdir().unwrap());
    let mut known: Vec<String> = TABLES
        .iter()
        .flat_map(|table| table.columns.iter().map(|(column, _)| format!("{}.{column}", table.name)))
        .collect();
    known.sort();
    folder.open().await.close().await;
    let there = folder.tell(
        "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'atoll' \
         AND table_name NOT IN ('version', 'server') AND (table_name, column_name) <> ('idempotent', 'seq')",
    );
    let mut there: Vec<&str> = there.lines().collect();
    there.sort_unstable();
    assert_eq!(there, known);
    sqlite(&files, "a.db").await.close().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(files.path().join("a.db"));
    let mut conn = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options).await.unwrap();
    let mut there: Vec<String> = sqlx::query_scalar(
        "SELECT t.name || '.' || c.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c \
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE 'audit_text%'",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    there.sort();
    assert_eq!(there, known);
}
