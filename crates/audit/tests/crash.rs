//! A server that is killed at any moment leaves a chain that is whole, and what it left open is swept.

use crate::fixture::{Folder, again, done, exec, sound};
use atoll_store::{Audits, OperationId, Outcome};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

const OTHER: &str = "ATOLL_AUDIT_TEST_CRASH";

/// The process that is killed; nothing when run by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_process() {
    let Some(path) = std::env::var_os(OTHER).map(PathBuf::from) else { return };
    let store = atoll_store_sqlite::SqliteStore::open(&path.join("atoll.db")).await.unwrap();
    let (ledger, _) = atoll_audit::Ledger::open(
        std::sync::Arc::new(store),
        crate::fixture::key(),
        &path.join("audit.head"),
    )
    .await
    .unwrap();
    let writers: Vec<_> = (0..6)
        .map(|writer: u64| {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                for n in 0_u64.. {
                    let operation = ledger.start(exec(&format!("{writer} {n}"))).await.unwrap();
                    let id = operation.id();
                    println!("begun {id}");
                    tokio::time::sleep(Duration::from_micros(writer * 150)).await;
                    operation.end(done(), vec![], vec![]).await.unwrap();
                    println!("ended {id}");
                    if n % 50 == 49 && writer == 0 {
                        let _ = ledger.cleanup(0, None).await;
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

/// Starts the other process, lets it write a while, kills it, and says what it was told: whether each
/// operation ended.
fn write_and_be_killed(path: &Path, patience: Duration) -> BTreeMap<OperationId, bool> {
    let mut child = again("crash::the_other_process", OTHER, path).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BTreeMap::new();
    let mut begun: Option<Instant> = None;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut take = |line: &str| match line.split_once(' ') {
        Some(("begun", id)) => drop(id.parse().map(|id| told.insert(id, false))),
        Some(("ended", id)) => drop(id.parse().map(|id| told.insert(id, true))),
        _ => {}
    };
    while let Some(Ok(line)) = lines.next() {
        take(&line);
        if line.starts_with("begun") && begun.get_or_insert_with(Instant::now).elapsed() > patience {
            break;
        }
    }
    child.kill().unwrap();
    lines.map_while(Result::ok).for_each(|line| take(&line));
    child.wait().unwrap();
    told
}

#[tokio::test]
async fn a_killed_server_leaves_a_whole_chain() {
    let folder = Folder::new();
    let mut all = BTreeMap::new();
    for round in 0..8 {
        let told = write_and_be_killed(folder.path(), Duration::from_millis(15 + 29 * round));
        assert!(!told.is_empty(), "nothing was written in round {round}");
        sound(folder.verify().await);
        let trail = folder.open().await;
        assert_eq!(trail.opened.evidence, vec![], "being killed is no tampering");
        for (id, ended) in &told {
            let found =
                trail.store.audit_operation(*id).await.unwrap().unwrap_or_else(|| panic!("{id} is gone"));
            assert!(!ended || found.end.is_some(), "the end of {id} is gone");
        }
        let open = trail.opened.open.len() as u64;
        assert_eq!(trail.ledger.sweep(&[]).await.unwrap(), open);
        for id in &trail.opened.open {
            let end = trail.store.audit_operation(*id).await.unwrap().unwrap().end.unwrap();
            assert_eq!(end.facts.outcome, Outcome::Lost);
        }
        all.extend(told);
        trail.close().await;
        let report = sound(folder.verify().await);
        assert_eq!(report.open, 0);
        assert!(report.operations >= all.len() as u64);
    }
}
