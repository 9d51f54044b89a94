//! Sandboxes: making, looking, changing, stopping, ending.

use crate::{
    App,
    parse::{Params, Raw, json, sandbox_id},
    shapes::{CreateBody, PatchBody, Sandbox, SandboxPage, statuses_of},
    usage::ActivityItem,
};
use atoll_core::CreateSandbox;
use atoll_http::{Busy, Failure, Repeat, Who, once};
use atoll_types::{Error, ListQuery, Page, SortBy};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use std::{collections::BTreeMap, ops::RangeInclusive};
use utoipa::IntoParams;

type JsonResult<T> = Result<Json<T>, Failure>;

/// Creates a sandbox, or finds the one with this session key.
#[utoipa::path(post, path = "/api/v1/sandboxes", tag = "sandboxes", request_body = CreateBody,
    responses((status = 201, body = Sandbox), (status = 200, description = "The one with this session key", body = Sandbox),
        (status = 400, description = "The image's start command failed, or its ready check did not succeed in time"),
        (status = 403, description = "Above what the key's tier, the owner's plan or the machine allows"),
        (status = 422, description = "A field is wrong"),
        (status = 429, description = "Too many at a time, or no room on the machine"),
        (status = 502, description = "The image had to be pulled, and that failed")))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let request: CreateBody = json(&body)?;
    let repeat = Repeat::of(&headers, "create", &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move {
        let request = CreateSandbox::from(request);
        core.images.make_on_use(&asker, request.image.as_deref()).await?;
        let created = core.sandboxes.create(&asker, request).await?;
        let status = if created.new { StatusCode::CREATED } else { StatusCode::OK };
        Ok((status, Sandbox::created(created)))
    };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListParams {
    page: Option<u64>,
    page_size: Option<u32>,
    /// One or several, separated by commas: creating, running, paused, stopped, dead, destroyed.
    status: Option<String>,
    /// Part of an id, image, session key, owner's name or label.
    search: Option<String>,
    /// NAME:TAG, or another name of the image: those that were made with any of its names.
    image: Option<String>,
    /// An owner's name or id. Only an admin sees others' sandboxes.
    owner: Option<String>,
    session_key: Option<String>,
    /// `name=value`, several separated by commas; all must match. A backslash before a comma or another
    /// backslash makes it part of the value.
    labels: Option<String>,
    /// created_at, last_activity_at, status, image or exec_count.
    sort_by: Option<String>,
    /// asc or desc.
    sort_order: Option<String>,
}

/// Pages of a list.
pub(crate) const PAGES: RangeInclusive<u64> = 1..=1 << 40;
/// Labels as [`labels_of`] reads them, as a regular expression.
pub(crate) const LABELS: &str = concat!(
    r"^(?:(?:(?:[^,\\=]|\\[^=])*\\?=(?:[^,\\]|\\[\s\S])*)?,)*",
    r"(?:(?:[^,\\=]|\\[^=])*\\?=(?:[^,\\]|\\[\s\S])*\\?|\\)?$",
);

fn wrong(field: &str, message: &str) -> Failure {
    Failure::in_query(Error::invalid(field, message))
}

pub(crate) fn labels_of(text: Option<&str>) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = vec![String::new()];
    let mut letters = text.unwrap_or_default().chars();
    while let Some(letter) = letters.next() {
        match (letter, pairs.last_mut()) {
            (',', _) => pairs.push(String::new()),
            ('\\', Some(pair)) => pair.extend(letters.next()),
            (letter, Some(pair)) => pair.push(letter),
            (_, None) => {}
        }
    }
    let read = |pair: &String| match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(wrong("labels", "expected name=value, separated by commas")),
    };
    pairs.iter().filter(|p| !p.is_empty()).map(read).collect()
}

/// The page that a request for a list names, and its size: the first, of 20, where it names none.
pub(crate) fn page_asked(page: Option<u64>, size: Option<u32>) -> Result<(u64, u32), Failure> {
    let page = page.unwrap_or(1);
    match PAGES.contains(&page) {
        true => Ok((page, size.unwrap_or(20))),
        false => Err(Failure::in_query(Error::invalid("page", "page starts at 1"))),
    }
}

impl ListParams {
    pub(crate) fn query(self) -> Result<(ListQuery, u64, u32), Failure> {
        let Self { page, page_size, status, search, image, owner, session_key, labels, sort_by, sort_order } =
            self;
        let (page, size) = page_asked(page, page_size)?;
        let mut statuses = Vec::new();
        for name in status.as_deref().unwrap_or_default().split(',').filter(|s| !s.is_empty()) {
            statuses.extend(statuses_of(name).ok_or_else(|| wrong("status", "there is no such status"))?);
        }
        let sort_by = match sort_by.as_deref() {
            None => SortBy::CreatedAt,
            Some(name) => SortBy::ALL.iter().copied().find(|s| s.as_str() == name).ok_or_else(|| {
                wrong("sort_by", "expected created_at, last_activity_at, status, image or exec_count")
            })?,
        };
        let descending = match sort_order.as_deref() {
            None | Some("desc") => true,
            Some("asc") => false,
            Some(_) => return Err(wrong("sort_order", "expected asc or desc")),
        };
        let query = ListQuery {
            owner: owner.as_deref().map(atoll_core::owner_id),
            statuses,
            images: image.into_iter().collect(),
            session_key,
            labels: labels_of(labels.as_deref())?,
            label: None,
            text: search.filter(|s| !s.is_empty()),
            sort_by,
            descending,
            offset: (page - 1).saturating_mul(u64::from(size)),
            limit: size,
            include_destroyed: false,
            with_lifetime: false,
        };
        Ok((query, page, size))
    }
}

