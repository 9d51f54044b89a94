//! Minimal MCP clients: over a pipe and over HTTP; and the bare interpreter as the baseline.

use crate::{
    Result,
    http::Client,
    instance::keep,
    server::{Server, program},
};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

fn initialize() -> Value {
    json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a benchmark", "version": "1" } })
}

/// Calls tools.
pub(super) trait Speaks {
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value>;

    async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await?;
        let result = &answer["result"];
        match result["isError"] == false {
            true => Ok(result["structuredContent"].clone()),
            false => Err(format!("{tool} went wrong: {answer}").into()),
        }
    }

    async fn create(&mut self) -> Result<String> {
        let made = self.call("create_session", json!({})).await?;
        Ok(made["session_id"].as_str().ok_or("a session without an id")?.to_owned())
    }

    async fn execute(&mut self, session: &str, code: &str) -> Result<()> {
        let ran = self.call("execute_code", json!({ "session_id": session, "code": code })).await?;
        match ran["result"]["text/plain"] == "2" {
            true => Ok(()),
            false => Err(format!("{code} is {ran}").into()),
        }
    }

    async fn stop(&mut self, session: &str) -> Result<()> {
        self.call("stop_session", json!({ "session_id": session })).await.map(drop)
    }
}

/// Lines to a process, and lines back.
struct Lines {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Lines {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let stdin = child.stdin.take().ok_or("a process without input")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("a process without output")?);
        Ok(Self { child, stdin, stdout })
    }

    async fn send(&mut self, line: &str) -> Result<()> {
        self.stdin.write_all(line.as_bytes()).await?;
        self.stdin.write_all(b"\n").await?;
        Ok(self.stdin.flush().await?)
    }

    async fn read(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line).await? {
            0 => Err("a process broke off".into()),
            _ => Ok(line),
        }
    }
}

/// `atoll mcp`.
pub(super) struct Piped {
    lines: Lines,
    next: u64,
    folder: tempfile::TempDir,
}

impl Piped {
    pub(super) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("atoll-bench-mcp-").tempdir()?;
        let mut command = Command::new(program()?);
        command
            .args(["mcp", "--set", "warm_pool_enabled=false", "--data-dir"])
            .arg(folder.path().join("runs"));
        command.env_remove("ATOLL_URL").env("XDG_STATE_HOME", folder.path().join("state"));
        command.env("ATOLL_EGRESS_ASK_INDEXES", "false");
        let mut piped = Self { lines: Lines::start(&mut command)?, next: 0, folder };
        piped.ask("initialize", initialize()).await?;
        piped.lines.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
        Ok(piped)
    }

    /// Closes its input, after which nothing of it may be left.
    pub(super) async fn end(self) -> Result<()> {
        let Self { lines: Lines { mut child, stdin, stdout: _ }, next: _, mut folder } = self;
        drop(stdin);
        let status = child.wait().await?;
        let runs =
            folder.path().join("runs").read_dir()?.flatten().filter(|entry| entry.path().is_dir()).count();
        if status.success() && runs == 0 {
            return Ok(());
        }
        keep(&mut folder);
        Err(format!("atoll mcp ended with {status}, and left {runs} folders").into())
    }
}

impl Speaks for Piped {
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        self.lines
            .send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
            .await?;
        loop {
            let message: Value = serde_json::from_str(&self.lines.read().await?)?;
            if message["id"] == id {
                return Ok(message);
            }
        }
    }
}

/// `/mcp` of a server.
pub(in crate::figures) struct Web {
    client: Client,
    next: u64,
}

impl Web {
    pub(in crate::figures) async fn open(server: &Server, thread: &str) -> Result<Self> {
        let mut client = server.connect().await?;
        client.say("Accept: application/json, text/event-stream");
        client.say("Content-Type: application/json");
        client.say(&format!("X-Thread-Id: {thread}"));
        let begin = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": initialize() });
        let answer = client.ask("POST", "/mcp", &begin.to_string()).await?;
        let session = answer.session.clone().ok_or("no MCP session began")?;
        answer.expect(200)?;
        client.say(&format!("Mcp-Session-Id: {session}"));
        let told =
            client.ask("POST", "/mcp", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await?;
        told.expect(202)?;
        Ok(Self { client, next: 0 })
    }

    /// Opens the stream of the server's own messages, and leaves the connection to it.
    pub(in crate::figures) async fn listen(&mut self) -> Result<()> {
        self.client.open("/mcp").await
    }
}

impl Speaks for Web {
    async fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.next += 1;
        let id = self.next;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        let body = self.client.ask("POST", "/mcp", &message).await?.expect(200)?;
        let text = String::from_utf8(body)?;
        // One message is JSON; several are events.
        let data = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
        let messages = data.map(serde_json::from_str::<Value>);
        let found = messages.filter_map(Result::ok).find(|message| message["id"] == id);
        found.ok_or_else(|| format!("no answer: {text}").into())
    }
}

/// A bare interpreter that answers lines.
pub(super) struct Bare(Lines);

impl Bare {
    pub(super) async fn start() -> Result<Self> {
        let code = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)";
        let mut bare = Self(Lines::start(Command::new("/usr/bin/python3").args(["-u", "-c", code]))?);
        bare.ask("1+1").await?;
        Ok(bare)
    }

    pub(super) async fn ask(&mut self, code: &str) -> Result<()> {
        self.0.send(code).await?;
        match self.0.read().await?.trim() == "2" {
            true => Ok(()),
            false => Err("a bare interpreter cannot add".into()),
        }
    }
}
