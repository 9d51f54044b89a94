//! The database of a server, whichever it is. A data folder whose records are in PostgreSQL has a file that says so
//! (`server/database`, without a password), so that no command takes an old or an empty database for the one in use.

use crate::{
    config::{DatabaseConfig, database::of_url},
    serve,
};
use atoll_store::{Audits, Store, StoreError};
use atoll_store_postgres::PostgresStore;
use atoll_store_sqlite::SqliteStore;
use atoll_types::{Error, Result};
use std::{error::Error as _, fs, io, path::Path, sync::Arc};

/// An open one.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Database {
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match self {
            Database::Sqlite(store) => Arc::new(store.clone()),
            Database::Postgres(store) => Arc::new(store.clone()),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Database::Sqlite(store) => store.close().await,
            Database::Postgres(store) => store.close().await,
        }
    }
}

/// For the operator, who may see the details that a caller of the API may not. The source of an outage says what is the
/// matter, such as who else has the database.
pub(crate) fn plainly(error: StoreError) -> Error {
    tracing::error!(error = %error, cause = ?error.source(), "the database");
    let cause = match &error {
        StoreError::Unavailable(_, source) => format!(": {source}"),
        _ => String::new(),
    };
    Error::internal(format!("{error}{cause}"))
}

fn marker(data_dir: &Path) -> std::path::PathBuf {
    serve::folder(data_dir).join("database")
}

/// Where the records of this folder were last, if that was PostgreSQL.
fn marked(data_dir: &Path) -> Result<Option<String>> {
    match fs::read_to_string(marker(data_dir)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::internal(format!("{} cannot be read: {error}", marker(data_dir).display()))),
    }
}

/// Notes where the records are.
pub(crate) fn mark(data_dir: &Path, config: &DatabaseConfig) -> Result<()> {
    let path = marker(data_dir);
    let cannot = |e: io::Error| Error::internal(format!("{} cannot be written: {e}", path.display()));
    match config {
        DatabaseConfig::Postgres(address) => {
            let new = path.with_extension("new");
            fs::write(&new, format!("{address}\n")).and_then(|()| fs::rename(&new, &path)).map_err(cannot)
        }
        DatabaseConfig::File => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot(error)),
            _ => Ok(()),
        },
    }
}

/// Whether this folder has a database.
pub(crate) fn is_there(data_dir: &Path) -> Result<bool> {
    Ok(serve::database(data_dir).exists() || marked(data_dir)?.is_some())
}

/// The database of this folder, for commands that read no configuration file: what the environment says, or what the
/// server noted.
pub(crate) fn of(data_dir: &Path) -> Result<DatabaseConfig> {
    match DatabaseConfig::of_environment()? {
        DatabaseConfig::File => {}
        named @ DatabaseConfig::Postgres(_) => return Ok(named),
    }
    let Some(url) = marked(data_dir)? else { return Ok(DatabaseConfig::File) };
    let file = std::env::var_os("ATOLL_DATABASE_PASSWORD_FILE").filter(|path| !path.is_empty());
    of_url("server/database", &url, file.as_deref().map(Path::new)).map(DatabaseConfig::postgres)
}

/// Opens the database for a server.
pub(crate) async fn open(data_dir: &Path, config: &DatabaseConfig) -> Result<Database> {
    match config {
        DatabaseConfig::File => {
            if let Some(there) = marked(data_dir)? {
                return Err(Error::internal(format!(
                    "this data folder's records are in {there}: name it with database_url, or move them with \
                     atoll store copy --from {there} --to sqlite"
                )));
            }
            SqliteStore::open(&serve::database(data_dir)).await.map(Database::Sqlite).map_err(plainly)
        }
        DatabaseConfig::Postgres(address) => {
            let store = PostgresStore::open(address).await.map_err(plainly)?;
            let (marked, here) = (marked(data_dir)?, address.to_string());
            if marked.as_deref() != Some(&here) {
                // An audit trail that is elsewhere would be taken for one that was cut off.
                let elsewhere = marked.is_some() || serve::database(data_dir).exists();
                if elsewhere && store.last_audit_row().await.map_err(plainly)?.is_none() {
                    store.close().await;
                    return Err(Error::internal(format!(
                        "{here} is empty, and this data folder's records are elsewhere: move them with atoll store \
                         copy, or choose another folder with --data-dir"
                    )));
                }
                mark(data_dir, config)?;
            }
            Ok(Database::Postgres(store))
        }
    }
}

/// Opens the database to read only. A server may have it open.
pub(crate) async fn open_read_only(data_dir: &Path) -> Result<Database> {
    match of(data_dir)? {
        DatabaseConfig::File => {
            let opened = SqliteStore::open_read_only(&serve::database(data_dir)).await;
            opened.map(Database::Sqlite).map_err(|e| Error::internal(e.to_string()))
        }
        DatabaseConfig::Postgres(address) => {
            PostgresStore::open_read_only(&address).await.map(Database::Postgres).map_err(plainly)
        }
    }
}
