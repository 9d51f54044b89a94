//! Keys.

use super::{Failure, NOW, Outcome, Shared, clashes, crowd, ensure, same};
use crate::{Admins, ApiKey, Clash, KeyHash, KeyId, Scope, StoreError, Thing};

pub(super) fn key() -> ApiKey {
    let id = KeyId::random();
    let mut hash = [0; 32];
    hash[..16].copy_from_slice(id.uuid().as_bytes());
    ApiKey {
        id,
        name: "laptop".into(),
        owner: "owner".into(),
        owner_name: "Ada".into(),
        scope: Scope::User,
        tier: "standard".into(),
        prefix: "atl_1234".into(),
        hash: KeyHash(hash),
        created_at: NOW,
        expires_at: None,
        revoked_at: None,
        last_used_at: None,
    }
}

pub(super) async fn a_key_is_found_while_it_is_usable(store: Shared) -> Outcome {
    let cases = [
        (key(), true),
        (ApiKey { scope: Scope::Admin, expires_at: Some(NOW + 1), last_used_at: Some(3), ..key() }, true),
        (ApiKey { scope: Scope::ReadOnly, expires_at: Some(NOW), ..key() }, false),
        (ApiKey { expires_at: Some(NOW - 1), ..key() }, false),
        (ApiKey { revoked_at: Some(NOW + 9), ..key() }, false),
    ];
    for (key, usable) in cases {
        store.insert_key(key.clone()).await?;
        let found = store.key_by_hash(key.hash, NOW).await?;
        same("found", found, usable.then_some(key))?;
    }
    same("an unknown one", store.key_by_hash(KeyHash([9; 32]), NOW).await?, None)
}

pub(super) async fn a_revoked_key_stays_revoked(store: Shared) -> Outcome {
    let one = key();
    let other = key();
    store.insert_key(one.clone()).await?;
    store.insert_key(other.clone()).await?;
    let revoked = ApiKey { revoked_at: Some(NOW), ..one.clone() };
    same("the answer", store.revoke_key(one.id, NOW, Admins::Keep).await?, revoked.clone())?;
    same("again", store.revoke_key(one.id, NOW + 5, Admins::Keep).await?, revoked)?;
    same("by hash", store.key_by_hash(one.hash, NOW).await?, None)?;
    same("another", store.key_by_hash(other.hash, NOW).await?, Some(other))?;
    let nobody = store.revoke_key(KeyId::random(), NOW, Admins::Keep).await;
    ensure(matches!(nobody, Err(StoreError::NotFound(Thing::Key))), || format!("unknown: {nobody:?}"))
}

pub(super) async fn the_last_admin_is_not_revoked(store: Shared) -> Outcome {
    let admin = |expires_at, revoked_at| ApiKey { scope: Scope::Admin, expires_at, revoked_at, ..key() };
    let (lasting, expiring, gone) = (admin(None, None), admin(Some(NOW + 9), None), admin(None, Some(1)));
    for one in [&lasting, &expiring, &gone, &admin(Some(NOW), None), &key()] {
        store.insert_key(one.clone()).await?;
    }
    let revoke = async |key: &ApiKey| store.revoke_key(key.id, NOW, Admins::Keep).await;
    clashes("before one that expires", revoke(&lasting).await, Clash::LastAdmin)?;
    same("it stays", store.key_by_hash(lasting.hash, NOW).await?, Some(lasting.clone()))?;
    same("gone already", revoke(&gone).await?, gone)?;
    revoke(&expiring).await?;
    let next = admin(None, None);
    store.insert_key(next.clone()).await?;
    revoke(&lasting).await?;
    clashes("the next one", revoke(&next).await, Clash::LastAdmin)?;
    let own_time = store.revoke_key(next.id, NOW, Admins::Expire).await?;
    same("by its own time", own_time.revoked_at, Some(NOW))
}

pub(super) async fn a_hash_is_unique(store: Shared) -> Outcome {
    let one = key();
    store.insert_key(one.clone()).await?;
    clashes("the hash", store.insert_key(ApiKey { hash: one.hash, ..key() }).await, Clash::Taken)?;
    clashes("the id", store.insert_key(ApiKey { id: one.id, ..key() }).await, Clash::Taken)?;
    same("keys", store.list_keys(None).await?, vec![one])
}

pub(super) async fn the_first_key_is_first_only_once(store: Shared) -> Outcome {
    let all = crowd(|_| {
        let store = store.clone();
        async move { store.insert_first_key(key()).await }
    })
    .await?;
    let made = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    same("how many were first", made.iter().filter(|first| **first).count(), 1)?;
    let keys = store.list_keys(None).await?;
    same("keys", keys.len(), 1)?;
    // Otherwise revoking the last key would let the next start make a first key again.
    store.revoke_key(keys[0].id, NOW, Admins::Keep).await?;
    same("after revoking", store.insert_first_key(key()).await?, false)
}

pub(super) async fn a_key_is_listed_for_its_owner(store: Shared) -> Outcome {
    let old = ApiKey { created_at: 1, ..key() };
    let new = ApiKey { created_at: 2, ..key() };
    let other = ApiKey { created_at: 3, owner: "other".into(), expires_at: Some(0), ..key() };
    for one in [&new, &old, &other] {
        store.insert_key(one.clone()).await?;
    }
    same("the owner's", store.list_keys(Some("owner")).await?, vec![new.clone(), old.clone()])?;
    same("everybody's", store.list_keys(None).await?, vec![other, new, old])?;
    same("of no owner", store.list_keys(Some("")).await?, vec![])
}

