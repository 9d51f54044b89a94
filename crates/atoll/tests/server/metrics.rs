//! What sandboxes use: now, and a while back.

use super::fixture::{KEY, Server};
use crate::engine::{fixture::eventually, usage::Gate};
use atoll_launch_proto::Layout;
use rustix::pty::OpenptFlags;
use serde_json::Value;
use std::{
    fs::{self, File},
    io::Read,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

/// A server that samples every second.
fn sampling() -> (Server, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "[metrics]\ninterval_seconds = 1\n").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    // The server reads it as an ordinary user.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(file.path(), open).unwrap();
    (Server::start_with(&["--config", &path]), file)
}

fn metrics(server: &Server, sandbox: &str) -> Value {
    let answer = server.ask("GET", &format!("{sandbox}/metrics"), "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn now(server: &Server, sandbox: &str, field: &str) -> u64 {
    let all = metrics(server, sandbox);
    all["now"][field].as_u64().unwrap_or_else(|| panic!("{field} in {all}"))
}

fn start(server: &Server, sandbox: &str, line: &str) {
    let body = serde_json::json!({ "command": line, "background": true, "timeout_seconds": 300 }).to_string();
    let answer = server.ask("POST", &format!("{sandbox}/exec"), &body);
    assert!(matches!(answer.status, 200..=202), "{answer:?}");
}

#[test]
fn processors_memory_processes_and_disk_show_what_runs() {
    let server = Server::start();
    let [busy, idle] =
        [(); 2].map(|()| server.create(r#"{"memory_mb":256,"disk_mb":200,"cpu_cores":1,"processes":100}"#));
    let rest = metrics(&server, &idle);
    assert_eq!(idle.rsplit('/').next(), rest["sandbox_id"].as_str());
    assert_eq!(rest["interval_seconds"], 10);
    let limits =
        ["memory_limit_bytes", "disk_limit_bytes", "processes_limit"].map(|f| rest["now"][f].clone());
    // Sixteen of the processes are Atoll's own.
    assert_eq!(limits, [256_u64 << 20, 200 << 20, 116].map(Value::from));
    assert!(rest["now"]["at"].as_str().unwrap().ends_with('Z'));
    assert_eq!(rest["now"]["oom_kills"], 0);

    start(&server, &busy, "while :; do :; done");
    let seconds = |sandbox: &str| metrics(&server, sandbox)["now"]["cpu_total_seconds"].as_f64().unwrap();
    let began = seconds(&busy);
    eventually("processor time", || seconds(&busy) > began + 1.0);
    assert!(seconds(&idle) < seconds(&busy));
    let cores = |sandbox: &str| metrics(&server, sandbox)["now"]["cpu_cores"].as_f64().unwrap();
    eventually("cores", || cores(&busy) > 0.1 && cores(&busy) > cores(&idle));

    let (memory, processes) = (now(&server, &idle, "memory_bytes"), now(&server, &idle, "processes"));
    let hold = "python3 -c 'x = bytearray(b\"x\" * (100 << 20)); import time; time.sleep(300)'";
    start(&server, &idle, hold);
    eventually("memory", || now(&server, &idle, "memory_bytes") >= memory + (100 << 20));
    let held = metrics(&server, &idle)["now"].clone();
    assert!(held["memory_peak_bytes"].as_u64() >= held["memory_bytes"].as_u64(), "{held}");
    assert!(now(&server, &busy, "memory_bytes") < memory + (100 << 20), "it is the other's");
    start(&server, &idle, "for i in $(seq 20); do sleep 300 & done; wait");
    eventually("processes", || now(&server, &idle, "processes") >= processes + 21);

    let disk = now(&server, &busy, "disk_bytes");
    server.says(&busy, "head -c 50M /dev/urandom > /workspace/x; sync -f /workspace/x");
    eventually("disk", || now(&server, &busy, "disk_bytes") >= disk + (50 << 20));
    server.says(&busy, "rm /workspace/x; sync -f /workspace");
    eventually("room again", || now(&server, &busy, "disk_bytes") < disk + (10 << 20));
}

#[test]
fn the_history_grows_outlives_a_stop_and_goes_with_the_sandbox() {
    let (server, _file) = sampling();
    let sandbox = server.create("{}");
    let history = |query: &str| {
        let answer = server.ask("GET", &format!("{sandbox}/metrics{query}"), "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["history"].as_array().unwrap().clone()
    };
    eventually("a history", || history("").len() >= 3);
    let samples = history("");
    assert_eq!(metrics(&server, &sandbox)["interval_seconds"], 1);
    let at = |sample: &Value| sample["at"].as_str().unwrap().to_owned();
    assert!(samples.is_sorted_by(|a, b| at(a) < at(b)), "{samples:?}");
    for sample in &samples {
        assert!(sample["cpu_cores"].is_f64() && sample["cpu_total_seconds"].is_f64(), "{sample}");
        assert!(sample["memory_bytes"].as_u64() > Some(0) && sample["processes"].as_u64() > Some(0));
        assert!(sample["disk_bytes"].is_u64() && sample["oom_kills"] == 0, "{sample}");
    }
    let newest = at(&history("")[samples.len() - 1]);
    assert!(history(&format!("?since={newest}")).iter().all(|sample| at(sample) >= newest));
    assert!(history(&format!("?since={}&limit=360", at(&samples[1]))).len() >= samples.len() - 1);
    assert_eq!((history("?limit=1").len(), history("?limit=0").len()), (1, 0));
    assert_eq!(history("?since=9999999999999").len(), 0);
    for (query, field) in
        [("since=yesterday", "since"), ("limit=361", "limit"), ("limit=-1", "limit"), ("x=1", "x")]
    {
        let answer = server.ask("GET", &format!("{sandbox}/metrics?{query}"), "");
        assert_eq!(
            (answer.status, &answer.json()["detail"][0]["loc"][1]),
            (422, &field.into()),
            "{answer:?}"
        );
    }
    // A sum over all sandboxes, and none of each.
    let page = || String::from_utf8(server.ask("GET", "/metrics", "").body).unwrap();
    let figure = |name: &str| {
        let line = page().lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse::<f64>().ok());
        line.unwrap_or_else(|| panic!("{name} in {}", page()))
    };
    for name in ["cpu_seconds_total", "memory_bytes", "processes"] {
        assert!(figure(&format!("atoll_sandboxes_{name}")) > 0.0, "{name}");
    }
    assert!(!page().contains(sandbox.rsplit('/').next().unwrap()));

    assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
    let stopped = metrics(&server, &sandbox);
    assert_eq!(stopped["now"], Value::Null);
    assert!(stopped["history"].as_array().unwrap().len() >= samples.len());
    let used = figure("atoll_sandboxes_cpu_seconds_total");
    eventually("nothing used", || figure("atoll_sandboxes_memory_bytes") == 0.0);
    assert!(figure("atoll_sandboxes_cpu_seconds_total") >= used, "it never falls");
    let kept = history("").len();
    assert_eq!(server.ask("POST", &format!("{sandbox}/resume"), "").status, 200);
    eventually("more of the same history", || history("").len() > kept);
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    assert_eq!(server.ask("GET", &format!("{sandbox}/metrics"), "").status, 404);
}

#[test]
fn a_sample_that_fails_is_skipped() {
    let (server, _file) = sampling();
    let sandbox = server.create("{}");
    let samples = || metrics(&server, &sandbox)["history"].as_array().unwrap().len();
    eventually("a history", || samples() >= 1);
    let socket = Layout::new(server.data()).socket();
    // Nobody reaches the launcher for some samples.
    fs::rename(&socket, socket.with_extension("aside")).unwrap();
    let refused = server.ask("GET", &format!("{sandbox}/metrics"), "");
    thread::sleep(Duration::from_secs(3));
    fs::rename(socket.with_extension("aside"), &socket).unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
    let before = samples();
    eventually("more samples", || samples() > before);
}

#[test]
fn a_sample_is_one_request_and_none_while_nothing_runs() {
    let (server, _file) = sampling();
    let layout = Layout::new(server.data());
    let gate = Gate::before(&layout);
    // For as long as some samples would take.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(gate.asked(), Vec::<String>::new());
    drop(gate);
    let made = [(); 3].map(|()| server.create("{}"));
    let sampled = |sandbox: &String| !metrics(&server, sandbox)["history"].as_array().unwrap().is_empty();
    eventually("samples", || made.iter().all(sampled));
    let gate = Gate::before(&layout);
    eventually("some samples", || gate.asked().len() >= 3);
    assert!(
        gate.asked().iter().all(|request| request.contains(r#""request":"usages""#)),
        "{:?}",
        gate.asked()
    );
}

#[test]
fn a_key_that_may_read_the_sandbox_may_read_its_metrics() {
    let server = Server::start();
    let key = |body: &str| {
        let made = server.ask("POST", "/api/v1/keys", body);
        made.json()["key"].as_str().unwrap().to_owned()
    };
    let ann = key(r#"{"name":"a","owner":"ann"}"#);
    let reader = key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let bob = key(r#"{"name":"b","owner":"bob"}"#);
    let made = server.ask_as(&ann, "POST", "/api/v1/sandboxes", "{}").json();
    let path = format!("/api/v1/sandboxes/{}/metrics", made["id"].as_str().unwrap());
    for (key, expected) in [(ann.as_str(), 200), (&reader, 200), (&bob, 404), (KEY, 200), ("wrong", 401)] {
        assert_eq!(server.ask_as(key, "GET", &path, "").status, expected);
    }
    assert_eq!(server.ask("GET", "/api/v1/sandboxes/none/metrics", "").status, 404);
}

fn stats(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.arg("stats").args(arguments);
    command.env("ATOLL_URL", format!("http://{}", server.address)).env("ATOLL_API_KEY", KEY);
    command
}

fn said(ran: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr))
}

#[test]
fn stats_prints_a_line_for_each() {
    let server = Server::start();
    let [one, two, three] = [(); 3].map(|()| server.create(r#"{"memory_mb":128}"#));
    assert_eq!(server.ask("POST", &format!("{three}/stop"), "").status, 200);
    let id = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let short = |path: &str| id(path)[..8].to_owned();
    let all = said(&stats(&server, &[]).output().unwrap());
    assert!(all.starts_with("ID ") && all.lines().count() == 3, "{all}");
    assert!(all.contains(&short(&one)) && all.contains(&short(&two)) && all.contains("/ 128m"), "{all}");
    let named = said(&stats(&server, &[&short(&three), &id(&one), "--no-stream"]).output().unwrap());
    let lines: Vec<&str> = named.lines().collect();
    assert!(lines.len() == 3 && lines[1].starts_with(&short(&three)), "{named}");
    assert!(lines[1].split_whitespace().skip(1).all(|cell| cell == "-"), "{named}");
    let json = stats(&server, &["--json"]).output().unwrap();
    let ids: Vec<String> = String::from_utf8(json.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(value["now"]["memory_bytes"].is_u64(), "{line}");
            value["sandbox_id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(ids.len() == 2 && ids.contains(&id(&one)) && ids.contains(&id(&two)), "{ids:?}");
    let missing = stats(&server, &["0123456789abcdef0123456789abcdef"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1), "{}", said(&missing));
}

#[test]
fn stats_is_drawn_anew_on_a_terminal_until_interrupted() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let slave = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    let mut child =
        stats(&server, &[]).stdin(Stdio::null()).stdout(slave).stderr(Stdio::null()).spawn().unwrap();
    let id = sandbox.rsplit('/').next().unwrap()[..8].to_owned();
    let mut screen = File::from(master);
    let reader = thread::spawn(move || {
        let (mut seen, mut part) = (String::new(), [0; 4096]);
        // Twice at least; a terminal whose other end is closed cannot be read.
        while seen.matches(&id).count() < 2 {
            let n = screen.read(&mut part).unwrap();
            seen.push_str(&String::from_utf8_lossy(&part[..n]));
        }
        (seen, screen)
    });
    let (seen, _screen) = reader.join().unwrap();
    assert!(seen.contains("\x1b[H") && seen.contains("PROCESSES"), "{seen:?}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
