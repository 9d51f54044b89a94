//! What an owner may store of conversations, and what one answer has of it.

use crate::fixture::Folder;
use atoll_store::{Bound, Conversations, MOST_ITEMS, MOST_THREADS, StoreError};
use atoll_types::{
    ThreadId,
    conversation::{CheckpointQuery, ItemQuery, Metadata, NewThread, StoreItem, ThreadQuery},
};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::path::Path;

/// Counts to `?`.
const NUMBERS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)";
/// A JSON object of a megabyte.
const LARGE: &str = "json_object('v', printf('%.*c', 1048576, 'x'))";

async fn run(file: &Path, sql: &str, count: u64) {
    let mut conn = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(file)).await.unwrap();
    sqlx::query(sql).bind(i64::try_from(count).unwrap()).execute(&mut conn).await.unwrap();
}

async fn items(file: &Path, value: &str, count: u64) {
    let sql = format!(
        "INSERT INTO conversation_items (owner, namespace, key, value, created_at, updated_at) \
         {NUMBERS} SELECT 'ann', '[\"n\"]', 'k' || i, {value}, i, i FROM n"
    );
    run(file, &sql, count).await;
}

fn item(key: &str) -> StoreItem {
    let (created_at, updated_at) = (0, 0);
    StoreItem { namespace: vec!["n".into()], key: key.into(), value: Metadata::new(), created_at, updated_at }
}

fn is_beyond<T: std::fmt::Debug>(result: Result<T, StoreError>, bound: Bound) {
    assert!(matches!(&result, Err(StoreError::Beyond(is)) if *is == bound), "{bound:?}: {result:?}");
}

#[tokio::test]
async fn a_page_is_read_and_not_all_that_there_is() {
    let folder = Folder::new();
    let store = folder.open().await;
    items(&folder.file(), LARGE, 40).await;
    let of = |limit: u32, offset: u32| ItemQuery { limit, offset, ..ItemQuery::default() };
    let keys = async |query: ItemQuery| {
        let found = store.items("ann", &query).await.unwrap();
        found.into_iter().map(|item| item.key).collect::<Vec<_>>()
    };
    assert_eq!(keys(of(2, 0)).await, ["k40", "k39"]);
    assert_eq!(keys(of(2, 38)).await, ["k2", "k1"]);
    let text = ItemQuery { text: Some("XXX".into()), ..of(1, 3) };
    assert_eq!(keys(text).await, ["k37"]);
    is_beyond(store.items("ann", &of(40, 0)).await, Bound::Answer);
}

#[tokio::test]
async fn an_answer_has_as_many_states_as_it_has_room_for() {
    let folder = Folder::new();
    let store = folder.open().await;
    let id: ThreadId = "t".parse().unwrap();
    let new = NewThread { owner: "ann".into(), id: id.clone(), metadata: Metadata::new(), created_at: 0 };
    store.insert_thread(new).await.unwrap();
    run(
        &folder.file(),
        "INSERT INTO conversation_messages (seq, conversation, message) \
         SELECT 7, seq, json_object('id', 'm', 'role', 'user', 'content', json_array(), \
         'x', printf('%.*c', 1048576 * ?, 'x')) FROM conversations",
        1,
    )
    .await;
    // Each of them has that one message.
    let sql = format!(
        "INSERT INTO conversation_checkpoints (conversation, id, step, source, messages, state, interrupts, metadata, \
         created_at) {NUMBERS} SELECT seq, randomblob(16), i, 'loop', '[7]', '{{}}', '[]', '{{}}', i FROM n, conversations"
    );
    run(&folder.file(), &sql, 40).await;
    let of = |limit: u32| CheckpointQuery { limit, ..CheckpointQuery::default() };
    let steps = async || -> Vec<i64> {
        store.thread_checkpoints("ann", &id, &of(40)).await.unwrap().iter().map(|one| one.step).collect()
    };
    assert_eq!(
        steps().await,
        (10..=40).rev().collect::<Vec<_>>(),
        "the newest, of a little more than a MiB each"
    );
    run(&folder.file(), "UPDATE conversation_messages SET message = json_set(message, '$.x', printf('%.*c', 33554432 * ?, 'x'))", 1).await;
    assert_eq!(steps().await, [40], "one, whatever it has");
    let rows = "UPDATE conversation_checkpoints SET messages = '[]', state = json_object('x', printf('%.*c', 1048576 * ?, 'x'))";
    run(&folder.file(), rows, 1).await;
    assert_eq!(steps().await.len(), 31);
    assert_eq!(store.thread_checkpoints("ann", &id, &of(0)).await.unwrap(), []);
}

#[tokio::test]
async fn an_owner_stores_so_much_and_no_more() {
    let folder = Folder::new();
    let store = folder.open().await;
    items(&folder.file(), "'{}'", MOST_ITEMS).await;
    is_beyond(store.put_item("ann", item("one more")).await, Bound::Items);
    store.put_item("ann", item("k7")).await.expect("it replaces one");
    store.put_item("bob", item("k")).await.expect("another owner's");
    assert!(store.remove_item("ann", &["n".to_owned()], "k8").await.unwrap());
    store.put_item("ann", item("one more")).await.expect("there is room again");
    let sql = format!(
        "INSERT INTO conversations (owner, thread, metadata, status, created_at, updated_at) \
         {NUMBERS} SELECT 'ann', 't' || i, '{{}}', 'idle', i, i FROM n"
    );
    run(&folder.file(), &sql, MOST_THREADS).await;
    let new = |owner: &str| NewThread {
        owner: owner.into(),
        id: "another".parse().unwrap(),
        metadata: Metadata::new(),
        created_at: 0,
    };
    is_beyond(store.insert_thread(new("ann")).await, Bound::Threads);
    store.insert_thread(new("bob")).await.expect("another owner's");
    let query = ThreadQuery { limit: 1, ..ThreadQuery::of("ann") };
    let (page, total) = store.conversations(&query).await.unwrap();
    assert_eq!((page.len(), total), (1, MOST_THREADS));
}
