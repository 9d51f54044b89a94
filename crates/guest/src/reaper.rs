//! Waits for children. Every orphan of the sandbox becomes a child of PID 1, and each must be waited
//! for or it stays as a zombie. Nothing here says how a command ended: its shim does.

use crate::{ready, sys};
use std::os::fd::{FromRawFd, OwnedFd};
use tokio::io::{Interest, unix::AsyncFd};

/// The size of the kernel's `signalfd_siginfo`.
const INFO: usize = 128;

const SIGNALS: u64 = sys::signal_bit(libc::SIGCHLD) | sys::signal_bit(libc::SIGTERM);

/// Takes over SIGCHLD and SIGTERM, for this thread and those that it starts: the kernel would give a signal to
/// any thread that does not block it. Commands get an empty mask back.
pub(crate) fn take_signals() {
    sys::block_signals(SIGNALS);
}

pub(crate) struct Reaper {
    signals: AsyncFd<OwnedFd>,
}

impl Reaper {
    /// Reads the signals that `take_signals` took.
    pub(crate) fn new() -> std::io::Result<Self> {
        let fd = sys::signal_descriptor(SIGNALS)?;
        // SAFETY: the kernel has just given us this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { signals: ready::watch(fd, Interest::READABLE)? })
    }

    /// Reaps until a process outside the sandbox sends SIGTERM.
    pub(crate) async fn run(self) {
        loop {
            while let Ok(Some(_)) = sys::wait_any() {}
            let Ok(mut ready) = self.signals.readable().await else { return };
            let mut info = [0u8; INFO];
            while let Ok(INFO) = rustix::io::read(self.signals.get_ref(), &mut info) {
                if asks_to_end(&info) {
                    return;
                }
            }
            ready.clear_ready();
        }
    }
}

/// SIGTERM counts only from outside: a sender inside the sandbox has a process id here, and must not end PID 1.
fn asks_to_end(info: &[u8; INFO]) -> bool {
    let number = |at: usize| info[at..at + 4].try_into().map_or(0, u32::from_ne_bytes);
    let (signal, sender) = (number(0), number(12));
    signal == libc::SIGTERM as u32 && (sender == 0 || std::process::id() != 1)
}
