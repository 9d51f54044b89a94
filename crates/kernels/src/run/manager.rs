//! All kernels of a sandbox, and the requests to them. A request is checked here, and carried out by the task of
//! its kernel.

use super::{
    interpreter::{LiveInterpreter, Variables},
    journal::Journal,
    kernel::{Control, Kernel, KernelView, Plan},
    out::Out,
    processes::Known,
    reaper::Reaper,
};
use crate::{
    Answer, Execute, Fork, KernelInfo, KernelStatus, LONGEST_CODE, MOST_KERNELS, Request, RequestKind, Start,
};
use atoll_types::{CellId, Error, ErrorCode, ExecId, KernelId, Result, time::now_ms};
use std::{cell::RefCell, path::Path, rc::Rc};

const WORKSPACE: &str = "/workspace";
/// The longest name of a checkpoint, in characters.
const LONGEST_NAME: usize = 200;

pub(super) struct KernelManager {
    pub(super) out: Out,
    pub(super) journal: Journal,
    pub(super) reaper: Rc<Reaper>,
    /// Whether the kernel manager adopts orphans of its interpreters.
    adopts: bool,
    /// The oldest first.
    kernels: RefCell<Vec<(KernelId, Rc<KernelView>)>>,
    /// Those that the kernel manager was started with.
    own_variables: Variables,
    /// On top of them, those that the host has set since.
    variables: RefCell<Variables>,
}

impl KernelManager {
    pub(super) fn new(own_variables: Variables, adopts: bool) -> Rc<Self> {
        Rc::new(Self {
            out: Out::default(),
            journal: Journal::default(),
            reaper: Rc::default(),
            adopts,
            kernels: RefCell::default(),
            own_variables,
            variables: RefCell::default(),
        })
    }

    /// What every interpreter starts with.
    pub(super) fn variables(&self) -> Variables {
        let mut all = self.own_variables.clone();
        all.extend(self.variables.borrow().clone());
        all
    }

    /// The known processes, and the kernel that owns each.
    pub(super) fn known(&self) -> Known {
        let mut known = Known { adopts: self.adopts, ..Known::default() };
        for (id, picture) in self.kernels.borrow().iter() {
            let live = picture.info.borrow().pid.and_then(|pid| i32::try_from(pid).ok());
            let waiting = picture.waiting.borrow();
            known.owners.extend(live.into_iter().chain(waiting.iter().copied()).map(|pid| (pid, *id)));
        }
        known
    }

    /// Carries out a request, or passes it to a kernel's task. Its answer may come later.
    pub(super) fn ask(self: &Rc<Self>, request: Request) {
        let Request { tag, ask } = request;
        let done = match ask {
            RequestKind::Start(start) => self.start(tag, start),
            RequestKind::Execute(execute) => self.execute(tag, execute),
            RequestKind::Follow { cell, end_only } => self.follow(tag, cell, end_only),
            RequestKind::Interrupt { kernel, cell } => self.interrupt(tag, kernel, cell),
            RequestKind::Complete { kernel, code } => self.complete(tag, kernel, code),
            RequestKind::Restart { kernel } => self.send(kernel, Control::Restart { tag }),
            RequestKind::Delete { kernel } => self.send(kernel, Control::Delete { tag }),
            RequestKind::List => {
                let all = self.kernels.borrow().iter().map(|(_, p)| p.info.borrow().clone()).collect();
                self.out.answer(tag, Ok(Answer::Kernels(all)));
                Ok(())
            }
            RequestKind::Checkpoint { kernel, checkpoint, name } => {
                let name = name.chars().filter(|c| !c.is_control()).take(LONGEST_NAME).collect();
                self.send(kernel, Control::Checkpoint { tag, checkpoint, name })
            }
            RequestKind::Rollback { kernel, checkpoint } => {
                self.send(kernel, Control::Rollback { tag, checkpoint })
            }
            RequestKind::DropCheckpoint { kernel, checkpoint } => {
                self.send(kernel, Control::Drop { tag, checkpoint })
            }
            RequestKind::Fork(fork) => self.fork(tag, fork),
            RequestKind::Configure { variables } => self.configure(tag, variables),
        };
        if let Err(error) = done {
            self.out.answer(tag, Err(error));
        }
    }

