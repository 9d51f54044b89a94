//! `atoll audit verify` on a data folder without a server, and on one that is being written to.

use atoll_audit::{AuditKey, Ledger};
use atoll_store::{Begin, End, Outcome};
use atoll_store_sqlite::SqliteStore;
use std::{fs, path::Path, process::Command, sync::Arc};

fn verify(data: &Path, more: &[&str]) -> (Option<i32>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["audit", "verify", "--data-dir"])
        .arg(data)
        .args(more)
        .env_clear()
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap();
    (ran.status.code(), said)
}

struct Trail {
    store: SqliteStore,
    ledger: Ledger,
}

async fn open(data: &Path) -> Trail {
    let server = data.join("server");
    fs::create_dir_all(&server).unwrap();
    fs::write(server.join("secret.key"), [7; 32]).unwrap();
    let store = SqliteStore::open(&server.join("atoll.db")).await.unwrap();
    let key = AuditKey::from_secret(&[7; 32]);
    let (ledger, _) = Ledger::open(Arc::new(store.clone()), key, &server.join("audit.head")).await.unwrap();
    for _ in 0..3 {
        let operation = ledger.start(Begin::default()).await.unwrap();
        operation.end(End::new(Outcome::Ok, 1), vec![], vec![]).await.unwrap();
    }
    Trail { store, ledger }
}

#[tokio::test]
async fn the_trail_is_verified_where_it_lies() {
    let data = tempfile::tempdir().unwrap();
    let trail = open(data.path()).await;
    let (code, said) = verify(data.path(), &[]);
    assert_eq!(
        (code, said.starts_with("sound: rows 1 to 7, 3 operations, 0 of them")),
        (Some(0), true),
        "{said}"
    );
    trail.ledger.close().await;
    trail.store.close().await;
    let (code, said) = verify(data.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    // What it printed can be noted and compared later.
    let noted = said.lines().find_map(|line| line.split_once("--expect ")).unwrap().1.to_owned();
    assert!(noted.starts_with("7:"));
    let trail = open(data.path()).await;
    trail.ledger.close().await;
    trail.store.close().await;
    assert_eq!(verify(data.path(), &["--expect", &noted]).0, Some(0));
    let other = format!("7:{}", "0".repeat(64));
    let (code, said) = verify(data.path(), &["--expect", &other]);
    assert_eq!((code, said.contains("changed at row 7")), (Some(1), true), "{said}");
}

#[tokio::test]
async fn what_cannot_be_told_is_not_called_sound() {
    let data = tempfile::tempdir().unwrap();
    assert_eq!(verify(data.path(), &[]).0, Some(2), "nothing there");
    assert!(fs::read_dir(data.path()).unwrap().next().is_none(), "and nothing was made");
    let trail = open(data.path()).await;
    trail.ledger.close().await;
    trail.store.close().await;
    for wrong in ["7", "x:00", "7:zz"] {
        let (code, said) = verify(data.path(), &["--expect", wrong]);
        assert_eq!((code, said.contains("--expect")), (Some(2), true), "{said}");
    }
    let server = data.path().join("server");
    fs::write(server.join("audit.head"), "x").unwrap();
    let (code, said) = verify(data.path(), &[]);
    assert_eq!((code, said.contains("NOT SOUND: head_forged")), (Some(1), true), "{said}");
    fs::remove_file(server.join("secret.key")).unwrap();
    assert_eq!(verify(data.path(), &[]).0, Some(2), "no secret");
    assert!(!server.join("secret.key").exists());
}
