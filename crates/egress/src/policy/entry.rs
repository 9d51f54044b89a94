//! One entry of a policy: a host, a suffix or a range of addresses, perhaps with a port, and for HTTP
//! perhaps with methods and paths.

use super::Host;
use crate::Net;
use serde::{Deserialize, Serialize, de};
use std::{fmt, net::IpAddr, str::FromStr};

/// What an entry matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// This name and no other.
    Name(String),
    /// This name and every name below it: `*.example.com`.
    Suffix(String),
    /// These addresses.
    Net(Net),
}

/// One entry. A text (`example.com`, `*.example.com:443`, `10.0.0.0/8`, `[2001:db8::1]:443`), or an object
/// with `to`, `methods` and `paths`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// What it matches.
    pub target: Target,
    /// On this port; without one, on all.
    pub port: Option<u16>,
    /// With these HTTP methods, in upper case; without any, all.
    pub methods: Vec<String>,
    /// Below these paths; without any, all.
    pub paths: Vec<String>,
}

/// Why a text is not an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// It is none of the forms.
    #[error("expected a host, *.suffix, an address or a range, perhaps with :port")]
    Form,
    /// A star for everything.
    #[error("* alone is not an entry; the mode \"full\" allows every host")]
    Star,
    /// A URL.
    #[error("expected a host and not a URL; leave out the scheme, and put a path into \"paths\"")]
    Url,
    /// The port.
    #[error("the port must be between 1 and 65535")]
    Port,
    /// A method.
    #[error("a method is 1 to {LONGEST_METHOD} letters")]
    Method,
    /// A path.
    #[error("a path begins with / and has neither a query, a fragment, %, \\, // nor dots for a segment")]
    Path,
    /// Too many of them.
    #[error("an entry has at most {MOST} methods and {MOST} paths")]
    Many,
}

/// Most methods, and most paths, of an entry.
const MOST: usize = 64;
const LONGEST_METHOD: usize = 32;
const LONGEST_PATH: usize = 1024;

impl Entry {
    /// Most methods of an entry.
    pub const MOST_METHODS: usize = MOST;
    /// Most paths of an entry.
    pub const MOST_PATHS: usize = MOST;
    /// The longest path of an entry.
    pub const LONGEST_PATH: usize = LONGEST_PATH;
    /// The longest text of an entry.
    pub const LONGEST: usize = super::host::LONGEST_NAME;

    /// The text of an entry as a regular expression. Hosts in Unicode are read too; their form in ASCII is
    /// what it describes.
    #[must_use]
    pub fn pattern() -> String {
        const LABEL: &str = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?";
        // One that begins with a digit could be an address in another spelling.
        const LAST: &str = "[A-Za-z_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?";
        const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
        let name = format!(r"(?:\*\.)?(?:{LABEL}\.)*{LAST}");
        let four = format!(r"(?:{OCTET}\.){{3}}{OCTET}(?:/(?:3[0-2]|[12]?[0-9]))?");
        let six = format!("{}(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?", address_v6());
        let port =
            ":(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})";
        format!("^(?:(?:{name}|{four}|\\[{six}\\])(?:{port})?|{six})$")
    }

    /// A method of an entry as a regular expression.
    #[must_use]
    pub fn method_pattern() -> String {
        format!("^[A-Za-z-]{{1,{LONGEST_METHOD}}}$")
    }

    /// A path of an entry as a regular expression: what [`is_plain_path`] takes.
    #[must_use]
    pub fn path_pattern() -> String {
        // What is visible in ASCII but `/`, and what has another meaning; then the same without the dot.
        const LETTER: &str = r#"[!"$&-.0-9:->@A-Z\[\]^-~]"#;
        const FIRST: &str = r#"[!"$&-,\-0-9:->@A-Z\[\]^-~]"#;
        let part = format!(r"(?:{FIRST}|\.{FIRST}|\.\.{LETTER}){LETTER}*");
        format!("^/(?:{part}(?:/{part})*/?)?$")
    }

