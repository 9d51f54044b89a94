//! `atoll exec --stream`, `--detach`, `logs`, `ps` and `kill`, as people type them.

use super::{KEY, Server, ended, info};
use crate::engine::fixture::eventually;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

fn atoll(address: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command
        .args(arguments)
        .env("ATOLL_URL", format!("http://{address}"))
        .env("ATOLL_API_KEY", KEY)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(server: &Server, arguments: &[&str]) -> Output {
    atoll(server.address, arguments).output().unwrap()
}

/// The id in a sandbox's path.
fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

/// What a process has printed until a line comes that ends in this text.
fn until(child: &mut Child, text: &str) -> String {
    let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
    let mut all = String::new();
    while !all.ends_with(text) {
        assert!(reader.read_line(&mut all).unwrap() > 0, "{all}");
    }
    all
}

#[test]
fn a_streamed_command_prints_while_it_runs_and_its_code_becomes_ours() {
    let server = Server::start();
    let path = server.create("{}");
    let line = "echo out; echo err >&2; while ! test -e /workspace/go; do sleep 0.02; done; exit 7";
    let mut child = atoll(server.address, &["exec", id(&path), "--stream", "--shell", line]).spawn().unwrap();
    until(&mut child, "out\n");
    server.ask("PUT", &format!("{path}/files/go"), "");
    let ran = child.wait_with_output().unwrap();
    assert_eq!((ran.status.code(), &ran.stderr[..]), (Some(7), &b"err\n"[..]));
    let events = run(&server, &["exec", id(&path), "--stream", "--json", "--", "printf", "x"]);
    let text = String::from_utf8(events.stdout).unwrap();
    let kinds: Vec<String> = text
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["started", "stdout", "exit"]);
    let missing = run(&server, &["exec", id(&path), "--stream", "--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no-such-program"));
}

#[test]
fn an_interrupt_ends_the_command() {
    let server = Server::start();
    let path = server.create("{}");
    let line = "echo up; trap '' INT; sleep 7005";
    let mut child = atoll(server.address, &["exec", id(&path), "--stream", "--shell", line]).spawn().unwrap();
    until(&mut child, "up\n");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
    let listed = server.ask("GET", &format!("{path}/execs"), "").json();
    let exec = format!("{path}/execs/{}", listed[0]["exec_id"].as_str().unwrap());
    assert_eq!(ended(&server, &exec)["killed"], true);
}

#[test]
fn a_detached_command_is_listed_shown_and_killed() {
    let server = Server::start();
    let path = server.create("{}");
    let line = "echo up; echo no >&2; sleep 7006";
    let made = run(&server, &["exec", id(&path), "-d", "--shell", line]);
    let exec = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    assert_eq!((made.status.code(), exec.len()), (Some(0), 32));
    eventually("its output", || info(&server, &format!("{path}/execs/{exec}"))["output_bytes"] == 6);
    let listed = String::from_utf8(run(&server, &["ps", id(&path)]).stdout).unwrap();
    assert!(
        listed.contains(&exec[..8]) && listed.contains("running") && listed.contains("sleep 7006"),
        "{listed}"
    );
    let json = run(&server, &["ps", id(&path), "--json"]).stdout;
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap()[0]["exec_id"], exec);
    let logs = run(&server, &["logs", id(&path), &exec[..6]]);
    assert_eq!((&logs.stdout[..], &logs.stderr[..]), (&b"up\n"[..], &b"no\n"[..]));
    // Which of the two pipes was read first is nobody's promise; that one byte is left out is.
    let rest = run(&server, &["logs", id(&path), &exec, "--from", "1"]);
    assert_eq!(rest.stdout.len() + rest.stderr.len(), 5, "{rest:?}");
    let odd = run(&server, &["kill", id(&path), &exec, "--signal", "NOSUCH"]);
    assert_eq!(odd.status.code(), Some(1));
    assert_eq!(run(&server, &["kill", id(&path), &exec, "--signal", "CONT"]).status.code(), Some(0));
    assert_eq!(run(&server, &["kill", id(&path), &exec[..6]]).status.code(), Some(0));
    assert_eq!(ended(&server, &format!("{path}/execs/{exec}"))["killed"], true);
    assert_eq!(run(&server, &["logs", id(&path), "0123abcd"]).status.code(), Some(1));
}

