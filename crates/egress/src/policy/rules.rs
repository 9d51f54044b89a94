//! The compiled policy, which decides.

use super::{Entry, Host, Limits, MOST_ENTRIES, Mode, Policy, Presets, entry::is_plain_path};
use crate::Reach;
use atoll_types::{Error, Result};
use std::{net::IpAddr, sync::Arc};

/// One request of HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, as it was sent.
    pub method: &'a str,
    /// The path as it was sent, without its query.
    pub path: &'a str,
}

/// An egress request.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Which host.
    pub host: &'a Host,
    /// Which port.
    pub port: u16,
    /// The HTTP request, where the proxy sees it. Without one the connection is decided.
    pub request: Option<Request<'a>>,
}

/// The decision, and the rule that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass.
    Allow(Arc<str>),
    /// It may pass only if each HTTP request is inspected.
    Inspect(Arc<str>),
    /// It may not.
    Deny(Arc<str>),
}

impl Verdict {
    /// The rule that decided.
    #[must_use]
    pub fn rule(&self) -> &Arc<str> {
        match self {
            Self::Allow(rule) | Self::Inspect(rule) | Self::Deny(rule) => rule,
        }
    }
}

#[derive(Debug, Clone)]
struct Rule {
    entry: Entry,
    label: Arc<str>,
}

impl Rule {
    fn new(kind: &str, entry: &Entry) -> Self {
        Self { entry: entry.clone(), label: format!("{kind}: {entry}").into() }
    }

    /// Whether the entry matches this request. None: that is not known before the HTTP request is seen.
    fn fits(&self, asked: &Asked<'_>) -> Option<bool> {
        if !self.entry.fits(asked.host, asked.port) {
            return Some(false);
        }
        match asked.request {
            _ if !self.entry.looks_inside() => Some(true),
            None => None,
            Some(request) => Some(self.inside(request)),
        }
    }

    fn inside(&self, Request { method, path }: Request<'_>) -> bool {
        let Entry { methods, paths, .. } = &self.entry;
        let below = |prefix: &String| {
            path.strip_prefix(prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
        };
        (methods.is_empty() || methods.iter().any(|m| m == method))
            && (paths.is_empty() || paths.iter().any(below))
    }
}

/// The compiled policy.
#[derive(Debug, Clone)]
pub struct Rules {
    mode: Mode,
    allow: Vec<Rule>,
    deny: Vec<Rule>,
    limits: Limits,
    reach: Arc<Reach>,
}

impl Rules {
    /// Nothing may pass.
    #[must_use]
    pub fn none() -> Self {
        Self {
            mode: Mode::None,
            allow: Vec::new(),
            deny: Vec::new(),
            limits: Limits::default(),
            reach: Arc::default(),
        }
    }

    /// Checks a policy and fills its presets in. `field` is its name in the caller's request.
    pub fn new(field: &str, policy: &Policy, presets: &Presets, reach: &Arc<Reach>) -> Result<Self> {
        let Policy { mode, presets: named, allow, deny, limits } = policy;
        for (kind, entries) in [("allow", allow.len()), ("deny", deny.len()), ("presets", named.len())] {
            if entries > MOST_ENTRIES {
                let message = format!("{kind} has {entries} entries; {MOST_ENTRIES} are allowed");
                return Err(Error::invalid(format!("{field}.{kind}"), message));
            }
        }
        check_limits(field, limits)?;
        let mut rules: Vec<Rule> = allow.iter().map(|entry| Rule::new("allow", entry)).collect();
        for name in named {
            let entries = presets.0.get(name).ok_or_else(|| unknown(field, name, presets))?;
            if entries.is_empty() {
                let message = format!(
                    "the preset {name:?} is empty: no package manager here says which hosts it needs; set egress.presets.{name}"
                );
                return Err(Error::invalid(format!("{field}.presets"), message));
            }
            rules.extend(entries.iter().map(|entry| Rule::new(&format!("preset {name}"), entry)));
        }
        if *mode == Mode::None && !(rules.is_empty() && deny.is_empty()) {
            let message = "the mode \"none\" allows nothing; leave the lists out, or say \"allowlist\"";
            return Err(Error::invalid(format!("{field}.mode"), message));
        }
        if *mode == Mode::Allowlist && rules.is_empty() {
            let message = "an allowlist needs \"allow\" or \"presets\"; the mode \"none\" allows nothing";
            return Err(Error::invalid(format!("{field}.allow"), message));
        }
        let deny = deny.iter().map(|entry| Rule::new("deny", entry)).collect();
        Ok(Self { mode: *mode, allow: rules, deny, limits: limits.clone(), reach: Arc::clone(reach) })
    }