    /// Everything on a host.
    #[must_use]
    pub fn name(name: &str) -> Self {
        Self { target: Target::Name(name.to_owned()), port: None, methods: Vec::new(), paths: Vec::new() }
    }

    /// Whether it matches some requests only, so that the connection alone does not decide.
    #[must_use]
    pub fn looks_inside(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }

    /// Whether it matches this host and port.
    #[must_use]
    pub fn fits(&self, host: &Host, port: u16) -> bool {
        self.port.is_none_or(|p| p == port)
            && match (&self.target, host) {
                (Target::Name(mine), Host::Name(name)) => mine == name,
                (Target::Suffix(suffix), Host::Name(name)) => name
                    .strip_suffix(suffix.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
                (Target::Net(net), Host::Address(address)) => net.contains(*address),
                _ => false,
            }
    }

    /// Whether it names an address on this port.
    #[must_use]
    pub fn names(&self, address: IpAddr, port: u16) -> bool {
        self.fits(&Host::Address(address.to_canonical()), port)
    }

    fn parts(text: &str) -> Result<(Target, Option<u16>), BadEntry> {
        if text == "*" || text.starts_with("*:") {
            return Err(BadEntry::Star);
        }
        if text.contains("://") {
            return Err(BadEntry::Url);
        }
        // Without a port first: an IPv6 address is full of colons.
        if let Ok(net) = text.parse() {
            return Ok((Target::Net(net), None));
        }
        match text.rsplit_once(':') {
            None => Ok((Self::target(text)?, None)),
            Some((host, port)) => {
                if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) {
                    let port = port.parse().ok().filter(|p| *p != 0).ok_or(BadEntry::Port)?;
                    return Ok((Self::target(host)?, Some(port)));
                }
                Ok((Self::target(text)?, None))
            }
        }
    }

    fn target(text: &str) -> Result<Target, BadEntry> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Ok(net) = bare.unwrap_or(text).parse::<Net>()
            && (bare.is_some() || !text.contains(':'))
        {
            return Ok(Target::Net(net));
        }
        if let Some(suffix) = text.strip_prefix("*.") {
            return match Host::parse(suffix) {
                Ok(Host::Name(name)) => Ok(Target::Suffix(name)),
                _ => Err(BadEntry::Form),
            };
        }
        match Host::parse(text) {
            Ok(Host::Name(name)) => Ok(Target::Name(name)),
            // An address in a spelling that hides it.
            Ok(Host::Address(_)) | Err(_) => Err(BadEntry::Form),
        }
    }

    fn with(self, methods: Vec<String>, paths: Vec<String>) -> Result<Self, BadEntry> {
        if methods.len() > Self::MOST_METHODS || paths.len() > Self::MOST_PATHS {
            return Err(BadEntry::Many);
        }
        let plain = |m: &String| {
            (1..=LONGEST_METHOD).contains(&m.len()) && m.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-')
        };
        if !methods.iter().all(plain) {
            return Err(BadEntry::Method);
        }
        if !paths.iter().all(|p| p.len() <= LONGEST_PATH && is_plain_path(p)) {
            return Err(BadEntry::Path);
        }
        let methods = methods.into_iter().map(|m| m.to_ascii_uppercase()).collect();
        Ok(Self { methods, paths, ..self })
    }
}

/// An IPv6 address as a regular expression.
fn address_v6() -> String {
    const H: &str = "[0-9A-Fa-f]{1,4}";
    let shortened = (1..=6).map(|n| format!("(?:{H}:){{1,{n}}}(?::{H}){{1,{}}}", 7 - n));
    let all: Vec<String> =
        [format!("(?:{H}:){{7}}{H}"), format!("(?:{H}:){{1,7}}:"), format!(":(?:(?::{H}){{1,7}}|:)")]
            .into_iter()
            .chain(shortened)
            .collect();
    format!("(?:{})", all.join("|"))
}

