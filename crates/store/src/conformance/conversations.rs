//! Conversations: threads, checkpoints and runs.

use super::{CROWD, Failure, NOW, Outcome, Shared, clashes, crowd, ensure, same};
use crate::{Clash, RunEnd, RunProgress, Scope, Sealed, StoreError, Thing};
use atoll_types::{
    AssistantId, RunId, ThreadCheckpointId, ThreadId,
    conversation::{
        AssistantQuery, Checkpoint, CheckpointQuery, CheckpointSource, Message, Metadata, MultitaskStrategy,
        NewAssistant, NewCheckpoint, NewRun, NewThread, Node, Role, RunInput, RunStatus, StopReason,
        ThreadQuery, ThreadSort, ThreadStatus,
    },
};
use serde_json::{Value, json};

fn map(value: Value) -> Metadata {
    value.as_object().cloned().unwrap_or_default()
}

fn thread_id(text: &str) -> Result<ThreadId, Failure> {
    text.parse().map_err(|e| Failure(format!("{text}: {e}")))
}

async fn thread(
    store: &Shared,
    owner: &str,
    id: &str,
    metadata: Value,
    at: i64,
) -> Result<ThreadId, Failure> {
    let id = thread_id(id)?;
    let new = NewThread { owner: owner.into(), id: id.clone(), metadata: map(metadata), created_at: at };
    store.insert_thread(new).await?;
    Ok(id)
}

fn said(id: &str) -> Message {
    Message::text(id, Role::User, format!("text of {id}"))
}

fn checkpoint(
    parent: Option<&NewCheckpoint>,
    run: Option<RunId>,
    keep: usize,
    added: &[&str],
) -> NewCheckpoint {
    let step = parent.map_or(-1, |parent| parent.step + 1);
    NewCheckpoint {
        id: ThreadCheckpointId::random(),
        parent: parent.map(|parent| parent.id),
        run,
        step,
        source: CheckpointSource::Loop,
        node: Some(Node::Agent),
        next: Some(Node::Tools),
        keep,
        added: added.iter().map(|id| said(id)).collect(),
        values: map(json!({ "step": step })),
        interrupts: Vec::new(),
        metadata: map(json!({ "odd": step % 2 != 0 })),
        created_at: NOW + step,
    }
}

fn run(thread: &ThreadId, multitask: MultitaskStrategy) -> NewRun {
    NewRun {
        id: RunId::random(),
        owner: "a".into(),
        owner_name: "Ada".into(),
        thread: thread.clone(),
        assistant: AssistantId::random(),
        key: None,
        scope: Scope::User,
        tier: Some("standard".into()),
        metadata: map(json!({ "m": 1 })),
        input: RunInput::Messages { messages: vec![said("u")], values: Metadata::new() },
        kwargs: map(json!({ "k": [1] })),
        sealed: Sealed(vec![1, 2, 3]),
        multitask,
        from: Some(ThreadCheckpointId::random()),
        stateless: false,
        not_before: NOW,
        created_at: NOW,
    }
}

fn ended(status: RunStatus, thread: ThreadStatus) -> RunEnd {
    RunEnd { status, stopped: StopReason::Answered, failure: None, thread, at: NOW + 9 }
}

fn ids(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint.state.messages.iter().map(|message| message.id.as_str()).collect()
}

