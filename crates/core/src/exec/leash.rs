//! What holds a command to its caller.

use super::claim::Claim;
use crate::Core;
use atoll_provider::Container;
use atoll_store::SandboxId;
use atoll_types::ExecId;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What must be noted of a command when nobody waits for it any more.
pub(super) struct Note {
    pub(super) core: Core,
    pub(super) sandbox: SandboxId,
    pub(super) shown: String,
    pub(super) claim: Claim,
}

/// Kills a command whose caller went away, and notes how it ended where that is its duty.
pub(super) struct Leash {
    container: Arc<dyn Container>,
    id: ExecId,
    note: Option<Note>,
    released: AtomicBool,
}

impl Leash {
    pub(super) fn new(container: Arc<dyn Container>, id: ExecId, note: Option<Note>) -> Self {
        Self { container, id, note, released: AtomicBool::new(false) }
    }

    /// The command has ended, or may go on without its caller.
    pub(super) fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
    }

    /// As [`Leash::release`]; what is to be noted is the caller's again.
    pub(super) fn take_note(&mut self) -> Option<Note> {
        self.release();
        self.note.take()
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if self.released.load(Ordering::Relaxed) {
            return;
        }
        let (container, id, note) = (Arc::clone(&self.container), self.id, self.note.take());
        tokio::spawn(async move {
            match (container.guest().kill(id).await, note) {
                (Ok(report), Some(Note { core, sandbox, shown, claim })) => {
                    core.note_exec(sandbox, shown, &report).await;
                    drop(claim);
                }
                (Ok(_), None) => {}
                (Err(error), _) => tracing::debug!(%error, "cannot kill a command that nobody waits for"),
            }
        });
    }
}
