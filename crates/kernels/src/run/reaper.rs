//! Waits for the children of the kernel manager, which adopts orphans of its interpreters. The ends of
//! interpreters are reported to their kernels; the other children are only reaped.
//!
//! Starting a process and registering the receiver of its end happen without an await, so none ends in between
//! unseen.

use rustix::process::{WaitOptions, wait};
use std::{cell::RefCell, collections::HashMap, rc::Rc};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::UnboundedSender,
};

/// How a process ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) pid: i32,
    pub(super) exit_status: Option<i32>,
    pub(super) signal: Option<i32>,
}

#[derive(Default)]
pub(super) struct Reaper {
    waiting: RefCell<HashMap<i32, UnboundedSender<Ended>>>,
}

impl Reaper {
    /// Before the first child is started, so that the end of none is missed.
    pub(super) fn signals() -> std::io::Result<Signal> {
        signal(SignalKind::child())
    }

    /// Registers the receiver of a child's end.
    pub(super) fn tell(&self, pid: i32, to: &UnboundedSender<Ended>) {
        self.waiting.borrow_mut().insert(pid, to.clone());
    }

    pub(super) async fn run(self: Rc<Self>, mut signals: Signal) {
        loop {
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                let pid = pid.as_raw_nonzero().get();
                let (exit_status, signal) = (status.exit_status(), status.terminating_signal());
                if let Some(to) = self.waiting.borrow_mut().remove(&pid) {
                    let _ = to.send(Ended { pid, exit_status, signal });
                }
            }
            if signals.recv().await.is_none() {
                return;
            }
        }
    }
}
