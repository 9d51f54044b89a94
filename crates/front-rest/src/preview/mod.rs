//! Previews: what a server inside a sandbox answers, to a browser or a program outside. There are two
//! ways to one: below the API's own address ([`path`]), where the page must never gain the powers of
//! that address, and by a name of its own ([`host`]), where the operator has a domain for it.
//!
//! Both sides are strangers to each other: the app must not see the caller's credentials, and the
//! browser must not take the app's word for anything but its own page.

mod access;
mod headers;
mod host;
mod path;
mod proxy;
mod tokens;
mod upstream;
mod valid_body;

use atoll_types::Result;
pub use host::Domain;
pub(crate) use host::route;
pub(crate) use path::__path_open;
pub(crate) use path::{open, redirect};
use std::time::Duration;
pub(crate) use tokens::{
    __path_create, __path_list, __path_ports, __path_revoke, create, list, ports, revoke,
};
use upstream::Upstream;

/// How long an app may take to begin its answer.
const HEAD: Duration = Duration::from_secs(60);

/// What the operator decides about previews.
#[derive(Debug, Clone)]
pub struct PreviewSettings {
    /// Below which every port of a sandbox has a name of its own.
    pub domain: Option<Domain>,
    /// How long an app may take to begin its answer, after the request has been sent.
    pub head_timeout: Duration,
}

impl Default for PreviewSettings {
    fn default() -> Self {
        Self { domain: None, head_timeout: HEAD }
    }
}

impl PreviewSettings {
    /// With this domain.
    pub fn with_domain(mut self, domain: &str) -> Result<Self> {
        self.domain = Some(domain.parse()?);
        Ok(self)
    }
}

/// What previews need beside the core.
pub(crate) struct Preview {
    domain: Option<Domain>,
    upstream: Upstream,
}

impl Preview {
    pub(crate) fn new(settings: PreviewSettings) -> Self {
        let PreviewSettings { domain, head_timeout } = settings;
        Self { domain, upstream: Upstream::new(head_timeout) }
    }
}