    /// What the sandbox may use.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What is reachable at all.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether this may pass, as far as host and request decide.
    #[must_use]
    pub fn decide(&self, asked: &Asked<'_>) -> Verdict {
        let mut inspect = None;
        if self.mode == Mode::None {
            return Verdict::Deny("none".into());
        }
        for rule in &self.deny {
            match rule.fits(asked) {
                Some(true) => return Verdict::Deny(Arc::clone(&rule.label)),
                None => inspect = Some(Arc::clone(&rule.label)),
                Some(false) => {}
            }
        }
        let odd = asked.request.is_some_and(|request| !is_plain_path(request.path));
        if odd && self.looks_inside(asked) {
            // Two servers could read the path in two ways.
            return Verdict::Deny("ambiguous path".into());
        }
        let allowed = self.allowed(asked);
        match (allowed, inspect) {
            (Verdict::Allow(_), Some(rule)) => Verdict::Inspect(rule),
            (verdict, _) => verdict,
        }
    }

    fn looks_inside(&self, asked: &Asked<'_>) -> bool {
        let rules = self.deny.iter().chain(&self.allow);
        rules.into_iter().any(|r| r.entry.looks_inside() && r.entry.fits(asked.host, asked.port))
    }

    fn allowed(&self, asked: &Asked<'_>) -> Verdict {
        let mut inspect = None;
        for rule in &self.allow {
            match rule.fits(asked) {
                Some(true) => return Verdict::Allow(Arc::clone(&rule.label)),
                None if inspect.is_none() => inspect = Some(Arc::clone(&rule.label)),
                _ => {}
            }
        }
        match (self.mode, inspect) {
            (Mode::Full, _) => Verdict::Allow("full".into()),
            (_, Some(rule)) => Verdict::Inspect(rule),
            (_, None) => Verdict::Deny("not listed".into()),
        }
    }

    /// Whether a connection to this address may be made for a host that may pass: the address itself must
    /// not be denied, nor out of reach. An entry for a name never opens an address.
    #[must_use]
    pub fn decide_address(&self, address: IpAddr, port: u16) -> Verdict {
        let named = |rule: &&Rule| rule.entry.names(address, port) && !rule.entry.looks_inside();
        if let Some(rule) = self.deny.iter().find(named) {
            return Verdict::Deny(Arc::clone(&rule.label));
        }
        if !self.reach.is_denied(address) {
            return Verdict::Allow("public address".into());
        }
        match self.allow.iter().find(|rule| rule.entry.names(address, port)) {
            Some(rule) => Verdict::Allow(Arc::clone(&rule.label)),
            None => Verdict::Deny("address out of reach".into()),
        }
    }

    /// The same for an address of this machine, where services listen that no other machine may reach: only an
    /// entry that names it opens it.
    #[must_use]
    pub fn decide_own_address(&self, address: IpAddr, port: u16) -> Verdict {
        match self.decide_address(address, port) {
            Verdict::Deny(rule) => Verdict::Deny(rule),
            _ => match self.allow.iter().find(|rule| rule.entry.names(address, port)) {
                Some(rule) => Verdict::Allow(Arc::clone(&rule.label)),
                None => Verdict::Deny("address of this machine".into()),
            },
        }
    }

