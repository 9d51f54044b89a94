//! What a page of the console may do, in headers.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The headers of an answer whose scripts and styles carry this nonce. Scripts that such a script loads are trusted,
/// so modules are loaded when they are needed; no address is, the server's own included: a sandbox's files have
/// addresses here, too.
pub(crate) fn headers(nonce: &str) -> HeaderMap {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic'; style-src 'self' 'nonce-{nonce}'; \
         img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; media-src blob:; frame-src 'none'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    );
    let mut headers = common();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers
}

/// The headers of what is no page.
pub(crate) fn common() -> HeaderMap {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    fixed.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect()
}