    fn find(&self, kernel: KernelId) -> Option<Rc<KernelView>> {
        self.kernels.borrow().iter().find(|(id, _)| *id == kernel).map(|(_, picture)| picture.clone())
    }

    fn send(&self, kernel: KernelId, control: Control) -> Result<()> {
        let sent = self.find(kernel).map(|picture| picture.control.send(control));
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => {
                Err(Error::new(ErrorCode::NotFound, "there is no such kernel").at("kernel"))
            }
        }
    }

    fn start(self: &Rc<Self>, tag: ExecId, start: Start) -> Result<()> {
        let Start { kernel, language, default, working_directory, variables } = start;
        let same =
            |info: &KernelInfo| info.kernel == kernel || default && info.default && info.language == language;
        let known = self.kernels.borrow().iter().find(|(_, p)| same(&p.info.borrow())).map(|(id, _)| *id);
        if let Some(known) = known {
            return self.send(known, Control::Wait { tag });
        }
        self.room()?;
        check_variables(&variables)?;
        let directory = Path::new(WORKSPACE).join(working_directory);
        let info = KernelInfo { default, ..new_info(kernel, language) };
        let plan = Plan { language, directory, variables };
        let mut kernel = Kernel::new(self.clone(), info, plan, tag);
        // A kernel that cannot start is not registered.
        kernel.start()?;
        self.keep(kernel);
        Ok(())
    }

    fn room(&self) -> Result<()> {
        if self.kernels.borrow().len() < MOST_KERNELS {
            return Ok(());
        }
        let message = format!("a sandbox has at most {MOST_KERNELS} kernels; delete one first");
        Err(Error::new(ErrorCode::LimitExceeded, message))
    }

    fn keep(&self, kernel: Kernel) {
        self.kernels.borrow_mut().push((kernel.id, kernel.picture.clone()));
        tokio::task::spawn_local(kernel.run());
    }

    /// A kernel that begins with the state of another.
    pub(super) fn adopt(
        self: &Rc<Self>,
        from: &Kernel,
        tag: ExecId,
        new: KernelId,
        live: LiveInterpreter,
        count: u64,
    ) {
        // The fork was requested twice before it existed; dropped, the second copy ends.
        let again = if self.is_fork_of(new, from.id) {
            self.send(new, Control::Wait { tag })
        } else {
            self.may_be_new(new)
        };
        match again {
            Err(error) => return self.out.answer(tag, Err(error)),
            Ok(()) if self.find(new).is_some() => return,
            Ok(()) => {}
        }
        let parent = Some(from.id);
        let interpreter = from.picture.info.borrow().interpreter.clone();
        let info = KernelInfo { parent, interpreter, ..new_info(new, from.plan.language) };
        let mut kernel = Kernel::new(self.clone(), info, from.plan.clone(), tag);
        kernel.begin_with(live, count);
        self.keep(kernel);
    }

    fn is_fork_of(&self, new: KernelId, kernel: KernelId) -> bool {
        self.find(new).is_some_and(|picture| picture.info.borrow().parent == Some(kernel))
    }

    fn may_be_new(&self, kernel: KernelId) -> Result<()> {
        if self.find(kernel).is_some() {
            return Err(Error::new(ErrorCode::AlreadyExists, "there is such a kernel already").at("new"));
        }
        self.room()
    }

    pub(super) fn remove(&self, kernel: KernelId) {
        self.kernels.borrow_mut().retain(|(id, _)| *id != kernel);
    }

    fn execute(&self, tag: ExecId, execute: Execute) -> Result<()> {
        if let Some(record) = self.journal.find(execute.cell) {
            self.out.answer(tag, Ok(Answer::Queued { joined: true }));
            // A cell that is not streamed sends only its end, when it comes.
            if execute.stream || record.has_ended() {
                record.replay(&self.out, execute.stream);
            }
            return Ok(());
        }
        check_length(&execute.code)?;
        let (cell, kernel) = (execute.cell, execute.kernel);
        let record = self.journal.insert(cell, kernel, execute.stream);
        let sent = self.send(kernel, Control::Execute { tag, execute: Box::new(execute), record });
        if sent.is_err() {
            self.journal.forget(cell);
        }
        sent
    }

    fn complete(&self, tag: ExecId, kernel: KernelId, code: String) -> Result<()> {
        check_length(&code)?;
        self.send(kernel, Control::Complete { tag, code })
    }

    fn follow(&self, tag: ExecId, cell: CellId, end_only: bool) -> Result<()> {
        let record = self.journal.find(cell).ok_or_else(no_cell)?;
        self.out.answer(tag, Ok(Answer::Queued { joined: true }));
        if end_only {
            record.stop_streaming();
        }
        record.replay(&self.out, !end_only);
        Ok(())
    }

    fn interrupt(&self, tag: ExecId, kernel: KernelId, cell: Option<CellId>) -> Result<()> {
        if let Some(cell) = cell {
            self.journal.find(cell).filter(|record| record.kernel == kernel).ok_or_else(no_cell)?;
        }
        self.send(kernel, Control::Interrupt { tag, cell })
    }

    fn fork(&self, tag: ExecId, fork: Fork) -> Result<()> {
        let Fork { kernel, checkpoint, new } = fork;
        // A repeated request: the existing fork is the answer.
        if self.is_fork_of(new, kernel) {
            return self.send(new, Control::Wait { tag });
        }
        self.may_be_new(new)?;
        self.send(kernel, Control::Fork { tag, checkpoint, new })
    }

    fn configure(&self, tag: ExecId, variables: Variables) -> Result<()> {
        check_variables(&variables)?;
        *self.variables.borrow_mut() = variables;
        for (_, picture) in self.kernels.borrow().iter() {
            let _ = picture.control.send(Control::Variables);
        }
        self.out.answer(tag, Ok(Answer::Done));
        Ok(())
    }

    /// Ends all kernels.
    pub(super) async fn end(&self) {
        let all: Vec<_> = self.kernels.borrow().iter().map(|(_, picture)| picture.control.clone()).collect();
        for control in all {
            let _ = control.send(Control::End);
            control.closed().await;
        }
    }
}

fn check_length(code: &str) -> Result<()> {
    if code.len() > LONGEST_CODE {
        let message = format!("code must have at most {LONGEST_CODE} bytes");
        return Err(Error::new(ErrorCode::TooLarge, message).at("code"));
    }
    Ok(())
}

fn no_cell() -> Error {
    Error::new(ErrorCode::NotFound, "there is no such cell, or it was long ago").at("cell")
}

fn new_info(kernel: KernelId, language: crate::Language) -> KernelInfo {
    let now = now_ms().unsigned_abs();
    KernelInfo {
        kernel,
        language,
        default: false,
        status: KernelStatus::Starting,
        interpreter: String::new(),
        pid: None,
        execution_count: 0,
        restarts: 0,
        running: None,
        queued: 0,
        death: None,
        checkpoints: Vec::new(),
        parent: None,
        started_unix_ms: now,
        active_unix_ms: now,
    }
}

/// Refuses names and values that no environment can hold.
fn check_variables(variables: &Variables) -> Result<()> {
    let bad = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if variables.iter().any(bad) {
        let message = "a name must not be empty or contain '=', and nothing may contain a NUL byte";
        return Err(Error::invalid("variables", message));
    }
    Ok(())
}
