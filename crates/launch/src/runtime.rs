//! What starts a container from its bundle: libcontainer inside this worker, or an OCI runtime found
//! on the machine by name.

use crate::{context::Context, init::InitProgram};
use atoll_types::{ContainerId, Error, ErrorCode, Isolation, Result};
use libcontainer::{
    container::{Container, builder::ContainerBuilder},
    syscall::syscall::SyscallType,
};
use serde_json::{Value, json};
use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Where root's programs live. A request's runtime is a name from this list in one of these folders.
const SEARCH_PATH: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const KNOWN: &[&str] = &["runc", "crun", "youki", "runsc", "kata-runtime"];
/// Where a runtime that needs a path finds PID 1's program: on the container's own /dev.
const INIT_INSIDE: &str = "/dev/.atoll-init";
/// The same for a runtime that has its own /dev and cannot mount there.
pub(crate) const INIT_IN_ROOT: &str = "run/.atoll-init";

/// Every known runtime that is on this machine.
pub(crate) fn found() -> Vec<String> {
    KNOWN.iter().filter(|name| find(name).is_some()).map(ToString::to_string).collect()
}

fn find(name: &str) -> Option<PathBuf> {
    SEARCH_PATH.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// How a container is started.
pub(crate) enum Start {
    /// By libcontainer, in this process.
    Builtin,
    /// By this program.
    Runtime { name: String, program: PathBuf },
}

impl Start {
    /// The way that a profile names.
    pub(crate) fn choose(isolation: &Isolation) -> Result<Self> {
        let Isolation::Runtime(name) = isolation else { return Ok(Self::Builtin) };
        let program = KNOWN.contains(&name.as_str()).then(|| find(name)).flatten();
        program.map(|program| Self::Runtime { name: name.clone(), program }).ok_or_else(|| {
            let there = found().join(", ");
            let message = format!("the runtime {name} is not on this machine (there is: {there})");
            Error::new(ErrorCode::Unsupported, message).at("profile.isolation")
        })
    }

    /// Whether the runtime brings a kernel of its own. Then the container's ids are that kernel's and
    /// need no range of the host's, and no descriptor can be passed: PID 1 listens on TCP.
    pub(crate) fn own_kernel(&self) -> bool {
        matches!(self, Self::Runtime { name, .. } if name == "runsc" || name == "kata-runtime")
    }

    /// What the specification calls PID 1's program.
    pub(crate) fn program(&self) -> &'static str {
        match self {
            Self::Builtin => "atoll-init",
            Self::Runtime { .. } if self.own_kernel() => "/run/.atoll-init",
            Self::Runtime { .. } => INIT_INSIDE,
        }
    }

    /// What must be mounted for that.
    pub(crate) fn mounts(&self, init: &InitProgram) -> Option<Value> {
        match self {
            _ if self.own_kernel() => None,
            Self::Builtin => None,
            Self::Runtime { .. } => Some(json!({
                "destination": INIT_INSIDE,
                "type": "bind",
                "source": init.path(),
                "options": ["bind", "ro", "nosuid", "nodev"],
            })),
        }
    }

    /// Makes the container and leaves it before PID 1's first instruction. The descriptors 3 to
    /// 2 + `descriptors` go to it. Returns PID 1.
    pub(crate) fn create(
        &self,
        context: &Context,
        container: ContainerId,
        bundle: &Path,
        descriptors: i32,
    ) -> Result<i32> {
        match self {
            Self::Builtin => create_builtin(context, container, bundle, descriptors),
            Self::Runtime { program, .. } => {
                create_by(program, self, context, container, bundle, descriptors)
            }
        }
    }

    /// Starts PID 1.
    pub(crate) fn start(&self, context: &Context, container: ContainerId) -> Result<()> {
        match self {
            Self::Builtin => Container::load(context.libcontainer().join(container.to_string()))
                .and_then(|mut c| c.start())
                .map_err(|e| failed("start", &chain(&e))),
            Self::Runtime { program, .. } => {
                let id = container.to_string();
                run(self.command(program, context).args(["start", &id]), "start")
            }
        }
    }

    /// Removes what the runtime keeps of a container whose processes are gone.
    pub(crate) fn forget(&self, context: &Context, container: ContainerId) -> io::Result<()> {
        let state = match self {
            Self::Builtin => context.libcontainer().join(container.to_string()),
            Self::Runtime { program, .. } => {
                let id = container.to_string();
                // The runtime may not know the container, or have made it by half; the folder is removed in any
                // case.
                let _ = run(self.command(program, context).args(["delete", "--force", &id]), "delete");
                context.oci().join(id)
            }
        };
        match fs::remove_dir_all(state) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn command(&self, program: &Path, context: &Context) -> Command {
        let mut command = Command::new(program);
        command.arg("--root").arg(context.oci()).stdin(Stdio::null()).env_clear();
        command.env("PATH", SEARCH_PATH.join(":"));
        if matches!(self, Self::Runtime { name, .. } if name == "runsc") {
            // The namespace is private and has a loopback only, so its stack is the sandbox's own.
            command.args(["--network=host", "--platform=ptrace", "--overlay=false"]);
        }
        command
    }
}

/// An error with all its causes: libcontainer's own words are often the outermost only.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// What libcontainer reports where a process that it had started is gone without an error of its own. A process
/// that fails says why.
const GONE: [&str; 5] = ["channel connection broken", "BrokenChannel", "EPIPE", "ECONNRESET", "ESRCH"];

fn failed(doing: &str, why: &str) -> Error {
    match GONE.iter().any(|word| why.contains(word)) {
        true => cut_off(why),
        false => Error::internal(format!("cannot {doing} the container: {why}")),
    }
}

/// The error of a create during which a process of the container was killed: the next one may succeed.
pub(crate) fn cut_off(why: &str) -> Error {
    let message = format!("a process was killed while it made the container; try again: {why}");
    Error::new(ErrorCode::Unavailable, message)
}

fn create_builtin(context: &Context, container: ContainerId, bundle: &Path, descriptors: i32) -> Result<i32> {
    let fault = |e: &dyn std::error::Error| failed("make", &chain(e));
    let null = || fs::OpenOptions::new().read(true).write(true).open("/dev/null").map_err(|e| fault(&e));
    let made = ContainerBuilder::new(container.to_string(), SyscallType::default())
        .with_root_path(context.libcontainer())
        .map_err(|e| fault(&e))?
        .with_executor(context.init.executor())
        .with_preserved_fds(descriptors)
        .with_stdin(null()?)
        .with_stdout(null()?)
        .with_stderr(null()?)
        .as_init(bundle)
        .with_systemd(false)
        .with_detach(true)
        // PID 1 becomes the launcher's child and not this worker's: the launcher sees it end.
        .as_sibling(true)
        .build()
        .map_err(|e| fault(&e))?;
    made.pid()
        .map(|pid| pid.as_raw())
        .ok_or_else(|| Error::internal("libcontainer made a container without a process"))
}

fn create_by(
    program: &Path,
    start: &Start,
    context: &Context,
    container: ContainerId,
    bundle: &Path,
    descriptors: i32,
) -> Result<i32> {
    let pid_file = bundle.join("pid");
    let mut command = start.command(program, context);
    command.arg("create").arg("--bundle").arg(bundle).arg("--pid-file").arg(&pid_file);
    if descriptors > 0 {
        command.args(["--preserve-fds", &descriptors.to_string()]);
    }
    run(command.arg(container.to_string()), "create")?;
    let text = fs::read_to_string(&pid_file).unwrap_or_default();
    text.trim().parse().map_err(|_| Error::internal("the runtime wrote no process id"))
}

/// Runs a runtime's command; what it printed is the reason when it failed.
fn run(command: &mut Command, doing: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    // The container inherits the runtime's output, so a pipe would stay open as long as it lives.
    let log = rustix::fs::memfd_create("runtime-log", rustix::fs::MemfdFlags::CLOEXEC)
        .map(fs::File::from)
        .map_err(|e| Error::internal(e.to_string()))?;
    let copy = || log.try_clone().map_err(|e| Error::internal(e.to_string()));
    let status = command.stdout(copy()?).stderr(copy()?).status();
    let status = status.map_err(|e| Error::internal(format!("cannot run {name}: {e}")))?;
    if status.success() {
        return Ok(());
    }
    if let Some(signal) = status.signal() {
        return Err(cut_off(&format!("{name} {doing} was ended by signal {signal}")));
    }
    let mut said = String::new();
    let _ = io::Seek::rewind(&mut &log).and_then(|()| io::Read::read_to_string(&mut &log, &mut said));
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    Err(Error::internal(format!("{name} {doing} failed: {}", last.join("; "))))
}
