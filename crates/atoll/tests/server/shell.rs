//! `atoll shell`, at a real terminal and at pipes.

use super::{
    fixture::{KEY, Server},
    socket::Socket,
};
use rustix::{
    pty::OpenptFlags,
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// A person at a terminal of this machine, with `atoll shell` on it.
struct Person {
    child: Child,
    /// The person's side.
    master: File,
    slave: OwnedFd,
    arrives: mpsc::Receiver<Vec<u8>>,
    seen: Vec<u8>,
    before: String,
}

/// With a session and a controlling terminal, as a person has them.
fn shell(server: &Server, sandbox: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/setsid");
    command.args(["--ctty", env!("CARGO_BIN_EXE_atoll")]);
    complete(command, server, sandbox, arguments)
}

fn bare(server: &Server, sandbox: &str, arguments: &[&str]) -> Command {
    complete(Command::new(env!("CARGO_BIN_EXE_atoll")), server, sandbox, arguments)
}

fn complete(mut command: Command, server: &Server, sandbox: &str, arguments: &[&str]) -> Command {
    command.args(["shell", id(sandbox)]).args(arguments);
    asks(command, server)
}

fn id(sandbox: &str) -> &str {
    sandbox.rsplit('/').next().unwrap()
}

fn asks(mut command: Command, server: &Server) -> Command {
    command.env("ATOLL_URL", format!("http://{}", server.address)).env("ATOLL_API_KEY", KEY);
    command
}

/// Any command, as a person at a terminal starts it.
fn at_terminal(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/setsid");
    command.args(["--ctty", env!("CARGO_BIN_EXE_atoll")]).args(arguments);
    asks(command, server)
}

/// What a command prints at a terminal, and how it ends.
pub(super) fn on_terminal(server: &Server, arguments: &[&str]) -> (ExitStatus, String) {
    Person::sits(&mut at_terminal(server, arguments)).end()
}

fn modes(slave: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(slave).unwrap())
}

impl Person {
    fn sits(command: &mut Command) -> Self {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: 33, ws_col: 111, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = modes(&slave);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let master = File::from(master);
        let (sender, arrives) = mpsc::channel();
        let mut reader = master.try_clone().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, master, slave, arrives, seen: Vec::new(), before }
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn until(&mut self, text: &str) {
        while !self.screen().contains(text) {
            match self.arrives.recv_timeout(Duration::from_secs(60)) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(_) => panic!("never saw {text:?}: {}", self.screen()),
            }
        }
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Types when a prompt waits: the line editor has the terminal, and nothing more is printed.
    fn types_at_prompt(&mut self, text: &str) {
        loop {
            match self.arrives.recv_timeout(Duration::from_millis(500)) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(_) if self.is_raw() => break,
                Err(_) => {}
            }
        }
        self.types(text);
    }

    /// It is raw while the sandbox has it.
    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Whether the program was stopped, as a shell's job control sees it.
    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    /// Waits for the end; the terminal must then be as it was.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        assert_eq!(modes(&self.slave), self.before, "{}", self.screen());
        while let Ok(bytes) = self.arrives.recv_timeout(Duration::from_millis(200)) {
            self.seen.extend(bytes);
        }
        (status, self.screen())
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }
}

/// The id that the farewell names.
fn attach_hint(screen: &str) -> String {
    let (_, rest) = screen.split_once("--attach ").unwrap_or_else(|| panic!("no hint: {screen}"));
    rest.split('`').next().unwrap().to_owned()
}

