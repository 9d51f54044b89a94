//! The audit trail as a caller reads it. Rows about sandboxes that never were are written with the server's
//! own secret while it is down, so that each test knows what it must find.

use super::fixture::{KEY, Server};
use atoll_audit::{AuditKey, Capture, Ledger, Redactor};
use atoll_store::{
    Begin, Detail, End, FileChanged, KeyId, NewEvent, OperationId, Outcome, Output, Problem, SandboxId,
};
use atoll_store_sqlite::SqliteStore;
use atoll_types::files::FileAction;
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{fs, process::Command, sync::Arc};

/// The audit trail and the events of a server that is down.
pub(super) struct Trail {
    pub(super) ledger: Ledger,
    pub(super) store: SqliteStore,
}

impl Server {
    /// Does something to the data of this server while it is down, and starts it again.
    pub(super) fn beneath<F: Future>(&mut self, work: impl FnOnce(Trail) -> F) -> F::Output {
        self.kill();
        let server = self.data().join("server");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let done = runtime.block_on(async {
            let secret: [u8; 32] = fs::read(server.join("secret.key")).unwrap().try_into().unwrap();
            let store = SqliteStore::open(&server.join("atoll.db")).await.unwrap();
            let key = AuditKey::from_secret(&secret);
            let (ledger, _) =
                Ledger::open(Arc::new(store.clone()), key, &server.join("audit.head")).await.unwrap();
            let done = work(Trail { ledger: ledger.clone(), store: store.clone() }).await;
            ledger.close().await;
            store.close().await;
            done
        });
        self.restart();
        done
    }

    /// Does something to the database behind everybody's back, while the server runs.
    pub(super) fn tamper(&self, sql: &str) {
        let options = SqliteConnectOptions::new().filename(self.data().join("server/atoll.db"));
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let mut conn = SqliteConnection::connect_with(&options).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
            conn.close().await.unwrap();
        });
    }

    /// A key of this owner.
    pub(super) fn key_of(&self, owner: &str, scope: &str) -> String {
        let body = json!({ "name": owner, "owner": owner, "scope": scope }).to_string();
        self.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned()
    }

    fn audit(&self, key: &str, query: &str) -> Value {
        let answer = self.ask_as(key, "GET", &format!("/api/v1/audit{query}"), "");
        assert_eq!(answer.status, 200, "{query}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    pub(super) fn atoll(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let ran = Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(arguments)
            .env("ATOLL_URL", format!("http://{}", self.address))
            .env("ATOLL_API_KEY", KEY)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    }
}

fn output(bytes: &[u8]) -> Option<Output> {
    let mut capture = Capture::new(&Redactor::default());
    capture.take(bytes);
    Some(capture.finish())
}

fn begin(owner: &str, sandbox: SandboxId, kind: &str, detail: &str) -> Begin {
    Begin {
        front: "rest".into(),
        key: Some(KeyId::from_uuid(uuid::Uuid::from_u128(7))),
        owner: atoll_core::owner_id(owner),
        address: Some("10.0.0.9".into()),
        kind: kind.into(),
        sandbox: Some(sandbox),
        detail: Detail::new(detail),
        directory: Some("/workspace/src".into()),
        variables: vec!["TOKEN".into()],
        extra: [("user".to_owned(), "root".to_owned())].into(),
    }
}

impl Trail {
    async fn write(&self, begin: Begin, end: Option<End>) -> OperationId {
        let operation = self.ledger.start(begin).await.unwrap();
        let id = operation.id();
        match end {
            Some(end) => operation.end(end, vec![], vec![] as Vec<NewEvent>).await.unwrap(),
            None => drop(operation.leave()),
        }
        id
    }
}

