//! `atoll mcp`: the tools for a client that starts programs and speaks MCP over stdin and stdout. With
//! `--server`, messages are carried to that server. Without it the process has an engine of its own: it
//! becomes the supervisor ([`supervisor`]), and a second process without privilege serves ([`inside`]).

mod inside;
mod print;
mod supervisor;
mod thread;

use crate::{alone, cli};
use atoll_types::Result;
use std::io::Write;

/// Serves until the client disconnects.
pub(crate) fn start(options: &cli::Mcp) -> Result<u8> {
    if let Some(client) = options.print_config {
        // The reader may be gone, as in `… | head`.
        let _ = writeln!(std::io::stdout(), "{}", print::config(client, options)?);
        return Ok(0);
    }
    let server = options.server.as_deref().filter(|url| !url.is_empty());
    match (server, inside::part()) {
        (Some(url), _) => {
            let thread = thread::remembered(options)?;
            alone(async { Ok(atoll_cli::bridge_mcp(url, options.key.as_ref(), thread.to_string()).await) })
        }
        (None, Some(part)) => inside::serve(options, &part),
        (None, None) => supervisor::keep(options),
    }
}
