//! gRPC through clients that others wrote: grpcio, buf, and Connect for ECMAScript. The protocol itself is in
//! `control_plane/grpc.rs`.

use super::fixture::{KEY, Server, own_port};
use atoll_launch_proto::Layout;
use std::{
    fs,
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a program, which must succeed, and returns what it printed.
fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {out}{err}");
    out.into_owned()
}

/// A server and where it serves gRPC. Sessions are small, for many tests run at once.
fn start(variables: &[(&str, &str)]) -> (Server, String) {
    let address = own_port();
    let usual = [("ATOLL_GRPC_LISTEN", address.as_str()), ("ATOLL_GRPC_MEMORY_MB", "512")];
    let all: Vec<(&str, &str)> = usual.into_iter().chain(variables.iter().copied()).collect();
    (Server::start_in("warn", &[], &all), address)
}

/// Generated Python, and a client of it.
struct Python(tempfile::TempDir);

impl Python {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let python = Self(folder);
        let out = |kind: &str| format!("--{kind}={}", python.0.path().display());
        run(python.command().args(["-m", "grpc_tools.protoc", "-I"]).arg(root().join("proto")).args([
            out("python_out"),
            out("grpc_python_out"),
            "sandbox/v1/sandbox.proto".into(),
        ]));
        python
    }

    fn command(&self) -> Command {
        let python = root().join("target/python-grpc/bin/python");
        assert!(python.exists(), "`make python` installs grpcio");
        let mut command = Command::new(python);
        command.env("PYTHONPATH", self.0.path()).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn client(&self, address: &str, certificate: &str, what: &str) -> String {
        let script = root().join("crates/atoll/tests/server/grpc/client.py");
        run(self.command().arg(script).args([address, KEY, certificate, what]))
    }
}

#[test]
fn grpcio_does_what_the_reference_system_shows() {
    let (_server, address) = start(&[]);
    let python = Python::new();
    for what in ["example", "stream", "tenant", "many"] {
        python.client(&address, "-", what);
    }
}

/// The answer of a sandbox to a knock at its port 2024: 0 where something listens, 111 where nothing does.
fn knock(server: &Server, sandbox: &str) -> String {
    let connect = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 2024)))";
    server.says(sandbox, &format!("python3 -c \"{connect}\""))
}

#[test]
fn sessions_serve_the_process_api_where_the_setting_asks_for_it() {
    let (mut server, address) = start(&[("ATOLL_GRPC_PROCESS_API", "true")]);
    Python::new().client(&address, "-", "process_api");
    let listed = server.ask("GET", "/api/v1/sandboxes", "").json();
    let session = format!("/api/v1/sandboxes/{}", listed["items"][0]["id"].as_str().unwrap());
    // It is the server's and not the user's: no listing shows it, and the sandbox is idle.
    let execs = server.ask("GET", &format!("{session}/execs"), "").json();
    assert!(!execs.to_string().contains("process-api"), "{execs}");
    let other = server.create("{}");
    assert_eq!(knock(&server, &other), "111", "a sandbox that is no session has none");
    assert_eq!(server.ask("POST", &format!("{session}/stop"), "").status, 200);
    assert_eq!(server.ask("POST", &format!("{session}/resume"), "").status, 200);
    assert_eq!(knock(&server, &session), "0", "it comes back with the container");
    server.kill();
    server.restart();
    assert_eq!(knock(&server, &session), "0", "and stays while the server is away");
}

#[test]
fn a_runtime_with_its_own_kernel_runs_sessions_with_their_storage() {
    let (_server, address) = start(&[("SANDBOX_RUNTIME", "runsc"), ("ATOLL_GRPC_PROCESS_API", "true")]);
    let python = Python::new();
    python.client(&address, "-", "own_kernel");
    python.client(&address, "-", "process_api");
}

