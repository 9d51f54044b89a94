//! One kernel: a task that owns its interpreter, its queue and its clock. Only this task changes the kernel, one
//! step after another; other tasks send it orders and read the view that it publishes.

use super::{
    cell::Running,
    channels::{Channels, READ},
    countdown::Countdown,
    event::Event,
    interpreter::{LiveInterpreter, Variables},
    journal::Record,
    manager::KernelManager,
    processes::{Known, MARKER, Process},
    reaper::Ended,
};
use crate::{Answer, CellStream, CheckpointInfo, Execute, KernelInfo, KernelStatus, Language, MOST_QUEUED};
use atoll_types::{CellId, CheckpointId, Death, Error, ErrorCode, ExecId, KernelId, Result, time::now_ms};
use std::{
    cell::RefCell,
    collections::{HashSet, VecDeque},
    path::PathBuf,
    rc::Rc,
    time::Duration,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long an interpreter may take to start. R on a busy machine takes long.
const START: Duration = Duration::from_secs(120);
/// How long a checkpoint or a fork may take.
pub(super) const COPY: Duration = Duration::from_secs(30);
/// How long an interpreter whose pipes are closed may take to end.
const ENDING: Duration = Duration::from_secs(2);
/// How much output between two cells is kept for the next.
const BETWEEN: usize = 64 << 10;
/// Characters of stderr of an interpreter that never started.
const COMPLAINT: usize = 2000;
const LONGEST_NAME: usize = 200;

/// An order to a kernel's task.
pub(super) enum Control {
    Execute {
        tag: ExecId,
        execute: Box<Execute>,
        record: Rc<Record>,
    },
    Interrupt {
        tag: ExecId,
        cell: Option<CellId>,
    },
    Complete {
        tag: ExecId,
        code: String,
    },
    Restart {
        tag: ExecId,
    },
    Delete {
        tag: ExecId,
    },
    Checkpoint {
        tag: ExecId,
        checkpoint: CheckpointId,
        name: String,
    },
    Rollback {
        tag: ExecId,
        checkpoint: CheckpointId,
    },
    Drop {
        tag: ExecId,
        checkpoint: CheckpointId,
    },
    Fork {
        tag: ExecId,
        checkpoint: Option<CheckpointId>,
        new: KernelId,
    },
    /// Answers when it is ready.
    Wait {
        tag: ExecId,
    },
    /// The sandbox's variables have changed.
    Variables,
    /// The kernel manager ends.
    End,
}

/// What is queued.
pub(super) enum Order {
    Cell { execute: Box<Execute>, record: Rc<Record> },
    Checkpoint { tag: ExecId, checkpoint: CheckpointId, name: String },
    Fork { tag: ExecId, new: KernelId },
}

/// What it does now.
pub(super) enum KernelState {
    Nothing,
    Starting { countdown: Countdown },
    Cell(Box<Running>),
    Completing { id: u64, tag: ExecId, code: String, countdown: Countdown },
    Checkpoint { id: u64, tag: ExecId, checkpoint: CheckpointId, name: String, countdown: Countdown },
    Forking { id: u64, tag: ExecId, new: KernelId, channels: Rc<Channels>, countdown: Countdown },
    Restoring { tag: ExecId, checkpoint: CheckpointId, countdown: Countdown },
}

/// An interpreter's saved state, as a process that waits.
pub(super) struct Checkpoint {
    pub(super) info: CheckpointInfo,
    pub(super) process: Process,
    pub(super) channels: Rc<Channels>,
    pub(super) environment: Variables,
}

/// What other tasks may read of a kernel.
pub(super) struct KernelView {
    pub(super) info: RefCell<KernelInfo>,
    /// The processes that wait as checkpoints.
    pub(super) waiting: RefCell<Vec<i32>>,
    pub(super) control: UnboundedSender<Control>,
}

/// How a kernel's interpreters are started.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) language: Language,
    pub(super) directory: PathBuf,
    pub(super) variables: Variables,
}

