//! `[langgraph]`: a second address for clients that expect the LangGraph API at a port of its own. The server's own
//! address serves it in any case; the pages that may ask are those of `mcp.allowed_origins` and of
//! `grpc.allowed_origins`.

use super::wrong;
use atoll_types::Result;
use serde::Deserialize;
use std::net::SocketAddr;

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    listen: Option<String>,
}

impl File {
    /// The second address; none where it is not named, or empty.
    pub(super) fn listen(self) -> Result<Option<SocketAddr>> {
        let named = std::env::var("ATOLL_LANGGRAPH_LISTEN").ok().or(self.listen);
        let Some(text) = named.filter(|text| !text.is_empty()) else { return Ok(None) };
        let unfit = || wrong("langgraph.listen", format!("{text:?} is no address and port"));
        text.parse().map(Some).map_err(|_| unfit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_second_address_unless_it_is_named() {
        let read = |text: &str| toml::from_str::<File>(text).unwrap().listen();
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("listen = \"\"").unwrap(), None);
        assert_eq!(read("listen = \"127.0.0.1:8000\"").unwrap(), "127.0.0.1:8000".parse().ok());
        assert!(read("listen = \"8000\"").unwrap_err().message.contains("langgraph.listen"));
    }
}
