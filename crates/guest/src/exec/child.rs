//! The last steps before a program runs, in the forked child: only prepared memory and raw calls.
//!
//! The order matters. Steps that need privilege come first, then privilege is dropped, and only then are the
//! user's own paths touched, with the user's own rights.

use super::{
    plan::Plan,
    wire::{Failed, stage_of},
};
use crate::sys::{self, caps};
use atoll_types::StartStage;
use rustix::io::Errno;
use std::os::fd::RawFd;

/// High enough that the kernel picks a command when memory runs out.
const OOM_SCORE: &[u8] = b"500";

/// Becomes the program, or writes to `failure` why not and ends.
pub(crate) fn run(plan: &Plan, stdio: [RawFd; 3], failure: RawFd) -> ! {
    let Failed { stage, errno } = become_program(plan, stdio, failure);
    let mut bytes = [0; 5];
    bytes[0] = stage as u8;
    bytes[1..].copy_from_slice(&errno.to_ne_bytes());
    let _ = sys::write(failure, &bytes);
    sys::exit(127)
}

fn become_program(plan: &Plan, stdio: [RawFd; 3], failure: RawFd) -> Failed {
    match set_up(plan, stdio, failure) {
        Err((stage, errno)) => Failed { stage, errno: errno.raw_os_error() },
        Ok(()) => Failed { stage: StartStage::Exec, errno: exec_first(plan).raw_os_error() },
    }
}

fn set_up(plan: &Plan, stdio: [RawFd; 3], failure: RawFd) -> Result<(), (StartStage, Errno)> {
    let at = |stage| move |errno| (stage, errno);
    sys::new_session().map_err(at(StartStage::Spawn))?;
    for (to, from) in stdio.into_iter().enumerate() {
        sys::dup_to(from, to as RawFd).map_err(at(StartStage::Spawn))?;
    }
    if plan.terminal.is_some() {
        sys::control_terminal(0).map_err(at(StartStage::Spawn))?;
    }
    raise_oom_score(plan.proc, OOM_SCORE).map_err(at(StartStage::Limits))?;
    // Where there is no program descriptor, `failure` is listed twice, which does no harm.
    sys::keep_only(&mut [0, 1, 2, failure, plan.own.unwrap_or(failure)]).map_err(at(StartStage::Spawn))?;
    sys::limit_open_files(plan.limits.open_files.into()).map_err(at(StartStage::Limits))?;
    drop_privileges(plan).map_err(at(StartStage::Privileges))?;
    // After the change of user: the kernel would otherwise refuse the program where the user's processes
    // are used up, and nothing could be run that ends some of them.
    sys::limit_processes(plan.limits.processes.into()).map_err(at(StartStage::Limits))?;
    sys::reset_sigpipe();
    sys::block_signals(0);
    sys::change_directory(&plan.directory).map_err(at(StartStage::Workdir))
}

/// Through PID 1's own view of /proc; the user's cannot be written.
pub(super) fn raise_oom_score(proc: RawFd, score: &[u8]) -> Result<(), Errno> {
    let fd = sys::open_at(proc, c"self/oom_score_adj", libc::O_WRONLY | libc::O_CLOEXEC)?;
    let written = sys::write(fd, score);
    sys::close(fd)?;
    written.map(drop)
}

fn drop_privileges(plan: &Plan) -> Result<(), Errno> {
    caps::drop_bounding(plan.drop_bounding)?;
    sys::set_groups(&plan.groups)?;
    sys::set_identity(plan.uid, plan.gid)?;
    caps::set_exact(plan.capabilities)
}

/// Tries the candidates in their order, as a shell does: a file that may not be run is remembered,
/// and only reported when nothing later can be.
fn exec_first(plan: &Plan) -> Errno {
    if let Some(own) = plan.own {
        return sys::exec_descriptor(own, &plan.argv, &plan.envp);
    }
    let mut answer = Errno::NOENT;
    for candidate in &plan.candidates {
        match sys::exec(candidate, &plan.argv, &plan.envp) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => answer = Errno::ACCESS,
            other => return other,
        }
    }
    answer
}

/// What the child wrote, if it wrote anything.
pub(crate) fn read_failure(bytes: &[u8]) -> Option<Failed> {
    let [stage, rest @ ..] = bytes else { return None };
    let errno = i32::from_ne_bytes(rest.try_into().ok()?);
    Some(Failed { stage: stage_of(*stage)?, errno })
}
