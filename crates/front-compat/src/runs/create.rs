//! The body of a create, as an operation of the core.

use super::units::{figure, megabytes};
use atoll_core::{AGENT_LABEL, CreateSandbox, EgressEntry, Mode, Policy};
use atoll_types::{Error, ErrorCode, PathRules, Result};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use std::{collections::BTreeMap, ops::RangeInclusive};

/// How long a sandbox may be asked to live, in seconds.
const LIFE_SECONDS: RangeInclusive<u32> = 1..=3600;
/// How long one lives whose create names no timeout: what the example of the API's own documentation shows.
pub(super) const USUAL_LIFE_SECONDS: u32 = 1800;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CreateBody {
    agent_id: Option<String>,
    mode: Option<String>,
    config: Option<Config>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
struct Config {
    image: Option<String>,
    filesystem: Option<Filesystem>,
    network: Option<Network>,
    resources: Option<Resources>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
struct Filesystem {
    read_only: Vec<String>,
    read_write: Vec<String>,
    blocked: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
struct Network {
    allow: Vec<String>,
    /// True where it is left out.
    block_outbound: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
struct Resources {
    #[serde(deserialize_with = "cores")]
    cpu: Option<f64>,
    #[serde(deserialize_with = "memory")]
    memory: Option<u64>,
    timeout: Option<u32>,
}

atoll_types::object_only!(read Config);
atoll_types::object_only!(read Filesystem);
atoll_types::object_only!(read Network);
atoll_types::object_only!(read Resources);

fn cores<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let read = match Option::<Value>::deserialize(from)? {
        None => return Ok(None),
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => figure(&text),
        Some(_) => None,
    };
    read.map(Some).ok_or_else(|| D::Error::custom("expected cores such as \"0.5\""))
}

fn memory<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let Some(value) = Option::<Value>::deserialize(from)? else { return Ok(None) };
    let read = value.as_str().and_then(megabytes);
    read.map(Some).ok_or_else(|| D::Error::custom("expected a size such as \"512m\" or \"1g\""))
}

impl Network {
    /// Whether the network is enabled as far as the tier allows, and else the policy.
    fn policy(self) -> Result<(Option<bool>, Option<Policy>)> {
        let Self { allow, block_outbound } = self;
        if block_outbound == Some(false) {
            return Ok((Some(true), None));
        }
        if allow.is_empty() {
            return Ok((Some(false), None));
        }
        let entry = |(at, text): (usize, &String)| {
            let wrong = |e| Error::invalid(format!("config.network.allow[{at}]"), format!("{e}"));
            text.parse::<EgressEntry>().map_err(wrong)
        };
        let allow = allow.iter().enumerate().map(entry).collect::<Result<_>>()?;
        Ok((None, Some(Policy { mode: Mode::Allowlist, allow, ..Policy::default() })))
    }
}

impl CreateBody {
    /// As a request of the core; `usual_life` is the lifetime where the body names none.
    pub(super) fn request(self, usual_life: u32) -> Result<CreateSandbox> {
        let Self { agent_id, mode, config } = self;
        match mode.as_deref() {
            None | Some("container") => {}
            Some("wasm") => {
                let message = "this server has no WebAssembly sandboxes; use the mode container";
                return Err(Error::new(ErrorCode::Unsupported, message));
            }
            Some(_) => return Err(Error::invalid("mode", "expected container or wasm")),
        }
        let Config { image, filesystem, network, resources } = config.unwrap_or_default();
        let Resources { cpu, memory, timeout } = resources.unwrap_or_default();
        let Filesystem { read_only, read_write, blocked } = filesystem.unwrap_or_default();
        if let Some(life) = timeout.filter(|life| !LIFE_SECONDS.contains(life)) {
            let (least, most) = (LIFE_SECONDS.start(), LIFE_SECONDS.end());
            let message = format!("timeout must be between {least} and {most} seconds; {life} was asked for");
            return Err(Error::invalid("config.resources.timeout", message));
        }
        // Where the request has no network, the owner's configuration decides.
        let (network_enabled, egress) = network.map_or(Ok((None, None)), Network::policy)?;
        let labels: BTreeMap<_, _> = agent_id.map(|id| (AGENT_LABEL.to_owned(), id)).into_iter().collect();
        Ok(CreateSandbox {
            image,
            cpu_cores: cpu,
            memory_mb: memory,
            max_lifetime_seconds: Some(timeout.unwrap_or(usual_life)),
            // No call of this API starts a stopped sandbox again, so none is stopped for being idle.
            idle_timeout_seconds: Some(*LIFE_SECONDS.end()),
            filesystem: PathRules { read_only, read_write, blocked },
            network_enabled,
            egress,
            labels,
            approved_image: true,
            ..CreateSandbox::default()
        })
    }
}

/// The fields of the core's requests that an error may name, and what they are called here.
const FIELDS: &[(&str, &str)] = &[
    ("image", "config.image"),
    ("memory_mb", "config.resources.memory"),
    ("cpu_cores", "config.resources.cpu"),
    ("max_lifetime_seconds", "config.resources.timeout"),
    ("filesystem", "config.filesystem"),
    ("egress", "config.network"),
    ("network_enabled", "config.network"),
    ("labels", "agent_id"),
];

/// A refusal of the core with the name that the field has in this API.
pub(super) fn in_our_words(mut error: Error) -> Error {
    let first = error.field.as_deref().and_then(|field| field.split(['.', '[']).next());
    let known = first.and_then(|first| FIELDS.iter().find(|(core, _)| *core == first));
    if let Some((_, here)) = known {
        error.field = Some((*here).to_owned());
    }
    // An image that the caller may not use is a wrong field of its request.
    if error.code == ErrorCode::PermissionDenied && error.field.as_deref() == Some("config.image") {
        error.code = ErrorCode::InvalidArgument;
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_http::json;

    fn read(body: &str) -> std::result::Result<CreateSandbox, String> {
        let body: CreateBody = json(&body.to_owned().into()).map_err(|e| format!("{e:?}"))?;
        body.request(USUAL_LIFE_SECONDS).map_err(|e| format!("{} {:?} {}", e.code, e.field, e.message))
    }

    /// The request that the API's documentation prints.
    #[test]
    fn the_printed_request_is_read() {
        let printed = include_str!("printed_create.json");
        insta::assert_debug_snapshot!(read(printed).unwrap());
    }

    #[test]
    fn what_is_left_out_has_the_apis_defaults() {
        let made = read("{}").unwrap();
        assert_eq!((made.max_lifetime_seconds, made.network_enabled), (Some(1800), None));
        assert!(made.approved_image && made.egress.is_none() && made.labels.is_empty());
    }

    #[test]
    fn block_outbound_decides_what_may_be_reached() {
        let network = |text: &str| {
            let made = read(&format!(r#"{{"config":{{"network":{text}}}}}"#)).unwrap();
            (made.network_enabled, made.egress.map(|policy| (policy.mode, policy.allow.len())))
        };
        assert_eq!(network("{}"), (Some(false), None));
        assert_eq!(network(r#"{"block_outbound":true}"#), (Some(false), None));
        assert_eq!(network(r#"{"allow":["a.example","*.b.example"]}"#), (None, Some((Mode::Allowlist, 2))));
        assert_eq!(network(r#"{"block_outbound":false}"#), (Some(true), None));
        assert_eq!(network(r#"{"block_outbound":false,"allow":["a.example"]}"#), (Some(true), None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, field) in [
            (r#"{"mode":"vm"}"#, "mode"),
            (r#"{"mode":1}"#, "mode"),
            (r#"{"odd":1}"#, "odd"),
            (r#"[]"#, "body"),
            (r#"{"config":[]}"#, "config"),
            (r#"{"config":{"resources":{"cpu":"half"}}}"#, "config.resources.cpu"),
            (r#"{"config":{"resources":{"cpu":true}}}"#, "config.resources.cpu"),
            (r#"{"config":{"resources":{"memory":512}}}"#, "config.resources.memory"),
            (r#"{"config":{"resources":{"memory":"512q"}}}"#, "config.resources.memory"),
            (r#"{"config":{"resources":{"timeout":3601}}}"#, "config.resources.timeout"),
            (r#"{"config":{"resources":{"timeout":0}}}"#, "config.resources.timeout"),
            (r#"{"config":{"resources":{"timeout":-1}}}"#, "config.resources.timeout"),
            (r#"{"config":{"network":{"allow":["a.example","http://x"]}}}"#, "config.network.allow[1]"),
            (r#"{"config":{"network":{"allow":"x"}}}"#, "config.network.allow"),
            (r#"{"config":{"filesystem":{"blocked":[1]}}}"#, "config.filesystem.blocked"),
        ] {
            let said = read(body).unwrap_err();
            assert!(said.contains(field), "{body}: {said}");
        }
        assert!(read(r#"{"mode":"wasm"}"#).unwrap_err().starts_with("unsupported"));
    }
}