pub(super) async fn an_assistant_has_versions(store: Shared) -> Outcome {
    let new = |id, name: &str| NewAssistant {
        id,
        graph: "agent".into(),
        name: name.into(),
        description: Some("d".into()),
        config: json!({ "configurable": { "model": "m" } }),
        context: json!({}),
        metadata: map(json!({ "team": "x" })),
    };
    let id = AssistantId::random();
    let first = store.insert_assistant("a", new(id, "One"), NOW).await?;
    same("the first version", (first.version, first.name.as_str(), first.created_at), (1, "One", NOW))?;
    clashes("the same id", store.insert_assistant("a", new(id, "x"), NOW).await, Clash::Taken)?;
    store.insert_assistant("b", new(id, "another owner's"), NOW).await?;
    let second = store.add_assistant_version("a", new(id, "Two"), NOW + 1).await?;
    same("the second", second.map(|one| (one.version, one.name)), Some((2, "Two".into())))?;
    same("versions", store.assistant_versions("a", id).await?.len(), 2)?;
    let back = store.set_assistant_version("a", id, 1, NOW + 2).await?;
    same("the first again", back.map(|one| one.name), Some("One".into()))?;
    same("no such version", store.set_assistant_version("a", id, 9, NOW).await?, None)?;
    let found =
        |name: &str| AssistantQuery { name: Some(name.into()), limit: 9, ..AssistantQuery::default() };
    same("by its name", store.assistants("a", &found("ON")).await?.1, 1)?;
    same("not by its older name", store.assistants("a", &found("two")).await?.1, 0)?;
    same("removed", store.remove_assistant("a", id).await?, true)?;
    same("gone", store.assistant("a", id).await?, None)?;
    ensure(store.assistant("b", id).await?.is_some(), || "another owner's is gone too".into())
}

pub(super) async fn a_thread_is_its_owners(store: Shared) -> Outcome {
    let id = thread(&store, "a", "t1", json!({ "x": { "y": 1 } }), NOW).await?;
    let again = NewThread { owner: "a".into(), id: id.clone(), metadata: Metadata::new(), created_at: NOW };
    clashes("the same id", store.insert_thread(again).await, Clash::Taken)?;
    same("not another's", store.conversation("b", &id).await?, None)?;
    thread(&store, "b", "t1", json!({}), NOW).await?;
    for number in 2..=4 {
        thread(&store, "a", &format!("t{number}"), json!({ "x": { "y": 2 } }), NOW + number).await?;
    }
    let of = |metadata: Value| ThreadQuery { metadata: map(metadata), limit: 2, ..ThreadQuery::of("a") };
    let (page, total) = store.conversations(&of(json!({ "x": { "y": 2 } }))).await?;
    let names: Vec<&str> = page.iter().map(|one| one.id.as_str()).collect();
    same("by metadata, the newest first", (names, total), (vec!["t4", "t3"], 3))?;
    let sorted = ThreadQuery { sort: ThreadSort::Id, ascending: true, offset: 1, ..of(json!({})) };
    let (page, total) = store.conversations(&sorted).await?;
    let names: Vec<&str> = page.iter().map(|one| one.id.as_str()).collect();
    same("sorted, and paged", (names, total), (vec!["t2", "t3"], 4))?;
    let merged = store.merge_thread_metadata("a", &id, map(json!({ "z": 3 })), NOW + 50).await?;
    let wanted = map(json!({ "x": { "y": 1 }, "z": 3 }));
    same("merged", merged.map(|one| (one.metadata, one.updated_at)), Some((wanted, NOW + 50)))?;
    same("not another's", store.merge_thread_metadata("c", &id, Metadata::new(), NOW).await?, None)?;
    same("nor deleted by it", store.remove_conversation("c", &id).await?, false)?;
    ensure(store.conversation("a", &id).await?.is_some(), || "another owner deleted it".into())
}

