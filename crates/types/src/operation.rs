//! The closed vocabulary of what the control plane does. An [`Operation`] is a small kind that is copied; the
//! table below says of each its name in the audit trail, whether it changes anything, which key may ask for
//! it, and what of a sandbox it is about. What an operation works with are the typed arguments of the method
//! that carries it out.
//!
//! A name never changes: the rows of the audit trail carry it.

/// Whether an operation changes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It returns what is there.
    Reads,
    /// It changes what is there.
    Mutates,
}

/// The least that a key must allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Any key.
    Read,
    /// A key that is not read-only.
    Write,
    /// An admin's key.
    Admin,
}

/// What an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The server; no sandbox.
    Server,
    /// A sandbox that has no record yet.
    NewSandbox,
    /// A sandbox that the caller may see. Its actor judges whether its state allows the operation.
    Sandbox,
}

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $effect:ident, $permission:ident, $target:ident;)+) => {
        /// What the control plane does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation { $($(#[$doc])* $variant),+ }

        impl Operation {
            /// Every operation.
            pub const ALL: &[Operation] = &[$(Operation::$variant),+];

            /// Its name in the audit trail.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Operation::$variant => $name),+ }
            }

            /// The operation of a row of the audit trail.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Operation::$variant),)+ _ => None }
            }

            /// Whether it changes anything.
            #[must_use]
            pub const fn effect(self) -> Effect {
                match self { $(Operation::$variant => Effect::$effect),+ }
            }

            /// The least that the caller's key must allow.
            #[must_use]
            pub const fn permission(self) -> Permission {
                match self { $(Operation::$variant => Permission::$permission),+ }
            }

            /// What it is about.
            #[must_use]
            pub const fn target(self) -> Target {
                match self { $(Operation::$variant => Target::$target),+ }
            }
        }
    };
}

