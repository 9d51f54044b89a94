//! A folder with a database and a head, and what an attacker with a pen can do to them.

use atoll_audit::{AuditKey, Fault, Ledger, Opened, Report, Verdict, verify};
use atoll_store::{Begin, Detail, End, Mac, Outcome};
use atoll_store_sqlite::SqliteStore;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};
use tempfile::TempDir;

pub(crate) fn key() -> AuditKey {
    AuditKey::from_secret(&[5; 32])
}

pub(crate) fn exec(command: &str) -> Begin {
    Begin {
        front: "rest".into(),
        owner: "ada".into(),
        kind: "exec".into(),
        detail: Detail::new(command),
        ..Begin::default()
    }
}

pub(crate) fn done() -> End {
    End { exit_code: Some(0), ..End::new(Outcome::Ok, 1500) }
}

pub(crate) struct Folder {
    dir: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("atoll.db")
    }

    pub(crate) fn head(&self) -> PathBuf {
        self.path().join("audit.head")
    }

    pub(crate) async fn open(&self) -> Trail {
        let store = SqliteStore::open(&self.database()).await.unwrap();
        let (ledger, opened) = Ledger::open(Arc::new(store.clone()), key(), &self.head()).await.unwrap();
        Trail { store, ledger, opened }
    }

    /// A trail of so many operations, each with two rows, after the one that says that it begins.
    pub(crate) async fn filled(&self, operations: u64) {
        let trail = self.open().await;
        trail.fill(operations).await;
        trail.close().await;
    }

    /// Does something to the database behind everybody's back.
    pub(crate) async fn tamper(&self, sql: &str) {
        let options = SqliteConnectOptions::new().filename(self.database());
        let mut conn = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut conn).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
        conn.close().await.unwrap();
    }

    pub(crate) async fn verify(&self) -> Verdict {
        self.verify_with(None).await
    }

    pub(crate) async fn verify_with(&self, expected: Option<(u64, Mac)>) -> Verdict {
        let store = SqliteStore::open_read_only(&self.database()).await.unwrap();
        let verdict = verify(&store, &key(), &self.head(), expected).await.unwrap();
        store.close().await;
        verdict
    }

    /// Another folder with the same files.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        for file in fs::read_dir(self.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        copy
    }
}

pub(crate) struct Trail {
    pub(crate) store: SqliteStore,
    pub(crate) ledger: Ledger,
    pub(crate) opened: Opened,
}

impl Trail {
    pub(crate) async fn fill(&self, operations: u64) {
        for n in 0..operations {
            let operation = self.ledger.start(exec(&format!("echo {n}"))).await.unwrap();
            operation.end(done(), vec![], vec![]).await.unwrap();
        }
    }

    pub(crate) async fn close(self) {
        self.ledger.close().await;
        self.store.close().await;
    }
}

pub(crate) fn sound(verdict: Verdict) -> Report {
    match verdict {
        Verdict::Sound(report) => report,
        other => panic!("not sound: {other:?}"),
    }
}

pub(crate) fn faulty(verdict: Verdict) -> Fault {
    match verdict {
        Verdict::Faulty { first, .. } => first,
        other => panic!("no fault: {other:?}"),
    }
}

/// This program again, to run one test alone, with a path in a variable that tells it that it is the other
/// process.
pub(crate) fn again(test: &str, variable: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(variable, path);
    command
}
