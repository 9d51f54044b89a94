//! The server, and the key for it.

use crate::Failure;
use atoll_client::Client;
use clap::Args;
use std::{convert::Infallible, fmt, str::FromStr};

/// Options of every command for a server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    /// Where the server is
    #[arg(long, value_name = "URL", env = "ATOLL_URL", default_value = DEFAULT_URL)]
    pub(crate) url: String,
    /// The key to ask with; the environment keeps it out of sight of other users
    #[arg(long, value_name = "KEY", env = "ATOLL_API_KEY", hide_env_values = true)]
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
        let url = if self.url.is_empty() { DEFAULT_URL } else { &self.url };
        let key = self.api_key.as_ref().and_then(Secret::value);
        Ok(Client::new(url, key)?)
    }
}
