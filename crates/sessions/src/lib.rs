//! The six tools of a conversation, as one library over the core: whoever serves them to models, parses what
//! it is asked into a call and sends the reply. Nothing here knows MCP or HTTP.
//!
//! A session is a sandbox of its own, known by eight digits. A thread is a conversation of an owner; it has a
//! few sessions, and their exports are for it alone. Both are remembered by the store, so that a server that
//! starts again knows them.

mod reply;
pub mod tools;
mod who;

pub use reply::{Image, Reply};
pub use tokio_util::sync::CancellationToken;
pub use tools::{Hints, Tool, ToolDescription, describe};
pub use who::{ThreadId, Who};

use atoll_core::Core;
use atoll_store::Store;
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use serde_json::Value;
use std::{path::PathBuf, sync::Arc};
use tools::output::{ActiveSession, DisplayOutput};

/// What the operator decides for all sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionSettings {
    /// The address under which people reach this server, without a slash at its end; for downloads.
    pub server_url: Option<String>,
    /// Folders of this machine from which files may be imported; none by default.
    pub import_dirs: Vec<PathBuf>,
    /// Where uploads of threads are kept.
    pub storage_dir: PathBuf,
}

/// Something of a call under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Packages are being installed.
    Installing,
    /// Code or a command printed.
    Stdout(String),
    /// It complained.
    Stderr(String),
    /// It showed something.
    Display(DisplayOutput),
}

/// Whoever hears of a call under way.
pub type Listener<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// A file or folder that was exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The session that has it.
    pub session_id: String,
    /// Its path there, absolute and normalised.
    pub path: String,
    /// Whether it is a folder, and stands for all that is in it.
    pub is_folder: bool,
    /// Its bytes when it was exported, of a file.
    pub size: Option<u64>,
    /// When it was, in milliseconds since 1970.
    pub exported_at: i64,
}

/// An export on its way out: a file as it is, a folder as a tar archive.
pub struct ExportBody {
    /// Its last name; of a folder with `.tar`.
    pub name: String,
    /// Whether it is an archive.
    pub is_folder: bool,
    /// How many bytes are to come, where that is known.
    pub size: Option<u64>,
}

impl ExportBody {
    /// The next bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        Err(Error::new(ErrorCode::Unsupported, "exports are not there yet"))
    }
}

/// All tool sessions of a server. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    core: Core,
    store: Arc<dyn Store>,
    settings: Arc<SessionSettings>,
}

impl Sessions {
    /// Puts the parts together.
    #[must_use]
    pub fn new(core: Core, store: Arc<dyn Store>, settings: SessionSettings) -> Self {
        Self { core, store, settings: Arc::new(settings) }
    }

    /// One of the six by its name, with unchecked JSON. It never fails: every failure is a reply.
    pub async fn call(&self, who: &Who, tool: &str, arguments: Value) -> Reply {
        self.call_with(who, tool, arguments, &mut |_| {}, &CancellationToken::new()).await
    }

    /// The same, telling what happens as it does, and ended when `cancel` says so: code is interrupted, a
    /// command is ended.
    pub async fn call_with(
        &self,
        who: &Who,
        tool: &str,
        arguments: Value,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> Reply {
        let _ = (&self.core, &self.store, &self.settings, who, tool, arguments, listener, cancel);
        Reply::failed(&Error::new(ErrorCode::Unsupported, "not there yet"), None, &[])
    }

    /// The sessions of a thread, the oldest first.
    pub async fn sessions(&self, who: &Who) -> Result<Vec<ActiveSession>> {
        let _ = who;
        Ok(Vec::new())
    }

    /// What the thread's sessions have exported.
    pub async fn exports(&self, who: &Who) -> Result<Vec<Export>> {
        let _ = who;
        Ok(Vec::new())
    }

    /// Something that is exported, or lies in a folder that is: `permission_denied` where it is not,
    /// `invalid_argument` for a path that cannot be right.
    pub async fn read_export(&self, who: &Who, session: &str, path: &str) -> Result<ExportBody> {
        let _ = (who, session, path);
        Err(Error::new(ErrorCode::Unsupported, "not there yet"))
    }

    /// Ends all sessions of a thread, with their exports and the thread's uploads. Returns how many there were.
    pub async fn delete_thread(&self, who: &Who, reason: &str) -> Result<usize> {
        let _ = (who, reason);
        Ok(0)
    }
}
