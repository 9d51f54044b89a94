//! An index of packages that a tool is set to use, as it was found. Credentials are never stored: of a URL that
//! has some only the host is kept.

use crate::{Entry, Host, Reach, Target};
use serde::{Deserialize, Serialize};
use std::fmt;
use url::Url;

/// The package ecosystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ecosystem {
    /// pip and uv.
    Python,
    /// npm.
    Node,
    /// cargo.
    Rust,
    /// apt.
    Debian,
    /// R's `install.packages`.
    R,
}

impl Ecosystem {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Python, Self::Node, Self::Rust, Self::Debian, Self::R];

    /// The name of its preset.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Rust => "rust",
            Self::Debian => "debian",
            Self::R => "r",
        }
    }
}

/// A package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// pip.
    Pip,
    /// uv.
    Uv,
    /// npm.
    Npm,
    /// cargo.
    Cargo,
    /// apt.
    Apt,
    /// R.
    R,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pip => "pip",
            Self::Uv => "uv",
            Self::Npm => "npm",
            Self::Cargo => "cargo",
            Self::Apt => "apt",
            Self::R => "R",
        })
    }
}

/// What an index is for its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Where packages come from by default.
    Main,
    /// One more of the same kind.
    Extra,
    /// A page of files, or a source for some packages only: its host is known, and its links are not fetched.
    Other,
}

/// One index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Which tool uses it.
    pub tool: Tool,
    /// Where it is, without credentials.
    pub url: Url,
    /// What it is for the tool.
    pub role: Role,
    /// Whether it is the tool's own default, which no setting replaces.
    pub built_in: bool,
    /// Whether its URL held credentials.
    pub credentials: bool,
    /// Whether it is a git repository, which has no links to fetch.
    pub git: bool,
    /// Hosts of its files, as the tool itself knows them.
    pub files: Vec<Entry>,
}

impl Index {
    /// Parses a tool's setting. A value that is not a URL of the web (a local folder, say) is none.
    pub(super) fn read(tool: Tool, role: Role, text: &str) -> Option<Self> {
        let text = text.trim();
        let text =
            ["sparse+", "registry+", "mirror+"].iter().find_map(|p| text.strip_prefix(p)).unwrap_or(text);
        if text.len() > 2048 {
            return None;
        }
        let mut url = Url::parse(text).ok().filter(|u| matches!(u.scheme(), "http" | "https"))?;
        Host::parse(url.host_str()?).ok()?;
        let credentials = !url.username().is_empty() || url.password().is_some();
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
        // People put other credentials into the query.
        let credentials = credentials || url.query().is_some();
        url.set_query(None);
        url.set_fragment(None);
        Some(Self { tool, url, role, built_in: false, credentials, git: false, files: Vec::new() })
    }

    /// The same, for an index that is built into the tool.
    pub(super) fn built_in(tool: Tool, text: &str) -> Option<Self> {
        let found = Self::read(tool, Role::Main, text)?;
        Some(Self { built_in: true, ..found })
    }
}

/// The entry for a URL's host and port. A URL that the operator of the machine set may be an address within
/// reach, or a name without a dot, which only a company's own resolver knows; from any other source these are
/// none.
pub(super) fn entry(url: &Url, operator: Option<&Reach>) -> Option<Entry> {
    let port = url.port_or_known_default()?;
    let target = match Host::parse(url.host_str()?).ok()? {
        Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => return None,
        Host::Name(name) if name.contains('.') || operator.is_some() => Target::Name(name),
        Host::Name(_) => return None,
        Host::Address(address) => {
            operator.filter(|reach| !reach.is_denied(address))?;
            Target::Net(address.to_string().parse().ok()?)
        }
    };
    Some(Entry { target, port: Some(port), methods: Vec::new(), paths: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_their_secrets_and_nonsense_is_none() {
        let found =
            Index::read(Tool::Pip, Role::Main, " https://me:pw@index.example:8443/simple?t=1#x ").unwrap();
        assert_eq!(found.url.as_str(), "https://index.example:8443/simple");
        assert!(found.credentials);
        let cargo = Index::read(Tool::Cargo, Role::Main, "sparse+https://index.example/").unwrap();
        assert!(!cargo.credentials && cargo.url.as_str() == "https://index.example/");
        let long = format!("https://index.example/{}", "x".repeat(3000));
        for nonsense in [
            "",
            "/opt/wheels",
            "file:///x",
            "ftp://a.example/",
            "https://",
            "http://[::1/",
            "a b",
            "javascript:x",
            &long,
        ] {
            assert_eq!(Index::read(Tool::Pip, Role::Main, nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn only_hosts_within_reach_become_entries() {
        let reach = Reach::default();
        let text = |url: &str, reach| entry(&Url::parse(url).unwrap(), reach).map(|e| e.to_string());
        assert_eq!(text("https://index.example/x", None).as_deref(), Some("index.example:443"));
        assert_eq!(text("http://index.example/x", None).as_deref(), Some("index.example:80"));
        assert_eq!(text("https://192.0.2.7:8080/", Some(&reach)).as_deref(), Some("192.0.2.7:8080"));
        assert_eq!(text("https://mirror/", Some(&reach)).as_deref(), Some("mirror:443"));
        for (url, reach) in [
            ("https://192.0.2.7/", None),
            ("https://169.254.169.254/", Some(&reach)),
            ("https://0x7f.1/", Some(&reach)),
            ("https://[::1]/", Some(&reach)),
            ("https://localhost/", Some(&reach)),
            ("https://x.localhost/", Some(&reach)),
            ("https://mirror/", None),
        ] {
            assert_eq!(text(url, reach), None, "{url}");
        }
    }
}
