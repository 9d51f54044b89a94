//! The user's own terminal: made raw, so that every key reaches the sandbox, and always restored. Where
//! standard input is no terminal, nothing is changed.

use atoll_client::TerminalSize;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::os::fd::AsFd;

/// Colours off, cursor shown, no mouse, no bracketed paste, ordinary keys.
const CALM: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>";
const ALTERNATE_ON: &[u8] = b"\x1b[?1049h";
const ALTERNATE_OFF: &[u8] = b"\x1b[?1049l";

/// The user's terminal while it is raw; restored when this is dropped, by a panic too.
pub(super) struct Raw<F: AsFd> {
    fd: F,
    before: Option<Termios>,
}

impl<F: AsFd> Raw<F> {
    /// Makes it raw, if it is a terminal.
    pub(super) fn new(fd: F) -> Self {
        let before = if isatty(&fd) { tcgetattr(&fd).ok() } else { None };
        let raw = Self { fd, before };
        raw.enter();
        raw
    }

    /// Raw, again.
    pub(super) fn enter(&self) {
        if let Some(before) = &self.before {
            let mut modes = before.clone();
            modes.make_raw();
            let _ = tcsetattr(&self.fd, OptionalActions::Now, &modes);
        }
    }

    /// Restores it. A terminal that is gone needs nothing.
    pub(super) fn leave(&self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.fd, OptionalActions::Now, before);
        }
    }
}

impl<F: AsFd> Drop for Raw<F> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The size of the user's terminal, if it reports one.
pub(super) fn size() -> Option<TerminalSize> {
    let size =
        tcgetwinsize(rustix::stdio::stdout()).or_else(|_| tcgetwinsize(rustix::stdio::stdin())).ok()?;
    let side = |n: u16| (n > 0).then(|| n.min(*TerminalSize::SIDE.end()));
    Some(TerminalSize { rows: side(size.ws_row)?, columns: side(size.ws_col)? })
}

/// Whether a program inside has switched to the other screen, as editors do.
#[derive(Default)]
pub(super) struct Screen {
    alternate: bool,
    /// The end of the output, where an escape sequence may have begun.
    tail: Vec<u8>,
}

impl Screen {
    pub(super) fn printed(&mut self, bytes: &[u8]) {
        let seam = [&self.tail[..], &bytes[..bytes.len().min(ALTERNATE_ON.len() - 1)]].concat();
        for part in [&seam[..], bytes] {
            for window in part.windows(ALTERNATE_ON.len()) {
                match window {
                    ALTERNATE_ON => self.alternate = true,
                    ALTERNATE_OFF => self.alternate = false,
                    _ => {}
                }
            }
        }
        let all = if bytes.len() >= ALTERNATE_ON.len() { bytes } else { &seam };
        self.tail = all[all.len().saturating_sub(ALTERNATE_ON.len() - 1)..].to_vec();
    }

    /// The sequences that make the user's terminal usable again when a program inside is left in the middle.
    pub(super) fn calm(&self) -> Vec<u8> {
        let mut bytes = if self.alternate { ALTERNATE_OFF.to_vec() } else { Vec::new() };
        bytes.extend_from_slice(CALM);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::OpenptFlags;
    use std::os::fd::OwnedFd;

    fn terminal() -> (OwnedFd, OwnedFd) {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        (master, slave)
    }

    fn modes(fd: &OwnedFd) -> String {
        format!("{:?}", tcgetattr(fd).unwrap())
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let (_master, slave) = terminal();
        let before = modes(&slave);
        let panicked = std::panic::catch_unwind(|| {
            let _raw = Raw::new(&slave);
            assert_ne!(modes(&slave), before);
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(modes(&slave), before);
    }

    #[test]
    fn the_other_screen_is_left_only_by_whom_is_in_it() {
        let in_pieces = |pieces: &[&[u8]]| {
            let mut screen = Screen::default();
            pieces.iter().for_each(|piece| screen.printed(piece));
            screen.alternate
        };
        assert!(!in_pieces(&[b"plain \x1b[31m"]));
        assert!(in_pieces(&[b"x\x1b[?1049hy"]));
        assert!(in_pieces(&[b"x\x1b[?1", b"0", b"49hyyyyyyyyyyyyyyy"]));
        assert!(!in_pieces(&[b"\x1b[?1049h...", b"\x1b[?104", b"9l"]));
        let each: Vec<&[u8]> = ALTERNATE_ON.chunks(1).collect();
        assert!(in_pieces(&each));
    }
}
