//! The collector of sessions. A pass takes no input: it compares the stored sessions with the sandboxes, and
//! closes the difference. A session in use does not end, but for its maximum lifetime.

use crate::{LABEL, Sessions};
use atoll_core::{Caller, Clock, ExtensionOperation, RuntimeSettings};
use atoll_store::{SandboxId, SandboxRecord, Status, ToolSession, ToolStatus};
use atoll_types::{Operation, Result, time::now_ms};
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

fn seconds(n: u32) -> Duration {
    Duration::from_secs(n.into())
}

/// The collector's decision about a session.
#[derive(Debug, PartialEq, Eq)]
enum CollectDecision {
    Stays,
    /// It is marked as dead, for this reason.
    Dies(String),
    /// It is removed, for this reason.
    Ends(String),
}

/// The input of a decision.
struct Seen<'a> {
    session: &'a ToolSession,
    sandbox: Option<&'a SandboxRecord>,
    used: bool,
}

fn fate(seen: &Seen<'_>, clock: &Clock, runtime_settings: &RuntimeSettings) -> CollectDecision {
    let Seen { session, sandbox, used } = seen;
    let active = sandbox.map_or(session.active_at, |s| s.last_activity_at.max(session.active_at));
    let (age, idle) = (clock.age(session.created_at), clock.age(active));
    let orphan = seconds(runtime_settings.tool_sessions_orphan_seconds);
    let most = seconds(runtime_settings.tool_sessions_max_lifetime_seconds);
    let patience = seconds(runtime_settings.tool_sessions_idle_seconds);
    let gone = sandbox.is_none_or(|sandbox| sandbox.status == Status::Destroyed);
    match session.status {
        // It is being made, and gets its sandbox later.
        ToolStatus::Starting if *used => CollectDecision::Stays,
        ToolStatus::Starting if age >= orphan => CollectDecision::Ends("it was not made to its end".into()),
        ToolStatus::Starting => CollectDecision::Stays,
        _ if gone => CollectDecision::Ends("its sandbox is gone".into()),
        _ if age >= most => CollectDecision::Ends(format!("it lived for {} seconds", most.as_secs())),
        _ if *used => CollectDecision::Stays,
        ToolStatus::Dead if idle >= orphan => CollectDecision::Ends("it was dead".into()),
        _ if idle >= patience => CollectDecision::Ends(format!("idle for {} seconds", patience.as_secs())),
        ToolStatus::Running => match sandbox {
            Some(SandboxRecord { status: Status::Stopped | Status::Dead, status_reason, .. }) => {
                CollectDecision::Dies(status_reason.clone().unwrap_or_else(|| "its sandbox ended".into()))
            }
            _ => CollectDecision::Stays,
        },
        ToolStatus::Dead => CollectDecision::Stays,
    }
}

impl Sessions {
    /// Runs at a start: sessions that were being made are removed, those whose sandbox is gone are removed
    /// too, and those whose sandbox ended are marked as dead. Returns how many are left.
    pub async fn reconcile(&self) -> Result<usize> {
        let runtime_settings = self.core.settings.now();
        let mut left = 0;
        for session in self.store.tool_sessions(None).await? {
            let sandbox = self.store.sandbox(session.sandbox).await?;
            let seen = Seen { session: &session, sandbox: sandbox.as_ref(), used: false };
            // Ages are not known yet, so no session is too old.
            let fate = match session.status {
                ToolStatus::Starting => {
                    CollectDecision::Ends("the server ended while it was being made".into())
                }
                _ => fate(&seen, &Clock::default(), &runtime_settings),
            };
            left += usize::from(!matches!(fate, CollectDecision::Ends(_)));
            self.meet(&session, fate).await?;
        }
        Ok(left)
    }

