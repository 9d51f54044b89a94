//! The caller of a tool, and its conversation.

use atoll_core::Caller;
use atoll_types::{Error, Result};
use std::{fmt, str::FromStr};

/// A conversation: 1 to 128 of letters, digits, `.`, `_`, `:` and `-`, beginning with a letter or a digit, so
/// that it is safe in an address and as the name of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(String);

impl ThreadId {
    /// The longest.
    pub const LONGEST: usize = 128;
    /// As a regular expression; it does not count the characters.
    pub const PATTERN: &str = "^[A-Za-z0-9][A-Za-z0-9._:-]*$";

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A random one.
    #[must_use]
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().hyphenated().to_string())
    }
}

impl FromStr for ThreadId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut bytes = text.bytes();
        let fits = text.len() <= Self::LONGEST
            && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
            && bytes.all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
        match fits {
            true => Ok(Self(text.to_owned())),
            false => {
                let message =
                    "a thread is 1 to 128 of letters, digits and ._:-, beginning with a letter or digit";
                Err(Error::invalid("thread_id", message))
            }
        }
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The caller and its conversation. A thread belongs to its owner: the same id of another owner is another
/// thread.
#[derive(Debug, Clone)]
pub struct ToolCaller {
    /// The caller.
    pub caller: Caller,
    /// Its conversation.
    pub thread: ThreadId,
    /// The URL that the caller reaches this server by, without a slash at its end; none over stdio. Only
    /// replies to this caller contain it.
    pub address: Option<String>,
}

impl ToolCaller {
    /// The URL of a server that was reached as `host`, over TLS or not; none where that is no valid host.
    #[must_use]
    pub fn address_of(host: &str, https: bool) -> Option<String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        let scheme = if https { "https" } else { "http" };
        (!host.is_empty() && host.bytes().all(plain)).then(|| format!("{scheme}://{host}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_made_of_a_host_alone() {
        assert_eq!(ToolCaller::address_of("[::1]:7300", false).as_deref(), Some("http://[::1]:7300"));
        assert_eq!(ToolCaller::address_of("a.example", true).as_deref(), Some("https://a.example"));
        for host in ["", "a/b", "a b", "u@a", "a?x"] {
            assert_eq!(ToolCaller::address_of(host, false), None, "{host}");
        }
    }

    #[test]
    fn a_thread_is_safe_as_a_name() {
        for text in ["a", "3f1c2b1e-0000-4000-8000-000000000000", "mcp:abc_1.2", &"x".repeat(128)] {
            assert_eq!(text.parse::<ThreadId>().unwrap().as_str(), text);
        }
        for text in ["", ".", "..", ".x", "a/b", "a b", "-x", "a\0", "é", &"x".repeat(129)] {
            assert!(text.parse::<ThreadId>().is_err(), "{text:?}");
        }
    }
}
