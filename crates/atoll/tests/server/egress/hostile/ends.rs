//! When something ends: a policy, the server, the launcher, who keeps the gates. None of it opens anything.

use super::{Stage, background, outside::PUBLIC, run};
use crate::{
    engine::fixture::{all_processes, eventually},
    server::{
        egress::{egress, log},
        fixture::Server,
    },
};
use serde_json::json;
use std::{fs, process::Command, thread, time::Duration};

/// Opens fifty connections in every way, says so, and prints how many of them ended when all have.
const FIFTY: &str = r"
import probes, socket as s
def connect():
    x = s.create_connection(probes.PROXY, 60); x.sendall(b'CONNECT public.test:PORT HTTP/1.1\r\n\r\n')
    assert b' 200 ' in x.recv(4096); return x
def socks():
    x = s.create_connection(probes.PROXY, 60); x.sendall(b'\5\1\0'); x.recv(2)
    x.sendall(b'\5\1\0\3\x0bpublic.test' + (PORT).to_bytes(2, 'big')); assert x.recv(10)[1] == 0; return x
def direct(): return s.create_connection(('public.test', PORT), 60)
held = [way() for way in [connect] * 20 + [socks] * 15 + [direct] * 15]
for x in held: x.sendall(b'GET / HTTP/1.0\r\n')
print('open', flush=True)
def ended(x):
    try: return x.recv(1) == b''
    except ConnectionError: return True
print(sum(ended(x) for x in held))
";

#[test]
fn fifty_open_connections_end_with_the_policy_that_allowed_them() {
    let stage = Stage::new();
    let server = &stage.server;
    stage.world.name("public.test", &[PUBLIC]);
    for (first, then) in [
        (json!({ "mode": "full" }), json!({ "mode": "none" })),
        (json!({ "mode": "full" }), json!({ "mode": "full", "deny": ["public.test"] })),
        (
            json!({ "mode": "allowlist", "allow": ["public.test"] }),
            json!({ "mode": "full", "deny": ["203.0.113.0/24"] }),
        ),
    ] {
        let sandbox = stage.sandbox(&first);
        let exec = background(server, &sandbox, &FIFTY.replace("PORT", &stage.outside.port.to_string()));
        let said =
            || String::from_utf8(server.ask("GET", &format!("{exec}/output?format=raw"), "").body).unwrap();
        eventually("fifty connections", || said().starts_with("open"));
        eventually("fifty in the view", || egress(server, &sandbox)["connections_open"] == 50);
        assert_eq!(server.ask("PUT", &format!("{sandbox}/egress"), &then.to_string()).status, 200);
        eventually("the end of all", || said().trim().ends_with("50"));
        eventually("each in the log", || {
            let rows = log(server, &sandbox, "?verdict=allowed&limit=500");
            rows.iter().filter(|row| row["via"] != "name" && !row["error"].is_null()).count() == 50
        });
        assert_eq!(egress(server, &sandbox)["connections_open"], 0);
    }
}

/// Tries again and again to have the gate's port and to get out without it, and writes down how often it
/// tried and what worked.
const IN_WAIT: &str = r"
import os, socket as s, time
tried = 0
while True:
    worked = []
    try: x = s.socket(); x.bind(('127.0.0.1', 3128)); x.listen(); worked.append('taken')
    except OSError: pass
    try: s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'data', ('192.0.2.1', 53)); worked.append('udp')
    except OSError: pass
    try: s.create_connection(('203.0.113.9', 80), 1); worked.append('tcp')
    except OSError: pass
    tried += 1
    # Whole whenever it is read.
    with open('new', 'w') as file: file.write(str(tried))
    os.replace('new', 'tried')
    if worked: open('worked', 'a').write(' '.join(worked) + '\n')
    time.sleep(0.01)
";

fn tried(server: &Server, sandbox: &str) -> u32 {
    server.says(sandbox, "cat tried").parse().unwrap_or(0)
}

#[test]
fn without_a_server_there_is_no_network_and_its_port_is_free() {
    let mut stage = Stage::new();
    stage.world.name("public.test", &[PUBLIC]);
    let sandbox = stage.sandbox(&json!({ "mode": "full" }));
    background(&stage.server, &sandbox, IN_WAIT);
    eventually("the first try", || tried(&stage.server, &sandbox) > 0);
    let page = format!("outside {PUBLIC}");
    let before = tried(&stage.server, &sandbox);
    stage.server.kill();
    stage.outside.came();
    // Time for it to try; whether it did is looked at below.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(stage.outside.came(), []);
    stage.server.restart();
    assert!(tried(&stage.server, &sandbox) > before + 5);
    assert_eq!(stage.server.says(&sandbox, "cat worked 2>/dev/null"), "");
    assert_eq!(stage.ask(&sandbox, &[("connect", "public.test", stage.outside.port)]), [page]);
}

/// The processes of a server's launcher, and whether each keeps the gates.
fn helpers(server: &Server) -> Vec<(i32, bool)> {
    let data = server.data().canonicalize().unwrap();
    let ours = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("atoll-launch") && line.contains(data.to_str().unwrap())
    };
    let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    all_processes().into_iter().filter(ours).map(|pid| (pid, name(pid).trim() == "atoll-holder")).collect()
}

fn kill(pid: i32) {
    // It may have ended since it was listed.
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
}

#[test]
fn killed_helpers_open_nothing_and_egress_recovers() {
    let mut stage = Stage::new();
    stage.world.name("public.test", &[PUBLIC]);
    let port = stage.outside.port;
    let sandbox = stage.sandbox(&json!({ "mode": "allowlist", "allow": ["public.test"] }));
    background(&stage.server, &sandbox, IN_WAIT);
    let asks =
        [("connect", "public.test", port), ("direct", "public.test", port), ("connect", "evil.test", 80)];
    let page = format!("outside {PUBLIC}");
    let works = |stage: &Stage| assert_eq!(stage.ask(&sandbox, &asks), [&*page, &*page, "403"]);
    works(&stage);
    let keeper = helpers(&stage.server).into_iter().find(|(_, keeps)| *keeps).unwrap().0;
    kill(keeper);
    works(&stage);
    eventually("another keeper", || {
        helpers(&stage.server).iter().any(|(pid, keeps)| *keeps && *pid != keeper)
    });
    // The launcher and its monitor, and with them nobody who could repair anything.
    helpers(&stage.server).into_iter().filter(|(_, keeps)| !keeps).for_each(|(pid, _)| kill(pid));
    works(&stage);
    // And the server as well: the next one finds all of it.
    stage.server.kill();
    helpers(&stage.server).into_iter().filter(|(_, keeps)| !keeps).for_each(|(pid, _)| kill(pid));
    stage.server.restart();
    works(&stage);
    assert_eq!(run(&stage.server, &sandbox, &["sh", "-c", "cat worked 2>/dev/null || true"]), "");
}