/// Passes bytes between a client and wherever the server is now.
struct Between {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Between {
    fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = Self {
            address: listener.local_addr().unwrap(),
            server: Arc::new(Mutex::new(server)),
            open: Arc::default(),
        };
        let (server, open) = (Arc::clone(&this.server), Arc::clone(&this.open));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let target = *server.lock().unwrap();
                // A server that is not there is a connection that ends at once.
                let Ok(upstream) = TcpStream::connect(target) else { continue };
                open.lock().unwrap().push(client.try_clone().unwrap());
                for (from, to) in [(&client, &upstream), (&upstream, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        this
    }

    /// Breaks what is open.
    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn logs_go_on_when_the_connection_breaks_and_when_the_server_is_another() {
    let mut server = Server::start();
    let path = server.create("{}");
    let line = "for i in 1 2 3; do while ! test -e /workspace/go$i; do sleep 0.02; done; seq ${i}0000 ${i}9999; done";
    let exec = super::start(&server, &path, super::shell(line));
    let between = Between::new(server.address);
    let mut child = atoll(between.address, &["logs", id(&path), id(&exec), "-f"]).spawn().unwrap();
    let mut seen = String::new();
    for (round, last) in ["19999\n", "29999\n"].into_iter().enumerate() {
        server.ask("PUT", &format!("{path}/files/go{}", round + 1), "");
        seen += &until(&mut child, last);
        if round == 0 {
            between.cut();
        } else {
            server.kill();
            server.restart();
            *between.server.lock().unwrap() = server.address;
        }
    }
    server.ask("PUT", &format!("{path}/files/go3"), "");
    let ran = child.wait_with_output().unwrap();
    seen += &String::from_utf8(ran.stdout).unwrap();
    let expected: String =
        (10_000..20_000).chain(20_000..30_000).chain(30_000..40_000).map(|n| format!("{n}\n")).collect();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert!(seen == expected, "{} bytes of {}: {said}", seen.len(), expected.len());
    assert_eq!((ran.status.code(), said.matches("going on at offset").count()), (Some(0), 2), "{said}");
}

#[test]
fn an_unread_stream_ends() {
    let server = Server::start();
    let path = server.create("{}");
    let mut child = atoll(server.address, &["exec", id(&path), "--stream", "--", "yes"]).spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    io::stdout().flush().unwrap();
    child.wait().unwrap();
    eventually("its end", || server.says(&path, "pgrep -c '^yes$' || true") == "0");
}

/// Runs a command with this on its standard input.
fn fed(server: &Server, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = atoll(server.address, arguments).stdin(Stdio::piped()).spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    let writing = thread::spawn(move || _ = stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    output
}

#[test]
fn input_passes_into_a_command_whatever_it_is() {
    let server = Server::start();
    let path = server.create("{}");
    let id = id(&path);
    assert_eq!(fed(&server, &["exec", id, "--", "cat"], b"hello\n").stdout, b"hello\n");
    assert_eq!(fed(&server, &["exec", "-i", id, "cat"], b"hello").stdout, b"hello");
    // Far more than a request may hold, and no text.
    let large: Vec<u8> = (0..12_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let back = fed(&server, &["exec", "--stream", id, "--", "cat"], &large);
    assert!(back.status.success() && back.stdout == large, "{} bytes came back", back.stdout.len());
    let ended = fed(&server, &["exec", id, "--shell", "head -c 3; exit 5"], &large);
    assert_eq!((&ended.stdout[..], ended.status.code()), (&large[..3], Some(5)));
    let whole = fed(&server, &["exec", "-i", "--json", id, "--", "cat"], b"text");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&whole.stdout).unwrap()["stdout"], "text");
    let job = fed(&server, &["exec", "-id", id, "--", "wc", "-c"], &large);
    let job = String::from_utf8(job.stdout).unwrap();
    assert_eq!(run(&server, &["logs", "-f", id, job.trim()]).stdout, b"12000000\n");
}

#[test]
fn input_that_never_ends_holds_up_no_command() {
    let server = Server::start();
    let path = server.create("{}");
    let (reader, _writer) = io::pipe().unwrap();
    let ran =
        atoll(server.address, &["exec", id(&path), "--", "echo", "done"]).stdin(reader).output().unwrap();
    assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b"done\n"[..]));
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let server = Server::start();
    let path = server.create("{}");
    for arguments in [
        &["ls"][..],
        &["doctor", "--data-dir", "/nonexistent/x"],
        &["completion", "bash"],
        &["exec", id(&path), "--stream", "--", "yes"],
        &["settings", "show"],
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let ran = atoll(server.address, arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(!said.contains("panicked") && ran.status.code().is_some(), "{arguments:?}: {said}");
    }
}

#[test]
fn a_copy_names_what_is_missing() {
    let server = Server::start();
    let path = server.create("{}");
    let said =
        |from: &str, to: &str| String::from_utf8_lossy(&run(&server, &["cp", from, to]).stderr).into_owned();
    let inside = said(&format!("{}:no/such.txt", id(&path)), "-");
    assert!(inside.contains("no/such.txt") && !inside.contains("path:"), "{inside}");
    let here = said("no/such.txt", &format!("{}:x", id(&path)));
    assert_eq!(here, "atoll: no/such.txt: no such file on this machine\n");
}

#[test]
fn output_arrives_byte_by_byte_whatever_its_size() {
    let server = Server::start();
    let path = server.create("{}");
    let exec = |arguments: &[&str]| run(&server, &[&["exec", id(&path)], arguments].concat());
    let bytes = exec(&["--shell", r"printf '\377\376\000abc\200'; printf '\377' >&2"]);
    assert_eq!((&bytes.stdout[..], &bytes.stderr[..]), (&b"\xff\xfe\0abc\x80"[..], &b"\xff"[..]));
    let large = exec(&["--", "seq", "3000000"]);
    assert!(large.status.success() && large.stderr.is_empty(), "{}", String::from_utf8_lossy(&large.stderr));
    assert!(large.stdout.len() == 22_888_896 && large.stdout.ends_with(b"\n3000000\n"));
    let late = exec(&["--timeout", "200ms", "--shell", "echo before; sleep 7007"]);
    assert_eq!((&late.stdout[..], late.status.code()), (&b"before\n"[..], Some(124)));
    let missing = exec(&["--", "nosuchcmd"]);
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        missing.status.code() == Some(127) && said.contains("nosuchcmd") && said.ends_with('\n'),
        "{said}"
    );
}

#[test]
fn a_failure_of_atoll_is_no_exit_code_of_the_command() {
    let server = Server::start();
    let paths = [server.create("{}"), server.create("{}")];
    let one = id(&paths[0]);
    for (arguments, word) in [
        (&["nosuch-sandbox", "true"][..], "nosuch-sandbox"),
        (&["-w", "/no/such", one, "true"], "/no/such"),
        (&["-u", "root", one, "true"], "root"),
        (&["-u", "nobody", one, "true"], "65534"),
        (&["--timeout", "100d", one, "true"], "timeout"),
    ] {
        let ran = run(&server, &[&["exec"], arguments].concat());
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(125), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    for (path, verb, how) in [(&paths[0], "stop", "stopped"), (&paths[1], "rm", "removed")] {
        let line = ["exec", id(path), "--shell", "echo up; sleep 7008"];
        let mut child = atoll(server.address, &line).spawn().unwrap();
        until(&mut child, "up\n");
        assert!(run(&server, &[verb, id(path)]).status.success());
        let ran = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(125), "{verb}: {said}");
        let why = format!("the sandbox was {how} while the command ran");
        assert!(said.contains(&why) && !said.contains("died"), "{verb}: {said}");
    }
}
