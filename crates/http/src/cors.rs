//! Web pages as clients: what a browser may send for a page, and what it lets the page see of an answer. A front says
//! which headers and methods are its own; who may ask is [`crate::OriginCheck`]'s. There is no `*`.

use axum::http::{HeaderMap, HeaderValue, header};

/// How long a browser may keep the answer to a preflight, in seconds.
const KEPT: &str = "600";

/// What pages may send to a front and read of it.
#[derive(Debug, Clone, Copy)]
pub struct Cors {
    /// The methods of a page.
    pub methods: &'static str,
    /// The headers that a page may send beside what browsers always let it send.
    pub sent: &'static str,
    /// The headers of an answer that a page may read beside what browsers always let it read.
    pub read: &'static str,
}

impl Cors {
    /// Answers a browser that asks before it sends a page's request.
    pub fn preflight(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(self.methods));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(self.sent));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(KEPT));
    }

    /// Lets the page that sent the request, where one did, see the answer.
    pub fn show(&self, headers: &mut HeaderMap, page: Option<HeaderValue>) {
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(page) = page {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(self.read));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_is_named_and_caches_keep_pages_apart() {
        let cors = Cors { methods: "POST", sent: "x-api-key", read: "retry-after" };
        let mut headers = HeaderMap::new();
        cors.show(&mut headers, None);
        assert_eq!(headers.len(), 1);
        assert_eq!(headers["vary"], "origin");
        let mut headers = HeaderMap::new();
        cors.preflight(&mut headers);
        cors.show(&mut headers, Some(HeaderValue::from_static("https://app.example.com")));
        assert_eq!(headers["access-control-allow-origin"], "https://app.example.com");
        assert_eq!(headers["access-control-expose-headers"], "retry-after");
        assert_eq!(headers["access-control-allow-headers"], "x-api-key");
    }
}
