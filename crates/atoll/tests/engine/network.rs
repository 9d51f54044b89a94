//! Networks of a test's own, so that nothing outside of them is ever touched: the thread that enters one,
//! and whatever it starts from then on, lives there. They go with the last who holds them.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::File,
    io::{BufRead, BufReader},
    os::fd::{AsFd, AsRawFd},
    process::{Command, Stdio},
};

/// A network: the one that was there, or a new and empty one.
pub(crate) struct Network(File);

impl Network {
    /// The one that this thread is in.
    pub(crate) fn here() -> Self {
        Self(File::open("/proc/thread-self/ns/net").unwrap())
    }

    /// A new one, with a loopback that is up.
    pub(crate) fn new() -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sh", "-c", "ip link set lo up && echo up && cat"]);
        let mut child = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let network = File::open(format!("/proc/{}/ns/net", child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(line, "up\n");
        Self(network.unwrap())
    }

    /// Moves this thread there.
    pub(crate) fn enter(&self) {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Where other programs find it while this lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Runs `ip` for each line, in the network of this thread.
pub(crate) fn ip(lines: &[String]) {
    for line in lines {
        let ran = Command::new("ip").args(line.split(' ')).output().unwrap();
        assert!(ran.status.success(), "ip {line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}
