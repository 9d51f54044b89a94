//! Commands.

use crate::{Client, Result, ServerReply, sandboxes::at};
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

/// What to run: a line for the shell, or a program and its arguments.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExecRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env_vars: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stdin_open: bool,
    /// With a stream: the command blocks while its reader is slow.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lossless: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExecResult {
    #[serde(default)]
    pub exec_id: Option<Uuid>,
    pub exit_code: i32,
    #[serde(default)]
    pub stdout: String,
    #[serde(default)]
    pub stderr: String,
    #[serde(default)]
    pub duration_ms: u64,
    #[serde(default)]
    pub timed_out: bool,
    #[serde(default)]
    pub oom_killed: bool,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub truncated: bool,
}

impl Client {
    /// Runs a command to its end. Dropping the future kills the command.
    pub async fn exec(&self, id: Uuid, request: &ExecRequest) -> Result<ServerReply<ExecResult>> {
        self.tell(Method::POST, &at(id, "/exec"), request).await
    }
}
