//! The six tools of a conversation, as one library over the core: a front that serves them to models parses
//! its requests into calls and sends the replies. Nothing here knows MCP or HTTP.
//!
//! A session is a sandbox of its own, known by eight digits. A thread is a conversation of an owner; it has a
//! few sessions, and their exports are for it alone. The store keeps both, so that a restarted server knows
//! them. A session is stored before its sandbox is made and until after that is destroyed.

mod call;
mod capacity;
mod code;
mod collector;
mod create;
mod export;
mod extension;
mod failure;
mod fork_thread;
mod import;
mod left;
mod paths;
mod reply;
mod stop;
mod terminal;
mod tool_caller;
pub mod tools;
mod truncate;
mod turns;
mod uploads;

pub use atoll_types::ThreadId;
pub use create::SessionStorage;
pub use export::{Export, ExportBody};
pub use fork_thread::ForkedSession;
pub use reply::{FailureKind, Image, ToolReply};
pub use tokio_util::sync::CancellationToken;
pub use tool_caller::ToolCaller;
pub use tools::{Hints, Tool, ToolDescription, describe};
pub use uploads::Uploaded;

use atoll_core::{ActivityGuard, Core, OutputLimits};
use atoll_store::{Store, ToolSession, ToolSessionId, ToolStatus};
use atoll_types::{Error, ErrorCode, Result, SandboxId, time::now_ms};
use failure::Failure;
use std::{path::PathBuf, sync::Arc};
use tools::{
    input::Runtime,
    output::{ActiveSession, DisplayOutput, SessionStatus},
};

/// The label of a session's sandbox; its value is the session's id.
pub const LABEL: &str = "atoll.tool_session";
/// The label that names the session's thread.
pub const THREAD_LABEL: &str = "atoll.thread";

/// What the operator decides for all sessions.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Seconds of code and commands whose call names no timeout.
    pub timeout_seconds: u32,
    /// How much of what code and commands write is shown.
    pub output: OutputLimits,
    /// The server's public URL, without a slash at its end; for downloads, instead of the one that the caller
    /// connected to.
    pub server_url: Option<String>,
    /// Folders of this machine from which files may be imported; none by default.
    pub import_dirs: Vec<PathBuf>,
    /// Where uploads of threads are kept. Nothing else may be in it.
    pub storage_dir: PathBuf,
    /// Whether new sessions are root inside, where the caller's tier has that profile.
    pub execute_as_root: bool,
}

/// Progress of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Packages are being installed.
    Installing,
    /// Output on stdout.
    Stdout(String),
    /// Output on stderr.
    Stderr(String),
    /// A display output.
    Display(DisplayOutput),
}

/// Receives the progress of a call.
pub type Listener<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// All tool sessions of a server. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    core: Core,
    store: Arc<dyn Store>,
    settings: Arc<SessionSettings>,
    /// Calls of one owner take slots one after the other: of two that make room the second sees the first.
    turns_of_owners: Arc<turns::Turns>,
    /// Uploads of one owner run one at a time, so that their total can be counted.
    uploading: Arc<turns::Turns>,
    left: Arc<left::LeftThreads>,
}

/// A session as the model sees it.
fn active(session: &ToolSession) -> ActiveSession {
    ActiveSession {
        session_id: session.id.to_string(),
        runtime: runtime(session),
        status: match session.status {
            ToolStatus::Starting => SessionStatus::Starting,
            ToolStatus::Running => SessionStatus::Running,
            ToolStatus::Dead => SessionStatus::Dead,
        },
    }
}

/// The runtime of a session.
fn runtime(session: &ToolSession) -> Runtime {
    serde_json::from_value(session.language.as_str().into()).unwrap_or_default()
}

/// No such session, for this thread.
fn unknown(id: &str) -> Error {
    let id: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    Error::new(ErrorCode::NotFound, format!("there is no session {id:?} in this conversation"))
}

impl Sessions {
    /// Puts the parts together.
    #[must_use]
    pub fn new(core: Core, store: Arc<dyn Store>, settings: SessionSettings) -> Self {
        let settings = Arc::new(settings);
        let (turns_of_owners, uploading) = <(Arc<turns::Turns>, Arc<turns::Turns>)>::default();
        Self { core, store, settings, turns_of_owners, uploading, left: Arc::default() }
    }

    /// The sessions of a thread, the oldest first.
    pub async fn sessions(&self, who: &ToolCaller) -> Result<Vec<ActiveSession>> {
        let all = self.store.tool_sessions(Some((&who.caller.owner, who.thread.as_str()))).await?;
        Ok(all.iter().map(active).collect())
    }

    /// The sandbox of a session of the caller's thread, if there is such a one.
    pub async fn sandbox_of(&self, who: &ToolCaller, session: &str) -> Option<SandboxId> {
        self.find(who, session).await.ok().map(|session| session.sandbox)
    }

    /// A session of the caller's thread, whatever its state. Any other thread's does not exist for it.
    async fn find(&self, who: &ToolCaller, id: &str) -> Result<ToolSession> {
        let parsed: ToolSessionId = id.parse().map_err(|_| unknown(id))?;
        self.client_came(who);
        let found = self.store.tool_session(parsed).await?;
        let mine = |s: &ToolSession| s.owner == who.caller.owner && s.thread == who.thread.as_str();
        found.filter(mine).ok_or_else(|| unknown(id))
    }

    /// A usable session. Its sandbox is active, so the session is neither collected nor evicted, as long as
    /// the guard beside it lives.
    async fn use_session(&self, who: &ToolCaller, id: &str) -> Result<(ToolSession, ActivityGuard), Failure> {
        let session = self.find(who, id).await?;
        let using = self.core.sandboxes.keep_active(session.sandbox);
        match session.status {
            ToolStatus::Running => {}
            ToolStatus::Starting => {
                let error = Error::new(ErrorCode::Conflict, format!("the session {id} is still starting"));
                return Err(Failure::with_hint(error, "Wait until create_session has answered."));
            }
            ToolStatus::Dead => {
                let reason = session.reason.clone().unwrap_or_else(|| "its sandbox is gone".into());
                return Err(Failure::Died { session: id.to_owned(), reason });
            }
        }
        self.touch(&session).await;
        Ok((session, using))
    }

    /// Records the use of a session. A failure to store this does not fail the call.
    async fn touch(&self, session: &ToolSession) {
        if let Err(error) = self.store.touch_tool_session(session.id, now_ms()).await {
            tracing::warn!(session = %session.id, %error, "when a session was used cannot be remembered");
        }
    }
}