/// Six operations of two owners on two sandboxes: five of ann's and one of bob's.
async fn some(trail: Trail, (one, two): (SandboxId, SandboxId)) -> Vec<OperationId> {
    let ok = |us| End { exit_code: Some(0), ..End::new(Outcome::Ok, us) };
    let long: Vec<u8> = (0..100_000_u32).map(|n| b'a' + (n % 23) as u8).collect();
    let failed = End {
        exit_code: Some(3),
        signal: Some(9),
        cpu_us: Some(1500),
        peak_memory: Some(4096),
        stdout: output(&long),
        stderr: output(&[0xff, 0, 1]),
        files: vec![FileChanged { path: "a.txt".into(), action: FileAction::Created, size: Some(3) }],
        files_count: 7,
        bytes: Some(11),
        ..End::new(Outcome::Ok, 2500).because(Problem { code: "timeout".into(), message: "late".into() })
    };
    let refused = End::new(Outcome::Refused, 500);
    let short = End { stdout: output("é\n".as_bytes()), ..ok(1000) };
    vec![
        trail.write(begin("ann", one, "exec", "echo Needle one"), Some(short)).await,
        trail.write(begin("ann", one, "exec", "echo two"), Some(failed)).await,
        trail.write(begin("ann", two, "file.write", "/workspace/needle"), Some(ok(2000))).await,
        trail.write(begin("ann", two, "exec", &"x".repeat(5000)), Some(refused)).await,
        trail.write(begin("bob", one, "exec", "echo bob"), Some(ok(4000))).await,
        trail.write(begin("ann", two, "exec", "sleep 1"), None).await,
    ]
}

