//! Live interpreters in real containers: the kernel manager as PID 1 starts it, under the sandbox's limits, and found
//! again by a later client.

use super::fixture::{Instance, every_spec, says, spec};
use atoll_kernels::{
    Answer, CellErrorKind, CellEvent, CellReport, Execute, KernelInfo, KernelStatus, Language, Line,
    OutputLimits, Request, RequestKind, Start,
};
use atoll_provider::{
    Command, Container, ContainerSpec, ExecEvent, ExecStream, FEATURE_KERNELS, OutputStream, Provider,
};
use atoll_types::{CellId, Error, ErrorCode, ExecId, KernelId, Limits};
use std::{collections::BTreeMap, sync::Arc};

/// The host's side of a kernel manager.
struct Host {
    container: Arc<dyn Container>,
    id: ExecId,
    events: ExecStream,
    held: Vec<u8>,
    lines: Vec<Line>,
}

impl Host {
    async fn start(container: &Arc<dyn Container>) -> Self {
        Self::join(container, ExecId::random(), None).await
    }

    /// Starts a kernel manager, or comes to one that is there, at this offset of what it says.
    async fn join(container: &Arc<dyn Container>, id: ExecId, from: Option<u64>) -> Self {
        assert!(container.guest().has(FEATURE_KERNELS));
        let manager = Command {
            stdin: true,
            keep_newest: true,
            output_limit: Some(32 << 20),
            ..Command::tool("kernels", b"{}".to_vec()).environment_of_sandbox()
        };
        let guest = container.guest();
        let events = match from {
            None => guest.exec(id, &manager).await.unwrap(),
            Some(from) => guest.attach(id, from, true).await.unwrap(),
        };
        Self { container: container.clone(), id, events, held: Vec::new(), lines: Vec::new() }
    }

    async fn say(&self, ask: RequestKind) -> ExecId {
        let tag = ExecId::random();
        let mut line = serde_json::to_vec(&Request { tag, ask }).unwrap();
        line.push(b'\n');
        let data = futures_util::stream::iter([line.into()]);
        self.container.guest().add_stdin(self.id, data).await.unwrap();
        tag
    }

