//! Where the database is: a file of the data folder, or PostgreSQL. The password never leaves this module in clear: what
//! it becomes part of is not shown by `Debug`.

use super::{variable, wrong};
use atoll_store_postgres::Address;
use atoll_types::Result;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The setting.
#[derive(Debug, Clone, Default)]
pub(crate) enum DatabaseConfig {
    /// A file of the data folder.
    #[default]
    File,
    /// A database of PostgreSQL.
    Postgres(Box<Address>),
}

/// The keys of the file.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) url: Option<super::HiddenUrl>,
    pub(super) password_file: Option<PathBuf>,
}

impl File {
    pub(super) fn settings(self) -> Result<DatabaseConfig> {
        let url = variable("ATOLL_DATABASE_URL").or(self.url.map(|url| url.0)).filter(|url| !url.is_empty());
        let file = variable("ATOLL_DATABASE_PASSWORD_FILE").map(PathBuf::from).or(self.password_file);
        match url {
            Some(url) => of_url("database_url", &url, file.as_deref()).map(DatabaseConfig::postgres),
            None => {
                Ok(of_reference_system(file.as_deref())?
                    .map_or(DatabaseConfig::File, DatabaseConfig::postgres))
            }
        }
    }
}

impl DatabaseConfig {
    pub(crate) fn postgres(address: Address) -> Self {
        Self::Postgres(Box::new(address))
    }

    /// What the environment says, for commands that read no configuration file.
    pub(crate) fn of_environment() -> Result<Self> {
        File::default().settings()
    }
}

/// The address of a URL; a password in a file takes the place of the one in it.
pub(crate) fn of_url(what: &'static str, url: &str, password_file: Option<&Path>) -> Result<Address> {
    if !(url.starts_with("postgres://") || url.starts_with("postgresql://")) {
        return Err(wrong(what, "expected postgres://user@host:port/database"));
    }
    let password = password_file.map(password).transpose()?;
    Address::parse(url, password.as_deref()).map_err(|why| wrong(what, why))
}

fn password(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path)
        .map_err(|e| wrong("database_password_file", format!("{}: {e}", path.display())))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// `POSTGRES_*`, as the reference system of the agent reads them. Of the environment alone: a file of a folder must not
/// decide to whose database everything is written.
fn of_reference_system(password_file: Option<&Path>) -> Result<Option<Address>> {
    let named = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let Some(host) = named("POSTGRES_HOST") else { return Ok(None) };
    let port = named("POSTGRES_PORT")
        .map(|port| port.parse().map_err(|_| wrong("POSTGRES_PORT", "expected a port")));
    let file = password_file.map(Path::to_owned).or(named("POSTGRES_PASSWORD_FILE").map(PathBuf::from));
    let secret = match file {
        Some(file) => Some(password(&file)?),
        None => named("POSTGRES_PASSWORD"),
    };
    let user = named("POSTGRES_USER").unwrap_or_else(|| "postgres".to_owned());
    let database = named("POSTGRES_DB").unwrap_or_else(|| user.clone());
    let port = port.transpose()?.unwrap_or(5432);
    Ok(Some(Address::of(&host, port, &user, secret.as_deref(), &database)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_read_and_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "hush-file\n").unwrap();
        let url = "postgres://ann:hush-url@db.example:5433/atoll";
        for password_file in [None, Some(file.path())] {
            let address = of_url("database_url", url, password_file).unwrap();
            let shown = format!("{address} {address:?} {:?}", DatabaseConfig::postgres(address.clone()));
            assert!(shown.contains("postgres://ann@db.example:5433/atoll"), "{shown}");
            assert!(!shown.contains("hush"), "{shown}");
        }
        for wrong in ["mysql://ann:hush@h/d", "postgres://ann:hush@h:port/d", "hush"] {
            let error = of_url("database_url", wrong, None).unwrap_err();
            assert!(error.message.contains("database_url") && !error.message.contains("hush"), "{error}");
        }
        assert!(of_url("database_url", url, Some(Path::new("/no/such/file"))).is_err());
    }
}
