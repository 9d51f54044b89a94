//! Sessions of MCP clients.

use super::{NOW, Outcome, Shared, same};
use crate::McpSession;

fn session(id: &str, holder: &str, thread: Option<&str>) -> McpSession {
    McpSession {
        id: id.into(),
        holder: holder.into(),
        owner: "owner".into(),
        owner_name: "Ada".into(),
        thread: thread.map(str::to_owned),
        params: r#"{"protocolVersion":"2025-11-25"}"#.into(),
        active_at: NOW,
    }
}

pub(super) async fn an_mcp_session_is_kept_until_it_is_removed_or_old(store: Shared) -> Outcome {
    let (first, second) = (session("a", "key 1", Some("t")), session("b", "key 2", None));
    for one in [&first, &second] {
        store.put_mcp_session(one.clone()).await?;
        same("it", store.mcp_session(&one.id).await?, Some(one.clone()))?;
    }
    same("unknown", store.mcp_session("c").await?, None)?;
    same("count", store.count_mcp_sessions("key 1", NOW).await?, (1, 2))?;
    store.touch_mcp_session("a", NOW + 9).await?;
    store.touch_mcp_session("a", NOW + 2).await?;
    store.touch_mcp_session("c", NOW).await?;
    let touched = McpSession { active_at: NOW + 9, ..first };
    same("touched, and never back", store.mcp_session("a").await?, Some(touched))?;
    same("the old go", store.count_mcp_sessions("key 2", NOW + 1).await?, (0, 1))?;
    same("the old one", store.mcp_session("b").await?, None)?;
    same("removed", store.remove_mcp_session("a").await?, true)?;
    same("removed again", store.remove_mcp_session("a").await?, false)?;
    same("gone", store.mcp_session("a").await?, None)
}