    async fn wait(&mut self, wanted: impl Fn(&Line) -> bool) -> Line {
        loop {
            if let Some(at) = self.lines.iter().position(&wanted) {
                return self.lines.remove(at);
            }
            match self.events.next().await.unwrap() {
                Some(ExecEvent::Output { stream: OutputStream::Stdout, data, .. }) => {
                    self.held.extend_from_slice(&data);
                    while let Some(end) = self.held.iter().position(|b| *b == b'\n') {
                        let line: Vec<u8> = self.held.drain(..=end).collect();
                        self.lines.push(serde_json::from_slice(&line).unwrap());
                    }
                }
                Some(ExecEvent::Started(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn ask(&mut self, ask: RequestKind) -> Result<Answer, Error> {
        let tag = self.say(ask).await;
        match self.wait(|line| matches!(line, Line::Answer { tag: t, .. } if *t == tag)).await {
            Line::Answer { result, .. } => result,
            Line::Event { .. } => unreachable!(),
        }
    }

    async fn kernel(&mut self, ask: RequestKind) -> Result<KernelInfo, Error> {
        self.ask(ask).await.map(|answer| match answer {
            Answer::Kernel(info) => info,
            other => panic!("{other:?}"),
        })
    }

    async fn begin(&mut self, language: Language) -> Result<KernelId, Error> {
        let start = Start {
            kernel: KernelId::random(),
            language,
            default: false,
            working_directory: String::new(),
            variables: BTreeMap::new(),
        };
        self.kernel(RequestKind::Start(start)).await.map(|info| info.kernel)
    }

    async fn end_of(&mut self, cell: CellId) -> CellReport {
        let ended = |line: &Line| matches!(line, Line::Event { cell: c, event: CellEvent::Ended(_), .. } if *c == cell);
        match self.wait(ended).await {
            Line::Event { event: CellEvent::Ended(report), .. } => *report,
            other => panic!("{other:?}"),
        }
    }

    async fn run(&mut self, kernel: KernelId, code: &str) -> CellReport {
        let execute = cell(kernel, code);
        let id = execute.cell;
        self.ask(RequestKind::Execute(execute)).await.unwrap();
        self.end_of(id).await
    }

    async fn value(&mut self, kernel: KernelId, code: &str) -> String {
        let report = self.run(kernel, code).await;
        report.result.clone().unwrap_or_else(|| panic!("{code}: {report:?}"))["text/plain"].clone()
    }
}

fn cell(kernel: KernelId, code: &str) -> Execute {
    Execute {
        kernel,
        cell: CellId::random(),
        code: code.into(),
        timeout_ms: 120_000,
        stream: false,
        limits: OutputLimits::default(),
        result_variable: false,
    }
}

#[tokio::test]
async fn kernels_run_in_every_profile_and_runtime() {
    let instance = Instance::start().await;
    for mut spec in every_spec() {
        let about = format!("{} {:?}", spec.profile.name, spec.profile.isolation);
        spec.environment.insert("TOLD".into(), "at start".into());
        let c = instance.provider.create(spec).await.unwrap();
        let uid = says(&c, "id -u").await;
        let mut host = Host::start(&c).await;
        let kernel = host.begin(Language::Python).await.unwrap();
        host.run(kernel, "import os; x = 41").await;
        let seen = host.value(kernel, "x + 1, os.getuid(), os.getcwd(), os.environ['TOLD']").await;
        assert_eq!(seen, format!("(42, {uid}, '/workspace', 'at start')"), "{about}");
        let checkpoint = atoll_types::CheckpointId::random();
        host.ask(RequestKind::Checkpoint { kernel, checkpoint, name: String::new() }).await.unwrap();
        host.run(kernel, "x = 0").await;
        host.kernel(RequestKind::Rollback { kernel, checkpoint }).await.unwrap();
        assert_eq!(host.value(kernel, "x").await, "41", "{about}");
        let shell = host.begin(Language::Bash).await.unwrap();
        assert_eq!(host.run(shell, "echo $TOLD").await.stdout, "at start\n", "{about}");
        assert_eq!(host.ask(RequestKind::Delete { kernel }).await.unwrap(), Answer::Done, "{about}");
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

#[tokio::test]
async fn a_memory_bomb_ends_its_kernel_alone_and_is_counted() {
    let instance = Instance::start().await;
    let limits = Limits { memory_bytes: 160 << 20, ..Limits::default() };
    let c = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
    let mut host = Host::start(&c).await;
    let (kernel, other) =
        (host.begin(Language::Python).await.unwrap(), host.begin(Language::Bash).await.unwrap());
    host.run(other, "x=kept").await;
    let before = c.guest().get_exec(host.id).await.unwrap().oom_kills;
    let report = host.run(kernel, "b = []\nwhile True: b.append(bytearray(b'x' * (4 << 20)))").await;
    assert_eq!(report.error.as_ref().unwrap().kind, CellErrorKind::KernelDied, "{report:?}");
    assert_eq!((report.death.unwrap().signal, report.state_lost), (Some(9), true));
    let manager = c.guest().get_exec(host.id).await.unwrap();
    assert!(manager.oom_kills > before && !manager.ended, "{manager:?}");
    assert_eq!(host.run(other, "echo $x").await.stdout, "kept\n");
    assert_eq!(host.kernel(RequestKind::Restart { kernel }).await.unwrap().status, KernelStatus::Idle);
    assert_eq!(host.value(kernel, "1 + 1").await, "2");
}

#[tokio::test]
async fn a_fork_bomb_ends_with_its_kernel() {
    let instance = Instance::start().await;
    let limits = Limits { processes: 40, ..Limits::default() };
    let c = instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap();
    let mut host = Host::start(&c).await;
    let kernel = host.begin(Language::Python).await.unwrap();
    let bomb = "import os, time\ntry:\n    while True:\n        if os.fork() == 0:\n            os.setsid()\n            time.sleep(1000)\nexcept OSError as e: print(e.errno)";
    assert_eq!(host.run(kernel, bomb).await.stdout, "11\n");
    let error = host.begin(Language::Bash).await.unwrap_err();
    assert!(matches!(error.code, ErrorCode::Conflict | ErrorCode::ExecFailed), "{error:?}");
    assert_eq!(host.ask(RequestKind::Delete { kernel }).await.unwrap(), Answer::Done);
    let again = host.begin(Language::Bash).await.unwrap();
    // The kernel manager, its shim, this shell and its shim, and what asks.
    assert!(says(&c, "ls /proc | grep -c '^[0-9]'").await.parse::<u32>().unwrap() < 12);
    // One that never stops forking.
    let kernel = host.begin(Language::Python).await.unwrap();
    let tag = host
        .say(RequestKind::Execute(cell(
            kernel,
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        )))
        .await;
    host.wait(|line| matches!(line, Line::Answer { tag: t, .. } if *t == tag)).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(host.ask(RequestKind::Delete { kernel }).await.unwrap(), Answer::Done);
    assert_eq!(host.run(again, "echo fine").await.stdout, "fine\n");
}

#[tokio::test]
async fn kernels_outlive_their_clients() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let mut host = Host::start(&c).await;
    let kernel = host.begin(Language::Python).await.unwrap();
    host.run(kernel, "x = 'kept'").await;
    let running =
        cell(kernel, "import os, time\nprint('begun')\nwhile not os.path.exists('go'): time.sleep(0.01)\nx");
    let id = host.id;
    host.ask(RequestKind::Execute(running.clone())).await.unwrap();
    drop(host);
    drop(c);
    // Another connection, which knows nothing but the ids.
    let found = instance.provider.list().await.unwrap();
    let c = instance.provider.attach(found[0].id).await.unwrap();
    let end = c.guest().get_exec(id).await.unwrap().output_bytes;
    let mut host = Host::join(&c, id, Some(end)).await;
    let Answer::Kernels(all) = host.ask(RequestKind::List).await.unwrap() else { panic!() };
    assert_eq!((all.len(), all[0].kernel, all[0].running), (1, kernel, Some(running.cell)));
    assert_eq!(
        host.ask(RequestKind::Follow { cell: running.cell, end_only: false }).await.unwrap(),
        Answer::Queued { joined: true }
    );
    says(&c, "touch go").await;
    let report = host.end_of(running.cell).await;
    assert_eq!(
        (report.stdout.as_str(), report.result.unwrap()["text/plain"].as_str()),
        ("begun\n", "'kept'")
    );
    // A command that ends it ends all of it.
    let ended = c.guest().kill(id).await.unwrap();
    assert!(ended.killed);
    assert_eq!(says(&c, "pgrep -c python3 || true").await, "0");
}

#[tokio::test]
async fn a_killed_kernel_manager_is_the_end_of_its_command() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let mut host = Host::start(&c).await;
    let (kernel, idle) =
        (host.begin(Language::Python).await.unwrap(), host.begin(Language::Bash).await.unwrap());
    assert!(host.run(idle, "x=1").await.success);
    host.say(RequestKind::Execute(cell(kernel, "import os\nos.kill(os.getppid(), 9)\nwhile True: pass")))
        .await;
    let ended = loop {
        match host.events.next().await.unwrap() {
            Some(ExecEvent::Ended(report)) => break report,
            Some(_) => {}
            None => panic!("no end"),
        }
    };
    assert_eq!((ended.signal, ended.oom_killed), (Some(9), false));
    // What still runs is below its shim, and goes when the host says so.
    c.guest().kill(host.id).await.unwrap();
    // The one that is left is this shell.
    assert_eq!(says(&c, "pgrep -c python3; pgrep -c bash; true").await, "0\n1");
    let mut again = Host::start(&c).await;
    let kernel = again.begin(Language::Python).await.unwrap();
    assert_eq!(again.value(kernel, "1 + 1").await, "2");
}
