//! Commands on a terminal.

use crate::{stdin::write, support::*};
use atoll_guest_proto::v1::{
    ExecEvent, ExecRequest, HelloRequest, ResizeRequest, Terminal, exec_request::Program,
};
use atoll_types::ErrorCode;
use tonic::Streaming;

fn on(request: ExecRequest) -> ExecRequest {
    ExecRequest { terminal: Some(Terminal { rows: 24, columns: 80 }), ..request }
}

/// A terminal that somebody sits at.
struct Seat {
    guest: Guest,
    id: String,
    events: Streaming<ExecEvent>,
    seen: Seen,
}

impl Seat {
    async fn at(guest: Guest, request: ExecRequest) -> Self {
        let id = request.exec_id.clone();
        let events = guest.client.clone().exec(on(request)).await.unwrap().into_inner();
        Self { guest, id, events, seen: Seen::default() }
    }

    async fn new(request: ExecRequest) -> Self {
        Self::at(Guest::start().await, request).await
    }

    async fn types(&self, text: &str) {
        assert_eq!(write(&self.guest, &self.id, &[text.as_bytes()], false).await, text.len() as u64);
    }

    /// Reads on until the screen shows this.
    async fn until(&mut self, text: &str) {
        while !self.screen().contains(text) {
            let event = self.events.message().await.unwrap();
            self.seen.add(event.unwrap_or_else(|| panic!("over without {text:?}: {:?}", self.screen())));
            assert!(
                self.seen.ended.is_none() || self.screen().contains(text),
                "no {text:?}: {:?}",
                self.seen
            );
        }
    }

