//! The transitions of a kernel: what it begins when it is idle, and what follows.

use super::{
    cell::{Running, Stop, dropped},
    channels::Channels,
    countdown::Countdown,
    event::Event,
    interpreter::{LiveInterpreter, refused},
    kernel::{COPY, Checkpoint, Kernel, KernelState, LoopExit, Order},
    processes::{self, Process},
    reaper::Ended,
};
use crate::{
    Answer, CellError, CellErrorKind, CellStream, CheckpointInfo, Completion, Execute, Language, MOST_MATCHES,
};
use atoll_types::{CheckpointId, Death, Error, ErrorCode, ExecId, KernelId, time::now_ms};
use rustix::process::Signal;
use std::{rc::Rc, time::Duration};

/// An interrupted cell has this long to end, so many times over, and is interrupted again each time: an interrupt
/// may be lost, or be handled by a process that the cell has started.
const GRACE: Duration = Duration::from_millis(500);
pub(super) const REPEATS: u32 = 9;
/// How long a driver may take for completions.
const COMPLETION: Duration = Duration::from_secs(5);

impl Kernel {
    /// Begins what is queued, when the kernel is idle.
    pub(super) fn begin_next(&mut self) {
        while matches!(self.doing, KernelState::Nothing) {
            let wanted = self.variables_changed.then(|| self.wanted_variables());
            let Some(live) = &mut self.live else { return };
            if let Some(wanted) = wanted {
                self.variables_changed = false;
                live.tell_variables(wanted);
            }
            match self.queue.pop_front() {
                None => return,
                Some(Order::Cell { execute, record }) => {
                    let id = self.new_id();
                    self.begin_cell(id, &execute, record);
                }
                Some(Order::Checkpoint { tag, checkpoint, name }) => {
                    let id = self.new_id();
                    self.send(Language::plain("checkpoint", id));
                    let countdown = Countdown::new(COPY);
                    self.doing = KernelState::Checkpoint { id, tag, checkpoint, name, countdown };
                }
                Some(Order::Fork { tag, new }) => self.begin_fork(tag, new),
            }
        }
    }

    fn send(&mut self, request: Vec<u8>) {
        if let Some(live) = &mut self.live {
            live.send(request);
        }
    }

    fn begin_cell(&mut self, id: u64, execute: &Execute, record: Rc<super::journal::Record>) {
        // Output from before the cell began is shown with it.
        self.drain();
        let execution_count = {
            let mut info = self.picture.info.borrow_mut();
            info.execution_count += 1;
            info.execution_count
        };
        self.touch();
        record.begin(&self.manager.out, execution_count);
        let mut running = Box::new(Running::new(id, execute, record, execution_count));
        let [stdout, stderr] = std::mem::take(&mut self.between);
        running.print(&self.manager.out, CellStream::Stdout, &stdout);
        running.print(&self.manager.out, CellStream::Stderr, &stderr);
        self.send(self.plan.language.execute(id, &execute.code, execute.result_variable));
        self.doing = KernelState::Cell(running);
    }

    pub(super) fn begin_completion(&mut self, tag: ExecId, code: String) {
        let id = self.new_id();
        self.send(self.plan.language.complete(id, &code));
        self.doing = KernelState::Completing { id, tag, code, countdown: Countdown::new(COMPLETION) };
    }

    fn begin_fork(&mut self, tag: ExecId, new: KernelId) {
        let opened = Channels::open(true).and_then(|(channels, theirs)| {
            let live = self.live.as_ref().ok_or(std::io::ErrorKind::NotConnected)?;
            live.channels.send_ends(&theirs).map(|()| channels)
        });
        match opened {
            Err(error) => self.answer(tag, Err(refused(&error))),
            Ok(channels) => {
                let id = self.new_id();
                self.send(Language::plain("fork", id));
                let (channels, countdown) = (Rc::new(channels), Countdown::new(COPY));
                self.doing = KernelState::Forking { id, tag, new, channels, countdown };
            }
        }
    }

