//! Names of images in registries, as `docker pull` takes them, but for one thing: a reference names its registry. No
//! registry is built in.

use crate::Digest;
use atoll_types::{Error, Result, is_tag};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The longest reference.
const LONGEST: usize = 512;
const LONGEST_REPOSITORY: usize = 255;

/// An image in a registry: `registry.example.org/python:3.12`, `127.0.0.1:5000/team/image@sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("reference", message)
}

impl Reference {
    /// The host of the registry, with its port where one was given.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository: `team/python`.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; `latest` where neither it nor a digest was given.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest, where one was given; it decides over the tag.
    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(wrong(format!("a reference must have 1 to {LONGEST} characters")));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(|e: Error| wrong(e.message))?)),
            None => (text, None),
        };
        let (registry, rest) = match rest.split_once('/') {
            Some((first, rest)) if is_host(first) => (first, rest),
            _ => {
                let message = format!(
                    "{text:?} names no registry: write HOST/NAME, such as registry.example.org/{text}"
                );
                return Err(wrong(message));
            }
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        let registry = checked_host(registry)?;
        if repository.len() > LONGEST_REPOSITORY || !repository.split('/').all(is_component) {
            return Err(wrong(format!(
                "{text:?} is no name of an image: {repository:?} cannot be a repository"
            )));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(wrong(format!("{tag:?} cannot be a tag")));
        }
        let tag = tag.or(digest.is_none().then_some("latest")).map(Into::into);
        Ok(Self { registry, repository: repository.to_owned(), tag, digest })
    }
}

/// Whether the part before the first slash is a registry and not the beginning of a repository.
fn is_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost"
}

/// A host with an optional port, in lower case.
fn checked_host(text: &str) -> Result<String> {
    let refused = || wrong(format!("{text:?} cannot be the host of a registry"));
    let text = text.to_ascii_lowercase();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (text.as_str(), None),
    };
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let valid = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.len() <= 253 && host.split('.').all(label),
    };
    let digits =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0);
    if valid && port.is_none_or(digits) { Ok(text) } else { Err(refused()) }
}

/// A part of a repository: letters and digits, between them one period, one or two underscores, or hyphens.
fn is_component(part: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(alphanumeric) && part.bytes().last().is_some_and(alphanumeric);
    let separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends && separators.into_iter().all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = self.tag() {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Reference {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_as_docker_reads_them() {
        let digest = Digest::of(b"");
        for (text, whole, registry) in [
            (
                "registry.example.org/python",
                "registry.example.org/python:latest".to_owned(),
                "registry.example.org",
            ),
            ("r.example/a/b/c:v1.0_x", "r.example/a/b/c:v1.0_x".to_owned(), "r.example"),
            ("localhost/x", "localhost/x:latest".to_owned(), "localhost"),
            ("127.0.0.1:5000/x", "127.0.0.1:5000/x:latest".to_owned(), "127.0.0.1:5000"),
            ("[::1]:5000/x:1", "[::1]:5000/x:1".to_owned(), "[::1]:5000"),
            (
                "Registry.Example.ORG/a__b/c--d",
                "registry.example.org/a__b/c--d:latest".to_owned(),
                "registry.example.org",
            ),
            (&format!("r.example/x@{digest}"), format!("r.example/x@{digest}"), "r.example"),
            (&format!("r.example/x:1@{digest}"), format!("r.example/x:1@{digest}"), "r.example"),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!((reference.to_string(), reference.registry()), (whole, registry), "{text}");
        }
        for short in ["python", "python:3.12", "team/app"] {
            let error = short.parse::<Reference>().unwrap_err();
            assert!(error.message.contains("names no registry"), "{error}");
        }
        for bad in [
            "",
            "/",
            "x/",
            "/x",
            "X",
            "x:",
            "x@",
            "x@sha256:1",
            "x y",
            "a//b",
            "a/../b",
            "x:.a",
            "-x",
            "x-",
            "a..b",
            "a___b",
            "http://x/y",
            "user@host/x",
            "host:0/x",
            "host:70000/x",
            "host:+1/x",
            "-h.x/y",
            "h..x/y",
            "[::g]/x",
            "x:a/b",
            "localhost:5000",
            "a%2f..%2fb",
            "x?y",
            "x#y",
            "é",
        ] {
            assert!(bad.parse::<Reference>().is_err(), "{bad}");
            // `localhost:5000` is also a repository with a tag.
            let behind = format!("r.example/{bad}");
            assert!(behind.parse::<Reference>().is_err() || bad == "localhost:5000", "{behind}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_itself_and_safe_in_an_address(text in "[a-zA-Z0-9./:@_\\[\\]-]{1,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                prop_assert_eq!(&reference.to_string().parse::<Reference>().unwrap(), &reference);
                let safe = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-');
                prop_assert!(reference.repository().bytes().all(safe), "{}", reference);
                prop_assert!(!reference.repository().split('/').any(|part| part == ".."), "{}", reference);
            }
        }
    }
}
