//! Which operation each command of a sandbox belongs to, so that an egress decision can name it. Commands
//! that ended are remembered while their container lives: processes that they left running may connect later.
//!
//! All kernels of a sandbox are one command, their kernel manager's. Its connections belong to the running
//! cell where there is one, and otherwise to the operation that first started the kernel manager.

use atoll_audit::Redactor;
use atoll_store::{OperationId, SandboxId};
use atoll_types::ExecId;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Ended commands of one sandbox that are remembered.
const MOST_ENDED: usize = 1024;

struct Known {
    operation: OperationId,
    /// Redacts the secrets that only this command was given.
    redactor: Option<Redactor>,
    /// It was given secrets, but a restart lost them.
    blind: bool,
    runs: bool,
}

#[derive(Default)]
struct Commands {
    known: HashMap<ExecId, Known>,
    ended: VecDeque<ExecId>,
    /// Cells that run, each with its kernel manager.
    cells: Vec<(ExecId, OperationId)>,
    /// The kernel manager, and the operation that first started it.
    manager: Option<(ExecId, OperationId)>,
    /// Whether commands that ended are still to be remembered.
    kept: bool,
}

impl Commands {
    fn is_empty(&self) -> bool {
        self.known.is_empty() && self.cells.is_empty() && !self.kept
    }
}

/// The commands of every sandbox.
#[derive(Default)]
pub(crate) struct Running(Mutex<HashMap<SandboxId, Commands>>);

/// A command that runs, until this is dropped.
pub(crate) struct Entered {
    running: Arc<Running>,
    sandbox: SandboxId,
    exec: ExecId,
    operation: OperationId,
}

/// A cell that runs, until this is dropped.
pub(crate) struct EnteredCell {
    running: Arc<Running>,
    sandbox: SandboxId,
    manager: ExecId,
    operation: OperationId,
}

/// The secrets of an operation.
pub(crate) enum Secrets {
    /// None but the sandbox's own.
    None,
    /// Those that this redacts.
    Own(Redactor),
    /// There were secrets, but a restart lost them.
    Forgotten,
}

impl Running {
    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, Commands>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A command begins. An operation that joins a running command does not replace that command's operation.
    pub(crate) fn enter(
        self: &Arc<Self>,
        sandbox: SandboxId,
        exec: ExecId,
        operation: OperationId,
        secrets: Secrets,
    ) -> Entered {
        let (redactor, blind) = match secrets {
            Secrets::None => (None, false),
            Secrets::Own(redactor) => (Some(redactor), false),
            Secrets::Forgotten => (None, true),
        };
        let mut all = self.all();
        let known = all.entry(sandbox).or_default();
        known.known.entry(exec).or_insert(Known { operation, redactor, blind, runs: true });
        Entered { running: Arc::clone(self), sandbox, exec, operation }
    }

    /// A cell begins.
    pub(crate) fn enter_cell(
        self: &Arc<Self>,
        sandbox: SandboxId,
        manager: ExecId,
        operation: OperationId,
    ) -> EnteredCell {
        let mut all = self.all();
        let commands = all.entry(sandbox).or_default();
        commands.cells.push((manager, operation));
        if commands.manager.is_none_or(|(known, _)| known != manager) {
            commands.manager = Some((manager, operation));
        }
        EnteredCell { running: Arc::clone(self), sandbox, manager, operation }
    }

    fn leave_cell(&self, sandbox: SandboxId, cell: (ExecId, OperationId)) {
        let mut all = self.all();
        let Some(commands) = all.get_mut(&sandbox) else { return };
        if let Some(at) = commands.cells.iter().position(|one| *one == cell) {
            commands.cells.swap_remove(at);
        }
        if commands.is_empty() {
            all.remove(&sandbox);
        }
    }

    /// The container of a sandbox is served: commands that end are to be remembered.
    pub(super) fn keep(&self, sandbox: SandboxId) {
        self.all().entry(sandbox).or_default().kept = true;
    }

    /// The container of a sandbox is gone.
    pub(super) fn forget(&self, sandbox: SandboxId) {
        let mut all = self.all();
        if let Some(commands) = all.get_mut(&sandbox) {
            (commands.kept, commands.manager) = (false, None);
            commands.ended.clear();
            commands.known.retain(|_, known| known.runs);
            if commands.is_empty() {
                all.remove(&sandbox);
            }
        }
    }

    /// The operation of a command.
    pub(super) fn operation(&self, sandbox: SandboxId, exec: ExecId) -> Option<OperationId> {
        let all = self.all();
        let commands = all.get(&sandbox)?;
        if let Some(known) = commands.known.get(&exec) {
            return Some(known.operation);
        }
        let first = commands.manager.filter(|(manager, _)| *manager == exec).map(|(_, operation)| operation);
        let mut cells = commands.cells.iter().filter(|(manager, _)| *manager == exec);
        match (cells.next(), cells.next()) {
            (Some((_, operation)), None) => Some(*operation),
            _ => first,
        }
    }