/// The package managers' hosts are what this machine's are set to; so the test sets them.
#[test]
fn a_session_reaches_the_eight_default_hosts() {
    let presets =
        r#"{"python":["index.test","files.test"],"node":["npm.test"],"rust":["crates.test","static.test"]}"#;
    let (_server, address) = start(&[("ATOLL_EGRESS_PRESETS", presets)]);
    let told: Vec<String> = serde_json::from_str(&Python::new().client(&address, "-", "hosts")).unwrap();
    let named = ["index.test", "files.test", "npm.test", "crates.test", "static.test"];
    let github = ["github.com", "raw.githubusercontent.com", "objects.githubusercontent.com"];
    for host in named.into_iter().chain(github) {
        assert!(told.iter().any(|told| told == host), "{host}: {told:?}");
    }
    // The rest are other hosts of GitHub's preset.
    let other =
        |host: &&String| !named.contains(&host.as_str()) && !host.contains("github") && *host != "ghcr.io";
    assert_eq!(told.iter().find(other), None, "{told:?}");
}

#[test]
fn reflection_tells_the_numbers_of_the_reference_system() {
    let (_server, address) = start(&[]);
    insta::assert_snapshot!(Python::new().client(&address, "-", "describe").trim_end());
}

/// The folder of npm packages for these tests.
fn node() -> PathBuf {
    let folder = root().join("target/grpc-node");
    assert!(folder.exists(), "`make grpc-tools` installs buf and Connect");
    folder
}

fn buf() -> Command {
    Command::new(node().join("node_modules/.bin/buf"))
}

