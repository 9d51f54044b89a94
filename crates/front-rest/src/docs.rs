//! The API's own description: the OpenAPI document, and a page that renders it without anything from
//! outside.

use crate::App;
use axum::{
    Router,
    http::header,
    response::{Html, IntoResponse},
    routing::get,
};
use utoipa::{
    Modify,
    openapi::security::{Http, HttpAuthScheme, SecurityScheme},
};

/// Says that a key goes into the `Authorization` header.
pub(crate) struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

const PAGE: &str = include_str!("docs.html");

/// `/openapi.json` and `/docs`.
pub(crate) fn router(document: String) -> Router<App> {
    let document = move || {
        let document = document.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], document).into_response() }
    };
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
    let page =
        move || async move { ([(header::CONTENT_SECURITY_POLICY, policy)], Html(PAGE)).into_response() };
    Router::new().route("/openapi.json", get(document)).route("/docs", get(page))
}
