//! Starting the launcher where none runs: directly when this process is root, by sudo otherwise.

use crate::launcher::LauncherClient;
use atoll_launch_proto::{LauncherReply, Layout, Request};
use atoll_types::{Error, ErrorCode, Result};
use std::{
    ffi::OsString,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};
use tokio::{net::UnixStream, process::Command};

/// How to start a launcher.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// The data folder; made if there is none.
    pub data_dir: PathBuf,
    /// Users, besides root and this one, that may send it requests.
    pub client_uids: Vec<u32>,
    /// Whether it ends with its last container and connection.
    pub ephemeral: bool,
    /// Further arguments of the operator's.
    pub extra: Vec<OsString>,
}

/// A running launcher.
#[derive(Debug, Clone)]
pub struct Started {
    /// Its client.
    pub client: Arc<LauncherClient>,
    /// Whether it was started just now, or would have ended by itself and was just made to stay.
    pub new: bool,
    /// An open connection: while it is there, and until the launcher gives up waiting for its request, an ephemeral launcher does
    /// not end for want of work. Drop it once a container exists.
    pub visit: Option<Arc<UnixStream>>,
}

/// A connection without a request, to a launcher that may end by itself.
async fn visit(client: &LauncherClient, options: &LaunchOptions) -> Option<Arc<UnixStream>> {
    if options.ephemeral { client.visit().await.ok().map(Arc::new) } else { None }
}

/// Finds the instance's launcher or starts one.
pub async fn ensure_launcher(options: &LaunchOptions) -> Result<Started> {
    if let Ok(data) = options.data_dir.canonicalize() {
        let client = Arc::new(LauncherClient::new(&Layout::new(&data)));
        // Before the request that finds it, so that it cannot end in between.
        let visit = visit(&client, options).await;
        if let Ok(hello) = client.ask(Request::Hello).await
            && (options.ephemeral || stays(&client, options).await)
        {
            let new = !options.ephemeral && matches!(hello, LauncherReply::Hello(found) if found.ephemeral);
            return Ok(Started { client, new, visit });
        }
    }
    start(options).await?;
    let data = options.data_dir.canonicalize().map_err(|e| cannot(format!("the data folder: {e}")))?;
    let client = Arc::new(LauncherClient::new(&Layout::new(&data)));
    let visit = visit(&client, options).await;
    match client.ask(Request::Hello).await {
        Err(_) if is_anothers(&data) => {
            let message = format!("{} belongs to another user; use sudo or --data-dir", data.display());
            Err(Error::new(ErrorCode::PermissionDenied, message))
        }
        Err(error) => Err(error),
        Ok(_) => Ok(Started { client, new: true, visit }),
    }
}

/// Whether a folder belongs to another user, whose launcher does not serve this one.
fn is_anothers(folder: &Path) -> bool {
    let me = rustix::process::geteuid();
    !me.is_root() && std::fs::metadata(folder).is_ok_and(|found| found.uid() != me.as_raw())
}

/// Makes a launcher that may have been started for one `atoll run` outlast it. One that ended before the
/// request is replaced; an older release, which does not know the request, keeps its mode.
async fn stays(client: &LauncherClient, options: &LaunchOptions) -> bool {
    let client_uids = options.client_uids.clone();
    client.ask(Request::Stay { client_uids }).await.is_ok() || client.ask(Request::Hello).await.is_ok()
}

/// Makes the data folder as this user, before the launcher would as root: a folder in a user's home stays that
/// user's, and one that this user may not make is an error.
fn make_data_folder(folder: &Path) -> Result<()> {
    if folder.exists() && !folder.is_dir() {
        return Err(Error::invalid("data-dir", format!("--data-dir {} is not a folder", folder.display())));
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(|e| {
        let message = format!(
            "the data folder {} cannot be made: {e}; choose a folder that you may write with --data-dir",
            folder.display()
        );
        Error::new(ErrorCode::PermissionDenied, message)
    })
}

fn cannot(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::Unavailable, format!("the launcher cannot be started: {why}"))
}

/// The helper is beside the running program, whatever name that was started by.
fn helper() -> Result<PathBuf> {
    let me = std::env::current_exe().map_err(|e| cannot(format!("where is this program? {e}")))?;
    // A test's program is one folder below the helper.
    let folders = [me.parent(), me.parent().and_then(Path::parent)];
    let found = folders.iter().flatten().map(|f| f.join("atoll-launch")).find(|p| p.is_file());
    found.ok_or_else(|| cannot("atoll-launch is not beside this program"))
}

async fn start(options: &LaunchOptions) -> Result<()> {
    let me = rustix::process::getuid();
    make_data_folder(&options.data_dir)?;
    let helper = helper()?;
    let mut command = if me.is_root() {
        let mut direct = Command::new(&helper);
        // A signal to the client's process group must not kill the launcher half-way.
        direct.process_group(0);
        direct
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg("--").arg(&helper).arg("--client-uid").arg(me.as_raw().to_string());
        sudo
    };
    command.arg("--data-dir").arg(&options.data_dir);
    for uid in &options.client_uids {
        command.arg("--client-uid").arg(uid.to_string());
    }
    if options.ephemeral {
        command.arg("--ephemeral");
    }
    // sudo asks for its password on the terminal, so stdin may stay closed.
    command.args(&options.extra).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().await.map_err(|e| {
        let tried = command.as_std().get_program().to_string_lossy().into_owned();
        cannot(format!("{tried}: {e}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("atoll-launch: ");
    Err(cannot(if said.is_empty() { format!("it ended with {}", output.status) } else { said.to_owned() }))
}
