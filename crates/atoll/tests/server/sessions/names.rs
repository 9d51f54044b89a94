//! The names that the reference system of the tools gives its settings: each has its effect.

use super::{Server, Thread};
use crate::{engine::fixture::eventually, server::postgres::refused};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt};

#[test]
fn the_reference_systems_names_of_settings_have_their_effects() {
    let shared = tempfile::Builder::new().prefix("atoll-test-import-").tempdir().unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = shared.path().join("in.txt");
    fs::write(&file, "hello").unwrap();
    let settings = [
        ("CONTAINER_MAX_SESSIONS", "4", "max", json!(4)),
        ("CONTAINER_MAX_SESSIONS_PER_THREAD", "1", "max_per_thread", json!(1)),
        ("SESSION_MAX_ACTIVE_THREADS", "7", "max_threads", json!(7)),
        ("SESSION_IDLE_TTL_SECONDS", "1801", "idle_seconds", json!(1801)),
        ("SESSION_MAX_LIFETIME_SECONDS", "7201", "max_lifetime_seconds", json!(7201)),
        ("SESSION_GC_INTERVAL_SECONDS", "61", "collect_seconds", json!(61)),
        ("CONTAINER_ORPHAN_MIN_AGE_SECONDS", "301", "orphan_seconds", json!(301)),
        ("CONTAINER_NETWORK_ENABLED", "False", "network_enabled", json!(false)),
        ("CONTAINER_MEMORY_LIMIT", "300m", "memory_mb", json!(300)),
        ("CONTAINER_CPU_QUOTA", "150000", "cpu_cores", json!(1.5)),
        ("CONTAINER_PIDS_LIMIT", "100", "processes", json!(100)),
        ("CONTAINER_TMPFS_SIZE", "40m", "disk_mb", json!(120)),
    ];
    let others = [
        ("CONTAINER_EXECUTION_TIMEOUT_SECONDS", "2"),
        ("MAX_STDOUT_CHARS", "100"),
        ("MAX_STDERR_CHARS", "200"),
        ("MAX_RESULT_CHARS", "300"),
        ("MAX_TRACEBACK_CHARS", "400"),
        ("IMPORT_ALLOWED_DIRS", shared.path().to_str().unwrap()),
        ("API_BASE_URL", "http://api.example:8000/"),
        ("CHAT_MODEL", "m-1"),
        ("CHAT_MODEL_PROVIDER", "openai"),
        ("CHAT_MODEL_API_KEY", "sk-of-a-test"),
        ("CHAT_MODEL_BASE_URL", "https://model.example/v1"),
        ("CHAT_MODEL_SUPPORTS_VISION", "False"),
        // A name of a container network is no reason not to start.
        ("PROXY_HOST", "egress-proxy"),
        ("CONTAINER_EXECUTE_AS_ROOT", "True"),
    ];
    let variables: Vec<(&str, &str)> =
        settings.iter().map(|(name, value, ..)| (*name, *value)).chain(others).collect();
    let server = Server::start_in("warn", &[], &variables);
    let set = server.ask("GET", "/api/v1/settings/sandbox", "").json()["atoll"].clone();
    for (variable, _, name, wanted) in settings {
        assert_eq!(set["tool_sessions"][name], wanted, "{variable}");
        assert_eq!(set["sources"][format!("tool_sessions.{name}")], "environment", "{variable}");
    }
    let model = server.ask("GET", "/settings", "").json();
    for (name, wanted) in [
        ("model", json!("m-1")),
        ("provider", json!("openai")),
        ("base_url", json!("https://model.example/v1")),
        ("supports_vision", json!(false)),
        ("has_api_key", json!(true)),
    ] {
        assert_eq!(model[name], wanted, "{model}");
    }
    let thread = Thread::new(&server, "t1");
    let id = thread.create(&json!({}));
    let second = thread.call("create_session", &json!({}));
    assert_eq!(second["success"], false, "one session of a thread: {second}");
    let sandbox = server.ask("GET", "/api/v1/sandboxes", "").json()["items"][0].clone();
    assert_eq!((&sandbox["memory_mb"], &sandbox["cpu_cores"]), (&json!(300), &json!(1.5)), "{sandbox}");
    assert_eq!((&sandbox["processes"], &sandbox["network_enabled"]), (&json!(100), &json!(false)));

    assert_eq!(sandbox["disk_mb"], 120, "{sandbox}");
    let filled = thread.terminal(&id, "id -u; head -c 200000000 /dev/urandom > /tmp/f");
    assert_eq!((&filled["stdout"], filled["exit_code"] == 0), (&json!("0\n"), false), "{filled}");
    assert_eq!(thread.terminal(&id, "rm /tmp/f")["exit_code"], 0);
    // The tier of this key has no such profile.
    let key =
        server.ask("POST", "/api/v1/keys", r#"{"name":"k","owner":"ordinary","tier":"standard"}"#).json();
    let ordinary = Thread::of(&server, key["key"].as_str().unwrap(), "t1");
    let usual = ordinary.create(&json!({}));
    assert_ne!(ordinary.terminal(&usual, "id -u")["stdout"], "0\n");

    let endless = thread.code(&id, "while True: pass");
    assert_eq!(endless["success"], false, "{endless}");
    assert!(thread.terminal(&id, "sleep 100")["stderr"].as_str().unwrap().contains("after 2 s"));
    let length = |value: &Value| value.as_str().unwrap().chars().count();
    // A notice says what is missing.
    let shown = |value: &Value, most: usize| {
        let count = length(value);
        assert!((most..most + 200).contains(&count), "{count} of {most}: {value}");
    };
    let loud = "import sys\nprint('o' * 5000)\nprint('e' * 5000, file=sys.stderr)\n'r' * 5000";
    let ran = thread.code(&id, loud);
    shown(&ran["stdout"], 100);
    shown(&ran["stderr"], 200);
    shown(&ran["result"]["text/plain"], 300);
    let failed =
        thread.code(&id, "def f(n):\n    return g(n)\ndef g(n):\n    raise ValueError('x' * 5000)\nf(1)");
    shown(&failed["error"]["traceback"], 400);
    let ran = thread.terminal(&id, "printf %5000d 1; printf %5000d 1 >&2");
    shown(&ran["stdout"], 100);
    shown(&ran["stderr"], 200);

    let done = thread.import(&id, json!([{ "source": file.to_str().unwrap() }, { "source": "/etc/passwd" }]));
    assert_eq!((&done["files"][0]["success"], &done["files"][1]["success"]), (&json!(true), &json!(false)));
    let url = thread.export(&id, "in.txt")["files"][0]["download_url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("http://api.example:8000/threads/"), "{url}");
}

#[test]
fn the_reference_systems_names_of_times_end_sessions_and_bound_conversations() {
    let start = |variables: &[(&str, &str)]| {
        Server::start_in("warn", &["--set", "admission.wait_seconds=0"], variables)
    };
    let server = start(&[("SESSION_MAX_ACTIVE_THREADS", "1")]);
    let (first, second) = (Thread::new(&server, "t1"), Thread::new(&server, "t2"));
    first.create(&json!({}));
    second.create(&json!({}));
    assert!(first.sessions().iter().all(|(_, status)| status == "dead"), "one conversation gave way");
    // The lifetime ends one in use too, so it is long enough to make the session.
    for (name, seconds) in [("SESSION_IDLE_TTL_SECONDS", "1"), ("SESSION_MAX_LIFETIME_SECONDS", "15")] {
        let server = start(&[(name, seconds), ("SESSION_GC_INTERVAL_SECONDS", "1")]);
        let thread = Thread::new(&server, "t1");
        thread.create(&json!({}));
        eventually(name, || thread.sessions().iter().all(|(_, status)| status == "dead"));
    }
}

#[test]
fn what_is_sealed_with_an_encryption_key_opens_with_it_alone() {
    let variables = [("ENCRYPTION_KEY", "a passphrase of 32 bytes or more, one")];
    let mut server = Server::start_in("warn", &[], &variables);
    let sandbox = server.create(r#"{"env_vars":{"SEALED":"kept"}}"#);
    server.kill();
    for wrong in [None, Some(("ENCRYPTION_KEY", "a passphrase of 32 bytes or more, two"))] {
        let said = refused(server.data(), wrong.as_slice());
        assert!(said.contains("ENCRYPTION_KEY: this data folder was sealed"), "{said}");
    }
    server.restart();
    // A container that is started anew is given what was stored.
    assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
    assert_eq!(server.ask("POST", &format!("{sandbox}/resume"), "").status, 200);
    assert_eq!(server.says(&sandbox, "echo $SEALED"), "kept");
}
