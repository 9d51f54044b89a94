//! Runs: the agent at work in a thread, from an input to an answer.

use super::{Message, Metadata, ThreadId};
use crate::{AssistantId, ErrorCode, KeyId, Millis, RunId, Scope, Sealed, ThreadCheckpointId, names};
use serde::{Deserialize, Serialize};
use serde_json::Value;

names!(
    /// How a run stands.
    RunStatus {
        /// It waits for another run of its thread.
        Pending = "pending",
        /// It is carried out.
        Running = "running",
        /// It failed.
        Error = "error",
        /// It ended with an answer, or with a budget used up.
        Success = "success",
        /// Its time was up.
        Timeout = "timeout",
        /// It was cancelled, or waits for approval.
        Interrupted = "interrupted",
    }
);

impl RunStatus {
    /// Whether it has not ended.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

names!(
    /// What becomes of a new run of a thread that has one under way.
    MultitaskStrategy {
        /// The new one is refused.
        Reject = "reject",
        /// The new one waits.
        Enqueue = "enqueue",
        /// The one under way is cancelled; what it did stays.
        Interrupt = "interrupt",
        /// The one under way is cancelled and its checkpoints are removed.
        Rollback = "rollback",
    }
);

names!(
    /// Why a run ended.
    StopReason {
        /// The model answered.
        Answered = "answered",
        /// The model was asked as often as the run may.
        Iterations = "max_iterations",
        /// The run has used the tokens that it may.
        Tokens = "max_tokens",
        /// The run has taken the time that it may.
        Time = "max_seconds",
        /// A request cancelled it.
        Cancelled = "cancelled",
        /// It waits for approval.
        Approval = "approval",
        /// It failed.
        Failed = "failed",
    }
);

names!(
    /// Which tools need approval before they are called.
    ApprovalRule {
        /// None.
        None = "none",
        /// All.
        All = "all",
        /// Those that change what is in a session, or end one; not those that make an empty one or copy files out.
        Write = "write",
        /// Those that may reach the network.
        Network = "network",
    }
);

/// What a run may use. What is left out is as the server has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunBudget {
    /// How often the model is asked.
    pub iterations: Option<u32>,
    /// Tokens of all requests together.
    pub tokens: Option<u64>,
    /// Seconds.
    pub seconds: Option<u64>,
}

/// What a run begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RunInput {
    /// Messages are added to the thread, and other values set; with neither, the run goes on where its thread stands.
    Messages {
        /// Those of an id that the thread has replace theirs.
        messages: Vec<Message>,
        /// Other values of the thread's state.
        #[serde(default)]
        values: Metadata,
    },
    /// The decision about interrupts: `true`, `"approve"`, `"refuse"`, an object such as `{"type": "edit", "args": {…}}`,
    /// a list with one for each interrupt, or an object by interrupts' ids.
    Resume {
        /// As the client sent it.
        value: Value,
    },
}

impl RunInput {
    /// Whether it adds nothing: the run goes on where its thread stands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Messages { messages, values } if messages.is_empty() && values.is_empty())
    }
}

names!(
    /// Why a model did not answer.
    ModelFault {
        /// No model, or no place of it, is set.
        NotSet = "model_not_set",
        /// The key is missing or wrong.
        InvalidKey = "invalid_api_key",
        /// The provider has no such model.
        UnknownModel = "unknown_model",
        /// The conversation is longer than the model's window.
        ContextTooLong = "context_too_long",
        /// The account has no credit.
        NoCredit = "no_credit",
        /// Too many requests.
        RateLimited = "rate_limited",
        /// The provider failed.
        ProviderDown = "provider_down",
        /// Nothing answers at the base URL.
        ProviderUnreachable = "provider_unreachable",
        /// The base URL leads to an address that owners may not use.
        BaseUrlRefused = "base_url_refused",
        /// The answer stopped before its end.
        AnswerCut = "answer_cut",
        /// The answer was larger than one may be.
        AnswerTooLarge = "answer_too_large",
        /// The provider refused the request.
        RequestRefused = "request_refused",
        /// The provider's answer cannot be read.
        AnswerUnreadable = "answer_unreadable",
    }
);

/// Why a run failed: by its model, or by this server. No two have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RunFailureCode {
    /// The model did not answer.
    Model(ModelFault),
    /// An operation of the server failed.
    Server(ErrorCode),
}

impl RunFailureCode {
    /// Its name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model(fault) => fault.as_str(),
            Self::Server(code) => code.as_str(),
        }
    }
}

/// What a failed run says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFailure {
    /// Why, for programs.
    pub code: RunFailureCode,
    /// What happened and what to do, for people.
    pub message: String,
}

/// A run that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Which.
    pub id: RunId,
    /// Its owner.
    pub owner: String,
    /// The owner's display name.
    pub owner_name: String,
    /// Its thread.
    pub thread: ThreadId,
    /// Its assistant.
    pub assistant: AssistantId,
    /// The key that asked for it; none where the server was started without keys.
    pub key: Option<KeyId>,
    /// What that key allowed.
    pub scope: Scope,
    /// The key's tier; an admin has none.
    pub tier: Option<String>,
    /// What the client keeps with it.
    pub metadata: Metadata,
    /// What it begins with.
    pub input: RunInput,
    /// The client's request as it is shown again, without keys.
    pub kwargs: Metadata,
    /// The model's settings of this run, with its key: sealed.
    pub sealed: Sealed,
    /// What becomes of it where the thread has a run under way.
    pub multitask: MultitaskStrategy,
    /// The checkpoint that it goes on from; the thread's head where left out.
    pub from: Option<ThreadCheckpointId>,
    /// Whether its thread is deleted with its end.
    pub stateless: bool,
    /// Not before this time.
    pub not_before: Millis,
    /// When it was asked for.
    pub created_at: Millis,
}

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// As it was asked for.
    pub new: NewRun,
    /// How it stands.
    pub status: RunStatus,
    /// How often it was begun: more than once where the server restarted meanwhile.
    pub attempts: u32,
    /// How often the model was asked.
    pub iterations: u32,
    /// The tokens that it used.
    pub tokens: u64,
    /// Why it ended.
    pub stopped: Option<StopReason>,
    /// Why it failed.
    pub failure: Option<RunFailure>,
    /// When it was first carried out.
    pub started_at: Option<Millis>,
    /// When it last changed.
    pub updated_at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_a_failure_is_kept_by_its_name() {
        let models = ModelFault::ALL.iter().map(|fault| RunFailureCode::Model(*fault));
        let servers = ErrorCode::ALL.iter().map(|code| RunFailureCode::Server(*code));
        for code in models.chain(servers) {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(text, format!("{:?}", code.as_str()));
            assert_eq!(serde_json::from_str::<RunFailureCode>(&text).unwrap(), code);
        }
        assert!(serde_json::from_str::<RunFailureCode>("\"other\"").is_err());
    }
}