    /// Runs the collector periodically, until the future is dropped.
    pub async fn keep(&self) {
        let (began, mut changes, mut clock) = (Instant::now(), self.core.settings.watch(), Clock::default());
        let mut last = began;
        clock.look(Duration::ZERO, now_ms());
        loop {
            let next = last + seconds(self.core.settings.now().tool_sessions_collect_seconds);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                // The interval may have changed.
                Ok(()) = changes.changed() => continue,
            }
            clock.look(began.elapsed(), now_ms());
            if let Err(error) = self.pass(&clock).await {
                tracing::warn!(%error, "tool sessions cannot be seen to");
            }
            last = Instant::now();
        }
    }

    async fn pass(&self, clock: &Clock) -> Result<()> {
        let runtime_settings = self.core.settings.now();
        // Sandboxes are listed before sessions: one that is made from now on is in neither list.
        let labelled = self.core.sandboxes.labelled(LABEL).await?;
        let sandboxes: HashMap<SandboxId, &SandboxRecord> = labelled.iter().map(|s| (s.id, s)).collect();
        let sessions = self.store.tool_sessions(None).await?;
        for session in &sessions {
            let read;
            let sandbox = match sandboxes.get(&session.sandbox) {
                Some(sandbox) => Some(*sandbox),
                // Younger than the list, or without its label.
                None => {
                    read = self.store.sandbox(session.sandbox).await?;
                    read.as_ref()
                }
            };
            let seen = Seen { session, sandbox, used: self.core.sandboxes.is_active(session.sandbox) };
            let fate = fate(&seen, clock, &runtime_settings);
            if let Err(error) = self.meet(session, fate).await {
                tracing::warn!(session = %session.id, %error, "a session cannot be seen to");
            }
        }
        let orphan = seconds(runtime_settings.tool_sessions_orphan_seconds);
        for sandbox in &labelled {
            let known = sessions.iter().any(|session| session.sandbox == sandbox.id);
            // One that cannot be ended is tried again by the next pass, and keeps none of the others.
            if !known
                && clock.age(sandbox.created_at) >= orphan
                && let Err(error) = self.core.sandboxes.end(sandbox.id, "its tool session is gone").await
            {
                tracing::warn!(sandbox = %sandbox.id, %error, "a sandbox without its tool session cannot be ended");
            }
        }
        self.forget_threads(clock, &runtime_settings).await
    }

    async fn meet(&self, session: &ToolSession, fate: CollectDecision) -> Result<()> {
        match fate {
            CollectDecision::Stays => Ok(()),
            CollectDecision::Dies(reason) => {
                let caller = Caller::lifecycle(&session.owner, &session.owner_name);
                let operation = ExtensionOperation::new(Operation::SessionDied)
                    .with(session.id.to_string())
                    .and("reason", &reason);
                let operation = operation.and("sandbox", session.sandbox).and("thread", &session.thread);
                let setting = async {
                    self.store.set_tool_session(session.id, ToolStatus::Dead, Some(&reason)).await?;
                    Ok(())
                };
                self.core.operations.carry_out(&caller, operation, setting).await
            }
            CollectDecision::Ends(reason) => self.end(session, &reason).await,
        }
    }

    /// Removes threads without sessions that were unused for long, with their uploads.
    async fn forget_threads(&self, clock: &Clock, runtime_settings: &RuntimeSettings) -> Result<()> {
        let retention = seconds(runtime_settings.tool_sessions_thread_retention_seconds);
        let threads = self.store.tool_threads().await?;
        let with_sessions = threads.iter().filter(|thread| thread.sessions > 0);
        self.left.retain(&with_sessions.map(|t| (t.owner.clone(), t.thread.clone())).collect());
        for thread in threads {
            if thread.sessions > 0 || clock.age(thread.active_at) < retention {
                continue;
            }
            let caller = Caller::lifecycle(&thread.owner, "");
            let reason = format!("left alone for {} seconds", retention.as_secs());
            let operation =
                ExtensionOperation::new(Operation::ThreadDelete).with(&thread.thread).and("reason", reason);
            let forgetting = async {
                self.remove_uploads(&thread.owner, &thread.thread).await?;
                self.store.remove_tool_thread(&thread.owner, &thread.thread).await?;
                Ok(())
            };
            if let Err(error) = self.core.operations.carry_out(&caller, operation, forgetting).await {
                tracing::warn!(thread = thread.thread, %error, "a conversation left alone cannot be removed");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::{NewSandbox, Sealed, ToolSessionId};
    use atoll_types::{Limits, Profile, VolumeId};
    use std::collections::BTreeMap;

    fn session(status: ToolStatus, active_at: i64) -> ToolSession {
        ToolSession {
            id: ToolSessionId(1),
            owner: "owner".into(),
            owner_name: "Ada".into(),
            thread: "t".into(),
            sandbox: SandboxId::random(),
            kernel: None,
            language: "python".into(),
            dependencies: BTreeMap::new(),
            status,
            reason: None,
            created_at: 0,
            active_at,
        }
    }

    fn sandbox(status: Status) -> SandboxRecord {
        SandboxRecord::from(NewSandbox {
            id: SandboxId::random(),
            owner: "owner".into(),
            owner_name: "Ada".into(),
            status,
            image: "host".into(),
            provider: atoll_types::ProviderName::native(),
            profile: Profile::builtin("default").unwrap(),
            container: None,
            volume: VolumeId::random(),
            limits: Limits::default(),
            idle_timeout_seconds: 100,
            network_enabled: false,
            egress: String::new(),
            session_key: None,
            auto_snapshot: atoll_types::AutoSnapshot::Off,
            max_lifetime_seconds: None,
            labels: BTreeMap::new(),
            skills: Vec::new(),
            environment: Sealed::default(),
            created_at: 0,
        })
    }

    #[test]
    fn each_session_has_its_time() {
        let runtime_settings = RuntimeSettings::default();
        let mut clock = Clock::default();
        let hour = 3_600_000;
        clock.look(Duration::ZERO, hour);
        let of = |status, active_at, sandbox: Option<&SandboxRecord>, used| {
            fate(&Seen { session: &session(status, active_at), sandbox, used }, &clock, &runtime_settings)
        };
        let (ready, dead) = (sandbox(Status::Ready), sandbox(Status::Dead));
        let ends = |reason: &str| CollectDecision::Ends(reason.to_owned());
        use ToolStatus::{Dead, Running, Starting};
        assert_eq!(of(Running, hour - 1_799_000, Some(&ready), false), CollectDecision::Stays);
        assert_eq!(of(Running, hour - 1_800_000, Some(&ready), false), ends("idle for 1800 seconds"));
        assert_eq!(of(Running, 0, Some(&ready), true), CollectDecision::Stays, "it is in use");
        let busy = SandboxRecord { last_activity_at: hour - 5, ..ready.clone() };
        assert_eq!(of(Running, 0, Some(&busy), false), CollectDecision::Stays, "something runs in it");
        assert_eq!(of(Running, hour, Some(&dead), false), CollectDecision::Dies("its sandbox ended".into()));
        assert_eq!(of(Running, hour, None, false), ends("its sandbox is gone"));
        assert_eq!(of(Dead, hour - 299_000, Some(&ready), false), CollectDecision::Stays);
        assert_eq!(of(Dead, hour - 300_000, Some(&ready), false), ends("it was dead"));
        assert_eq!(of(Starting, 0, None, true), CollectDecision::Stays);
        assert_eq!(of(Starting, 0, None, false), ends("it was not made to its end"));
        clock.look(Duration::from_secs(3600), 2 * hour);
        let of = |used| {
            fate(
                &Seen { session: &session(Running, 2 * hour), sandbox: Some(&ready), used },
                &clock,
                &runtime_settings,
            )
        };
        assert_eq!(
            (of(false), of(true)),
            (ends("it lived for 7200 seconds"), ends("it lived for 7200 seconds"))
        );
    }

    #[test]
    fn a_clock_that_jumps_ends_nothing() {
        let mut clock = Clock::default();
        clock.look(Duration::ZERO, 1000);
        clock.look(Duration::from_secs(10), 11_000 + 365 * 24 * 3_600_000);
        let seen = Seen {
            session: &session(ToolStatus::Running, 1000),
            sandbox: Some(&sandbox(Status::Ready)),
            used: false,
        };
        assert_eq!(fate(&seen, &clock, &RuntimeSettings::default()), CollectDecision::Stays);
    }
}
