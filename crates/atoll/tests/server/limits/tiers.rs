//! The tier of a key: what is left out is clamped, what is above is refused.

use super::{
    super::{http, socket},
    KEY, ROOT, Server, created, key, refused,
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::fs;

fn limits_of(sandbox: &Value) -> Value {
    let fields = ["cpu_cores", "memory_mb", "disk_mb", "processes"];
    fields.iter().map(|field| sandbox[field].clone()).collect()
}

#[test]
fn defaults_are_clamped_to_the_tier_and_an_admin_has_none() {
    let server = Server::start();
    for (tier, limits) in [
        ("sandbox", json!([0.25, 128, 512, 64])),
        ("restricted", json!([0.5, 256, 1024, 128])),
        ("standard", json!([1.0, 512, 1024, 512])),
        ("unrestricted", json!([1.0, 512, 1024, 512])),
    ] {
        let key = key(&server, tier, tier);
        let sandbox = created(&server, &key, "{}");
        assert_eq!(limits_of(&server.ask("GET", &sandbox, "").json()), limits, "{tier}");
        // Disks are promised, and a machine may have few to promise.
        assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    }
    let asked = r#"{"memory_mb":4096,"cpu_cores":8,"processes":5000,"disk_mb":11000}"#;
    let made = server.ask("POST", ROOT, asked);
    // The disk alone may be too small for it, which is another matter.
    assert!(made.status == 201 || made.json()["error"]["details"]["resource"] == "disk_mb", "{made:?}");
    let open = Server::start_with(&["--no-auth"]);
    let body = br#"{"memory_mb":4096,"cpu_cores":8}"#;
    assert_eq!(http::request(open.address, "POST", ROOT, &[], body).unwrap().status, 201);
}

#[test]
fn what_is_asked_above_the_tier_is_refused_with_both_figures() {
    let server = Server::start();
    let key = key(&server, "ann", "restricted");
    for (field, asked, allowed) in [
        ("memory_mb", json!(257), json!(256)),
        ("cpu_cores", json!(0.75), json!(0.5)),
        ("disk_mb", json!(1025), json!(1024)),
        ("processes", json!(129), json!(128)),
    ] {
        let answer = server.ask_as(&key, "POST", ROOT, &json!({ field: asked }).to_string());
        let details = refused(&answer, 403, "permission_denied");
        assert_eq!(
            details,
            json!({"field": field, "asked": asked, "allowed": allowed, "tier": "restricted"})
        );
    }
    assert_eq!(server.ask("GET", ROOT, "").json()["total"], 0);
    let at = r#"{"memory_mb":256,"cpu_cores":0.5,"disk_mb":1024,"processes":128}"#;
    let sandbox = created(&server, &key, at);
    for body in [json!({}), json!({"background": true}), json!({"stream": true})] {
        let mut body = body;
        body["command"] = "true".into();
        body["timeout_seconds"] = 121.into();
        let answer = server.ask_as(&key, "POST", &format!("{sandbox}/exec"), &body.to_string());
        let details = refused(&answer, 403, "permission_denied");
        assert_eq!(
            details,
            json!({"field": "timeout_seconds", "asked": 121, "allowed": 120, "tier": "restricted"})
        );
        body["timeout_seconds"] = 120.into();
        let answer = server.ask_as(&key, "POST", &format!("{sandbox}/exec"), &body.to_string());
        assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    }
    server.ask_as(&key, "POST", &format!("{sandbox}/stop"), "");
    let answer = server.ask_as(&key, "PATCH", &sandbox, r#"{"memory_mb":512}"#);
    assert_eq!(refused(&answer, 403, "permission_denied")["field"], "memory_mb");
    assert_eq!(server.ask_as(&key, "PATCH", &sandbox, r#"{"memory_mb":128}"#).status, 200);
    let answer = server.ask_as(&key, "PATCH", &sandbox, r#"{"disk_mb":1025}"#);
    let details = refused(&answer, 403, "permission_denied");
    assert_eq!(details, json!({"field": "disk_mb", "asked": 1025, "allowed": 1024, "tier": "restricted"}));
    assert_eq!(server.ask("GET", &sandbox, "").json()["disk_mb"], 1024);
    assert_eq!(server.ask_as(&key, "PATCH", &sandbox, r#"{"disk_mb":512}"#).status, 200);
    // Nothing of this is for an admin.
    assert_eq!(server.ask("PATCH", &sandbox, r#"{"memory_mb":1024}"#).status, 200);
}

#[test]
fn the_file_replaces_figures_and_commands_end_when_their_tiers_time_is_up() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("atoll.toml");
    fs::write(&config, "[tiers.standard]\ntimeout_seconds = 1\nmemory_mb = 300\n").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65530), None).unwrap();
    let server = Server::start_with(&["--config", config.to_str().unwrap()]);
    let key = key(&server, "ann", "standard");
    let sandbox = created(&server, &key, "{}");
    assert_eq!(server.ask("GET", &sandbox, "").json()["memory_mb"], 300);
    let exec = format!("{sandbox}/exec");
    let ran = server.ask_as(&key, "POST", &exec, r#"{"command":"sleep 300"}"#).json();
    assert_eq!((&ran["exit_code"], &ran["timed_out"]), (&json!(124), &json!(true)));
    let begun = server.ask_as(&key, "POST", &exec, r#"{"command":"sleep 300","background":true}"#).json();
    let authorization = format!("Bearer {key}");
    let path = format!("{sandbox}/terminal?command=sleep%20300");
    let terminal =
        socket::connect(&server, &path, &[("authorization", &authorization)]).map_err(|e| e.1).unwrap();
    for id in [begun["exec_id"].as_str().unwrap(), &terminal.exec_id] {
        eventually("its end", || {
            let now = server.ask("GET", &format!("{sandbox}/execs/{id}"), "").json();
            now["status"] == "ended" && now["timed_out"] == true
        });
    }
    // An admin's command in the same sandbox has its own time.
    assert_eq!(server.says(&sandbox, "sleep 1.5; echo done"), "done");
}

#[test]
fn the_tier_says_which_profiles_and_a_profile_stays() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("atoll.toml");
    fs::write(&config, "[tiers.restricted]\nprofiles = [\"default\", \"root\"]\n").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65530), None).unwrap();
    let server = Server::start_with(&["--config", config.to_str().unwrap()]);
    let (standard, elevated) = (key(&server, "ann", "standard"), key(&server, "ann", "elevated"));
    let root = r#"{"profile":"root","disk_mb":64,"session_key":"s"}"#;
    let details = refused(&server.ask_as(&standard, "POST", ROOT, root), 403, "permission_denied");
    let wanted =
        json!({"field": "profile", "asked": "root", "allowed": ["default", "tools"], "tier": "standard"});
    assert_eq!(details, wanted);
    let unknown = server.ask("POST", ROOT, r#"{"profile":"god"}"#);
    assert_eq!((unknown.status, &unknown.json()["detail"][0]["loc"][1]), (422, &json!("profile")));
    let sandbox = created(&server, &elevated, root);
    assert_eq!(server.ask("GET", &sandbox, "").json()["profile"], "root");
    assert_eq!(server.says(&sandbox, "id -u; touch /etc/kept && echo written"), "0\nwritten");
    server.ask_as(&elevated, "POST", &format!("{sandbox}/stop"), "");
    let details = refused(
        &server.ask_as(&standard, "POST", &format!("{sandbox}/resume"), ""),
        403,
        "permission_denied",
    );
    assert_eq!(details["field"], "profile");
    assert_eq!(server.ask_as(&elevated, "POST", &format!("{sandbox}/resume"), "").status, 200);
    assert_eq!(server.says(&sandbox, "id -u; ls /etc/kept"), "0\n/etc/kept");
    // The same session key gives the same sandbox, and never one of another kind.
    let again = server.ask_as(&elevated, "POST", ROOT, r#"{"session_key":"s"}"#);
    assert_eq!((again.status, &again.json()["profile"]), (200, &json!("root")));
    assert_eq!(
        server.ask_as(&elevated, "POST", ROOT, r#"{"session_key":"s","profile":"default"}"#).status,
        409
    );
    let told = server.ask("GET", "/api/v1/audit?kind=sandbox.create&outcome=ok", "").json();
    assert!(
        told["entries"].as_array().unwrap().iter().any(|one| one["extra"]["profile"] == "root"),
        "{told}"
    );
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    // The file's word for a tier.
    let low = key(&server, "bob", "restricted");
    let sandbox = created(&server, &low, r#"{"profile":"root","disk_mb":64}"#);
    assert_eq!(server.says(&sandbox, "id -u"), "0");
    assert_eq!(server.ask_as(&low, "POST", ROOT, r#"{"profile":"tools"}"#).status, 403);
}

#[test]
fn a_sandbox_of_a_higher_tier_is_not_started_by_a_lower_key() {
    let server = Server::start();
    let (high, low) = (key(&server, "ann", "elevated"), key(&server, "ann", "sandbox"));
    let body = r#"{"memory_mb":1024,"cpu_cores":2,"processes":64,"session_key":"s","disk_mb":1024}"#;
    let sandbox = created(&server, &high, body);
    // What runs is not stopped by this, and may be used.
    let used = server.ask_as(&low, "POST", &format!("{sandbox}/exec"), r#"{"command":"true"}"#);
    assert_eq!(used.status, 200);
    assert_eq!(server.ask_as(&low, "POST", &format!("{sandbox}/resume"), "").status, 200);
    server.ask_as(&low, "POST", &format!("{sandbox}/stop"), "");
    for (path, body) in
        [(format!("{sandbox}/resume"), ""), (ROOT.to_owned(), r#"{"session_key":"s","memory_mb":64}"#)]
    {
        let details = refused(&server.ask_as(&low, "POST", &path, body), 403, "permission_denied");
        let wanted = json!({"field": "memory_mb", "asked": 1024, "allowed": 128, "tier": "sandbox"});
        assert_eq!(details, wanted);
    }
    let lower = r#"{"memory_mb":128,"cpu_cores":0.25}"#;
    assert_eq!(server.ask_as(&low, "PATCH", &sandbox, lower).status, 200);
    assert_eq!(server.ask_as(&low, "POST", &format!("{sandbox}/resume"), "").status, 200);
    assert_eq!(server.ask("GET", &sandbox, "").json()["disk_mb"], 1024, "its disk stays as it was made");
}

#[test]
fn nobody_makes_a_key_of_a_higher_tier_than_its_own() {
    let server = Server::start();
    let make = |by: &str, body: &str| server.ask_as(by, "POST", "/api/v1/keys", body);
    let wrong = make(KEY, r#"{"name":"x","tier":"god"}"#);
    assert_eq!((wrong.status, &wrong.json()["detail"][0]["loc"][1]), (422, &json!("tier")));
    assert_eq!(make(KEY, r#"{"name":"x"}"#).json()["tier"], "standard");
    let low = key(&server, "ann", "restricted");
    let details = refused(&make(&low, r#"{"name":"x","tier":"standard"}"#), 403, "permission_denied");
    let wanted = json!({"field": "tier", "asked": "standard", "allowed": "restricted", "tier": "restricted"});
    assert_eq!(details, wanted);
    assert_eq!(make(&low, r#"{"name":"x"}"#).json()["tier"], "restricted", "the usual is not above its own");
    assert_eq!(make(&low, r#"{"name":"x","tier":"sandbox"}"#).json()["tier"], "sandbox");
}
