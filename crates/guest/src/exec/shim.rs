//! The process between PID 1 and one command. The shim adopts the command's orphans, reports start and end to PID
//! 1, and stays until the last descendant is gone.
//!
//! It is a fork of PID 1 without an exec, so the rule of `sys` holds for every line here: prepared
//! memory and raw calls only. User code cannot signal it unless it runs as root.

use super::{
    child,
    plan::Plan,
    tree::Tree,
    wire::{Ending, Failed, Order, Report, Usage},
};
use crate::sys;
use atoll_types::StartStage;
use rustix::io::{Errno, Result};
use std::os::fd::RawFd;

/// Rounds of SIGSTOP before the shim kills anyway.
const STOP_ROUNDS: usize = 16;
/// How long to wait for the killed to die before looking again.
const ROUND_MS: i32 = 10;
/// The kernel picks a shim before PID 1 when memory runs out, and after any command. It does pick a second process while
/// the first one still gives back what its sockets hold.
const OOM_SCORE: &[u8] = b"400";

struct Shim {
    control: RawFd,
    signals: RawFd,
    /// Readable when the program runs (end of file) or could not (a message); -1 once read.
    failure: RawFd,
    main: i32,
    /// Not yet reaped, so that its number is its own.
    main_lives: bool,
    failed: Option<Failed>,
    /// Of everything that was waited for, orphans included.
    usage: Usage,
}

/// Runs the command of `plan` and never returns.
pub(crate) fn run(plan: &Plan, stdio: [RawFd; 3], control: RawFd) -> ! {
    match Shim::start(plan, stdio, control) {
        Ok(shim) => shim.watch(),
        Err(errno) => {
            let failed = Failed { stage: StartStage::Spawn, errno: errno.raw_os_error() };
            let _ = sys::send(control, &Report::Failed(failed).encode());
            sys::exit(0)
        }
    }
}

impl Shim {
    fn start(plan: &Plan, stdio: [RawFd; 3], control: RawFd) -> Result<Self> {
        sys::block_signals(u64::MAX);
        sys::set_name(c"atoll-exec");
        // A command that cannot have its own score fails; here there is nothing to report yet.
        let _ = child::raise_oom_score(plan.proc, OOM_SCORE);
        match sys::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) {
            // An old gVisor has no subreapers: there a child that leaves its parents outlives a kill.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(e) => return Err(e),
        }
        let signals = sys::signal_descriptor(sys::signal_bit(libc::SIGCHLD))?;
        let (failure, write_failure) = sys::pipe()?;
        // SAFETY: the child runs `child::run`, which keeps to raw calls and prepared memory.
        let Some(main) = (unsafe { sys::fork() })? else { child::run(plan, stdio, write_failure) };
        sys::keep_only(&mut [control, signals, failure])?;
        Ok(Self { control, signals, failure, main, main_lives: true, failed: None, usage: Usage::default() })
    }

    fn report(&self, report: Report) {
        // PID 1 is gone when this fails; the loop notices by itself.
        let _ = sys::send(self.control, &report.encode());
    }

    fn watch(mut self) -> ! {
        loop {
            let wait = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut fds = [wait(self.failure), wait(self.signals), wait(self.control)];
            if sys::poll(&mut fds, -1).is_err() {
                self.kill_everything();
            }
            // In this order, so that PID 1 learns of the start before the end.
            if fds[0].revents != 0 {
                self.read_failure();
            }
            if fds[1].revents != 0 {
                self.clear_signals();
                self.reap();
            }
            if fds[2].revents != 0 {
                self.handle_order();
            }
        }
    }

    fn read_failure(&mut self) {
        let mut bytes = [0; 5];
        let length = sys::read(self.failure, &mut bytes).unwrap_or(0);
        let _ = sys::close(self.failure);
        self.failure = -1;
        self.failed = child::read_failure(&bytes[..length]);
        // A failure is reported when the child is gone, so that it is the last report.
        if self.failed.is_none() {
            self.report(Report::Started(self.main));
        }
    }

    fn clear_signals(&self) {
        let mut info = [0; 128];
        while sys::read(self.signals, &mut info).is_ok() {}
    }

    /// Waits for children that have ended. Ends the shim when none is left.
    fn reap(&mut self) {
        let mut ending = None;
        let alone = loop {
            match sys::wait_any() {
                Ok(Some(waited)) => {
                    let sys::Waited { pid, status, user_us, system_us, max_rss_kb } = waited;
                    self.usage.add(Usage { user_us, system_us, max_rss_kb });
                    if pid == self.main && self.main_lives {
                        self.main_lives = false;
                        ending = Some(status);
                    }
                }
                Err(Errno::CHILD) => break true,
                Ok(None) | Err(_) => break false,
            }
        };
        if let Some(status) = ending {
            self.report_end(status, alone);
        } else if alone {
            self.report(Report::Gone(self.usage));
        }
        if alone {
            sys::exit(0)
        }
    }

    fn report_end(&mut self, status: i32, alone: bool) {
        if self.failure >= 0 {
            self.read_failure();
        }
        if let Some(failed) = self.failed {
            self.report(Report::Failed(failed));
            sys::exit(0)
        }
        self.report(Report::Ended(Ending { status, usage: self.usage, alone }));
    }

    fn handle_order(&mut self) {
        let mut bytes = [0; 2];
        match sys::read(self.control, &mut bytes) {
            Ok(length @ 1..) => match Order::decode(&bytes[..length]) {
                Some(Order::Kill) => self.kill_everything(),
                Some(Order::Signal(number)) if self.main_lives => {
                    let _ = sys::kill(-self.main, i32::from(number));
                }
                Some(Order::Signal(_)) | None => {}
            },
            Err(Errno::AGAIN | Errno::INTR) => {}
            // PID 1 is gone, so no process of the command may stay.
            Ok(_) | Err(_) => self.kill_everything(),
        }
    }

    /// Ends the shim with everything below it. Stopping first keeps a fork bomb from growing while it is being
    /// killed; a process that escapes one round is killed in the next.
    fn kill_everything(&mut self) -> ! {
        let me = std::process::id() as i32;
        let tree = Tree::new();
        let Ok(mut tree) = tree else { self.kill_main_only() };
        loop {
            for _ in 0..STOP_ROUNDS {
                if !matches!(tree.signal_below(me, &[], libc::SIGSTOP), Ok(1..)) {
                    break;
                }
            }
            let _ = tree.signal_below(me, &[], libc::SIGKILL);
            self.wait_a_round();
        }
    }

    /// Without memory for the table: only the main process's group is killed. Killing its orphans needs the
    /// table, so this retries until there is room.
    fn kill_main_only(&mut self) -> ! {
        loop {
            if self.main_lives {
                let _ = sys::kill(-self.main, libc::SIGKILL);
            }
            self.wait_a_round();
            if Tree::new().is_ok() {
                self.kill_everything();
            }
        }
    }

    fn wait_a_round(&mut self) {
        let mut fds = [libc::pollfd { fd: self.signals, events: libc::POLLIN, revents: 0 }];
        let _ = sys::poll(&mut fds, ROUND_MS);
        self.clear_signals();
        self.reap();
    }
}
