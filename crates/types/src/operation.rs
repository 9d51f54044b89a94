//! The closed vocabulary of what the control plane does. An [`Operation`] is a small kind that is copied; the
//! table below says of each its name in the audit trail, which key may ask for it, whether it changes something, what it is
//! about, and in which states of a sandbox it is legal. What an operation works with are the typed arguments of the method
//! that carries it out.
//!
//! A name never changes: the rows of the audit trail carry it.

use crate::Status;

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

/// What an operation does to what the control plane keeps. A key that only reads may not ask for every operation that only
/// reads, and signs in to the console, which changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It gives out what is there, or notes it.
    Reads,
    /// It changes something, or may.
    Mutates,
}

/// The statuses in which a sandbox allows an operation, by the row of the operation. The sandbox's actor judges by it
/// before it hands out a container or changes the sandbox, and nothing else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LegalStates {
    /// Its container lives; a paused one is resumed first.
    Running,
    /// The same; a destroyed sandbox is not found, as one that never was.
    Reachable,
    /// Its volume is there, whether it runs or not.
    Stored,
    /// It is not destroyed.
    NotDestroyed,
    /// The same; a destroyed one is not found, as one that never was.
    Existing,
    /// Any: the operation is about no sandbox.
    Any,
}

impl LegalStates {
    /// Whether a sandbox of this status allows it.
    #[must_use]
    pub const fn allow(self, status: Status) -> bool {
        match self {
            Self::Running | Self::Reachable => matches!(status, Status::Ready | Status::Paused),
            Self::Stored => {
                matches!(status, Status::Ready | Status::Paused | Status::Stopped | Status::Dead)
            }
            Self::NotDestroyed | Self::Existing => !matches!(status, Status::Destroyed),
            Self::Any => true,
        }
    }
}

/// What an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The server; no sandbox.
    Server,
    /// A sandbox that has no record yet.
    NewSandbox,
    /// A sandbox that the caller may see, in one of these states.
    Sandbox(LegalStates),
}

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $permission:ident, $effect:ident, $target:ident $(($states:ident))?;)+) => {
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

            /// The least that the caller's key must allow.
            #[must_use]
            pub const fn permission(self) -> Permission {
                match self { $(Operation::$variant => Permission::$permission),+ }
            }

            /// Whether it changes something.
            #[must_use]
            pub const fn effect(self) -> Effect {
                match self { $(Operation::$variant => Effect::$effect),+ }
            }

            /// The statuses in which a sandbox allows it; of no sandbox, any.
            #[must_use]
            pub const fn states(self) -> LegalStates {
                match self.target() {
                    Target::Sandbox(states) => states,
                    Target::Server | Target::NewSandbox => LegalStates::Any,
                }
            }

            /// What it is about.
            #[must_use]
            pub const fn target(self) -> Target {
                match self { $(Operation::$variant => Target::$target $((LegalStates::$states))?),+ }
            }
        }
    };
}

