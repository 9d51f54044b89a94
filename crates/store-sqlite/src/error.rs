//! Maps SQLite's result codes to the store's errors. The driver's texts go into the source and nowhere else.

use atoll_store::{Clash, Outage, StoreError};

/// Turns a driver's error into the store's; `doing` names the action of an internal error.
pub(crate) fn failed(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| classify(doing, error)
}

fn classify(doing: &'static str, error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::Database(told) if told.is_unique_violation() => StoreError::Conflict(Clash::Taken),
        sqlx::Error::Database(told) => {
            let code = told.code().and_then(|code| code.parse().ok()).unwrap_or(0);
            match meaning(code) {
                Meaning::Outage(outage) => StoreError::Unavailable(outage, error.into()),
                Meaning::Damage(what) => StoreError::Corrupt(what.into(), Some(error.into())),
                Meaning::Fault => StoreError::Internal(doing, error.into()),
            }
        }
        sqlx::Error::PoolTimedOut => StoreError::Unavailable(Outage::Busy, error.into()),
        sqlx::Error::Io(_) => StoreError::Unavailable(Outage::Failing, error.into()),
        sqlx::Error::ColumnDecode { index, .. } => {
            StoreError::Corrupt(format!("a {index} cannot be read"), Some(error.into()))
        }
        _ => StoreError::Internal(doing, error.into()),
    }
}

enum Meaning {
    Outage(Outage),
    Damage(&'static str),
    Fault,
}

// https://sqlite.org/rescode.html; the low byte is the primary code.
const IOERR_SHMSIZE: i32 = 10 | (19 << 8);

fn meaning(code: i32) -> Meaning {
    match (code, code & 0xff) {
        // The shared memory beside the log could not grow: the same full disk, by another name.
        (IOERR_SHMSIZE, _) | (_, 13) => Meaning::Outage(Outage::DiskFull),
        (_, 5 | 6) => Meaning::Outage(Outage::Busy),
        (_, 3 | 8 | 14 | 23) => Meaning::Outage(Outage::NoAccess),
        (_, 10) => Meaning::Outage(Outage::Failing),
        (_, 11) => Meaning::Damage("its pages do not fit together"),
        (_, 26) => Meaning::Damage("the file is no database"),
        _ => Meaning::Fault,
    }
}
