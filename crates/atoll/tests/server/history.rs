//! Which command changed a file last, and before.

use super::{fixture::Server, snapshots::both};
use serde_json::{Value, json};

fn history(server: &Server, sandbox: &str, query: &str) -> Value {
    let answer = server.ask("GET", &format!("{sandbox}/fs/history?{query}"), "");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

/// The action and the kind of each entry.
fn told(page: &Value) -> Vec<(&str, &str)> {
    let entries = page["entries"].as_array().unwrap().iter();
    entries.map(|entry| (entry["action"].as_str().unwrap(), entry["kind"].as_str().unwrap_or(""))).collect()
}

#[test]
fn a_file_tells_which_commands_changed_it() {
    for server in both(&[]) {
        commands_are_told(&server);
    }
}

fn commands_are_told(server: &Server) {
    let made = json!({ "secrets": { "TOKEN": "swordfish-4711" } }).to_string();
    let sandbox = server.create(&made);
    let first = server.exec(&sandbox, "mkdir -p src; echo one > src/a.txt # swordfish-4711");
    server.exec(&sandbox, "echo other > b.txt; cat src/a.txt");
    let second = server.exec(&sandbox, "printf 'one and two' > src/a.txt; exit 3");
    let cell = json!({ "language": "bash", "code": "echo from a cell >> src/a.txt" }).to_string();
    let cell = server.ask("POST", &format!("{sandbox}/run"), &cell).json();
    assert_eq!(server.ask("PUT", &format!("{sandbox}/files/src/a.txt"), "by the API").status, 204);
    let moved = json!({ "from": "src/a.txt", "to": "src/c.txt" }).to_string();
    assert_eq!(server.ask("POST", &format!("{sandbox}/fs/move"), &moved).status, 200);
    server.exec(&sandbox, "mv src/c.txt src/a.txt");
    server.exec(&sandbox, "rm src/a.txt");

    let page = history(server, &sandbox, "path=src/a.txt");
    let wanted = [
        ("deleted", "exec"),
        ("created", "exec"),
        ("deleted", "file.move"),
        ("modified", "file.write"),
        ("modified", "kernel.execute"),
        ("modified", "exec"),
        ("created", "exec"),
    ];
    assert_eq!(told(&page), wanted, "{page:#}");
    assert_eq!(
        (&page["path"], &page["truncated"], &page["next_before"]),
        (&json!("src/a.txt"), &json!(false), &Value::Null)
    );
    let entries = page["entries"].as_array().unwrap();
    let sizes: Vec<Option<u64>> = entries.iter().map(|entry| entry["size"].as_u64()).collect();
    assert_eq!(sizes, [None, Some(10), None, Some(10), Some(23), Some(11), Some(4)], "{page:#}");
    assert_eq!((&entries[5]["exec_id"], &entries[5]["exit_code"]), (&second["exec_id"], &json!(3)));
    assert_eq!(entries[4]["cell_id"], cell["cell_id"], "{cell}");
    assert_eq!(entries[3]["detail"], "src/a.txt");
    assert_eq!(entries[6]["exec_id"], first["exec_id"]);
    // As the audit trail shows it, without secret values.
    let detail = entries[6]["detail"].as_str().unwrap();
    assert!(detail.contains("echo one > src/a.txt") && !detail.contains("swordfish"), "{detail}");
    let row = format!("/api/v1/audit/{}", entries[6]["operation_id"].as_str().unwrap());
    let row = server.ask("GET", &row, "").json();
    assert_eq!((&row["detail"], &row["key_id"]), (&entries[6]["detail"], &entries[6]["key_id"]));

    // Page by page, none twice and none left out.
    let (mut seen, mut query) = (Vec::new(), "path=/workspace/src/a.txt&limit=3".to_owned());
    loop {
        let page = history(server, &sandbox, &query);
        seen.extend(page["entries"].as_array().unwrap().clone());
        let Some(before) = page["next_before"].as_u64() else { break };
        query = format!("path=/workspace/src/a.txt&limit=3&before={before}");
    }
    assert_eq!(&seen, entries);

    assert_eq!(told(&history(server, &sandbox, "path=b.txt")), [("created", "exec")]);
    assert_eq!(
        told(&history(server, &sandbox, "path=src/c.txt")),
        [("deleted", "exec"), ("created", "file.move")]
    );
    assert_eq!(told(&history(server, &sandbox, "path=never")), []);
    for (query, status) in [
        ("path=/etc/passwd", 400),
        ("path=a/../b", 400),
        ("path=/workspace", 400),
        ("path=a&limit=0", 422),
        ("path=a&limit=501", 422),
        ("path=", 422),
        ("", 422),
    ] {
        assert_eq!(server.ask("GET", &format!("{sandbox}/fs/history?{query}"), "").status, status, "{query}");
    }
    // The command line, and after the sandbox has gone.
    let id = sandbox.rsplit('/').next().unwrap();
    let (code, out, err) = server.atoll(&["history", id, "src/a.txt", "-n", "2"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("ACTION") && out.contains("deleted") && out.contains("rm src/a.txt"), "{out}");
    assert!(err.contains("2 are shown"), "{err}");
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    assert_eq!(told(&history(server, &sandbox, "path=src/a.txt")), wanted);
}

#[test]
fn a_change_that_is_not_named_is_not_hidden() {
    for server in both(&[]) {
        what_is_not_named_is_told(&server);
    }
}

fn what_is_not_named_is_told(server: &Server) {
    let sandbox = server.create("{}");
    server.exec(&sandbox, "echo 1 > z");
    server.exec(&sandbox, "for n in $(seq 150); do echo $n > f$n; done; echo 2 > z");
    let page = history(server, &sandbox, "path=z");
    assert_eq!(told(&page), [("unknown", "exec"), ("created", "exec")], "{page:#}");
    assert_eq!((&page["truncated"], &page["entries"][0]["size"]), (&json!(true), &Value::Null));
    // A name that holds a secret is not kept, and so it may be any file.
    let body =
        json!({ "command": "touch $HIDDEN", "env_vars": {}, "secrets": { "HIDDEN": "swordfish-4711" } });
    server.ask("POST", &format!("{sandbox}/exec"), &body.to_string());
    let page = history(server, &sandbox, "path=swordfish-4711");
    assert_eq!(told(&page)[0], ("unknown", "exec"), "{page:#}");
    // One that is named is told as it was, though others of its command are not.
    let page = history(server, &sandbox, "path=f1");
    assert_eq!(told(&page), [("unknown", "exec"), ("created", "exec")], "{page:#}");
    let id = sandbox.rsplit('/').next().unwrap();
    let (code, out, err) = server.atoll(&["history", id, "z"]);
    assert!(
        code == Some(0) && out.contains("unknown") && err.contains("more files were changed"),
        "{out}{err}"
    );
}

/// Files that a sandbox began with are not told of like files that never were.
#[test]
fn the_files_of_a_fork_and_of_an_import_have_a_beginning() {
    let server = Server::start();
    let sandbox = server.create("{}");
    server.exec(&sandbox, "echo 1 > a");
    let id = |made: &Value| format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let made = server.ask("POST", &format!("{sandbox}/fork"), "{}").json();
    let fork = id(&made);
    server.exec(&fork, "echo 2 > a; echo 3 > new");
    let page = history(&server, &fork, "path=a");
    assert_eq!(told(&page), [("modified", "exec"), ("unknown", "sandbox.fork")], "{page:#}");
    assert_eq!((&page["truncated"], &page["entries"][1]["detail"]), (&json!(true), &made["id"]));
    assert_eq!(told(&history(&server, &fork, "path=new")), [("created", "exec")]);
    let first = history(&server, &fork, "path=a&limit=1");
    let next = format!("path=a&limit=1&before={}", first["next_before"]);
    assert_eq!(told(&history(&server, &fork, &next)), [("unknown", "sandbox.fork")]);
    // The sandbox that it was made of goes on with its own.
    assert_eq!(told(&history(&server, &sandbox, "path=a")), [("created", "exec")]);
    assert_eq!(told(&history(&server, &sandbox, "path=never")), []);
    let archive = server.send("GET", &format!("{sandbox}/export"), b"").body;
    let made = server.send("POST", "/api/v1/sandboxes/import", &archive).json();
    let page = history(&server, &id(&made["sandbox"]), "path=a");
    assert_eq!((told(&page), &page["truncated"]), (vec![("unknown", "sandbox.import")], &json!(true)));
}

#[test]
fn each_owner_sees_the_history_of_its_own_files() {
    let server = Server::start();
    let [ann, bob] = ["ann", "bob"].map(|owner| server.key_of(owner, "user"));
    let made = server.ask_as(&ann, "POST", "/api/v1/sandboxes", "{}").json();
    let sandbox = format!("/api/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let run = |key: &str, line: &str| {
        let body = json!({ "command": line }).to_string();
        assert_eq!(server.ask_as(key, "POST", &format!("{sandbox}/exec"), &body).status, 200);
    };
    run(&ann, "echo ann > a");
    // An admin works in Ann's sandbox.
    server.exec(&sandbox, "echo admin > a");
    let path = format!("{sandbox}/fs/history?path=a");
    assert_eq!(server.ask_as(&bob, "GET", &path, "").status, 404);
    let page = server.ask_as(&ann, "GET", &path, "").json();
    assert_eq!(told(&page), [("modified", ""), ("created", "exec")], "{page:#}");
    for hidden in ["operation_id", "kind", "exec_id", "detail", "exit_code", "key_id", "owner"] {
        assert_eq!(page["entries"][0][hidden], Value::Null, "{hidden}");
    }
    assert_eq!(told(&history(&server, &sandbox, "path=a")), [("modified", "exec"), ("created", "exec")]);
}