operations! {
    /// A sandbox is made.
    SandboxCreate = "sandbox.create", Write, Mutates, NewSandbox;
    /// Limits, labels or environment of a sandbox change.
    SandboxPatch = "sandbox.patch", Write, Mutates, Sandbox(NotDestroyed);
    /// A sandbox is paused.
    SandboxPause = "sandbox.pause", Write, Mutates, Sandbox(Running);
    /// A sandbox goes on, or is started again.
    SandboxResume = "sandbox.resume", Write, Mutates, Sandbox(NotDestroyed);
    /// A sandbox is stopped.
    SandboxStop = "sandbox.stop", Write, Mutates, Sandbox(NotDestroyed);
    /// A sandbox is destroyed with its volume.
    SandboxDestroy = "sandbox.destroy", Write, Mutates, Sandbox(Existing);
    /// A sandbox is exported as an archive, with the values of its environment: a key that only reads sees none of them.
    SandboxExport = "sandbox.export", Write, Reads, Sandbox(Stored);
    /// A sandbox is made from an archive.
    SandboxImport = "sandbox.import", Write, Mutates, NewSandbox;
    /// Many sandboxes of all owners are stopped or destroyed.
    SandboxBulk = "sandbox.bulk", Admin, Mutates, Server;
    /// The records of sandboxes that were destroyed long ago are removed.
    SandboxPurge = "sandbox.purge", Admin, Mutates, Server;
    /// A sandbox is made of another one, or of a snapshot.
    SandboxFork = "sandbox.fork", Write, Mutates, Sandbox(Stored);
    /// A snapshot of a sandbox's volume is made.
    SnapshotCreate = "snapshot.create", Write, Mutates, Sandbox(Stored);
    /// A snapshot is labelled.
    SnapshotLabel = "snapshot.label", Write, Mutates, Sandbox(NotDestroyed);
    /// A snapshot is deleted.
    SnapshotDelete = "snapshot.delete", Write, Mutates, Sandbox(NotDestroyed);
    /// The files that differ between two snapshots are listed.
    SnapshotDiff = "snapshot.diff", Read, Reads, Sandbox(Stored);
    /// A sandbox's volume becomes what it was.
    SnapshotRollback = "snapshot.rollback", Write, Mutates, Sandbox(Stored);
    /// A command runs.
    Exec = "exec", Write, Mutates, Sandbox(Running);
    /// A command is given input.
    ExecStdin = "exec.stdin", Write, Mutates, Sandbox(Running);
    /// A command is sent a signal.
    ExecSignal = "exec.signal", Write, Mutates, Sandbox(Running);
    /// A command is killed with its processes.
    ExecKill = "exec.kill", Write, Mutates, Sandbox(Running);
    /// The output of a command that has ended is removed.
    ExecForget = "exec.forget", Write, Mutates, Sandbox(Running);
    /// A terminal is opened.
    Terminal = "terminal", Write, Mutates, Sandbox(Running);
    /// A client connects to an open terminal.
    TerminalAttach = "terminal.attach", Write, Mutates, Sandbox(Running);
    /// A kernel is started.
    KernelStart = "kernel.start", Write, Mutates, Sandbox(Running);
    /// A cell runs.
    KernelExecute = "kernel.execute", Write, Mutates, Sandbox(Running);
    /// A kernel's cell is interrupted.
    KernelInterrupt = "kernel.interrupt", Write, Mutates, Sandbox(Running);
    /// A kernel is asked how a text could go on.
    KernelComplete = "kernel.complete", Write, Reads, Sandbox(Running);
    /// A kernel is restarted.
    KernelRestart = "kernel.restart", Write, Mutates, Sandbox(Running);
    /// A kernel ends.
    KernelDelete = "kernel.delete", Write, Mutates, Sandbox(Running);
    /// The state of a kernel is kept.
    KernelCheckpoint = "kernel.checkpoint", Write, Mutates, Sandbox(Running);
    /// A kept state of a kernel is removed.
    KernelCheckpointDelete = "kernel.checkpoint.delete", Write, Mutates, Sandbox(Running);
    /// A kernel returns to a kept state.
    KernelRollback = "kernel.rollback", Write, Mutates, Sandbox(Running);
    /// A kernel is copied.
    KernelFork = "kernel.fork", Write, Mutates, Sandbox(Running);
    /// Packages are installed for a language.
    DependenciesInstall = "dependencies.install", Write, Mutates, Sandbox(Running);
    /// A file is read.
    FileRead = "file.read", Read, Reads, Sandbox(Stored);
    /// The lines of files are searched.
    FileGrep = "file.grep", Read, Reads, Sandbox(Stored);
    /// A file is written.
    FileWrite = "file.write", Write, Mutates, Sandbox(Stored);
    /// A file or folder is removed.
    FileRemove = "file.remove", Write, Mutates, Sandbox(Stored);
    /// A folder is made.
    FileMkdir = "file.mkdir", Write, Mutates, Sandbox(Stored);
    /// A file or folder is renamed.
    FileMove = "file.move", Write, Mutates, Sandbox(Stored);
    /// A folder is read as an archive.
    FolderRead = "folder.read", Read, Reads, Sandbox(Stored);
    /// An archive is unpacked into a folder.
    FolderWrite = "folder.write", Write, Mutates, Sandbox(Stored);
    /// A TCP connection into a sandbox is opened.
    PortForward = "port.forward", Write, Mutates, Sandbox(Reachable);
    /// A token for previews is issued.
    PreviewToken = "preview.token", Write, Mutates, Sandbox(Existing);
    /// A token for previews is revoked.
    PreviewRevoke = "preview.revoke", Write, Mutates, Sandbox(Existing);
    /// A volume is made.
    VolumeCreate = "volume.create", Write, Mutates, Server;
    /// A volume gets another limit.
    VolumeResize = "volume.resize", Write, Mutates, Server;
    /// A volume is deleted.
    VolumeDelete = "volume.delete", Write, Mutates, Server;
    /// A skill is made, from a text or from a package.
    SkillCreate = "skill.create", Write, Mutates, Server;
    /// A skill's name, description or instructions change.
    SkillUpdate = "skill.update", Write, Mutates, Server;
    /// A skill is deleted; what was installed of it stays.
    SkillDelete = "skill.delete", Write, Mutates, Server;
    /// Skills are installed in a sandbox.
    SkillInstall = "skill.install", Write, Mutates, Sandbox(Stored);
    /// An image is made from an archive.
    ImageImport = "image.import", Admin, Mutates, Server;
    /// An image is pulled from a registry.
    ImagePull = "image.pull", Write, Mutates, Server;
    /// A build of an image is cancelled, or its record removed.
    ImageCancel = "image.cancel", Write, Mutates, Server;
    /// An image is made from a template.
    ImageBuild = "image.build", Admin, Mutates, Server;
    /// An image is read as an archive.
    ImageExport = "image.export", Admin, Reads, Server;
    /// An image is pushed to a registry.
    ImagePush = "image.push", Admin, Mutates, Server;
    /// What is known of an image changes.
    ImagePatch = "image.patch", Admin, Mutates, Server;
    /// An image is removed.
    ImageDelete = "image.delete", Admin, Mutates, Server;
    /// A sandbox gets another egress policy.
    EgressSet = "egress.set", Write, Mutates, Sandbox(NotDestroyed);
    /// A token for the proxy over a network is issued.
    EgressToken = "egress.token", Write, Mutates, Sandbox(Existing);
    /// A key is made.
    KeyCreate = "key.create", Write, Mutates, Server;
    /// A key is revoked.
    KeyRevoke = "key.revoke", Write, Mutates, Server;
    /// An admin's key is made while no server runs.
    KeyRecover = "key.recover", Admin, Mutates, Server;
    /// Keys that were revoked long ago are removed.
    KeyPurge = "key.purge", Admin, Mutates, Server;
    /// A browser signs in to the console with a key.
    ConsoleSignIn = "console.sign_in", Read, Mutates, Server;
    /// A browser signs out of the console.
    ConsoleSignOut = "console.sign_out", Read, Mutates, Server;
    /// Settings change.
    SettingsPatch = "settings.patch", Admin, Mutates, Server;
    /// An owner changes the defaults of its own sandboxes.
    ConfigSet = "config.set", Write, Mutates, Server;
    /// The containers of the pool are destroyed.
    PoolDrain = "pool.drain", Admin, Mutates, Server;
    /// The pool keeps another number of containers.
    PoolResize = "pool.resize", Admin, Mutates, Server;
    /// Old rows of the audit trail are removed.
    AuditCleanup = "audit.cleanup", Admin, Mutates, Server;
    /// The storage has little room left.
    StorageLow = "storage.low", Admin, Reads, Server;
    /// The storage has room again.
    StorageRecovered = "storage.recovered", Admin, Reads, Server;
    /// A container without a record is destroyed.
    OrphanContainer = "orphan.container", Admin, Mutates, Server;
    /// A volume without a record is removed.
    OrphanVolume = "orphan.volume", Admin, Mutates, Server;
    /// A tool session is made.
    SessionCreate = "session.create", Write, Mutates, Server;
    /// A tool session is stopped.
    SessionStop = "session.stop", Write, Mutates, Server;
    /// The sandbox of a tool session died.
    SessionDied = "session.died", Write, Mutates, Server;
    /// A file of a tool session is exported.
    SessionExport = "session.export", Write, Mutates, Sandbox(Stored);
    /// A file is uploaded to a conversation.
    ThreadUpload = "thread.upload", Write, Mutates, Server;
    /// A conversation is removed with its sessions and uploads.
    ThreadDelete = "thread.delete", Write, Mutates, Server;
    /// A conversation is begun.
    ThreadCreate = "thread.create", Write, Mutates, Server;
    /// Metadata of a conversation are set.
    ThreadPatch = "thread.patch", Write, Mutates, Server;
    /// A conversation is copied.
    ThreadCopy = "thread.copy", Write, Mutates, Server;
    /// The state of a conversation is changed by its client.
    ThreadState = "thread.state", Write, Mutates, Server;
    /// An assistant is made.
    AssistantCreate = "assistant.create", Write, Mutates, Server;
    /// An assistant is changed, or an older version of it made the latest.
    AssistantPatch = "assistant.patch", Write, Mutates, Server;
    /// An assistant is deleted.
    AssistantDelete = "assistant.delete", Write, Mutates, Server;
    /// An item is stored beside conversations.
    ItemPut = "item.put", Write, Mutates, Server;
    /// Such an item is removed.
    ItemDelete = "item.delete", Write, Mutates, Server;
    /// The agent begins to work in a conversation.
    RunStart = "run.start", Write, Mutates, Server;
    /// A run of the agent is cancelled.
    RunCancel = "run.cancel", Write, Mutates, Server;
    /// The record of a run is removed.
    RunDelete = "run.delete", Write, Mutates, Server;
    /// An owner sets the model that its conversations use.
    ModelSettings = "agent.settings", Write, Mutates, Server;
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
}