#[test]
fn buf_lints_the_proto_and_calls_the_service() {
    let proto = root().join("proto");
    run(buf().arg("lint").arg(&proto));
    let (_server, address) = start(&[]);
    let call = |protocol: &[&str], method: &str, data: &str| {
        let url = format!("http://{address}/sandbox.v1.SandboxService/{method}");
        let header = format!("authorization: Bearer {KEY}");
        run(buf().args(["curl", "-H", &header, "-d", data]).args(protocol).arg(url))
    };
    let schema = proto.to_str().unwrap();
    let grpc = ["--protocol", "grpc", "--http2-prior-knowledge"];
    call(&grpc, "CreateSession", r#"{"session_id":"buf"}"#);
    let answer = call(
        &["--protocol", "grpcweb", "--schema", schema],
        "Exec",
        r#"{"session_id":"buf","command":"echo 1"}"#,
    );
    assert!(answer.contains(r#""stdout": "1\n""#) || answer.contains(r#""stdout":"1\n""#), "{answer}");
    let both = ["--protocol", "grpc", "--http2-prior-knowledge", "--schema", schema];
    let events = call(&both, "ExecStream", r#"{"session_id":"buf","command":"echo 2"}"#);
    assert!(events.contains("stdout") && events.contains("exit"), "{events}");
    call(&grpc, "DestroySession", r#"{"session_id":"buf"}"#);
}

#[test]
fn connect_speaks_grpc_and_grpc_web() {
    let (_server, address) = start(&[]);
    let folder = node();
    // Below the packages, where Node finds them.
    let generated = tempfile::Builder::new().prefix("generated-").tempdir_in(&folder).unwrap();
    let bin = folder.join("node_modules/.bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let plugin = serde_json::json!({"version": "v2", "plugins": [
        {"local": bin.join("protoc-gen-es"), "out": generated.path(), "opt": ["target=js"]}
    ]});
    run(buf()
        .env("PATH", &path)
        .args(["generate", "--template", &plugin.to_string()])
        .arg(root().join("proto")));
    fs::write(generated.path().join("package.json"), r#"{"type":"module"}"#).unwrap();
    let script = generated.path().join("client.mjs");
    fs::copy(root().join("crates/atoll/tests/server/grpc/client.mjs"), &script).unwrap();
    let node = root().join("target/mcp-conformance/node_modules/node/bin/node");
    run(Command::new(node).arg(&script).args([&address, KEY]).arg(generated.path()));
}

#[test]
fn tls_is_spoken_where_it_is_set_and_nothing_else() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The server is an ordinary user by the time it reads them.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let texts = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let (_server, address) =
        start(&[("ATOLL_GRPC_TLS_CERTIFICATE", texts.0), ("ATOLL_GRPC_TLS_KEY", texts.1)]);
    let named = address.replace("127.0.0.1", "localhost");
    Python::new().client(&named, texts.0, "many");
    let answer = super::http::request(address.parse().unwrap(), "OPTIONS", "/", &[], b"");
    assert!(answer.is_err(), "{answer:?}");
}

/// The launcher's record of a container.
fn record(server: &Server, container: &str) -> serde_json::Value {
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let record = fs::read(layout.run().join("c").join(container).join("record.json")).unwrap();
    serde_json::from_slice(&record).unwrap()
}

#[test]
fn the_names_that_the_reference_system_gives_its_settings_have_their_effects() {
    let python = Python::new();
    let address = own_port();
    let port = address.rsplit(':').next().unwrap();
    let variables = [
        ("GRPC_PORT", port),
        ("SANDBOX_RUNTIME", "runc"),
        ("SANDBOX_IMAGE", "agentbox-sandbox:latest"),
        ("SESSION_TIMEOUT", "77"),
        ("ATOLL_GRPC_MEMORY_MB", "512"),
    ];
    let server = Server::start_in("warn", &[], &variables);
    let container = python.client(&address, "-", "made").trim().to_owned();
    let record = record(&server, &container);
    assert!(record.to_string().contains(r#""runtime":"runc""#), "{record}");
    let sandbox = server.ask("GET", "/api/v1/sandboxes", "").json()["items"][0].clone();
    assert_eq!(
        (&sandbox["idle_timeout_seconds"], &sandbox["image"]),
        (&77.into(), &"agentbox-sandbox:latest".into())
    );
}

/// Asks for a page by way of the proxy: the status.
fn through(proxy: &str, token: &str) -> String {
    let user = format!("sandbox:jwt_{token}");
    let mut curl = Command::new("curl");
    curl.args(["-s", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "", "-x", proxy]);
    String::from_utf8(curl.args(["--proxy-user", &user, "http://a.test/"]).output().unwrap().stdout).unwrap()
}

#[test]
fn tokens_of_the_proxy_are_signed_by_the_named_key() {
    let address = own_port();
    let (host, port) = address.split_once(':').unwrap();
    let key = "a key of 32 bytes, or some bytes more";
    let server =
        Server::start_in("warn", &[], &[("PROXY_HOST", host), ("PROXY_PORT", port), ("SIGNING_KEY", key)]);
    let sandbox = server.create("{}");
    let id = sandbox.rsplit('/').next().unwrap();
    let sign = |key: &str| {
        let tokens = atoll_egress::Tokens::new(key.as_bytes()).unwrap();
        tokens.sign(id, None, &["*".to_owned()], Duration::from_secs(60)).unwrap()
    };
    let proxy = format!("http://{address}");
    assert_eq!(through(&proxy, &sign(key)), "403", "known, and its sandbox has no network");
    assert_eq!(through(&proxy, &sign("another key of 32 bytes, or some more")), "407");
}

/// A server of `.env` and of variables alone, in a folder of its own.
fn start_alone(folder: &Path, variables: &[(&str, &str)]) -> (std::process::Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(folder).env("ATOLL_BOOTSTRAP_KEY", KEY);
    command.env("ATOLL_EGRESS_ASK_INDEXES", "false").env("ATOLL_LOG", "warn").envs(variables.iter().copied());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.by_ref().take(3).collect::<Vec<_>>().join("\n");
    std::thread::spawn(move || lines.for_each(drop));
    (child, told)
}

/// The model settings of the server that told its address so.
fn settings_of(told: &str) -> serde_json::Value {
    let address =
        told.split(|c: char| c.is_whitespace() || c == '/').find(|word| word.starts_with("127.0.0.1:"));
    let authorization = format!("Bearer {KEY}");
    let headers = [("Authorization", authorization.as_str())];
    super::http::request(address.unwrap().parse().unwrap(), "GET", "/settings", &headers, b"").unwrap().json()
}

#[test]
fn the_storage_path_is_the_data_folder_and_a_file_of_the_folder_names_variables() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("tenants");
    fs::create_dir(&data).unwrap();
    let address = own_port();
    let port = address.rsplit(':').next().unwrap();
    let file = folder.path().join(".env");
    let model = "CHAT_MODEL=m-1\nCHAT_MODEL_PROVIDER=openai\nCHAT_MODEL_API_KEY=sk-of-the-file\n\
                 CHAT_MODEL_BASE_URL=https://model.example/v1\nCHAT_MODEL_SUPPORTS_VISION=true\n";
    let text =
        format!("# as others write it\nexport STORAGE_PATH='{}'\nGRPC_PORT={port}\n{model}", data.display());
    fs::write(&file, &text).unwrap();
    let end = || {
        run(Command::new(env!("CARGO_BIN_EXE_atoll")).args(["down", "--purge", "--data-dir"]).arg(&data));
    };
    let (mut child, told) = start_alone(folder.path(), &[]);
    let (there, served) = (data.join("server/atoll.db").exists(), TcpStream::connect(&address).is_ok());
    let settings = settings_of(&told);
    end();
    child.wait().unwrap();
    assert!(there && served && told.contains(&format!("gRPC: http://{address}")), "{told}");
    let wanted = serde_json::json!(["m-1", "openai", "https://model.example/v1", true, true, ""]);
    let names = ["model", "provider", "base_url", "supports_vision", "has_api_key", "api_key"];
    assert_eq!(serde_json::json!(names.map(|name| settings[name].clone())), wanted, "{settings}");
    // A file that others may write is no word of the operator's; variables are stronger than it.
    fs::create_dir_all(&data).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let named = [("STORAGE_DIR", data.to_str().unwrap()), ("ATOLL_GRPC_LISTEN", "")];
    let (mut child, told) = start_alone(folder.path(), &named);
    end();
    child.wait().unwrap();
    assert!(told.contains("data folder") && !told.contains("gRPC"), "{told}");
}

/// A limit that no run can have is refused at the start, so the name is read: what a limit does is in `control_plane/langgraph`.
#[test]
fn the_limit_of_iterations_is_read_by_the_reference_systems_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    let ran = command.current_dir(folder.path()).env("MAX_ITERATIONS", "0").output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("agent.max_iterations"), "{said}");
    fs::write(folder.path().join(".env"), "MAX_ITERATIONS=0\nENCRYPTION_KEY=k\nLD_PRELOAD=x\n").unwrap();
    command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    let ran = command.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("agent.max_iterations"), "{said}");
    assert!(
        said.contains("ENCRYPTION_KEY counts in the environment alone")
            && said.contains("LD_PRELOAD is not read"),
        "{said}"
    );
}

#[test]
fn commands_are_root_only_where_the_profile_says_so() {
    let (server, address) = start(&[("ATOLL_GRPC_PROFILE", "root")]);
    Python::new().client(&address, "-", "made");
    let id = server.ask("GET", "/api/v1/sandboxes", "").json()["items"][0]["id"].as_str().unwrap().to_owned();
    let sandbox = format!("/api/v1/sandboxes/{id}");
    assert_eq!(server.says(&sandbox, "id -u; touch /mnt/user-data/outputs/f && echo fine"), "0\nfine");
}

#[test]
fn a_port_that_is_taken_is_an_error_only_where_it_was_named() {
    let (_server, address) = start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let mut second = Command::new(env!("CARGO_BIN_EXE_atoll"));
    second.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    let ran = second.env("ATOLL_GRPC_LISTEN", &address).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && said.contains("grpc.listen"), "{said}");
    run(Command::new(env!("CARGO_BIN_EXE_atoll")).args(["down", "--purge", "--data-dir"]).arg(folder.path()));
    // Another program may have it already.
    let _taken = TcpListener::bind("127.0.0.1:50051");
    let server = Server::start_in("warn", &[], &[("GRPC_PORT", "")]);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
    assert!(server.logged().contains("gRPC is not served"), "{}", server.logged());
}
