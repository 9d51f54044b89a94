//! Terminals over the API.

use super::{
    fixture::{KEY, Server},
    http,
    socket::{Socket, connect, connect_over},
};
use rustix::net::{AddressFamily, SocketAddrV4, SocketType, sockopt};
use serde_json::json;
use std::{net::TcpStream, process::Command};
use tungstenite::{
    Message,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

#[test]
fn several_terminals_and_several_at_one() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let mut one = Socket::open(&server, &sandbox, "?rows=31&cols=101");
    one.types("PS1=; echo size $(stty size); tty; echo user-$(id -u)\n");
    one.until("size 31 101");
    one.until("user-1000");
    // Another terminal, and somebody else at the first.
    let mut other = Socket::open(&server, &sandbox, "?command=tty%3B%20read%20x%3B%20exit%20%24x&cwd=/tmp");
    other.until("/dev/pts/");
    let mut two = Socket::open(&server, &sandbox, &format!("?exec_id={}&rows=5&cols=6", one.exec_id));
    two.until("size 31 101");
    two.types("echo from-two-$((1+1)) $(stty size)\n");
    two.until("from-two-2 5 6");
    one.until("from-two-2 5 6");
    one.says(r#"{"type":"resize","rows":7,"cols":8}"#);
    one.says(r#"{"type":"input","data":"echo from-one-$((2+2)) $(stty size)\n"}"#);
    two.until("from-one-4 7 8");
    one.until("from-one-4 7 8");
    assert_eq!(one.output, two.output);
    one.types("exit 3\n");
    let exit = json!({ "type": "exit", "exit_code": 3, "signal": null });
    assert_eq!((one.end(), two.end()), ((1000, exit.clone()), (1000, exit.clone())));
    assert!(one.pings > 0, "the server asks for a sign of life");
    other.types("5\n");
    assert_eq!(other.end(), (1000, json!({ "type": "exit", "exit_code": 5, "signal": null })));
    // One that ended still tells what it had printed, and how it ended.
    let mut late = Socket::open(&server, &sandbox, &format!("?exec_id={}", one.exec_id));
    assert_eq!((late.end(), late.output == one.output), ((1000, exit), true));
    let noted = server.ask("GET", &format!("{sandbox}/activity"), "").json().to_string();
    assert!(noted.contains(r#""terminal""#) && noted.contains("tty; read x"), "{noted}");
}

#[test]
fn signals_the_end_of_input_and_killing() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let open = |command: &str| {
        let mut socket = Socket::open(
            &server,
            &sandbox,
            &format!("?command={}", command.replace(' ', "%20").replace(';', "%3B").replace('&', "%26")),
        );
        socket.until("up");
        socket
    };
    let mut trap = open("trap 'exit 9' USR1; echo up; while :; do sleep 0.05; done");
    trap.says(r#"{"type":"signal","signal":"USR1"}"#);
    assert_eq!(trap.end().1["exit_code"], 9);
    let mut cat = open("echo up; cat; exit 4");
    cat.types("half a line");
    cat.says(r#"{"type":"eof"}"#);
    assert_eq!(cat.end().1["exit_code"], 4);
    let mut sleep = open("echo up; sleep 1000");
    sleep.types("\x03");
    assert_eq!(sleep.end().1, json!({ "type": "exit", "exit_code": 130, "signal": 2 }));
    let mut stubborn = open("trap '' INT HUP TERM; (setsid sleep 4321 &); echo up; sleep 1000");
    stubborn.says(r#"{"type":"kill"}"#);
    assert_eq!(stubborn.end().1, json!({ "type": "exit", "exit_code": 137, "signal": 9 }));
    assert_eq!(server.says(&sandbox, "pgrep -fc '[s]leep 4321' || :"), "0");
}

#[test]
fn who_leaves_and_comes_back_finds_what_was_printed() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let mut first = Socket::open(&server, &sandbox, "");
    first.types("PS1=; echo before-$((1+1))\n");
    first.until("before-2");
    let (id, seen, all) = (first.exec_id.clone(), first.offset, first.output.clone());
    first.types("sleep 0.3; echo meanwhile-$((2+2))\n");
    first.leave();
    let mut second = Socket::open(&server, &sandbox, &format!("?exec_id={id}"));
    second.until("meanwhile-4");
    assert!(second.output.starts_with(&all), "{:?}", second.screen());
    let mut third = Socket::open(&server, &sandbox, &format!("?exec_id={id}&from={seen}"));
    third.until("meanwhile-4");
    // One of them may have read a prompt more than the other.
    let (rest, also) = (&second.output[all.len()..], &third.output[..]);
    assert!(rest.starts_with(also) || also.starts_with(rest), "{:?} {:?}", second.screen(), third.screen());
    assert_eq!(third.start, seen);
    // Full-screen programs draw, and go.
    third.types("less /etc/passwd\n");
    third.until("\x1b[?1049h");
    third.until("root:");
    third.types("q");
    third.until("\x1b[?1049l");
    third.types("exit\n");
    assert_eq!(third.end().0, 1000);
    // A client that just vanishes leaves it running too.
    let vanishing = Socket::open(&server, &sandbox, "");
    let id = vanishing.exec_id.clone();
    drop(vanishing);
    let mut again = Socket::open(&server, &sandbox, &format!("?exec_id={id}"));
    again.types("echo still-$((1+1))\n");
    again.until("still-2");
}

#[test]
fn a_killed_server_loses_nothing_of_a_terminal() {
    let mut server = Server::start();
    let sandbox = server.create("{}");
    let mut socket = Socket::open(&server, &sandbox, "");
    socket.types("stty -echo; PS1=\n");
    socket.types("for i in $(seq 1 300); do echo line-$i; sleep 0.01; done; echo all-$((1+1))\n");
    socket.until("line-20\r");
    server.kill();
    while socket.read().is_none() {}
    server.restart();
    let query = format!("?exec_id={}&from={}", socket.exec_id, socket.offset);
    let mut again = Socket::open(&server, &sandbox, &query);
    again.until("all-2");
    let whole = [&socket.output[..], &again.output].concat();
    let whole = String::from_utf8(whole).unwrap();
    let lines: Vec<&str> = whole.lines().filter(|l| l.starts_with("line-")).collect();
    let wanted: Vec<String> = (1..=300).map(|i| format!("line-{i}")).collect();
    assert_eq!(lines, wanted);
    again.types("exit 6\n");
    assert_eq!(again.end().1["exit_code"], 6);
}

#[test]
fn a_server_told_to_end_says_goodbye() {
    let mut server = Server::start();
    let sandbox = server.create("{}");
    let mut socket = Socket::open(&server, &sandbox, "");
    socket.types("echo up-$((1+1))\n");
    socket.until("up-2");
    Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert_eq!(socket.end().0, 1001);
    assert!(server.child.wait().unwrap().success());
    server.restart();
    let mut again =
        Socket::open(&server, &sandbox, &format!("?exec_id={}&from={}", socket.exec_id, socket.offset));
    again.types("echo again-$((1+1))\n");
    again.until("again-2");
}

#[test]
fn a_client_that_does_not_read_slows_only_itself() {
    let server = Server::start();
    let sandbox = server.create("{}");
    // One with the smallest buffer that the kernel gives.
    let raw = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&raw, 2048).unwrap();
    let std::net::SocketAddr::V4(address) = server.address else { panic!("not IPv4") };
    rustix::net::connect(&raw, &SocketAddrV4::new(*address.ip(), address.port())).unwrap();
    let stream = TcpStream::from(raw);
    let mut slow =
        connect_over(stream, &format!("{sandbox}/terminal"), &[("authorization", &bearer(KEY))]).unwrap();
    slow.types("stty -echo; PS1=; read x; head -c 900000 /dev/zero | tr '\\0' x; echo end-$x; cat >/workspace/typed\n");
    let mut fast = Socket::open(&server, &sandbox, &format!("?exec_id={}", slow.exec_id));
    fast.types("go\n");
    fast.until("end-go");
    // It may still type.
    slow.types("by the slow one\n");
    slow.says(r#"{"type":"eof"}"#);
    crate::engine::fixture::eventually("it is typed", || {
        server.says(&sandbox, "cat /workspace/typed 2>/dev/null || :") == "by the slow one"
    });
    slow.until("end-go");
    assert!(slow.output.len() >= 900_000);
}

#[test]
fn wrong_messages_are_answered_and_end_the_connection_alone() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let keeper = Socket::open(&server, &sandbox, "");
    let texts: [(&str, u16); 8] = [
        ("not json", 1007),
        (r#"{"type":"resize""#, 1007),
        ("[]", 1008),
        (r#"{"type":"nosuch"}"#, 1008),
        (r#"{"type":"resize","rows":0,"cols":80}"#, 1008),
        (r#"{"type":"resize","rows":24,"cols":10001}"#, 1008),
        (r#"{"type":"signal","signal":"NOSUCH"}"#, 1008),
        (r#"{"type":"input","data":"x","more":1}"#, 1008),
    ];
    let attach = || Socket::open(&server, &sandbox, &format!("?exec_id={}", keeper.exec_id));
    for (text, code) in texts {
        let mut socket = attach();
        socket.says(text);
        let (closed, last) = socket.end();
        assert_eq!((closed, &last["type"]), (code, &json!("error")), "{text}");
        assert!(last["message"].as_str().is_some_and(|m| !m.is_empty()), "{text}");
    }
    let mut socket = attach();
    // The server may close before it has read all.
    let _ = socket.raw.send(Message::binary(vec![b'x'; (1 << 20) + 1]));
    assert_eq!((socket.end().0, socket.texts.last().unwrap()["code"].as_str()), (1009, Some("too_large")));
    let mut socket = attach();
    let broken = Frame::message(vec![0xff, 0xfe], OpCode::Data(Data::Text), true);
    socket.raw.send(Message::Frame(broken)).unwrap();
    assert_eq!(socket.end().0, 1007);
    let mut socket = attach();
    socket.types("echo alive-$((1+1))\n");
    socket.until("alive-2");
}

#[test]
fn a_page_of_another_origin_gets_no_terminal() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let path = format!("{sandbox}/terminal");
    let with = |origin: &str| {
        connect(&server, &path, &[("authorization", &bearer(KEY)), ("origin", origin)])
            .map(drop)
            .map_err(|e| e.0)
    };
    assert_eq!(with(&format!("http://{}", server.address)), Ok(()));
    for foreign in [
        "https://attacker.example",
        "null",
        "http://127.0.0.1:1",
        &format!("http://{}.attacker.example", server.address),
    ] {
        assert_eq!(with(foreign), Err(403), "{foreign}");
    }
    // A key in the protocols makes no difference to that.
    let offered = format!("atoll.terminal.v1, atoll.key.{KEY}");
    let headers = [("sec-websocket-protocol", offered.as_str()), ("origin", "https://attacker.example")];
    assert_eq!(connect(&server, &path, &headers).map(drop).unwrap_err().0, 403);
    // Refused before anything was started.
    assert_eq!(server.says(&sandbox, "ls /dev/pts | grep -c '^[1-9]' || :"), "0");

    let open = Server::start_with(&["--no-auth"]);
    let path = format!("{}/terminal", open.create("{}"));
    let with = |origin: &str| connect(&open, &path, &[("origin", origin)]).map(drop).map_err(|e| e.0);
    assert_eq!(with(&format!("http://{}", open.address)), Ok(()));
    // Another port of this machine may show a sandbox's page.
    for foreign in ["https://attacker.example", "http://localhost:3000"] {
        assert_eq!(with(foreign), Err(403), "{foreign}");
    }
    assert!(connect(&open, &path, &[]).is_ok());
}

#[test]
fn a_browser_sends_its_key_among_the_protocols() {
    let server = Server::start();
    let path = format!("{}/terminal", server.create("{}"));
    let offer = |offered: &str| connect(&server, &path, &[("sec-websocket-protocol", offered)]);
    let mut socket = offer(&format!("atoll.terminal.v1, atoll.key.{KEY}")).unwrap();
    assert!(socket.head.contains(r#""sec-websocket-protocol": "atoll.terminal.v1""#), "{}", socket.head);
    assert!(!socket.head.contains(KEY), "{}", socket.head);
    socket.types("echo in-$((1+1)); exit\n");
    socket.until("in-2");
    for wrong in ["atoll.terminal.v1", "atoll.terminal.v1, atoll.key.", "atoll.terminal.v1, atoll.key.wrong"]
    {
        assert_eq!(offer(wrong).map(drop).unwrap_err().0, 401, "{wrong}");
    }
    // Nowhere else is a key taken from there.
    let headers = [("Sec-WebSocket-Protocol", format!("atoll.key.{KEY}"))];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(k, v)| (*k, v.as_str())).collect();
    assert_eq!(http::request(server.address, "GET", "/api/v1/sandboxes", &headers, b"").unwrap().status, 401);
}

#[test]
fn what_is_wrong_before_the_socket_is_an_ordinary_answer() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let path = format!("{sandbox}/terminal");
    let key =
        |body: &str| server.ask("POST", "/api/v1/keys", body).json()["key"].as_str().unwrap().to_owned();
    let reader = key(r#"{"name":"r","owner":"ann","scope":"read_only"}"#);
    let foreign = key(r#"{"name":"b","owner":"bob","scope":"user"}"#);
    let status = |path: &str, key: &str| match connect(&server, path, &[("authorization", &bearer(key))]) {
        Ok(_) => (101, String::new()),
        Err(refused) => refused,
    };
    assert_eq!(status(&path, &reader).0, 403);
    assert_eq!(status(&path, &foreign).0, 404);
    assert_eq!(status(&path, "wrong").0, 401);
    let running = Socket::open(&server, &sandbox, "");
    let attach = format!("{path}?exec_id={}", running.exec_id);
    assert_eq!((status(&attach, &reader).0, status(&attach, &foreign).0), (403, 404));
    assert_eq!(status("/api/v1/sandboxes/00000000-0000-4000-8000-000000000000/terminal", KEY).0, 404);
    assert_eq!(status(&format!("{path}?exec_id={}", "0".repeat(32)), KEY).0, 404);
    for (query, field) in [
        ("rows=0", "rows"),
        ("cols=10001", "cols"),
        ("rows=x", "rows"),
        ("nosuch=1", "nosuch"),
        ("command=%20", "command"),
        ("cwd=a%00b", "cwd"),
        ("user=1:x", "user"),
        ("from=3", "from"),
        ("exec_id=x", "exec_id"),
        (&format!("exec_id={}&command=x", running.exec_id), "command"),
        (&format!("exec_id={}&from=99999999", running.exec_id), "from"),
        (&format!("exec_id={}&rows=3", running.exec_id), "cols"),
        (&format!("exec_id={}&rows=3&cols=0", running.exec_id), "cols"),
    ] {
        let (code, body) = status(&format!("{path}?{query}"), KEY);
        assert!(code == 422 && body.contains(&format!(r#""{field}""#)), "{query}: {code} {body}");
    }
    assert_eq!(status(&format!("{path}?cwd=/no/such"), KEY).0, 400);
    let plain = server.ask("GET", &path, "");
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")));
    server.ask("POST", &format!("{sandbox}/stop"), "");
    assert_eq!(status(&path, KEY).0, 409);
}

#[test]
fn a_sandbox_that_stops_tells_the_clients_of_its_terminals() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let mut socket = Socket::open(&server, &sandbox, "");
    server.ask("POST", &format!("{sandbox}/stop"), "");
    let (code, last) = socket.end();
    assert_eq!(
        (code, &last["type"], &last["code"]),
        (1011, &json!("error"), &json!("not_running")),
        "{last}"
    );
    let said = last["message"].as_str().unwrap();
    assert!(said.starts_with("the sandbox was stopped while the terminal was open"), "{said}");
}

#[test]
fn a_sandbox_has_its_share_of_terminals_and_no_more() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let script = "import os\nheld = []\ntry:\n  while len(held) < 1000: held.append(os.openpty())\nexcept OSError as e: print(len(held), e.errno)";
    let said = server.says(&sandbox, &format!("python3 -c '{script}'"));
    assert_eq!(said, format!("128 {}", 28), "ENOSPC");
    // One more is refused.
    let hold = "import os, time\nheld = [os.openpty() for _ in range(127)]\nprint(\"held\", flush=True)\ntime.sleep(1000)";
    let line = format!("python3 -c '{hold}'").bytes().map(|b| format!("%{b:02x}")).collect::<String>();
    let mut holder = Socket::open(&server, &sandbox, &format!("?command={line}"));
    holder.until("held");
    let path = format!("{sandbox}/terminal");
    let (code, body) = connect(&server, &path, &[("authorization", &bearer(KEY))]).map(drop).unwrap_err();
    assert!(code == 409 && body.contains("terminals"), "{code} {body}");
    assert_eq!(server.says(&sandbox, "echo others"), "others");
}
