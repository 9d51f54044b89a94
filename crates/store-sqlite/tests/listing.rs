//! Lists of any records with any query are what the plain model says.

use crate::fixture::Folder;
use atoll_store::{
    Activity, ActivityKind, Change, ListQuery, NewSandbox, SandboxRecord, SortBy, Status, Store,
    conformance::{expected, sandbox},
};
use proptest::{bool::weighted, collection::vec, option, prelude::*, sample::select};
use std::collections::BTreeMap;

/// What LIKE, GLOB, JSON and SQL find special, some letters in both cases, and little else, so that
/// matches happen.
fn text() -> impl Strategy<Value = String> {
    vec(select(vec!['%', '_', '\\', '\'', '"', '*', '?', '[', '=', '-', 'a', 'A', 'é', 'É', '\u{1f}']), 0..4)
        .prop_map(String::from_iter)
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map(select(vec!["a", "b"]).prop_map(String::from), text(), 0..2)
}

prop_compose! {
    fn record()(
        owner in select(vec!["one", "two"]), owner_name in text(), image in text(), key in option::of(text()),
        labels in labels(), created_at in 0..3_i64, status in select(Status::ALL), execs in 0..3_u8,
        max_lifetime_seconds in option::of(1..9_u32),
    ) -> (NewSandbox, Status, u8) {
        let session_key = key;
        let new = NewSandbox { owner: owner.into(), owner_name, image, session_key, labels, created_at, max_lifetime_seconds, ..sandbox() };
        (new, status, execs)
    }
}

prop_compose! {
    fn query()(
        owner in option::of(select(vec!["one", "two"]).prop_map(String::from)),
        statuses in vec(select(Status::ALL), 0..3), images in vec(text(), 0..3),
        session_key in option::weighted(0.2, text()), labels in option::weighted(0.2, labels()),
        label in option::weighted(0.2, select(vec!["a", "b", "c"]).prop_map(String::from)), text in option::of(text()), sort_by in select(SortBy::ALL), descending: bool,
        limit in 1..9_u32, include_destroyed: bool, with_lifetime in weighted(0.2),
    ) -> ListQuery {
        let labels = labels.unwrap_or_default();
        ListQuery { owner, statuses, images, session_key, labels, label, text, sort_by, descending, offset: 0, limit, include_destroyed, with_lifetime }
    }
}

async fn fill(store: &impl Store, wanted: Vec<(NewSandbox, Status, u8)>) -> Vec<SandboxRecord> {
    let mut records = Vec::new();
    for (new, status, execs) in wanted {
        let id = new.id;
        store.insert_sandbox(new).await.unwrap();
        // The session may have had one already.
        if store.sandbox(id).await.unwrap().is_none() {
            continue;
        }
        for at in 0..i64::from(execs) {
            let (detail, exit_code) = (String::new(), None);
            let activity = Activity {
                sandbox: id,
                kind: ActivityKind::Exec,
                at,
                detail,
                exit_code,
                duration_ms: None,
                bytes: None,
            };
            store.record_activity(activity).await.unwrap();
        }
        records.push(store.update_sandbox(id, 1, Change::status(status)).await.unwrap());
    }
    records
}

/// Every page, one after the other.
async fn walk(store: &impl Store, records: &[SandboxRecord], query: &ListQuery) {
    let mut query = query.clone();
    loop {
        let page = store.list_sandboxes(&query).await.unwrap();
        assert_eq!(page, expected(records, &query), "{query:?}");
        if page.items.is_empty() {
            return;
        }
        query.offset += page.items.len() as u64;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn lists_are_what_the_model_says(wanted in vec(record(), 1..25), queries in vec(query(), 20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = Folder::new();
            let store = folder.fresh().await;
            let records = fill(&store, wanted).await;
            for query in queries {
                walk(&store, &records, &query).await;
            }
        });
    }
}
