//! Sandboxes of all owners, for admins.

use super::fixture::Server;
use serde_json::{Value, json};

const ALL: &str = "/api/v1/admin/sandboxes";
const BULK: &str = "/api/v1/admin/sandboxes/bulk-stop";

fn key(server: &Server, owner: &str) -> String {
    let body = json!({"name": owner, "owner": owner}).to_string();
    server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned()
}

fn id(sandbox: &str) -> &str {
    sandbox.rsplit('/').next().unwrap()
}

fn created(server: &Server, key: &str, body: &str) -> String {
    let made = server.ask_as(key, "POST", "/api/v1/sandboxes", body);
    assert_eq!(made.status, 201, "{made:?}");
    format!("/api/v1/sandboxes/{}", made.json()["id"].as_str().unwrap())
}

fn status(server: &Server, sandbox: &str) -> Value {
    server.ask("GET", sandbox, "").json()["status"].clone()
}

#[test]
fn an_admin_sees_and_ends_sandboxes_of_all_owners() {
    let server = Server::start();
    let (ann, bob) = (key(&server, "ann"), key(&server, "bob"));
    let of_ann = [r#"{"disk_mb":16}"#, r#"{"disk_mb":16,"labels":{"a":"b"}}"#]
        .map(|body| created(&server, &ann, body));
    let of_bob = created(&server, &bob, r#"{"disk_mb":16}"#);
    let page = server.ask("GET", &format!("{ALL}?page_size=2&sort_by=created_at&sort_order=asc"), "").json();
    assert_eq!((&page["total"], page["items"].as_array().unwrap().len()), (&json!(3), 2));
    assert_eq!(page["items"][0]["user_name"], "ann");
    assert_eq!(server.ask("GET", &format!("{ALL}?owner=bob"), "").json()["total"], 1);
    for (method, path, body) in [("GET", ALL, ""), ("POST", BULK, r#"{"filter":{}}"#)] {
        let refused = server.ask_as(&ann, method, path, body);
        assert_eq!(
            (refused.status, refused.json()["error"]["code"].as_str()),
            (403, Some("permission_denied"))
        );
    }
    for body in [
        "",
        "{}",
        r#"{"ids":[],"filter":{}}"#,
        r#"{"filter":{"status":"x"}}"#,
        r#"{"filter":{"labels":"x"}}"#,
    ] {
        assert_eq!(server.ask("POST", BULK, body).status, 422, "{body}");
    }
    let nowhere = "00000000-0000-4000-8000-000000000000";
    let ids = json!({"ids": [id(&of_ann[0]), id(&of_bob), id(&of_bob), nowhere]}).to_string();
    let done = server.ask("POST", BULK, &ids).json();
    assert_eq!(
        (&done["stopped"], &done["destroyed"], &done["skipped"]),
        (&json!(2), &json!(0), &json!(0)),
        "{done}"
    );
    assert_eq!(done["errors"][0]["id"], nowhere);
    assert_eq!(done["errors"][0]["code"], "not_found");
    let by = json!({"filter": {"owner": "ann"}, "action": "stop"}).to_string();
    let done = server.ask("POST", BULK, &by).json();
    assert_eq!(done, json!({"stopped": 1, "destroyed": 0, "skipped": 1, "errors": []}));
    let by = json!({"filter": {"status": "stopped", "labels": "a=b"}, "action": "destroy"}).to_string();
    let done = server.ask("POST", BULK, &by).json();
    assert_eq!(done, json!({"stopped": 0, "destroyed": 1, "skipped": 0, "errors": []}));
    assert_eq!(status(&server, &of_ann[0]), "stopped");
    assert_eq!(server.ask("GET", &of_bob, "").json()["status"], "stopped");
    assert_eq!(server.ask("GET", ALL, "").json()["total"], 2);
    // Each of them is told by itself, and who did it.
    let count = |kind: &str| {
        let told = server.ask("GET", &format!("/api/v1/audit?kind={kind}&outcome=ok"), "").json();
        told["entries"].as_array().unwrap().len()
    };
    assert_eq!((count("sandbox.stop"), count("sandbox.destroy"), count("sandbox.bulk")), (3, 1, 3));
}

#[test]
fn an_admin_lists_every_owner_with_what_it_has() {
    let server = Server::start();
    let (ann, bob) = (key(&server, "ann"), key(&server, "bob"));
    created(&server, &ann, r#"{"disk_mb":16}"#);
    let stopped = created(&server, &ann, r#"{"disk_mb":16}"#);
    assert_eq!(server.ask("POST", &format!("{stopped}/stop"), "").status, 200);
    let made = server.ask_as(&ann, "POST", "/api/v1/volumes", r#"{"name":"data","disk_mb":32}"#);
    assert_eq!(made.status, 201, "{made:?}");
    let plans =
        json!({"atoll": {"plans": {"team": {"sandboxes": 7}}, "owners": {"eve": "team"}}}).to_string();
    assert_eq!(server.ask("PATCH", "/api/v1/settings/sandbox", &plans).status, 200);
    let list = |query: &str| server.ask("GET", &format!("/api/v1/admin/owners{query}"), "").json();
    let all = list("");
    let names: Vec<&str> =
        all["items"].as_array().unwrap().iter().map(|owner| owner["owner"].as_str().unwrap()).collect();
    // The one of the first key, two with keys of their own, and one that only a setting names.
    assert_eq!(names, ["admin", "ann", "bob", "eve"], "{all}");
    let of_ann = &all["items"][1];
    let figures =
        ["keys", "sandboxes", "sandboxes_at_a_time", "volumes", "disk_mb", "skills", "skills_bytes"];
    let figures = figures.map(|name| of_ann[name].as_u64().unwrap());
    assert_eq!(figures, [1, 2, 1, 1, 64, 0, 0], "{of_ann}");
    assert_eq!((&of_ann["plan"], &all["items"][3]["plan"]), (&json!("free"), &json!("team")));
    let second = list("?page=2&page_size=2");
    assert_eq!((&second["total"], &second["items"][0]["owner"]), (&json!(4), &json!("bob")), "{second}");
    let by_id = list(&format!("?search={}", of_ann["owner_id"].as_str().unwrap()));
    assert_eq!((&by_id["total"], &by_id["items"][0]["owner"]), (&json!(1), &json!("ann")), "{by_id}");
    assert_eq!(server.ask_as(&bob, "GET", "/api/v1/admin/owners", "").status, 403);
    for wrong in ["?page=0", "?page_size=0", "?page_size=201"] {
        assert_eq!(server.ask("GET", &format!("/api/v1/admin/owners{wrong}"), "").status, 422, "{wrong}");
    }
}

#[test]
fn the_use_of_several_sandboxes_is_read_at_once() {
    let server = Server::start();
    let (ann, bob) = (key(&server, "ann"), key(&server, "bob"));
    let [one, two] = [(); 2].map(|()| created(&server, &ann, r#"{"disk_mb":16}"#));
    let run = server.ask_as(&ann, "POST", &format!("{one}/exec"), r#"{"command":"exit 3"}"#);
    assert_eq!(run.status, 200, "{run:?}");
    let nowhere = "00000000-0000-4000-8000-000000000000";
    let path = format!("/api/v1/usage?ids={},{nowhere},{}", id(&one), id(&two));
    let used = server.ask_as(&ann, "GET", &path, "").json();
    let ids: Vec<&str> =
        used.as_array().unwrap().iter().map(|each| each["sandbox_id"].as_str().unwrap()).collect();
    assert_eq!(ids, [id(&one), id(&two)], "{used}");
    assert_eq!((&used[0]["last_command"]["exit_code"], &used[1]["last_command"]), (&json!(3), &Value::Null));
    assert!(used[1]["metrics"]["now"]["memory_bytes"].as_u64() > Some(0), "{used}");
    // Another owner's are as if there were none.
    assert_eq!(server.ask_as(&bob, "GET", &path, "").json(), json!([]));
    for wrong in ["", "?ids=", "?ids=x", &format!("?ids={nowhere}&limit=361"), &format!("?ids={nowhere},")] {
        assert_eq!(server.ask("GET", &format!("/api/v1/usage{wrong}"), "").status, 422, "{wrong}");
    }
}
