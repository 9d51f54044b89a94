//! The API's own description: the OpenAPI document. The console's front renders it at `/docs`.

use crate::App;
use axum::{Router, http::header, response::IntoResponse, routing::get};
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

/// `/openapi.json`.
pub(crate) fn router(document: String) -> Router<App> {
    let document = move || {
        let document = document.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], document).into_response() }
    };
    Router::new().route("/openapi.json", get(document))
}
