//! Databases for tests, and this program run again as another process.

use crate::cluster;
use atoll_store_postgres::{Address, Options, PostgresStore};
use std::{process::Command, time::Duration};

/// The address of a database on the shared server.
pub(crate) fn address(database: &str) -> Address {
    Address::parse(&cluster::shared().url(database), None).unwrap()
}

/// A database that a test opens more than once; and others.
pub(crate) struct Folder {
    pub(crate) database: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self { database: cluster::shared().database() }
    }

    pub(crate) fn address(&self) -> Address {
        address(&self.database)
    }

    pub(crate) async fn open(&self) -> PostgresStore {
        PostgresStore::open(&self.address()).await.unwrap()
    }

    /// An empty database.
    pub(crate) async fn fresh(&self) -> PostgresStore {
        PostgresStore::open(&address(&cluster::shared().database())).await.unwrap()
    }

    /// Runs SQL.
    pub(crate) fn tell(&self, sql: &str) -> String {
        cluster::shared().tell(&self.database, sql)
    }
}

/// For tests that wait for a lock that nobody gives up.
pub(crate) fn impatient() -> Options {
    let soon = Duration::from_millis(100);
    Options { lock_timeout: soon, turn_timeout: soon * 5, ..Options::default() }
}

/// This program again, to run one test alone, with a word in a variable that tells it that it is the other process.
pub(crate) fn again(test: &str, variable: &str, word: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(variable, word);
    command
}
