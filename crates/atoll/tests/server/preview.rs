//! Servers inside a sandbox, seen from outside over HTTP.

use super::{
    fixture::{KEY, Server},
    http::{self, Answer},
};
use crate::engine::fixture::eventually;
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::Duration,
};

/// A sandbox in which the servers of `preview_app.py` run: an honest one on 8080, an odd one on 8081.
pub(crate) fn sandbox_with_app(server: &Server) -> String {
    let sandbox = server.create("{}");
    let put = server.ask("PUT", &format!("{sandbox}/files/app.py"), include_str!("preview_app.py"));
    assert_eq!(put.status, 204);
    start_app(server, &sandbox);
    sandbox
}

fn start_app(server: &Server, sandbox: &str) {
    server.exec(sandbox, "setsid python3 /workspace/app.py > /tmp/app.log 2>&1 < /dev/null &");
    eventually("the app", || {
        let ports = server.ask("GET", &format!("{sandbox}/ports"), "");
        assert_eq!(ports.status, 200, "{ports:?}");
        ports.json() == serde_json::json!([{ "port": 8080 }, { "port": 8081 }])
    });
}

pub(crate) fn token(server: &Server, sandbox: &str, body: &str) -> String {
    let made = server.ask("POST", &format!("{sandbox}/preview-tokens"), body);
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["token"].as_str().unwrap().to_owned()
}

fn send(server: &Server, text: &str) -> Answer {
    http::send(server.address, text.as_bytes()).unwrap()
}

/// The headers that reached the app, by name.
fn seen(answer: &Answer) -> Vec<(String, String)> {
    let headers = answer.json()["headers"].clone();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    headers.as_array().unwrap().iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

#[test]
fn requests_and_answers_pass_as_they_are() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let base = format!("{sandbox}/ports/8080");
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
        let answer = server.ask(method, &format!("{base}/a%2Fb/../c//d?x=%20&y"), "body");
        assert_eq!(answer.status, 200, "{method}");
        let said = answer.json();
        assert_eq!((&said["method"], &said["path"]), (&method.into(), &"/a%2Fb/../c//d?x=%20&y".into()));
        assert_eq!((&said["length"], answer.header("content-type")), (&4.into(), Some("application/json")));
    }
    let head = server.ask("HEAD", &format!("{base}/"), "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.header("content-length").is_some_and(|l| l != "0"), "{}", head.head);
    let chunked = format!(
        "POST {base}/x HTTP/1.1\r\nHost: h\r\nX-API-Key: {KEY}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    );
    assert_eq!(send(&server, &chunked).json()["length"], 7);
    assert_eq!(server.ask("GET", &format!("{base}/chunked"), "").body, b"one,two,three");
    // Without its slash the page's own links would lead astray.
    let bare = server.ask("GET", &format!("{base}?x=1"), "");
    assert_eq!((bare.status, bare.header("location")), (307, Some(format!("{base}/?x=1").as_str())));
    for wrong in ["0", "65536", "x", "-1", "08080", "8080x"] {
        let answer = server.ask("GET", &format!("{sandbox}/ports/{wrong}/"), "");
        assert_eq!((answer.status, &answer.json()["detail"][0]["loc"][1]), (422, &"port".into()), "{wrong}");
    }
}

/// The most memory that a process ever had, in KiB.
pub(super) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_hundred_megabytes_pass_both_ways_and_are_never_held() {
    const SIZE: usize = 100 << 20;
    // Of that many times the letter x.
    const SHA256: &str = "5b05b298e974f3b9e40f0a1a8188f50984a4f18fb329e050324296632d3d9dfc";
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let before = peak_memory(server.child.id());
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head =
        format!("{sandbox}/ports/8080/up HTTP/1.1\r\nHost: h\r\nX-API-Key: {KEY}\r\nConnection: close\r\n");
    write!(stream, "PUT {head}Content-Length: {SIZE}\r\n\r\n").unwrap();
    let piece = vec![b'x'; 1 << 20];
    (0..SIZE >> 20).for_each(|_| stream.write_all(&piece).unwrap());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(&format!("\"length\": {SIZE}")), "{answer}");
    assert!(answer.contains(SHA256), "{answer}");
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = head.replace("/up", &format!("/big?{SIZE}"));
    write!(stream, "GET {head}\r\n").unwrap();
    let (mut got, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            n => got += buffer[..n].iter().filter(|b| **b == b'x').count(),
        }
    }
    assert!((SIZE..SIZE + 64).contains(&got), "{got}");
    let grown = peak_memory(server.child.id()) - before;
    assert!(grown < 40 << 10, "the server held {grown} KiB of it");
}

