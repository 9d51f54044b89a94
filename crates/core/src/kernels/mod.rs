//! Live interpreters. A sandbox that uses them has one warden inside (see `atoll_kernels`), a command of
//! PID 1's own that this server talks to, as the next one will: kernels outlive it. Here is what callers
//! may ask of them; each is an operation with its two audit rows. An executing cell is work, a waiting
//! kernel is not.
//!
//! What the warden says is hostile input: ids that were not asked for are passed over, lines, counts and
//! texts are bounded, and whether memory was the reason of a death is told by PID 1's count and not by it.

mod request;

pub use request::{
    CellOutcome, CellRequest, CellTarget, Dependencies, ForkKernel, Installed, KernelRequest,
    MAX_CELL_SECONDS,
};

use crate::{Caller, Core};
use atoll_kernels::{CellEvent, CheckpointInfo, KernelInfo};
use atoll_store::SandboxId;
use atoll_types::{CellId, CheckpointId, Error, ErrorCode, KernelId, Result};

fn missing<T>() -> Result<T> {
    Err(Error::new(ErrorCode::Unsupported, "kernels are not there yet"))
}

/// A cell that is followed. Dropped before its end, the cell is interrupted, unless its request may be
/// repeated.
pub struct CellFollow {
    /// Its id.
    pub cell: CellId,
}

impl CellFollow {
    /// The next event, the last of which is [`CellEvent::Ended`]; none after that.
    pub async fn next(&mut self) -> Result<Option<CellEvent>> {
        missing()
    }
}

impl Core {
    /// Starts a kernel; answers when its interpreter is ready.
    pub async fn start_kernel(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &KernelRequest,
    ) -> Result<KernelInfo> {
        let _ = (caller, sandbox, request);
        missing()
    }

    /// All kernels of a sandbox, the oldest first. One that runs nothing inside has none.
    pub async fn kernels(&self, caller: &Caller, sandbox: SandboxId) -> Result<Vec<KernelInfo>> {
        let _ = (caller, sandbox);
        missing()
    }

    /// One of them.
    pub async fn kernel(&self, caller: &Caller, sandbox: SandboxId, kernel: KernelId) -> Result<KernelInfo> {
        let _ = (caller, sandbox, kernel);
        missing()
    }

    /// Runs a cell to its end. A caller that goes away takes it along, unless the request may be repeated.
    pub async fn execute(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
    ) -> Result<CellOutcome> {
        let _ = (caller, sandbox, request);
        missing()
    }

    /// Runs a cell and tells what it prints and shows as it comes.
    pub async fn execute_stream(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &CellRequest,
    ) -> Result<CellFollow> {
        let _ = (caller, sandbox, request);
        missing()
    }

    /// Ends the running cell.
    pub async fn interrupt_kernel(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
    ) -> Result<()> {
        let _ = (caller, sandbox, kernel);
        missing()
    }

    /// A fresh interpreter under the same id.
    pub async fn restart_kernel(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
    ) -> Result<KernelInfo> {
        let _ = (caller, sandbox, kernel);
        missing()
    }

    /// Ends a kernel and everything that it started.
    pub async fn delete_kernel(&self, caller: &Caller, sandbox: SandboxId, kernel: KernelId) -> Result<()> {
        let _ = (caller, sandbox, kernel);
        missing()
    }

    /// Remembers a kernel as it is.
    pub async fn checkpoint_kernel(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
        name: &str,
    ) -> Result<CheckpointInfo> {
        let _ = (caller, sandbox, kernel, name);
        missing()
    }

    /// Puts a kernel back as it was.
    pub async fn rollback_kernel(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
        checkpoint: CheckpointId,
    ) -> Result<KernelInfo> {
        let _ = (caller, sandbox, kernel, checkpoint);
        missing()
    }

    /// Forgets a checkpoint.
    pub async fn drop_checkpoint(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        kernel: KernelId,
        checkpoint: CheckpointId,
    ) -> Result<()> {
        let _ = (caller, sandbox, kernel, checkpoint);
        missing()
    }

    /// A second kernel with everything that the first has.
    pub async fn fork_kernel(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        request: &ForkKernel,
    ) -> Result<KernelInfo> {
        let _ = (caller, sandbox, request);
        missing()
    }

    /// Installs packages into the sandbox's volume, through its egress policy. A failed install is an
    /// answer and no error.
    pub async fn install(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        wanted: &Dependencies,
    ) -> Result<Installed> {
        let _ = (caller, sandbox, wanted);
        missing()
    }
}