/// Whether every server reads this path the same way; only such a path may be compared with a prefix.
pub(super) fn is_plain_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.contains("//")
        && path.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'%' | b'\\' | b'?' | b'#'))
        && path.split('/').all(|part| !matches!(part, "." | ".."))
}

impl FromStr for Entry {
    type Err = BadEntry;
    fn from_str(text: &str) -> Result<Self, BadEntry> {
        let (target, port) = Self::parts(text)?;
        Ok(Self { target, port, methods: Vec::new(), paths: Vec::new() })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.target, self.port) {
            (Target::Name(name), _) => f.write_str(name)?,
            (Target::Suffix(name), _) => write!(f, "*.{name}")?,
            (Target::Net(net), Some(_)) if net.to_string().contains(':') => write!(f, "[{net}]")?,
            (Target::Net(net), _) => net.fmt(f)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an entry must be a string, or an object with `to`")]
enum Read {
    Text(String),
    Object(Object),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct Object {
    to: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    methods: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    paths: Vec<String>,
}

atoll_types::object_only!(Object);

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entry =
            |text: &str| text.parse::<Entry>().map_err(|e| de::Error::custom(format!("{text:?}: {e}")));
        match Read::deserialize(deserializer)? {
            Read::Text(text) => entry(&text),
            Read::Object(Object { to, methods, paths }) => {
                let plain = entry(&to)?;
                plain.with(methods, paths).map_err(|e| de::Error::custom(format!("{to:?}: {e}")))
            }
        }
    }
}

impl Serialize for Entry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !self.looks_inside() {
            return serializer.collect_str(self);
        }
        let Self { target: _, port: _, methods, paths } = self;
        Object { to: self.to_string(), methods: methods.clone(), paths: paths.clone() }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(text: &str) -> Entry {
        text.parse().unwrap()
    }

    fn fits(pattern: &str, host: &str, port: u16) -> bool {
        entry(pattern).fits(&Host::parse(host).unwrap(), port)
    }

    /// The alphabet of entries, close enough to their forms that many are some.
    fn entry_like() -> impl Strategy<Value = String> {
        let part = || "(\\*\\.)?[a-z0-9_.-]{0,6}|[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,3})?|\\[?[0-9af:]{2,12}(/[0-9]{1,3})?\\]?";
        (part(), proptest::option::of("[0-9]{0,5}"))
            .prop_map(|(host, port)| port.map_or(host.clone(), |port| format!("{host}:{port}")))
    }

    proptest! {
        #[test]
        fn what_the_pattern_says_is_read(text in entry_like()) {
            if regex::Regex::new(&Entry::pattern()).unwrap().is_match(&text) {
                prop_assert!(text.parse::<Entry>().is_ok(), "{}", text);
            }
        }

        #[test]
        fn the_pattern_of_paths_is_the_check(path in "/?[a%.\\\\?#/é ~]{0,9}", method in "[a-zA-Z -]{0,34}") {
            let is = |pattern: String, text: &str| regex::Regex::new(&pattern).unwrap().is_match(text);
            prop_assert_eq!(is(Entry::path_pattern(), &path), is_plain_path(&path), "{}", path);
            let read = entry("a.example").with(vec![method.clone()], Vec::new());
            prop_assert_eq!(is(Entry::method_pattern(), &method), read.is_ok(), "{}", method);
        }
    }

    #[test]
    fn the_pattern_has_every_form() {
        let pattern = regex::Regex::new(&Entry::pattern()).unwrap();
        for text in [
            "example.com",
            "*.example.com",
            "example.com:443",
            "10.0.0.0/8",
            "10.1.2.3:5432",
            "2001:db8::1",
            "::",
            "::/0",
            "[2001:db8::/32]:443",
            "1:2:3:4:5:6:7:8",
            "a_b",
        ] {
            assert!(pattern.is_match(text) && text.parse::<Entry>().is_ok(), "{text}");
        }
        for text in
            ["*", "*:443", "", "example.com:0", "example.com:65536", "10.0.0.0/33", "a b", "1.2.3", "1:2"]
        {
            assert!(!pattern.is_match(text) && text.parse::<Entry>().is_err(), "{text}");
        }
    }

