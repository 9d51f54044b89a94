//! Prints what the store costs on this machine, beside a bare write to the same disk:
//! `cargo run --release -p atoll-store-sqlite --example store_figures [folder]`.
#![allow(clippy::unwrap_used)]

use atoll_store::{
    Activities, Activity, ActivityKind, ApiKey, Change, Idempotency, Inserted, KeyHash, KeyId, Keys,
    ListQuery, NewSandbox, SandboxId, Sandboxes, Scope, Sealed, SortBy, Status, conformance::sandbox,
};
use atoll_store_sqlite::SqliteStore;
use std::{
    collections::BTreeMap,
    io::{Seek, Write},
    path::PathBuf,
    time::{Duration, Instant},
};

const SANDBOXES: usize = 10_000;

fn spread(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!("{what:44} {:8.3} ms p50 {:8.3} ms p95 {:8.3} ms p99", at(50), at(95), at(99));
}

async fn timed<T>(what: &str, count: usize, act: impl AsyncFn(usize) -> T) -> Vec<T> {
    let (mut times, mut results) = (Vec::new(), Vec::new());
    for number in 0..count {
        let start = Instant::now();
        results.push(act(number).await);
        times.push(start.elapsed());
    }
    spread(what, times);
    results
}

fn one(number: usize) -> NewSandbox {
    let label = |name: &str, value: usize| (name.to_owned(), value.to_string());
    NewSandbox {
        owner: format!("owner-{}", number % 100),
        owner_name: format!("Owner {}", number % 100),
        image: format!("image-{}", number % 10),
        session_key: Some(format!("session-{number}")),
        labels: BTreeMap::from([label("team", number % 20), label("number", number)]),
        skills: Vec::new(),
        environment: Sealed(vec![number as u8; 300]),
        created_at: 1_800_000_000_000 + number as i64,
        ..sandbox()
    }
}

fn exec(sandbox: SandboxId) -> Activity {
    let detail = "python3 -m pytest -q tests".into();
    let (exit_code, duration_ms) = (Some(0), Some(12));
    Activity {
        sandbox,
        kind: ActivityKind::Exec,
        at: 1_900_000_000_000,
        detail,
        exit_code,
        duration_ms,
        bytes: None,
    }
}

