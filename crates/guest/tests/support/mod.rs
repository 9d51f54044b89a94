//! Starting an `atoll-init` for a test, and talking to it.

mod requests;
mod root;
mod user_namespace;

pub(crate) use requests::*;

use atoll_guest_proto::{
    CONFIG_VARIABLE, GuestConfig, Listen,
    v1::{self, guest_client::GuestClient},
};
use atoll_types::{Capability, Seccomp};
use std::{
    collections::BTreeMap,
    fs,
    os::{
        fd::{AsRawFd, RawFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};
use tonic::transport::{Channel, Endpoint};

/// The program under test: the one that cargo has built, or another one, such as the static build.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("ATOLL_INIT_BINARY")
        .map_or_else(|| env!("CARGO_BIN_EXE_atoll-init").into(), PathBuf::from)
}

/// The numbers under which the launcher leaves its descriptors.
pub(crate) const LISTENER: RawFd = 3;
pub(crate) const SPOOL: RawFd = 4;
pub(crate) const OOM: RawFd = 5;

/// An `atoll-init` and a connection to it; killed when dropped.
pub(crate) struct Guest {
    pub(crate) client: GuestClient<Channel>,
    child: Child,
    scratch: tempfile::TempDir,
}

/// The configuration of an ordinary sandbox.
pub(crate) fn config() -> GuestConfig {
    GuestConfig {
        listen: Listen::Inherited(LISTENER),
        spool_fd: Some(SPOOL),
        oom_fd: Some(OOM),
        clock_fd: None,
        uid: 1000,
        gid: 1000,
        home: "/home/user".into(),
        environment: BTreeMap::from([("SANDBOX".into(), "yes".into())]),
        capabilities: Vec::new(),
        seccomp: Seccomp::Default,
        open_files: 256,
        processes: 0,
        output_limit: 64 << 20,
        max_ended_execs: 100,
        spool_bytes: 256 << 20,
        guard_proc: false,
        areas_fd: None,
        areas: Vec::new(),
    }
}

/// The configuration of a sandbox whose user is root.
pub(crate) fn root_config() -> GuestConfig {
    let capabilities = vec![Capability::Chown, Capability::Setuid, Capability::Kill];
    GuestConfig { uid: 0, gid: 0, home: "/root".into(), capabilities, ..config() }
}

/// What `atoll-init` is started in, besides a root of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    Nothing,
    /// As PID 1.
    PidNamespace,
    /// As the launcher does it: PID 1 and root of a user namespace, with a few capabilities.
    UserNamespace,
}

/// The host's ids of a user namespace begin here.
const FIRST_ID: u32 = 100_000;
const CAPABILITIES: &str = "-all,+setuid,+setgid,+setpcap,+kill,+dac_override,+chown,+fowner";

impl Inside {
    fn words(self) -> &'static [&'static str] {
        match self {
            Inside::Nothing => &[],
            Inside::PidNamespace => &["--pid", "--fork", "--kill-child", "--mount-proc", "--"],
            Inside::UserNamespace => &[
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--",
                "/usr/bin/setpriv",
                "--bounding-set",
                CAPABILITIES,
                "--",
            ],
        }
    }
}

/// A child that gets the descriptors and the root of a sandbox.
pub(crate) fn command(config: &GuestConfig, scratch: &Path, inside: Inside) -> Command {
    let binary = binary();
    let program = Path::new("/init").join(binary.file_name().unwrap());
    let mut command = if inside == Inside::Nothing {
        Command::new(program)
    } else {
        let mut command = Command::new("/usr/bin/unshare");
        command.args(inside.words()).arg(program);
        command
    };
    let first_id = if inside == Inside::UserNamespace { FIRST_ID } else { 0 };
    command.env(CONFIG_VARIABLE, serde_json::to_string(config).unwrap()).env("LEAK", "from outside");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    fs::create_dir(scratch.join("spool")).unwrap();
    fs::write(scratch.join("oom"), "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n").unwrap();
    let listener = UnixListener::bind(scratch.join("socket")).unwrap();
    let spool = fs::File::open(scratch.join("spool")).unwrap();
    let oom = fs::File::open(scratch.join("oom")).unwrap();
    let root = root::Root::prepare(scratch, &binary, first_id);
    // SAFETY: the closure makes system calls on memory that was prepared, and nothing else.
    unsafe {
        command.pre_exec(move || {
            let descriptors =
                [(listener.as_raw_fd(), LISTENER), (spool.as_raw_fd(), SPOOL), (oom.as_raw_fd(), OOM)];
            // Out of the way first, so that none lands on another one.
            let mut high = [0; 3];
            for (index, (from, _)) in descriptors.iter().enumerate() {
                high[index] = libc::fcntl(*from, libc::F_DUPFD_CLOEXEC, 100);
            }
            for (index, (_, to)) in descriptors.iter().enumerate() {
                libc::dup2(high[index], *to);
            }
            // One that nobody asked for, to see that it does not leak.
            libc::dup2(high[0], 77);
            root.enter()?;
            if inside == Inside::UserNamespace { user_namespace::enter() } else { Ok(()) }
        });
    }
    command
}

impl Guest {
    pub(crate) async fn start() -> Self {
        Self::with(config()).await
    }

    pub(crate) async fn with(config: GuestConfig) -> Self {
        Self::launch(&config, Inside::Nothing).await
    }

    /// As PID 1 of a process namespace.
    pub(crate) async fn as_pid_1(config: GuestConfig) -> Self {
        Self::launch(&config, Inside::PidNamespace).await
    }

    pub(crate) async fn launch(config: &GuestConfig, inside: Inside) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let child = command(config, scratch.path(), inside).spawn().unwrap();
        let client = connect(scratch.path().join("socket")).await;
        Self { client, child, scratch }
    }

    pub(crate) async fn connect_again(&self) -> GuestClient<Channel> {
        connect(self.scratch.path().join("socket")).await
    }

    /// A connection on which nothing was said yet.
    pub(crate) fn dial(&self) -> UnixStream {
        let stream = UnixStream::connect(self.scratch.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        stream
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.scratch.path().join("spool")
    }

    pub(crate) fn set_oom_kills(&self, count: u64) {
        let text = format!("oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n");
        fs::write(self.scratch.path().join("oom"), text).unwrap();
    }

    /// A path of the sandbox, as this test can open it.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.pid()))
    }

    /// Ends the process and waits for it.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn connect(socket: PathBuf) -> GuestClient<Channel> {
    let socket = Arc::new(socket);
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move {
            let stream = tokio::net::UnixStream::connect(&*socket).await?;
            Ok::<_, std::io::Error>(hyper_util::rt::TokioIo::new(stream))
        }
    });
    let channel = Endpoint::from_static("http://guest").connect_with_connector(connector).await.unwrap();
    GuestClient::new(channel).max_decoding_message_size(64 << 20)
}

/// The error that a call failed with.
pub(crate) fn error<T: std::fmt::Debug>(result: Result<T, tonic::Status>) -> atoll_types::Error {
    atoll_guest_proto::from_status(&result.unwrap_err())
}

/// Waits for something that must come, however slow the machine is.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    for _ in 0..3000 {
        if check().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}

pub(crate) fn reference(id: &str) -> v1::ExecRef {
    v1::ExecRef { exec_id: id.into() }
}