operations! {
    /// A sandbox is made.
    SandboxCreate = "sandbox.create", Mutates, Write, NewSandbox;
    /// Limits, labels or environment of a sandbox change.
    SandboxPatch = "sandbox.patch", Mutates, Write, Sandbox;
    /// A sandbox is paused.
    SandboxPause = "sandbox.pause", Mutates, Write, Sandbox;
    /// A sandbox goes on, or is started again.
    SandboxResume = "sandbox.resume", Mutates, Write, Sandbox;
    /// A sandbox is stopped.
    SandboxStop = "sandbox.stop", Mutates, Write, Sandbox;
    /// A sandbox is destroyed with its volume.
    SandboxDestroy = "sandbox.destroy", Mutates, Write, Sandbox;
    /// Many sandboxes of all owners are stopped or destroyed.
    SandboxBulk = "sandbox.bulk", Mutates, Admin, Server;
    /// The records of sandboxes that were destroyed long ago are removed.
    SandboxPurge = "sandbox.purge", Mutates, Admin, Server;
    /// A command runs.
    Exec = "exec", Mutates, Write, Sandbox;
    /// A command is given input.
    ExecStdin = "exec.stdin", Mutates, Write, Sandbox;
    /// A command is sent a signal.
    ExecSignal = "exec.signal", Mutates, Write, Sandbox;
    /// A command is killed with its processes.
    ExecKill = "exec.kill", Mutates, Write, Sandbox;
    /// The output of a command that has ended is removed.
    ExecForget = "exec.forget", Mutates, Write, Sandbox;
    /// A terminal is opened.
    Terminal = "terminal", Mutates, Write, Sandbox;
    /// A client connects to an open terminal.
    TerminalAttach = "terminal.attach", Mutates, Write, Sandbox;
    /// A kernel is started.
    KernelStart = "kernel.start", Mutates, Write, Sandbox;
    /// A cell runs.
    KernelExecute = "kernel.execute", Mutates, Write, Sandbox;
    /// A kernel's cell is interrupted.
    KernelInterrupt = "kernel.interrupt", Mutates, Write, Sandbox;
    /// A kernel is asked how a text could go on.
    KernelComplete = "kernel.complete", Mutates, Write, Sandbox;
    /// A kernel is restarted.
    KernelRestart = "kernel.restart", Mutates, Write, Sandbox;
    /// A kernel ends.
    KernelDelete = "kernel.delete", Mutates, Write, Sandbox;
    /// The state of a kernel is kept.
    KernelCheckpoint = "kernel.checkpoint", Mutates, Write, Sandbox;
    /// A kept state of a kernel is removed.
    KernelCheckpointDelete = "kernel.checkpoint.delete", Mutates, Write, Sandbox;
    /// A kernel returns to a kept state.
    KernelRollback = "kernel.rollback", Mutates, Write, Sandbox;
    /// A kernel is copied.
    KernelFork = "kernel.fork", Mutates, Write, Sandbox;
    /// Packages are installed for a language.
    DependenciesInstall = "dependencies.install", Mutates, Write, Sandbox;
    /// A file is read.
    FileRead = "file.read", Reads, Read, Sandbox;
    /// The lines of files are searched.
    FileGrep = "file.grep", Reads, Read, Sandbox;
    /// A file is written.
    FileWrite = "file.write", Mutates, Write, Sandbox;
    /// A file or folder is removed.
    FileRemove = "file.remove", Mutates, Write, Sandbox;
    /// A folder is made.
    FileMkdir = "file.mkdir", Mutates, Write, Sandbox;
    /// A file or folder is renamed.
    FileMove = "file.move", Mutates, Write, Sandbox;
    /// A folder is read as an archive.
    FolderRead = "folder.read", Reads, Read, Sandbox;
    /// An archive is unpacked into a folder.
    FolderWrite = "folder.write", Mutates, Write, Sandbox;
    /// A TCP connection into a sandbox is opened.
    PortForward = "port.forward", Mutates, Write, Sandbox;
    /// A token for previews is issued.
    PreviewToken = "preview.token", Mutates, Write, Sandbox;
    /// A sandbox gets another egress policy.
    EgressSet = "egress.set", Mutates, Write, Sandbox;
    /// A token for the proxy over a network is issued.
    EgressToken = "egress.token", Mutates, Write, Sandbox;
    /// A key is made.
    KeyCreate = "key.create", Mutates, Write, Server;
    /// A key is revoked.
    KeyRevoke = "key.revoke", Mutates, Write, Server;
    /// An admin's key is made while no server runs.
    KeyRecover = "key.recover", Mutates, Admin, Server;
    /// Keys that were revoked long ago are removed.
    KeyPurge = "key.purge", Mutates, Admin, Server;
    /// Settings change.
    SettingsPatch = "settings.patch", Mutates, Admin, Server;
    /// The containers of the pool are destroyed.
    PoolDrain = "pool.drain", Mutates, Admin, Server;
    /// The pool keeps another number of containers.
    PoolResize = "pool.resize", Mutates, Admin, Server;
    /// Old rows of the audit trail are removed.
    AuditCleanup = "audit.cleanup", Mutates, Admin, Server;
    /// The storage has little room left.
    StorageLow = "storage.low", Mutates, Admin, Server;
    /// The storage has room again.
    StorageRecovered = "storage.recovered", Mutates, Admin, Server;
    /// A container without a record is destroyed.
    OrphanContainer = "orphan.container", Mutates, Admin, Server;
    /// A volume without a record is removed.
    OrphanVolume = "orphan.volume", Mutates, Admin, Server;
    /// A tool session is made.
    SessionCreate = "session.create", Mutates, Write, Server;
    /// A tool session is stopped.
    SessionStop = "session.stop", Mutates, Write, Server;
    /// The sandbox of a tool session died.
    SessionDied = "session.died", Mutates, Write, Server;
    /// A file of a tool session is exported.
    SessionExport = "session.export", Mutates, Write, Sandbox;
    /// A file is uploaded to a conversation.
    ThreadUpload = "thread.upload", Mutates, Write, Server;
    /// A conversation is removed with its sessions and uploads.
    ThreadDelete = "thread.delete", Mutates, Write, Server;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_name_is_its_operations_own() {
        let names: HashSet<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(names.len(), Operation::ALL.len());
        for operation in Operation::ALL {
            assert_eq!(Operation::from_name(operation.name()), Some(*operation));
        }
        assert_eq!(Operation::from_name("sandbox.unknown"), None);
    }

    #[test]
    fn what_changes_something_needs_more_than_a_key_that_reads() {
        for operation in Operation::ALL {
            let reads = operation.effect() == Effect::Reads;
            assert_eq!(operation.permission() == Permission::Read, reads, "{operation:?}");
        }
    }
}
