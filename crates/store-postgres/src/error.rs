//! Maps SQLSTATE codes to the store's errors. The driver's texts go into the source and nowhere else.

use atoll_store::{Clash, Outage, StoreError};

/// Turns a driver's error into the store's; `doing` names the action of an internal error.
pub(crate) fn failed(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| classify(doing, error)
}

fn classify(doing: &'static str, error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::Database(told) if told.is_unique_violation() => StoreError::Conflict(Clash::Taken),
        sqlx::Error::Database(told) => {
            let code = told.code().unwrap_or_default();
            match meaning(&code) {
                Meaning::Outage(outage) => StoreError::Unavailable(outage, error.into()),
                Meaning::Damage(what) => StoreError::Corrupt(what.into(), Some(error.into())),
                Meaning::Fault => StoreError::Internal(doing, error.into()),
            }
        }
        sqlx::Error::PoolTimedOut => StoreError::Unavailable(Outage::Busy, error.into()),
        sqlx::Error::PoolClosed | sqlx::Error::Configuration(_) => {
            StoreError::Unavailable(Outage::NoAccess, error.into())
        }
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => {
            StoreError::Unavailable(Outage::Failing, error.into())
        }
        sqlx::Error::ColumnDecode { index, .. } => {
            StoreError::Corrupt(format!("a {index} cannot be read"), Some(error.into()))
        }
        _ => StoreError::Internal(doing, error.into()),
    }
}

/// Whether the connection is gone, or of no use any more.
pub(crate) fn is_cut(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(told) => {
            told.code().is_some_and(|code| code.starts_with("08") || code.starts_with("57P"))
        }
        _ => false,
    }
}

enum Meaning {
    Outage(Outage),
    Damage(&'static str),
    Fault,
}

/// Of a code, or of its class. See appendix A of PostgreSQL's documentation.
fn meaning(code: &str) -> Meaning {
    match code {
        "53100" => return Meaning::Outage(Outage::DiskFull),
        // Too many connections; a lock that waits too long; a deadlock; a statement that was cancelled.
        "53300" | "55P03" | "40P01" | "40001" | "57014" => return Meaning::Outage(Outage::Busy),
        // A right that is missing; a database or a schema that is; a standby, which cannot be written.
        "XX001" | "XX002" => return Meaning::Damage("its files do not fit together"),
        "42501" | "3D000" | "3F000" | "25006" => return Meaning::Outage(Outage::NoAccess),
        _ => {}
    }
    match code.get(..2) {
        Some("08" | "53" | "57" | "58") => Meaning::Outage(Outage::Failing),
        Some("28") => Meaning::Outage(Outage::NoAccess),

        _ => Meaning::Fault,
    }
}
