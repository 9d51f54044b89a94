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
    same("count", store.count_mcp_sessions("key 1").await?, (1, 2))?;
    same("all", store.mcp_sessions().await?, vec![first.clone(), second])?;
    store.touch_mcp_sessions(&["c".into(), "a".into()], NOW + 9).await?;
    store.touch_mcp_sessions(&["a".into()], NOW + 2).await?;
    store.touch_mcp_sessions(&[], NOW + 20).await?;
    let touched = McpSession { active_at: NOW + 9, ..first };
    same("touched, and never back", store.mcp_session("a").await?, Some(touched))?;
    same("removed", store.remove_mcp_session("a").await?, true)?;
    same("removed again", store.remove_mcp_session("a").await?, false)?;
    same("gone", store.mcp_session("a").await?, None)?;
    same("the rest", store.count_mcp_sessions("key 1").await?, (0, 1))
}
