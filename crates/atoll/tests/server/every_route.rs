//! Every route with every kind of key, the session of a browser among them. No route of the API may be forgotten: the list
//! is its description itself.

use super::{
    fixture::{KEY, Server},
    http,
};
use crate::engine::fixture::eventually;
use serde_json::Value;
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::Duration,
};

/// What is Ann's and nobody else's.
const SECRET: &str = "the-secret-of-ann-4711";
/// What needs no key.
const PUBLIC: &[&str] = &["/", "/health", "/metrics"];
/// What only reads, whatever its method is called.
const READS: &[&str] = &["/fs/find", "/fs/grep"];
/// What shows more than a key that only reads may see, although its method reads.
const SHOWS_VALUES: &str = "/sandboxes/{id}/export";
/// What would end the thing that the other routes are tried on; these come last.
const LAST: &[&str] = &[
    "/pause",
    "/stop",
    "{sid}/rollback",
    "DELETE /api/v1/sandboxes/{id}/snapshots",
    "/drain",
    "/cleanup",
    "DELETE /api/v1/keys/",
    "DELETE /api/v1/sandboxes/{id}$",
];

/// Routes that the description does not have: of compatible APIs, of the LangGraph API, of MCP and of the console. Those
/// that the code names are here, or need no key.
const OTHERS: &[(&str, &str)] = &[
    ("POST", "/api/sandbox/create"),
    ("GET", "/api/sandbox/{sandbox}"),
    ("POST", "/api/sandbox/{sandbox}/run"),
    ("GET", "/api/sandbox/{sandbox}/runs/{eid}"),
    ("GET", "/api/sandbox/config"),
    ("PUT", "/api/sandbox/config"),
    ("GET", "/api/sandbox/status"),
    ("POST", "/api/sandbox/run"),
    ("GET", "/api/sandbox/containers"),
    ("GET", "/api/sandbox/containers/{sandbox}"),
    ("GET", "/api/sandbox/containers/{sandbox}/snapshots"),
    ("POST", "/api/sandbox/containers/{sandbox}/snapshots"),
    ("POST", "/api/sandbox/containers/{sandbox}/snapshots/{sid}/rollback"),
    ("DELETE", "/api/sandbox/containers/{sandbox}/snapshots/{sid}"),
    ("POST", "/api/sandbox/containers/{sandbox}/restart"),
    ("POST", "/api/sandbox/containers/{sandbox}/stop"),
    ("DELETE", "/api/sandbox/containers/{sandbox}"),
    ("POST", "/api/sandbox/containers/cleanup"),
    ("GET", "/api/sandbox/templates"),
    ("POST", "/api/sandbox/templates"),
    ("DELETE", "/api/sandbox/templates/{template}"),
    ("POST", "/api/sandbox/templates/{template}/build"),
    ("POST", "/api/sandbox/templates/{template}/pull"),
    ("GET", "/api/sandbox/audit"),
    ("GET", "/api/sandbox/audit/summary"),
    ("POST", "/api/sandbox/audit/cleanup"),
    ("GET", "/api/sandbox/audit/{operation_id}/output"),
    ("GET", "/api/sandbox/pool"),
    ("POST", "/api/sandbox/pool/drain"),
    ("GET", "/api/sandbox/gpu"),
    ("GET", "/api/sandbox/tiers"),
    ("DELETE", "/api/sandbox/{sandbox}"),
    ("POST", "/threads"),
    ("POST", "/threads/search"),
    ("POST", "/threads/count"),
    ("POST", "/threads/prune"),
    ("GET", "/threads/{thread_id}"),
    ("PATCH", "/threads/{thread_id}"),
    ("POST", "/threads/{thread_id}/copy"),
    ("GET", "/threads/{thread_id}/state"),
    ("POST", "/threads/{thread_id}/state"),
    ("POST", "/threads/{thread_id}/state/checkpoint"),
    ("GET", "/threads/{thread_id}/state/{run_id}"),
    ("GET", "/threads/{thread_id}/history"),
    ("POST", "/threads/{thread_id}/history"),
    ("POST", "/threads/{thread_id}/commands"),
    ("POST", "/threads/{thread_id}/stream/events"),
    ("GET", "/threads/{thread_id}/stream"),
    ("GET", "/threads/{thread_id}/runs"),
    ("POST", "/threads/{thread_id}/runs"),
    ("POST", "/threads/{thread_id}/runs/stream"),
    ("POST", "/threads/{thread_id}/runs/wait"),
    ("GET", "/threads/{thread_id}/runs/{run_id}"),
    ("DELETE", "/threads/{thread_id}/runs/{run_id}"),
    ("POST", "/threads/{thread_id}/runs/{run_id}/cancel"),
    ("GET", "/threads/{thread_id}/runs/{run_id}/join"),
    ("GET", "/threads/{thread_id}/runs/{run_id}/stream"),
    ("POST", "/runs"),
    ("POST", "/runs/batch"),
    ("POST", "/runs/cancel"),
    ("POST", "/runs/stream"),
    ("POST", "/runs/wait"),
    ("POST", "/assistants"),
    ("POST", "/assistants/search"),
    ("POST", "/assistants/count"),
    ("GET", "/assistants/{assistant_id}"),
    ("PATCH", "/assistants/{assistant_id}"),
    ("GET", "/assistants/{assistant_id}/graph"),
    ("GET", "/assistants/{assistant_id}/schemas"),
    ("GET", "/assistants/{assistant_id}/subgraphs"),
    ("GET", "/assistants/{assistant_id}/subgraphs/{thread_id}"),
    ("POST", "/assistants/{assistant_id}/versions"),
    ("POST", "/assistants/{assistant_id}/latest"),
    ("DELETE", "/assistants/{assistant_id}"),
    ("PUT", "/store/items"),
    ("GET", "/store/items"),
    ("DELETE", "/store/items"),
    ("POST", "/store/items/search"),
    ("POST", "/store/namespaces"),
    ("GET", "/settings"),
    ("PUT", "/settings"),
    ("DELETE", "/settings/api-key"),
    ("GET", "/mcp"),
    ("POST", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/ui/doctor.json"),
    ("GET", "/ui/session"),
    ("DELETE", "/ui/session"),
];
/// Those that need no key, and the console's own way to sign in.
const OTHERS_PUBLIC: &[(&str, &str)] = &[
    ("GET", "/info"),
    ("GET", "/ok"),
    ("GET", "/ui"),
    ("GET", "/ui/"),
    ("GET", "/docs"),
    ("GET", "/ui/{*path}"),
    ("POST", "/ui/session"),
];
/// What only reads among them, whatever its method is called.
const OTHERS_READ: &[&str] =
    &["/search", "/count", "/history", "/state/checkpoint", "/stream/events", "/versions", "/namespaces"];

/// A key of this kind is a cookie.
const COOKIE: &str = "cookie ";

struct World {
    server: Server,
    ids: Vec<(&'static str, String)>,
    /// A kind, its key, and whether it is worth anything.
    keys: Vec<(&'static str, Option<String>)>,
}

fn make_key(server: &Server, body: &str) -> (String, String) {
    let made = server.ask("POST", "/api/v1/keys", body).json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}

/// The cookie of a browser that is signed in with a key.
fn sign_in(server: &Server, key: &str) -> String {
    let origin = format!("http://{}", server.address);
    let body = format!(r#"{{"key":"{key}"}}"#);
    let headers = [("Origin", origin.as_str())];
    let answer = http::request(server.address, "POST", "/ui/session", &headers, body.as_bytes()).unwrap();
    let cookie = answer.header("set-cookie").unwrap_or_else(|| panic!("{answer:?}"));
    format!("{COOKIE}{}", cookie.split(';').next().unwrap())
}

impl World {
    fn new() -> Self {
        let server = Server::start();
        let (ann, ann_id) = make_key(&server, r#"{"name":"a","owner":"ann","scope":"user"}"#);
        let (bob, _) = make_key(&server, r#"{"name":"b","owner":"bob","scope":"user"}"#);
        // What a key was refused is in its owner's trail: each has its own.
        let (cy, _) = make_key(&server, r#"{"name":"c","owner":"cy","scope":"user"}"#);
        let (reader, _) = make_key(&server, r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
        let (revoked, id) = make_key(&server, r#"{"name":"g","owner":"ann","scope":"user"}"#);
        assert_eq!(server.ask("DELETE", &format!("/api/v1/keys/{id}"), "").status, 200);
        let (expired, _) = make_key(&server, r#"{"name":"e","owner":"ann","expires_in_seconds":1}"#);
        eventually("its end", || server.ask_as(&expired, "GET", "/api/v1/sandboxes", "").status == 401);
        let made = server.ask_as(&ann, "POST", "/api/v1/sandboxes", r#"{"session_key":"s"}"#).json();
        let sandbox = made["id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/sandboxes/{sandbox}");
        let put = server.ask_as(&ann, "PUT", &format!("{path}/files/secret.txt"), SECRET);
        assert!(put.status < 300, "{put:?}");
        let body = format!(r#"{{"command":"echo {SECRET}; sleep 1000","background":true}}"#);
        let exec = server.ask_as(&ann, "POST", &format!("{path}/exec"), &body).json();
        let exec = exec["exec_id"].as_str().unwrap().to_owned();
        let kernel = server.ask_as(&ann, "POST", &format!("{path}/kernels"), r#"{"language":"bash"}"#).json();
        let kernel = kernel["kernel_id"].as_str().unwrap_or_else(|| panic!("{kernel}")).to_owned();
        let snapshot = server.ask_as(&ann, "POST", &format!("{path}/snapshots"), r#"{"label":"a"}"#).json();
        let snapshot = snapshot["id"].as_str().unwrap_or_else(|| panic!("{snapshot}")).to_owned();
        let token = server.ask_as(&ann, "POST", &format!("{path}/preview-tokens"), "{}").json();
        let token = token["id"].as_str().unwrap_or_else(|| panic!("{token}")).to_owned();
        let made = server.ask_as(&ann, "POST", "/api/v1/volumes", r#"{"name":"of-ann","disk_mb":64}"#);
        assert_eq!(made.status, 201, "{made:?}");
        let made = format!(r#"{{"name":"of-ann","skill_md_content":"{SECRET}"}}"#);
        let skill = server.ask_as(&ann, "POST", "/api/v1/skills", &made).json();
        let skill = skill["id"].as_str().unwrap_or_else(|| panic!("{skill}")).to_owned();
        let thread = r#"{"thread_id":"thread-of-ann"}"#;
        assert_eq!(server.ask_as(&ann, "POST", "/threads", thread).status, 200);
        let item = format!(r#"{{"namespace":["ann"],"key":"secret","value":{{"text":"{SECRET}"}}}}"#);
        assert_eq!(server.ask_as(&ann, "PUT", "/store/items", &item).status, 204);
        let assistant = server.ask_as(&ann, "POST", "/assistants", r#"{"graph_id":"agent"}"#).json();
        let assistant =
            assistant["assistant_id"].as_str().unwrap_or_else(|| panic!("{assistant}")).to_owned();
        let rows = server.ask_as(&ann, "GET", "/api/v1/audit", "").json();
        let row = rows["entries"][0]["operation_id"].as_str().unwrap().to_owned();
        let ids = vec![
            ("eid", exec),
            ("operation_id", row),
            ("path", "secret.txt".into()),
            ("port", "8000".into()),
            ("kid", kernel),
            ("cid", "none".into()),
            ("sid", snapshot),
            ("token_id", token),
            ("tool", "execute_code".into()),
            ("thread_id", "thread-of-ann".into()),
            ("sandbox", sandbox),
            ("key", ann_id),
            ("name", "of-ann".into()),
            ("skill_id", skill),
            ("image", "nosuch".into()),
            ("build_id", "00000000-0000-4000-8000-000000000000".into()),
            ("source", "nosuch".into()),
            ("template", "nosuch".into()),
            ("assistant_id", assistant),
            ("run_id", "00000000-0000-4000-8000-000000000000".into()),
            ("skill_name", "nosuch".into()),
        ];
        let (session, other, ended) = (sign_in(&server, &ann), sign_in(&server, &cy), sign_in(&server, &ann));
        let keys = vec![
            ("none", None),
            ("signed out", Some(ended)),
            ("another owner's session", Some(other)),
            ("wrong", Some("atoll_0000".into())),
            ("expired", Some(expired)),
            ("revoked", Some(revoked)),
            ("another owner's", Some(bob)),
            ("read-only", Some(reader)),
            ("the owner's", Some(ann)),
            ("the owner's session", Some(session)),
            ("an admin's", Some(KEY.into())),
        ];
        let world = Self { server, ids, keys };
        let ended =
            world.keys.iter().find(|(kind, _)| *kind == "signed out").and_then(|(_, key)| key.clone());
        assert_eq!(world.ask(ended.as_deref(), "DELETE", "/ui/session", "").0, 204);
        world
    }

    fn id(&self, name: &str) -> &str {
        &self.ids.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("what is {{{name}}}?")).1
    }

    /// The sandbox's id as other protocols have it after a prefix.
    fn digits(&self) -> String {
        self.id("sandbox").replace('-', "")
    }

    /// The path with everything in it that it asks for, all of it Ann's.
    fn filled(&self, path: &str) -> String {
        let part = |part: &str| match part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            Some("id") if path.contains("/keys/") => self.id("key").to_owned(),
            Some("id") => self.id("sandbox").to_owned(),
            // As their protocols spell it.
            Some("sandbox") if path.contains("/containers/") => format!("container_{}", self.digits()),
            Some("sandbox") => format!("sbx_{}", self.digits()),
            Some(name) => self.id(name).to_owned(),
            None => part.to_owned(),
        };
        let query = if path.ends_with("/sandbox-images/import") { "?name=made&disk_mb=16" } else { "" };
        path.split('/').map(part).collect::<Vec<_>>().join("/") + query
    }

    /// Asks, and reads until the end or until nothing comes for a while: some answers have no end.
    fn ask(&self, key: Option<&str>, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.server.address).unwrap();
        let key = match key.map(|key| (key, key.strip_prefix(COOKIE))) {
            None => String::new(),
            Some((_, Some(cookie))) => {
                let address = self.server.address;
                format!("Cookie: {cookie}\r\nOrigin: http://{address}\r\nX-Atoll-Console: 1\r\n")
            }
            Some((key, None)) => format!("Authorization: Bearer {key}\r\n"),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{key}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.server.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let (mut all, mut piece) = (Vec::new(), [0; 8192]);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        while let Ok(n @ 1..) = stream.read(&mut piece) {
            all.extend_from_slice(&piece[..n]);
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        }
        let text = String::from_utf8_lossy(&all).into_owned();
        let status = text.split(' ').nth(1).and_then(|s| s.parse().ok());
        (status.unwrap_or_else(|| panic!("{method} {path}: no answer: {text:?}")), text)
    }
}

/// A body that the route would take, where it needs one.
fn body(method: &str, path: &str) -> &'static str {
    match path.rsplit('/').next().unwrap_or_default() {
        _ if method == "GET" || method == "DELETE" => "",
        "exec" => r#"{"command":"true"}"#,
        "run" | "execute" => r#"{"code":"1"}"#,
        "find" | "grep" => r#"{"pattern":"nothing"}"#,
        "dependencies" => r#"{"packages":{"six":"1.16.0"}}"#,
        "move" => r#"{"from":"secret.txt","to":"stolen.txt"}"#,
        "remove" => r#"{"path":"secret.txt"}"#,
        "cleanup" => r#"{"older_than_days":1}"#,
        "{sid}" => r#"{"label":"b"}"#,
        "checkpoints" => r#"{"name":"made"}"#,
        "mkdir" => r#"{"path":"made"}"#,
        "preview-tokens" => r#"{"port":8000}"#,
        "skills" if path.contains("{id}") => r#"{"skill_ids":["00000000-0000-4000-8000-000000000000"]}"#,
        "import" if path.contains("/skills/") => r#"{"source":"builtin","skill_name":"blank"}"#,
        "skills" => r##"{"name":"made","skill_md_content":"# made"}"##,
        "{skill_id}" => r#"{"description":"changed"}"#,
        "sandbox-images" => r#"{"template":"nosuch"}"#,
        "pull" => r#"{"reference":"registry.example/app","on_use":true}"#,
        "push" => r#"{"reference":"registry.example/app:1"}"#,
        "keys" | "volumes" => r#"{"name":"made"}"#,
        "{name}" => r#"{"disk_mb":128}"#,
        "bulk-stop" => r#"{"ids":[]}"#,
        "signal" => r#"{"signal":"CONT"}"#,
        _ => "{}",
    }
}

/// The same for the routes of other protocols.
fn other_body(method: &str, path: &str) -> &'static str {
    match (method, path) {
        ("DELETE", "/store/items") => r#"{"namespace":["ann"],"key":"secret"}"#,
        ("GET" | "DELETE", _) => "",
        ("PUT", "/store/items") => r#"{"namespace":["ann"],"key":"secret","value":{"text":"other"}}"#,
        (_, "/threads/prune") => r#"{"thread_ids":["thread-of-ann"]}"#,
        (_, "/threads/{thread_id}/state") => r#"{"values":{"messages":[]}}"#,
        (_, "/threads/{thread_id}/state/checkpoint") => r#"{"checkpoint":{}}"#,
        (_, "/threads/{thread_id}/stream/events") => r#"{"channels":["values"]}"#,
        (_, "/threads/{thread_id}/commands") => {
            r#"{"id":1,"method":"run.start","params":{"assistant_id":"agent","input":{"messages":[]}}}"#
        }
        (_, "/runs/batch") => r#"[{"assistant_id":"agent"}]"#,
        (_, "/runs/cancel") => r#"{"thread_id":"thread-of-ann","status":"all"}"#,
        ("POST", "/assistants") => r#"{"graph_id":"agent"}"#,
        (_, "/assistants/{assistant_id}/latest") => r#"{"version":1}"#,
        (_, "/api/sandbox/audit/cleanup") => r#"{"retention_days":1}"#,
        (_, "/api/sandbox/templates") => r#"{"name":"made","image":"host"}"#,
        (_, "/api/sandbox/run") => r#"{"code":"1","sandbox_id":"{sandbox}"}"#,
        (_, path) if path.ends_with("/run") => r#"{"code":"1"}"#,
        (_, path) if path.contains("/runs") && !path.ends_with("/cancel") => r#"{"assistant_id":"agent"}"#,
        _ => "{}",
    }
}

/// Method and path of each route that a front's code names, with `{}` for what a path asks for.
fn named_in(front: &str) -> Vec<(String, String)> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(front).join("src")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.extension() {
                None => folders.push(entry),
                Some(_) => {
                    found.extend(fs::read_to_string(entry).unwrap().split(".route(").skip(1).flat_map(route));
                }
            }
        }
    }
    found
}

/// The methods and the path of one `.route(…`.
fn route(text: &str) -> Vec<(String, String)> {
    let (mut depth, mut end) = (1, text.len());
    for (at, sign) in text.char_indices() {
        depth += match sign {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            end = at;
            break;
        }
    }
    let Some((_, rest)) = text[..end].split_once('"') else { return Vec::new() };
    let Some((path, handlers)) = rest.split_once('"') else { return Vec::new() };
    let path = path.replace("{base}", "/api/sandbox").replace("{{", "{").replace("}}", "}");
    let has = |method: &&str| {
        handlers
            .match_indices(&format!("{method}("))
            .any(|(at, _)| !handlers[..at].ends_with(char::is_alphanumeric))
    };
    let methods = ["get", "post", "put", "patch", "delete"].into_iter().filter(has);
    methods.map(|method| (method.to_uppercase(), path.clone())).collect()
}

/// A path in which everything that it asks for has the same name.
fn unnamed(path: &str) -> String {
    let part = |part: &str| if part.starts_with('{') { "{}".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[test]
fn no_route_of_another_protocol_is_forgotten() {
    let known: Vec<_> =
        OTHERS.iter().chain(OTHERS_PUBLIC).map(|(method, path)| (*method, unnamed(path))).collect();
    for (front, least) in [("front-langgraph", 45), ("front-compat", 25), ("front-ui", 5)] {
        let named = named_in(front);
        assert!(named.len() >= least, "{front}: {named:?}");
        let missing: Vec<_> = named
            .iter()
            .filter(|(method, path)| !known.contains(&(method.as_str(), unnamed(path))))
            .collect();
        assert!(missing.is_empty(), "{front}: {missing:?}");
    }
}

/// Method and path of every route, the destructive ones last.
fn routes() -> Vec<(String, String)> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json")).unwrap();
    let described: Value = serde_json::from_str(&text).unwrap();
    let mut routes: Vec<(String, String)> = Vec::new();
    for (path, operations) in described["paths"].as_object().unwrap() {
        routes.extend(operations.as_object().unwrap().keys().map(|m| (m.to_uppercase(), path.clone())));
    }
    routes.sort_by_key(|(method, path)| {
        let line = format!("{method} {path}$");
        LAST.iter().any(|end| line.contains(end))
    });
    routes
}

#[test]
fn every_route_answers_every_kind_of_key_as_it_should() {
    let world = World::new();
    let routes = routes();
    assert!(routes.len() >= 80, "{}", routes.len());
    let mut wrong = Vec::new();
    for (kind, key) in &world.keys {
        for (method, path) in &routes {
            let (status, text) = world.ask(key.as_deref(), method, &world.filled(path), body(method, path));
            let reads = method == "GET" && !path.ends_with(SHOWS_VALUES)
                || READS.iter().any(|end| path.ends_with(end));
            let anns = path.contains('{') && !path.starts_with("/threads/");
            let seen = text.contains(SECRET) || text.contains(world.id("sandbox")) && status < 300;
            let right = match *kind {
                // Nothing listens on that port inside.
                _ if status >= 500 => status == 502 && path.contains("/ports/"),
                "none" | "wrong" | "expired" | "revoked" | "signed out" => {
                    !seen && (status == 401 || PUBLIC.contains(&path.as_str()))
                }
                "another owner's" | "another owner's session" => {
                    !seen && (!anns || (400..500).contains(&status))
                }
                // Tools answer in their own form, and a form without files is refused before it is read.
                "read-only" if path.starts_with("/threads/") => reads || !text.contains("\"success\":true"),
                "read-only" => reads || status == 403 || (path.contains("{cid}") && status == 404),
                _ => true,
            };
            if !right {
                wrong.push(format!(
                    "{kind}: {method} {path}: {status} {}",
                    text.lines().last().unwrap_or_default()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn routes_of_other_protocols_know_whom_they_answer() {
    let world = World::new();
    let mut wrong = Vec::new();
    // What the owner or an admin asks for would end the things that others are tried on.
    let able = |kind: &str| kind.starts_with("the owner's") || kind == "an admin's";
    for (kind, key) in world.keys.iter().filter(|(kind, _)| !able(kind)) {
        for (method, path) in OTHERS {
            let body = other_body(method, path).replace("{sandbox}", &format!("sbx_{}", world.digits()));
            let (status, text) = world.ask(key.as_deref(), method, &world.filled(path), &body);
            // An owner's threads have names of its own.
            let anns = path.contains('{') && !path.starts_with("/threads/");
            let reads = *method == "GET" || OTHERS_READ.iter().any(|end| path.ends_with(end));
            let seen = text.contains(SECRET) || text.contains(world.id("sandbox")) && status < 300;
            let right = match *kind {
                "another owner's" | "another owner's session" => {
                    !seen && (status < 500 || status == 501) && (!anns || status >= 400)
                }
                // MCP answers in its own form, and a session in the browser is not the key's to end.
                "read-only" if path.starts_with("/mcp") || path.starts_with("/ui/") => status < 500,
                "read-only" => {
                    reads && (status < 500 || status == 501)
                        || status == 403
                        || (path.contains("{run_id}") || path.contains("{template}")) && status == 404
                        || path.ends_with("/commands") && text.contains("permission_denied")
                        // What these would end they find first, and there is nothing.
                        || matches!(*path, "/api/sandbox/containers/cleanup" | "/runs/cancel") && status < 300
                }
                _ => !seen && status == 401,
            };
            if !right {
                let last = text.lines().last().unwrap_or_default();
                wrong.push(format!("{kind}: {method} {path}: {status} {last}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
