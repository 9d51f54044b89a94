//! Tool sessions, their threads and their exports.

use super::{NOW, Outcome, Shared, clashes, crowd, ensure, same};
use crate::{
    Clash, SandboxId, SessionLimits, SessionSlot, StoreError, Thing, ToolExport, ToolSession, ToolSessionId,
    ToolStatus,
};
use atoll_types::KernelId;
use std::collections::BTreeMap;

const ROOM: SessionLimits = SessionLimits { of_owner: 1000, of_thread: 1000 };

fn session(number: u32, thread: &str) -> ToolSession {
    ToolSession {
        id: ToolSessionId(number),
        owner: "owner".into(),
        owner_name: "Ada".into(),
        thread: thread.into(),
        sandbox: SandboxId::random(),
        kernel: None,
        language: "python".into(),
        dependencies: BTreeMap::from([("pandas".into(), "2.2.3".into()), ("x".into(), String::new())]),
        status: ToolStatus::Starting,
        reason: None,
        created_at: NOW + i64::from(number),
        active_at: NOW + i64::from(number),
    }
}

fn export(session: u32, path: &str) -> ToolExport {
    let session = ToolSessionId(session);
    ToolExport { session, path: path.into(), folder: false, size: Some(7), exported_at: NOW }
}

pub(super) async fn a_tool_session_comes_back_as_it_went_in(store: Shared) -> Outcome {
    let (first, last) = (session(1, "a"), session(u32::MAX, "a"));
    for one in [&first, &last] {
        same("room", store.insert_tool_session(one.clone(), ROOM).await?, SessionSlot::Taken)?;
        same("it", store.tool_session(one.id).await?, Some(one.clone()))?;
    }
    clashes("a taken id", store.insert_tool_session(session(1, "b"), ROOM).await, Clash::Taken)?;
    same("the thread of what was refused", store.tool_threads().await?.len(), 1)?;
    same("all", store.tool_sessions(None).await?, vec![first.clone(), last])?;
    same("unknown", store.tool_session(ToolSessionId(2)).await?, None)?;
    let kernel = KernelId::random();
    same("start", store.start_tool_session(first.id, kernel).await?, true)?;
    same("start unknown", store.start_tool_session(ToolSessionId(2), kernel).await?, false)?;
    let first = ToolSession { status: ToolStatus::Running, kernel: Some(kernel), ..first };
    same("started", store.tool_session(first.id).await?, Some(first.clone()))?;
    let dead = Some("out of memory");
    same("set", store.set_tool_session(first.id, ToolStatus::Dead, dead).await?, true)?;
    let changed = ToolSession { status: ToolStatus::Dead, reason: dead.map(str::to_owned), ..first.clone() };
    same("changed", store.tool_session(first.id).await?, Some(changed))?;
    same("set unknown", store.set_tool_session(ToolSessionId(2), ToolStatus::Dead, None).await?, false)?;
    same("removed", store.remove_tool_session(first.id).await?, true)?;
    same("removed again", store.remove_tool_session(first.id).await?, false)?;
    same("gone", store.tool_session(first.id).await?, None)
}

pub(super) async fn tool_sessions_have_room_or_not(store: Shared) -> Outcome {
    let limits = SessionLimits { of_owner: 5, of_thread: 3 };
    let asked = crowd(|number| {
        let (store, thread) = (store.clone(), ["a", "b"][number % 2]);
        async move { store.insert_tool_session(session(u32::try_from(number).unwrap_or(0), thread), limits).await }
    });
    let asked = asked.await?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let taken = asked.iter().filter(|slot| **slot == SessionSlot::Taken).count();
    same("of many who ask at once", taken, 5)?;
    let of = async |thread| Ok::<_, StoreError>(store.tool_sessions(Some(("owner", thread))).await?.len());
    let (a, b) = (of("a").await?, of("b").await?);
    ensure(a <= 3 && b <= 3, || format!("{a} and {b} of one thread"))?;
    let full = store.insert_tool_session(session(100, "c"), limits).await?;
    same("one more thread", full, SessionSlot::Full)?;
    let other = ToolSession { owner: "other".into(), ..session(105, "c") };
    same("room of another owner", store.insert_tool_session(other, limits).await?, SessionSlot::Taken)?;
    store.remove_tool_session(ToolSessionId(105)).await?;
    let more = SessionLimits { of_owner: 100, of_thread: 1 };
    same(
        "one more of a thread",
        store.insert_tool_session(session(101, "a"), more).await?,
        SessionSlot::ThreadFull,
    )?;
    // The same thread name of another owner is another thread.
    let other = ToolSession { owner: "other".into(), ..session(102, "a") };
    same("another owner", store.insert_tool_session(other, more).await?, SessionSlot::Taken)?;
    // Dead sessions do not count.
    store.set_tool_session(ToolSessionId(102), ToolStatus::Dead, Some("out of memory")).await?;
    let second = ToolSession { owner: "other".into(), ..session(104, "a") };
    same("beside the dead", store.insert_tool_session(second, more).await?, SessionSlot::Taken)?;
    store.remove_tool_session(ToolSessionId(104)).await?;
    // A removed session frees its place.
    store.remove_tool_session(ToolSessionId(102)).await?;
    let other = ToolSession { owner: "other".into(), ..session(103, "a") };
    same("after it went", store.insert_tool_session(other, more).await?, SessionSlot::Taken)
}