#[test]
fn connections_are_kept_and_a_stale_one_is_replaced() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let get = || server.ask("GET", &format!("{sandbox}/ports/8080/"), "");
    let peer = get().json()["peer"].clone();
    eventually("the connection's second use", || get().json()["peer"] == peer);
    server.exec(&sandbox, "pkill -f app.py");
    eventually("its end", || get().status == 502);
    start_app(&server, &sandbox);
    assert_eq!(get().status, 200);
    // What may not be sent twice is not.
    let count = get().json()["requests"].as_u64().unwrap();
    let posted = server.ask("POST", &format!("{sandbox}/ports/8080/"), "").json();
    assert_eq!(posted["requests"], count + 1);
}

/// Sends a request, and returns the head of what comes back and the open connection.
pub(crate) fn begin(address: SocketAddr, text: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (String::from_utf8(head).unwrap().to_ascii_lowercase(), stream)
}

fn upgrade(server: &Server, sandbox: &str, protocol: &str) -> (String, TcpStream) {
    let token = token(server, sandbox, r#"{"port":8081}"#);
    let text = format!(
        "GET {sandbox}/ports/8081~{token}/upgrade HTTP/1.1\r\nHost: h\r\nOrigin: null\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: {protocol}\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    begin(server.address, &text)
}

#[test]
fn websockets_and_other_upgrades_pass_through() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    for protocol in ["websocket", "some-thing/2"] {
        let (head, mut stream) = upgrade(&server, &sandbox, protocol);
        assert!(head.starts_with("http/1.1 101") && head.contains("x-app: kept"), "{head}");
        assert!(head.contains(&format!("upgrade: {protocol}\r\n")), "{head}");
        for text in ["hello", "again"] {
            stream.write_all(text.as_bytes()).unwrap();
            let mut back = [0; 5];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, text.to_uppercase().as_bytes());
        }
        // One direction can end before the other.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "bye");
    }
    // An app that does not want to stays an app.
    let text = format!(
        "GET {sandbox}/ports/8080/ HTTP/1.1\r\nHost: h\r\nX-API-Key: {KEY}\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    );
    let answer = send(&server, &text);
    assert_eq!(answer.status, 200);
    assert!(seen(&answer).contains(&("upgrade".into(), "websocket".into())));
}

#[test]
fn what_is_no_answer_is_a_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("atoll.toml");
    fs::write(&config, "[preview]\nhead_timeout_seconds = 10\n").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), Some(65_530)).unwrap();
    let server = Server::start_with(&["--config", config.to_str().unwrap()]);
    let sandbox = sandbox_with_app(&server);
    let get = |path: &str| server.ask("GET", &format!("{sandbox}/ports/{path}"), "");
    let nothing = get("9999/");
    assert_eq!((nothing.status, &nothing.json()["error"]["code"]), (502, &"bad_gateway".into()));
    assert_eq!(nothing.json()["error"]["message"], "nothing listens on port 9999 in the sandbox");
    for path in ["garbage", "endless", "lines", "close", "unasked", "lengths", "split"] {
        let answer = get(&format!("8081/{path}"));
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (502, &"bad_gateway".into()), "{path}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("port 8081 in the sandbox"), "{message}");
    }
    let get = &get;
    thread::scope(|scope| {
        let late = ["slow", "informed"].map(|path| scope.spawn(move || get(&format!("8081/{path}")).status));
        assert_eq!(late.map(|asked| asked.join().unwrap()), [504, 504]);
    });
    // What breaks off on the way is seen to break off.
    let cut = get("8081/cut");
    assert_eq!((cut.status, cut.header("content-length")), (200, Some("100")));
    assert!(cut.body.len() < 100);
    assert_eq!(get("8080/").status, 200, "the server is as well as before");
    let stopped = server.ask("POST", &format!("{sandbox}/stop"), "");
    assert_eq!((stopped.status, get("8080/").status), (200, 409));
}

