//! `atoll store copy`: moves an installation's records from one database to another, while no server has either. The audit
//! trail is verified before and after, against the same head; what fails leaves the target empty.

use crate::{
    cli,
    config::{DatabaseConfig, database::of_url},
    database::{self, Database, plainly},
    serve::{self, identity},
};
use async_trait::async_trait;
use atoll_audit::{AuditKey, Fault, Verdict};
use atoll_store::{
    StoreError,
    transfer::{Cell, Import, RowSink, TABLES, Table, Transfer},
};
use atoll_store_postgres::PostgresStore;
use atoll_store_sqlite::SqliteStore;
use atoll_types::{Error, ErrorCode, Result, passwd::User};
use std::{os::unix::fs::MetadataExt, path::Path};

/// Counts what passes through.
struct Counting {
    to: Box<dyn Import>,
    rows: u64,
}

#[async_trait]
impl RowSink for Counting {
    async fn take(&mut self, table: &'static Table, rows: Vec<Vec<Cell>>) -> Result<(), StoreError> {
        self.rows += rows.len() as u64;
        self.to.take(table, rows).await
    }
}

impl Database {
    fn transfer(&self) -> &dyn Transfer {
        match self {
            Database::Sqlite(store) => store,
            Database::Postgres(store) => store,
        }
    }
}

/// `sqlite` is the file of the data folder.
fn place(what: &'static str, text: &str, password_file: Option<&Path>) -> Result<DatabaseConfig> {
    if text == "sqlite" {
        return Ok(DatabaseConfig::File);
    }
    of_url(what, text, password_file).map(DatabaseConfig::postgres).map_err(|mut error| {
        error.message.push_str(", or sqlite for the file of the data folder");
        error
    })
}

async fn open(data_dir: &Path, place: &DatabaseConfig) -> Result<Database> {
    match place {
        DatabaseConfig::File => {
            SqliteStore::open(&serve::database(data_dir)).await.map(Database::Sqlite).map_err(plainly)
        }
        // Held by a server, it is refused.
        DatabaseConfig::Postgres(address) => {
            PostgresStore::open(address).await.map(Database::Postgres).map_err(plainly)
        }
    }
}

/// The last row of a trail and its code, where there is one; an error where it is not sound.
async fn verified(
    which: &str,
    data_dir: &Path,
    store: &Database,
    expect: Option<(u64, atoll_audit::Mac)>,
) -> Result<(u64, atoll_audit::Mac)> {
    let key = AuditKey::from_secret(&serve::secret::load(&serve::secret_key(data_dir))?);
    let head = serve::audit_head(data_dir);
    match atoll_audit::verify(&*store.store(), &key, &head, expect).await.map_err(plainly)? {
        Verdict::Sound(report) => Ok((report.last, report.mac)),
        Verdict::Faulty { first: Fault { seq, text, .. }, .. } => {
            Err(Error::internal(format!("the audit trail of the {which} is not sound at row {seq}: {text}")))
        }
        Verdict::Unsure(why) => {
            Err(Error::internal(format!("the audit trail of the {which} cannot be verified: {why}")))
        }
    }
}

/// Copies everything.
pub(crate) async fn copy(options: &cli::StoreCopy) -> Result<u8> {
    let data_dir = options.data.dir();
    let own = serve::folder(&data_dir);
    let Ok(there) = std::fs::metadata(&own) else {
        let message = format!("{} is not the data folder of a server", data_dir.display());
        return Err(Error::new(ErrorCode::NotFound, message));
    };
    // As the server's own user, or the server could not open what is written here.
    if rustix::process::geteuid().is_root() && there.uid() != 0 {
        let owner = User { uid: there.uid(), gid: there.gid() };
        return Err(identity::become_user(&owner, &data_dir, None));
    }
    let from = place("--from", &options.from, options.from_password_file.as_deref())?;
    let to = place("--to", &options.to, options.to_password_file.as_deref())?;
    if matches!((&from, &to), (DatabaseConfig::File, DatabaseConfig::File)) {
        return Err(Error::invalid("to", "--from and --to are the same database"));
    }
    if matches!(from, DatabaseConfig::File) && !serve::database(&data_dir).exists() {
        return Err(Error::new(ErrorCode::NotFound, "the data folder has no database".to_owned()));
    }
    let _only = serve::claim(&own)?;
    let source = open(&data_dir, &from).await?;
    let target = open(&data_dir, &to).await?;
    let copied = move_all(&data_dir, &source, &target).await;
    source.close().await;
    target.close().await;
    let (rows, last) = copied?;
    database::mark(&data_dir, &to)?;
    say!(
        "copied {rows} rows of {} tables; the audit trail is sound before and after, up to row {last}",
        TABLES.len()
    );
    match &to {
        DatabaseConfig::Postgres(address) => {
            say!("start the server with database_url = \"{address}\" and the password");
        }
        DatabaseConfig::File => say!("start the server without database_url"),
    }
    Ok(0)
}

async fn move_all(data_dir: &Path, source: &Database, target: &Database) -> Result<(u64, u64)> {
    let (last, mac) = verified("source", data_dir, source, None).await?;
    let Some(to) = target.transfer().import().await.map_err(plainly)? else {
        return Err(Error::new(
            ErrorCode::Conflict,
            "the target has records; only an empty database is filled",
        ));
    };
    let mut counting = Counting { to, rows: 0 };
    source.transfer().export(&mut counting).await.map_err(plainly)?;
    let Counting { to, rows } = counting;
    to.finish().await.map_err(plainly)?;
    let expect = (last > 0).then_some((last, mac));
    verified("copy", data_dir, target, expect).await?;
    Ok((rows, last))
}
