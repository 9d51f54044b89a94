//! Where an index keeps its files, by its own links. Its page of one small package that every mirror has is
//! fetched, or its own description. Only host names are taken from it, a few of them, and only of an index that a
//! tool is set to use.

use super::{
    index::{Index, Role, Tool, entry},
    rust::Described,
};
use crate::{Dialer, Entry, Fetched};
use async_trait::async_trait;
use atoll_types::{Error, ErrorCode, Result};
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};
use url::Url;

/// Hosts that the links of one index may add.
pub(super) const MOST_HOSTS: usize = 16;
/// Of an answer.
const MOST_BYTES: usize = 4 << 20;
/// Links of one answer that are read, and the longest.
const MOST_LINKS: usize = 10_000;
const MOST_URL: usize = 2048;
/// Redirections that are followed.
const MOST_STEPS: usize = 4;
/// For all of one index.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexResponse {
    /// The status.
    pub status: u16,
    /// The header `location`.
    pub location: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// The fetcher. It follows no redirect, sends nothing that identifies the server or its users, and connects to no
/// address that is out of reach.
#[async_trait]
pub trait Fetch: Send + Sync + 'static {
    /// Fetches a URL of `http` or `https` with GET. An answer whose body is longer than `most` is an error.
    async fn get(&self, url: &Url, most: usize) -> Result<IndexResponse>;
}

#[async_trait]
impl Fetch for Dialer {
    async fn get(&self, url: &Url, most: usize) -> Result<IndexResponse> {
        // Every step is handled here: the tools inside take the same ones.
        let Fetched { url: _, status, headers, body } = self.fetch(url, most).await?;
        let location = headers.into_iter().find(|(name, _)| name == "location").map(|(_, value)| value);
        Ok(IndexResponse { status, location, body })
    }
}

/// The URL to fetch of an index; a page or JSON may come back. None: it has no links.
fn question(index: &Index) -> Option<Url> {
    if index.credentials || index.git || index.role == Role::Other {
        return None;
    }
    let mut base = index.url.clone();
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", index.url.path()));
    }
    let path = match index.tool {
        Tool::Pip | Tool::Uv => "six/",
        Tool::Npm => "ms",
        Tool::Cargo => "config.json",
        Tool::Apt | Tool::R => return None,
    };
    base.join(path).ok()
}

/// Whether an index has links to fetch.
pub(super) fn has_links(index: &Index) -> bool {
    question(index).is_some()
}

/// Fetches the hosts of an index's files.
pub(super) async fn ask(fetch: &dyn Fetch, index: &Index) -> Result<Vec<Entry>> {
    let asked = tokio::time::timeout(TIMEOUT, follow(fetch, index)).await;
    asked.map_err(|_| Error::new(ErrorCode::Timeout, "no answer in time"))?
}

async fn follow(fetch: &dyn Fetch, index: &Index) -> Result<Vec<Entry>> {
    let bad = |why: String| Error::new(ErrorCode::Unavailable, why);
    let Some(mut url) = question(index) else { return Ok(Vec::new()) };
    let mut hosts = Vec::new();
    for _ in 0..MOST_STEPS {
        let IndexResponse { status, location, body } = fetch.get(&url, MOST_BYTES).await?;
        match (status, location) {
            (200, _) => {
                let found =
                    links(index.tool, &url, &body).ok_or_else(|| bad("it is not a package index".into()))?;
                hosts.extend(found);
                return Ok(distinct(hosts, index));
            }
            (301 | 302 | 303 | 307 | 308, Some(location)) => {
                let worse =
                    |to: &Url| to.scheme() != "https" && (to.scheme() != "http" || url.scheme() == "https");
                let next = url.join(&location).ok().filter(|to| !worse(to));
                url = next.ok_or_else(|| bad("it redirects to an invalid URL".into()))?;
                // The tools follow redirects, so they need that host too; a redirect to an address is not
                // followed.
                hosts.push(entry(&url, None).ok_or_else(|| bad("it redirects to an address".into()))?);
            }
            (status, _) => return Err(bad(format!("it answered {status}"))),
        }
    }
    Err(bad("it redirects too often".into()))
}

/// Each host once, without the index itself.
fn distinct(hosts: Vec<Entry>, index: &Index) -> Vec<Entry> {
    let own = entry(&index.url, None);
    let mut kept: Vec<Entry> = Vec::new();
    for host in hosts {
        if Some(&host) != own.as_ref() && !kept.contains(&host) && kept.len() < MOST_HOSTS {
            kept.push(host);
        }
    }
    kept
}

#[derive(Deserialize)]
struct Simple {
    files: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    url: String,
}

#[derive(Deserialize)]
struct Package {
    versions: BTreeMap<String, Version>,
}

#[derive(Deserialize)]
struct Version {
    dist: Dist,
}

#[derive(Deserialize)]
struct Dist {
    tarball: String,
}