pub(super) async fn checkpoints_are_a_tree(store: Shared) -> Outcome {
    let id = thread(&store, "a", "t", json!({}), NOW).await?;
    let root = checkpoint(None, None, 0, &["m1", "m2"]);
    let left = checkpoint(Some(&root), None, 2, &["m3"]);
    let right = checkpoint(Some(&root), None, 1, &["n2"]);
    for one in [&root, &left, &right] {
        store.append_checkpoint("a", &id, one.clone(), None).await?;
    }
    let stray = NewCheckpoint {
        id: ThreadCheckpointId::random(),
        parent: Some(ThreadCheckpointId::random()),
        ..root.clone()
    };
    let missing = store.append_checkpoint("a", &id, stray, None).await;
    ensure(matches!(missing, Err(StoreError::NotFound(Thing::Checkpoint))), || {
        format!("no parent: {missing:?}")
    })?;
    let foreign = store.append_checkpoint("b", &id, checkpoint(None, None, 0, &[]), None).await;
    ensure(matches!(foreign, Err(StoreError::NotFound(Thing::Thread))), || {
        format!("no thread: {foreign:?}")
    })?;
    let read = async |one: &NewCheckpoint| store.thread_checkpoint("a", &id, one.id).await;
    let gone = || Failure("a checkpoint is gone".into());
    let (l, r) = (read(&left).await?.ok_or_else(gone)?, read(&right).await?.ok_or_else(gone)?);
    same("one branch", (ids(&l), l.parent, l.step), (vec!["m1", "m2", "m3"], Some(root.id), 0))?;
    same(
        "the other",
        (ids(&r), r.parent, r.state.values.clone()),
        (vec!["m1", "n2"], Some(root.id), right.values.clone()),
    )?;
    let head = store.conversation("a", &id).await?.and_then(|thread| thread.head);
    same("the last is the head", head, Some(right.id))?;
    let all = CheckpointQuery { limit: 9, ..CheckpointQuery::default() };
    let list = async |query: &CheckpointQuery| -> Result<Vec<ThreadCheckpointId>, Failure> {
        Ok(store.thread_checkpoints("a", &id, query).await?.iter().map(|one| one.id).collect())
    };
    same("the newest first", list(&all).await?, vec![right.id, left.id, root.id])?;
    let before = CheckpointQuery { before: Some(left.id), ..all.clone() };
    same("before one", list(&before).await?, vec![root.id])?;
    let odd = CheckpointQuery { metadata: map(json!({ "odd": true })), ..all.clone() };
    same("by metadata", list(&odd).await?, vec![root.id])?;
    same("not another's", store.thread_checkpoint("b", &id, root.id).await?, None)?;
    let copy = store.copy_thread("a", &id, thread_id("copy")?, NOW + 5).await?.ok_or_else(gone)?;
    same("a copy's head", copy.head, Some(right.id))?;
    store.remove_conversation("a", &id).await?;
    let copied = store.thread_checkpoint("a", &copy.id, left.id).await?.ok_or_else(gone)?;
    same("a copy stays whole", ids(&copied), vec!["m1", "m2", "m3"])
}

pub(super) async fn one_run_of_a_thread_runs(store: Shared) -> Outcome {
    let id = thread(&store, "a", "t", json!({}), NOW).await?;
    let (first, second) = (run(&id, MultitaskStrategy::Enqueue), run(&id, MultitaskStrategy::Enqueue));
    let record = store.insert_run(first.clone()).await?;
    same("as it went in", (record.new, record.status), (first.clone(), RunStatus::Pending))?;
    let later = NewRun { not_before: NOW + 100, ..second.clone() };
    store.insert_run(later).await?;
    clashes("rejected", store.insert_run(run(&id, MultitaskStrategy::Reject)).await, Clash::Busy)?;
    let status = async || store.conversation("a", &id).await.map(|thread| thread.map(|thread| thread.status));
    same("busy", status().await?, Some(ThreadStatus::Busy))?;
    let begun = crowd(|_| {
        let (store, id) = (store.clone(), id.clone());
        async move { store.next_run("a", &id, NOW).await.ok().flatten().map(|run| run.new.id) }
    });
    let begun: Vec<RunId> = begun.await?.into_iter().flatten().collect();
    same(&format!("of {CROWD} that ask one begins it"), begun, vec![first.id])?;
    let step = checkpoint(None, Some(first.id), 0, &["m"]);
    let progress = RunProgress { iterations: 3, tokens: 77 };
    store.append_checkpoint("a", &id, step, Some(progress)).await?;
    let now = store.run("a", &id, first.id).await?.map(|run| (run.iterations, run.tokens, run.attempts));
    same("what it used", now, Some((3, 77, 1)))?;
    store.requeue_run("a", &id, first.id).await?;
    let again = store.next_run("a", &id, NOW + 1000).await?.map(|run| (run.new.id, run.attempts));
    same("the interrupted goes on first", again, Some((first.id, 2)))?;
    let end = ended(RunStatus::Success, ThreadStatus::Idle);
    same("ended", store.finish_run("a", &id, first.id, end.clone()).await?, true)?;
    same("once", store.finish_run("a", &id, first.id, end.clone()).await?, false)?;
    same("another waits", status().await?, Some(ThreadStatus::Busy))?;
    same("not yet", store.next_run("a", &id, NOW + 99).await?, None)?;
    let next = store.next_run("a", &id, NOW + 100).await?.map(|run| run.new.id);
    same("in its time", next, Some(second.id))?;
    same("unfinished", store.unfinished_runs().await?.len(), 1)?;
    store.finish_run("a", &id, second.id, ended(RunStatus::Error, ThreadStatus::Error)).await?;
    same("as the last one ended", status().await?, Some(ThreadStatus::Error))?;
    same("none is left", store.unfinished_runs().await?.len(), 0)?;
    let stateless = NewRun {
        stateless: true,
        ..run(&thread(&store, "a", "own", json!({}), NOW).await?, MultitaskStrategy::Enqueue)
    };
    store.insert_run(stateless.clone()).await?;
    store.finish_run("a", &stateless.thread, stateless.id, end).await?;
    let left: Vec<RunId> = store.unfinished_runs().await?.iter().map(|run| run.new.id).collect();
    same("a thread that is to be removed", left, vec![stateless.id])?;
    let of = async |status| store.runs("a", &id, status, 9, 0).await.map(|runs| runs.len());
    same("by status", (of(None).await?, of(Some(RunStatus::Error)).await?), (2, 1))?;
    same("not another's", store.run("b", &id, first.id).await?, None)?;
    same("removed", store.remove_run("a", &id, first.id).await?, true)
}