pub(super) struct Kernel {
    pub(super) manager: Rc<KernelManager>,
    pub(super) id: KernelId,
    pub(super) picture: Rc<KernelView>,
    pub(super) plan: Plan,
    pub(super) live: Option<LiveInterpreter>,
    pub(super) doing: KernelState,
    pub(super) queue: VecDeque<Order>,
    /// The requests that wait until it is ready.
    pub(super) waiters: Vec<ExecId>,
    pub(super) checkpoints: Vec<Checkpoint>,
    /// Whether an interpreter of it was ever ready; until then there is no kernel to keep.
    pub(super) was_ready: bool,
    pub(super) variables_changed: bool,
    /// What was printed while no cell ran.
    pub(super) between: [Vec<u8>; 2],
    pub(super) ended: (UnboundedSender<Ended>, UnboundedReceiver<Ended>),
    control: UnboundedReceiver<Control>,
    last_id: u64,
    buffer: Vec<u8>,
}

enum Next {
    Control(Control),
    Ended(Ended),
    Events,
    Output(CellStream),
    Writable,
    TimeUp,
}

/// Whether a kernel's task continues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopExit {
    On,
    Gone,
}

impl Kernel {
    /// A kernel without an interpreter; the request that started it waits for it.
    pub(super) fn new(manager: Rc<KernelManager>, info: KernelInfo, plan: Plan, waiter: ExecId) -> Self {
        let (sender, control) = unbounded_channel();
        let id = info.kernel;
        let picture = KernelView { info: RefCell::new(info), waiting: RefCell::default(), control: sender };
        Self {
            manager,
            id,
            picture: Rc::new(picture),
            plan,
            live: None,
            doing: KernelState::Nothing,
            queue: VecDeque::new(),
            waiters: vec![waiter],
            checkpoints: Vec::new(),
            was_ready: false,
            variables_changed: false,
            between: Default::default(),
            ended: unbounded_channel(),
            control,
            last_id: 0,
            buffer: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut going = LoopExit::On;
        while going == LoopExit::On {
            self.begin_next();
            self.publish();
            // The kernel stops reading its interpreter's output here until the host has taken some of the earlier
            // output.
            self.manager.out.room().await;
            going = match self.next().await {
                Next::Control(control) => self.handle(control).await,
                Next::Ended(ended) => self.note_end(ended).await,
                Next::Events => self.read_events().await,
                Next::Output(stream) => self.read_output(stream),
                Next::Writable => self.write(),
                Next::TimeUp => self.time_up().await,
            };
        }
        self.go().await;
    }

    async fn next(&mut self) -> Next {
        let Self { control, ended, live, doing, .. } = self;
        let channels = live.as_ref().map(|live| live.channels.clone());
        let channels = channels.as_deref();
        let writing = live.as_ref().is_some_and(LiveInterpreter::has_unsent);
        tokio::select! {
            Some(control) = control.recv() => Next::Control(control),
            Some(ended) = ended.1.recv() => Next::Ended(ended),
            () = readable(channels, |c| &c.events) => Next::Events,
            () = readable(channels, |c| &c.stdout) => Next::Output(CellStream::Stdout),
            () = readable(channels, |c| &c.stderr) => Next::Output(CellStream::Stderr),
            () = writable(channels), if writing => Next::Writable,
            () = time_up(doing) => Next::TimeUp,
        }
    }

    /// Orders that came when it had ended.
    pub(super) fn left_over(&mut self) -> Option<Control> {
        self.control.close();
        self.control.try_recv().ok()
    }

    /// A number for a request to the driver.
    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The variables that its interpreter is to have.
    pub(super) fn wanted_variables(&self) -> Variables {
        let mut all = self.manager.variables();
        all.extend(self.plan.variables.clone());
        all.insert(MARKER.into(), self.id.to_string());
        all
    }

    /// Starts an interpreter; whether it gets ready is reported later.
    pub(super) fn start(&mut self) -> Result<()> {
        self.doing = KernelState::Nothing;
        self.variables_changed = false;
        self.between = Default::default();
        // Reports that are left here are of earlier interpreters, whose pids may be reused.
        while self.ended.1.try_recv().is_ok() {}
        let live = LiveInterpreter::spawn(self.plan.language, &self.plan.directory, self.wanted_variables())?;
        self.begin_with(live, 0);
        Ok(())
    }

    /// Takes over an interpreter that starts now.
    pub(super) fn begin_with(&mut self, live: LiveInterpreter, execution_count: u64) {
        if let Some(pid) = live.pid {
            self.manager.reaper.tell(pid, &self.ended.0);
        }
        // A fork is made at once or not at all.
        let time = if live.pid.is_some() { START } else { COPY };
        self.live = Some(live);
        self.doing = KernelState::Starting { countdown: Countdown::new(time) };
        let mut info = self.picture.info.borrow_mut();
        (info.execution_count, info.death) = (execution_count, None);
    }

    fn write(&mut self) -> LoopExit {
        if let Some(live) = &mut self.live {
            live.send_on();
        }
        LoopExit::On
    }

    fn read_output(&mut self, stream: CellStream) -> LoopExit {
        let Some(live) = &self.live else { return LoopExit::On };
        let channels = live.channels.clone();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(READ, 0);
        let source = if stream == CellStream::Stdout { &channels.stdout } else { &channels.stderr };
        let bytes = source.read(&mut buffer);
        if !bytes.is_empty() {
            self.printed(stream, bytes);
        }
        // A kernel that prints nothing holds no buffer.
        self.buffer = if bytes.len() == READ { buffer } else { Vec::new() };
        LoopExit::On
    }

    fn printed(&mut self, stream: CellStream, bytes: &[u8]) {
        if let KernelState::Cell(running) = &mut self.doing {
            running.print(&self.manager.out, stream, bytes);
            return;
        }
        let held = &mut self.between[usize::from(stream == CellStream::Stderr)];
        let room = BETWEEN.saturating_sub(held.len()).min(bytes.len());
        held.extend_from_slice(&bytes[..room]);
    }

    /// Reads the output that was printed before now.
    pub(super) fn drain(&mut self) {
        let Some(live) = &self.live else { return };
        let channels = live.channels.clone();
        channels.stdout.drain(|bytes| self.printed(CellStream::Stdout, bytes));
        channels.stderr.drain(|bytes| self.printed(CellStream::Stderr, bytes));
    }

    async fn read_events(&mut self) -> LoopExit {
        let Some(live) = &mut self.live else { return LoopExit::On };
        let mut buffer = vec![0; READ];
        let bytes = live.channels.events.read(&mut buffer);
        let lines = live.heard(bytes);
        let closed = live.channels.events.is_closed();
        if self.take_lines(lines).await == LoopExit::Gone {
            return LoopExit::Gone;
        }
        if closed { self.lost_events().await } else { LoopExit::On }
    }

    /// Its driver's event pipe is closed, so it cannot be used. Most likely it is just ending.
    async fn lost_events(&mut self) -> LoopExit {
        let pid = self.live.as_ref().and_then(|live| live.pid);
        if pid.is_none() {
            return self.give_up("it could not be copied").await;
        }
        match tokio::time::timeout(ENDING, self.ended.1.recv()).await {
            Ok(Some(ended)) if Some(ended.pid) == pid => self.note_end(ended).await,
            _ => self.give_up("its driver closed its pipe").await,
        }
    }

    pub(super) async fn take_lines(&mut self, lines: Vec<Vec<u8>>) -> LoopExit {
        for line in lines {
            if let Some(event) = Event::parse(&line)
                && self.take_event(event).await == LoopExit::Gone
            {
                return LoopExit::Gone;
            }
        }
        LoopExit::On
    }

    /// Publishes the view that other tasks read.
    pub(super) fn publish(&mut self) {
        let running = match &self.doing {
            KernelState::Cell(running) => Some(running.record.id),
            _ => None,
        };
        let mut info = self.picture.info.borrow_mut();
        info.status = match (&self.doing, &self.live) {
            (KernelState::Starting { .. } | KernelState::Restoring { .. }, _) => KernelStatus::Starting,
            (_, None) => KernelStatus::Dead,
            (KernelState::Nothing, Some(_)) => KernelStatus::Idle,
            (
                KernelState::Cell(_)
                | KernelState::Completing { .. }
                | KernelState::Checkpoint { .. }
                | KernelState::Forking { .. },
                Some(_),
            ) => KernelStatus::Busy,
        };
        info.running = running;
        info.queued = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        info.pid = self.live.as_ref().and_then(|live| u32::try_from(live.pid?).ok());
        info.checkpoints = self.checkpoints.iter().map(|c| c.info.clone()).collect();
        *self.picture.waiting.borrow_mut() = self.checkpoints.iter().map(|c| c.process.pid).collect();
    }

    pub(super) fn info(&mut self) -> KernelInfo {
        self.publish();
        self.picture.info.borrow().clone()
    }

    pub(super) fn touch(&self) {
        self.picture.info.borrow_mut().active_unix_ms = now_ms().unsigned_abs();
    }

    /// All known processes, and which of this kernel's are to be spared.
    pub(super) fn known(&mut self, spare_checkpoints: bool) -> Known {
        self.publish();
        let mut known = self.manager.known();
        if spare_checkpoints {
            known.spared = self.checkpoints.iter().map(|c| c.process.pid).collect::<HashSet<_>>();
        }
        known
    }

    pub(super) fn answer(&self, tag: ExecId, result: Result<Answer>) {
        self.manager.out.answer(tag, result);
    }

    /// It is ready: the waiting requests are answered.
    pub(super) fn is_ready(&mut self, interpreter: &str) {
        self.doing = KernelState::Nothing;
        self.was_ready = true;
        self.between = Default::default();
        let plain = interpreter.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
        self.picture.info.borrow_mut().interpreter = plain;
        self.tell_ready();
    }

    pub(super) fn tell_ready(&mut self) {
        let info = self.info();
        for tag in std::mem::take(&mut self.waiters) {
            self.answer(tag, Ok(Answer::Kernel(info.clone())));
        }
    }

    /// It will not be ready: the waiting requests are answered with the error.
    pub(super) fn fail_waiters(&mut self, error: &Error) -> LoopExit {
        for tag in std::mem::take(&mut self.waiters) {
            self.answer(tag, Err(error.clone()));
        }
        if self.was_ready { LoopExit::On } else { LoopExit::Gone }
    }

    /// The error for an interpreter that ended before it was ready.
    pub(super) fn start_error(&self, reason: &str) -> Error {
        let said = String::from_utf8_lossy(&self.between[1]);
        let said: Vec<char> = said.trim().chars().collect();
        let said: String = said[said.len().saturating_sub(COMPLAINT)..].iter().collect();
        let message = format!("the interpreter did not start: {reason}; it said: {said:?}");
        Error::new(ErrorCode::ExecFailed, message)
    }

    /// Whether there is room in the queue, and an interpreter to work on it.
    pub(super) fn may_queue(&self) -> Result<()> {
        if self.live.is_none() && !matches!(self.doing, KernelState::Restoring { .. }) {
            let death = self.picture.info.borrow().death.clone().unwrap_or_else(Death::lost);
            let message = format!("the interpreter died: {}; restart the kernel", death.reason());
            return Err(Error { death: Some(death), ..Error::new(ErrorCode::KernelDied, message) });
        }
        if self.queue.len() >= MOST_QUEUED {
            let message = format!(
                "{MOST_QUEUED} cells wait for this kernel already; wait for their ends, or interrupt or restart it"
            );
            return Err(Error::new(ErrorCode::LimitExceeded, message));
        }
        Ok(())
    }
}

async fn readable(channels: Option<&Channels>, which: impl Fn(&Channels) -> &super::channels::Source) {
    match channels {
        Some(channels) => which(channels).readable().await,
        None => std::future::pending().await,
    }
}

async fn writable(channels: Option<&Channels>) {
    match channels {
        Some(channels) => channels.writable().await,
        None => std::future::pending().await,
    }
}

/// Waits until the current operation times out.
async fn time_up(doing: &mut KernelState) {
    let countdown = match doing {
        KernelState::Nothing => std::future::pending().await,
        KernelState::Cell(running) => &mut running.countdown,
        KernelState::Starting { countdown }
        | KernelState::Completing { countdown, .. }
        | KernelState::Checkpoint { countdown, .. }
        | KernelState::Forking { countdown, .. }
        | KernelState::Restoring { countdown, .. } => countdown,
    };
    while !countdown.tick().await {}
}