pub(super) async fn a_touch_never_moves_back(store: Shared) -> Outcome {
    let (one, other) = (key(), key());
    store.insert_key(one.clone()).await?;
    store.insert_key(other.clone()).await?;
    store.touch_keys(&[(one.id, 5), (KeyId::random(), 9)].into()).await?;
    store.touch_keys(&[(one.id, 3), (other.id, 4)].into()).await?;
    store.touch_keys(&[].into()).await?;
    let used = async |key: &ApiKey| {
        let found = store.key_by_hash(key.hash, NOW).await?;
        Ok::<_, StoreError>(found.and_then(|key| key.last_used_at))
    };
    same("used", (used(&one).await?, used(&other).await?), (Some(5), Some(4)))
}

pub(super) async fn an_owner_has_so_many_keys(store: Shared) -> Outcome {
    let (gone, expired) =
        (ApiKey { revoked_at: Some(NOW), ..key() }, ApiKey { expires_at: Some(NOW), ..key() });
    let (one, other) = (key(), ApiKey { owner: "other".into(), ..key() });
    for not_counted in [&gone, &expired, &other] {
        store.insert_key(not_counted.clone()).await?;
    }
    same("the first", store.insert_key_within(one.clone(), 2, NOW).await?, true)?;
    let made = crowd(|_| {
        let store = store.clone();
        async move { store.insert_key_within(key(), 2, NOW).await }
    })
    .await?;
    let made = made.into_iter().collect::<Result<Vec<_>, _>>()?;
    same("the rest", made.iter().filter(|made| **made).count(), 1)?;
    same(
        "another owner's",
        store.insert_key_within(ApiKey { id: KeyId::random(), ..other }, 1, NOW).await.ok(),
        Some(false),
    )?;
    clashes("itself does not count", store.insert_key_within(one.clone(), 2, NOW).await, Clash::Taken)?;
    // Of revoked ones as many are kept, the last.
    store.revoke_key(one.id, NOW + 1, Admins::Keep).await?;
    same("in its place", store.insert_key_within(key(), 2, NOW).await?, true)?;
    store.revoke_key(expired.id, NOW + 2, Admins::Keep).await?;
    let last = store.list_keys(Some("owner")).await?.into_iter().find(|key| key.revoked_at.is_none());
    let last = last.ok_or_else(|| Failure("no usable key".into()))?;
    store.revoke_key(last.id, NOW + 3, Admins::Keep).await?;
    same("after that", store.insert_key_within(key(), 2, NOW).await?, true)?;
    let left: Vec<KeyId> = store.list_keys(Some("owner")).await?.iter().map(|key| key.id).collect();
    same(
        "left",
        (left.len(), left.contains(&gone.id), left.contains(&one.id), left.contains(&last.id)),
        (4, false, false, true),
    )
}

pub(super) async fn only_an_unused_key_is_renewed(store: Shared) -> Outcome {
    let (one, another) = (key(), key().hash);
    let used = ApiKey { last_used_at: Some(NOW), ..key() };
    let revoked = ApiKey { revoked_at: Some(NOW), ..key() };
    for one in [&one, &used, &revoked] {
        store.insert_key(one.clone()).await?;
    }
    let renew = |id, since| store.renew_key(id, another, "atl_5678".into(), since);
    for (what, id, since) in [
        ("used", used.id, NOW),
        ("revoked", revoked.id, NOW),
        ("too old", one.id, NOW + 1),
        ("unknown", KeyId::random(), NOW),
    ] {
        same(what, renew(id, since).await?, None)?;
    }
    let renewed = ApiKey { hash: another, prefix: "atl_5678".into(), ..one.clone() };
    same("the answer", renew(one.id, NOW).await?, Some(renewed.clone()))?;
    same("by the new hash", store.key_by_hash(another, NOW).await?, Some(renewed))?;
    same("by the old hash", store.key_by_hash(one.hash, NOW).await?, None)
}

pub(super) async fn old_keys_go_but_never_the_last(store: Shared) -> Outcome {
    let revoked = |at| ApiKey { revoked_at: Some(at), ..key() };
    let (old, fresh, used, last) = (revoked(NOW - 9), revoked(NOW - 8), key(), revoked(1));
    for one in [&old, &fresh, &used, &last] {
        store.insert_key(one.clone()).await?;
    }
    same("how many went", store.purge_keys(NOW - 9).await?, 1)?;
    let left: Vec<KeyId> = store.list_keys(None).await?.iter().map(|key| key.id).collect();
    same("left", left.len(), 3)?;
    ensure(!left.contains(&old.id), || "the old one is there".into())?;
    same("again", store.purge_keys(NOW).await?, 1)?;
    store.revoke_key(used.id, NOW, Admins::Keep).await?;
    same("and again", store.purge_keys(NOW).await?, 1)?;
    same("the last", store.list_keys(None).await?, vec![last])?;
    same("the door", store.insert_first_key(key()).await?, false)
}
