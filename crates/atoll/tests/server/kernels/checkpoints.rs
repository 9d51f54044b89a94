//! Python kernels that are put back as they were, and copied.

use super::{Server, execute, start, value};
use serde_json::{Value, json};

fn post(server: &Server, path: &str, body: &Value, status: u16) -> Value {
    let answer = server.ask("POST", path, &body.to_string());
    assert_eq!(answer.status, status, "{path}: {}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

#[test]
fn variables_come_back_as_they_were() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({}));
    execute(&server, &kernel, "data = list(range(100_000)); name = 'first'; open('file', 'w').write('x')");
    let checkpoints = format!("{kernel}/checkpoints");
    let made = post(&server, &checkpoints, &json!({ "name": "before" }), 201);
    assert_eq!((&made["name"], &made["execution_count"]), (&"before".into(), &1.into()), "{made}");
    let at = format!("{checkpoints}/{}", made["checkpoint_id"].as_str().unwrap());
    for _ in 0..3 {
        execute(
            &server,
            &kernel,
            "data.clear(); name = 'second'; import os; os.path.exists('file') and os.remove('file')",
        );
        post(&server, &format!("{at}/rollback"), &json!({}), 200);
        let ran = execute(&server, &kernel, "len(data), name");
        assert_eq!(value(&ran), "(100000, 'first')");
    }
    // Files are not part of it.
    assert_eq!(value(&execute(&server, &kernel, "import os; os.path.exists('file')")), "False");
    let listed = server.ask("GET", &checkpoints, "").json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(server.ask("DELETE", &at, "").status, 204);
    assert_eq!(server.ask("DELETE", &at, "").status, 404);
    assert_eq!(server.ask("POST", &format!("{at}/rollback"), "").status, 404);
}

#[test]
fn a_fork_goes_its_own_way() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({}));
    execute(&server, &kernel, "x = 1");
    let then = post(&server, &format!("{kernel}/checkpoints"), &json!({}), 201);
    execute(&server, &kernel, "x = 2");
    let now = post(&server, &format!("{kernel}/fork"), &json!({}), 201);
    let old = post(&server, &format!("{kernel}/fork"), &json!({ "checkpoint": then["checkpoint_id"] }), 201);
    assert_eq!(now["parent_id"], kernel.rsplit('/').next().unwrap(), "{now}");
    let path = |info: &Value| format!("{sandbox}/kernels/{}", info["kernel_id"].as_str().unwrap());
    let (now, old) = (path(&now), path(&old));
    execute(&server, &now, "x += 10");
    assert_eq!(value(&execute(&server, &kernel, "x")), "2");
    assert_eq!(value(&execute(&server, &now, "x")), "12");
    assert_eq!(value(&execute(&server, &old, "x")), "1");
    // The first one's end is not theirs.
    assert_eq!(server.ask("DELETE", &kernel, "").status, 204);
    assert_eq!(value(&execute(&server, &now, "x")), "12");
}

#[test]
fn other_languages_say_that_they_cannot() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let kernel = start(&server, &sandbox, &json!({ "language": "bash" }));
    for below in ["checkpoints", "fork"] {
        let answer = server.ask("POST", &format!("{kernel}/{below}"), "{}");
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (501, Some("unsupported")));
    }
}