#[test]
fn a_person_works_in_a_sandbox() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--cwd", "/tmp"]));
    person.types("PS1='ready> '; echo at-$(pwd)-$(stty size)\r");
    person.until("at-/tmp-33 111");
    assert!(person.is_raw());
    // The kernel tells the program here, which tells those inside.
    let size = Winsize { ws_row: 20, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&person.slave, size).unwrap();
    crate::engine::fixture::eventually("the new size", || {
        person.types("stty size\r");
        person.until("ready> ");
        while let Ok(bytes) = person.arrives.recv_timeout(Duration::from_millis(50)) {
            person.seen.extend(bytes);
        }
        person.screen().contains("20 60")
    });
    // Keys that would end or stop a program here reach the one inside.
    person.types("sleep 1000\r");
    let sleeps = || server.says(&sandbox, "pgrep -xc sleep || :") == "1";
    crate::engine::fixture::eventually("it sleeps", sleeps);
    person.types("\x1a");
    person.until("Stopped");
    person.types("kill %1; wait\r");
    person.types("echo alive-$((1+1))\r");
    person.until("alive-2");
    person.types("vim -u NONE\r");
    person.until("\x1b[?1049h");
    person.types(":q!\r");
    person.until("\x1b[?1049l");
    person.types("exit 42\r");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(42), "{screen}");
}

#[test]
fn leaving_by_the_two_keys_and_coming_back() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let mut person = Person::sits(&mut shell(
        &server,
        &sandbox,
        &["--command", "echo up; read x; echo got-$x; read y; exit $y"],
    ));
    person.until("up");
    // What was typed right before arrives.
    person.types("word\r\x10\x11");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    let id = attach_hint(&screen);
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--attach", &id]));
    person.until("up");
    person.until("got-word");
    person.types("7\r");
    assert_eq!(person.end().0.code(), Some(7));
    let refused =
        bare(&server, &sandbox, &["--attach", &"0".repeat(32)]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{}", String::from_utf8_lossy(&refused.stderr));
}

#[test]
fn the_terminal_is_given_back_whatever_ends_it() {
    let server = Server::start();
    let sandbox = server.create("{}");
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)] {
        let mut person = Person::sits(&mut shell(&server, &sandbox, &["--command", "echo up; sleep 1000"]));
        person.until("up");
        assert!(person.is_raw());
        person.signal(signal);
        let (status, screen) = person.end();
        assert_eq!(status.code(), Some(code), "{screen}");
        let mut left = Socket::open(&server, &sandbox, &format!("?exec_id={}", attach_hint(&screen)));
        left.says(r#"{"type":"kill"}"#);
        assert_eq!(left.end().0, 1000);
    }
    // Somebody else ends the command, or the whole sandbox.
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--command", "echo up; kill -KILL $$"]));
    person.until("up");
    assert_eq!(person.end().0.code(), Some(137));
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--command", "echo up; sleep 1000"]));
    person.until("up");
    server.ask("POST", &format!("{sandbox}/stop"), "");
    assert_eq!(person.end().0.code(), Some(125));
    // It never began.
    let (status, screen) = Person::sits(&mut shell(&server, &sandbox, &[])).end();
    assert!(status.code() == Some(125) && screen.contains("atoll resume"), "{screen}");
    let mut nobody = shell(&server, &sandbox, &[]);
    nobody.env("ATOLL_URL", "http://127.0.0.1:1");
    assert_eq!(Person::sits(&mut nobody).end().0.code(), Some(125));
}

#[test]
fn a_stopped_shell_gives_the_terminal_back_until_it_goes_on() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--command", "echo up; read x; exit $x"]));
    person.until("up");
    person.signal("TSTP");
    // It gives the terminal back and then stops itself: a signal to go on in between would come too early.
    crate::engine::fixture::eventually("it is stopped", || person.is_stopped());
    assert_eq!(modes(&person.slave), person.before);
    person.signal("CONT");
    crate::engine::fixture::eventually("it is raw again", || person.is_raw());
    person.types("8\r");
    assert_eq!(person.end().0.code(), Some(8));
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    let mut server = Server::start_with(&["--no-auth"]);
    let sandbox = server.create("{}");
    let line =
        "stty -echo; for i in $(seq 1 300); do echo line-$i; sleep 0.01; done; read x; echo got-$x; exit 5";
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--command", line]));
    person.until("line-20\r");
    let address = server.address;
    server.kill();
    person.until("connecting again");
    server.restart_at(address);
    person.until("line-300\r");
    person.types("typed\r");
    person.until("got-typed");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(5));
    let lines: Vec<&str> = screen.lines().map(str::trim_end).filter(|l| l.starts_with("line-")).collect();
    let wanted: Vec<String> = (1..=300).map(|i| format!("line-{i}")).collect();
    assert_eq!(lines, wanted, "nothing is lost and nothing comes twice");
    // One that does not come back is given up by a key.
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--command", "echo up; sleep 1000"]));
    person.until("up");
    server.kill();
    person.until("connecting again");
    person.types("\x03");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(0));
    attach_hint(&screen);
    server.restart();
}

