//! The baselines: the same work on the same machine without Atoll.

use crate::Result;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// The namespaces of a sandbox, by the machine's own tool.
const UNSHARE: &[&str] = &[
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount",
    "--net",
    "--ipc",
    "--uts",
    "--cgroup",
    "true",
];

/// A program with an environment like a sandbox's and no input or output.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a program to its end. The standard library uses posix_spawn for this.
pub(crate) fn spawn(arguments: &[&str]) -> Result<()> {
    let status = command(arguments).status().map_err(|e| format!("{}: {e}", arguments[0]))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", arguments[0]).into()) }
}

/// Runs `true` in new namespaces.
pub(crate) fn unshare() -> Result<()> {
    spawn(UNSHARE)
}

/// The same so many times at once.
pub(crate) fn unshare_at_once(count: usize) -> Result<()> {
    at_once(count, UNSHARE)
}

/// Runs a program so many times at once.
pub(crate) fn at_once(count: usize, arguments: &[&str]) -> Result<()> {
    let started: Vec<_> = (0..count).map(|_| command(arguments).spawn()).collect();
    let mut all_well = true;
    for child in started {
        all_well &= child?.wait()?.success();
    }
    if all_well { Ok(()) } else { Err(format!("{} failed", arguments[0]).into()) }
}

/// Starts a program whose output is read.
pub(crate) fn piped(arguments: &[&str]) -> Result<Child> {
    Ok(command(arguments).stdout(Stdio::piped()).spawn()?)
}

/// The same for one that runs until its input ends.
pub(crate) fn held(arguments: &[&str]) -> Result<Child> {
    Ok(command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Children that sleep, in one process group. They are killed when the value is dropped.
pub(crate) struct Sleepers(Vec<Child>);

impl Sleepers {
    pub(crate) fn start(count: usize) -> Result<Self> {
        let mut all = Self(Vec::new());
        for _ in 0..count {
            let group = all.0.first().map_or(0, Child::id);
            all.0.push(command(&["/bin/sleep", "1000"]).process_group(i32::try_from(group)?).spawn()?);
        }
        Ok(all)
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(Child::id)
    }

    /// Kills the group and waits for each.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let Some(group) = self.0.first().and_then(|c| Pid::from_raw(i32::try_from(c.id()).ok()?)) else {
            return Ok(());
        };
        kill_process_group(group, Signal::KILL)?;
        self.0.drain(..).try_for_each(|mut child| child.wait().map(|_| ()))?;
        Ok(())
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
