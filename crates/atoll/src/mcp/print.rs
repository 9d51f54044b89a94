//! The configuration of MCP clients that makes them start this program.

use crate::cli::{self, McpClient};
use atoll_types::{Error, Result};
use serde_json::{Map, Value, json};

/// The configuration block of a client, for the given server or for an engine of its own.
pub(super) fn config(client: McpClient, options: &cli::Mcp) -> Result<String> {
    let program =
        std::env::current_exe().map_err(|e| Error::internal(format!("where is this program? {e}")))?;
    let root = rustix::process::geteuid().is_root();
    Ok(block(client, &program.to_string_lossy(), root, options))
}

fn block(client: McpClient, program: &str, root: bool, options: &cli::Mcp) -> String {
    let server = options.server.as_deref().filter(|url| !url.is_empty());
    let mut words: Vec<Value> = vec![program.into(), "mcp".into()];
    // An engine of its own needs root; clients are started by people.
    if server.is_none() && !root {
        words.splice(0..0, [Value::from("sudo"), "-n".into()]);
    }
    if let Some(url) = server {
        words.extend(["--server".into(), url.into()]);
    }
    if options.extra_tools {
        words.push("--extra-tools".into());
    }
    let mut about = Map::new();
    if client == McpClient::Vscode {
        about.insert("type".into(), "stdio".into());
    }
    about.insert("command".into(), words.remove(0));
    about.insert("args".into(), words.into());
    if server.is_some() {
        // A key belongs into a file that others cannot read; VS Code can prompt for it.
        let key = if client == McpClient::Vscode { "${input:atoll-key}" } else { "your key" };
        about.insert("env".into(), json!({ "ATOLL_API_KEY": key }));
    }
    let whole = match client {
        McpClient::ClaudeDesktop | McpClient::Cursor => json!({ "mcpServers": { "atoll": about } }),
        McpClient::Vscode => {
            let mut whole = Map::new();
            if server.is_some() {
                let input = json!({ "type": "promptString", "id": "atoll-key", "description": "Atoll API key", "password": true });
                whole.insert("inputs".into(), json!([input]));
            }
            whole.insert("servers".into(), json!({ "atoll": about }));
            whole.into()
        }
    };
    serde_json::to_string_pretty(&whole).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn printed(client: McpClient, root: bool, arguments: &[&str]) -> Value {
        let all = ["atoll", "mcp", "--server", ""].iter().chain(arguments);
        let cli::Command::Mcp(options) = cli::Cli::parse_from(all).command else { unreachable!() };
        serde_json::from_str(&block(client, "/opt/atoll/atoll", root, &options)).unwrap()
    }

    #[test]
    fn each_client_has_its_own_shape() {
        let claude = printed(McpClient::ClaudeDesktop, true, &[]);
        assert_eq!(
            claude,
            json!({ "mcpServers": { "atoll": { "command": "/opt/atoll/atoll", "args": ["mcp"] } } })
        );
        assert_eq!(printed(McpClient::Cursor, true, &[]), claude);
        let code = printed(McpClient::Vscode, false, &["--extra-tools"]);
        let wanted = json!({ "type": "stdio", "command": "sudo", "args": ["-n", "/opt/atoll/atoll", "mcp", "--extra-tools"] });
        assert_eq!(code, json!({ "servers": { "atoll": wanted } }));
    }

    #[test]
    fn a_server_elsewhere_needs_a_key_and_no_root() {
        let url = ["--server", "https://atoll.example.com"];
        let all = |client| {
            let cli::Command::Mcp(options) =
                cli::Cli::parse_from(["atoll", "mcp"].iter().chain(&url)).command
            else {
                unreachable!()
            };
            serde_json::from_str::<Value>(&block(client, "/opt/atoll/atoll", false, &options)).unwrap()
        };
        let cursor = &all(McpClient::Cursor)["mcpServers"]["atoll"];
        assert_eq!(cursor["command"], "/opt/atoll/atoll");
        assert_eq!(cursor["args"], json!(["mcp", "--server", "https://atoll.example.com"]));
        assert!(cursor["env"]["ATOLL_API_KEY"].is_string());
        let code = all(McpClient::Vscode);
        assert_eq!(code["inputs"][0]["id"], "atoll-key");
        assert_eq!(code["servers"]["atoll"]["env"]["ATOLL_API_KEY"], "${input:atoll-key}");
    }
}
