//! Moving everything from one database to another, table by table. Both have the tables below with these columns, whatever
//! a database calls their types; what only finds rows faster is not among them. A table comes after those that it refers to.
//!
//! The order of rows is that of their making, because that order shows where nothing else decides.

use crate::Result;
use async_trait::async_trait;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Flag,
    Text,
    Bytes,
    /// A text that a database may store as its bytes.
    Path,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Null,
    Integer(i64),
    Flag(bool),
    Text(String),
    Bytes(Vec<u8>),
}

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Kind)],
    /// By which its rows are sorted; nothing where no column says when a row was made.
    pub order: &'static str,
    /// Whether the database numbers its rows by `seq`.
    pub numbered: bool,
}

/// Where rows go.
#[async_trait]
pub trait RowSink: Send {
    /// Takes rows of a table, each with its columns in their order. Those of a table come together.
    async fn take(&mut self, table: &'static Table, rows: Vec<Vec<Cell>>) -> Result<()>;
}

/// A transaction that fills an empty database. Dropped, it leaves nothing.
#[async_trait]
pub trait Import: RowSink {
    /// Commits, and waits for the disk.
    async fn finish(self: Box<Self>) -> Result<()>;
}

/// A database that can be moved.
#[async_trait]
pub trait Transfer: Send + Sync {
    /// Gives away every row, all of them from one moment.
    async fn export(&self, to: &mut dyn RowSink) -> Result<()>;
    /// Begins to fill this database; `None` where it has rows.
    async fn import(&self) -> Result<Option<Box<dyn Import>>>;
}

use Kind::{Bytes, Flag, Integer, Path, Text};

macro_rules! table {
    ($name:literal, $numbered:literal, $order:literal, [$($column:literal $kind:ident),+ $(,)?]) => {
        Table { name: $name, columns: &[$(($column, $kind)),+], order: $order, numbered: $numbered }
    };
}

/// Every table.
pub const TABLES: &[Table] = &[
    table!("keys", true, "seq", [
        "seq" Integer, "id" Bytes, "hash" Bytes, "name" Text, "owner" Text, "owner_name" Text, "scope" Text, "tier" Text,
        "prefix" Text, "created_at" Integer, "expires_at" Integer, "revoked_at" Integer, "last_used_at" Integer,
    ]),
    table!("console_sessions", false, "created_at, hash", [
        "hash" Bytes, "key" Bytes, "created_at" Integer, "expires_at" Integer,
    ]),
    table!("settings", false, "name", ["name" Text, "value" Text]),
    table!("sandboxes", true, "seq", [
        "seq" Integer, "id" Bytes, "owner" Text, "owner_name" Text, "status" Text, "status_reason" Text,
        "idle_pause" Flag, "death" Text, "start_due" Flag, "image" Text, "provider" Text, "profile" Text, "container" Bytes, "volume" Bytes, "limits" Text,
        "idle_timeout_seconds" Integer, "max_lifetime_seconds" Integer, "network_enabled" Flag, "egress" Text,
        "session_key" Text, "auto_snapshot" Text, "labels" Text, "environment" Bytes, "skills" Text, "created_at" Integer,
        "last_activity_at" Integer, "stopped_at" Integer, "destroyed_at" Integer, "exec_count" Integer,
        "exec_total_ms" Integer, "bytes_uploaded" Integer, "bytes_downloaded" Integer, "activity_count" Integer,
        "revision" Integer, "search" Text,
    ]),
    table!("labels", false, "sandbox, name", ["sandbox" Integer, "name" Text, "value" Text]),
    table!("activities", false, "sandbox, number", [
        "sandbox" Integer, "number" Integer, "kind" Text, "at" Integer, "detail" Text, "exit_code" Integer,
        "duration_ms" Integer, "bytes" Integer,
    ]),
    table!("snapshots", true, "seq", [
        "seq" Integer, "id" Bytes, "sandbox" Integer, "kind" Text, "label" Text, "made_before" Text,
        "created_at" Integer, "size" Integer, "kernels" Text, "skills" Text, "ready" Flag,
    ]),
    table!("preview_tokens", false, "created_at, id", [
        "id" Bytes, "sandbox" Integer, "port" Integer, "created_at" Integer, "expires_at" Integer,
    ]),
    table!("volumes", false, "id", [
        "id" Bytes, "owner" Text, "owner_name" Text, "name" Text, "tenant" Text, "provider" Text, "disk_bytes" Integer,
        "created_at" Integer, "deleting" Flag,
    ]),
    table!("attachments", false, "sandbox, volume", ["sandbox" Integer, "volume" Bytes]),
    table!("images", false, "id", [
        "id" Bytes, "name" Text, "digest" Text, "provider" Text, "approved" Flag, "details" Text, "created_at" Integer,
        "last_used_at" Integer, "deleting" Flag,
    ]),
    table!("image_tags", false, "name, tag", ["name" Text, "tag" Text, "image" Bytes, "place" Integer]),
    table!("image_uses", false, "sandbox", ["sandbox" Integer, "image" Bytes]),
    table!("image_builds", true, "seq", [
        "seq" Integer, "id" Bytes, "image" Bytes, "name" Text, "tag" Text, "origin" Text, "source" Text, "owner" Text,
        "asked_by" Text, "sandbox" Bytes, "volume" Text, "state" Text, "error" Text, "created_at" Integer,
        "ended_at" Integer,
    ]),
    table!("build_steps", false, "key", [
        "key" Bytes, "image" Bytes, "provider" Text, "size_bytes" Integer, "created_at" Integer, "last_used_at" Integer,
    ]),
    table!("skills", false, "id", [
        "id" Bytes, "owner" Text, "owner_name" Text, "name" Text, "description" Text, "source" Text, "metadata" Text,
        "digest" Bytes, "package_bytes" Integer, "files" Integer, "created_at" Integer, "updated_at" Integer,
    ]),
    // By rows in their order: SQLite has no column that says it.
    table!("idempotent", false, "", [
        "owner" Text, "key" Text, "request_hash" Bytes, "attempt" Bytes, "begun_at" Integer, "status" Integer,
        "body" Bytes,
    ]),
    table!("audit_rows", false, "seq", [
        "seq" Integer, "part" Text, "operation" Bytes, "at" Integer, "mac" Bytes, "facts" Bytes, "output" Bytes,
    ]),
    table!("audit_operations", false, "seq", [
        "seq" Integer, "operation" Bytes, "at" Integer, "high" Integer, "owner" Text, "key" Bytes, "kind" Text,
        "sandbox" Bytes, "end_seq" Integer, "outcome" Text, "exit_code" Integer, "duration_us" Integer, "search" Text,
    ]),
    table!("audit_files", false, "operation, path", [
        "operation" Integer, "end_seq" Integer, "sandbox" Bytes, "path" Path,
    ]),
    table!("events", false, "id", [
        "id" Integer, "at" Integer, "owner" Text, "sandbox" Bytes, "kind" Text, "reason" Text, "data" Text,
    ]),
    table!("tool_threads", true, "seq", [
        "seq" Integer, "owner" Text, "thread" Text, "created_at" Integer, "active_at" Integer,
    ]),
    table!("tool_sessions", false, "id", [
        "id" Integer, "thread" Integer, "owner_name" Text, "sandbox" Bytes, "kernel" Bytes, "language" Text,
        "dependencies" Text, "status" Text, "reason" Text, "created_at" Integer, "active_at" Integer,
    ]),
    table!("tool_exports", false, "session, path", [
        "session" Integer, "path" Path, "folder" Flag, "size" Integer, "exported_at" Integer,
    ]),
    table!("mcp_sessions", false, "id", [
        "id" Text, "holder" Text, "owner" Text, "owner_name" Text, "thread" Text, "params" Text, "active_at" Integer,
    ]),
    table!("assistants", true, "seq", [
        "seq" Integer, "owner" Text, "id" Bytes, "version" Integer, "created_at" Integer,
    ]),
    table!("assistant_versions", false, "assistant, version", [
        "assistant" Integer, "version" Integer, "graph" Text, "name" Text, "description" Text, "config" Text,
        "context" Text, "metadata" Text, "updated_at" Integer,
    ]),
    table!("conversations", true, "seq", [
        "seq" Integer, "owner" Text, "thread" Text, "metadata" Text, "status" Text, "head" Bytes, "error" Text,
        "created_at" Integer, "updated_at" Integer,
    ]),
    table!("conversation_messages", true, "seq", ["seq" Integer, "conversation" Integer, "message" Text]),
    table!("conversation_checkpoints", true, "seq", [
        "seq" Integer, "conversation" Integer, "id" Bytes, "parent" Bytes, "run" Bytes, "step" Integer, "source" Text,
        "node" Text, "next" Text, "messages" Text, "state" Text, "interrupts" Text, "metadata" Text, "created_at" Integer,
    ]),
    table!("conversation_runs", true, "seq", [
        "seq" Integer, "conversation" Integer, "id" Bytes, "owner_name" Text, "assistant" Bytes, "key" Bytes, "scope" Text,
        "tier" Text, "metadata" Text, "input" Text, "kwargs" Text, "sealed" Bytes, "multitask" Text, "origin" Bytes,
        "stateless" Flag, "not_before" Integer, "status" Text, "attempts" Integer, "iterations" Integer, "tokens" Integer,
        "stopped" Text, "failure" Text, "started_at" Integer, "created_at" Integer, "updated_at" Integer,
    ]),
    table!("conversation_items", true, "seq", [
        "seq" Integer, "owner" Text, "namespace" Text, "key" Text, "value" Text, "created_at" Integer,
        "updated_at" Integer,
    ]),
];

/// How many bytes of rows are given away at once, about.
pub const BATCH_BYTES: usize = 4 << 20;

/// How many rows are given away at once at most.
pub const BATCH_ROWS: usize = 500;

/// About how much memory a row takes.
#[must_use]
pub fn row_bytes(row: &[Cell]) -> usize {
    row.iter()
        .map(|cell| match cell {
            Cell::Null | Cell::Integer(_) | Cell::Flag(_) => 8,
            Cell::Text(text) => text.len(),
            Cell::Bytes(bytes) => bytes.len(),
        })
        .sum()
}