/// The hosts of the links of an answer. None: it is not an answer of an index.
fn links(tool: Tool, base: &Url, body: &[u8]) -> Option<Vec<Entry>> {
    let texts: Vec<String> = match tool {
        Tool::Pip | Tool::Uv => match serde_json::from_slice::<Simple>(body) {
            Ok(simple) => simple.files.into_iter().map(|file| file.url).collect(),
            Err(_) => references(std::str::from_utf8(body).ok()?)?,
        },
        Tool::Npm => {
            let package: Package = serde_json::from_slice(body).ok()?;
            package.versions.into_values().map(|version| version.dist.tarball).collect()
        }
        Tool::Cargo => {
            let described: Described = serde_json::from_slice(body).ok()?;
            described.urls().iter().map(ToString::to_string).collect()
        }
        Tool::Apt | Tool::R => return None,
    };
    let url = |text: &String| base.join(text).ok().filter(|u| matches!(u.scheme(), "http" | "https"));
    let short = texts.iter().take(MOST_LINKS).filter(|text| text.len() <= MOST_URL);
    Some(short.filter_map(url).filter_map(|url| entry(&url, None)).collect())
}

/// The references of a page. None: it is no page.
fn references(page: &str) -> Option<Vec<String>> {
    let lower = page.to_ascii_lowercase();
    lower.contains("<html").then_some(())?;
    let mut found = Vec::new();
    for (at, word) in lower.match_indices("href=").take(MOST_LINKS) {
        let rest = &page[at + word.len()..];
        let Some(quote) = rest.bytes().next().filter(|b| matches!(b, b'"' | b'\'')) else { continue };
        // An unclosed quote must not cost a copy of the whole page.
        if let Some(end) = rest.bytes().skip(1).take(MOST_URL).position(|b| b == quote) {
            found.push(rest[1..=end].to_owned());
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(tool: Tool, body: &str) -> Option<Vec<String>> {
        let base = Url::parse("https://index.example/simple/six/").unwrap();
        Some(links(tool, &base, body.as_bytes())?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn links_of_every_form_tell_their_hosts() {
        let html = "<!DOCTYPE html><html><body><a href=\"https://files.example.com/a.whl#sha256=1\">a</a><A HREF='../../b.whl'>b</A><a href=x></body></html>";
        assert_eq!(hosts(Tool::Pip, html).unwrap(), ["files.example.com:443", "index.example:443"]);
        let json = r#"{"meta":{},"files":[{"url":"https://files.example.com:8443/a.whl"},{"url":"/b.whl"}]}"#;
        assert_eq!(hosts(Tool::Uv, json).unwrap(), ["files.example.com:8443", "index.example:443"]);
        let npm = r#"{"versions":{"1.0.0":{"dist":{"tarball":"http://tar.example.com/a.tgz"}}}}"#;
        assert_eq!(hosts(Tool::Npm, npm).unwrap(), ["tar.example.com:80"]);
        let cargo = r#"{"dl":"https://dl.example.com/{crate}/x","api":"https://api.example.com"}"#;
        assert_eq!(hosts(Tool::Cargo, cargo).unwrap(), ["dl.example.com:443", "api.example.com:443"]);
    }

    #[test]
    fn what_is_no_answer_of_an_index_is_none_and_addresses_are_no_links() {
        for tool in [Tool::Pip, Tool::Npm, Tool::Cargo] {
            for body in ["", "no", "[]", "\u{1}"] {
                assert_eq!(hosts(tool, body), None, "{tool} {body}");
            }
        }
        let html = "<html><a href=\"http://169.254.169.254/x\"><a href=\"javascript:1\"><a href=\"https://localhost/\"><a href=\"https://10.1/\"><a href=\"http://printer/\"><a href=\"";
        assert_eq!(hosts(Tool::Pip, html).unwrap(), Vec::<String>::new());
    }

    struct Canned(Vec<(&'static str, IndexResponse)>);

    #[async_trait]
    impl Fetch for Canned {
        async fn get(&self, url: &Url, _: usize) -> Result<IndexResponse> {
            let found = self.0.iter().find(|(known, _)| *known == url.as_str());
            found
                .map(|(_, answer)| answer.clone())
                .ok_or_else(|| Error::new(ErrorCode::NotFound, url.to_string()))
        }
    }

    fn to(location: &str) -> IndexResponse {
        IndexResponse { status: 302, location: Some(location.to_owned()), body: Vec::new() }
    }

    fn ok(body: String) -> IndexResponse {
        IndexResponse { status: 200, location: None, body: body.into_bytes() }
    }

    #[tokio::test]
    async fn redirections_are_followed_by_name_and_hosts_are_bounded() {
        let index = Index::read(Tool::Pip, Role::Main, "https://index.example/simple").unwrap();
        let many: String = (0..100).map(|n| format!("<a href='https://f{n}.example.com/'>")).collect();
        let canned = Canned(vec![
            ("https://index.example/simple/six/", to("https://moved.example.com/six/")),
            ("https://moved.example.com/six/", ok(format!("<html>{many}"))),
        ]);
        let found = ask(&canned, &index).await.unwrap();
        assert_eq!(found.len(), MOST_HOSTS);
        assert_eq!(found[0].to_string(), "moved.example.com:443");
        for answer in [
            to("https://169.254.169.254/"),
            to("http://moved.example.com/"),
            to("/simple/six/"),
            to("ftp://x.example/"),
            ok("no".into()),
        ] {
            let canned = Canned(vec![("https://index.example/simple/six/", answer)]);
            assert!(ask(&canned, &index).await.is_err());
        }
        let secret = Index::read(Tool::Pip, Role::Main, "https://u:p@index.example/simple").unwrap();
        assert!(!has_links(&secret));
    }
}