/// Lists sandboxes.
#[utoipa::path(get, path = "/api/v1/sandboxes", tag = "sandboxes", params(ListParams),
    responses((status = 200, body = SandboxPage), (status = 422, description = "A parameter is wrong")))]
pub(crate) async fn list(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<ListParams>,
) -> JsonResult<SandboxPage> {
    let (query, page, page_size) = params.query()?;
    let found = app.core.sandboxes.list(&caller, query).await.map_err(Failure::in_query)?;
    Ok(Json(page_of(found, page, page_size)))
}

/// A page as the API returns it.
pub(crate) fn page_of(found: Page, page: u64, page_size: u32) -> SandboxPage {
    let mut status_counts = BTreeMap::new();
    for (status, count) in found.status_counts {
        *status_counts.entry(status.shown()).or_insert(0) += count;
    }
    let items = found.items.into_iter().map(Sandbox::listed).collect();
    SandboxPage { items, total: found.total, page, page_size, status_counts }
}

/// One sandbox.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Sandbox), (status = 404)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> JsonResult<Sandbox> {
    Ok(Json(app.core.sandboxes.get(&caller, sandbox_id(&id)?).await?.into()))
}

/// Changes a sandbox. Memory, cores, environment, network_enabled and volumes only while it is not running.
#[utoipa::path(patch, path = "/api/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = uuid::Uuid, Path)),
    request_body = PatchBody,
    responses((status = 200, body = Sandbox), (status = 404), (status = 409), (status = 422)))]
pub(crate) async fn patch(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Raw(body): Raw,
) -> JsonResult<Sandbox> {
    let id = sandbox_id(&id)?;
    let request: PatchBody = json(&body)?;
    Ok(Json(app.core.sandboxes.patch(&caller, id, request.into()).await?.into()))
}

/// Ends a sandbox with its volume.
#[utoipa::path(delete, path = "/api/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = uuid::Uuid, Path)),
    responses((status = 204), (status = 404)))]
pub(crate) async fn destroy(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<StatusCode, Failure> {
    app.core.sandboxes.destroy(&caller, sandbox_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends its container and keeps its volume.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/stop", tag = "sandboxes", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Sandbox), (status = 404), (status = 409)))]
pub(crate) async fn stop(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> JsonResult<Sandbox> {
    Ok(Json(app.core.sandboxes.stop(&caller, sandbox_id(&id)?).await?.into()))
}

/// Freezes every process of the sandbox and reclaims memory that can be read again. The next request that needs
/// the sandbox (a command, a file, a terminal, a port) unfreezes it.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/pause", tag = "sandboxes", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Sandbox), (status = 404), (status = 409)))]
pub(crate) async fn pause(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> JsonResult<Sandbox> {
    Ok(Json(app.core.sandboxes.pause(&caller, sandbox_id(&id)?).await?.into()))
}

/// Lets a paused one go on where it was; starts a stopped one again with its volume as it was.
#[utoipa::path(post, path = "/api/v1/sandboxes/{id}/resume", tag = "sandboxes", params(("id" = uuid::Uuid, Path)),
    responses((status = 200, body = Sandbox),
        (status = 403, description = "Above what the key's tier allows"), (status = 404), (status = 409),
        (status = 429, description = "Too many at a time, or no room on the machine")))]
pub(crate) async fn resume(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> JsonResult<Sandbox> {
    Ok(Json(app.core.sandboxes.resume(&caller, sandbox_id(&id)?).await?.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ActivityParams {
    limit: Option<u32>,
}

/// What happened in a sandbox, the latest first.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/activity", tag = "sandboxes",
    params(("id" = uuid::Uuid, Path), ActivityParams),
    responses((status = 200, body = Vec<ActivityItem>), (status = 404), (status = 422)))]
pub(crate) async fn activity(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(params): Params<ActivityParams>,
) -> JsonResult<Vec<ActivityItem>> {
    let id = sandbox_id(&id)?;
    let entries = app
        .core
        .sandboxes
        .activities(&caller, id, params.limit.unwrap_or(50))
        .await
        .map_err(Failure::in_query)?;
    Ok(Json(entries.into_iter().map(ActivityItem::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::{LABELS, labels_of};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_pattern_of_labels_is_how_they_are_read(text in r"[a=,\\\n]{0,9}") {
            let fits = regex::Regex::new(LABELS).unwrap().is_match(&text);
            prop_assert_eq!(fits, labels_of(Some(&text)).is_ok(), "{:?}", text);
        }
    }

    #[test]
    fn labels_may_hold_what_separates_them() {
        let read = |text| labels_of(Some(text)).ok().map(|map| map.into_iter().collect::<Vec<_>>());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("a=b,c=d=e"), Some(vec![pair("a", "b"), pair("c", "d=e")]));
        assert_eq!(read(r"a=b\,c\\,d="), Some(vec![pair("a", r"b,c\"), pair("d", "")]));
        assert_eq!(read(""), Some(Vec::new()));
        assert_eq!(read("a"), None);
    }
}
