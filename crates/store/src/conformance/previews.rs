//! Preview tokens.

use super::{NOW, Outcome, Shared, add, clashes, ensure, same, sandbox};
use crate::{
    Bound, Change, Clash, MOST_PREVIEW_TOKENS, Millis, PreviewTokenId, PreviewTokenRecord, SandboxId, Status,
    StoreError, Thing,
};

fn token(sandbox: SandboxId, created_at: Millis, expires_at: Millis) -> PreviewTokenRecord {
    PreviewTokenRecord { id: PreviewTokenId::random(), sandbox, port: Some(8080), created_at, expires_at }
}

pub(super) async fn a_preview_token_is_found_until_it_ends_or_is_revoked(store: Shared) -> Outcome {
    let (one, other) = (add(&store, sandbox()).await?.id, add(&store, sandbox()).await?.id);
    let first = token(one, NOW, NOW + 9);
    let second = PreviewTokenRecord { port: None, ..token(one, NOW + 1, NOW + 5) };
    let foreign = PreviewTokenRecord { port: Some(u16::MAX), ..token(other, NOW, NOW + 9) };
    for token in [&first, &second, &foreign] {
        store.insert_preview_token(token.clone()).await?;
    }
    clashes("again", store.insert_preview_token(first.clone()).await, Clash::Taken)?;
    same(
        "all, the newest first",
        store.preview_tokens(one, NOW).await?,
        vec![second.clone(), first.clone()],
    )?;
    same("valid", store.preview_token(one, first.id, NOW + 8).await?, Some(first.clone()))?;
    same("expired", store.preview_token(one, first.id, NOW + 9).await?, None)?;
    same("what is valid", store.preview_tokens(one, NOW + 5).await?, vec![first.clone()])?;
    same("another sandbox's", store.preview_token(one, foreign.id, NOW).await?, None)?;
    same("removing that", store.remove_preview_token(one, foreign.id).await?, false)?;
    same("removed", store.remove_preview_token(one, first.id).await?, true)?;
    same("removed again", store.remove_preview_token(one, first.id).await?, false)?;
    same("gone", store.preview_token(one, first.id, NOW).await?, None)?;
    // A later one takes those with it that have expired, of every sandbox.
    store.insert_preview_token(token(one, NOW + 5, NOW + 6)).await?;
    same("an expired one", store.remove_preview_token(one, second.id).await?, false)?;
    same("a valid one", store.preview_token(other, foreign.id, NOW).await?, Some(foreign))?;
    let of_none = store.insert_preview_token(token(SandboxId::random(), NOW, NOW + 1)).await;
    ensure(matches!(of_none, Err(StoreError::NotFound(Thing::Sandbox))), || format!("of none: {of_none:?}"))?;
    store.update_sandbox(other, 1, Change::status(Status::Destroyed)).await?;
    let late = store.insert_preview_token(token(other, NOW, NOW + 1)).await;
    ensure(matches!(late, Err(StoreError::NotFound(Thing::Sandbox))), || {
        format!("of a destroyed one: {late:?}")
    })
}

pub(super) async fn a_sandbox_has_so_many_preview_tokens(store: Shared) -> Outcome {
    let (busy, quiet) = (add(&store, sandbox()).await?.id, add(&store, sandbox()).await?.id);
    let first = token(busy, NOW, NOW + 9);
    store.insert_preview_token(first.clone()).await?;
    for number in 1..MOST_PREVIEW_TOKENS {
        // One that expires first.
        let end = NOW + if number == 1 { 5 } else { 9 };
        store.insert_preview_token(token(busy, NOW, end)).await?;
    }
    let refused = async |at| match store.insert_preview_token(token(busy, at, NOW + 99)).await {
        Err(StoreError::Beyond(Bound::PreviewTokens)) => Ok(true),
        other => other.map(|()| false),
    };
    same("one more", refused(NOW).await?, true)?;
    store.insert_preview_token(token(quiet, NOW, NOW + 9)).await?;
    same("once one has expired", refused(NOW + 5).await?, false)?;
    same("and one more", refused(NOW + 5).await?, true)?;
    store.remove_preview_token(busy, first.id).await?;
    same("once one is revoked", refused(NOW + 5).await?, false)
}
