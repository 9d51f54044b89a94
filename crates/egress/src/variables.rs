//! The variables by which tools inside a sandbox find the proxy by themselves. They are a convenience and no
//! boundary: without them a tool reaches no more than with them.

use atoll_types::egress_address::{PROXY, TRUST_BUNDLE};

/// Connections to the sandbox itself do not go through the proxy. The address of IPv6 has no brackets: httpx
/// reads these as a URL and fails. Ranges are left out for the same reason.
const DIRECT: &str = "localhost,127.0.0.1,::1";

/// Names that hold the proxy. Both cases, because tools differ: libcurl (and so git, cargo, R) reads
/// `http_proxy` in lower case only, and Java's and Ruby's tools the upper case. apt reads the lower case.
const PROXIES: &[&str] =
    &["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Names that hold the file of certificates, each for tools that read no other.
const CERTIFICATES: &[&str] = &[
    // OpenSSL, and with it Python's ssl and Ruby; Go; uv and whatever else takes the system's certificates
    // in Rust. It is read in the place of the usual file, so the bundle holds both.
    "SSL_CERT_FILE",
    // Python's requests brings certificates of its own.
    "REQUESTS_CA_BUNDLE",
    // curl; R's own downloads (libcurl).
    "CURL_CA_BUNDLE",
    // pip brings certificates of its own; a `cert` in an image's settings would win without this.
    "PIP_CERT",
    // git gives libcurl a file of its own choice.
    "GIT_SSL_CAINFO",
    // cargo links a libcurl that knows no file of this system.
    "CARGO_HTTP_CAINFO",
    // Node has its certificates in the program; this adds to them.
    "NODE_EXTRA_CA_CERTS",
    // npm: a `cafile` in an image's settings would win without this.
    "NPM_CONFIG_CAFILE",
    // boto3 and the AWS command line read neither of those of requests nor of OpenSSL.
    "AWS_CA_BUNDLE",
];

/// The variables. `trust`: whether the bundle of certificates exists; naming a missing file makes every
/// connection fail.
#[must_use]
pub fn variables(trust: bool) -> Vec<(String, String)> {
    // HTTP and not SOCKS for ALL_PROXY too: httpx and requests fail for lack of SOCKS support even where they
    // would never use it.
    let proxy = format!("http://{PROXY}");
    let mut found: Vec<(&str, &str)> = PROXIES.iter().map(|name| (*name, proxy.as_str())).collect();
    found.extend([("NO_PROXY", DIRECT), ("no_proxy", DIRECT)]);
    // Node's own fetch, from 24 on, and its http a little later. Older ones go through the resolver and the
    // reserved block.
    found.push(("NODE_USE_ENV_PROXY", "1"));
    // Otherwise pip queries the index for its own version after every install, also where it may not.
    found.push(("PIP_DISABLE_PIP_VERSION_CHECK", "1"));
    // The same for npm.
    found.push(("NPM_CONFIG_UPDATE_NOTIFIER", "false"));
    if trust {
        found.extend(CERTIFICATES.iter().map(|name| (*name, TRUST_BUNDLE)));
    }
    found.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_there_once_and_files_only_where_they_are() {
        let with = variables(true);
        let mut names: Vec<_> = with.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), with.len());
        assert!(variables(false).iter().all(|(_, value)| !value.starts_with('/')));
        assert_eq!(with.iter().filter(|(_, value)| value == "http://127.0.0.1:3128").count(), 6);
    }
}
