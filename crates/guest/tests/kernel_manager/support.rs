//! A kernel manager for one test, and what a host says to it.

use atoll_kernels::{
    Answer, CellEvent, CellReport, CheckpointInfo, Execute, Fork, KernelInfo, Language, Line, OutputLimits,
    Request, RequestKind, Start,
};
use atoll_types::{CellId, CheckpointId, Error, ExecId, KernelId};
use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

/// However slow the machine is, something that comes has come by then.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct KernelManager {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Line>,
    /// Held while nobody reads.
    ears: Arc<Mutex<()>>,
    /// Came while something else was waited for.
    kept: VecDeque<Line>,
    pub(crate) folder: tempfile::TempDir,
    /// Names this kernel manager's processes to the test.
    mark: String,
}

impl KernelManager {
    pub(crate) fn start() -> Self {
        Self::start_with("/usr/local/bin:/usr/bin:/bin")
    }

    /// With programs from elsewhere.
    pub(crate) fn start_with(path: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mark = ExecId::random().to_string();
        let mut child = Command::new(env!("CARGO_BIN_EXE_atoll-init"))
            .args(["tool", "kernels", "{}"])
            .env_clear()
            // What an interpreter that is killed leaves goes with the folder.
            .env("TMPDIR", folder.path())
            .envs([("PATH", path), ("HOME", folder.path().to_str().unwrap()), ("LANG", "C.UTF-8")])
            .envs([("TEST_MARK", mark.as_str()), ("SANDBOX", "yes")])
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        let ears = Arc::new(Mutex::new(()));
        let open = ears.clone();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                drop(open.lock());
                let line = serde_json::from_str(&line.unwrap()).unwrap();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, ears, kept: VecDeque::new(), folder, mark }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a closure while the test does not read what the kernel manager writes.
    pub(crate) fn while_deaf<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let ears = self.ears.clone();
        let _closed = ears.lock().unwrap();
        act(self)
    }

    /// Says something; its answer comes later.
    pub(crate) fn say(&mut self, ask: RequestKind) -> ExecId {
        let tag = ExecId::random();
        let mut line = serde_json::to_vec(&Request { tag, ask }).unwrap();
        line.push(b'\n');
        self.raw(&line);
        tag
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn wait(&mut self, wanted: impl Fn(&Line) -> bool) -> Line {
        if let Some(at) = self.kept.iter().position(&wanted) {
            return self.kept.remove(at).unwrap();
        }
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the kernel manager says nothing");
            if wanted(&line) {
                return line;
            }
            self.kept.push_back(line);
        }
    }

    pub(crate) fn answer(&mut self, tag: ExecId) -> Result<Answer, Error> {
        match self.wait(|line| matches!(line, Line::Answer { tag: t, .. } if *t == tag)) {
            Line::Answer { result, .. } => result,
            Line::Event { .. } => unreachable!(),
        }
    }

    pub(crate) fn ask(&mut self, ask: RequestKind) -> Result<Answer, Error> {
        let tag = self.say(ask);
        self.answer(tag)
    }

    pub(crate) fn event(&mut self, cell: CellId) -> CellEvent {
        match self.wait(|line| matches!(line, Line::Event { cell: c, .. } if *c == cell)) {
            Line::Event { event, .. } => event,
            Line::Answer { .. } => unreachable!(),
        }
    }

    /// All events of a cell, the last of which is its end.
    pub(crate) fn events(&mut self, cell: CellId) -> Vec<CellEvent> {
        let mut events = Vec::new();
        while !matches!(events.last(), Some(CellEvent::Ended(_))) {
            events.push(self.event(cell));
        }
        events
    }

    pub(crate) fn end_of(&mut self, cell: CellId) -> CellReport {
        match self.events(cell).pop().unwrap() {
            CellEvent::Ended(report) => *report,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn kernel(&mut self, ask: RequestKind) -> Result<KernelInfo, Error> {
        self.ask(ask).map(|answer| match answer {
            Answer::Kernel(info) => info,
            other => panic!("{other:?}"),
        })
    }

    pub(crate) fn start_of(&self, language: Language) -> Start {
        Start {
            kernel: KernelId::random(),
            language,
            default: false,
            working_directory: self.folder.path().to_str().unwrap().into(),
            variables: BTreeMap::new(),
        }
    }

    pub(crate) fn begin(&mut self, language: Language) -> KernelId {
        let start = self.start_of(language);
        self.kernel(RequestKind::Start(start)).unwrap().kernel
    }

    pub(crate) fn python(&mut self) -> KernelId {
        self.begin(Language::Python)
    }

    /// Puts a cell into the queue.
    pub(crate) fn queue(&mut self, execute: Execute) -> CellId {
        let cell = execute.cell;
        let answer = self.ask(RequestKind::Execute(execute)).unwrap();
        assert_eq!(answer, Answer::Queued { joined: false });
        cell
    }

    /// Runs a cell to its end.
    pub(crate) fn run(&mut self, execute: Execute) -> CellReport {
        let cell = self.queue(execute);
        self.end_of(cell)
    }

    /// What a cell's value is, as text; it must succeed.
    pub(crate) fn value(&mut self, kernel: KernelId, code: &str) -> String {
        let report = self.run(cell(kernel, code));
        assert!(report.success, "{code}: {report:?}");
        report.result.map(|forms| forms["text/plain"].clone()).unwrap_or_default()
    }

    /// What a cell prints; it must succeed.
    pub(crate) fn printed(&mut self, kernel: KernelId, code: &str) -> String {
        let report = self.run(cell(kernel, code));
        assert!(report.success, "{code}: {report:?}");
        report.stdout
    }

    pub(crate) fn list(&mut self) -> Vec<KernelInfo> {
        match self.ask(RequestKind::List).unwrap() {
            Answer::Kernels(all) => all,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn info(&mut self, kernel: KernelId) -> KernelInfo {
        self.list().into_iter().find(|info| info.kernel == kernel).unwrap()
    }

    pub(crate) fn checkpoint(&mut self, kernel: KernelId, name: &str) -> CheckpointInfo {
        let ask = RequestKind::Checkpoint { kernel, checkpoint: CheckpointId::random(), name: name.into() };
        match self.ask(ask).unwrap() {
            Answer::Checkpoint(info) => info,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn fork(&mut self, kernel: KernelId, checkpoint: Option<CheckpointId>) -> KernelInfo {
        self.kernel(RequestKind::Fork(Fork { kernel, checkpoint, new: KernelId::random() })).unwrap()
    }

    /// Processes that came from this kernel manager, itself left out.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let wanted = format!("TEST_MARK={}", self.mark);
        let ours = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|b| *b == 0).any(|v| v == wanted.as_bytes()) && lives(*pid)
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        all.filter(|pid| *pid != self.child.id() as i32).filter(ours).collect()
    }

    /// Closes its input, waits for its end, and sees that nothing is left.
    fn end(&mut self) -> Result<(), String> {
        drop(self.stdin.take());
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if began.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                return Err("the kernel manager did not end".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        match self.processes() {
            left if left.is_empty() => Ok(()),
            left => {
                for pid in &left {
                    let _ = Command::new("/bin/kill").args(["-9", &pid.to_string()]).status();
                }
                Err(format!("left behind: {left:?}"))
            }
        }
    }
}

impl Drop for KernelManager {
    fn drop(&mut self) {
        let ended = self.end();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

pub(crate) fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

/// A cell with room for everything.
pub(crate) fn cell(kernel: KernelId, code: &str) -> Execute {
    Execute {
        kernel,
        cell: CellId::random(),
        code: code.into(),
        timeout_ms: 600_000,
        stream: false,
        limits: OutputLimits::default(),
        result_variable: false,
    }
}

/// Waits for something that takes a moment.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program of a test's own, by name, in a folder for the path.
pub(crate) fn program(folder: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let file = folder.join(name);
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}
