//! The file of passwords that `docker login` and `skopeo login` write: `{"auths": {"HOST": {"auth": "…"}}}`, where `auth` is
//! `user:password` in base64.

use crate::{Credentials, LARGEST_DOCUMENT};
use atoll_types::{Error, ErrorCode, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path};
use tokio::io::AsyncReadExt;

#[derive(Deserialize)]
struct AuthFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    /// The program that keeps the passwords of hosts whose entry has none.
    #[serde(default, rename = "credsStore")]
    store: String,
    /// The same for single hosts.
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    registrytoken: Option<String>,
}

/// The error for a file that cannot be used. Nothing of what it holds is in it.
fn unusable(why: &str) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the server's file of registry passwords {why}"))
}

impl Entry {
    fn credentials(self) -> Result<Credentials> {
        if let Some(token) = self.registrytoken.filter(|token| !token.is_empty()) {
            return Ok(Credentials::Bearer(token));
        }
        if let (Some(user), Some(password)) = (self.username, self.password) {
            return Ok(Credentials::Basic { user, password });
        }
        let Some(auth) = self.auth.filter(|auth| !auth.is_empty()) else {
            return Ok(Credentials::Anonymous);
        };
        let pair = STANDARD.decode(auth).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = pair.as_deref().and_then(|pair| pair.split_once(':'));
        let (user, password) = pair.ok_or_else(|| unusable("has an entry that is no user and password"))?;
        Ok(Credentials::Basic { user: user.to_owned(), password: password.to_owned() })
    }
}

/// The entry of a host, also where it is written as an address.
fn find(text: &[u8], registry: &str) -> Result<Credentials> {
    let file: AuthFile =
        serde_json::from_slice(text).map_err(|_| unusable("is not the JSON that `docker login` writes"))?;
    let host = |key: &str| {
        let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
        rest.split('/').next().unwrap_or_default().to_ascii_lowercase()
    };
    // A key with a path is for some repositories of the host: one of the host alone is before it.
    let found =
        file.auths.into_iter().filter(|(key, _)| host(key) == registry).min_by_key(|(key, _)| key.len());
    let is_listed = found.is_some();
    let credentials = found.map_or(Ok(Credentials::Anonymous), |(_, entry)| entry.credentials())?;
    let by_program =
        is_listed && !file.store.is_empty() || file.helpers.keys().any(|key| host(key) == registry);
    match credentials {
        // Without its password the registry would say that there is no such image.
        Credentials::Anonymous if by_program => Err(unusable(
            "has a program (`credsStore` or `credHelpers`) for this registry's password, and the server runs none; \
             log in without one, so that the file has the password itself",
        )),
        credentials => Ok(credentials),
    }
}

impl Credentials {
    /// What the file has for a registry; no credentials where it has nothing. Read for each pull, so that it can be replaced.
    pub async fn from_file(path: &Path, registry: &str) -> Result<Self> {
        let mut text = Vec::new();
        let opened = tokio::fs::File::open(path).await;
        let file = opened.map_err(|e| unusable(&format!("cannot be opened: {}", e.kind())))?;
        let read = file.take(LARGEST_DOCUMENT).read_to_end(&mut text).await;
        read.map_err(|e| unusable(&format!("cannot be read: {}", e.kind())))?;
        find(&text, registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_a_host_is_found_and_no_other() {
        let text = serde_json::json!({"auths": {
            "registry.example:5000": {"auth": STANDARD.encode("user:pass:word")},
            "https://Other.example/v1/": {"username": "u", "password": "p"},
            "token.example": {"registrytoken": "t", "auth": "ignored"},
            "empty.example": {},
            "broken.example": {"auth": "***"},
        }})
        .to_string();
        let of = |host: &str| find(text.as_bytes(), host);
        let basic = |host: &str| match of(host).unwrap() {
            Credentials::Basic { user, password } => format!("{user} {password}"),
            other => format!("{other:?}"),
        };
        assert_eq!(basic("registry.example:5000"), "user pass:word");
        assert_eq!(basic("other.example"), "u p");
        assert!(matches!(of("token.example").unwrap(), Credentials::Bearer(token) if token == "t"));
        for host in ["registry.example", "example:5000", "empty.example", ""] {
            assert_eq!(basic(host), "Anonymous", "{host}");
        }
        let error = of("broken.example").unwrap_err();
        assert!(!error.message.contains("***"), "{error}");
        assert!(find(b"[", "x").is_err());
    }

    #[test]
    fn a_password_that_a_program_keeps_is_refused_and_not_left_out() {
        let text = serde_json::json!({
            "auths": { "stored.example": {}, "https://own.example/v1/": { "auth": STANDARD.encode("u:p") } },
            "credsStore": "desktop", "credHelpers": { "helped.example": "cloud", "own.example": "cloud" },
        })
        .to_string();
        let of = |host: &str| find(text.as_bytes(), host);
        for host in ["stored.example", "helped.example"] {
            assert!(of(host).unwrap_err().message.contains("credsStore"), "{host}");
        }
        assert!(matches!(of("own.example").unwrap(), Credentials::Basic { user, .. } if user == "u"));
        assert!(matches!(of("public.example").unwrap(), Credentials::Anonymous));
    }
}
