//! The console's files, as they are inside the program. `ui/` builds them with their compressed twins beside them
//! (`name.br`, `name.gz`), so nothing is compressed here. A program that was built without them serves a page that says
//! how to build them.
//!
//! Names below `assets/` have a hash of the content in them and may be kept for ever; other files have an ETag.

use crate::policy;
use atoll_types::text::hex;
use axum::{
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use rust_embed::{EmbeddedFile, RustEmbed};
use uuid::Uuid;

#[derive(RustEmbed)]
#[folder = "../../ui/dist/"]
#[allow_missing = true]
struct Files;

/// What stands in a page for the nonce of its answer; see `ui/vite.config.ts`.
const NONCE: &str = "ATOLL_NONCE";

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Atoll</title>\
    <h1>This program was built without the console</h1>\
    <p>To build it with the console, run <code>make serve</code>, or <code>make ui</code> and then <code>make build</code>. \
    The API works without it: <a href=\"/openapi.json\">/openapi.json</a> describes it.</p></html>";

/// The page of every address below `/ui/` that is no file: the console's router reads the rest of it.
pub(crate) async fn index() -> Response {
    page("index.html")
}

/// The API reference.
pub(crate) async fn reference() -> Response {
    page("docs.html")
}

fn page(name: &str) -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let file = Files::get(name).map(|file| String::from_utf8_lossy(&file.data).into_owned());
    (policy::headers(&nonce), Html(text_of(file, &nonce))).into_response()
}

/// A page with its nonce; without the file, what says how to build it.
fn text_of(file: Option<String>, nonce: &str) -> String {
    file.map_or_else(|| NOT_BUILT.to_owned(), |page| page.replace(NONCE, nonce))
}

/// A file of the console.
pub(crate) async fn asset(Path(path): Path<String>, asked: HeaderMap) -> Response {
    let has_hash = path.starts_with("assets/");
    if path.ends_with(".html") || is_twin(&path) {
        return index().await;
    }
    let Some(plain) = Files::get(&path) else {
        return if has_hash { StatusCode::NOT_FOUND.into_response() } else { index().await };
    };
    let (file, encoding) = compressed(&path, &asked).unwrap_or((plain, None));
    let mut headers = policy::common();
    let mut put =
        |name, value: &str| HeaderValue::from_str(value).map(|value| headers.insert(name, value)).is_ok();
    let tag = format!("\"{}\"", hex(&file.metadata.sha256_hash()[..16]));
    put(header::ETAG, &tag);
    put(header::VARY, "accept-encoding");
    put(header::CACHE_CONTROL, if has_hash { "public, max-age=31536000, immutable" } else { "no-cache" });
    if asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    put(header::CONTENT_TYPE, kind(&path));
    if let Some(encoding) = encoding {
        put(header::CONTENT_ENCODING, encoding);
    }
    (headers, file.data).into_response()
}

fn is_twin(path: &str) -> bool {
    [".br", ".gz"].iter().any(|end| path.ends_with(end))
}

/// The smallest twin of a file that the browser can read.
fn compressed(path: &str, asked: &HeaderMap) -> Option<(EmbeddedFile, Option<&'static str>)> {
    let known = asked.get(header::ACCEPT_ENCODING)?.to_str().ok()?;
    [("br", "br"), ("gzip", "gz")]
        .into_iter()
        .filter(|(encoding, _)| accepts(known, encoding))
        .find_map(|(encoding, end)| Some((Files::get(&format!("{path}.{end}"))?, Some(encoding))))
}

/// Whether a list such as `gzip, br;q=0.5` has this encoding.
fn accepts(list: &str, encoding: &str) -> bool {
    list.split(',').any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let refused = weight.trim().strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0);
        name.trim() == encoding && !refused
    })
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_nonce_and_one_that_was_not_built_says_how_it_is() {
        let page = text_of(Some("<script nonce=ATOLL_NONCE></script>".into()), "n1");
        assert_eq!(page, "<script nonce=n1></script>");
        // It has no script and no style, so the policy keeps nothing of it back.
        let page = text_of(None, "n1");
        assert!(page.contains("<code>make serve</code>") && page.contains("/openapi.json"), "{page}");
        assert!(["<script", "<style", "style=", "src="].iter().all(|part| !page.contains(part)), "{page}");
    }

    #[test]
    fn an_encoding_is_used_where_the_browser_reads_it() {
        assert!(accepts("gzip, deflate, br, zstd", "br") && accepts("br;q=0.5", "br"));
        assert!(!accepts("gzip, br;q=0", "br") && !accepts("gzip", "br") && !accepts("brotli", "br"));
    }
}
