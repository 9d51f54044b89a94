//! Log messages for the people behind a client: sessions that came and went. The protocol calls logging
//! deprecated from 2026-07-28 on and keeps it working; clients of that version get only what they ask for,
//! request by request.
#![expect(deprecated, reason = "clients of every version that is in use can ask for it")]

use atoll_tool_sessions::{FailureKind, ToolReply};
use atoll_types::ErrorCode;
use rmcp::{
    RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam, ProtocolVersion},
    service::RequestContext,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

/// From which level on a client gets messages; none is below `info`.
#[derive(Debug)]
pub(crate) struct Level(AtomicU8);

fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

impl Default for Level {
    fn default() -> Self {
        Self(AtomicU8::new(rank(LoggingLevel::Info)))
    }
}

impl Level {
    pub(crate) fn set(&self, level: LoggingLevel) {
        self.0.store(rank(level), Ordering::Relaxed);
    }

    /// From which level on a request's client gets messages.
    fn of(&self, context: &RequestContext<RoleServer>) -> Option<u8> {
        let asked = context.meta.log_level().map(rank);
        let newest = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        if newest { asked } else { Some(asked.unwrap_or_else(|| self.0.load(Ordering::Relaxed))) }
    }
}

/// The log of one client.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) level: Level,
    /// Sessions that it made and did not stop.
    own: Mutex<BTreeSet<String>>,
}

/// The most sessions that are remembered.
const MOST: usize = 256;

impl Log {
    /// The message about a session that a call leads to, if any.
    fn news(&self, tool: &str, session: Option<&str>, reply: &ToolReply) -> Option<(LoggingLevel, Value)> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let value = &reply.value;
        let error = value["error"].as_str().unwrap_or_default();
        if tool == "create_session" && reply.failure.is_none() {
            let made = value["session_id"].as_str().unwrap_or_default();
            if own.len() < MOST {
                own.insert(made.to_owned());
            }
            let said = json!({ "event": "session_created", "session_id": made, "runtime": value["runtime"] });
            return Some((LoggingLevel::Info, said));
        }
        let session = session?;
        let said = |event, reason| json!({ "event": event, "session_id": session, "reason": reason });
        if reply.failure == Some(FailureKind::SessionDied) {
            own.remove(session);
            return Some((LoggingLevel::Error, said("session_died", error)));
        }
        if value["state_lost"] == true {
            let why = value["error"]["message"].as_str().unwrap_or("it died between two calls");
            return Some((LoggingLevel::Warning, said("interpreter_restarted", why)));
        }
        if tool == "stop_session" && value["success"] == true {
            own.remove(session);
            return Some((LoggingLevel::Info, said("session_stopped", "it was asked for")));
        }
        if reply.failure == Some(FailureKind::Other(ErrorCode::NotFound)) && own.remove(session) {
            let why = "it was idle for too long, too old, or made room for others";
            return Some((LoggingLevel::Warning, said("session_evicted", why)));
        }
        None
    }

    /// Sends it to the caller's client.
    pub(crate) async fn tell(
        &self,
        context: &RequestContext<RoleServer>,
        tool: &str,
        session: Option<&str>,
        reply: &ToolReply,
    ) {
        if let Some((how, what)) = self.news(tool, session, reply)
            && self.level.of(context).is_some_and(|from| rank(how) >= from)
        {
            let message = LoggingMessageNotificationParam::new(how, what).with_logger("atoll");
            // A client that does not listen misses it.
            let _ = context.peer.notify_logging_message(message).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_come_and_go_are_news() {
        let log = Log::default();
        let event = |tool: &str, session: Option<&str>, (failure, value): (Option<FailureKind>, Value)| {
            let reply = ToolReply { value, failure, images: Vec::new(), changed: None };
            log.news(tool, session, &reply)
                .map(|(level, what)| (level, what["event"].as_str().unwrap().to_owned()))
        };
        let well = || (None, json!({ "success": true }));
        let made = |id: &str| (None, json!({ "success": true, "session_id": id, "runtime": "python" }));
        let missing = (Some(FailureKind::Other(ErrorCode::NotFound)), json!({ "success": false }));
        let died = (Some(FailureKind::SessionDied), json!({ "success": false, "error": "out of memory" }));
        assert_eq!(
            event("create_session", None, made("a")),
            Some((LoggingLevel::Info, "session_created".into()))
        );
        assert_eq!(event("execute_code", Some("a"), well()), None);
        assert_eq!(
            event("execute_code", Some("a"), died),
            Some((LoggingLevel::Error, "session_died".into()))
        );
        assert_eq!(event("execute_code", Some("a"), missing.clone()), None, "that is known");
        event("create_session", None, made("b"));
        assert_eq!(
            event("execute_code", Some("b"), missing.clone()),
            Some((LoggingLevel::Warning, "session_evicted".into()))
        );
        assert_eq!(event("execute_code", Some("c"), missing.clone()), None, "it was never its own");
        event("create_session", None, made("d"));
        assert_eq!(
            event("stop_session", Some("d"), well()),
            Some((LoggingLevel::Info, "session_stopped".into()))
        );
        assert_eq!(event("execute_code", Some("d"), missing), None);
    }
}
