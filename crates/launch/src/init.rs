//! The program that becomes PID 1: embedded here, laid out once as a file that root alone can write.

use crate::{
    mounts::{self, Attributes},
    sys,
};
use atoll_launch_proto::Layout;
use libcontainer::workload::{Executor, ExecutorError, ExecutorValidationError};
use oci_spec::runtime::Spec;
use rustix::fd::{AsFd, OwnedFd};
use std::{ffi::CString, fs, io, os::unix::fs::PermissionsExt, path::PathBuf, rc::Rc};

static PROGRAM: &[u8] = include_bytes!(env!("ATOLL_INIT_PATH"));

const READ_ONLY: Attributes = Attributes { read_only: true, no_exec: false };

/// PID 1's program, open for execution. A sandbox's user can reach it through the link to a tool's
/// program in /proc, so it is held by a mount of its own: one that nothing can be written through and
/// that says nothing of where the file lies.
pub(crate) struct InitProgram {
    program: Rc<OwnedFd>,
    path: PathBuf,
}

impl InitProgram {
    /// Lays the program out, if this release's is not there yet.
    pub(crate) fn lay_out(layout: &Layout) -> io::Result<Self> {
        let name = format!("atoll-init-{}-{:x}", env!("CARGO_PKG_VERSION"), checksum(PROGRAM));
        let path = layout.run().join("bin").join(name);
        if fs::metadata(&path).map(|m| m.len()).ok() != Some(PROGRAM.len() as u64) {
            let temporary = path.with_extension("new");
            fs::write(&temporary, PROGRAM)?;
            fs::set_permissions(&temporary, fs::Permissions::from_mode(0o555))?;
            fs::rename(&temporary, &path)?;
        }
        Ok(Self { program: Rc::new(mounts::clone_tree(&path, false, READ_ONLY, None)?), path })
    }

    /// For runtimes that start a program by its path.
    pub(crate) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// For libcontainer, which starts it by descriptor: nothing of ours is mounted inside.
    pub(crate) fn executor(&self) -> InitExecutor {
        InitExecutor { program: Rc::clone(&self.program) }
    }
}

/// FNV-1a over the program: distinguishes builds of one release.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Turns the container's first process into PID 1.
#[derive(Clone)]
pub(crate) struct InitExecutor {
    program: Rc<OwnedFd>,
}

impl Executor for InitExecutor {
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let process = spec.process().as_ref().ok_or(ExecutorError::InvalidArg)?;
        let c_strings = |list: &Option<Vec<String>>| -> Result<Vec<CString>, ExecutorError> {
            let list = list.as_deref().unwrap_or_default();
            list.iter().map(|s| CString::new(s.as_str()).map_err(|_| ExecutorError::InvalidArg)).collect()
        };
        let (args, env) = (c_strings(process.args())?, c_strings(process.env())?);
        Err(ExecutorError::Execution(sys::exec_fd(self.program.as_fd(), &args, &env).into()))
    }

    fn validate(&self, _spec: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }
}
