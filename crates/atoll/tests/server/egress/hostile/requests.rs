//! Requests that try to be something else than what was decided on.

use super::{Stage, outside::METADATA, put, python, run};
use serde_json::{Value, json};

/// Sends texts to the proxy as they are and prints the status of every answer, or `closed`.
const SEND: &str = r"
import json, re, socket as s
def send(text):
    x = s.create_connection(('127.0.0.1', 3128), 30)
    data = b''
    try:
        x.sendall(text.encode('latin-1')); x.shutdown(s.SHUT_WR)
        while True:
            more = x.recv(65536)
            if not more: break
            data += more
    except OSError: pass
    return re.findall(r'HTTP/1\.1 (\d+)', data.decode('latin-1')) or ['closed']
print(json.dumps([send(text) for text in json.load(open('texts'))]))
";

/// What the proxy answered to each text.
fn send(stage: &Stage, sandbox: &str, texts: &[String]) -> Vec<Vec<String>> {
    put(&stage.server, sandbox, "texts", &json!(texts).to_string());
    serde_json::from_str(&python(&stage.server, sandbox, SEND)).unwrap()
}

fn listed(stage: &Stage) -> Value {
    json!({ "mode": "allowlist", "allow": ["a.test", stage.world.web.to_string()] })
}

#[test]
fn an_allowed_host_is_no_way_to_another() {
    let stage = Stage::new();
    let sandbox = stage.sandbox(&listed(&stage));
    let port = stage.world.web.port();
    let (a, b) = (format!("a.test:{port}"), format!("b.test:{port}"));
    let get = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mixed = [
        get(&format!("http://{a}/1"), &b),
        get(&format!("http://{a}@{b}/2"), &a),
        get(&format!("http://{a}\\@{b}/3"), &a),
        format!("GET http://{a}/4 HTTP/1.1\r\nHost: {a}\r\nHost: {b}\r\n\r\n"),
        format!("CONNECT {a} HTTP/1.1\r\nHost: {b}\r\n\r\n{}", get("/5", &b)),
        get("/6", &b),
    ];
    for (text, answers) in mixed.iter().zip(send(&stage, &sandbox, &mixed)) {
        assert_eq!(answers, ["400"], "{text}");
    }
    assert_eq!(stage.world.seen.lock().unwrap().len(), 0);
    // One after the other on one connection: the second is refused, whatever the first was.
    let second = [get(&format!("http://{a}/first"), &a) + &get(&format!("http://{b}/second"), &b)];
    for _ in 0..20 {
        assert_eq!(send(&stage, &sandbox, &second)[0], ["200", "403"]);
    }
    let inner = [
        // Plain requests inside a tunnel go where the tunnel goes.
        format!("CONNECT {a} HTTP/1.1\r\n\r\n{}", get("/inner", &b)),
        format!("CONNECT {a} HTTP/1.1\r\n\r\nCONNECT {b} HTTP/1.1\r\n\r\n{}", get("/inner-connect", &b)),
    ];
    let answers = send(&stage, &sandbox, &inner);
    assert!(answers.iter().all(|answer| answer[0] == "200"), "{answers:?}");
    let seen = stage.world.seen.lock().unwrap().clone();
    assert!(seen.iter().all(|line| !line.contains("second")), "{seen:?}");
    // Nobody asked where the other one is, and the log knows of it as refused.
    assert!(!stage.world.questions().contains(&"b.test".to_owned()));
}

#[test]
fn tls_in_a_tunnel_names_the_host_of_the_tunnel() {
    let stage = Stage::new();
    let allow = ["a.test", "secure.test", &stage.world.tls.to_string()];
    let sandbox = stage.sandbox(&json!({ "mode": "allowlist", "allow": allow }));
    // A tunnel to one host, and TLS for another in it, by every way to open one.
    let program = format!(
        "import probes, socket as s, ssl, sys\ncontext = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE\n\
         def tunnel(host):\n x = s.create_connection(probes.PROXY, 30); x.sendall(f'CONNECT {{host}}:{port} HTTP/1.1\\r\\n\\r\\n'.encode()); x.recv(4096); return x\n\
         def direct(host): return s.create_connection((host, {port}), 30)\n\
         for way in (tunnel, direct):\n  for host, name in (('secure.test','secure.test'),('a.test','secure.test'),('secure.test','b.test'),('secure.test',None)):\n   \
         try: y = context.wrap_socket(way(host), server_hostname=name); y.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(y.recv(4096)[9:12].decode())\n   \
         except OSError as e: print('no')",
        port = stage.world.tls.port()
    );
    put(&stage.server, &sandbox, "tls.py", &program);
    let said = run(&stage.server, &sandbox, &["python3", "tls.py"]);
    assert_eq!(
        said.split_whitespace().collect::<Vec<_>>(),
        ["200", "no", "no", "no", "200", "no", "no", "no"]
    );
}

#[test]
fn smuggled_and_oversized_requests_never_arrive() {
    let stage = Stage::new();
    let sandbox = stage.sandbox(&listed(&stage));
    let host = format!("a.test:{}", stage.world.web.port());
    let hidden = format!("GET http://{host}/hidden HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let post =
        |lines: &str| format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n0\r\n\r\n{hidden}");
    let mut texts: Vec<String> = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nContent-Length: 100\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Content-Length: +4\r\n",
        "X: y\nContent-Length: 4\r\n",
        "X: y\r\n\tContent-Length: 4\r\n",
    ]
    .map(post)
    .to_vec();
    let long = "y".repeat(70_000);
    texts.push(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX: {long}\r\n\r\n{hidden}"));
    texts.push(format!("GET http://{host}/{long} HTTP/1.1\r\nHost: {host}\r\n\r\n{hidden}"));
    texts.push(format!(
        "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{}\r\n{hidden}",
        "X: y\r\n".repeat(200)
    ));
    for (text, answers) in texts.iter().zip(send(&stage, &sandbox, &texts)) {
        assert_eq!(answers, ["400"], "{}", &text[..text.len().min(120)]);
    }
    assert_eq!(stage.world.seen.lock().unwrap().clone(), [""; 0]);
    // What is hidden here arrives when it is sent plainly.
    assert_eq!(send(&stage, &sandbox, &[hidden]), [["200"]]);
}

#[test]
fn a_redirect_to_the_metadata_address_is_followed_to_a_refusal() {
    let stage = Stage::new();
    stage.world.name("public.test", &[super::outside::PUBLIC]);
    let page = format!("http://public.test:{}/metadata", stage.outside.port);
    let follow = |policy: Value, more: &str| {
        let sandbox = stage.sandbox(&policy);
        let line = format!("curl -s -m 20 -L {more} -w ' %{{http_code}} %{{num_redirects}}' {page}");
        stage.server.says(&sandbox, &line)
    };
    for policy in [json!({ "mode": "full" }), json!({ "mode": "allowlist", "allow": ["public.test"] })] {
        let said = follow(policy, "");
        assert!(said.contains(METADATA) && said.ends_with(" 403 1"), "{said}");
        assert!(stage.outside.accepted().iter().all(|at| at.to_string() != METADATA));
    }
    // Without a proxy it is nowhere at all: the redirect is the last that was heard.
    let said = follow(json!({ "mode": "full" }), "--noproxy '*'");
    assert_eq!(said.trim(), "302 1");
    assert!(stage.outside.accepted().iter().all(|at| at.to_string() != METADATA));
    let said = follow(json!({ "mode": "full", "allow": [METADATA] }), "");
    assert!(said.starts_with(&format!("outside {METADATA}")), "an admin may name it: {said}");
}
