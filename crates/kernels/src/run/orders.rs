//! Orders to a kernel's task, which it handles as soon as they come.

use super::{
    cell::{Stop, dropped},
    channels::Channels,
    countdown::Countdown,
    interpreter::{LiveInterpreter, refused},
    kernel::{COPY, Control, Kernel, KernelState, LoopExit, Order},
    processes,
    transitions::REPEATS,
};
use crate::{Answer, CellErrorKind, MOST_CHECKPOINTS};
use atoll_types::{CellId, CheckpointId, Death, Error, ErrorCode, ExecId, KernelId};
use rustix::process::Signal;
use std::rc::Rc;

impl Kernel {
    pub(super) async fn handle(&mut self, control: Control) -> LoopExit {
        match control {
            Control::Execute { tag, execute, record } => {
                match self.plan.language.check(&execute.code).and_then(|()| self.may_queue()) {
                    Ok(()) => {
                        self.answer(tag, Ok(Answer::Queued { joined: false }));
                        self.queue.push_back(Order::Cell { execute, record });
                    }
                    Err(error) => {
                        self.manager.journal.forget(record.id);
                        self.answer(tag, Err(error));
                    }
                }
            }
            Control::Interrupt { tag, cell } => self.stop_cell(tag, cell),
            Control::Complete { tag, code } => self.complete(tag, code),
            Control::Restart { tag } => return self.restart(tag).await,
            Control::Delete { tag } => {
                self.end_work("the kernel was deleted", false);
                self.kill(false).await;
                self.live = None;
                self.checkpoints.clear();
                self.manager.remove(self.id);
                self.answer(tag, Ok(Answer::Done));
                return LoopExit::Gone;
            }
            Control::End => {
                self.kill(false).await;
                return LoopExit::Gone;
            }
            Control::Checkpoint { tag, checkpoint, name } => self.ask_checkpoint(tag, checkpoint, name),
            Control::Rollback { tag, checkpoint } => self.roll_back(tag, checkpoint).await,
            Control::Drop { tag, checkpoint } => self.drop_checkpoint(tag, checkpoint),
            Control::Fork { tag, checkpoint, new } => self.ask_fork(tag, checkpoint, new),
            Control::Wait { tag } => self.wait(tag),
            Control::Variables => self.variables_changed = true,
        }
        LoopExit::On
    }

    fn wait(&mut self, tag: ExecId) {
        if matches!(self.doing, KernelState::Starting { .. } | KernelState::Restoring { .. }) {
            self.waiters.push(tag);
        } else {
            let info = self.info();
            self.answer(tag, Ok(Answer::Kernel(info)));
        }
    }

    fn stop_cell(&mut self, tag: ExecId, cell: Option<CellId>) {
        if let KernelState::Cell(running) = &mut self.doing
            && cell.is_none_or(|cell| cell == running.record.id)
        {
            if running.stop.is_none() {
                running.stop = Some(Stop::Interrupt);
                self.interrupt(REPEATS);
            }
        } else if let Some(cell) = cell
            && let Some(at) = self.queue.iter().position(|order| is_cell(order, cell))
            && let Some(Order::Cell { record, .. }) = self.queue.remove(at)
        {
            let why = "the cell was interrupted before its turn came";
            let report = dropped(self.id, CellErrorKind::Interrupted, why);
            self.manager.journal.end(&self.manager.out, &record, report);
        }
        self.answer(tag, Ok(Answer::Done));
    }

    /// Requests completions from the driver; a busy kernel refuses.
    fn complete(&mut self, tag: ExecId, code: String) {
        let idle = matches!(self.doing, KernelState::Nothing) && self.queue.is_empty();
        let busy = || Error::new(ErrorCode::Conflict, "the kernel runs a cell; retry when it has ended");
        let may = self.plan.language.check(&code).and_then(|()| self.may_queue());
        match may.and_then(|()| if idle { Ok(()) } else { Err(busy()) }) {
            Ok(()) => self.begin_completion(tag, code),
            Err(error) => self.answer(tag, Err(error)),
        }
    }