const CREDENTIALS: &str = "X-API-Key: KEY\r\nX-AgentCop-Key: secret-a\r\nCookie: console=secret-b\r\n\
    Authorization: Bearer KEY\r\nX-Atoll-Preview-Token: TOKEN\r\nProxy-Authorization: Basic secret-c\r\n\
    X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: gopher\r\nX-Forwarded-User: root\r\nForwarded: for=6.6.6.6\r\n\
    X-Real-IP: 6.6.6.6\r\nX-Listed: secret-d\r\nTE: trailers\r\nReferer: http://h/secret-e\r\nOrigin: null\r\n\
    Connection: close, X-Listed\r\nExpect: nothing\r\nAccept: text/plain\r\n";

#[test]
fn no_credential_reaches_the_app() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let token = token(&server, &sandbox, r#"{"port":8080}"#);
    let names = [
        "accept",
        "host",
        "origin",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-prefix",
        "x-forwarded-proto",
    ];
    // By a key, and by a token beside a key that does not belong there.
    for credentials in [CREDENTIALS.replace("X-Atoll-Preview-Token: TOKEN\r\n", ""), CREDENTIALS.into()] {
        let credentials = credentials.replace("KEY", KEY).replace("TOKEN", &token);
        let base = format!("{sandbox}/ports/8080");
        let answer = send(&server, &format!("GET {base}/ HTTP/1.1\r\nHost: h:1\r\n{credentials}\r\n"));
        assert_eq!(answer.status, 200, "{answer:?}");
        let mut headers = seen(&answer);
        headers.sort();
        assert_eq!(headers.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>(), names);
        let values: Vec<&str> = headers.iter().map(|(_, v)| v.as_str()).collect();
        let origin = "http://localhost:8080";
        assert_eq!(values, ["text/plain", "localhost:8080", origin, "127.0.0.1", "h:1", &base, "http"]);
    }
    // With a token alone, `Authorization` is between the page and the app.
    let text = format!(
        "GET {sandbox}/ports/8080~{token}/ HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer the-apps-own\r\nConnection: close\r\n\r\n"
    );
    assert!(seen(&send(&server, &text)).contains(&("authorization".into(), "Bearer the-apps-own".into())));
}

