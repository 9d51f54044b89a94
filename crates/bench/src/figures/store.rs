//! Operations of the database on PostgreSQL, beside the same on SQLite. The server is started from the machine's
//! programs, on a folder and a socket of its own, and waits for the disk at every commit.

use super::Bench;
use crate::{
    Result,
    pace::{Pace, timed},
    report::{Baseline, Row},
};
use atoll_audit::{AuditKey, Ledger};
use atoll_store::{
    Begin, Change, Detail, End, Inserted, NewSandbox, Outcome, SandboxId, SandboxRecord, Status, Store,
};
use atoll_store_postgres::{Address, PostgresStore};
use atoll_store_sqlite::SqliteStore;
use atoll_types::{AutoSnapshot, Limits, Profile, ProviderName, VolumeId};
use std::{path::Path, sync::Arc};

#[path = "../../../store-postgres/tests/cluster.rs"]
mod cluster;

/// Whether the machine has PostgreSQL.
pub(super) fn can_run() -> bool {
    cluster::is_installed()
}

/// One of the two, with an audit trail.
struct Side {
    store: Arc<dyn Store>,
    ledger: Ledger,
    sandbox: SandboxRecord,
}

impl Side {
    async fn new(store: Arc<dyn Store>, head: &Path) -> Result<Self> {
        let (ledger, _) =
            Ledger::open(Arc::clone(&store) as _, AuditKey::from_secret(&[7; 32]), head).await?;
        let sandbox = insert(&*store).await?;
        Ok(Self { store, ledger, sandbox })
    }

    async fn both_rows(&self) -> Result<()> {
        let begin = Begin {
            front: "rest".into(),
            owner: "owner".into(),
            kind: "exec".into(),
            sandbox: Some(SandboxId::random()),
            detail: Detail::new("true"),
            ..Begin::default()
        };
        let operation = self.ledger.start(begin).await?;
        Ok(operation.end(End::new(Outcome::Ok, 1), Vec::new(), Vec::new()).await?)
    }

    async fn read(&self) -> Result<()> {
        self.store.sandbox(self.sandbox.id).await?;
        Ok(())
    }

    /// A sandbox is made and ended.
    async fn life(&self) -> Result<()> {
        let made = insert(&*self.store).await?;
        self.store.update_sandbox(made.id, made.revision, Change::status(Status::Destroyed)).await?;
        Ok(())
    }
}

async fn insert(store: &dyn Store) -> Result<SandboxRecord> {
    let new = NewSandbox {
        id: SandboxId::random(),
        owner: "owner".into(),
        owner_name: "Owner".into(),
        status: Status::Ready,
        image: "host".into(),
        provider: ProviderName::native(),
        profile: Profile::builtin("default").ok_or("no default profile")?,
        container: None,
        volume: VolumeId::random(),
        limits: Limits::default(),
        idle_timeout_seconds: 1800,
        max_lifetime_seconds: None,
        network_enabled: false,
        egress: r#"{"mode":"none"}"#.into(),
        session_key: None,
        auto_snapshot: AutoSnapshot::Off,
        labels: [("team".to_owned(), "a".to_owned())].into(),
        skills: Vec::new(),
        environment: atoll_store::Sealed(vec![1; 100]),
        created_at: 1_800_000_000_000,
    };
    match store.insert_sandbox(new).await? {
        Inserted::New(record) => Ok(record),
        Inserted::Existing(_) => Err("it was there".into()),
    }
}

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    if !can_run() {
        return Ok(Vec::new());
    }
    let folder = tempfile::Builder::new().prefix("atoll-bench-store-").tempdir()?;
    let cluster = cluster::Cluster::alone();
    let address = Address::parse(&cluster.url(&cluster.database()), None)?;
    let (file, postgres) =
        (SqliteStore::open(&folder.path().join("store.db")).await?, PostgresStore::open(&address).await?);
    let ours = Side::new(Arc::new(postgres.clone()), &folder.path().join("postgres.head")).await?;
    let theirs = Side::new(Arc::new(file.clone()), &folder.path().join("sqlite.head")).await?;
    let mut rows = Vec::new();
    for pace in bench.paces(100) {
        rows.push(
            row(
                "store on PostgreSQL, both audit rows",
                pace,
                async || ours.both_rows().await,
                async || theirs.both_rows().await,
            )
            .await?,
        );
        rows.push(
            row(
                "store on PostgreSQL, create and end",
                pace,
                async || ours.life().await,
                async || theirs.life().await,
            )
            .await?,
        );
        rows.push(
            row("store on PostgreSQL, read", pace, async || ours.read().await, async || theirs.read().await)
                .await?,
        );
    }
    for side in [&ours, &theirs] {
        side.ledger.close().await;
    }
    postgres.close().await;
    file.close().await;
    Ok(rows)
}

async fn row(
    name: &str,
    pace: Pace,
    ours: impl AsyncFn() -> Result<()>,
    theirs: impl AsyncFn() -> Result<()>,
) -> Result<Row> {
    let round = async || {
        pace.wait().await;
        let own = timed(ours()).await?.0;
        pace.wait().await;
        Ok(vec![own, timed(theirs()).await?.0])
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, other) = (next()?, Baseline::new("SQLite", next()?));
    Ok(Row::latency(name, pace.name, own, vec![other]))
}