fn details(page: &Value) -> Vec<String> {
    let text = |entry: &Value| entry["detail"].as_str().unwrap().chars().take(16).collect();
    page["entries"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn operations_are_found_and_told_whole() {
    let mut server = Server::start();
    let (one, two) = (SandboxId::random(), SandboxId::random());
    let ids = server.beneath(|trail| some(trail, (one, two)));
    let one = one.uuid();
    let find = |query: &str| details(&server.audit(KEY, query));
    assert_eq!(find(&format!("?sandbox_id={one}")), ["echo bob", "echo two", "echo Needle one"]);
    assert_eq!(find(&format!("?sandbox_id={}&owner=ann", one.simple())), ["echo two", "echo Needle one"]);
    assert_eq!(
        find(&format!("?owner={}&kind=file.write", atoll_core::owner_id("ann"))),
        ["/workspace/needl"]
    );
    assert_eq!(find("?key_id=00000000000000000000000000000007&exit_code=3"), ["echo two"]);
    assert_eq!(find("?owner=ann&outcome=refused"), ["xxxxxxxxxxxxxxxx"]);
    assert_eq!(find("?owner=ann&text=NEEDLE"), ["/workspace/needl", "echo Needle one"]);
    assert_eq!(find("?owner=ann&since=2100-01-01T00:00:00Z"), [""; 0]);
    assert_eq!(find("?owner=ann&until=1000").len(), 0);
    assert_eq!(find("?owner=ann&since=1970-01-01T00:00:01%2B01:00&until=4102444800000").len(), 5);
    assert_eq!(find("?owner=nobody").len(), 0);
    // What had not ended when the server began is open, or was given up.
    let unknown = [find("?owner=ann&open=true"), find("?owner=ann&outcome=lost")].concat();
    assert_eq!(unknown, ["sleep 1"]);
    // Page by page, with none twice and none left out.
    let mut seen = Vec::new();
    let mut before = String::new();
    loop {
        let page = server.audit(KEY, &format!("?owner=ann&limit=2{before}"));
        seen.extend(details(&page));
        match page["next_before"].as_u64() {
            Some(row) => before = format!("&before={row}"),
            None => break,
        }
    }
    let all = find("?owner=ann");
    assert_eq!((seen.len(), &seen), (5, &all));
    // Everything about one.
    let entry = server.audit(KEY, &format!("/{}", ids[1].uuid()));
    assert_eq!(entry["operation_id"], ids[1].uuid().to_string());
    assert_eq!(
        (&entry["front"], &entry["kind"], &entry["address"]),
        (&json!("rest"), &json!("exec"), &json!("10.0.0.9"))
    );
    assert_eq!(
        (&entry["sandbox_id"], &entry["owner"]),
        (&json!(one.to_string()), &json!(atoll_core::owner_id("ann")))
    );
    assert_eq!(
        (&entry["working_directory"], &entry["variables"]),
        (&json!("/workspace/src"), &json!(["TOKEN"]))
    );
    assert_eq!((&entry["extra"], &entry["detail_length"]), (&json!({ "user": "root" }), &json!(8)));
    let end = &entry["ended"];
    assert_eq!((&end["outcome"], &end["exit_code"], &end["signal"]), (&json!("ok"), &json!(3), &json!(9)));
    assert_eq!((&end["duration_ms"], &end["cpu_ms"]), (&json!(2.5), &json!(1.5)));
    assert_eq!(
        (&end["peak_memory_bytes"], &end["bytes"], &end["files_count"]),
        (&json!(4096), &json!(11), &json!(7))
    );
    assert_eq!(end["error"], json!({ "code": "timeout", "message": "late" }));
    assert_eq!(end["files"], json!([{ "path": "a.txt", "action": "created", "size": 3 }]));
    assert_eq!((&end["stdout"]["length"], &end["stdout"]["kept"]), (&json!(100_000), &json!(65_536)));
    assert!(end["at"].as_str().unwrap().ends_with('Z') && entry["at"].as_str().unwrap().ends_with('Z'));
    let long = &server.audit(KEY, &format!("/{}", ids[3].uuid().simple()));
    assert_eq!((long["detail"].as_str().unwrap().len(), &long["detail_length"]), (4096, &json!(5000)));
    // What they wrote.
    let wrote = server.audit(KEY, &format!("/{}/output", ids[1].uuid()));
    let stdout = &wrote["stdout"];
    assert_eq!(
        (&stdout["encoding"], &stdout["truncated"], &stdout["length"]),
        (&json!("utf8"), &json!(true), &json!(100_000))
    );
    let lengths = ["head", "tail"].map(|part| stdout[part].as_str().unwrap().len());
    assert_eq!((lengths, stdout["sha256"].as_str().unwrap().len()), ([48 << 10, 16 << 10], 64));
    assert_eq!((&wrote["stderr"]["encoding"], &wrote["stderr"]["head"]), (&json!("base64"), &json!("/wAB")));
    let wrote = server.audit(KEY, &format!("/{}/output", ids[0].uuid()));
    assert_eq!((&wrote["stdout"]["head"], &wrote["stdout"]["truncated"]), (&json!("é\n"), &json!(false)));
    assert_eq!((&wrote["stdout"]["tail"], &wrote["stderr"]), (&json!(""), &Value::Null));
    // By hand.
    let (code, out, _) =
        server.atoll(&["audit", "ls", "--owner", "ann", "--exit-code", "3", "--since", "2h"]);
    assert_eq!((code, out.lines().count(), out.contains("echo two")), (Some(0), 2, true), "{out}");
    let (code, out, _) =
        server.atoll(&["audit", "ls", "--sandbox", &one.to_string(), "--kind", "exec", "-n", "1", "--json"]);
    let page: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, details(&page)), (Some(0), vec!["echo bob".to_owned()]));
    let row = entry["seq"].to_string();
    let (code, out, _) = server.atoll(&["audit", "show", &row]);
    assert_eq!(
        (code, out.contains(&ids[1].uuid().to_string()), out.contains("late (timeout)")),
        (Some(0), true, true),
        "{out}"
    );
    let (code, out, err) = server.atoll(&["audit", "output", &row]);
    assert_eq!((code, out.contains("34464 bytes were not kept"), err.len()), (Some(0), true, 5));
    let (code, _, err) = server.atoll(&["audit", "show", "999999"]);
    assert_eq!((code, err.contains("no operation begins in row")), (Some(1), true), "{err}");
    assert_eq!(server.atoll(&["audit", "ls", "--since", "yesterday"]).0, Some(2));
}