#[test]
fn answers_decide_nothing_about_the_servers_own_address() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let token = token(&server, &sandbox, r#"{"port":8080}"#);
    let base = format!("{sandbox}/ports/8080~{token}");
    let get = |path: &str| {
        send(&server, &format!("GET {base}{path} HTTP/1.1\r\nHost: h:1\r\nConnection: close\r\n\r\n"))
    };
    let nasty = get("/nasty");
    for name in [
        "set-cookie",
        "clear-site-data",
        "service-worker-allowed",
        "strict-transport-security",
        "public-key-pins",
        "alt-svc",
        "access-control-allow-credentials",
        "nel",
        "report-to",
        "reporting-endpoints",
        "keep-alive",
    ] {
        assert_eq!(nasty.header(name), None, "{name}");
    }
    let all = nasty.head.to_ascii_lowercase();
    assert!(all.contains("content-security-policy: default-src 'self'\r\n"), "{all}");
    assert!(all.contains("content-security-policy: sandbox allow-scripts"), "{all}");
    assert!(!all.contains("same-origin"), "{all}");
    assert_eq!((nasty.header("referrer-policy"), nasty.header("x-app")), (Some("no-referrer"), Some("kept")));
    assert_eq!(nasty.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(nasty.header("access-control-allow-origin"), Some("*"));
    // With a key there is no page that would need it.
    let keyed = server.ask("GET", &format!("{sandbox}/ports/8080/nasty"), "");
    assert_eq!(keyed.header("access-control-allow-origin"), None);
    for (to, expected) in [
        ("/login", format!("{base}/login")),
        ("http://localhost:8080/x?y", format!("{base}/x?y")),
        ("http://h:1/x", format!("{base}/x")),
        ("next", "next".into()),
        ("https://elsewhere.example/", "https://elsewhere.example/".into()),
        ("//elsewhere.example/", "//elsewhere.example/".into()),
    ] {
        assert_eq!(get(&format!("/redirect?{to}")).header("location"), Some(expected.as_str()));
    }
    let worker = send(
        &server,
        &format!(
            "GET {base}/page/sw.js HTTP/1.1\r\nHost: h\r\nService-Worker: script\r\nConnection: close\r\n\r\n"
        ),
    );
    assert_eq!(worker.status, 403);
    let preflight = send(
        &server,
        &format!(
            "OPTIONS {base}/x HTTP/1.1\r\nHost: h\r\nOrigin: null\r\nAccess-Control-Request-Method: PUT\r\n\
             Access-Control-Request-Headers: content-type\r\nConnection: close\r\n\r\n"
        ),
    );
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("*")));
    assert_eq!(preflight.header("access-control-allow-credentials"), None);
    // A file is never a page at all.
    server.ask("PUT", &format!("{sandbox}/files/x.html"), "<script>1</script>");
    let file = server.ask("GET", &format!("{sandbox}/files/x.html"), "");
    assert_eq!(
        (file.header("content-disposition"), file.header("x-content-type-options")),
        (Some("attachment"), Some("nosniff"))
    );
    assert_eq!(file.header("content-type"), Some("application/octet-stream"));
}

