//! Who may allow what.

use super::world::World;
use crate::server::fixture::{KEY, Server};
use serde_json::{Value, json};

fn loc(answer: &crate::server::http::Answer) -> String {
    let loc = answer.json()["detail"][0]["loc"].clone();
    let name = |(at, part): (usize, &Value)| match part.as_str() {
        Some(name) if at == 0 => name.to_owned(),
        Some(name) => format!(".{name}"),
        None => format!("[{part}]"),
    };
    loc.as_array().into_iter().flatten().skip(1).enumerate().map(name).collect()
}

#[test]
fn what_cannot_be_right_is_refused_by_field() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (policy, field) in [
        (json!({ "mode": "some" }), "mode"),
        (json!({ "mode": "allowlist" }), "allow"),
        (json!({ "mode": "allowlist", "allow": ["a.example", "*"] }), "allow[1]"),
        (json!({ "mode": "allowlist", "presets": ["pyhton"] }), "presets"),
        (json!({ "mode": "none", "deny": ["a.example"] }), "mode"),
        (json!({ "mode": "full", "limits": { "connections": 0 } }), "limits.connections"),
        (json!({ "mode": "full", "limits": { "conections": 1 } }), "limits.conections"),
        (json!({ "mode": "full", "alow": [] }), "alow"),
        (json!({ "mode": "full", "deny": "a.example" }), "deny"),
    ] {
        let made = server.ask("POST", "/api/v1/sandboxes", &json!({ "egress": policy }).to_string());
        assert_eq!((made.status, loc(&made)), (422, format!("egress.{field}")), "{policy}: {made:?}");
        let set = server.ask("PUT", &format!("{sandbox}/egress"), &policy.to_string());
        assert_eq!((set.status, loc(&set)), (422, field.to_owned()), "{policy}: {set:?}");
    }
    for body in [
        json!({ "network_enabled": false, "egress": { "mode": "full" } }),
        json!({ "network_enabled": true, "egress": { "mode": "none" } }),
    ] {
        let made = server.ask("POST", "/api/v1/sandboxes", &body.to_string());
        assert_eq!((made.status, loc(&made).as_str()), (422, "network_enabled"), "{body}");
    }
    let gone = server.ask("GET", "/api/v1/sandboxes/00000000-0000-4000-8000-000000000000/egress", "");
    assert_eq!(gone.status, 404);
    assert_eq!(server.ask("GET", &format!("{sandbox}/egress/log?verdict=maybe"), "").status, 422);
    assert_eq!(server.ask("GET", &format!("{sandbox}/egress/log?limit=501"), "").status, 422);
}

/// A key of an ordinary user.
fn user(server: &Server, tier: &str) -> String {
    let body = json!({ "name": "u", "owner": "u", "scope": "user", "tier": tier }).to_string();
    let made = server.ask_as(KEY, "POST", "/api/v1/keys", &body);
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["key"].as_str().unwrap().to_owned()
}

#[test]
fn a_tier_is_a_ceiling_and_addresses_out_of_reach_are_an_admins() {
    let world = World::new();
    world.configure(
        "presets.python = [\"index.test\"]\npresets.node = []\npresets.rust = []\n[egress.tiers.restricted]\nmode = \"none\"\n\
         [egress.tiers.elevated]\nmode = \"full\"\ndeny = [\"bad.test\"]\nlimits.connections = 3\n",
    );
    let server = Server::start_with(&world.arguments());
    let create = |key: &str, body: Value| server.ask_as(key, "POST", "/api/v1/sandboxes", &body.to_string());
    let key = user(&server, "standard");
    let refused = create(&key, json!({ "egress": { "mode": "full" } }));
    let error = refused.json()["error"].clone();
    assert_eq!(
        (refused.status, error["details"]["field"].as_str()),
        (403, Some("egress.mode")),
        "{refused:?}"
    );
    for word in ["full", "allowlist", "standard"] {
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
    let refused = create(&key, json!({ "egress": { "mode": "allowlist", "allow": ["10.0.0.0/8:5432"] } }));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(refused.status, 403);
    assert!(message.contains("10.0.0.0/8:5432") && message.contains("admin"), "{message}");
    // The server itself is out of reach too.
    let own = format!("{}", server.address);
    assert_eq!(create(&key, json!({ "egress": { "mode": "allowlist", "allow": [own] } })).status, 403);

    let made = create(&key, json!({ "network_enabled": true })).json();
    assert_eq!(
        (made["network_enabled"].as_bool(), made["egress"]["mode"].as_str()),
        (Some(true), Some("allowlist"))
    );
    assert_eq!(made["egress"]["presets"], json!(["python", "github"]), "what is empty here is left out");
    let made = create(&user(&server, "elevated"), json!({ "network_enabled": true })).json();
    assert_eq!(
        (made["egress"]["mode"].as_str(), made["egress"]["limits"]["connections"].as_u64()),
        (Some("full"), Some(3))
    );
    assert_eq!(made["egress"]["deny"], json!(["bad.test"]));
    assert_eq!(create(&user(&server, "restricted"), json!({ "network_enabled": true })).status, 403);
    let made = create(KEY, json!({ "network_enabled": true })).json();
    assert_eq!(made["egress"]["mode"], "full", "an admin has no tier");
    let made = create(KEY, json!({})).json();
    assert_eq!(
        (made["network_enabled"].as_bool(), made["egress"]["mode"].as_str()),
        (Some(false), Some("none"))
    );

    let listed = server.ask("GET", "/api/v1/egress/presets", "").json();
    let python = listed.as_array().unwrap().iter().find(|preset| preset["name"] == "python").unwrap();
    assert_eq!(python["entries"][0]["entry"], "index.test");
    assert!(python["entries"][0]["origin"].as_str().unwrap().contains("operator"));
}

#[test]
fn network_enabled_changes_only_at_rest() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let patch = |body: &str| server.ask("PATCH", &sandbox, body);
    assert_eq!(patch(r#"{"network_enabled":true}"#).status, 409);
    server.ask("POST", &format!("{sandbox}/stop"), "");
    let on = patch(r#"{"network_enabled":true}"#).json();
    assert_eq!((on["network_enabled"].as_bool(), on["egress"]["mode"].as_str()), (Some(true), Some("full")));
    // What is there already stays as it is.
    server.ask("PUT", &format!("{sandbox}/egress"), r#"{"mode":"allowlist","allow":["a.example"]}"#);
    assert_eq!(patch(r#"{"network_enabled":true}"#).json()["egress"]["mode"], "allowlist");
    let off = patch(r#"{"network_enabled":false}"#).json();
    assert_eq!(
        (off["network_enabled"].as_bool(), off["egress"]["mode"].as_str()),
        (Some(false), Some("none"))
    );
}

#[test]
fn a_configuration_that_cannot_be_right_ends_the_start() {
    let world = World::new();
    for (text, word) in [
        ("[egress.tiers.x]\nmode = \"allowlist\"\n", "unknown variant `x`"),
        ("[egress.tiers.standard]\nmode = \"allowlist\"\n", "egress.tiers.standard"),
        ("[egress.tiers.standard]\nmode = \"allowlist\"\npresets = [\"pyhton\"]\n", "pyhton"),
        ("deny = [\"example.com\"]\n", "deny"),
    ] {
        world.configure(text);
        let folder = tempfile::tempdir().unwrap();
        let ran = std::process::Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(folder.path())
            .args(world.arguments())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        std::process::Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["down", "--purge", "--data-dir"])
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(!ran.status.success() && said.contains(word), "{text}: {said}");
    }
}