    /// Whether a DNS query for a name may be answered: some port of it may be allowed.
    #[must_use]
    pub fn may_name(&self, host: &Host) -> Verdict {
        let any_port = |rule: &&Rule| rule.entry.fits(host, rule.entry.port.unwrap_or(0));
        let all = |rule: &&Rule| rule.entry.port.is_none() && !rule.entry.looks_inside();
        if self.mode == Mode::None {
            return Verdict::Deny("none".into());
        }
        if let Some(rule) = self.deny.iter().filter(all).find(any_port) {
            return Verdict::Deny(Arc::clone(&rule.label));
        }
        match (self.allow.iter().find(any_port), self.mode) {
            (Some(rule), _) => Verdict::Allow(Arc::clone(&rule.label)),
            (None, Mode::Full) => Verdict::Allow("full".into()),
            (None, _) => Verdict::Deny("not listed".into()),
        }
    }
}

fn unknown(field: &str, name: &str, presets: &Presets) -> Error {
    let known: Vec<&str> = presets.0.keys().map(String::as_str).collect();
    let message = format!("there is no preset {name:?}; there are {}", known.join(", "));
    Error::invalid(format!("{field}.presets"), message)
}

fn check_limits(field: &str, limits: &Limits) -> Result<()> {
    let Limits { connections, connections_per_second, bytes, bytes_per_second, connection_seconds } = limits;
    let zeros = [
        ("connections", connections.map(u64::from)),
        ("connections_per_second", connections_per_second.map(u64::from)),
        ("bytes", *bytes),
        ("bytes_per_second", *bytes_per_second),
        ("connection_seconds", connection_seconds.map(u64::from)),
    ];
    match zeros.iter().find(|(_, value)| *value == Some(0)) {
        Some((name, _)) => {
            let message = format!("{name} must be above zero; the mode \"none\" allows nothing");
            Err(Error::invalid(format!("{field}.limits.{name}"), message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: &str) -> Result<Rules> {
        let presets = [("python", vec!["index.example"]), ("r", vec![])];
        let entries = |e: Vec<&str>| e.into_iter().map(|t| t.parse().unwrap()).collect();
        let presets = Presets(presets.into_iter().map(|(n, e)| (n.to_owned(), entries(e))).collect());
        let policy: Policy = serde_json::from_str(json).unwrap();
        Rules::new("egress", &policy, &presets, &Arc::default())
    }

    fn ask(rules: &Rules, host: &str, port: u16, request: Option<(&str, &str)>) -> Verdict {
        let host = Host::parse(host).unwrap();
        let request = request.map(|(method, path)| Request { method, path });
        rules.decide(&Asked { host: &host, port, request })
    }

    fn word(verdict: &Verdict) -> String {
        let word = match verdict {
            Verdict::Allow(_) => "allow",
            Verdict::Inspect(_) => "inspect",
            Verdict::Deny(_) => "deny",
        };
        format!("{word} by {}", verdict.rule())
    }

    #[test]
    fn nothing_passes_by_default() {
        let rules = rules("{}").unwrap();
        assert_eq!(word(&ask(&rules, "example.com", 443, None)), "deny by none");
        assert_eq!(word(&rules.may_name(&Host::parse("example.com").unwrap())), "deny by none");
    }

    #[test]
    fn what_is_listed_passes_and_deny_wins() {
        let json = r#"{"mode":"allowlist","presets":["python"],"allow":["*.example.com","b.example:443"],"deny":["x.example.com"]}"#;
        let rules = rules(json).unwrap();
        assert_eq!(word(&ask(&rules, "a.example.com", 80, None)), "allow by allow: *.example.com");
        assert_eq!(word(&ask(&rules, "x.example.com", 80, None)), "deny by deny: x.example.com");
        assert_eq!(word(&ask(&rules, "index.example", 443, None)), "allow by preset python: index.example");
        assert_eq!(word(&ask(&rules, "b.example", 80, None)), "deny by not listed");
        assert_eq!(
            word(&rules.may_name(&Host::parse("b.example").unwrap())),
            "allow by allow: b.example:443"
        );
        assert_eq!(
            word(&rules.may_name(&Host::parse("x.example.com").unwrap())),
            "deny by deny: x.example.com"
        );
        assert_eq!(word(&ask(&rules, "1.1.1.1", 80, None)), "deny by not listed");
    }

    #[test]
    fn full_is_everything_but() {
        let rules = rules(r#"{"mode":"full","deny":["bad.example","203.0.113.0/24"]}"#).unwrap();
        assert_eq!(word(&ask(&rules, "any.example", 22, None)), "allow by full");
        assert_eq!(word(&ask(&rules, "bad.example", 22, None)), "deny by deny: bad.example");
        let address = |text: &str| word(&rules.decide_address(text.parse().unwrap(), 443));
        assert_eq!(address("203.0.113.9"), "deny by deny: 203.0.113.0/24");
        assert_eq!(address("169.254.169.254"), "deny by address out of reach");
        assert_eq!(address("::ffff:10.0.0.1"), "deny by address out of reach");
        assert_eq!(address("192.0.2.1"), "allow by public address");
    }

    #[test]
    fn only_an_entry_for_addresses_opens_one() {
        let rules = rules(r#"{"mode":"allowlist","allow":["intern.example","10.1.0.0/16:5432"]}"#).unwrap();
        let address = |text: &str, port| word(&rules.decide_address(text.parse().unwrap(), port));
        assert_eq!(address("10.1.2.3", 5432), "allow by allow: 10.1.0.0/16:5432");
        assert_eq!(address("10.1.2.3", 80), "deny by address out of reach");
        assert_eq!(address("10.2.2.3", 5432), "deny by address out of reach");
    }

    #[test]
    fn requests_are_looked_at_where_an_entry_says_so() {
        let json = r#"{"mode":"allowlist","allow":[{"to":"api.example","methods":["GET"],"paths":["/v1"]},"open.example"],
                       "deny":[{"to":"open.example","methods":["DELETE"]}]}"#;
        let rules = rules(json).unwrap();
        assert_eq!(word(&ask(&rules, "api.example", 443, None)), "inspect by allow: api.example");
        let get = |path| word(&ask(&rules, "api.example", 443, Some(("GET", path))));
        assert_eq!(get("/v1"), "allow by allow: api.example");
        assert_eq!(get("/v1/x"), "allow by allow: api.example");
        assert_eq!(get("/v10"), "deny by not listed");
        for odd in ["/v1/../v2", "/v1/%2e%2e/v2", "//v1", "/v1\\..\\v2", "v1", "*"] {
            assert_eq!(get(odd), "deny by ambiguous path", "{odd}");
        }
        assert_eq!(word(&ask(&rules, "api.example", 443, Some(("POST", "/v1")))), "deny by not listed");
        assert_eq!(word(&ask(&rules, "open.example", 443, None)), "inspect by deny: open.example");
        assert_eq!(
            word(&ask(&rules, "open.example", 443, Some(("GET", "/")))),
            "allow by allow: open.example"
        );
        assert_eq!(
            word(&ask(&rules, "open.example", 443, Some(("DELETE", "/")))),
            "deny by deny: open.example"
        );
    }

    #[test]
    fn policies_that_cannot_be_right_are_refused_by_field() {
        for (json, field) in [
            (r#"{"mode":"allowlist"}"#, "egress.allow"),
            (r#"{"allow":["a.example"]}"#, "egress.mode"),
            (r#"{"mode":"allowlist","presets":["pyhton"]}"#, "egress.presets"),
            (r#"{"mode":"allowlist","presets":["r"]}"#, "egress.presets"),
            (r#"{"mode":"full","limits":{"connections":0}}"#, "egress.limits.connections"),
        ] {
            assert_eq!(rules(json).unwrap_err().field.as_deref(), Some(field), "{json}");
        }
        for json in [r#"{"mode":"some"}"#, r#"{"allow":["*"]}"#, r#"{"alow":[]}"#, r#"{"limits":{"byte":1}}"#]
        {
            assert!(serde_json::from_str::<Policy>(json).is_err(), "{json}");
        }
    }
}