fn key(number: usize) -> ApiKey {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&number.to_le_bytes());
    ApiKey {
        id: KeyId::random(),
        name: "laptop".into(),
        owner: "owner".into(),
        owner_name: "Owner".into(),
        scope: Scope::User,
        tier: "standard".into(),
        prefix: "atl_1234".into(),
        hash: KeyHash(hash),
        created_at: 0,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

/// What the disk itself takes.
async fn baseline(folder: &std::path::Path) {
    let mut file = std::fs::File::create(folder.join("baseline")).unwrap();
    let write = |file: &mut std::fs::File| {
        file.rewind().unwrap();
        file.write_all(&[1; 4096]).unwrap();
    };
    let cell = std::cell::RefCell::new(&mut file);
    timed("bare: write 4 KiB", 1000, async |_| write(*cell.borrow_mut())).await;
    let synced = async |_| {
        let mut file = cell.borrow_mut();
        write(*file);
        file.sync_data().unwrap();
    };
    timed("bare: write 4 KiB and wait for the disk", 100, synced).await;
}

async fn writes(store: &SqliteStore) {
    let made = timed("insert_sandbox (2 labels, 300 B environment)", SANDBOXES, async |number| {
        match store.insert_sandbox(one(number)).await.unwrap() {
            Inserted::New(record) => record.id,
            Inserted::Existing(_) => panic!("it was there"),
        }
    })
    .await;
    timed("insert_sandbox, session taken", 1000, async |number| {
        store.insert_sandbox(one(number)).await.unwrap()
    })
    .await;
    timed("update_sandbox (status)", 5000, async |number| {
        let change = Change::status(Status::ALL[number % Status::ALL.len()]);
        store.update_sandbox(made[number], 1, change).await.unwrap()
    })
    .await;
    timed("record_activity, many sandboxes", 5000, async |number| {
        store.record_activity(exec(made[number])).await.unwrap();
    })
    .await;
    timed("record_activity, one sandbox, trimming", 3000, async |_| {
        store.record_activity(exec(made[0])).await.unwrap();
    })
    .await;
    timed("sandbox", 5000, async |number| store.sandbox(made[number]).await.unwrap()).await;
    timed("activities, 50 of 1000", 500, async |_| store.activities(made[0], 50, None).await.unwrap()).await;
    timed("begin_idempotent", 2000, async |number| {
        store.begin_idempotent("owner", &number.to_string(), [0; 32], 0).await.unwrap()
    })
    .await;
    timed("insert_key (waits for the disk)", 200, async |number| {
        store.insert_key(key(number)).await.unwrap();
    })
    .await;
    timed("key_by_hash", 2000, async |number| store.key_by_hash(key(number % 200).hash, 0).await.unwrap())
        .await;
    let used: BTreeMap<KeyId, i64> =
        store.list_keys(None).await.unwrap().iter().map(|key| (key.id, 5)).collect();
    timed("touch_keys, 200 at once", 50, async |_| store.touch_keys(&used).await.unwrap()).await;
}

async fn lists(store: &SqliteStore) {
    let any = ListQuery::default;
    let some = |text: &str| Some(text.to_owned());
    let cases = [
        ("the newest 20", any()),
        ("offset 9000", ListQuery { offset: 9000, ..any() }),
        ("by last activity", ListQuery { sort_by: SortBy::LastActivityAt, ..any() }),
        ("by image", ListQuery { sort_by: SortBy::Image, ..any() }),
        ("by execs", ListQuery { sort_by: SortBy::ExecCount, ..any() }),
        ("one owner", ListQuery { owner: some("owner-7"), ..any() }),
        ("one owner, ready", ListQuery { owner: some("owner-7"), statuses: vec![Status::Ready], ..any() }),
        ("ready", ListQuery { statuses: vec![Status::Ready], ..any() }),
        ("one image", ListQuery { images: vec!["image-3".into()], ..any() }),
        ("a label, 500 have it", ListQuery { labels: [("team".into(), "3".into())].into(), ..any() }),
        ("text, 100 match", ListQuery { text: some("Owner 77"), ..any() }),
        ("text, none match", ListQuery { text: some("nowhere"), ..any() }),
        (
            "text, all match, by execs",
            ListQuery { text: some("image-"), sort_by: SortBy::ExecCount, ..any() },
        ),
    ];
    println!("list_sandboxes, {SANDBOXES} there, 20 a page:");
    for (what, query) in cases {
        timed(&format!("  {what}"), 100, async |_| store.list_sandboxes(&query).await.unwrap()).await;
    }
    timed("live_sandboxes", 5, async |_| store.live_sandboxes().await.unwrap().len()).await;
}

async fn together(store: &SqliteStore) {
    let made = store.live_sandboxes().await.unwrap();
    let start = Instant::now();
    let tasks: Vec<_> = (0..50)
        .map(|task| {
            let (store, id) = (store.clone(), made[task].id);
            tokio::spawn(async move {
                for _ in 0..100 {
                    store.record_activity(exec(id)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    println!("record_activity from 50 tasks: {:.0} a second", 5000.0 / start.elapsed().as_secs_f64());
}

#[tokio::main]
async fn main() {
    let parent = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(parent).unwrap();
    baseline(folder.path()).await;
    let file = folder.path().join("atoll.db");
    let store = SqliteStore::open(&file).await.unwrap();
    writes(&store).await;
    lists(&store).await;
    together(&store).await;
    let start = Instant::now();
    store.check().await.unwrap();
    println!("check: {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    store.close().await;
    println!("the file: {} MB", std::fs::metadata(&file).unwrap().len() / 1_000_000);
    let start = Instant::now();
    SqliteStore::open(&file).await.unwrap();
    println!("open: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
}
