//! `atoll run`, as a person or a script uses it.

use super::fixture::{all_processes, assert_nothing_left, eventually};
use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn atoll(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    command.arg("run").arg("--data-dir").arg(data).args(arguments).stdin(Stdio::null());
    command
}

fn output(data: &Path, arguments: &[&str]) -> Output {
    atoll(data, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_first_line_of_the_readme() {
    let data = tempfile::tempdir().unwrap();
    let ran = output(data.path(), &["--", "python3", "-c", "print(6*7)"]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout).as_str(), text(&ran.stderr).as_str()),
        (Some(0), "42\n", "")
    );
    assert_nothing_left(data.path());
}

#[test]
fn exit_codes_are_the_commands() {
    let data = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| output(data.path(), arguments).status.code();
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["--", "sh", "-c", "kill -TERM $$"]), Some(143));
    assert_eq!(code(&["--timeout", "300ms", "--", "sleep", "1000"]), Some(124));
    let missing = output(data.path(), &["--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("no-such-program"), "{}", text(&missing.stderr));
    assert_eq!(code(&["--", "/etc"]), Some(126));
    let greedy = output(data.path(), &["--memory", "64m", "--", "python3", "-c", "x = bytearray(1 << 30)"]);
    // Refused by malloc or killed by the kernel: either way it failed and said why.
    assert!(matches!(greedy.status.code(), Some(1 | 137)), "{greedy:?}");
    assert!(!greedy.stderr.is_empty());
    assert_nothing_left(data.path());
}

#[test]
fn mistakes_are_explained() {
    let data = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["--profile", "nosuch", "--", "true"][..], "default, tools, root, build"),
        (&["--memory", "1k", "--", "true"][..], "memory_bytes"),
        (&["--memory", "much", "--", "true"][..], "much"),
        (&["--runtime", "nosuch", "--", "true"][..], "nosuch"),
        (&["--runtime", "/bin/sh", "--", "true"][..], "not a path"),
        (&["-e", "NOT_SET_ANYWHERE", "--", "true"][..], "NOT_SET_ANYWHERE"),
        (&["-w", "/nowhere", "--", "true"][..], "/nowhere"),
        (&["-u", "root", "--", "true"][..], "root"),
    ] {
        let ran = output(data.path(), arguments);
        assert!(matches!(ran.status.code(), Some(2 | 125)), "{arguments:?}: {ran:?}");
        assert!(text(&ran.stderr).contains(word), "{arguments:?}: {}", text(&ran.stderr));
    }
    // Only then may the folder go: a launcher that is still ending would write there.
    assert_nothing_left(data.path());
}

#[test]
fn input_output_and_environment_pass_through() {
    let data = tempfile::tempdir().unwrap();
    let mut child = atoll(data.path(), &["--", "sha256sum"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || (0..400).try_for_each(|_| stdin.write_all(&[b'a'; 50_000])));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    let expected =
        Command::new("sh").args(["-c", "head -c 20000000 /dev/zero | tr '\\0' a | sha256sum"]).output();
    assert_eq!(said, text(&expected.unwrap().stdout));

    let ran =
        output(data.path(), &["-e", "A=b c", "-w", "/tmp", "--", "sh", "-c", "echo $A; pwd; echo oops >&2"]);
    assert_eq!((text(&ran.stdout).as_str(), text(&ran.stderr).as_str()), ("b c\n/tmp\n", "oops\n"));
    assert_nothing_left(data.path());
}

#[test]
fn a_gigabyte_passes_and_a_closed_pipe_ends_it() {
    let data = tempfile::tempdir().unwrap();
    let mut child = atoll(data.path(), &["--memory", "64m", "--", "head", "-c", "1G", "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let passed = std::io::copy(&mut child.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    assert_eq!((passed, child.wait().unwrap().code()), (1 << 30, Some(0)));
    let mut child = atoll(data.path(), &["--", "yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141), "as with SIGPIPE");
    assert_nothing_left(data.path());
}

fn send(child: &Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn signals_reach_the_command() {
    let data = tempfile::tempdir().unwrap();
    let line =
        "trap 'echo got it; exit 5' INT; trap 'echo usr' USR1; echo ready; while :; do sleep 0.1; done";
    let mut child = atoll(data.path(), &["--", "bash", "-c", line]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    send(&child, "-USR1");
    let mut usr = [0; 4];
    stdout.read_exact(&mut usr).unwrap();
    send(&child, "-INT");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((&usr[..], rest.as_str(), child.wait().unwrap().code()), (&b"usr\n"[..], "got it\n", Some(5)));
    assert_nothing_left(data.path());
}

#[test]
fn killing_it_leaves_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut child = atoll(data.path(), &["--", "sh", "-c", "echo up; sleep 98765"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 3]).unwrap();
    send(&child, "-KILL");
    child.wait().unwrap();
    eventually("the end of its processes", || {
        all_processes()
            .iter()
            .all(|p| !fs::read_to_string(format!("/proc/{p}/cmdline")).unwrap_or_default().contains("98765"))
    });
    assert_nothing_left(data.path());
}

#[test]
fn several_at_once_share_one_launcher() {
    let data = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..6)
        .map(|n| {
            let line = format!("sleep 0.3; echo {n}");
            atoll(data.path(), &["--", "sh", "-c", &line])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for (n, child) in children.into_iter().enumerate() {
        let ran = child.wait_with_output().unwrap();
        assert_eq!((text(&ran.stdout), text(&ran.stderr)), (format!("{n}\n"), String::new()));
    }
    // And one after the other, each meeting the launcher of the last as it ends.
    for n in 0..10 {
        let ran = output(data.path(), &["--", "echo", "again"]);
        assert_eq!((n, text(&ran.stdout).as_str(), text(&ran.stderr).as_str()), (n, "again\n", ""));
    }
    assert_nothing_left(data.path());
}

/// Answers every request with one word, beside the machine's usual loopback address. Ends with the test.
fn serves_a_word() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nwithin");
        }
    });
    port
}

#[test]
fn only_what_a_preset_lists_is_reached() {
    let data = tempfile::tempdir().unwrap();
    let port = serves_a_word();
    let listed = format!(r#"{{"mine":["127.0.0.2:{port}"]}}"#);
    let asks = |arguments: &[&str]| {
        let line = format!("curl -s http://127.0.0.2:{port}/");
        let all: Vec<&str> = arguments.iter().copied().chain(["--", "sh", "-c", &line]).collect();
        let mut command = atoll(data.path(), &all);
        command.env("ATOLL_EGRESS_PRESETS", &listed).env("ATOLL_EGRESS_ASK_INDEXES", "false");
        text(&command.output().unwrap().stdout)
    };
    assert_eq!(asks(&["--preset", "mine"]), "within");
    assert!(!asks(&[]).contains("within"));
    let everything = asks(&["--network"]);
    assert!(everything.contains("127.0.0.2") && !everything.contains("within"), "{everything}");
    let wrong = output(data.path(), &["--preset", "pyhton", "--", "true"]);
    assert!(wrong.status.code() == Some(125) && text(&wrong.stderr).contains("pyhton"), "{wrong:?}");
    assert_nothing_left(data.path());
}
