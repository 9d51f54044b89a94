//! `runc run` of a bundle like a sandbox: the same namespaces, limits and file systems, and `true`
//! instead of PID 1.

use crate::Result;
use serde_json::{Value, json};
use std::{
    cell::Cell,
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const PROGRAMS: &[&str] = &["/usr/local/sbin/runc", "/usr/sbin/runc", "/usr/local/bin/runc", "/usr/bin/runc"];
/// User ids that are not in use.
const FIRST_ID: u32 = 1_900_000_000;

/// A bundle and the runc to run it with.
pub(crate) struct Runc {
    program: PathBuf,
    folder: TempDir,
    runs: Cell<u32>,
}

impl Runc {
    /// None where runc is not installed.
    pub(crate) fn find() -> Result<Option<Self>> {
        let Some(program) = PROGRAMS.iter().map(Path::new).find(|p| p.is_file()) else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("atoll-bench-runc-").tempdir()?;
        // The container's root must be able to traverse to it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let root = folder.path().join("rootfs");
        fs::create_dir(&root)?;
        for name in ["usr", "proc", "dev", "sys", "run", "tmp", "workspace"] {
            fs::create_dir(root.join(name))?;
            chown(root.join(name), Some(FIRST_ID), Some(FIRST_ID))?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{name}"), root.join(name))?;
        }
        chown(&root, Some(FIRST_ID), Some(FIRST_ID))?;
        Ok(Some(Self { program: program.into(), folder, runs: Cell::new(0) }))
    }

    /// Makes, runs and deletes a container.
    pub(crate) fn run(&self) -> Result<()> {
        self.runs.set(self.runs.get() + 1);
        let id = self.id();
        fs::write(self.folder.path().join("config.json"), serde_json::to_vec(&config(&id))?)?;
        let output = self.command().arg("run").arg("--bundle").arg(self.folder.path()).arg(&id).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("runc run: {}: {}", output.status, said.trim()).into())
    }

    fn id(&self) -> String {
        format!("atoll-bench-{}-{}", std::process::id(), self.runs.get())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(self.folder.path().join("state"));
        command
    }
}

impl Drop for Runc {
    fn drop(&mut self) {
        // Only a run that was cut off leaves a container to delete.
        let _ = self.command().args(["delete", "--force", &self.id()]).output();
    }
}

fn config(id: &str) -> Value {
    let map = json!([{ "containerID": 0, "hostID": FIRST_ID, "size": 65536 }]);
    let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup", "user"];
    let namespaces: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    json!({
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": { "path": "rootfs", "readonly": true },
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/usr/bin/true"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": { "bounding": [], "effective": [], "permitted": [] },
        },
        "mounts": mounts(),
        "linux": {
            "uidMappings": map,
            "gidMappings": map,
            "namespaces": namespaces,
            "cgroupsPath": format!("/{id}"),
            "resources": {
                "memory": { "limit": 512 << 20, "swap": 512 << 20 },
                "pids": { "limit": 528 },
                "cpu": { "period": 100_000, "quota": 100_000, "cpus": "0" },
            },
        },
    })
}

fn mount(at: &str, kind: &str, options: &[&str]) -> Value {
    json!({ "destination": at, "type": kind, "source": kind, "options": options })
}

fn mounts() -> Vec<Value> {
    let quiet = ["nosuid", "noexec", "nodev"];
    let usr = ["rbind", "ro", "nosuid", "nodev"];
    let usr = json!({ "destination": "/usr", "type": "bind", "source": "/usr", "options": usr });
    vec![
        usr,
        mount("/proc", "proc", &quiet),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=64k"]),
        mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777"]),
        mount("/dev/mqueue", "mqueue", &quiet),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        mount("/run", "tmpfs", &["nosuid", "nodev", "mode=755"]),
        mount("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
        mount("/workspace", "tmpfs", &["nosuid", "nodev", "mode=755"]),
    ]
}