pub(super) async fn threads_are_told_apart(store: Shared) -> Outcome {
    let mine = session(1, "a");
    let theirs = ToolSession { owner: "other".into(), ..session(2, "a") };
    let second = session(3, "b");
    for one in [&mine, &theirs, &second] {
        store.insert_tool_session(one.clone(), ROOM).await?;
    }
    same("mine", store.tool_sessions(Some(("owner", "a"))).await?, vec![mine])?;
    same("theirs", store.tool_sessions(Some(("other", "a"))).await?, vec![theirs.clone()])?;
    same("unknown", store.tool_sessions(Some(("other", "b"))).await?, vec![])?;
    same("remove", store.remove_tool_thread("owner", "a").await?, true)?;
    same("remove again", store.remove_tool_thread("owner", "a").await?, false)?;
    same("what is left", store.tool_sessions(None).await?, vec![theirs, second])?;
    let threads = store.tool_threads().await?.into_iter().map(|t| (t.owner, t.thread, t.sessions));
    let wanted = vec![("other".to_owned(), "a".to_owned(), 1), ("owner".to_owned(), "b".to_owned(), 1)];
    same("threads", threads.collect::<Vec<_>>(), wanted)
}

pub(super) async fn what_was_done_in_a_thread_never_moves_back(store: Shared) -> Outcome {
    store.insert_tool_session(session(1, "a"), ROOM).await?;
    store.touch_tool_thread("owner", "b", NOW + 5).await?;
    let order = async || {
        let threads = store.tool_threads().await?;
        Ok::<_, StoreError>(threads.into_iter().map(|t| (t.thread, t.active_at - NOW)).collect::<Vec<_>>())
    };
    same("at first", order().await?, vec![("a".to_owned(), 1), ("b".to_owned(), 5)])?;
    store.touch_tool_session(ToolSessionId(1), NOW + 9).await?;
    store.touch_tool_session(ToolSessionId(7), NOW + 99).await?;
    same("touched", order().await?, vec![("b".to_owned(), 5), ("a".to_owned(), 9)])?;
    store.touch_tool_session(ToolSessionId(1), NOW + 2).await?;
    store.touch_tool_thread("owner", "b", NOW + 2).await?;
    same("never back", order().await?, vec![("b".to_owned(), 5), ("a".to_owned(), 9)])?;
    let session = store.tool_session(ToolSessionId(1)).await?;
    same("the session", session.map(|s| s.active_at - NOW), Some(9))
}

pub(super) async fn exports_go_with_their_session(store: Shared) -> Outcome {
    for one in [session(1, "a"), session(2, "a")] {
        store.insert_tool_session(one, ROOM).await?;
    }
    let folder = ToolExport { folder: true, size: None, ..export(1, "/workspace/b é") };
    let again =
        ToolExport { size: Some(u64::from(u32::MAX) * 9), exported_at: NOW + 1, ..export(1, "/workspace/a") };
    for one in [folder.clone(), export(1, "/workspace/a"), again.clone(), export(2, "/workspace/c")] {
        store.put_tool_export(one).await?;
    }
    same("by path", store.tool_exports(ToolSessionId(1)).await?, vec![again, folder])?;
    let nobody = store.put_tool_export(export(9, "/workspace/a")).await;
    ensure(matches!(nobody, Err(StoreError::NotFound(Thing::Session))), || {
        format!("for an unknown session: {nobody:?}")
    })?;
    store.remove_tool_session(ToolSessionId(1)).await?;
    store.insert_tool_session(session(1, "a"), ROOM).await?;
    same("after its session", store.tool_exports(ToolSessionId(1)).await?, vec![])?;
    same("another's", store.tool_exports(ToolSessionId(2)).await?.len(), 1)?;
    store.remove_tool_thread("owner", "a").await?;
    store.insert_tool_session(session(2, "a"), ROOM).await?;
    same("after its thread", store.tool_exports(ToolSessionId(2)).await?, vec![])
}
