//! Sessions of the console.

use super::{NOW, Outcome, Shared, clashes, ensure, keys::key, same};
use crate::{
    Admins, ApiKey, CONSOLE_SESSIONS_PER_KEY, Clash, ConsoleSession, KeyHash, KeyId, Millis, StoreError,
    Thing,
};

fn session(key: KeyId, number: u8, created_at: Millis, expires_at: Millis) -> ConsoleSession {
    ConsoleSession { hash: KeyHash([number; 32]), key, created_at, expires_at }
}

pub(super) async fn a_console_session_is_found_while_it_and_its_key_are_usable(store: Shared) -> Outcome {
    let cases = [
        (key(), NOW + 1, true),
        (key(), NOW, false),
        (ApiKey { expires_at: Some(NOW), ..key() }, NOW + 9, false),
        (ApiKey { revoked_at: Some(NOW), ..key() }, NOW + 9, false),
    ];
    for (number, (key, expires_at, usable)) in (1..).zip(cases) {
        store.insert_key(key.clone()).await?;
        let session = session(key.id, number, NOW - 1, expires_at);
        store.insert_console_session(session.clone()).await?;
        let found = store.console_session(session.hash, NOW).await?;
        same("found", found, usable.then_some((session, key)))?;
    }
    same("an unknown one", store.console_session(KeyHash([9; 32]), NOW).await?, None)?;
    let nobody = store.insert_console_session(session(KeyId::random(), 8, NOW, NOW + 1)).await;
    ensure(matches!(nobody, Err(StoreError::NotFound(Thing::Key))), || format!("of no key: {nobody:?}"))
}

pub(super) async fn a_removed_console_session_is_gone(store: Shared) -> Outcome {
    let key = key();
    store.insert_key(key.clone()).await?;
    let (one, other) = (session(key.id, 1, NOW, NOW + 9), session(key.id, 2, NOW, NOW + 9));
    store.insert_console_session(one.clone()).await?;
    store.insert_console_session(other.clone()).await?;
    clashes("again", store.insert_console_session(one.clone()).await, Clash::Taken)?;
    same("removed", store.remove_console_session(one.hash).await?, true)?;
    same("removed again", store.remove_console_session(one.hash).await?, false)?;
    same("gone", store.console_session(one.hash, NOW).await?, None)?;
    same("another", store.console_session(other.hash, NOW).await?, Some((other.clone(), key.clone())))?;
    store.revoke_key(key.id, NOW, Admins::Expire).await?;
    same("with its key", store.console_session(other.hash, NOW).await?, None)
}

pub(super) async fn a_key_has_so_many_console_sessions(store: Shared) -> Outcome {
    let (busy, quiet) = (key(), key());
    store.insert_key(busy.clone()).await?;
    store.insert_key(quiet.clone()).await?;
    store.insert_console_session(session(quiet.id, 200, NOW, NOW + 99)).await?;
    let all: Vec<_> = (0..=CONSOLE_SESSIONS_PER_KEY as u8).collect();
    for number in &all {
        store
            .insert_console_session(session(busy.id, *number, NOW + Millis::from(*number), NOW + 99))
            .await?;
    }
    let mut left = Vec::new();
    for number in &all {
        left.extend(store.console_session(KeyHash([*number; 32]), NOW).await?.map(|_| *number));
    }
    same("the oldest ends", left, all[1..].to_vec())?;
    same("another key's stays", store.console_session(KeyHash([200; 32]), NOW).await?.is_some(), true)
}