    async fn restart(&mut self, tag: ExecId) -> LoopExit {
        self.end_work("the kernel was restarted", true);
        self.kill(true).await;
        self.live = None;
        self.touch();
        self.waiters.push(tag);
        self.picture.info.borrow_mut().restarts += 1;
        match self.start() {
            Ok(()) => LoopExit::On,
            Err(error) => self.fail_waiters(&error),
        }
    }

    /// Ends the running cell and all that wait, because a request says so.
    fn end_work(&mut self, why: &str, restarted: bool) {
        // Output until now belongs to the cell.
        self.drain();
        match std::mem::replace(&mut self.doing, KernelState::Nothing) {
            KernelState::Nothing | KernelState::Starting { .. } => {}
            KernelState::Cell(mut running) => {
                running.stop.get_or_insert(Stop::Interrupt);
                let (record, report) = running.lost(&self.manager.out, why, None, restarted);
                self.manager.journal.end(&self.manager.out, &record, report);
            }
            KernelState::Checkpoint { tag, .. }
            | KernelState::Forking { tag, .. }
            | KernelState::Completing { tag, .. } => {
                self.answer(tag, Err(Error::new(ErrorCode::Conflict, why)));
            }
            KernelState::Restoring { tag, checkpoint, .. } => {
                // The checkpoint's process is the one that is killed now.
                self.forget(checkpoint);
                self.answer(tag, Err(Error::new(ErrorCode::Conflict, why)));
            }
        }
        self.drop_queue(&CellErrorKind::Interrupted, why);
    }

    fn forks(&self) -> Result<(), Error> {
        if self.plan.language.forks() {
            return Ok(());
        }
        let message = format!("a {} kernel cannot be copied: only python can", self.plan.language.name());
        Err(Error::new(ErrorCode::Unsupported, message).at("kernel"))
    }

    fn ask_checkpoint(&mut self, tag: ExecId, checkpoint: CheckpointId, name: String) {
        if let Some(known) = self.checkpoints.iter().find(|c| c.info.checkpoint == checkpoint) {
            return self.answer(tag, Ok(Answer::Checkpoint(known.info.clone())));
        }
        let waiting = self.queue.iter().filter(|order| matches!(order, Order::Checkpoint { .. })).count();
        let room = if self.checkpoints.len() + waiting < MOST_CHECKPOINTS {
            Ok(())
        } else {
            let message = format!("a kernel has at most {MOST_CHECKPOINTS} checkpoints; drop one first");
            Err(Error::new(ErrorCode::LimitExceeded, message))
        };
        match self.forks().and(room).and_then(|()| self.may_queue()) {
            Ok(()) => self.queue.push_back(Order::Checkpoint { tag, checkpoint, name }),
            Err(error) => self.answer(tag, Err(error)),
        }
    }

    /// A checkpoint whose process is still there.
    fn find(&mut self, checkpoint: CheckpointId) -> Result<usize, Error> {
        let gone = |message| Error::new(ErrorCode::NotFound, message).at("checkpoint");
        let at = self.checkpoints.iter().position(|c| c.info.checkpoint == checkpoint);
        let at = at.ok_or_else(|| gone("there is no such checkpoint"))?;
        if !self.checkpoints[at].process.lives() {
            self.forget(checkpoint);
            return Err(gone("the checkpoint is gone: its process has ended"));
        }
        Ok(at)
    }

