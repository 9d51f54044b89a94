//! Capacity for one more session: the limits of an owner, of a thread, and of threads with sessions. Where a
//! thread is one too many, the least recently used one of the same owner is removed.

use crate::{
    Sessions, ToolCaller,
    failure::Failure,
    tools::input::{CreateSession, Runtime},
};
use atoll_core::RuntimeSettings;
use atoll_store::{
    Clash, SandboxId, SessionLimits, SessionSlot, StoreError, ToolSession, ToolSessionId, ToolStatus,
};
use atoll_types::{Error, ErrorCode, Result, time::now_ms};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How often a call that waits for a free slot polls.
const LOOK: Duration = Duration::from_millis(200);
/// How often a random id is tried.
const TRIES: usize = 16;

/// An id that begins with a letter: clients read one of digits alone, or 1234e567, as a number.
fn random_id() -> ToolSessionId {
    let (number, ..) = uuid::Uuid::new_v4().as_fields();
    let letter = 0xa + (number >> 28) % 6;
    ToolSessionId(letter << 28 | number & 0x0fff_ffff)
}

impl Sessions {
    /// Takes a slot for a session that is to be made. Where the owner has no more of them, it takes that of a
    /// session whose client has gone; where there is none, the call waits for one: calls of the same owner in the
    /// order in which they came, each for as long as a sandbox waits for room on the machine.
    pub(crate) async fn take_reservation(
        &self,
        who: &ToolCaller,
        input: &CreateSession,
    ) -> Result<ToolSession, Failure> {
        self.client_came(who);
        let runtime_settings = self.core.settings.now();
        let until = Instant::now() + Duration::from_secs(runtime_settings.admission_wait_seconds.into());
        let turns = self.turns_of_owners.of(&who.caller.owner);
        let Ok(_turn) = timeout_at(until, turns.lock()).await else {
            return Err(refused(SessionSlot::Full, &runtime_settings));
        };
        self.make_room_for_thread(who, &runtime_settings).await?;
        loop {
            match self.insert(who, input, &runtime_settings).await? {
                Ok(session) => return Ok(session),
                Err(_) if self.lose_ended(who).await? > 0 => {}
                // Only this conversation itself can free one of its own slots.
                Err(full @ SessionSlot::ThreadFull) => return Err(refused(full, &runtime_settings)),
                Err(_) if self.end_left(who).await? => {}
                Err(full) if Instant::now() >= until => return Err(refused(full, &runtime_settings)),
                Err(_) => sleep(LOOK).await,
            }
        }
    }

    async fn insert(
        &self,
        who: &ToolCaller,
        input: &CreateSession,
        runtime_settings: &RuntimeSettings,
    ) -> Result<Result<ToolSession, SessionSlot>> {
        let limits = SessionLimits {
            of_owner: runtime_settings.tool_sessions_max,
            of_thread: runtime_settings.tool_sessions_max_per_thread,
        };
        let language: Runtime = input.language;
        for _ in 0..TRIES {
            let at = now_ms();
            let session = ToolSession {
                id: random_id(),
                owner: who.caller.owner.clone(),
                owner_name: who.caller.owner_name.clone(),
                thread: who.thread.to_string(),
                sandbox: SandboxId::random(),
                kernel: None,
                language: language.as_str().to_owned(),
                dependencies: input.dependencies.clone(),
                status: ToolStatus::Starting,
                reason: None,
                created_at: at,
                active_at: at,
            };
            match self.store.insert_tool_session(session.clone(), limits).await {
                Ok(SessionSlot::Taken) => return Ok(Ok(session)),
                Ok(full) => return Ok(Err(full)),
                Err(StoreError::Conflict(Clash::Taken)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::internal("no id of a session is free"))
    }

    /// Makes room for the caller's thread to have sessions.
    async fn make_room_for_thread(
        &self,
        who: &ToolCaller,
        runtime_settings: &RuntimeSettings,
    ) -> Result<(), Failure> {
        let most = runtime_settings.tool_sessions_max_threads as usize;
        let threads = self.store.tool_threads().await?;
        let mine = threads.into_iter().filter(|t| t.owner == who.caller.owner && t.sessions > 0);
        let others: Vec<_> = mine.filter(|t| t.thread != who.thread.as_str()).collect();
        let mut over = (others.len() + 1).saturating_sub(most);
        for thread in others {
            if over == 0 {
                break;
            }
            let sessions = self.store.tool_sessions(Some((&thread.owner, &thread.thread))).await?;
            if sessions.iter().any(|session| self.core.sandboxes.is_active(session.sandbox)) {
                continue;
            }
            let reason = format!("its conversation was evicted: there may be {most} with sessions");
            for session in &sessions {
                self.end(session, &reason).await?;
            }
            over -= 1;
        }
        if over == 0 {
            return Ok(());
        }
        let message = format!("there are {most} conversations with sessions, and all of them are in use");
        Err(Error::new(ErrorCode::LimitExceeded, message).into())
    }

    /// Marks sessions of the owner as dead whose sandbox ended unnoticed by the collector so far: dead ones
    /// take no slot. Returns how many there were.
    async fn lose_ended(&self, who: &ToolCaller) -> Result<usize> {
        let mut lost = 0;
        for session in self.store.tool_sessions(None).await? {
            let runs = session.owner == who.caller.owner && session.status == ToolStatus::Running;
            if runs && let Some(reason) = self.ended(&session).await {
                self.lose(&session, reason).await;
                lost += 1;
            }
        }
        Ok(lost)
    }
}

fn refused(full: SessionSlot, runtime_settings: &RuntimeSettings) -> Failure {
    let (message, hint) = match full {
        SessionSlot::ThreadFull => (
            format!(
                "this conversation has {} sessions and may have no more",
                runtime_settings.tool_sessions_max_per_thread
            ),
            "Use one of active_sessions, or stop one with stop_session first.",
        ),
        _ => (
            format!(
                "this key's owner has {} sessions and may have no more",
                runtime_settings.tool_sessions_max
            ),
            "Stop a session that you do not need with stop_session, or wait a little and try again.",
        ),
    };
    Failure::with_hint(Error::new(ErrorCode::LimitExceeded, message), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_can_be_read_as_a_number() {
        for _ in 0..1000 {
            let id = random_id().to_string();
            assert!(id.len() == 8 && id.starts_with(|c: char| c.is_ascii_alphabetic()), "{id}");
        }
    }
}