    /// An event of the driver, or one that user code forged.
    pub(super) async fn take_event(&mut self, event: Event) -> LoopExit {
        match event {
            Event::Ready { interpreter, pid } => return self.note_ready(&interpreter, pid).await,
            Event::Display { mime, data, file } => {
                self.drain();
                self.manager.out.room().await;
                if let KernelState::Cell(running) = &mut self.doing {
                    running.show(&self.manager.out, mime, data, file.as_deref());
                }
            }
            Event::Done { id, result, error, lengths } => {
                if matches!(&self.doing, KernelState::Cell(running) if running.id == id) {
                    self.drain();
                    if let KernelState::Cell(running) =
                        std::mem::replace(&mut self.doing, KernelState::Nothing)
                    {
                        let (record, report) = running.done(&self.manager.out, result, error, lengths);
                        self.manager.journal.end(&self.manager.out, &record, report);
                        self.touch();
                    }
                }
            }
            Event::Completion { id, prefix, mut matches, status } => {
                if let KernelState::Completing { id: asked, tag, code, .. } = &self.doing
                    && *asked == id
                {
                    let tag = *tag;
                    // A prefix that the text does not end with cannot be replaced.
                    let prefix = if code.ends_with(prefix.as_str()) { prefix } else { String::new() };
                    matches.truncate(MOST_MATCHES);
                    self.doing = KernelState::Nothing;
                    self.answer(tag, Ok(Answer::Completion(Completion { prefix, matches, status })));
                }
            }
            Event::Checkpoint { id, pid, threads_lost, error } => {
                self.note_checkpoint(id, pid, threads_lost, error);
            }
            Event::Forked { id, pid, error } => self.note_fork(id, pid, error),
            Event::Restored { pid, checkpoint } => self.note_restored(pid, checkpoint),
        }
        LoopExit::On
    }

