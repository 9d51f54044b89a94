//! Finding files and lines.

use super::{
    lines::{Lines, believable},
    tool::ToolOptions,
};
use crate::{
    Caller, Files, HeldAnswer,
    operation::{AuditedOperation, OperationSpec},
};
use atoll_guest_tools::{End, Find, FindLine, Found, Grep, GrepLine, LONGEST_LINE, MOST_OUTPUT, Match};
use atoll_provider::{Container, about_path};
use atoll_store::SandboxId;
use atoll_types::{Error, ErrorCode, Operation, Result};
use std::{sync::Arc, time::Duration};

const TIMEOUT: Duration = Duration::from_secs(60);

/// What was found.
#[derive(Debug)]
pub struct Findings {
    /// By path.
    pub entries: Vec<Found>,
    /// How it ended.
    pub end: End,
    /// The entries' part of what the owner's answers may hold.
    pub held: HeldAnswer,
}

/// Lines that were found.
#[derive(Debug)]
pub struct Matches {
    /// By path and line.
    pub matches: Vec<Match>,
    /// How it ended.
    pub end: End,
    /// The matches' part of what the owner's answers may hold.
    pub held: HeldAnswer,
}

/// Bytes that an answer may still have, and what it holds.
struct Room {
    left: usize,
    held: HeldAnswer,
}

impl Room {
    fn new(held: HeldAnswer) -> Self {
        Self { left: MOST_OUTPUT + LONGEST_LINE, held }
    }

    /// Counts an item that was read of so many bytes. False where the tool exceeds its own limit; refused where
    /// the owner's answers have no room for it.
    fn take<T>(&mut self, bytes: usize) -> Result<bool> {
        self.left = self.left.saturating_sub(bytes);
        if self.held.grow(bytes + size_of::<T>()) {
            return Ok(self.left > 0);
        }
        let message =
            "your answers that are not yet read leave no room for this one; read them first, or ask for less";
        Err(Error::new(ErrorCode::LimitExceeded, message).fact("limit", "http.owner_answers_mb"))
    }
}

impl Files {
    /// Entries of a folder and all below it.
    pub async fn find(&self, caller: &Caller, id: SandboxId, request: &Find) -> Result<Findings> {
        request.check()?;
        let held = self.answers.hold(&caller.owner)?;
        let container = self.reach(caller, id, &[&request.path]).await?;
        let found = self.find_in(id, &container, request, held).await;
        found.map_err(|e| about_path(e, &request.path))
    }

    /// Lines of files that match.
    pub async fn grep(&self, caller: &Caller, id: SandboxId, request: &Grep) -> Result<Matches> {
        request.check()?;
        // Lines of files are given out, so it is a read as any other.
        let what =
            OperationSpec::to(Operation::FileGrep, id).with(&request.path).and("pattern", &request.pattern);
        let held = self.answers.hold(&caller.owner)?;
        let audited = self.operations.audited(caller, what).await?;
        let result = self.grep_in(id, &audited, request, held).await;
        audited.done(result.map_err(|e| about_path(e, &request.path))).await
    }

    async fn grep_in(
        &self,
        id: SandboxId,
        audited: &AuditedOperation,
        request: &Grep,
        held: HeldAnswer,
    ) -> Result<Matches> {
        let container = self.reach_in(audited, &[&request.path]).await?;
        let options = ToolOptions { timeout: Some(TIMEOUT), ..ToolOptions::default() };
        let mut lines = Lines::new(self.start_tool(id, &container, "grep", request, options).await?);
        let (mut matches, mut room) = (Vec::new(), Room::new(held));
        while let Some((line, length)) = lines.next().await? {
            match line {
                GrepLine::End(end) => return lines.finish(Matches { matches, end, held: room.held }).await,
                GrepLine::Match(_) if matches.len() >= request.max_matches as usize => break,
                GrepLine::Match(found) => {
                    if !room.take::<Match>(length)? {
                        break;
                    }
                    believable(&found.path)?;
                    matches.push(found);
                }
            }
        }
        lines.refuse()
    }

    async fn find_in(
        &self,
        id: SandboxId,
        container: &Arc<dyn Container>,
        request: &Find,
        held: HeldAnswer,
    ) -> Result<Findings> {
        let options = ToolOptions { timeout: Some(TIMEOUT), ..ToolOptions::default() };
        let mut lines = Lines::new(self.start_tool(id, container, "find", request, options).await?);
        let (mut entries, mut room) = (Vec::new(), Room::new(held));
        while let Some((line, length)) = lines.next().await? {
            match line {
                FindLine::End(end) => return lines.finish(Findings { entries, end, held: room.held }).await,
                FindLine::Entry(_) if entries.len() >= request.limit as usize => break,
                FindLine::Entry(entry) => {
                    if !room.take::<Found>(length)? {
                        break;
                    }
                    believable(&entry.path)?;
                    entries.push(Found { mode: entry.mode & 0o7777, ..entry });
                }
            }
        }
        lines.refuse()
    }
}