    async fn roll_back(&mut self, tag: ExecId, checkpoint: CheckpointId) {
        if matches!(&self.doing, KernelState::Restoring { checkpoint: c, .. } if *c == checkpoint) {
            return self.waiters.push(tag);
        }
        if let Err(error) = self.find(checkpoint) {
            return self.answer(tag, Err(error));
        }
        self.end_work("the kernel was rolled back", false);
        self.kill(true).await;
        self.live = None;
        // Killing takes a moment, in which a checkpoint may end.
        let at = match self.find(checkpoint) {
            Ok(at) => at,
            Err(error) => {
                self.picture.info.borrow_mut().death = Some(Death::from_wait(None, Some(9), false));
                self.fail_waiters(&error);
                return self.answer(tag, Err(error));
            }
        };
        let found = &self.checkpoints[at];
        let (process, count) = (found.process, found.info.execution_count);
        found.channels.clear();
        let (channels, environment) = (found.channels.clone(), found.environment.clone());
        while self.ended.1.try_recv().is_ok() {}
        let live = LiveInterpreter::adopt(self.plan.language, Some(process.pid), channels, environment);
        self.begin_with(live, count);
        self.between = Default::default();
        self.doing = KernelState::Restoring { tag, checkpoint, countdown: Countdown::new(COPY) };
        process.signal(Signal::USR1);
    }

    fn drop_checkpoint(&mut self, tag: ExecId, checkpoint: CheckpointId) {
        let found = self.checkpoints.iter().find(|c| c.info.checkpoint == checkpoint);
        let restoring =
            matches!(&self.doing, KernelState::Restoring { checkpoint: c, .. } if *c == checkpoint);
        let result = match found {
            None => Err(Error::new(ErrorCode::NotFound, "there is no such checkpoint").at("checkpoint")),
            Some(_) if restoring => {
                Err(Error::new(ErrorCode::Conflict, "the checkpoint is being rolled back to"))
            }
            Some(found) => {
                found.process.signal(Signal::KILL);
                self.forget(checkpoint);
                Ok(Answer::Done)
            }
        };
        self.answer(tag, result);
    }

    fn ask_fork(&mut self, tag: ExecId, checkpoint: Option<CheckpointId>, new: KernelId) {
        let Some(checkpoint) = checkpoint else {
            return match self.forks().and_then(|()| self.may_queue()) {
                Ok(()) => self.queue.push_back(Order::Fork { tag, new }),
                Err(error) => self.answer(tag, Err(error)),
            };
        };
        let found = match self.find(checkpoint) {
            Ok(at) => &self.checkpoints[at],
            Err(error) => return self.answer(tag, Err(error)),
        };
        let opened = Channels::open(true)
            .and_then(|(channels, theirs)| found.channels.send_ends(&theirs).map(|()| channels));
        match opened {
            Err(error) => self.answer(tag, Err(refused(&error))),
            Ok(channels) => {
                let (process, count) = (found.process, found.info.execution_count);
                let environment = found.environment.clone();
                let live = LiveInterpreter::adopt(self.plan.language, None, Rc::new(channels), environment);
                self.manager.adopt(self, tag, new, live, count);
                process.signal(Signal::USR2);
            }
        }
    }

    /// Ends the kernel: requests that still wait are answered with an error.
    pub(super) async fn go(&mut self) {
        self.drop_queue(&CellErrorKind::KernelDied, "the interpreter did not start");
        if self.live.is_some() {
            self.kill(false).await;
        }
        for checkpoint in &self.checkpoints {
            processes::send(checkpoint.process.pid, Signal::KILL);
        }
        self.manager.remove(self.id);
        let gone = Error::new(ErrorCode::NotFound, "the kernel is gone").at("kernel");
        for tag in std::mem::take(&mut self.waiters) {
            self.answer(tag, Err(gone.clone()));
        }
        while let Some(control) = self.left_over() {
            match control {
                Control::Execute { tag, record, .. } => {
                    self.manager.journal.forget(record.id);
                    self.answer(tag, Err(gone.clone()));
                }
                Control::Delete { tag } => self.answer(tag, Ok(Answer::Done)),
                Control::Interrupt { tag, .. }
                | Control::Complete { tag, .. }
                | Control::Restart { tag }
                | Control::Checkpoint { tag, .. }
                | Control::Rollback { tag, .. }
                | Control::Drop { tag, .. }
                | Control::Fork { tag, .. }
                | Control::Wait { tag } => self.answer(tag, Err(gone.clone())),
                Control::Variables | Control::End => {}
            }
        }
    }
}

fn is_cell(order: &Order, cell: CellId) -> bool {
    matches!(order, Order::Cell { record, .. } if record.id == cell)
}