    #[test]
    fn entries_read_and_write() {
        for text in [
            "example.com",
            "*.example.com",
            "example.com:443",
            "*.example.com:8443",
            "10.0.0.0/8",
            "10.1.2.3",
            "10.1.2.3:5432",
            "10.0.0.0/8:443",
            "2001:db8::1",
            "[2001:db8::1]:443",
            "[2001:db8::/32]:443",
        ] {
            assert_eq!(entry(text).to_string(), text);
        }
        assert_eq!(entry("EXAMPLE.com.").to_string(), "example.com");
    }

    #[test]
    fn what_cannot_be_an_entry_says_why() {
        for (text, why) in [
            ("*", BadEntry::Star),
            ("*:443", BadEntry::Star),
            ("https://example.com", BadEntry::Url),
            ("", BadEntry::Form),
            ("example.com:0", BadEntry::Port),
            ("example.com:65536", BadEntry::Port),
            ("example.com:x", BadEntry::Form),
            ("a.*.com", BadEntry::Form),
            ("*.10.0.0.1", BadEntry::Form),
            ("0x7f.1", BadEntry::Form),
            ("example.com/x", BadEntry::Form),
            ("10.0.0.0/33", BadEntry::Form),
            ("*.", BadEntry::Form),
            ("a b", BadEntry::Form),
        ] {
            assert_eq!(text.parse::<Entry>(), Err(why), "{text}");
        }
    }

    #[test]
    fn names_suffixes_and_ranges_fit_what_they_say() {
        assert!(fits("example.com", "EXAMPLE.com.", 1));
        assert!(!fits("example.com", "www.example.com", 1));
        assert!(fits("*.example.com", "www.example.com", 1));
        assert!(fits("*.example.com", "example.com", 1), "as the reference system has it");
        assert!(!fits("*.example.com", "badexample.com", 1));
        assert!(!fits("*.example.com", "example.com.evil.example", 1));
        assert!(fits("example.com:443", "example.com", 443));
        assert!(!fits("example.com:443", "example.com", 80));
        assert!(fits("10.0.0.0/8", "10.9.9.9", 1));
        assert!(fits("10.0.0.0/8", "::ffff:10.9.9.9", 1));
        assert!(!fits("10.0.0.0/8", "11.0.0.1", 1));
        assert!(!fits("10.0.0.0/8", "ten.example.com", 1));
    }

    #[test]
    fn objects_have_methods_and_paths() {
        let json = r#"{"to":"api.example.com","methods":["get","HEAD"],"paths":["/v1"]}"#;
        let read: Entry = serde_json::from_str(json).unwrap();
        assert_eq!(read.methods, ["GET", "HEAD"]);
        assert!(read.looks_inside());
        assert_eq!(serde_json::from_str::<Entry>(&serde_json::to_string(&read).unwrap()).unwrap(), read);
        assert_eq!(serde_json::to_string(&entry("a.example")).unwrap(), "\"a.example\"");
        for wrong in [
            r#"{"to":"x.example","paths":["v1"]}"#,
            r#"{"to":"x.example","paths":["/a/../b"]}"#,
            r#"{"to":"x.example","paths":["/%61"]}"#,
            r#"{"to":"x.example","methods":["G T"]}"#,
            r#"{"to":"x.example","method":["GET"]}"#,
            r#"{"to":"*"}"#,
            "3",
        ] {
            assert!(serde_json::from_str::<Entry>(wrong).is_err(), "{wrong}");
        }
    }
}