#[test]
fn pipes_work_too() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let run = |arguments: &[&str], input: &[u8]| {
        let mut child = bare(&server, &sandbox, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, said) = run(&[], b"echo said-$((40+2))\n");
    assert!(code == Some(0) && said.contains("said-42"), "{code:?} {said}");
    assert_eq!(run(&["--command", "stty -echo; cat; exit 9"], b"half a line").0, Some(9));
    // The two keys mean nothing in a file. What comes before the terminal is raw, it may still swallow.
    let mut child =
        bare(&server, &sandbox, &["--command", "stty raw -echo; echo raw; head -c 4 | od -An -tx1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("raw") {
        assert_ne!(output.read_line(&mut said).unwrap(), 0, "{said}");
    }
    child.stdin.take().unwrap().write_all(b"a\x10\x11b").unwrap();
    output.read_to_string(&mut said).unwrap();
    let code = child.wait().unwrap().code();
    assert!(code == Some(0) && said.contains("61 10 11 62"), "{code:?} {said}");
}

#[test]
fn a_command_runs_at_a_terminal_as_people_type_it() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let mut person =
        Person::sits(&mut at_terminal(&server, &["exec", "-it", id(&sandbox), "bash", "--norc"]));
    person.types("tty >/dev/null && echo $((40 + 2))\r");
    person.until("42");
    person.types("exit 3\r");
    assert_eq!(person.end().0.code(), Some(3));
    // The start of an id is enough to come back.
    let mut person =
        Person::sits(&mut shell(&server, &sandbox, &["--command", "read x; exit ${x##*[!0-9]}"]));
    person.until("");
    while !person.is_raw() {
        thread::sleep(Duration::from_millis(10));
    }
    person.types("\x10");
    thread::sleep(Duration::from_millis(800));
    person.types("\x11");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    let exec = attach_hint(&screen);
    let mut person = Person::sits(&mut shell(&server, &sandbox, &["--attach", &exec[..8]]));
    while !person.is_raw() {
        thread::sleep(Duration::from_millis(10));
    }
    person.types("5\r");
    assert_eq!(person.end().0.code(), Some(5));
}

#[test]
fn a_variable_of_a_command_at_a_terminal_is_in_no_command_line_and_no_audit_row() {
    const SECRET: &str = "hunter2-of-a-terminal";
    let server = Server::start();
    let sandbox = server.create("{}");
    let variable = format!("TOKEN={SECRET}");
    let line = "echo length=${#TOKEN}; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; echo end=$((1 + 1))";
    let mut person = Person::sits(&mut at_terminal(
        &server,
        &["exec", "-t", "-e", &variable, id(&sandbox), "sh", "-c", line],
    ));
    person.until("end=2");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(screen.contains(&format!("length={}", SECRET.len())), "{screen}");
    assert!(!screen.contains(SECRET), "in the list of processes: {screen}");
    let rows = server.ask("GET", "/api/v1/audit", "").json().to_string();
    assert!(rows.contains("TOKEN") && !rows.contains(SECRET), "{rows}");
    let execs = server.ask("GET", &format!("{sandbox}/execs"), "").json().to_string();
    assert!(!execs.contains(SECRET), "{execs}");
}

