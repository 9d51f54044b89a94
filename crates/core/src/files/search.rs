//! Finding files and lines.

use super::{
    lines::{Lines, believable},
    tool::ToolOptions,
};
use crate::{
    Caller, Files,
    operation::{AuditedOperation, OperationSpec},
};
use atoll_guest_tools::{End, Find, FindLine, Found, Grep, GrepLine, LONGEST_LINE, MOST_OUTPUT, Match};
use atoll_provider::{Container, about_path};
use atoll_store::SandboxId;
use atoll_types::{Operation, Result};
use std::{sync::Arc, time::Duration};

const TIMEOUT: Duration = Duration::from_secs(60);

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// By path.
    pub entries: Vec<Found>,
    /// How it ended.
    pub end: End,
}

/// Lines that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matches {
    /// By path and line.
    pub matches: Vec<Match>,
    /// How it ended.
    pub end: End,
}

/// Bytes that an answer may still have.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize) -> bool {
        self.0 = self.0.saturating_sub(bytes);
        self.0 > 0
    }
}

impl Files {
    /// Entries of a folder and all below it.
    pub async fn find(&self, caller: &Caller, id: SandboxId, request: &Find) -> Result<Findings> {
        request.check()?;
        let container = self.reach(caller, id, &[&request.path]).await?;
        let found = self.find_in(id, &container, request).await;
        found.map_err(|e| about_path(e, &request.path))
    }

    /// Lines of files that match.
    pub async fn grep(&self, caller: &Caller, id: SandboxId, request: &Grep) -> Result<Matches> {
        request.check()?;
        // Lines of files are given out, so it is a read as any other.
        let what =
            OperationSpec::to(Operation::FileGrep, id).with(&request.path).and("pattern", &request.pattern);
        let audited = self.operations.audited(caller, what).await?;
        let result = self.grep_in(id, &audited, request).await;
        audited.done(result.map_err(|e| about_path(e, &request.path))).await
    }

    async fn grep_in(&self, id: SandboxId, audited: &AuditedOperation, request: &Grep) -> Result<Matches> {
        let container = self.reach_in(audited, &[&request.path]).await?;
        let options = ToolOptions { timeout: Some(TIMEOUT), ..ToolOptions::default() };
        let mut lines = Lines::new(self.start_tool(id, &container, "grep", request, options).await?);
        let (mut matches, mut room) = (Vec::new(), Room(MOST_OUTPUT + LONGEST_LINE));
        while let Some((line, length)) = lines.next().await? {
            match line {
                GrepLine::End(end) => return lines.finish(Matches { matches, end }).await,
                GrepLine::Match(_) if matches.len() >= request.max_matches as usize || !room.take(length) => {
                    break;
                }
                GrepLine::Match(found) => {
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
    ) -> Result<Findings> {
        let options = ToolOptions { timeout: Some(TIMEOUT), ..ToolOptions::default() };
        let mut lines = Lines::new(self.start_tool(id, container, "find", request, options).await?);
        let (mut entries, mut room) = (Vec::new(), Room(MOST_OUTPUT + LONGEST_LINE));
        while let Some((line, length)) = lines.next().await? {
            match line {
                FindLine::End(end) => return lines.finish(Findings { entries, end }).await,
                FindLine::Entry(_) if entries.len() >= request.limit as usize || !room.take(length) => break,
                FindLine::Entry(entry) => {
                    believable(&entry.path)?;
                    entries.push(Found { mode: entry.mode & 0o7777, ..entry });
                }
            }
        }
        lines.refuse()
    }
}
