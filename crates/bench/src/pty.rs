//! A program at a terminal of this machine's own, which echoes each key.

use crate::Result;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};
use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command},
};

/// A terminal with `cat` at it. It ends when the value is dropped.
pub(crate) struct Pty {
    master: File,
    cat: Child,
}

impl Pty {
    pub(crate) fn start() -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
        // Only `cat` echoes a key.
        let mut modes = tcgetattr(&slave)?;
        modes.make_raw();
        tcsetattr(&slave, OptionalActions::Now, &modes)?;
        let cat = Command::new("/bin/cat").stdin(slave.try_clone()?).stdout(slave).spawn()?;
        Ok(Self { master: master.into(), cat })
    }

    /// Presses a key and waits until it comes back.
    pub(crate) fn press(&mut self, key: u8) -> Result<()> {
        self.master.write_all(&[key])?;
        let mut back = [0];
        self.master.read_exact(&mut back)?;
        if back == [key] { Ok(()) } else { Err(format!("{key} came back as {}", back[0]).into()) }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.cat.kill();
        let _ = self.cat.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_as_it_was() {
        let mut pty = Pty::start().unwrap();
        // A terminal in its usual mode would translate some of these.
        for key in [b'a', b'\r', 3, 0xff] {
            pty.press(key).unwrap();
        }
    }
}