#[test]
fn each_owner_reads_its_own_trail_and_an_admin_all() {
    let mut server = Server::start();
    let (one, two) = (SandboxId::random(), SandboxId::random());
    let ids = server.beneath(|trail| some(trail, (one, two)));
    let (ann, bob) = (server.key_of("ann", "user"), server.key_of("bob", "user"));
    let reader = server.key_of("ann", "read_only");
    let on_one = format!("?sandbox_id={}", one.uuid());
    assert_eq!(details(&server.audit(&ann, &on_one)), ["echo two", "echo Needle one"]);
    assert_eq!(details(&server.audit(&reader, &on_one)), ["echo two", "echo Needle one"]);
    assert_eq!(details(&server.audit(&bob, &on_one)), ["echo bob"]);
    assert_eq!(server.audit(&bob, &format!("{on_one}&owner=ann"))["entries"], json!([]));
    assert_eq!(server.audit(&bob, &format!("{on_one}&owner=bob"))["entries"].as_array().unwrap().len(), 1);
    let total = |key: &str, query: &str| {
        server.audit(key, &format!("/summary{on_one}{query}"))["total"]["count"].clone()
    };
    assert_eq!((total(&ann, ""), total(&bob, ""), total(KEY, "")), (json!(2), json!(1), json!(3)));
    assert_eq!((total(&bob, "&owner=ann"), total(KEY, "&owner=ann")), (json!(0), json!(2)));
    for tail in ["", "/output"] {
        let path = format!("/api/v1/audit/{}{tail}", ids[0].uuid());
        for (key, status) in [(&ann, 200), (&reader, 200), (&bob, 404), (&KEY.to_owned(), 200)] {
            assert_eq!(server.ask_as(key, "GET", &path, "").status, status, "{tail}");
        }
    }
    for key in [&ann, &reader] {
        for (method, path, body) in
            [("GET", "export", ""), ("GET", "verify", ""), ("POST", "cleanup", r#"{"older_than_days":0}"#)]
        {
            let answer = server.ask_as(key, method, &format!("/api/v1/audit/{path}"), body);
            assert_eq!(answer.status, 403, "{path}");
        }
    }
    assert_eq!(server.ask_as("wrong", "GET", "/api/v1/audit", "").status, 401);
    assert_eq!(details(&server.audit(KEY, &on_one)).len(), 3, "and nothing was removed");
}

#[test]
fn mistakes_name_their_field() {
    let server = Server::start();
    for (query, field) in [
        ("audit?limit=0", "limit"),
        ("audit?limit=501", "limit"),
        ("audit?limit=x", "limit"),
        ("audit?since=yesterday", "since"),
        ("audit?until=2026-02-30T00:00:00Z", "until"),
        ("audit?outcome=good", "outcome"),
        ("audit?sandbox_id=1", "sandbox_id"),
        ("audit?key_id=1", "key_id"),
        ("audit?exit_code=99999999999", "exit_code"),
        ("audit?colour=red", "colour"),
        ("audit/summary?since=x", "since"),
        ("audit/export?from=-1", "from"),
        ("audit/verify?expect=7", "expect"),
        ("audit/verify?expect=7:zz", "expect"),
        ("events?after=-1", "after"),
        ("events?limit=1001", "limit"),
        ("events?sandbox_id=1", "sandbox_id"),
        ("events?colour=red", "colour"),
    ] {
        let answer = server.ask("GET", &format!("/api/v1/{query}"), "");
        assert_eq!(answer.status, 422, "{query}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.json()["detail"][0]["loc"], json!(["query", field]), "{query}");
    }
    for (body, field) in [
        ("{}", "before"),
        (r#"{"before":"soon"}"#, "before"),
        (r#"{"before":"2100-01-01T00:00:00Z"}"#, "before"),
        (r#"{"before":"0","older_than_days":1}"#, "before"),
        (r#"{"older_than_days":36501}"#, "older_than_days"),
        (r#"{"older_than_days":-1}"#, "older_than_days"),
        (r#"{"all":true}"#, "all"),
    ] {
        let answer = server.ask("POST", "/api/v1/audit/cleanup", body);
        assert_eq!(answer.status, 422, "{body}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.json()["detail"][0]["loc"][1], field, "{body}");
    }
    for path in ["x", "00000000-0000-0000-0000-000000000000", "x/output"] {
        assert_eq!(server.ask("GET", &format!("/api/v1/audit/{path}"), "").status, 404, "{path}");
    }
}

#[test]
fn operations_add_up() {
    let mut server = Server::start();
    let (one, two) = (SandboxId::random(), SandboxId::random());
    server.beneath(|trail| some(trail, (one, two)));
    let sum = server.audit(KEY, "/summary?owner=ann&limit=1&before=2");
    let tally = |count: u64, ok: u64, failed: u64, took: f64, mean: f64| json!({ "count": count, "ok": ok, "failed": failed, "duration_ms": took, "mean_ms": mean });
    // The one that is open counts, and has no end yet, or was given up when the server began again.
    let total = &sum["total"];
    assert_eq!((&total["count"], &total["ok"]), (&json!(5), &json!(3)), "{sum}");
    let days = sum["by_day"].as_array().unwrap().iter();
    assert_eq!(days.map(|day| day["count"].as_u64().unwrap()).sum::<u64>(), 5);
    assert_eq!(sum["by_day"][0]["day"].as_str().unwrap().len(), 10);
    let of = |list: &str, name: &str, value: Value| {
        let mut found =
            sum[list].as_array().unwrap().iter().find(|item| item[name] == value).unwrap().clone();
        found.as_object_mut().unwrap().remove(name);
        found
    };
    assert_eq!(of("by_sandbox", "sandbox_id", json!(one.uuid())), tally(2, 2, 0, 3.5, 1.75));
    assert_eq!(of("by_outcome", "outcome", json!("ok")), tally(3, 3, 0, 5.5, 1.833));
    assert_eq!(of("by_outcome", "outcome", json!("refused")), tally(1, 0, 1, 0.5, 0.5));
    let (code, out, _) = server.atoll(&["audit", "summary", "--owner", "ann"]);
    assert_eq!((code, out.contains("OUTCOME"), out.contains("refused")), (Some(0), true, true), "{out}");
}

#[test]
fn the_trail_is_exported_verified_and_shortened() {
    let mut server = Server::start();
    let (one, two) = (SandboxId::random(), SandboxId::random());
    server.beneath(|trail| some(trail, (one, two)));
    // Every row once, in order.
    let rows = |query: &str| -> Vec<Value> {
        let answer = server.ask("GET", &format!("/api/v1/audit/export{query}"), "");
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-ndjson")));
        let text = String::from_utf8(answer.body).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = rows("");
    let numbers: Vec<u64> = all.iter().map(|row| row["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<_>>());
    assert_eq!((&all[0]["part"], &all[0]["facts"]["kind"]), (&json!("note"), &json!("genesis")));
    let begun = all.iter().find(|row| row["facts"]["detail"]["text"] == "echo two").unwrap();
    assert_eq!((&begun["part"], begun["mac"].as_str().unwrap().len()), (&json!("begin"), 64));
    assert!(all.iter().all(|row| row.get("output").is_none()));
    let some = rows("?from=3&output=true");
    assert_eq!((some.len() >= all.len() - 2, &some[0]["seq"]), (true, &json!(3)));
    assert!(some.iter().any(|row| row["output"].is_string()));
    let (code, out, _) = server.atoll(&["audit", "export", "--from", "3"]);
    assert_eq!((code, out.lines().count() >= all.len() - 2), (Some(0), true));
    // Sound, and comparable later.
    let verify = |query: &str| server.audit(KEY, &format!("/verify{query}"));
    let sound = verify("");
    assert_eq!(
        (&sound["sound"], &sound["first_fault"], &sound["first"]),
        (&json!(true), &Value::Null, &json!(1))
    );
    assert!(
        sound["operations"].as_u64().unwrap() >= 6 && sound["mac"].as_str().unwrap().len() == 64,
        "{sound}"
    );
    let noted = format!("{}:{}", sound["last"], sound["mac"].as_str().unwrap());
    assert_eq!(verify(&format!("?expect={noted}"))["sound"], true);
    let (code, out, _) = server.atoll(&["audit", "verify", "--remote", "--expect", &noted]);
    assert_eq!((code, out.starts_with("sound: rows 1 to")), (Some(0), true), "{out}");
    let other = verify(&format!("?expect={}:{}", sound["last"], "0".repeat(64)));
    assert_eq!((&other["sound"], &other["first_fault"]["kind"]), (&json!(false), &json!("changed")));
    // What is too old goes, by whom is recorded, and the rest is verified from there.
    let before = all.iter().find(|row| row["facts"]["detail"]["text"] == "echo two").unwrap()["at"].clone();
    let cleaned =
        server.ask("POST", "/api/v1/audit/cleanup", &json!({ "before": before.to_string() }).to_string());
    assert_eq!(cleaned.status, 200, "{}", String::from_utf8_lossy(&cleaned.body));
    let cleaned = cleaned.json();
    assert!(cleaned["removed"].as_u64().unwrap() >= 1, "{cleaned}");
    assert_eq!((&cleaned["removed"], &cleaned["held_by"]), (&cleaned["removed_to"], &Value::Null));
    let sound = verify("");
    assert_eq!(
        (&sound["sound"], sound["first"].as_u64()),
        (&json!(true), cleaned["removed_to"].as_u64().map(|n| n + 1))
    );
    assert_eq!(details(&server.audit(KEY, "?owner=ann&text=two")).len(), 1);
    let by = &server.audit(KEY, "?kind=audit.cleanup")["entries"][0];
    assert_eq!(
        (&by["owner"], &by["ended"]["outcome"]),
        (&json!(atoll_core::owner_id("admin")), &json!("ok"))
    );
    let (code, out, err) = server.atoll(&["audit", "cleanup", "--before", "1970-01-02T00:00:00Z"]);
    assert_eq!((code, out.starts_with("0 rows were removed")), (Some(0), true), "{out}{err}");
    // A changed row is found, and is not removed.
    server.tamper(
        "UPDATE audit_rows SET facts = CAST(replace(CAST(facts AS TEXT), 'echo two', 'echo six') AS BLOB)",
    );
    let faulty = verify("");
    let fault = &faulty["first_fault"];
    assert_eq!(
        (&faulty["sound"], &fault["kind"], &fault["seq"]),
        (&json!(false), &json!("changed"), &begun["seq"])
    );
    assert!(!fault["message"].as_str().unwrap().is_empty());
    let (code, out, _) = server.atoll(&["audit", "verify", "--remote"]);
    assert_eq!((code, out.contains("NOT SOUND: changed at row")), (Some(1), true), "{out}");
    let data = server.data().to_str().unwrap().to_owned();
    let (code, out, _) = server.atoll(&["audit", "verify", "--data-dir", &data, "--json"]);
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &said["first_fault"]["seq"]), (Some(1), &begun["seq"]), "the same without the server");
    let refused = server.ask("POST", "/api/v1/audit/cleanup", r#"{"older_than_days":0}"#);
    assert_eq!(refused.status, 409, "{}", String::from_utf8_lossy(&refused.body));
    let text = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(text.contains("not sound"), "{text}");
}
