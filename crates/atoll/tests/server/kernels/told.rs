//! Cells in the audit trail, the activity and the events, with nothing secret in them.

use super::{Server, python, run, start};
use crate::engine::fixture::eventually;
use crate::server::execs::noted;
use serde_json::{Value, json};

fn entries(server: &Server) -> Vec<Value> {
    let page = server.ask("GET", "/api/v1/audit?limit=500", "").json();
    page["entries"].as_array().unwrap().clone()
}

#[test]
fn a_cell_is_told_with_its_code_what_it_printed_and_what_it_changed() {
    let server = Server::start();
    let secret = "s3cr3t-of-the-kernel-44";
    let sandbox = server.create(&json!({ "secrets": { "TOKEN": secret } }).to_string());
    let code = format!("import os; print(os.environ['TOKEN']); open('made', 'w').write('x'); '{secret}'");
    let ran = python(&server, &sandbox, &code);
    assert_eq!(ran["stdout"], format!("{secret}\n"), "its owner may see it");
    let failed = run(&server, &sandbox, "python", &format!("raise ValueError('{secret}')"));
    assert_eq!(failed["error"]["message"], secret);
    let kernel =
        start(&server, &sandbox, &json!({ "language": "bash", "env_vars": { "VISIBLE": "value-of-one" } }));
    server.ask("POST", &format!("{kernel}/restart"), "");
    server.ask("DELETE", &kernel, "");
    eventually("every end", || entries(&server).iter().all(|entry| !entry["ended"].is_null()));
    let all = entries(&server);
    let kinds: Vec<_> = all.iter().rev().map(|e| e["kind"].as_str().unwrap()).collect();
    let wanted = [
        "sandbox.create",
        "kernel.execute",
        "kernel.execute",
        "kernel.start",
        "kernel.restart",
        "kernel.delete",
    ];
    assert_eq!(kinds, wanted);
    let first = &all[all.len() - 2];
    assert!(first["detail"].as_str().unwrap().starts_with("import os; print"), "{first}");
    assert_eq!(
        (&first["ended"]["outcome"], &first["ended"]["exit_code"]),
        (&"ok".into(), &0.into()),
        "{first}"
    );
    assert_eq!(first["extra"]["cell_id"], ran["cell_id"]);
    assert_eq!(all[all.len() - 3]["ended"]["outcome"], "failed");
    let output =
        server.ask("GET", &format!("/api/v1/audit/{}/output", first["operation_id"].as_str().unwrap()), "");
    assert!(String::from_utf8_lossy(&output.body).contains("[secret]"), "{output:?}");
    let notes = noted(&server, &sandbox);
    assert_eq!(notes.iter().map(|(_, code)| code.clone()).collect::<Vec<_>>(), [json!(1), json!(0)]);
    let id = sandbox.rsplit('/').next().unwrap();
    let heard = server.ask("GET", &format!("/api/v1/events?sandbox_id={id}&kind=cell.ended"), "").json();
    assert_eq!(heard["events"].as_array().unwrap().len(), 2, "{heard}");
    let everything = format!("{all:?}{notes:?}{heard}{}", String::from_utf8_lossy(&output.body));
    assert!(!everything.contains(secret) && !everything.contains("value-of-one"));
    assert_eq!(server.ask("GET", "/api/v1/audit/verify", "").json()["sound"], true);
}

#[test]
fn what_a_cell_asks_for_on_the_way_out_is_its_own() {
    let server = Server::start();
    let sandbox = server.create(r#"{"egress":{"mode":"allowlist","allow":["nothing.example"]}}"#);
    python(&server, &sandbox, "1");
    let asking = "import urllib.request\ntry: urllib.request.urlopen('http://refused.example/')\nexcept Exception as e: print(e)";
    let ran = python(&server, &sandbox, asking);
    let cell = ran["cell_id"].as_str().unwrap();
    let operation = |server: &Server| {
        entries(server).into_iter().find(|e| e["extra"]["cell_id"] == cell).unwrap()["operation_id"].clone()
    };
    eventually("the decision", || {
        let log = server.ask("GET", &format!("{sandbox}/egress/log"), "").json();
        let wanted = operation(&server);
        log.to_string().contains("refused.example") && log.to_string().contains(wanted.as_str().unwrap())
    });
}
