//! A command's terminal: the pair is made here, from the sandbox's own devpts, before the fork.
//!
//! PID 1 holds both ends. While it holds the slave, the master never reports an end of its own, so a
//! program that closes its terminal and opens it again through /dev/tty loses nothing; output is over
//! when the command is. The last owner of the ends is the command's task.

use super::spawn::Pipe;
use crate::ready;
use atoll_guest_proto::v1;
use atoll_types::{Error, ErrorCode, Result, TerminalSize};
use rustix::{
    fs::{CWD, Gid, Mode, OFlags, Uid},
    io::Errno,
    pty::OpenptFlags,
    termios::{InputModes, OptionalActions, SpecialCodeIndex, Winsize},
};
use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::io::Interest;

/// Not /dev/ptmx, which root of a sandbox can replace; the node in devpts itself cannot be replaced.
const PTMX: &str = "/dev/pts/ptmx";

/// A size that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    rows: u16,
    columns: u16,
}

impl Size {
    pub(crate) fn parse(wanted: v1::Terminal) -> Result<Self> {
        let side = |name: &str, value: u32| {
            let fits = u16::try_from(value).ok().filter(|side| TerminalSize::SIDE.contains(side));
            let most = TerminalSize::SIDE.end();
            fits.ok_or_else(|| Error::invalid(name, format!("{name} must be between 1 and {most}")))
        };
        Ok(Self { rows: side("rows", wanted.rows)?, columns: side("columns", wanted.columns)? })
    }

    fn message(self) -> v1::Terminal {
        v1::Terminal { rows: self.rows.into(), columns: self.columns.into() }
    }

    fn winsize(self) -> Winsize {
        Winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 }
    }
}

/// What a command that is to have a terminal needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalPlan {
    pub(crate) size: Size,
    /// The group that may write to it beside its owner: `mesg` and `wall` expect the group tty.
    pub(crate) group: u32,
}

/// Both ends, before they are shared out.
pub(crate) struct Pair {
    pub(crate) master: Pipe,
    pub(crate) slave: OwnedFd,
}

/// Opens a terminal that belongs to the user.
pub(crate) fn open(plan: TerminalPlan, uid: u32) -> std::io::Result<Pair> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let master = rustix::fs::openat(CWD, PTMX, flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let slave = open_slave(&master)?;
    match rustix::fs::fchown(&slave, Some(Uid::from_raw(uid)), Some(Gid::from_raw(plan.group))) {
        // gVisor's terminals have no owner to change, and anyone may open them.
        Ok(()) | Err(Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    match rustix::fs::fchmod(&slave, Mode::from_raw_mode(0o620)) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    rustix::termios::tcsetwinsize(&slave, plan.size.winsize())?;
    erase_whole_characters(&slave);
    let master = Arc::new(ready::watch(master, Interest::READABLE | Interest::WRITABLE)?);
    Ok(Pair { master, slave })
}

fn open_slave(master: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    match rustix::pty::ioctl_tiocgptpeer(master, flags) {
        // A kernel that cannot open it without its name (gVisor's).
        Err(Errno::NOTTY | Errno::INVAL | Errno::NOSYS) => {
            let name = rustix::pty::ptsname(master, Vec::new())?;
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
        }
        opened => opened,
    }
}

/// Sets UTF-8 in the line discipline. Where that fails, erasing erases bytes.
fn erase_whole_characters(slave: &OwnedFd) {
    if let Ok(mut modes) = rustix::termios::tcgetattr(slave) {
        modes.input_modes |= InputModes::IUTF8;
        let _ = rustix::termios::tcsetattr(slave, OptionalActions::Now, &modes);
    }
}

/// The character that a reader of this terminal sees as the end of input.
pub(crate) fn end_of_input(master: &OwnedFd) -> u8 {
    const CONTROL_D: u8 = 4;
    let code = rustix::termios::tcgetattr(master).map(|m| m.special_codes[SpecialCodeIndex::VEOF]);
    // Zero means that the terminal knows no such character.
    code.ok().filter(|c| *c != 0).unwrap_or(CONTROL_D)
}

/// A terminal's size, to read and to change.
pub(crate) struct Terminal {
    master: Weak<tokio::io::unix::AsyncFd<OwnedFd>>,
    last: Mutex<v1::Terminal>,
}

impl Terminal {
    pub(crate) fn new(master: &Pipe, size: Size) -> Self {
        Self { master: Arc::downgrade(master), last: Mutex::new(size.message()) }
    }

    /// The current size; once the terminal is gone, the last one. A program may change it too.
    pub(crate) fn size(&self) -> v1::Terminal {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(master) = self.master.upgrade()
            && let Ok(now) = rustix::termios::tcgetwinsize(master.get_ref())
        {
            *last = v1::Terminal { rows: now.ws_row.into(), columns: now.ws_col.into() };
        }
        *last
    }

    /// The kernel sends SIGWINCH to the foreground programs.
    pub(crate) fn resize(&self, size: Size) -> Result<()> {
        let gone = || Error::new(ErrorCode::Conflict, "the terminal is gone");
        let master = self.master.upgrade().ok_or_else(gone)?;
        rustix::termios::tcsetwinsize(master.get_ref(), size.winsize())
            .map_err(|e| Error::internal(format!("cannot resize the terminal: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_bounds() {
        let parse = |rows, columns| Size::parse(v1::Terminal { rows, columns });
        assert_eq!(parse(1, 10_000).unwrap().message(), v1::Terminal { rows: 1, columns: 10_000 });
        for (rows, columns, field) in
            [(0, 80, "rows"), (10_001, 80, "rows"), (24, 0, "columns"), (24, u32::MAX, "columns")]
        {
            assert_eq!(parse(rows, columns).unwrap_err().field.as_deref(), Some(field));
        }
    }
}