    async fn note_ready(&mut self, interpreter: &str, pid: Option<i32>) -> LoopExit {
        if !matches!(self.doing, KernelState::Starting { .. }) {
            return LoopExit::On;
        }
        let Some(live) = &mut self.live else { return LoopExit::On };
        if live.pid.is_none() {
            // A forked interpreter reports its pid. Its parent may not be gone yet, so it becomes the kernel
            // manager's child in a moment.
            let Some(pid) = pid else { return LoopExit::On };
            for _ in 0..200 {
                if processes::is_child(pid) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if !processes::is_child(pid) || self.new_process(Some(pid)).is_none() {
                return self.give_up("it is not where it should be").await;
            }
            let Some(live) = &mut self.live else { return LoopExit::On };
            live.pid = Some(pid);
            live.take_group();
            self.manager.reaper.tell(pid, &self.ended.0);
        }
        self.is_ready(interpreter);
        self.variables_changed = true;
        LoopExit::On
    }

    fn note_checkpoint(&mut self, id: u64, pid: Option<i32>, threads_lost: u32, error: Option<String>) {
        if !matches!(&self.doing, KernelState::Checkpoint { id: asked, .. } if *asked == id) {
            return;
        }
        let KernelState::Checkpoint { tag, checkpoint, name, .. } =
            std::mem::replace(&mut self.doing, KernelState::Nothing)
        else {
            return;
        };
        let process = self.new_process(pid);
        let (Some(process), None, Some(live)) = (process, &error, &self.live) else {
            let why = error.unwrap_or_else(|| "its process is gone".into());
            self.answer(tag, Err(copy_error("checkpointed", &why)));
            return;
        };
        let info = CheckpointInfo {
            checkpoint,
            name,
            made_unix_ms: now_ms().unsigned_abs(),
            execution_count: self.picture.info.borrow().execution_count,
            threads_lost,
        };
        let (channels, environment) = (live.channels.clone(), live.environment.clone());
        self.checkpoints.push(Checkpoint { info: info.clone(), process, channels, environment });
        self.touch();
        self.publish();
        self.answer(tag, Ok(Answer::Checkpoint(info)));
    }

    /// A process that a driver reports: one that lives, and that no kernel owns yet.
    fn new_process(&self, pid: Option<i32>) -> Option<Process> {
        let known = self.manager.known();
        let new = |pid: &i32| *pid > 1 && *pid != processes::own_pid() && !known.owners.contains_key(pid);
        pid.filter(new).and_then(Process::find)
    }

    fn note_fork(&mut self, id: u64, pid: Option<i32>, error: Option<String>) {
        if !matches!(&self.doing, KernelState::Forking { id: asked, .. } if *asked == id) {
            return;
        }
        let KernelState::Forking { tag, new, channels, .. } =
            std::mem::replace(&mut self.doing, KernelState::Nothing)
        else {
            return;
        };
        self.touch();
        match (self.new_process(pid), error) {
            (Some(_), None) => {
                let environment = self.live.as_ref().map(|live| live.environment.clone()).unwrap_or_default();
                let count = self.picture.info.borrow().execution_count;
                let live = LiveInterpreter::adopt(self.plan.language, None, channels, environment);
                self.manager.adopt(self, tag, new, live, count);
            }
            (_, error) => {
                let why = error.unwrap_or_else(|| "its process is gone".into());
                self.answer(tag, Err(copy_error("forked", &why)));
            }
        }
    }

    fn note_restored(&mut self, pid: i32, copy: Option<i32>) {
        let KernelState::Restoring { tag, checkpoint, .. } = &self.doing else { return };
        let (tag, id) = (*tag, *checkpoint);
        let Some(at) = self.checkpoints.iter().position(|c| c.info.checkpoint == id) else { return };
        if self.checkpoints[at].process.pid != pid {
            return;
        }
        self.doing = KernelState::Nothing;
        // Without a copy that waits in its place the checkpoint is lost.
        match self.new_process(copy) {
            Some(process) => self.checkpoints[at].process = process,
            None => drop(self.checkpoints.remove(at)),
        }
        if let Some(live) = &self.live {
            live.take_group();
        }
        self.variables_changed = true;
        self.touch();
        self.waiters.push(tag);
        self.tell_ready();
    }

    /// The current operation timed out.
    pub(super) async fn time_up(&mut self) -> LoopExit {
        match &mut self.doing {
            KernelState::Nothing => {}
            KernelState::Cell(running) if running.stop.is_none() => {
                running.stop = Some(Stop::Timeout);
                self.interrupt(REPEATS);
            }
            KernelState::Cell(running) => match running.repeats.checked_sub(1) {
                Some(left) => self.interrupt(left),
                None => return self.replace().await,
            },
            KernelState::Starting { .. } | KernelState::Restoring { .. } => {
                return self.give_up("it took too long").await;
            }
            KernelState::Checkpoint { tag, .. }
            | KernelState::Forking { tag, .. }
            | KernelState::Completing { tag, .. } => {
                let tag = *tag;
                self.doing = KernelState::Nothing;
                self.answer(tag, Err(Error::new(ErrorCode::Timeout, "the interpreter did not answer")));
            }
        }
        LoopExit::On
    }

    /// Interrupts the running cell, and so many times again if it does not end.
    pub(super) fn interrupt(&mut self, repeats: u32) {
        if let (KernelState::Cell(running), Some(live)) = (&mut self.doing, &self.live) {
            running.repeats = repeats;
            running.countdown = Countdown::new(GRACE);
            live.interrupt();
        }
    }

    /// A cell ignored its interrupts: the interpreter is killed with every process it started, and another one is
    /// started.
    async fn replace(&mut self) -> LoopExit {
        self.kill(true).await;
        self.drain();
        let doing = std::mem::replace(&mut self.doing, KernelState::Nothing);
        self.live = None;
        self.picture.info.borrow_mut().restarts += 1;
        let started = self.start();
        if let KernelState::Cell(running) = doing {
            let death = Death::from_wait(None, Some(9), false);
            let why = "it would not be interrupted, so its interpreter was killed and its variables are lost";
            let (record, report) = running.lost(&self.manager.out, why, Some(death), started.is_ok());
            self.manager.journal.end(&self.manager.out, &record, report);
        }
        self.drop_queue(&CellErrorKind::KernelDied, "the interpreter was killed before its turn came");
        match started {
            Ok(()) => LoopExit::On,
            Err(error) => {
                self.picture.info.borrow_mut().death = Some(Death::from_wait(None, Some(9), false));
                self.fail_waiters(&error)
            }
        }
    }

    /// Kills the interpreter and everything that it started.
    pub(super) async fn kill(&mut self, spare_checkpoints: bool) {
        if let Some(pid) = self.live.as_ref().and_then(|live| live.pid) {
            processes::send(pid, Signal::KILL);
        }
        let known = self.known(spare_checkpoints);
        if !processes::kill_all(self.id, &known).await {
            super::complain(format_args!("kernel {}: some of its processes will not end", self.id));
        }
    }

    /// The interpreter cannot be used any more; it is ended like one that died.
    pub(super) async fn give_up(&mut self, why: &str) -> LoopExit {
        self.kill(true).await;
        let ended = self.ended.1.try_recv().ok();
        let (status, signal) = ended.map_or((None, Some(9)), |e| (e.exit_status, e.signal));
        self.died(why, Death::from_wait(status, signal, false)).await
    }

    /// A process ended that this kernel waits for.
    pub(super) async fn note_end(&mut self, ended: Ended) -> LoopExit {
        let Ended { pid, exit_status, signal } = ended;
        if self.live.as_ref().and_then(|live| live.pid) != Some(pid) {
            return LoopExit::On;
        }
        // Events from before its end are still in the pipes.
        let mut lines = Vec::new();
        if let Some(live) = &mut self.live {
            let channels = live.channels.clone();
            channels.events.drain(|bytes| lines.extend(live.heard(bytes)));
        }
        if self.take_lines(lines).await == LoopExit::Gone {
            return LoopExit::Gone;
        }
        self.drain();
        let death = Death::from_wait(exit_status, signal, false);
        // Its pid may be reused by now.
        if let Some(live) = &mut self.live {
            live.pid = None;
        }
        self.kill(true).await;
        self.died(&death.reason(), death).await
    }

    /// Reports that the interpreter ended without a request to end it.
    async fn died(&mut self, why: &str, death: Death) -> LoopExit {
        self.live = None;
        let doing = std::mem::replace(&mut self.doing, KernelState::Nothing);
        self.picture.info.borrow_mut().death = Some(death.clone());
        self.touch();
        let error = Error {
            death: Some(death.clone()),
            ..Error::new(ErrorCode::KernelDied, format!("the interpreter died: {why}"))
        };
        match doing {
            KernelState::Cell(running) => {
                let why = CellError::kernel_died(why).message;
                let (record, report) = running.lost(&self.manager.out, &why, Some(death), false);
                self.manager.journal.end(&self.manager.out, &record, report);
            }
            KernelState::Starting { .. } => {
                let error = self.start_error(why);
                if self.fail_waiters(&error) == LoopExit::Gone {
                    return LoopExit::Gone;
                }
            }
            KernelState::Checkpoint { tag, .. }
            | KernelState::Forking { tag, .. }
            | KernelState::Completing { tag, .. } => {
                self.answer(tag, Err(error));
            }
            KernelState::Restoring { tag, checkpoint, .. } => {
                self.forget(checkpoint);
                self.answer(tag, Err(error.clone()));
                self.fail_waiters(&error);
            }
            KernelState::Nothing => {}
        }
        self.drop_queue(&CellErrorKind::KernelDied, "the interpreter died before its turn came");
        LoopExit::On
    }

    /// Ends all that waits.
    pub(super) fn drop_queue(&mut self, kind: &CellErrorKind, why: &str) {
        for order in std::mem::take(&mut self.queue) {
            match order {
                Order::Cell { record, .. } => {
                    let report = dropped(self.id, kind.clone(), why);
                    self.manager.journal.end(&self.manager.out, &record, report);
                }
                Order::Checkpoint { tag, .. } | Order::Fork { tag, .. } => {
                    self.answer(tag, Err(Error::new(ErrorCode::KernelDied, why)));
                }
            }
        }
    }

    pub(super) fn forget(&mut self, checkpoint: CheckpointId) {
        self.checkpoints.retain(|c| c.info.checkpoint != checkpoint);
    }
}

fn copy_error(what: &str, why: &str) -> Error {
    let why: String = why.chars().filter(|c| !c.is_control()).take(500).collect();
    Error::new(ErrorCode::Conflict, format!("the interpreter could not be {what}: {why}"))
}
