//! Sandboxes that are kept ready, for admins.

use crate::{
    App,
    parse::{Raw, json},
};
use atoll_core::{Language, PoolBounds, PoolChange, PoolFailure, PoolKey, PoolSize, PoolView};
use atoll_http::{Failure, Who};
use atoll_types::time::rfc3339;
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// What is kept ready.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolItem {
    /// The setting `warm_pool_enabled`.
    enabled: bool,
    /// By image and profile: everything that is fixed when a container starts.
    keys: Vec<PoolKeyItem>,
    /// The languages whose interpreters are started in each, by the setting `pool.kernels`.
    kernels: Vec<&'static str>,
}

/// What is kept ready of one image.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolKeyItem {
    image: String,
    profile: String,
    ready: u32,
    starting: u32,
    /// How many are to be ready: as many as were asked for of late, between `min` and `max`.
    target: u32,
    min: u32,
    max: u32,
    /// Creates that got one.
    hits: u64,
    /// Creates that found none.
    misses: u64,
    /// Of the one that waits longest.
    oldest_age_seconds: Option<f64>,
    /// How many were made, and how long one took on average.
    refills: u64,
    refill_seconds: Option<f64>,
    failures: u64,
    last_failure: Option<PoolFailureItem>,
    /// Interpreters that wait in those that are ready.
    kernels: u32,
}

/// Why one could not be made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolFailureItem {
    at: String,
    reason: String,
}

impl From<PoolKey> for PoolKeyItem {
    fn from(key: PoolKey) -> Self {
        let PoolKey {
            image,
            image_id: _,
            display_name: _,
            profile,
            size: PoolSize { min, max },
            ready,
            starting,
            target,
            hits,
            misses,
            oldest,
            refills,
            refill_time,
            failures,
            last_failure,
            kernels,
        } = key;
        let failure = |PoolFailure { at, reason }| PoolFailureItem { at: rfc3339(at), reason };
        Self {
            image,
            profile,
            ready,
            starting,
            target,
            min,
            max,
            hits,
            misses,
            oldest_age_seconds: oldest.map(|age| age.as_secs_f64()),
            refills,
            refill_seconds: (refills > 0).then(|| refill_time.as_secs_f64() / refills as f64),
            failures,
            last_failure: last_failure.map(failure),
            kernels,
        }
    }
}

impl From<PoolView> for PoolItem {
    fn from(view: PoolView) -> Self {
        let PoolView { enabled, keys, kernels } = view;
        let kernels = kernels.into_iter().map(Language::name).collect();
        Self { enabled, keys: keys.into_iter().map(PoolKeyItem::from).collect(), kernels }
    }
}

/// What is kept ready. For admins.
#[utoipa::path(get, path = "/api/v1/pool", tag = "pool",
    responses((status = 200, body = PoolItem), (status = 403)))]
pub(crate) async fn get(State(app): State<App>, Who(caller): Who) -> Result<Json<PoolItem>, Failure> {
    Ok(Json(app.core.pool.view(&caller)?.into()))
}

/// How many of an image are kept ready; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct SizeBody {
    /// Even when no sandbox is requested.
    min: Option<u32>,
    /// At most, when many sandboxes are requested.
    max: Option<u32>,
}

atoll_types::object_only!(read SizeBody);

/// What to change; what is left out stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolBody {
    enabled: Option<bool>,
    /// By image; null takes back what was set for it.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, SizeBody>)]
    images: BTreeMap<String, Option<SizeBody>>,
}

impl From<PoolBody> for PoolChange {
    fn from(body: PoolBody) -> Self {
        let PoolBody { enabled, images } = body;
        let size = |SizeBody { min, max }| PoolBounds { min, max };
        Self { enabled, images: images.into_iter().map(|(image, of)| (image, of.map(size))).collect() }
    }
}

/// Changes how many are kept ready. It applies at once and outlives the server. For admins.
#[utoipa::path(patch, path = "/api/v1/pool", tag = "pool", request_body = PoolBody,
    responses((status = 200, body = PoolItem), (status = 403), (status = 422)))]
pub(crate) async fn patch(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<Json<PoolItem>, Failure> {
    let body: PoolBody = json(&body)?;
    Ok(Json(app.core.pool.resize(&caller, body.into()).await?.into()))
}

/// How to drain.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrainBody {
    /// Keep nothing ready from now on either: sets `warm_pool_enabled` to false.
    #[serde(default)]
    stop: bool,
}

/// What was drained.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Drained {
    drained: usize,
}

/// Destroys what is ready. It is made anew, unless the pool is to stop. For admins.
#[utoipa::path(post, path = "/api/v1/pool/drain", tag = "pool", request_body(content = Option<DrainBody>),
    responses((status = 200, body = Drained), (status = 403)))]
pub(crate) async fn drain(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<Json<Drained>, Failure> {
    let DrainBody { stop } = if body.is_empty() { DrainBody::default() } else { json(&body)? };
    Ok(Json(Drained { drained: app.core.pool.drain(&caller, stop).await? }))
}

/// The pool as the reference API has it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolSummary {
    total_images: usize,
    images_with_pool: usize,
    total_idle: u64,
    total_min_target: u64,
    total_max_target: u64,
    provider: &'static str,
    warm_pool_enabled: bool,
    per_image: Vec<ImagePool>,
}

/// The pool of one image.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImagePool {
    image_id: String,
    image_name: String,
    display_name: String,
    warm_pool_min: u32,
    warm_pool_max: u32,
    idle_count: u32,
}

impl From<PoolView> for PoolSummary {
    fn from(view: PoolView) -> Self {
        let PoolView { enabled, keys, kernels: _ } = view;
        let sum = |of: fn(&PoolKey) -> u32| keys.iter().map(|key| u64::from(of(key))).sum();
        let per_image = |key: &PoolKey| ImagePool {
            image_id: key.image_id.clone(),
            image_name: key.image.clone(),
            display_name: key.display_name.clone(),
            warm_pool_min: key.size.min,
            warm_pool_max: key.size.max,
            idle_count: key.ready,
        };
        Self {
            total_images: keys.len(),
            images_with_pool: keys.iter().filter(|key| key.size.max > 0).count(),
            total_idle: sum(|key| key.ready),
            total_min_target: sum(|key| key.size.min),
            total_max_target: sum(|key| key.size.max),
            provider: "native",
            warm_pool_enabled: enabled,
            per_image: keys.iter().map(per_image).collect(),
        }
    }
}

/// The pool in short, as the reference API has it. For admins.
#[utoipa::path(get, path = "/api/v1/settings/sandbox/pool-summary", tag = "settings",
    responses((status = 200, body = PoolSummary), (status = 403)))]
pub(crate) async fn summary(State(app): State<App>, Who(caller): Who) -> Result<Json<PoolSummary>, Failure> {
    Ok(Json(app.core.pool.view(&caller)?.into()))
}
