//! Keys.

use crate::{
    App,
    parse::{Params, Raw, json, key_id, seconds},
    sandboxes::page_asked,
};
use atoll_core::{Keys, LARGEST_PAGE, NewKey};
use atoll_http::{Busy, Failure, Repeat, Who, once};
use atoll_types::{
    ApiKey, Error, Scope,
    time::{now_ms, rfc3339},
};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyItem {
    id: Uuid,
    name: String,
    owner: String,
    owner_id: String,
    scope: &'static str,
    /// None of an admin key, which has no ceiling.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    /// Its first characters.
    prefix: String,
    created_at: String,
    expires_at: Option<String>,
    revoked_at: Option<String>,
    last_used_at: Option<String>,
}

impl From<ApiKey> for KeyItem {
    fn from(key: ApiKey) -> Self {
        let ApiKey {
            id,
            name,
            owner,
            owner_name,
            scope,
            tier,
            prefix,
            hash: _,
            created_at,
            expires_at,
            revoked_at,
            last_used_at,
        } = key;
        Self {
            id: id.uuid(),
            name,
            owner: owner_name,
            owner_id: owner,
            scope: scope.as_str(),
            tier: (scope != Scope::Admin).then_some(tier),
            prefix,
            created_at: rfc3339(created_at),
            expires_at: expires_at.map(rfc3339),
            revoked_at: revoked_at.map(rfc3339),
            last_used_at: last_used_at.map(rfc3339),
        }
    }
}

/// A key to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyBody {
    name: String,
    /// Whose; without one, yours. Only an admin may name another.
    owner: Option<String>,
    /// admin, user or read_only.
    scope: Option<String>,
    /// sandbox, restricted, standard, elevated or unrestricted; without one, standard or your own, whichever
    /// is lower.
    tier: Option<String>,
    /// For how long it is worth anything.
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    expires_in_seconds: Option<u32>,
}

/// A new key with its secret, which is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewKeyItem {
    key: String,
    #[serde(flatten)]
    item: KeyItem,
}

/// How long a key may be worth anything.
pub(crate) const EXPIRES_SECONDS: RangeInclusive<u32> = 1..=100 * 365 * 24 * 3600;

fn expiry(seconds: Option<u32>) -> Result<Option<i64>, Error> {
    let Some(seconds) = seconds else { return Ok(None) };
    if !EXPIRES_SECONDS.contains(&seconds) {
        let message = format!("must be between 1 and {}", EXPIRES_SECONDS.end());
        return Err(Error::invalid("expires_in_seconds", message));
    }
    Ok(Some(now_ms() + i64::from(seconds) * 1000))
}

/// Makes a key.
///
/// With an `Idempotency-Key` one key is made, and a request that is repeated with the same API key gets the
/// same answer, the secret included, which the server keeps sealed for as long as it keeps answers.
#[utoipa::path(post, path = "/api/v1/keys", tag = "keys", request_body = KeyBody,
    responses((status = 201, body = NewKeyItem), (status = 403), (status = 422),
        (status = 429, description = "Its owner has as many keys as an owner may")))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let KeyBody { name, owner, scope, tier, expires_in_seconds } = json(&body)?;
    let scope = scope.as_deref().unwrap_or("user");
    let scope = Scope::ALL.iter().copied().find(|s| s.as_str() == scope);
    let scope = scope.ok_or_else(|| Error::invalid("scope", "expected admin, user or read_only"))?;
    let new = NewKey { name, owner, scope, tier, expires_at: expiry(expires_in_seconds)? };
    // Another key of the same owner may be a weaker one, and is not to get the secret.
    let operation = format!("key {:?}", caller.key.map(|key| key.uuid()));
    let repeat = Repeat::of(&headers, &operation, &body)?;
    let id = repeat.as_ref().map(|repeat| Keys::repeatable_id(&caller, &repeat.key, &repeat.request));
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let issued = core.keys.create(&asker, id, new).await?;
        Ok((StatusCode::CREATED, NewKeyItem { key: issued.secret, item: issued.key.into() }))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeyParams {
    page: Option<u64>,
    page_size: Option<u32>,
}

/// One page of keys.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyList {
    items: Vec<KeyItem>,
    total: u64,
    page: u64,
    page_size: u32,
}

/// Lists keys, without their secrets, the newest first: yours, or with an admin key those of all owners.
#[utoipa::path(get, path = "/api/v1/keys", tag = "keys", params(KeyParams),
    responses((status = 200, body = KeyList), (status = 422)))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<KeyParams>,
) -> Result<Json<KeyList>, Failure> {
    let (page, page_size) = page_asked(params.page, params.page_size)?;
    if !(1..=LARGEST_PAGE).contains(&page_size) {
        let message = format!("page_size must be between 1 and {LARGEST_PAGE}");
        return Err(Failure::in_query(Error::invalid("page_size", message)));
    }
    let all = app.core.keys.list(&caller).await?;
    let (total, before) = (all.len() as u64, (page - 1).saturating_mul(u64::from(page_size)));
    let rest = all.into_iter().skip(usize::try_from(before).unwrap_or(usize::MAX));
    let items = rest.take(page_size as usize).map(KeyItem::from).collect();
    Ok(Json(KeyList { items, total, page, page_size }))
}

/// Makes a key worthless.
#[utoipa::path(delete, path = "/api/v1/keys/{id}", tag = "keys", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = KeyItem), (status = 404),
        (status = 409, description = "It is the last admin key that is valid")))]
pub(crate) async fn revoke(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<KeyItem>, Failure> {
    Ok(Json(app.core.keys.revoke(&caller, key_id(&id)?).await?.into()))
}
