//! All commands that are known: running ones, and ended ones until they are forgotten.
//!
//! One thread runs all of this, so a lock is never waited for and never held across an await.

use super::{
    clock::StillClock,
    environment::{self, Variables},
    oom::OomCounter,
    record::{Exec, Phase},
    share::Shares,
    spool::SpoolDirectory,
};
use atoll_guest_proto::{GuestConfig, v1::ConfigureRequest};
use atoll_types::{Error, ErrorCode, ExecId, Result};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat};
use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{FromRawFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

#[derive(Clone)]
pub(crate) struct Execs(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) config: GuestConfig,
    pub(crate) spool: SpoolDirectory,
    pub(crate) oom: OomCounter,
    pub(crate) clock: StillClock,
    pub(crate) shares: Shares,
    /// This program, for its tools; none where the kernel does not give it.
    pub(crate) own_program: Option<OwnedFd>,
    /// A view of /proc in which a command's chance to be killed for memory can be written.
    pub(crate) proc: OwnedFd,
    table: Mutex<Table>,
}

struct Table {
    records: BTreeMap<ExecId, Arc<Exec>>,
    /// Commands without a living process, oldest first.
    gone: VecDeque<ExecId>,
    environment: Variables,
    limits: ProcessLimits,
    spool_bytes: u64,
    output_limit: u64,
}

/// Limits that the kernel keeps for each command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessLimits {
    /// Open files of one process.
    pub(crate) open_files: u32,
    /// Processes and threads of the command's user; 0: none.
    pub(crate) processes: u32,
}

/// What a command starts with.
pub(crate) struct Settings {
    pub(crate) environment: Variables,
    pub(crate) limits: ProcessLimits,
    /// The output limit of a command that sets none itself.
    pub(crate) output_limit: u64,
}

