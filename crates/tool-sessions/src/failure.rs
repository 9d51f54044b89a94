//! Failures of a call, and their replies.
//!
//! A tool never fails: every outcome is a reply of a known shape.

use crate::{Sessions, ToolCaller, ToolReply, tools::check::InputProblem, tools::output::ActiveSession};
use atoll_store::{Status, ToolSession, ToolStatus};
use atoll_types::{Error, ErrorCode};
use serde_json::json;
use std::time::Duration;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Its input is invalid.
    Invalid(Vec<InputProblem>),
    /// The session is dead.
    Died { session: String, reason: String },
    /// Something else.
    Other { error: Error, hint: Option<&'static str> },
}

pub(crate) type ToolResult = Result<ToolReply, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other { error, hint: None }
    }
}

impl From<atoll_store::StoreError> for Failure {
    fn from(error: atoll_store::StoreError) -> Self {
        Error::from(error).into()
    }
}

impl From<Vec<InputProblem>> for Failure {
    fn from(wrongs: Vec<InputProblem>) -> Self {
        Self::Invalid(wrongs)
    }
}

impl Failure {
    pub(crate) fn with_hint(error: Error, hint: &'static str) -> Self {
        Self::Other { error, hint: Some(hint) }
    }
}

/// How often to check whether a sandbox that does not answer has died.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);

impl Sessions {
    /// The reply of a result.
    pub(crate) async fn reply_of(&self, who: &ToolCaller, answer: ToolResult) -> ToolReply {
        let failure = match answer {
            Ok(reply) => return reply,
            Err(failure) => failure,
        };
        let active: Vec<ActiveSession> = self.sessions(who).await.unwrap_or_default();
        match failure {
            Failure::Invalid(wrongs) => ToolReply::invalid(&wrongs),
            Failure::Died { session, reason } => ToolReply::died(&session, &reason, &active),
            Failure::Other { error, hint } => match (&error.code, &error.field) {
                (ErrorCode::InvalidArgument, Some(field)) => {
                    ToolReply::invalid(&[InputProblem::value([json!(field)], error.message.clone())])
                }
                _ => ToolReply::failed(&error, hint, &active),
            },
        }
    }

    /// Classifies an error of the core: the session is dead, which is stored, or only the call failed.
    pub(crate) async fn failed_in(&self, session: &ToolSession, error: Error) -> Failure {
        match self.loss(session, &error).await {
            Some(reason) => self.lose(session, reason).await,
            None => error.into(),
        }
    }

    /// Marks a session as dead.
    pub(crate) async fn lose(&self, session: &ToolSession, reason: String) -> Failure {
        if let Err(error) = self.store.set_tool_session(session.id, ToolStatus::Dead, Some(&reason)).await {
            tracing::warn!(session = %session.id, %error, "that a session died cannot be remembered");
        }
        Failure::Died { session: session.id.to_string(), reason }
    }

    /// Why the session is dead, if it is.
    async fn loss(&self, session: &ToolSession, error: &Error) -> Option<String> {
        match error.code {
            // Its interpreters ended; the sandbox, with the session's files, may live.
            ErrorCode::KernelDied => self.ended(session).await,
            ErrorCode::ContainerDied => {
                Some(error.death.as_ref().map_or_else(|| error.message.clone(), atoll_types::Death::reason))
            }
            ErrorCode::NotRunning | ErrorCode::NotFound => self.ended(session).await,
            // It may be dying, and the core may not know yet.
            ErrorCode::Unavailable => {
                for _ in 0..LOOKS {
                    if let Some(reason) = self.ended(session).await {
                        return Some(reason);
                    }
                    tokio::time::sleep(BETWEEN).await;
                }
                None
            }
            _ => None,
        }
    }

    /// How a session's sandbox ended, if it did.
    pub(crate) async fn ended(&self, session: &ToolSession) -> Option<String> {
        let record = self.store.sandbox(session.sandbox).await.ok()?;
        let gone = || "its sandbox is gone".to_owned();
        let Some(record) = record else { return Some(gone()) };
        match record.status {
            Status::Stopped | Status::Dead | Status::Destroyed => {
                Some(record.status_reason.unwrap_or_else(gone))
            }
            Status::Provisioning | Status::Ready | Status::Paused => None,
        }
    }
}