pub(super) async fn a_run_is_rolled_back(store: Shared) -> Outcome {
    let id = thread(&store, "a", "t", json!({}), NOW).await?;
    let base = checkpoint(None, None, 0, &["m1"]);
    store.append_checkpoint("a", &id, base.clone(), None).await?;
    let new = run(&id, MultitaskStrategy::Enqueue);
    store.insert_run(new.clone()).await?;
    store.next_run("a", &id, NOW).await?;
    let one = checkpoint(Some(&base), Some(new.id), 1, &["m2"]);
    let two = checkpoint(Some(&one), Some(new.id), 2, &["m3"]);
    for step in [&one, &two] {
        store.append_checkpoint("a", &id, step.clone(), None).await?;
    }
    same("rolled back", store.roll_back_run("a", &id, new.id).await?, true)?;
    let now = store.conversation("a", &id).await?.map(|thread| (thread.head, thread.status));
    same("as before", now, Some((Some(base.id), ThreadStatus::Idle)))?;
    same("its steps are gone", store.thread_checkpoint("a", &id, two.id).await?, None)?;
    same("and it", store.run("a", &id, new.id).await?, None)?;
    // One that went on from an earlier checkpoint: the head is what it was, and not that one.
    let last = checkpoint(Some(&base), None, 1, &["m4"]);
    store.append_checkpoint("a", &id, last.clone(), None).await?;
    let branch = run(&id, MultitaskStrategy::Enqueue);
    store.insert_run(branch.clone()).await?;
    store.next_run("a", &id, NOW).await?;
    let step = checkpoint(Some(&base), Some(branch.id), 1, &["m5"]);
    store.append_checkpoint("a", &id, step, None).await?;
    same("the branch rolled back", store.roll_back_run("a", &id, branch.id).await?, true)?;
    let head = store.conversation("a", &id).await?.and_then(|thread| thread.head);
    same("the head is as before", head, Some(last.id))
}

pub(super) async fn what_is_below_a_thread_goes_with_it(store: Shared) -> Outcome {
    let id = thread(&store, "a", "t", json!({}), NOW).await?;
    let new = run(&id, MultitaskStrategy::Enqueue);
    store.insert_run(new.clone()).await?;
    let step = checkpoint(None, Some(new.id), 0, &["m"]);
    store.append_checkpoint("a", &id, step.clone(), None).await?;
    same("removed", store.remove_conversation("a", &id).await?, true)?;
    same("once", store.remove_conversation("a", &id).await?, false)?;
    same("no run to go on with", store.unfinished_runs().await?.len(), 0)?;
    thread(&store, "a", "t", json!({}), NOW).await?;
    same("no checkpoint", store.thread_checkpoint("a", &id, step.id).await?, None)?;
    same("no run", store.run("a", &id, new.id).await?, None)
}