#[test]
fn a_prompt_edits_completes_remembers_and_continues() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let state = tempfile::tempdir().unwrap();
    let sits = |arguments: &[&str]| {
        let all: Vec<&str> = ["repl", id(&sandbox)].into_iter().chain(arguments.iter().copied()).collect();
        Person::sits(at_terminal(&server, &all).env("XDG_STATE_HOME", state.path()).env("TERM", "xterm"))
    };
    let mut person = sits(&[]);
    person.until(">>> ");
    person.types_at_prompt("abcdef = 41\r");
    // The tabulator asks the kernel; ctrl-a goes to the beginning.
    person.types_at_prompt("abcd\t + 1\x01(1 + \x05)\r");
    person.until("43");
    person.types_at_prompt("def f():\r");
    person.until("... ");
    person.types_at_prompt("    return 7000 + 7\r");
    person.types_at_prompt("\r");
    person.types_at_prompt("f()\r");
    person.until("7007");
    person.types_at_prompt("print('be' + 'gun', flush=True); exec('while True: pass')\r");
    person.until("begun");
    person.types("\x03");
    person.until("KeyboardInterrupt");
    person.types_at_prompt("\x04");
    assert_eq!(person.end().0.code(), Some(0));
    let mut person = sits(&[]);
    person.until(">>> ");
    // What was typed in the session before comes back.
    person.types_at_prompt("\x12abcdef =\r");
    person.types_at_prompt("abcdef * 100\r");
    person.until("4100");
    person.types_at_prompt("\x04");
    person.end();
    let mut person = sits(&["--language", "bash"]);
    person.until("$ ");
    person.types_at_prompt("for i in 1 2; do\r");
    person.until("> ");
    person.types_at_prompt("echo n$((i * 21))\r");
    person.types_at_prompt("done\r");
    person.until("n42");
    person.types_at_prompt("\x04");
    person.end();
    for (language, next, lines) in [
        ("node", "... ", ["function f(n) {", "return n + 7 }", "f(7000)"]),
        ("r", "+ ", ["f <- function(n) {", "n + 7 }", "f(7000)"]),
    ] {
        let mut person = sits(&["--language", language]);
        person.until("> ");
        person.types_at_prompt(&format!("{}\r", lines[0]));
        person.until(next);
        person.types_at_prompt(&format!("{}\r", lines[1]));
        person.types_at_prompt(&format!("{}\r", lines[2]));
        person.until("7007");
        person.types_at_prompt("\x04");
        assert_eq!(person.end().0.code(), Some(0), "{language}");
    }
}

#[test]
fn pip_installs_as_people_type_it_at_a_terminal() {
    let server = Server::start();
    let sandbox = server.create(r#"{"egress":{"mode":"allowlist","presets":["python"]}}"#);
    let mut person = Person::sits(&mut shell(&server, &sandbox, &[]));
    person.types("pip install -q iniconfig && python3 -c 'import iniconfig; print(7000 + 7)'\r");
    person.until("7007");
    person.types("exit\r");
    let (status, screen) = person.end();
    assert_eq!(status.code(), Some(0), "{screen}");
    assert!(!screen.contains("externally-managed"), "{screen}");
}

#[test]
fn what_is_typed_while_a_cell_runs_is_the_next_input() {
    let server = Server::start();
    let sandbox = server.create("{}");
    let state = tempfile::tempdir().unwrap();
    let mut command = at_terminal(&server, &["repl", id(&sandbox)]);
    let mut person = Person::sits(command.env("XDG_STATE_HOME", state.path()).env("TERM", "xterm"));
    person.until(">>> ");
    let wait = "import os, time\rprint('be' + 'gun', flush=True)\rexec('while not os.path.exists(\"go\"): time.sleep(0.05)')\r";
    person.types_at_prompt(wait);
    person.until("begun");
    // Whole lines, and one that is finished later.
    person.types("x = 41\rprint('first', x + 1)\rprint('sec' + 'ond', x");
    server.ask("PUT", &format!("{sandbox}/files/go"), "");
    person.until("first 42");
    person.types_at_prompt(" + 2)\r");
    person.until("second 43");
    person.types_at_prompt("\x04");
    assert_eq!(person.end().0.code(), Some(0));
}
