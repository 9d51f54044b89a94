//! Idempotent requests.

use super::{Failure, NOW, Outcome, Shared, clashes, crowd, same};
use crate::{
    Clash, EXPIRES_AFTER_MS, GIVEN_UP_AFTER_MS, REPLY_BYTES, REPLY_BYTES_PER_OWNER, ReplyState, StoredReply,
    Ticket,
};

const HASH: [u8; 32] = [7; 32];

fn reply(body: &[u8]) -> StoredReply {
    StoredReply { status: 201, body: Some(body.into()) }
}

async fn begin(store: &Shared, now: i64) -> Result<ReplyState, Failure> {
    Ok(store.begin_idempotent("owner", "key", HASH, now).await?)
}

async fn ticket(store: &Shared, now: i64) -> Result<Ticket, Failure> {
    match begin(store, now).await? {
        ReplyState::New(ticket) => Ok(ticket),
        other => Err(Failure(format!("got {other:?}, wanted a ticket"))),
    }
}

pub(super) async fn a_request_is_carried_out_once(store: Shared) -> Outcome {
    let mine = ticket(&store, NOW).await?;
    same("meanwhile", begin(&store, NOW).await?, ReplyState::InProgress)?;
    let another = || store.begin_idempotent("owner", "key", [8; 32], NOW);
    same("another request meanwhile", another().await?, ReplyState::Mismatch)?;
    store.finish_idempotent(&mine, reply(b"\0made")).await?;
    same("afterwards", begin(&store, NOW + 1).await?, ReplyState::Done(reply(b"\0made")))?;
    same("another request afterwards", another().await?, ReplyState::Mismatch)?;
    for (owner, key) in [("other", "key"), ("owner", "other")] {
        let begun = store.begin_idempotent(owner, key, HASH, NOW).await?;
        same(key, matches!(begun, ReplyState::New(_)), true)?;
    }
    store.abandon_idempotent(&mine).await?;
    same("what is done stays", begin(&store, NOW).await?, ReplyState::Done(reply(b"\0made")))
}

pub(super) async fn of_many_who_begin_one_carries_out(store: Shared) -> Outcome {
    let all = crowd(|_| {
        let store = store.clone();
        async move { begin(&store, NOW).await }
    })
    .await?;
    let begun = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    same("tickets", begun.iter().filter(|b| matches!(b, ReplyState::New(_))).count(), 1)?;
    same("others", begun.iter().filter(|b| **b == ReplyState::InProgress).count(), begun.len() - 1)
}

pub(super) async fn an_abandoned_request_begins_again(store: Shared) -> Outcome {
    let first = ticket(&store, NOW).await?;
    store.abandon_idempotent(&first).await?;
    store.abandon_idempotent(&first).await?;
    let second = ticket(&store, NOW).await?;
    store.abandon_idempotent(&first).await?;
    same("the second goes on", begin(&store, NOW).await?, ReplyState::InProgress)?;
    clashes("the first's answer", store.finish_idempotent(&first, reply(b"1")).await, Clash::Overtaken)?;
    store.finish_idempotent(&second, reply(b"2")).await?;
    same("the answer", begin(&store, NOW).await?, ReplyState::Done(reply(b"2")))
}

pub(super) async fn a_lost_attempt_is_taken_over_and_cannot_answer(store: Shared) -> Outcome {
    let lost = ticket(&store, NOW).await?;
    same("still waited for", begin(&store, NOW + GIVEN_UP_AFTER_MS - 1).await?, ReplyState::InProgress)?;
    let present = ticket(&store, NOW + GIVEN_UP_AFTER_MS).await?;
    clashes("the lost one's answer", store.finish_idempotent(&lost, reply(b"1")).await, Clash::Overtaken)?;
    store.finish_idempotent(&present, reply(b"2")).await?;
    same("the answer", begin(&store, NOW + GIVEN_UP_AFTER_MS).await?, ReplyState::Done(reply(b"2")))
}

pub(super) async fn answers_expire_and_are_swept(store: Shared) -> Outcome {
    let first = ticket(&store, NOW).await?;
    store.finish_idempotent(&first, reply(b"1")).await?;
    let end = NOW + EXPIRES_AFTER_MS;
    same("nothing to sweep", store.sweep_idempotent(end - 1).await?, 0)?;
    same("kept to the end", begin(&store, end - 1).await?, ReplyState::Done(reply(b"1")))?;
    // Expired before a sweep.
    let second = ticket(&store, end).await?;
    store.finish_idempotent(&second, reply(b"2")).await?;
    same("the young one stays", store.sweep_idempotent(end).await?, 0)?;
    same("swept", store.sweep_idempotent(end + EXPIRES_AFTER_MS).await?, 1)?;
    ticket(&store, end).await.map(|_| ())
}

pub(super) async fn an_answer_too_large_is_done_without_its_body(store: Shared) -> Outcome {
    let largest = StoredReply { status: 200, body: Some(vec![1; REPLY_BYTES]) };
    let mine = ticket(&store, NOW).await?;
    store.finish_idempotent(&mine, largest.clone()).await?;
    same("the largest", begin(&store, NOW).await? == ReplyState::Done(largest), true)?;
    let too_large = StoredReply { status: 200, body: Some(vec![1; REPLY_BYTES + 1]) };
    store.finish_idempotent(&mine, too_large).await?;
    let done = ReplyState::Done(StoredReply { status: 200, body: None });
    same("one more", begin(&store, NOW).await? == done, true)
}

pub(super) async fn an_owners_oldest_answers_make_room(store: Shared) -> Outcome {
    let whole = StoredReply { status: 200, body: Some(vec![1; REPLY_BYTES]) };
    let most = REPLY_BYTES_PER_OWNER / REPLY_BYTES;
    let begin = async |owner: &'static str, n: usize| {
        store.begin_idempotent(owner, &n.to_string(), HASH, NOW + n as i64).await
    };
    for (owner, n) in [("other", 0)].into_iter().chain((0..=most).map(|n| ("owner", n))) {
        let ReplyState::New(mine) = begin(owner, n).await? else {
            return Err(Failure(format!("{owner} {n} was begun before")));
        };
        store.finish_idempotent(&mine, whole.clone()).await?;
    }
    let gone = ReplyState::Done(StoredReply { status: 200, body: None });
    same("the oldest is done without its body", begin("owner", 0).await? == gone, true)?;
    same("the next stays", begin("owner", 1).await? == ReplyState::Done(whole.clone()), true)?;
    same("another's stays", begin("other", 0).await? == ReplyState::Done(whole), true)
}