    fn screen(&self) -> String {
        let bytes: Vec<u8> = self.seen.bytes().into_iter().map(|(_, b)| b).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    async fn end(mut self) -> (Guest, Seen) {
        while let Some(event) = self.events.message().await.unwrap() {
            self.seen.add(event);
        }
        (self.guest, self.seen)
    }

    async fn resize(&self, rows: u32, columns: u32) -> Result<(), tonic::Status> {
        let request = ResizeRequest { exec_id: self.id.clone(), terminal: Some(Terminal { rows, columns }) };
        self.guest.client.clone().resize_exec(request).await.map(drop)
    }
}

#[tokio::test]
async fn all_three_streams_are_one_terminal_of_the_users() {
    let guest = Guest::start().await;
    let script = "tty; tty <&1; tty <&2; stty size; stat -c '%u %G %a' $(tty); echo err >&2; echo $TERM $SHELL; \
                  sh -c 'echo again >/dev/tty'; exec </dev/null >/dev/null 2>&1; sleep 0.1; echo late >/dev/tty";
    let seen = guest.run(on(sh(script))).await;
    assert_eq!(seen.stderr(), "");
    let screen = seen.stdout();
    let lines: Vec<&str> = screen.split("\r\n").collect();
    assert!(lines[0].starts_with("/dev/pts/") && lines[0] == lines[1] && lines[1] == lines[2], "{screen:?}");
    let rest = ["24 80", "1000 tty 620", "err", "xterm-256color /bin/bash", "again", "late", ""];
    assert_eq!(lines[3..], rest, "{screen:?}");
    assert_eq!(seen.info().terminal, Some(Terminal { rows: 24, columns: 80 }));
    let hello = HelloRequest { min_protocol: 1, max_protocol: 1 };
    let features = guest.client.clone().hello(hello).await.unwrap().into_inner().features;
    assert!(features.contains(&"terminal".to_owned()));
    let other =
        ExecRequest { user: "ann".into(), working_directory: "/".into(), ..sh("stat -c %U $(tty); id -un") };
    assert_eq!(guest.run(on(other)).await.stdout(), "ann\r\nann\r\n");
    let request = ExecRequest { environment: [("TERM".into(), "vt100".into())].into(), ..sh("echo $TERM") };
    assert_eq!(guest.run(on(request)).await.stdout(), "vt100\r\n");
    assert_eq!(guest.run(sh("tty; echo $TERM")).await.stdout(), "not a tty\ndumb\n", "only where asked");
}

#[tokio::test]
async fn it_belongs_to_the_user_in_a_user_namespace_too() {
    let guest = Guest::launch(&config(), Inside::UserNamespace).await;
    // Its spool is the machine's root's here, so it says it in a file.
    let seen = guest.run(on(sh("stat -c '%u %G %a' $(tty) >said; mesg n; mesg y; echo $? >>said"))).await;
    assert_eq!(seen.info().exit_code, Some(0), "{seen:?}");
    assert_eq!(std::fs::read_to_string(guest.path("/workspace/said")).unwrap(), "1000 tty 620\n0\n");
}

#[tokio::test]
async fn an_empty_line_is_the_login_shell() {
    let request = ExecRequest { program: Some(Program::Shell(String::new())), ..sh("") };
    let mut seat = Seat::new(request).await;
    seat.types(
        "shopt -q login_shell && echo login-$((40+2)); case $- in *i*) echo interactive-$((1+1));; esac\n",
    )
    .await;
    seat.until("login-42").await;
    seat.until("interactive-2").await;
    // Job control works: a job in a group of its own, stopped and continued.
    seat.types("sleep 1000 &\njobs -l; kill %1; wait %1; echo code-$?\n").await;
    seat.until("code-143").await;
    assert!(!seat.screen().contains("no job control"), "{}", seat.screen());
    seat.types("exit 7\n").await;
    assert_eq!(seat.end().await.1.info().exit_code, Some(7));
}

#[tokio::test]
async fn a_new_size_is_told_to_the_programs() {
    let script = "trap 'stty size; exit 3' WINCH; echo up; while :; do sleep 0.02; done";
    let mut seat = Seat::new(sh(script)).await;
    seat.until("up").await;
    for (rows, columns, field) in
        [(0, 80, "rows"), (10_001, 80, "rows"), (24, 0, "columns"), (24, 70_000, "columns")]
    {
        assert_eq!(error(seat.resize(rows, columns).await).field.as_deref(), Some(field));
    }
    seat.resize(50, 132).await.unwrap();
    seat.until("50 132").await;
    let id = seat.id.clone();
    let (guest, seen) = seat.end().await;
    assert_eq!(
        (seen.info().exit_code, seen.info().terminal),
        (Some(3), Some(Terminal { rows: 50, columns: 132 }))
    );
    let resize =
        |id: &str| ResizeRequest { exec_id: id.into(), terminal: Some(Terminal { rows: 1, columns: 1 }) };
    assert_eq!(error(guest.client.clone().resize_exec(resize(&id)).await).code, ErrorCode::Conflict);
    let plain = sh("sleep 1000");
    guest.client.clone().start_exec(plain.clone()).await.unwrap();
    assert_eq!(
        error(guest.client.clone().resize_exec(resize(&plain.exec_id)).await).code,
        ErrorCode::Unsupported
    );
    assert_eq!(error(guest.client.clone().resize_exec(resize(&new_id())).await).code, ErrorCode::NotFound);
    for (rows, columns, field) in [(0, 80, "rows"), (24, 10_001, "columns")] {
        let request = ExecRequest { terminal: Some(Terminal { rows, columns }), ..sh("true") };
        assert_eq!(error(guest.client.clone().start_exec(request).await).field.as_deref(), Some(field));
    }
    // What a program does to its own terminal shows too.
    let seen = guest.run(on(sh("stty rows 11 cols 22"))).await;
    assert_eq!(seen.info().terminal, Some(Terminal { rows: 11, columns: 22 }));
}

#[tokio::test]
async fn control_c_ends_the_foreground_job_alone() {
    let request = ExecRequest { program: Some(Program::Shell(String::new())), ..sh("") };
    let mut seat = Seat::at(Guest::as_pid_1(config()).await, request).await;
    seat.types("PS1=; setsid sleep 1000 & sleep 2000 & echo left-$((1+1)); echo go-$((1+1)); sleep 3000; echo code-$?\n").await;
    seat.until("go-2").await;
    let running = |n: u32| format!("pgrep -fc '^sleep {n}' || :");
    eventually("it runs", async || seat.guest.output(&running(3000)).await == "1").await;
    seat.types("\x03").await;
    // bash gives up the rest of the line.
    eventually("it ends", async || seat.guest.output(&running(3000)).await == "0").await;
    seat.types("echo alive-$((1+1))\n").await;
    seat.until("alive-2").await;
    assert_eq!(
        (seat.guest.output(&running(1000)).await, seat.guest.output(&running(2000)).await),
        ("1".into(), "1".into())
    );
    assert!(seat.screen().contains("^C"));
    seat.guest.client.clone().kill_exec(reference(&seat.id)).await.unwrap();
    assert_eq!(seat.guest.output(&running(1000)).await, "0", "killing reaches other sessions too");
}

#[tokio::test]
async fn closing_types_the_end_of_input() {
    let mut seat = Seat::new(sh("cat; echo over-$?; read -r line; echo got $line")).await;
    seat.types("one\ntwo").await;
    seat.until("two").await;
    // In the middle of a line, and others may type on.
    assert_eq!(write(&seat.guest, &seat.id, &[], true).await, 0);
    seat.until("over-0").await;
    seat.types("more\n").await;
    let (guest, seen) = seat.end().await;
    assert!(seen.stdout().ends_with("got more\r\n"), "{:?}", seen.stdout());
    // The character that the program chose.
    let mut seat = Seat::at(guest, sh("stty eof ^A; echo up; cat; echo over")).await;
    seat.until("up").await;
    seat.types("x\n").await;
    write(&seat.guest, &seat.id, &[], true).await;
    assert!(seat.end().await.1.stdout().ends_with("over\r\n"));
}

#[tokio::test]
async fn a_raw_terminal_carries_every_byte_both_ways() {
    let script = "import os, sys, tty\ntty.setraw(0)\nos.write(1, b'up')\nn = 0\nwhile n < 1 << 20:\n\
                  \x20 b = os.read(0, 65536)\n  n += len(b)\n  while b: b = b[os.write(1, b):]\n";
    let mut seat = Seat::new(ExecRequest { output_limit: 64 << 20, ..python(script) }).await;
    seat.until("up").await;
    let all: Vec<u8> = (0..1u32 << 20).map(|n| (n ^ (n >> 8)) as u8).collect();
    let chunks: Vec<&[u8]> = all.chunks(60_000).collect();
    assert_eq!(write(&seat.guest, &seat.id, &chunks, false).await, 1 << 20);
    let (_, seen) = seat.end().await;
    let back: Vec<u8> = seen.bytes().into_iter().map(|(_, b)| b).collect();
    assert!(back[2..] == all, "{} bytes came back, or others than were sent", back.len());
}

#[tokio::test]
async fn ten_megabytes_pass_and_the_last_byte_is_there() {
    let guest = Guest::start().await;
    let script = "stty -opost; head -c 10000000 /dev/zero | tr '\\0' x; printf end";
    let seen = guest.run(on(sh(script))).await;
    let screen = seen.stdout();
    assert_eq!((screen.len(), &screen[screen.len() - 4..]), (10_000_003, "xend"));
    // What was written right before the end is never late.
    for round in 0..50 {
        let seen = guest.run(on(argv(&["/usr/bin/printf", &format!("{round}-%01000d"), "0"]))).await;
        assert_eq!(seen.stdout().len(), 1001 + round.to_string().len());
    }
}

#[tokio::test]
async fn what_holds_the_terminal_does_not_hold_the_command() {
    let guest = Guest::start().await;
    let request = sh("trap '' HUP; (trap '' HUP; sleep 0.2; echo late; sleep 1000) & echo early");
    let id = request.exec_id.clone();
    let seen = guest.run(on(request)).await;
    assert_eq!(seen.stdout(), "early\r\n");
    assert!(seen.info().descendants_alive && seen.info().exit_code == Some(0));
    // It goes on writing, for those who ask later.
    eventually("its output", async || guest.attach(&id, 0, false).await.stdout() == "early\r\nlate\r\n")
        .await;
    assert_eq!(guest.client.clone().kill_exec(reference(&id)).await.unwrap().into_inner().exit_code, Some(0));
    // A foreground job without a leader hears of it from the kernel.
    let script = "import os, signal, time\nsignal.signal(signal.SIGHUP, lambda *_: (os.write(1, b\"hup\"), os._exit(0)))\n\
                  os.kill(os.getppid(), 9)\ntime.sleep(1000)";
    let request = sh(&format!("/usr/bin/python3 -c '{script}'; true"));
    let id = request.exec_id.clone();
    assert_eq!(guest.run(on(request)).await.info().signal, Some(9));
    eventually("the hangup", async || guest.attach(&id, 0, false).await.stdout() == "hup").await;
}

#[tokio::test]
async fn an_unread_terminal_holds_up_only_its_writer() {
    let mut seat = Seat::new(sh("stty -icanon; echo up; sleep 1000")).await;
    seat.until("up").await;
    let chunk = vec![b'x'; 1 << 20];
    let chunks = [&chunk[..]];
    let writing = write(&seat.guest, &seat.id, &chunks, false);
    let others = async {
        assert_eq!(seat.guest.output("echo other").await, "other");
        seat.guest.client.clone().kill_exec(reference(&seat.id)).await.unwrap();
    };
    let (written, ()) = tokio::join!(writing, others);
    assert!(written < 1 << 20);
}

#[tokio::test]
async fn nothing_is_left_of_a_terminal() {
    let guest = Guest::start().await;
    let is_terminal = |link: std::io::Result<std::path::PathBuf>| {
        link.is_ok_and(|to| to.to_string_lossy().contains("/pts") || to.to_string_lossy().contains("ptmx"))
    };
    let open = || {
        let all = std::fs::read_dir(format!("/proc/{}/fd", guest.pid())).unwrap();
        all.filter(|entry| is_terminal(std::fs::read_link(entry.as_ref().unwrap().path()))).count()
    };
    guest.run(on(sh("true"))).await;
    guest.client.clone().start_exec(on(sh("sleep 1000"))).await.unwrap();
    assert_eq!(open(), 2);
    for _ in 0..20 {
        guest.run(on(sh("true"))).await;
    }
    eventually("all are closed", async || open() == 2).await;
    assert_eq!(guest.output("ls /dev/pts").await, "0\nptmx");
    // Nothing is left of one that could not start.
    let missing = guest.run(on(argv(&["/no/such"]))).await;
    assert_eq!(missing.info().failure.as_ref().map(|f| f.stage.as_str()), Some("exec"));
    eventually("all are closed", async || open() == 2).await;
}
