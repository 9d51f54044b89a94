//! The client against the committed description of the API: every request that it sends is an operation with
//! these parameters and this body, and every answer that the description allows is read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[path = "../common/mod.rs"]
mod common;
mod document;

use atoll_client::{
    Activity, AttachedVolume, AuditCleaned, AuditEnd, AuditEntry, AuditError, AuditFault, AuditKept,
    AuditOutputs, AuditPage, AuditSummary, AuditTally, AuditVerdict, Build, BuildImage, BuildImageOfFiles,
    BuildList, BuildProgress, CellError, CellResult, Checkpoint, Client, Completion, CreateKey,
    CreatePreviewToken, CreateSandbox, CreateVolume, DiffFile, Display, Drained, EgressDecision, EgressInfo,
    EgressLog, EgressPolicy, EgressPreset, EgressRefusals, EventItem, EventList, Exec, ExecFailure,
    ExecRequest, ExecResult, ExtractionError, FileHistory, FileHistoryEntry, FileItem, Filesystem,
    FindRequest, FindResult, ForkSandbox, Found, GrepRequest, GrepResult, Image, ImageList, ImportImage,
    Imported, InstalledSkills, IssuedKey, Kernel, Key, KeyPage, ListAudit, ListEgress, ListEvents,
    ListSandboxes, ListSkills, Match, Metrics, NewSnapshot, OpenTerminal, PackageVersion, PatchImage,
    PatchPool, PatchSandbox, Pool, PoolFailure, PoolKey, PoolSize, PreviewToken, PullImage, PushImage,
    PushedImage, Rollback, RolledBack, RunCode, Sandbox, SandboxPage, SandboxSkill, Skill, SkillPage,
    Snapshot, SnapshotDiff, SnapshotKernel, SnapshotPage, StartKernel, TerminalSize, Unpacked, UploadedFile,
    Usage, Uuid, ValidPreviewToken, Volume, VolumePage, WatchEvent,
};
use bytes::Bytes;
use common::whole;
use document::{Document, Operation};
use futures_util::stream;
use serde::{
    Deserializer,
    de::{DeserializeOwned, Error as _, Visitor, value::Error as Probed},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// Learns the fields of a type from what it asks a deserializer for.
struct Probe<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Probed;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Probed> {
        Err(Probed::custom("not a plain struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Probed> {
        self.0.extend(fields);
        Err(Probed::custom("known"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// What a type reads wrongly of a schema: fields that it has not, and values that it refuses.
fn misread<T: DeserializeOwned>(document: &Document, name: &str) -> Vec<String> {
    let schema = document.schema(name);
    let mut fields = Vec::new();
    let _ = T::deserialize(Probe(&mut fields));
    let described = document.fields(schema);
    let unknown = fields.iter().filter(|field| !described.contains(field));
    let mut all: Vec<String> = unknown.map(|field| format!("{name} has no {field}")).collect();
    for example in document.examples(schema) {
        if let Err(error) = T::deserialize(&example) {
            all.push(format!("{name}: {error}: {example}"));
        }
    }
    all
}

/// Every type of answers, and its schema. One type may read several.
macro_rules! answers {
    ($document:expr, $($kind:ty: $($name:literal)+;)+) => {
        [$($(($name, misread::<$kind>($document, $name))),+),+]
    };
}

#[test]
fn every_answer_that_is_described_is_read() {
    let document = Document::load();
    let read = answers![&document,
        Activity: "ActivityItem"; AuditCleaned: "AuditCleaned"; AuditEnd: "AuditEnd"; AuditEntry: "AuditEntry";
        AuditError: "AuditError"; AuditFault: "AuditFault"; AuditKept: "AuditKept";
        AuditOutputs: "AuditOutputs"; AuditPage: "AuditPage"; AuditSummary: "AuditSummary";
        AuditVerdict: "AuditVerdict"; CellError: "CellErrorItem"; CellResult: "CellResult";
        Checkpoint: "CheckpointItem"; Completion: "CompletionItem"; Display: "DisplayItem"; Drained: "Drained";
        EgressDecision: "EgressItem"; EgressInfo: "EgressInfo"; EgressLog: "EgressLog";
        EgressPolicy: "EgressPolicy"; EgressPreset: "PresetInfo"; EgressRefusals: "RefusedHost";
        DiffFile: "ChangedFile"; RolledBack: "RolledBackItem"; Snapshot: "SnapshotItem";
        SnapshotDiff: "SnapshotDiff"; SnapshotKernel: "SnapshotKernel"; SnapshotPage: "SnapshotList";
        EventItem: "EventItem"; EventList: "EventList"; Exec: "ExecItem"; ExecFailure: "FailureItem";
        ExecResult: "ExecResult"; FileHistory: "FileHistoryPage";
        FileHistoryEntry: "FileHistoryItem"; FileItem: "FileItem"; FindResult: "FindResult"; Found: "FoundItem";
        GrepResult: "GrepResult"; IssuedKey: "NewKeyItem"; Kernel: "KernelItem"; Key: "KeyItem"; KeyPage: "KeyList";
        Map<String, Value>: "SettingsItem"; Imported: "ImportResult"; Match: "MatchItem"; Metrics: "MetricsReply"; Pool: "PoolItem";
        PoolFailure: "PoolFailureItem"; PoolKey: "PoolKeyItem"; PreviewToken: "PreviewTokenItem"; ValidPreviewToken: "ValidPreviewToken";
        Sandbox: "Sandbox"; SandboxPage: "SandboxPage"; Unpacked: "UnpackResult"; WatchEvent: "WatchItem";
        Image: "Image"; ImageList: "ImageList"; AttachedVolume: "Attachment"; Filesystem: "Filesystem"; Volume: "Volume";
        VolumePage: "VolumeList"; Skill: "SkillItem"; SkillPage: "SkillList"; SandboxSkill: "SandboxSkill";
        InstalledSkills: "InstallResult"; ExtractionError: "ExtractionErrorItem"; Build: "Build";
        BuildList: "BuildList"; BuildProgress: "Progress"; PushedImage: "PushResult";
        PackageVersion: "PackageVersion"; UploadedFile: "UploadItem";
    ];
    let wrong: Vec<&String> = read.iter().flat_map(|(_, wrong)| wrong).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // What reads two schemas has the fields of both.
    for (names, fields) in [
        (["AuditTally", "AuditDay", "AuditSandbox", "AuditOutcome"].as_slice(), fields_of::<AuditTally>()),
        (&["UsageItem", "UsageNowItem"], fields_of::<Usage>()),
        (&["EffectiveEntry", "PresetEntry"], fields_of::<atoll_client::EgressEntry>()),
    ] {
        let described: Vec<&str> =
            names.iter().flat_map(|name| document.fields(document.schema(name))).collect();
        for field in fields {
            assert!(described.contains(&field), "none of {names:?} has {field}");
        }
    }
}

fn fields_of<T: DeserializeOwned>() -> Vec<&'static str> {
    let mut fields = Vec::new();
    let _ = T::deserialize(Probe(&mut fields));
    fields
}

/// What the client sent, and what is wrong with it.
#[derive(Default)]
struct Seen {
    operations: BTreeSet<String>,
    wrong: Vec<String>,
}

fn check_query(operation: &Operation<'_>, document: &Document, query: &str) -> Vec<String> {
    let id = operation.id;
    let parameters: Vec<&Value> = operation.value["parameters"].as_array().into_iter().flatten().collect();
    let parameters: Vec<&Value> = parameters.into_iter().filter(|one| one["in"] == "query").collect();
    let sent: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    let mut all = Vec::new();
    for (name, value) in &sent {
        let Some(parameter) = parameters.iter().find(|one| one["name"] == *name) else {
            all.push(format!("{id} has no parameter {name}"));
            continue;
        };
        // A query is text; what looks like a number or a truth is one where the schema says so.
        let read = match parameter["schema"]["type"].as_str() {
            Some("integer" | "number" | "boolean") => serde_json::from_str(value).unwrap_or(Value::Null),
            _ => Value::from(value.replace("%2C", ",").replace("%3D", "=")),
        };
        all.extend(document.problems(&parameter["schema"], &read, &format!("{id} {name}")));
    }
    let missing =
        |one: &&&Value| one["required"] == true && !sent.iter().any(|(name, _)| one["name"] == *name);
    all.extend(parameters.iter().filter(missing).map(|one| format!("{id} needs {}", one["name"])));
    all
}

fn check_body(operation: &Operation<'_>, document: &Document, head: &str, body: &str) -> Vec<String> {
    let (id, described) = (operation.id, &operation.value["requestBody"]);
    let json = described["content"].get("application/json");
    match (json, head.contains("content-type: application/json")) {
        (Some(of), true) => {
            document.problems(&of["schema"], &serde_json::from_str(body).unwrap(), &format!("{id} body"))
        }
        (None, true) => vec![format!("{id} takes no JSON")],
        (Some(_), false) if described["required"] == true => vec![format!("{id} needs a body")],
        _ => Vec::new(),
    }
}

/// An answer that the description allows: the first success, but for a command in the background.
fn answer(operation: &Operation<'_>, document: &Document, body: &str) -> (String, String) {
    let background = body.contains("\"background\":true");
    let all = operation.value["responses"].as_object().unwrap();
    let status = match background {
        true => "202",
        false => all.keys().find(|status| status.starts_with('2')).map_or("426", String::as_str),
    };
    let content = &all.get(status).map_or(&Value::Null, |of| &of["content"])["application/json"]["schema"];
    match content.is_null() || body.contains("\"stream\":true") {
        true => (status.to_owned(), String::new()),
        false => (status.to_owned(), document.examples(content).swap_remove(0).to_string()),
    }
}

fn serve(stream: &mut TcpStream, document: &Document, seen: &Mutex<Seen>) {
    let mut request = Vec::new();
    while !whole(&request) {
        let mut piece = [0; 4096];
        match stream.read(&mut piece).unwrap_or(0) {
            0 => return,
            n => request.extend(&piece[..n]),
        }
    }
    let text = String::from_utf8(request).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut seen = seen.lock().unwrap();
    let Some(operation) = document.operation(method, path) else {
        seen.wrong.push(format!("{method} {path} is not described"));
        return;
    };
    seen.operations.insert(operation.id.to_owned());
    seen.wrong.extend(check_query(&operation, document, query));
    seen.wrong.extend(check_body(&operation, document, &head.to_ascii_lowercase(), body));
    let (status, body) = answer(&operation, document, body);
    let length = body.len();
    let answer =
        format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).unwrap();
}

fn start() -> (Client, Arc<Mutex<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client =
        Client::new(&format!("http://{}/", listener.local_addr().unwrap()), Some("atoll_k")).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let of_thread = Arc::clone(&seen);
    std::thread::spawn(move || {
        let document = Document::load();
        for stream in listener.incoming() {
            serve(&mut stream.unwrap(), &document, &of_thread);
        }
    });
    (client, seen)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn policy() -> EgressPolicy {
    EgressPolicy {
        mode: "allowlist".into(),
        presets: vec!["python".into()],
        allow: vec![json!("a.example"), json!({"to": "b.example", "methods": ["GET"], "paths": ["/v1"]})],
        deny: vec![json!("c.example")],
        limits: [("connections".to_owned(), Some(5.into()))].into(),
    }
}

fn attached() -> AttachedVolume {
    AttachedVolume { name: "data".into(), path: "/mnt/data".into(), read_only: true }
}

/// Asks for images in every way.
async fn images(client: &Client) {
    client.list_images().await.unwrap();
    let import =
        ImportImage { name: "team".into(), reference: Some("app".into()), replace: true, disk_mb: Some(512) };
    let piece = Ok(Bytes::from_static(b"tar"));
    client.import_image(&import, stream::iter([piece])).await.unwrap();
    let pull = PullImage {
        reference: "registry.example/team/app:1".into(),
        name: some("app:1"),
        replace: true,
        disk_mb: Some(512),
        username: some("user"),
        password: some("password"),
        token: None,
        on_use: false,
    };
    client.pull_image(&pull).await.unwrap();
    let token = PullImage { token: some("token"), on_use: true, ..PullImage::default() };
    client.pull_image(&PullImage { reference: pull.reference, ..token }).await.unwrap();
    client.list_builds().await.unwrap();
    let build = BuildImage {
        template: some("base"),
        args: [("A".to_owned(), "b".to_owned())].into(),
        name: some("base:1"),
        replace: true,
        disk_mb: Some(512),
        memory_mb: Some(512),
        no_cache: true,
        lock: Some(serde_json::json!([{ "manager": "pip", "name": "six", "version": "1.17.0" }])),
        ..BuildImage::default()
    };
    client.build_image(&build).await.unwrap();
    let spec = Some(serde_json::json!({ "id": "small", "base": "box" }));
    client.build_image(&BuildImage { spec, ..BuildImage::default() }).await.unwrap();
    let dockerfile = some("FROM box");
    client.build_image(&BuildImage { dockerfile, name: some("x"), ..BuildImage::default() }).await.unwrap();
    let of_files = BuildImageOfFiles {
        name: some("app"),
        file: some("Dockerfile"),
        args: [("A".to_owned(), "b".to_owned())].into(),
        replace: true,
        disk_mb: Some(512),
        memory_mb: Some(512),
        cpu_cores: Some(0.5),
        egress: Some(EgressPolicy { mode: "none".into(), ..EgressPolicy::default() }),
        no_cache: true,
        lock: some("lock.json"),
        warm_pool_min: Some(0),
        warm_pool_max: Some(1),
    };
    client.build_image_of_files(&of_files, stream::iter([Ok(Bytes::from_static(b"tar"))])).await.unwrap();
    let id = Uuid::from_u128(1);
    client.build(id).await.unwrap();
    client.build_log(id).await.unwrap();
    let _ = client.follow_build(id, Some(5)).await.unwrap();
    client.cancel_build(id).await.unwrap();
    client.image("mcpgateway/sandbox-python:3.12").await.unwrap();
    client.export_image("team/app:1.0").await.unwrap();
    let login = |text: &str| Some(text.to_owned());
    let push = PushImage {
        reference: "registry.example/team/app:1".into(),
        username: login("ann"),
        password: login("secret"),
        token: login("token"),
    };
    client.push_image("team/app:1.0", &push).await.unwrap();
    let patch = PatchImage {
        name: Some("team/app".into()),
        tags: Some(vec!["1.0".into()]),
        display_name: Some("App".into()),
        description: Some("What it is for".into()),
        memory_mb: Some(512),
        cpu_cores: Some(0.5),
        disk_mb: Some(1024),
        approved: Some(true),
        warm_pool_min: Some(1),
        warm_pool_max: Some(2),
    };
    client.patch_image("team/app", &patch).await.unwrap();
    client.delete_image("team/app:1.0").await.unwrap();
}

/// Asks for skills in every way.
async fn skills(client: &Client) {
    client.list_skills(&ListSkills::default()).await.unwrap();
    let wanted = ListSkills {
        search: Some("text".into()),
        owner: Some("ann".into()),
        offset: Some(1),
        limit: Some(5),
    };
    client.list_skills(&wanted).await.unwrap();
    client.skill(Uuid::from_u128(1)).await.unwrap();
    client.upload_skill(b"PK".to_vec(), true).await.unwrap();
    client.install_skills(Uuid::from_u128(1), &[Uuid::from_u128(2)]).await.unwrap();
    client.delete_skill(Uuid::from_u128(1)).await.unwrap();
}

/// Asks for volumes in every way.
async fn volumes(client: &Client) {
    client.create_volume(&CreateVolume { name: "data".into(), disk_mb: Some(64) }).await.unwrap();
    client.create_volume(&CreateVolume { name: "data".into(), disk_mb: None }).await.unwrap();
    client.list_volumes(Some("ann"), 1, 5).await.unwrap();
    client.list_volumes(None, 2, 200).await.unwrap();
    client.volume("data", None).await.unwrap();
    client.resize_volume("data", Some("ann"), 128).await.unwrap();
    client.delete_volume("data", Some("ann")).await.unwrap();
}

/// Asks for sandboxes in every way.
async fn sandboxes(client: &Client) {
    let id = Uuid::nil();
    let map = || [("A".to_owned(), "b".to_owned())].into();
    let new = CreateSandbox {
        image: some("host"),
        profile: some("tools"),
        idle_timeout_seconds: Some(60),
        max_lifetime_seconds: Some(3600),
        memory_mb: Some(256),
        cpu_cores: Some(0.5),
        disk_mb: Some(100),
        processes: Some(64),
        env_vars: map(),
        network_enabled: Some(true),
        egress: Some(policy()),
        session_key: some("k"),
        labels: map(),
        auto_snapshot: some("off"),
        dependencies: [("python".to_owned(), [("six".to_owned(), String::new())].into())].into(),
        volumes: vec![attached()],
        tenant_id: some("t"),
        filesystem: Filesystem {
            read_only: vec!["/workspace/data".into()],
            read_write: vec!["/workspace/output".into()],
            blocked: vec!["/etc".into()],
        },
    };
    client.create(&new).await.unwrap();
    client.create(&CreateSandbox::default()).await.unwrap();
    let which = ListSandboxes {
        page: Some(1),
        page_size: Some(5),
        status: some("running"),
        search: some("x"),
        image: some("host"),
        session_key: some("k"),
        labels: some("a=b"),
        sort_by: some("image"),
        sort_order: some("asc"),
    };
    client.list(&which).await.unwrap();
    client.get(id).await.unwrap();
    let change = PatchSandbox {
        idle_timeout_seconds: Some(60),
        memory_mb: Some(256),
        disk_mb: Some(512),
        cpu_cores: Some(0.5),
        env_vars: Some(map()),
        network_enabled: Some(false),
        labels: Some(map()),
        auto_snapshot: some("before_exec"),
        volumes: Some(vec![attached()]),
    };
    client.patch(id, &change).await.unwrap();
    client.patch(id, &PatchSandbox::default()).await.unwrap();
    client.stop(id).await.unwrap();
    client.pause(id).await.unwrap();
    client.resume(id).await.unwrap();
    client.create_snapshot(id, &NewSnapshot { label: some("a"), kernels: true }).await.unwrap();
    client.create_snapshot(id, &NewSnapshot::default()).await.unwrap();
    client.list_snapshots(id, 1, 5).await.unwrap();
    client.get_snapshot(id, id).await.unwrap();
    client.label_snapshot(id, id, Some("b")).await.unwrap();
    client.label_snapshot(id, id, None).await.unwrap();
    client.diff_snapshot(id, id, Some(id)).await.unwrap();
    client.diff_snapshot(id, id, None).await.unwrap();
    client.roll_back(id, id, Rollback::default()).await.unwrap();
    client.roll_back(id, id, Rollback { kernels: true, keep_before: Some(false) }).await.unwrap();
    client.delete_snapshot(id, id).await.unwrap();
    let fork = ForkSandbox {
        snapshot: Some(id),
        idle_timeout_seconds: Some(60),
        max_lifetime_seconds: Some(3600),
        memory_mb: Some(256),
        cpu_cores: Some(0.5),
        disk_mb: Some(100),
        processes: Some(64),
        env_vars: Some(map()),
        secrets: Some(map()),
        labels: Some(map()),
        auto_snapshot: some("off"),
    };
    client.fork(id, &fork).await.unwrap();
    client.fork(id, &ForkSandbox::default()).await.unwrap();
    client.activity(id, Some(5)).await.unwrap();
    client.metrics(id, Some("2026-11-16T12:00:00Z"), Some(5)).await.unwrap();
    client.egress(id).await.unwrap();
    client.set_egress(id, &serde_json::to_value(policy()).unwrap()).await.unwrap();
    let which =
        ListEgress { verdict: some("refused"), host: some("a.example"), before: Some(9), limit: Some(5) };
    client.egress_log(id, &which).await.unwrap();
    client.egress_presets(Some("host")).await.unwrap();
    client
        .create_preview_token(id, &CreatePreviewToken { port: Some(80), ttl_seconds: Some(60) })
        .await
        .unwrap();
    client.preview_tokens(id).await.unwrap();
    client.revoke_preview_token(id, id).await.unwrap();
    client.forward(id, 80).await.unwrap_err();
    client.destroy(id).await.unwrap();
}

/// Runs commands and cells in every way.
async fn commands(client: &Client) {
    let id = Uuid::nil();
    let request = ExecRequest {
        command: some("true"),
        arguments: None,
        timeout_seconds: Some(1.5),
        working_directory: some("/tmp"),
        env_vars: [("A".to_owned(), "b".to_owned())].into(),
        stdin: some("in"),
        stdin_open: false,
        lossless: false,
        user: some("1000"),
    };
    client.exec(id, &request).await.unwrap();
    let program = ExecRequest { arguments: Some(vec!["true".into()]), ..ExecRequest::default() };
    client.exec_background(id, &ExecRequest { stdin_open: true, ..program.clone() }).await.unwrap();
    client.exec_stream(id, &ExecRequest { lossless: true, stdin_open: true, ..program }).await.unwrap();
    client.execs(id).await.unwrap();
    client.get_exec(id, id).await.unwrap();
    client.exec_output(id, id, 5, true).await.unwrap();
    client.exec_stdin(id, id, stream::iter([Ok(Bytes::from_static(b"in"))])).await.unwrap();
    client.exec_signal(id, id, "TERM").await.unwrap();
    client.exec_signal(id, id, "15").await.unwrap();
    client.exec_kill(id, id).await.unwrap();
    client.forget_exec(id, id).await.unwrap();
    let size = Some(TerminalSize { rows: 5, columns: 6 });
    let terminal = OpenTerminal {
        command: some("sh"),
        working_directory: some("/tmp"),
        env_vars: [("A".to_owned(), "b".to_owned())].into(),
        user: some("root"),
        size,
    };
    assert!(client.open_terminal(id, &terminal).await.is_err(), "this server speaks no WebSocket");
    assert!(client.attach_terminal(id, &id.simple().to_string(), Some(5), size).await.is_err());
    let start = StartKernel {
        language: some("python"),
        default: true,
        working_directory: some("/tmp"),
        env_vars: [("A".to_owned(), "b".to_owned())].into(),
    };
    client.start_kernel(id, &start).await.unwrap();
    let code = RunCode { code: "1".into(), language: some("python"), timeout: Some(5.0), kernel: None };
    client.run_code(id, &code).await.unwrap();
    client.stream_code(id, &code).await.unwrap();
    let code = RunCode { language: None, kernel: Some(id), ..code };
    client.run_code(id, &code).await.unwrap();
    client.kernels(id).await.unwrap();
    client.complete_code(id, id, "pri").await.unwrap();
    client.interrupt_kernel(id, id).await.unwrap();
    client.restart_kernel(id, id).await.unwrap();
    client.checkpoint_kernel(id, id, "name").await.unwrap();
    client.rollback_kernel(id, id, id).await.unwrap();
    client.fork_kernel(id, id, Some(id)).await.unwrap();
    client.delete_kernel(id, id).await.unwrap();
}

/// Works on files in every way.
async fn files(client: &Client) {
    let id = Uuid::nil();
    client.list_files(id, "in").await.unwrap();
    client.stat(id, "in", true).await.unwrap();
    client.file_history(id, "in/a", Some(7), Some(5)).await.unwrap();
    client.export(id, true).await.unwrap();
    client.export(id, false).await.unwrap();
    client.import(false, true, stream::iter([Ok(Bytes::from_static(b"x"))])).await.unwrap();
    client.download(id, "in/a").await.unwrap();
    client.upload(id, "in/a", stream::iter([Ok(Bytes::from_static(b"x"))])).await.unwrap();
    client.make_dir(id, "in", true).await.unwrap();
    client.move_file(id, "a", "b", true).await.unwrap();
    client.remove_file(id, "b", true).await.unwrap();
    let find = FindRequest {
        path: some("in"),
        pattern: some("*.rs"),
        kind: some("file"),
        max_depth: Some(2),
        hidden: Some(true),
        limit: Some(5),
    };
    client.find(id, &find).await.unwrap();
    let grep = GrepRequest {
        path: some("in"),
        pattern: "x".into(),
        literal: true,
        ignore_case: true,
        glob: some("*.rs"),
        context: Some(2),
        max_matches: Some(5),
    };
    client.grep(id, &grep).await.unwrap();
    client.pack(id, "in").await.unwrap();
    client.unpack(id, "in", stream::iter([Ok(Bytes::from_static(b"tar"))])).await.unwrap();
    client.watch(id, "in", true).await.unwrap();
    client.attach_file("t", "a.csv", b"x").await.unwrap();
    client.conversation_files("t").await.unwrap();
}

/// What an operator asks for.
async fn operating(client: &Client) {
    let id = Uuid::nil();
    let which = ListAudit {
        sandbox_id: Some(id),
        owner: some("ann"),
        key_id: Some(id),
        kind: some("exec"),
        exit_code: Some(1),
        outcome: some("failed"),
        text: some("x"),
        since: some("0"),
        until: some("1"),
        open: true,
        before: Some(9),
        limit: Some(5),
    };
    client.audit(&which).await.unwrap();
    client.audit_summary(&which).await.unwrap();
    client.audit_entry(id).await.unwrap();
    client.audit_output(id).await.unwrap();
    client.audit_export(1, true).await.unwrap();
    client.audit_verify(Some(&format!("1:{}", "0".repeat(64)))).await.unwrap();
    client.audit_cleanup("2026-11-16T12:00:00Z").await.unwrap();
    let which = ListEvents {
        after: Some(1),
        sandbox_id: Some(id),
        owner: some("ann"),
        kind: some("sandbox.created"),
        limit: Some(5),
    };
    client.events(&which).await.unwrap();
    client.follow_events(&which, Some(5)).await.unwrap();
    let key = CreateKey {
        name: "k".into(),
        owner: some("ann"),
        scope: some("user"),
        tier: some("standard"),
        expires_in_seconds: Some(60),
    };
    client.create_key(&key).await.unwrap();
    client.list_keys(1, 1).await.unwrap();
    client.list_keys(2, 200).await.unwrap();
    client.revoke_key(id).await.unwrap();
    client.pool().await.unwrap();
    let size = PoolSize { min: Some(1), max: Some(2) };
    let images = [("host".to_owned(), Some(size)), ("other".to_owned(), None)].into();
    client.patch_pool(&PatchPool { enabled: Some(true), images }).await.unwrap();
    client.drain_pool(true).await.unwrap();
    client.settings().await.unwrap();
    client
        .patch_settings(&[("warm_pool_enabled".to_owned(), json!(true))].into_iter().collect())
        .await
        .unwrap();
}

/// Operations that this client has no method for.
const WITHOUT: &[&str] = &[
    "admin_bulk_stop",
    "admin_owners",
    "admin_sandboxes",
    "egress_token",
    "images_package_catalogue",
    "images_template_list",
    "kernels_checkpoint_list",
    "kernels_checkpoint_remove",
    "kernels_get",
    "kernels_install",
    "preview_open",
    "preview_ports",
    "sandboxes_usage",
    "server_health",
    "server_metrics",
    "server_root",
    "settings_summary",
    "skills_catalog",
    "skills_catalog_detail",
    "skills_create",
    "skills_import",
    "skills_package",
    "skills_templates",
    "skills_update",
    "threads_call",
    "threads_delete",
    "threads_download",
    "threads_sessions",
    "threads_tools",
];

#[tokio::test]
async fn every_request_is_one_that_is_described() {
    let (client, seen) = start();
    sandboxes(&client).await;
    volumes(&client).await;
    skills(&client).await;
    images(&client).await;
    commands(&client).await;
    files(&client).await;
    operating(&client).await;
    let seen = seen.lock().unwrap();
    assert!(seen.wrong.is_empty(), "{:#?}", seen.wrong);
    let known: BTreeSet<String> = Document::load().operations().map(str::to_owned).collect();
    let without: BTreeSet<String> = WITHOUT.iter().map(|id| (*id).to_owned()).collect();
    assert_eq!(known.difference(&seen.operations).cloned().collect::<BTreeSet<_>>(), without);
}

/// Types that are wrong in one way each, as the client's could become.
mod broken {
    #![allow(dead_code)]
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(super) struct Renamed {
        id: String,
        #[serde(default)]
        state: String,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Status {
        Creating,
        Running,
        Paused,
        Stopped,
        Dead,
    }

    #[derive(Deserialize)]
    pub(super) struct OneStatusLess {
        status: Status,
    }

    #[derive(Deserialize)]
    pub(super) struct Demanding {
        stderr: String,
    }

    #[derive(Deserialize)]
    pub(super) struct NeverNull {
        #[serde(default)]
        session_key: String,
    }

    #[derive(Deserialize)]
    pub(super) struct Narrow {
        exec_count: u32,
    }

    #[derive(Deserialize)]
    pub(super) struct OtherType {
        labels: Vec<String>,
    }
}

#[test]
fn a_type_that_is_wrong_is_found() {
    let document = Document::load();
    assert_eq!(misread::<broken::Renamed>(&document, "Sandbox"), ["Sandbox has no state"]);
    for (wrong, names) in [
        (misread::<broken::OneStatusLess>(&document, "Sandbox"), "unknown variant `destroyed`"),
        (misread::<broken::Demanding>(&document, "Sandbox"), "missing field `stderr`"),
        (misread::<broken::NeverNull>(&document, "Sandbox"), "invalid type: null"),
        (misread::<broken::Narrow>(&document, "Sandbox"), "expected u32"),
        (misread::<broken::OtherType>(&document, "Sandbox"), "expected a sequence"),
    ] {
        assert!(wrong.iter().any(|one| one.contains(names)), "{names}: {wrong:?}");
    }
    let body = json!({"$ref": "#/components/schemas/CreateBody"});
    for (sent, names) in [
        (json!({"memory": 5}), "there is no such field"),
        (json!({"memory_mb": "5"}), "is none of"),
        (json!({"memory_mb": 5}), "is not from 16"),
        (json!({"profile": "odd"}), "is not allowed"),
        (json!({"network_enabled": false, "egress": {"mode": "full"}}), "must not be"),
        (json!({"egress": {"mode": "allowlist"}}), "fits nothing"),
    ] {
        let wrong = document.problems(&body, &sent, "body");
        assert!(wrong.iter().any(|one| one.contains(names)), "{sent}: {wrong:?}");
    }
    assert!(document.operation("GET", "/api/v1/sandbox").is_none());
    let list = document.operation("GET", "/api/v1/sandboxes").unwrap();
    assert_eq!(check_query(&list, &document, "page=0&pages=1").len(), 2);
}
