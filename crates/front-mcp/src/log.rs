//! What a client's people may want to know of: sessions that came and went. The protocol calls logging
//! deprecated from 2026-07-28 on and keeps it working; clients of that version hear only what they ask for,
//! request by request.
#![expect(deprecated, reason = "clients of every version that is in use can ask for it")]

use atoll_sessions::Reply;
use rmcp::{
    RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam, ProtocolVersion},
    service::RequestContext,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU8, Ordering};

/// From which level on a client hears; nothing below `info` is ever said.
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

    /// From which level on a request's client hears.
    fn of(&self, context: &RequestContext<RoleServer>) -> Option<u8> {
        let asked = context.meta.log_level().map(rank);
        let newest = context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        if newest { asked } else { Some(asked.unwrap_or_else(|| self.0.load(Ordering::Relaxed))) }
    }
}

/// What there is to say of a call.
fn news(tool: &str, reply: &Reply) -> Option<(LoggingLevel, Value)> {
    let value = &reply.value;
    let session = value["session_id"].as_str();
    let error = value["error"].as_str().unwrap_or_default();
    match tool {
        "create_session" if !reply.is_error => {
            let said = json!({ "event": "session_created", "session_id": session, "runtime": value["runtime"] });
            Some((LoggingLevel::Info, said))
        }
        "stop_session" if value["success"] == true => Some((LoggingLevel::Info, json!({ "event": "session_stopped" }))),
        _ if error.starts_with("CONTAINER_DIED") => {
            Some((LoggingLevel::Error, json!({ "event": "session_died", "session_id": session, "reason": error })))
        }
        _ => None,
    }
}

/// Says it to whoever called.
pub(crate) async fn tell(level: &Level, context: &RequestContext<RoleServer>, tool: &str, reply: &Reply) {
    if let Some((how, what)) = news(tool, reply) {
        say(level, context, how, what).await;
    }
}

/// Says that sessions are gone which nobody of this conversation stopped.
pub(crate) async fn tell_gone(level: &Level, context: &RequestContext<RoleServer>, gone: &[String]) {
    for session in gone {
        let what = json!({
            "event": "session_evicted",
            "session_id": session,
            "reason": "it was idle for too long, too old, or made room for others",
        });
        say(level, context, LoggingLevel::Warning, what).await;
    }
}

async fn say(level: &Level, context: &RequestContext<RoleServer>, how: LoggingLevel, what: Value) {
    if level.of(context).is_some_and(|from| rank(how) >= from) {
        let message = LoggingMessageNotificationParam::new(how, what).with_logger("atoll");
        // Whoever does not listen misses it.
        let _ = context.peer.notify_logging_message(message).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_come_and_go_are_news() {
        let reply = |value, is_error| Reply { value, is_error, images: Vec::new() };
        let event = |tool, reply: &Reply| news(tool, reply).map(|(level, what)| (level, what["event"].as_str().unwrap().to_owned()));
        let made = reply(json!({ "success": true, "session_id": "1a2b3c4d", "runtime": "python" }), false);
        assert_eq!(event("create_session", &made), Some((LoggingLevel::Info, "session_created".into())));
        let died = reply(json!({ "success": false, "error": "CONTAINER_DIED: out of memory", "session_id": "x" }), true);
        assert_eq!(event("execute_code", &died), Some((LoggingLevel::Error, "session_died".into())));
        let failed = reply(json!({ "success": false, "error": "NotFound: x" }), true);
        assert_eq!(event("create_session", &failed), None);
        assert_eq!(event("execute_code", &reply(json!({ "success": true }), false)), None);
    }
}
