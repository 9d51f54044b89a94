//! `atoll chat` as a person has it: at a terminal.

use super::{end_wait, model, server, waiting_sandbox};
use crate::control_plane::{KEY, Server};
use rustix::{
    pty::OpenptFlags,
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::Value;
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// A person at a terminal with `atoll chat` on it.
struct Person {
    child: Child,
    /// The person's side.
    master: File,
    slave: OwnedFd,
    arrives: mpsc::Receiver<Vec<u8>>,
    seen: Vec<u8>,
    /// How much of it was looked for already.
    read: usize,
}

impl Person {
    /// Sits down. What the program remembers is in `state`.
    fn sits(server: &Server, state: &Path, arguments: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap().parent().unwrap().join("../atoll");
        assert!(program.exists(), "`cargo build -p atoll` builds the program");
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: 40, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        // With a controlling terminal, so that ctrl-c is a signal.
        let mut command = Command::new("/usr/bin/setsid");
        command.arg("--ctty").arg(program).arg("chat").args(arguments);
        command.env("ATOLL_URL", format!("http://{}", server.address)).env("ATOLL_API_KEY", KEY);
        command.env("XDG_STATE_HOME", state).env("TERM", "xterm").env_remove("NO_COLOR");
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
        Self { child, master, slave, arrives, seen: Vec::new(), read: 0 }
    }

    /// All that was printed, with the terminal's line ends.
    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.seen).replace('\r', "")
    }

    /// Waits until this was printed after what was last waited for.
    fn until(&mut self, text: &str) {
        loop {
            let screen = self.screen();
            if let Some(at) = screen[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            match self.arrives.recv_timeout(Duration::from_secs(60)) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(_) => panic!("never saw {text:?}: {}", self.screen()),
            }
        }
    }

    /// Types a line when a prompt waits: the line editor has the terminal, and nothing more is printed.
    fn says(&mut self, line: &str) {
        loop {
            match self.arrives.recv_timeout(Duration::from_millis(300)) {
                Ok(bytes) => self.seen.extend(bytes),
                Err(_) if !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON) => break,
                Err(_) => {}
            }
        }
        self.read = self.screen().len();
        self.master.write_all(format!("{line}\r").as_bytes()).unwrap();
    }

    fn presses(&mut self, key: u8) {
        self.master.write_all(&[key]).unwrap();
    }

    /// Leaves with ctrl-d.
    fn leaves(mut self) {
        self.says("/quit");
        assert!(self.child.wait().unwrap().success(), "{}", self.screen());
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Styled by the terminal's codes.
fn keyword(word: &str) -> String {
    format!("\u{1b}[35m{word}\u{1b}[0m")
}

#[test]
fn a_conversation_at_a_terminal() {
    let model = model();
    let server = server(&model);
    let state = tempfile::tempdir().unwrap();
    let mut person = Person::sits(&server, state.path(), &[]);
    person.says("in pieces");
    person.until("execute_terminal");
    person.until("│ \u{1b}[0mone\n");
    person.until("│ \u{1b}[0mtwo\n");
    person.until("It came in pieces.");
    person.says("now use it");
    // Markdown as styles, and code in its colours.
    person.until("I \u{1b}[0m\u{1b}[1mused\u{1b}[0m it:");
    person.until(&format!("{} os", keyword("import")));
    person.says("/threads");
    person.until("idle");
    person.says("speak slowly");
    person.until("said very");
    person.presses(3);
    // It is cancelled, and the next word is heard.
    person.says("hello");
    person.until("Hello there, person.");
    person.leaves();
    let threads = server.ask("POST", "/threads/search", "{}").json();
    let messages = threads[0]["values"]["messages"].to_string();
    assert!(messages.contains("This is said very") && messages.contains("Hello there"), "{messages}");
}

#[test]
fn a_chat_goes_on_when_the_server_is_started_anew() {
    let model = model();
    let mut server = server(&model);
    let state = tempfile::tempdir().unwrap();
    let mut person = Person::sits(&server, state.path(), &[]);
    person.says("wait here");
    person.until("begun\n");
    let sandbox = waiting_sandbox(&server);
    server.kill();
    person.until("the server went away");
    // At the same address, where the client knows it.
    server.config.listen = server.address;
    server.restart();
    person.until("started anew");
    end_wait(&server, &sandbox);
    person.until("It said 1.");
    person.says("hello");
    person.until("Hello there, person.");
    person.leaves();
}

#[test]
fn a_question_that_waits_is_asked_again() {
    let model = model();
    let server = server(&model);
    let state = tempfile::tempdir().unwrap();
    let mut person = Person::sits(&server, state.path(), &["--approve", "all"]);
    person.says("the answer?");
    person.until("create_session");
    person.until("approve it?");
    // It leaves without a decision.
    person.says("\u{4}");
    assert!(person.child.wait().unwrap().success(), "{}", person.screen());
    drop(person);
    let threads = server.ask("POST", "/threads/search", "{}").json();
    let thread = threads[0]["thread_id"].as_str().unwrap();

    let mut person = Person::sits(&server, state.path(), &[]);
    person.until("waits for your decision");
    person.until("create_session");
    person.until("approve it?");
    person.says("y");
    person.until("execute_terminal");
    person.until("approve it?");
    person.says("\u{4}");
    assert!(person.child.wait().unwrap().success(), "{}", person.screen());
    drop(person);

    let mut person = Person::sits(&server, state.path(), &["--new"]);
    person.says(&format!("/threads {thread}"));
    person.until("waits for your decision");
    person.until("execute_terminal");
    person.until("approve it?");
    person.says("y");
    person.until("so the answer is 42.");
    person.leaves();
}

/// `atoll chat` in a script: whether the agent answered, and what it printed.
fn piped(server: &Server, state: &Path, arguments: &[&str], input: &str) -> (bool, String) {
    let program = std::env::current_exe().unwrap().parent().unwrap().join("../atoll");
    let mut command = Command::new(program);
    command.arg("chat").args(arguments).env("XDG_STATE_HOME", state);
    command.env("ATOLL_URL", format!("http://{}", server.address)).env("ATOLL_API_KEY", KEY);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    (ended.status.success(), String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn scripts_have_answers_events_pictures_and_a_replay() {
    let model = model();
    let server = server(&model);
    let state = tempfile::tempdir().unwrap();
    let piped = |arguments: &[&str], input: &str| piped(&server, state.path(), arguments, input);
    let has = |text: &str, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    };

    let (answered, said) = piped(&["-"], "the answer?\n");
    assert!(answered);
    has(&said, &["╭ execute_terminal\n│ echo $((6*7))\n│ 42\n", "so the answer is 42.\n"]);
    let (answered, events) = piped(&["--json"], "hello");
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(answered && events[0]["event"] == "metadata" && events.last().unwrap()["event"] == "end");
    let values = events.iter().rfind(|event| event["event"] == "values").unwrap();
    has(&values.to_string(), &["Hello there, person.", "so the answer is 42."]);
    assert!(!piped(&["fail"], "").0 && !piped(&["-"], " \n").0);

    let (_, drawn) = piped(&["draw it"], "");
    has(&drawn, &["│ session_id: ", "[image/png ", "A picture came.\n"]);
    let at = drawn.split_once("[image/png ").unwrap().1.split_once(']').unwrap().0;
    assert!(std::fs::read(at).unwrap().starts_with(b"\x89PNG"), "{at}");

    let thread = server.ask("POST", "/threads/search", "{}").json()[0]["thread_id"].clone();
    let (shown, replay) = piped(&["--replay", thread.as_str().unwrap()], "");
    assert!(shown);
    has(&replay, &["> the answer?\n", "│ 42\n", "so the answer is 42.\n", "> hello\n", "[image/png "]);
    let (_, whole) = piped(&["--json", "--replay", thread.as_str().unwrap()], "");
    assert_eq!(serde_json::from_str::<Value>(&whole).unwrap()["thread_id"], thread);
}

#[test]
fn what_can_be_typed_beside_words() {
    let model = model();
    let server = server(&model);
    let state = tempfile::tempdir().unwrap();
    let (data, talk) = (state.path().join("data.csv"), state.path().join("talk.md"));
    std::fs::write(&data, "1,2").unwrap();
    let mut person = Person::sits(&server, state.path(), &[]);
    for (line, shown) in [
        ("/help", "write the conversation as Markdown"),
        ("/model", "as the settings say"),
        ("/approve perhaps", "expected none, all"),
        ("/attach", "name a file"),
        ("/nothing", "there is no such command"),
        (&format!("/attach {}", data.display()), "goes with your next message"),
        ("hello", "Hello there, person."),
        ("an export", "It is exported."),
        ("/files", "out.txt"),
    ] {
        person.says(line);
        person.until(shown);
    }
    person.says("/model gpt-4o-mini");
    person.says("/model");
    person.until("gpt-4o-mini\n");
    person.says("/approve all");
    person.says("the answer?");
    person.until("approve it?");
    person.says("n");
    person.until("approve it?");
    person.says("no more of this");
    person.says(&format!("/export {}", talk.display()));
    person.says("/new");
    person.says("/threads");
    person.until("* ");
    person.until("hello");
    person.says("/approve none");
    person.says("take your time");
    person.until("begun");
    // The first cancels, and the next one leaves, wherever it comes.
    while person.child.try_wait().unwrap().is_none() {
        person.presses(3);
        thread::sleep(Duration::from_millis(100));
    }
    assert!(person.child.wait().unwrap().success(), "{}", person.screen());
    let written = std::fs::read_to_string(&talk).unwrap();
    for part in ["## You\n\nhello", "data.csv", "## Agent\n\nHello there, person.", "`export_files`"] {
        assert!(written.contains(part), "{part}: {written}");
    }
}
