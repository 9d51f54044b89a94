//! What callers send that no client would.

use super::*;
use std::io::Read;

fn start() -> std::net::SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(&listener));
    address
}

/// Sends bytes and returns the whole answer.
fn call(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // The server may refuse it before all of it is sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

#[test]
fn a_request_is_answered_and_the_connection_closed() {
    let address = start();
    let answer = call(address, b"GET /health?x HTTP/1.1\r\nHost: 127.0.0.1:2024\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    let waits =
        b"POST /file/read HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 24\r\n\r\n";
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(waits).unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(br#"{"path":"/no/such/file"}"#).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#""success":false"#), "{answer}");
}

#[test]
fn what_is_wrong_is_refused_and_named() {
    let address = start();
    let head = |more: &str| format!("POST /exec HTTP/1.1\r\n{more}\r\n\r\n").into_bytes();
    let long = format!("Host: localhost\r\nX: {}", "x".repeat(20 << 10));
    let many = format!("Host: localhost{}", "\r\nX: x".repeat(80));
    for (request, status) in [
        (b"nonsense\r\n\r\n".to_vec(), 400),
        (head("Host: localhost\r\nOrigin: http://localhost:2024"), 403),
        (head("Host: localhost\r\nOrigin: null"), 403),
        (head("Host: evil.example"), 403),
        (head("Host: 127.0.0.1.evil.example"), 403),
        (head("X: x"), 403),
        (head("Host: localhost\r\nHost: localhost"), 400),
        (head("Host: localhost\r\nTransfer-Encoding: chunked"), 411),
        (head("Host: localhost\r\nContent-Length: -1"), 400),
        (head("Host: localhost\r\nContent-Length: 1\r\nContent-Length: 1"), 400),
        (head("Host: localhost\r\nContent-Length: 99999999999999999999"), 413),
        (head("Host: localhost\r\nContent-Length: 16777217"), 413),
        (head(&long), 431),
        (head(&many), 431),
        (post("/exec", ""), 400),
        (post("/exec", r#"{"command":"true","shell":"x"}"#), 400),
        (post("/exec", r#"{"command":"true","timeout":86401}"#), 400),
        (post("/exec", r#"{"command":"true","timeout":-1}"#), 400),
        (post("/exec/stream", r#"{"workdir":"/"}"#), 400),
        (post("/file/write", r#"{"path":"f","content":"","mode":"x"}"#), 400),
        (post("/health", ""), 405),
        (post("/nothing", ""), 404),
    ] {
        let answer = call(address, &request);
        let wanted = format!("HTTP/1.1 {status} ");
        let request = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        assert!(answer.starts_with(&wanted) && answer.contains(r#"{"error":"#), "{request}: {answer}");
    }
    assert!(call(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").contains("200 OK"));
}

#[test]
fn connections_have_a_number_and_a_place_comes_free() {
    let address = start();
    let health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let held: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let answer = call(address, health);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    drop(held);
    while !call(address, health).starts_with("HTTP/1.1 200 ") {
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn commands_run_end_and_are_killed() {
    let address = start();
    let body = |fields: &str| format!(r#"{{"workdir":"/",{fields}}}"#);
    let told = |fields: &str| -> Value {
        let answer = call(address, &post("/exec", &body(fields)));
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    let plain = told(r#""command":"pwd; echo e >&2; exit 3""#);
    assert_eq!(plain, json!({"exit_code": 3, "stdout": "/\n", "stderr": "e\n", "timed_out": false}));
    assert_eq!(told(r#""command":"kill -9 $$""#)["exit_code"], 137);
    let late = told(r#""command":"echo before; exec sleep 1000","timeout":1"#);
    assert_eq!(
        late,
        json!({"exit_code": -1, "stdout": "before\n", "stderr": "Command timed out", "timed_out": true})
    );
    let left = told(r#""command":"sleep 3 & echo done""#);
    assert_eq!((&left["exit_code"], &left["stdout"]), (&json!(0), &json!("done\n")), "it does not wait");
    let long = told(r#""command":"head -c 5000000 /dev/zero | tr '\\0' x""#);
    assert_eq!(long["stdout"].as_str().unwrap().len(), 2 << 20);
    assert!(long["stderr"].as_str().unwrap().contains("5000000 bytes"), "{}", long["stderr"]);
    let nowhere: Value = {
        let answer = call(address, &post("/exec", r#"{"command":"true","workdir":"/no/such"}"#));
        serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
    };
    assert_eq!(nowhere["exit_code"], -1);
    assert!(nowhere["stderr"].as_str().unwrap().contains("/no/such"), "{nowhere}");
}

#[test]
fn a_stream_begins_before_the_end_and_its_command_ends_with_its_caller() {
    let address = start();
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let command = format!("echo $$; printf '\\303'; cat {} > /dev/null; printf '\\251'", fifo.display());
    let request = post("/exec/stream", &json!({"command": command, "workdir": "/"}).to_string());
    let open = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&request).unwrap();
        let mut all = String::new();
        let mut piece = [0; 4096];
        while !all.contains("\"stdout\"") {
            let length = stream.read(&mut piece).unwrap();
            all.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
        (stream, all)
    };
    // The command still waits for the FIFO's other end.
    let (mut stream, begun) = open();
    assert!(begun.contains("content-type: text/event-stream") && !begun.contains("exit"), "{begun}");
    std::fs::write(&fifo, "x").unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("data: {\"type\":\"exit\",\"exit_code\":0}\n\n"), "{rest}");
    assert!(rest.contains("\"é\""), "a character that was cut is whole again: {rest}");

    let (stream, begun) = open();
    let pid: i32 = begun.split("\"data\":\"").nth(1).unwrap().split("\\n").next().unwrap().parse().unwrap();
    drop(stream);
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    while rustix::process::test_kill_process(pid).is_ok() {
        thread::sleep(Duration::from_millis(10));
    }
}
