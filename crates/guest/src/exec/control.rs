//! PID 1's end of the socket to one shim.

use super::wire::{Order, REPORT_BYTES, Report};
use crate::sys;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::io::{Interest, unix::AsyncFd};

pub(crate) struct Control {
    socket: AsyncFd<OwnedFd>,
    shim: i32,
}

impl Control {
    pub(crate) fn new(socket: OwnedFd, shim: i32) -> std::io::Result<Self> {
        Ok(Self { socket: crate::ready::watch(socket, Interest::READABLE)?, shim })
    }

    /// The shim's process id.
    pub(crate) fn shim(&self) -> i32 {
        self.shim
    }

    /// The next report; `None` when the shim is gone.
    pub(crate) async fn report(&self) -> Option<Report> {
        let mut bytes = [0; REPORT_BYTES];
        loop {
            let mut ready = self.socket.readable().await.ok()?;
            match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut bytes)?)) {
                Ok(Ok(length)) => return Report::decode(&bytes[..length]),
                Ok(Err(_)) => return None,
                Err(_would_block) => {}
            }
        }
    }

    /// Sends an order to the shim. A shim that is gone has nothing left to act on.
    pub(crate) fn order(&self, order: Order) {
        // A shim that the sandbox's root stopped must receive it too.
        let _ = sys::kill(self.shim, libc::SIGCONT);
        let _ = sys::send(self.socket.as_raw_fd(), &order.encode());
    }
}
