//! A process that is killed while it writes loses nothing that it was told is done, and leaves no half.

use crate::fixture::{Folder, again};
use atoll_store::{
    Activities, Activity, ActivityKind, ApiKey, Change, Inserted, KeyHash, KeyId, Keys, ListQuery, SandboxId,
    Sandboxes, Scope, conformance::sandbox,
};
use atoll_store_sqlite::SqliteStore;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

const OTHER: &str = "ATOLL_STORE_TEST_CRASH";
const NOW: i64 = 1_800_000_000_000;

fn exec(sandbox: SandboxId) -> Activity {
    let (exit_code, duration_ms) = (Some(0), Some(3));
    Activity {
        sandbox,
        kind: ActivityKind::Exec,
        at: NOW,
        detail: "true".into(),
        exit_code,
        duration_ms,
        bytes: None,
    }
}

fn key() -> ApiKey {
    let id = KeyId::random();
    let mut hash = [0; 32];
    hash[..16].copy_from_slice(id.uuid().as_bytes());
    ApiKey {
        id,
        name: "k".into(),
        owner: "o".into(),
        owner_name: "o".into(),
        scope: Scope::User,
        tier: "t".into(),
        prefix: "p".into(),
        hash: KeyHash(hash),
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

/// Writes without end and says on standard output what is done.
async fn write(store: SqliteStore) {
    for round in 0_u64.. {
        let Inserted::New(made) = store.insert_sandbox(sandbox()).await.unwrap() else { panic!() };
        println!("sandbox {} 1 0", made.id);
        for execs in 1..=4 {
            store.record_activity(exec(made.id)).await.unwrap();
            let labels = Some([("revision".into(), (execs + 1).to_string())].into());
            store.update_sandbox(made.id, execs, Change { labels, ..Change::default() }).await.unwrap();
            println!("sandbox {} {} {execs}", made.id, execs + 1);
        }
        if round % 8 == 0 {
            let key = key();
            store.insert_key(key.clone()).await.unwrap();
            store.revoke_key(key.id, NOW, atoll_store::Admins::Keep).await.unwrap();
            println!("revoked {}", key.id);
        }
    }
}

/// The process that is killed; nothing when run by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_process() {
    let Some(path) = std::env::var_os(OTHER).map(PathBuf::from) else { return };
    let store = SqliteStore::open(&path).await.unwrap();
    let writers: Vec<_> = (0..4).map(|_| tokio::spawn(write(store.clone()))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

#[derive(Default)]
struct Told {
    sandboxes: BTreeMap<SandboxId, (u64, u64)>,
    revoked: Vec<KeyId>,
}

impl Told {
    fn line(&mut self, line: &str) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["sandbox", id, revision, execs] => {
                let told = (revision.parse().unwrap(), execs.parse().unwrap());
                self.sandboxes.insert(id.parse().unwrap(), told);
            }
            ["revoked", id] => self.revoked.push(id.parse().unwrap()),
            _ => {}
        }
    }
}

/// Starts the other process, lets it write a while, and kills it.
fn write_and_be_killed(path: &Path, told: &mut Told, patience: Duration) {
    let mut child = again("crash::the_other_process", OTHER, path).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut begun: Option<Instant> = None;
    // A cut last line is not a promise.
    while let Some(Ok(line)) = lines.next() {
        if line.starts_with("sandbox") && begun.get_or_insert_with(Instant::now).elapsed() > patience {
            break;
        }
        told.line(&line);
    }
    child.kill().unwrap();
    for line in lines.map_while(Result::ok).filter(|line| line.len() > 40) {
        told.line(&line);
    }
    child.wait().unwrap();
}

async fn verify(store: &SqliteStore, told: &Told) {
    store.check().await.unwrap();
    let all = ListQuery { limit: u32::MAX, ..ListQuery::default() };
    let records = store.list_sandboxes(&all).await.unwrap().items;
    let found: BTreeMap<SandboxId, _> = records.iter().map(|record| (record.id, record)).collect();
    for (id, (revision, execs)) in &told.sandboxes {
        let record = found.get(id).unwrap_or_else(|| panic!("{id} was made and is gone"));
        assert!(record.revision >= *revision && record.exec_count >= *execs, "{id} went back");
    }
    for record in &records {
        let entries = store.activities(record.id, u32::MAX, None).await.unwrap();
        assert_eq!(record.exec_count, entries.len() as u64);
        assert_eq!(record.exec_total_ms, 3 * entries.len() as u64);
        let label = record.labels.get("revision").map_or("1", |text| text.as_str());
        assert_eq!(record.revision.to_string(), label);
    }
    let labelled = ListQuery { labels: [("revision".into(), "5".into())].into(), ..all };
    let wanted = records.iter().filter(|record| record.revision == 5).count() as u64;
    assert_eq!(store.list_sandboxes(&labelled).await.unwrap().total, wanted);
    let keys = store.list_keys(None).await.unwrap();
    for id in &told.revoked {
        assert!(keys.iter().any(|key| key.id == *id && key.revoked_at == Some(NOW)), "{id} is not revoked");
    }
}

#[tokio::test]
async fn a_killed_process_loses_nothing_that_was_done() {
    let folder = Folder::new();
    let mut told = Told::default();
    for round in 0..6 {
        let before = told.sandboxes.len();
        write_and_be_killed(&folder.file(), &mut told, Duration::from_millis(20 + 37 * round));
        assert!(told.sandboxes.len() > before, "nothing was written in round {round}");
        let store = folder.open().await;
        verify(&store, &told).await;
        // And it goes on from there.
        store.insert_sandbox(sandbox()).await.unwrap();
        store.close().await;
    }
}