/// Opened for execution only: a tool needs no path to it, and none is mounted inside.
fn own_program() -> Option<OwnedFd> {
    openat(CWD, c"/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

impl std::ops::Deref for Execs {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Execs {
    pub(crate) fn new(config: &GuestConfig, proc: OwnedFd) -> Result<Self, String> {
        environment::validate(&config.environment).map_err(|e| e.message)?;
        let spool = match config.spool_fd {
            Some(fd) => inherited(fd, "spool_fd")?,
            None => own_spool().map_err(|e| format!("cannot make a spool: {e}"))?,
        };
        let stat = fstat(&spool).map_err(|e| format!("spool_fd: {e}"))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err("spool_fd is not a directory".into());
        }
        let oom = config.oom_fd.map(|fd| inherited(fd, "oom_fd")).transpose()?;
        let clock = config.clock_fd.map(|fd| inherited(fd, "clock_fd")).transpose()?;
        Ok(Self(Arc::new(Shared {
            spool: SpoolDirectory::new(spool),
            oom: OomCounter::new(oom),
            clock: StillClock::new(clock),
            shares: Shares::of(config.spool_bytes),
            own_program: own_program(),
            proc,
            table: Mutex::new(Table {
                records: BTreeMap::new(),
                gone: VecDeque::new(),
                environment: config.environment.clone(),
                limits: ProcessLimits { open_files: config.open_files, processes: config.processes },
                spool_bytes: config.spool_bytes,
                output_limit: config.output_limit,
            }),
            config: config.clone(),
        })))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what later commands start with.
    pub(crate) fn configure(&self, request: ConfigureRequest) -> Result<()> {
        let ConfigureRequest {
            set_environment,
            environment,
            open_files,
            spool_bytes,
            output_limit,
            processes,
        } = request;
        environment::validate(&environment)?;
        let mut table = self.table();
        if set_environment {
            table.environment = environment.into_iter().collect();
        }
        if open_files != 0 {
            table.limits.open_files = open_files;
        }
        if processes != 0 {
            table.limits.processes = processes;
        }
        if spool_bytes != 0 {
            table.spool_bytes = spool_bytes;
            self.shares.resize(spool_bytes);
        }
        if output_limit != 0 {
            table.output_limit = output_limit;
        }
        Ok(())
    }

    /// What a command starts with.
    pub(crate) fn settings(&self) -> Settings {
        let table = self.table();
        let Table { environment, limits, output_limit, .. } = &*table;
        Settings { environment: environment.clone(), limits: *limits, output_limit: *output_limit }
    }

    pub(crate) fn find(&self, id: ExecId) -> Option<Arc<Exec>> {
        self.table().records.get(&id).cloned()
    }

    /// The command with this id, as the host spells it.
    pub(crate) fn get(&self, id: &str) -> Result<Arc<Exec>> {
        let found = self.find(parse_id(id)?);
        found.ok_or_else(|| Error::new(ErrorCode::NotFound, "there is no command with this id").at("exec_id"))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Exec>> {
        self.table().records.values().cloned().collect()
    }

    pub(crate) fn insert(&self, exec: Arc<Exec>) {
        let (id, gone) = (exec.id, exec.status().gone);
        self.table().records.insert(id, exec);
        if gone {
            self.note_gone(id);
        }
    }

    /// No process of this command is left. The oldest such commands are forgotten when there are too many.
    pub(crate) fn note_gone(&self, id: ExecId) {
        let mut table = self.table();
        if table.records.contains_key(&id) {
            table.gone.push_back(id);
        }
        while table.gone.len() > self.config.max_ended_execs {
            let Some(oldest) = table.gone.pop_front() else { break };
            table.records.remove(&oldest);
            self.spool.remove(oldest);
        }
        self.make_room(&table);
    }

    /// Ended commands may hold half of the spool, so that running ones have the other half. The oldest lose their
    /// output first and stay listed; the latest keeps it, because a client may still be reading it.
    fn make_room(&self, table: &Table) {
        let ended = || table.gone.iter().filter_map(|id| table.records.get(id));
        let mut held: u64 = ended().map(|exec| exec.spooled()).sum();
        for exec in ended().take(table.gone.len().saturating_sub(1)) {
            if held <= table.spool_bytes / 2 {
                return;
            }
            // Most printed nothing or lost it earlier, and have no file to remove.
            if exec.spooled() == 0 {
                continue;
            }
            held -= exec.spooled();
            exec.update(|s| s.extent.evict());
            self.spool.remove(exec.id);
        }
    }

    /// Frees an ended command. One whose processes live on stays, so that they can be found.
    pub(crate) fn forget(&self, id: &str) -> Result<()> {
        let exec = self.get(id)?;
        let status = exec.status();
        if status.phase < Phase::Ended {
            return Err(Error::new(ErrorCode::Conflict, "the command still runs"));
        }
        if !status.gone {
            return Err(Error::new(ErrorCode::Conflict, "something that the command started still runs"));
        }
        self.remove(exec.id);
        Ok(())
    }

    pub(crate) fn remove(&self, id: ExecId) {
        let mut table = self.table();
        table.records.remove(&id);
        table.gone.retain(|other| *other != id);
        self.spool.remove(id);
    }

    /// The shims that live, without that of one command.
    pub(crate) fn shims_except(&self, lost: ExecId) -> Vec<i32> {
        let all = self.all();
        let alive = all.iter().filter(|e| e.id != lost && !e.status().gone);
        alive.filter_map(|e| e.control.as_ref()).map(super::control::Control::shim).collect()
    }
}

pub(crate) fn parse_id(id: &str) -> Result<ExecId> {
    id.parse().map_err(|e: atoll_types::IdError| Error::invalid("exec_id", e.to_string()))
}

/// Takes a descriptor that the launcher has left open for us.
pub(crate) fn inherited(fd: i32, name: &str) -> Result<OwnedFd, String> {
    if fd < 3 {
        return Err(format!("{name} must be a descriptor from 3 on"));
    }
    // SAFETY: only checks whether the descriptor is open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(format!("{name} is not open"));
    }
    // SAFETY: it is open, and each number of the configuration is taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A directory of PID 1's own in /tmp, where the runtime passes none. A user's process may have left a file of
/// that name, so it must be a directory of root's.
fn own_spool() -> rustix::io::Result<OwnedFd> {
    let name = "/tmp/.atoll-spool";
    match mkdirat(CWD, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, name, flags, Mode::empty())?;
    if fstat(&fd)?.st_uid != 0 {
        return Err(rustix::io::Errno::PERM);
    }
    rustix::fs::fchmod(&fd, Mode::RWXU)?;
    Ok(fd)
}
