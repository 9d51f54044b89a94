//! The server, and the key for it.

use crate::Failure;
use atoll_client::Client;
use clap::Args;
use std::{convert::Infallible, fmt, str::FromStr};

/// Options of every command for a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    // Not with clap's `env`: of an argument that a variable gives, usage lines of errors say that it must be given.
    /// Where the server is [env: ATOLL_URL] [default: http://127.0.0.1:7300]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The key to ask with; the environment keeps it out of sight of other users [env: ATOLL_API_KEY]
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Option<Secret>,
    /// Print the server's JSON, and errors as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DEFAULT_URL: &str = "http://127.0.0.1:7300";

/// A secret text.
#[derive(Clone)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl FromStr for Secret {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl Secret {
    /// Its value; none where it is empty.
    pub(crate) fn value(&self) -> Option<&str> {
        Some(self.0.trim()).filter(|key| !key.is_empty())
    }
}

impl Server {
    /// A client of it. An empty variable counts as not set.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        let url = self.url.clone().or_else(|| variable("ATOLL_URL")).filter(|url| !url.is_empty());
        let key = self.api_key.clone().or_else(|| variable("ATOLL_API_KEY").map(Secret));
        Ok(Client::new(url.as_deref().unwrap_or(DEFAULT_URL), key.as_ref().and_then(Secret::value))?)
    }
}