    /// The operation of the running command, where there is exactly one.
    pub(super) fn only(&self, sandbox: SandboxId) -> Option<OperationId> {
        let all = self.all();
        let commands = all.get(&sandbox)?;
        let running = commands.known.values().filter(|known| known.runs).map(|known| known.operation);
        let mut running = running.chain(commands.cells.iter().map(|(_, operation)| *operation));
        let first = running.next()?;
        running.next().is_none().then_some(first)
    }

    /// The redactors of secrets that only commands of this sandbox were given.
    pub(super) fn redactors(&self, sandbox: SandboxId) -> Vec<Redactor> {
        let all = self.all();
        all.get(&sandbox).map_or_else(Vec::new, |commands| {
            commands.known.values().filter_map(|known| known.redactor.clone()).collect()
        })
    }

    /// Whether a restart lost secrets of this operation, so that its rows cannot be redacted.
    pub(super) fn is_blind(&self, sandbox: SandboxId, operation: Option<OperationId>) -> bool {
        let all = self.all();
        all.get(&sandbox).is_some_and(|commands| {
            commands
                .known
                .values()
                .any(|known| known.blind && operation.is_none_or(|operation| operation == known.operation))
        })
    }

    fn leave(&self, sandbox: SandboxId, exec: ExecId, operation: OperationId) {
        let mut all = self.all();
        let Some(commands) = all.get_mut(&sandbox) else { return };
        match commands.known.get_mut(&exec) {
            Some(known) if known.operation == operation => known.runs = false,
            // It joined another operation's command.
            _ => return,
        }
        commands.ended.push_back(exec);
        while commands.ended.len() > if commands.kept { MOST_ENDED } else { 0 } {
            if let Some(oldest) = commands.ended.pop_front()
                && commands.known.get(&oldest).is_some_and(|known| !known.runs)
            {
                commands.known.remove(&oldest);
            }
        }
        if commands.is_empty() {
            all.remove(&sandbox);
        }
    }
}

impl Drop for EnteredCell {
    fn drop(&mut self) {
        self.running.leave_cell(self.sandbox, (self.manager, self.operation));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.running.leave(self.sandbox, self.exec, self.operation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_known_while_they_run_and_after_while_their_container_lives() {
        let (running, sandbox) = (Arc::new(Running::default()), SandboxId::random());
        let (first, second) = (ExecId::random(), ExecId::random());
        let (one, two) = (OperationId::random(), OperationId::random());
        let entered = running.enter(sandbox, first, one, Secrets::None);
        assert_eq!(running.only(sandbox), Some(one));
        let joined = running.enter(sandbox, first, two, Secrets::None);
        drop(joined);
        assert_eq!((running.operation(sandbox, first), running.only(sandbox)), (Some(one), Some(one)));
        let other = running.enter(sandbox, second, two, Secrets::Forgotten);
        assert_eq!(running.only(sandbox), None, "there are two");
        assert!(running.is_blind(sandbox, Some(two)) && !running.is_blind(sandbox, Some(one)));
        running.keep(sandbox);
        drop(entered);
        assert_eq!((running.operation(sandbox, first), running.only(sandbox)), (Some(one), Some(two)));
        drop(other);
        running.forget(sandbox);
        assert!(running.all().is_empty());
        drop(running.enter(sandbox, first, one, Secrets::None));
        assert!(running.all().is_empty(), "it is not served");
    }

    #[test]
    fn egress_of_a_kernel_manager_belongs_to_the_running_cell() {
        let (running, sandbox) = (Arc::new(Running::default()), SandboxId::random());
        running.keep(sandbox);
        let (manager, ops) = (ExecId::random(), [(); 3].map(|()| OperationId::random()));
        let of = || running.operation(sandbox, manager);
        let first = running.enter_cell(sandbox, manager, ops[0]);
        assert_eq!((of(), running.only(sandbox)), (Some(ops[0]), Some(ops[0])));
        drop(first);
        assert_eq!((of(), running.only(sandbox)), (Some(ops[0]), None), "something it left running");
        let second = running.enter_cell(sandbox, manager, ops[1]);
        assert_eq!(of(), Some(ops[1]));
        let third = running.enter_cell(sandbox, manager, ops[2]);
        assert_eq!((of(), running.only(sandbox)), (Some(ops[0]), None), "either may have connected");
        drop(second);
        assert_eq!((of(), running.only(sandbox)), (Some(ops[2]), Some(ops[2])));
        running.forget(sandbox);
        drop(third);
        assert!(running.all().is_empty());
    }

    #[test]
    fn not_all_that_ended_is_remembered() {
        let (running, sandbox) = (Arc::new(Running::default()), SandboxId::random());
        running.keep(sandbox);
        let first = ExecId::random();
        drop(running.enter(sandbox, first, OperationId::random(), Secrets::None));
        for _ in 0..MOST_ENDED {
            drop(running.enter(sandbox, ExecId::random(), OperationId::random(), Secrets::None));
        }
        assert_eq!(running.operation(sandbox, first), None);
        assert_eq!(running.all()[&sandbox].known.len(), MOST_ENDED);
    }
}