#[test]
fn a_token_opens_what_it_says_and_no_more() {
    let server = Server::start();
    let (one, other) = (sandbox_with_app(&server), sandbox_with_app(&server));
    let any = token(&server, &one, "{}");
    let narrow = token(&server, &one, r#"{"port":8080,"ttl_seconds":604800}"#);
    let status = |path: &str| http::request(server.address, "GET", path, &[], b"").unwrap().status;
    let by_header = |path: &str, token: &str| {
        http::request(server.address, "GET", path, &[("X-Atoll-Preview-Token", token)], b"").unwrap().status
    };
    assert_eq!(status(&format!("{one}/ports/8080~{any}/")), 200);
    assert_eq!(status(&format!("{one}/ports/8080~{narrow}/")), 200);
    assert_eq!(by_header(&format!("{one}/ports/8080/"), &narrow), 200);
    assert_eq!(by_header(&format!("{one}/ports/8081/close"), &any), 502);
    let tampered =
        format!("{}{}", &narrow[..narrow.len() - 2], if narrow.ends_with("AA") { "BA" } else { "AA" });
    for (path, token) in [
        (format!("{one}/ports/8081"), narrow.as_str()),
        (format!("{other}/ports/8080"), &any),
        (format!("{one}/ports/8080"), &tampered),
        (format!("{one}/ports/8080"), ""),
        (format!("{one}/ports/8080"), "x"),
        (format!("{one}/ports/8080"), KEY),
    ] {
        assert_eq!(
            (status(&format!("{path}~{token}/")), by_header(&format!("{path}/"), token)),
            (401, 401),
            "{token}"
        );
    }
    assert_eq!(status(&format!("{one}/ports/8080/")), 401);
    // It opens nothing else.
    for path in [
        &one,
        "/api/v1/sandboxes",
        &format!("{one}/files"),
        &format!("{one}/ports"),
        &format!("{one}/forward?port=8080"),
    ] {
        assert_eq!(by_header(path, &any), 401, "{path}");
    }
    let short = token(&server, &one, r#"{"ttl_seconds":1}"#);
    eventually("its end", || status(&format!("{one}/ports/8080~{short}/")) == 401);
    let tokens = format!("{one}/preview-tokens");
    for (body, field) in [
        (r#"{"port":0}"#, "port"),
        (r#"{"port":65536}"#, "port"),
        (r#"{"ttl_seconds":0}"#, "ttl_seconds"),
        (r#"{"ttl_seconds":604801}"#, "ttl_seconds"),
        (r#"{"days":1}"#, "days"),
    ] {
        let answer = server.ask("POST", &tokens, body);
        assert_eq!((answer.status, &answer.json()["detail"][0]["loc"][1]), (422, &field.into()), "{body}");
    }
    let key =
        |body: &str| server.ask("POST", "/api/v1/keys", body).json()["key"].as_str().unwrap().to_owned();
    let (bob, reader) =
        (key(r#"{"name":"b","owner":"bob"}"#), key(r#"{"name":"r","owner":"admin","scope":"read_only"}"#));
    for (key, expected) in [(&bob, 404), (&reader, 403)] {
        assert_eq!(server.ask_as(key, "GET", &format!("{one}/ports/8080/"), "").status, expected);
        assert_eq!(server.ask_as(key, "POST", &tokens, "{}").status, expected);
        assert_eq!(server.ask_as(key, "GET", &format!("{one}/forward?port=8080"), "").status, expected);
    }
    assert_eq!(server.ask_as(&reader, "GET", &format!("{one}/ports"), "").status, 200);
    assert_eq!(server.ask_as(&bob, "GET", &format!("{one}/ports"), "").status, 404);
    assert_eq!(server.ask("DELETE", &one, "").status, 204);
    assert_eq!(status(&format!("{one}/ports/8080~{any}/")), 404);
    assert_eq!(server.ask("POST", &tokens, "{}").status, 404);
}

#[test]
fn a_preview_has_a_name_of_its_own_where_there_is_a_domain() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("atoll.toml");
    fs::write(&config, "[preview]\ndomain = \"preview.example.com\"\n").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65_530), Some(65_530)).unwrap();
    let server = Server::start_with(&["--config", config.to_str().unwrap()]);
    let sandbox = sandbox_with_app(&server);
    let made = server.ask("POST", &format!("{sandbox}/preview-tokens"), r#"{"port":8080}"#).json();
    let (token, url) = (made["token"].as_str().unwrap(), made["host_url"].as_str().unwrap());
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
    assert!(url.ends_with(&format!("/?atoll_token={token}")) && host.starts_with("8080-"), "{url}");
    assert!(
        made["url"].as_str().unwrap().starts_with(&format!("http://{}{sandbox}/ports/8080~", server.address))
    );
    let ask = |host: &str, line: &str, headers: &str| {
        send(&server, &format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"))
    };
    assert_eq!(ask(&host, "GET /", "").status, 401);
    // The token is taken once, and kept in a cookie.
    let welcome =
        ask(&host, &format!("GET //evil.example/a?x=1&atoll_token={token}&y=2"), "Accept: text/html,*/*\r\n");
    assert_eq!((welcome.status, welcome.header("location")), (303, Some("/evil.example/a?x=1&y=2")));
    let cookie = welcome.header("set-cookie").unwrap();
    for part in
        ["__Host-atoll-preview=", "; Path=/", "; HttpOnly", "; SameSite=Lax", "; Secure", "; Max-Age="]
    {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.to_ascii_lowercase().contains("domain="));
    let cookie = format!("Cookie: a=1; {}; b=2\r\n", cookie.split(';').next().unwrap());
    let page = ask(&host, "GET /api/v1/sandboxes?q", &format!("{cookie}Authorization: Basic own\r\n"));
    assert_eq!(
        (page.status, &page.json()["path"]),
        (200, &"/api/v1/sandboxes?q".into()),
        "the app's own path"
    );
    let headers = seen(&page);
    assert!(headers.contains(&("cookie".into(), "a=1; b=2".into())), "{headers:?}");
    assert!(headers.contains(&("authorization".into(), "Basic own".into())));
    assert!(headers.contains(&("host".into(), host.clone())));
    assert!(headers.contains(&("x-forwarded-proto".into(), "https".into())));
    let post = ask(&host, &format!("POST /x?atoll_token={token}&z"), "Content-Length: 0\r\n");
    assert_eq!((post.status, &post.json()["path"]), (200, &"/x?z".into()));
    for headers in [
        format!("X-API-Key: {KEY}\r\n"),
        format!("Authorization: Bearer {KEY}\r\n"),
        format!("X-Atoll-Preview-Token: {token}\r\n"),
    ] {
        let answer = ask(&host, "GET /", &headers);
        assert_eq!(answer.status, 200, "{headers}");
        assert!(
            !String::from_utf8_lossy(&answer.body).contains(KEY)
                && !String::from_utf8_lossy(&answer.body).contains(token)
        );
    }
    let nasty = ask(&host, "GET /nasty", &cookie);
    assert_eq!(nasty.header("set-cookie"), Some("console=stolen; Path=/"), "for this name only");
    assert_eq!((nasty.header("clear-site-data"), nasty.header("strict-transport-security")), (None, None));
    assert_eq!(nasty.header("content-security-policy"), Some("default-src 'self'"));
    // Another port is another name, and the cookie is not for it.
    assert_eq!(ask(&host.replace("8080-", "8081-"), "GET /close", &cookie).status, 401);
    // Nothing of the API is there, whatever the name.
    for name in [
        "preview.example.com",
        "x.preview.example.com",
        "80-x.preview.example.com",
        "PREVIEW.example.com.:80",
    ] {
        for path in ["/api/v1/sandboxes", "/health", "/docs", "/openapi.json", "/metrics"] {
            assert_eq!(
                ask(name, &format!("GET {path}"), &format!("X-API-Key: {KEY}\r\n")).status,
                404,
                "{name}{path}"
            );
        }
    }
    for path in ["/health", "/docs"] {
        assert_eq!(ask(&host, &format!("GET {path}"), "").status, 401, "{path}");
    }
    // A request with two hosts is for neither.
    let two =
        format!("GET http://{host}/health HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address);
    assert_eq!(send(&server, &two).status, 404);
    let two = format!(
        "GET /health HTTP/1.1\r\nHost: {}\r\nHost: {host}\r\nConnection: close\r\n\r\n",
        server.address
    );
    assert!(matches!(send(&server, &two).status, 400 | 404));
}

#[test]
fn no_request_hides_another() {
    let server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let head = format!("POST {sandbox}/ports/8080/ HTTP/1.1\r\nHost: h\r\nX-API-Key: {KEY}\r\n");
    let count =
        || server.ask("GET", &format!("{sandbox}/ports/8080/"), "").json()["requests"].as_u64().unwrap();
    let before = count();
    for wrong in [
        "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "Content-Length: +3\r\n\r\nabc",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "X\0: a\r\n\r\n",
    ] {
        assert_eq!(send(&server, &format!("{head}{wrong}")).status, 400, "{wrong:?}");
    }
    assert_eq!(count(), before + 1);
    // Two lengths: the chunks count, the app sees one request in one way, and the connection ends.
    let hidden = format!("GET {sandbox}/ports/8080/hidden HTTP/1.1\r\nHost: h\r\nX-API-Key: {KEY}\r\n\r\n");
    let both = format!(
        "{head}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}",
        5 + hidden.len()
    );
    let answer = send(&server, &both);
    assert_eq!((answer.status, &answer.json()["length"]), (200, &0.into()));
    let headers = seen(&answer);
    assert!(!headers.iter().any(|(n, _)| n == "content-length"), "{headers:?}");
    assert_eq!(count(), before + 3, "the hidden one never arrived");
}

#[test]
fn without_keys_a_preview_needs_a_token() {
    let server = Server::start_with(&["--no-auth"]);
    let sandbox = sandbox_with_app(&server);
    let token = token(&server, &sandbox, r#"{"port":8080}"#);
    let host = server.address;
    let status = |line: &str, headers: &str| {
        send(&server, &format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"))
            .status
    };
    assert_eq!(status(&format!("GET {sandbox}/ports/8080/"), ""), 401);
    // A page in a preview has no origin, and its browser says so.
    let page = "Origin: null\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n";
    assert_eq!(status(&format!("GET {sandbox}/ports/8080~{token}/"), page), 200);
    assert_eq!(status(&format!("GET {sandbox}/ports/8080~x/"), page), 401);
    for headers in [
        page,
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
        "Origin: http://localhost:8080\r\n",
        "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n",
        &format!("{page}X-Atoll-Preview-Token: {token}\r\n"),
    ] {
        for line in [
            "GET /api/v1/sandboxes",
            &format!("POST {sandbox}/exec"),
            &format!("GET {sandbox}/ports/8080/"),
            &format!("POST {sandbox}/preview-tokens"),
            &format!("GET {sandbox}/forward?port=8080"),
        ] {
            assert_eq!(status(line, headers), 403, "{line} {headers}");
        }
    }
    // By another name of this machine, not even with a token.
    let other = format!(
        "GET {sandbox}/ports/8080~{token}/ HTTP/1.1\r\nHost: attacker.example\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(send(&server, &other).status, 403);
}

fn sockets_of(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|e| fs::read_link(e.path()).ok());
    links.filter(|l| l.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn nothing_is_kept_of_a_destroyed_sandboxs_network_and_nothing_gets_out_of_a_living_ones() {
    let server = Server::start();
    // Whatever the server opens once and keeps is open then.
    let first = sandbox_with_app(&server);
    server.ask("DELETE", &first, "");
    let before = sockets_of(server.child.id());
    let sandbox = sandbox_with_app(&server);
    for _ in 0..20 {
        assert_eq!(server.ask("GET", &format!("{sandbox}/ports/8080/"), "").status, 200);
    }
    // A client that lets go of nothing.
    let (head, mut lazy) = upgrade(&server, &sandbox, "websocket");
    assert!(head.starts_with("http/1.1 101"), "{head}");
    assert!(sockets_of(server.child.id()) > before);
    // The way in is no way out: not to the machine's loopback, not to the server, not anywhere.
    let port = server.address.port();
    let knock = format!(
        "python3 -c 'import socket\nfor a in ((\"127.0.0.1\",{port}),(\"10.0.0.1\",80),(\"8.8.8.8\",53)):\n  \
         s=socket.socket(); s.settimeout(5)\n  try: s.connect(a); print(\"reached\",a)\n  except OSError as e: print(e.errno)'"
    );
    assert_eq!(server.says(&sandbox, &knock), "111\n101\n101");
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    eventually("the last socket's end", || sockets_of(server.child.id()) <= before);
    let mut rest = Vec::new();
    let _ = lazy.read_to_end(&mut rest);
}

#[test]
fn an_upgraded_connection_ends_with_the_server() {
    let mut server = Server::start();
    let sandbox = sandbox_with_app(&server);
    let (head, mut stream) = upgrade(&server, &sandbox, "websocket");
    assert!(head.starts_with("http/1.1 101"), "{head}");
    std::process::Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(server.child.wait().unwrap().success());
    server.restart();
}
