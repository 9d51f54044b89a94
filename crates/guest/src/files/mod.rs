//! The sandbox's files, for the host. The kernel enforces access: paths are resolved by openat2, and every call
//! is made by a thread that has the user's identity and none of PID 1's rights.
//!
//! One thread always runs, so that files can be reached where no thread can be started; see `workers`. No job
//! waits for the network, so a slow client never blocks one.

mod directories;
mod entry;
mod list;
mod path;
mod read;
mod remove;
mod rename;
mod resolve;
mod upload;
mod workers;
mod write;

use crate::{
    exec::{User, inherited, profile_user},
    sys::{self, caps},
};
use atoll_guest_proto::{FileAreaConfig, GuestConfig, v1};
use atoll_types::{Error, ErrorCode, Result};
use path::{Areas, SplitPath};
use rustix::fs::{Mode, OFlags, openat};
use std::{cell::Cell, sync::Arc};
use tokio::sync::oneshot;
use workers::Workers;

pub(crate) use list::EntryStream;
pub(crate) use read::FileStream;
pub(crate) use write::Waiting;

#[derive(Clone)]
pub(crate) struct Files(Arc<Inner>);

struct Inner {
    user: User,
    capabilities: u64,
    areas: Areas,
    workers: Workers,
}

thread_local! {
    static IS_USER: Cell<bool> = const { Cell::new(false) };
}

/// The areas that the configuration has beside the usual ones.
fn areas(config: &GuestConfig) -> Result<Areas, String> {
    let mut areas = Areas::new(&config.home);
    let trees = config.areas_fd.map(|fd| inherited(fd, "areas_fd")).transpose()?;
    for FileAreaConfig { path, tree } in &config.areas {
        let open = |name: &String| {
            let trees = trees.as_ref().ok_or("areas_fd is missing")?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(trees, name.as_str(), flags, Mode::empty()).map_err(|e| format!("the area of {path}: {e}"))
        };
        areas.add(path, tree.as_ref().map(open).transpose()?);
    }
    Ok(areas)
}

impl Files {
    /// Starts the thread that does their work; to be called when the system call filter is on.
    pub(crate) fn new(config: &GuestConfig) -> Result<Self, String> {
        let user = profile_user(config);
        let capabilities = caps::mask(&config.capabilities);
        let workers = Workers::start().map_err(|e| format!("cannot start a thread: {e}"))?;
        Ok(Self(Arc::new(Inner { user, capabilities, areas: areas(config)?, workers })))
    }

    fn place(&self, path: &str, field: &'static str) -> Result<SplitPath> {
        self.0.areas.place(path, field)
    }

    /// Does file work as the user, away from the thread that serves.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.0.clone();
        let (answer, result) = oneshot::channel();
        self.0.workers.run(move || {
            let _ = answer.send(inner.become_user().and_then(|()| job()));
        });
        result.await.unwrap_or_else(|_| Err(Error::internal("file work was interrupted")))
    }

    /// Starts work that no call waits for.
    fn run_detached(&self, job: impl FnOnce() + Send + 'static) {
        let inner = self.0.clone();
        self.0.workers.run(move || {
            if inner.become_user().is_ok() {
                job();
            }
        });
    }

    pub(crate) async fn stat(&self, request: v1::StatRequest) -> Result<v1::FileEntry> {
        let v1::StatRequest { path, follow } = request;
        let place = self.place(&path, "path")?;
        self.run(move || entry::stat(&place, follow)).await
    }

    pub(crate) async fn remove(&self, request: v1::RemoveRequest) -> Result<()> {
        let v1::RemoveRequest { path, recursive } = request;
        let place = self.place(&path, "path")?;
        self.run(move || remove::remove(&place, recursive)).await
    }

    pub(crate) async fn make_dir(&self, request: v1::MakeDirRequest) -> Result<v1::FileEntry> {
        let v1::MakeDirRequest { path, parents, mode } = request;
        let place = self.place(&path, "path")?;
        self.run(move || directories::make(&place, parents, mode)).await
    }

    pub(crate) async fn rename(&self, request: v1::MoveRequest) -> Result<v1::FileEntry> {
        let v1::MoveRequest { from, to, overwrite } = request;
        let (from, to) = (self.place(&from, "from")?, self.place(&to, "to")?);
        self.run(move || rename::rename(&from, &to, overwrite)).await
    }
}

impl Inner {
    /// Gives this thread the user's identity for files, and only the user's capabilities. Threads
    /// of the pool do nothing else, so it is done once and never undone.
    fn become_user(&self) -> Result<()> {
        if IS_USER.get() {
            return Ok(());
        }
        let User { uid, gid, groups, .. } = &self.user;
        sys::set_groups(groups)
            .and_then(|()| sys::set_file_identity(*uid, *gid))
            .and_then(|()| caps::set_exact(self.capabilities))
            // gVisor has no file-system identities; acting as root instead would be less safe.
            .map_err(|e| {
                let message = format!("this runtime cannot act as the sandbox's user on files: {e}");
                Error::new(ErrorCode::Unsupported, message)
            })?;
        IS_USER.set(true);
        Ok(())
    }
}
