//! PostgreSQL's server for tests, from the machine's own programs (Debian: `postgresql`), in a folder of its own and on a
//! Unix socket. The processes of one test program share one; it is stopped and its folder removed once the last of them
//! has ended, however it ended. A test that restarts or fills it has one alone.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

/// A server.
pub struct Cluster {
    folder: PathBuf,
    /// While a process has it locked, the server runs.
    users: File,
    alone: bool,
}

/// Whether this machine has its programs.
pub fn is_installed() -> bool {
    found().is_some()
}

fn programs() -> PathBuf {
    found().expect("no initdb here: install PostgreSQL (Debian: postgresql), or run make setup-tests")
}

/// The newest of the machine's.
fn found() -> Option<PathBuf> {
    let version = |path: &PathBuf| -> u32 {
        path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
    };
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed.map(|entry| entry.path()).max_by_key(version);
    if let Some(folder) = newest.map(|path| path.join("bin")).filter(|path| path.join("initdb").exists()) {
        return Some(folder);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
}

/// The user that it runs as: it refuses root.
fn user() -> Option<(u32, u32)> {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    root.then(|| {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let ids = |name: &str| {
            let line = passwd.lines().find(|line| line.starts_with(&format!("{name}:")))?;
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        };
        ids("postgres").or_else(|| ids("nobody")).expect("a user for PostgreSQL")
    })
}

fn command(program: &str) -> Command {
    let mut command = Command::new(programs().join(program));
    command
        .current_dir("/")
        .stdin(Stdio::null())
        .env_remove("PGDATA")
        .env_remove("PGPORT")
        .env_remove("PGHOST");
    if let Some((uid, gid)) = user() {
        command.uid(uid).gid(gid);
    }
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// The one that the processes of this test program share.
pub fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| {
        let mut hash = DefaultHasher::new();
        std::env::current_exe().unwrap().hash(&mut hash);
        Cluster::at(&std::env::temp_dir().join(format!("atoll-pg-{:08x}", hash.finish() as u32)), false)
    })
}

/// Locks the file beside the folder, as one of its users.
fn users_of(folder: &Path) -> File {
    let path = folder.with_extension("lock");
    loop {
        let file = File::create(&path).unwrap();
        file.lock_shared().unwrap();
        // What stops the server removes the file too, and may have done so while this waited.
        let there = fs::metadata(&path).map(|there| there.ino()).ok();
        if there == Some(file.metadata().unwrap().ino()) {
            return file;
        }
    }
}

impl Cluster {
    /// One for this test alone.
    pub fn alone() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("atoll-pg-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        Self::at(&std::env::temp_dir().join(name), true)
    }

    /// The same with its data on what this makes of an empty folder.
    fn at(folder: &Path, alone: bool) -> Self {
        let users = users_of(folder);
        let starting = File::create(folder.with_extension("start")).unwrap();
        starting.lock().unwrap();
        let cluster = Self { folder: folder.to_owned(), users, alone };
        if !folder.join("ready").exists() {
            let _ = fs::remove_dir_all(folder);
            fs::create_dir(folder).unwrap();
            if let Some((uid, gid)) = user() {
                chown(folder, Some(uid), Some(gid)).unwrap();
            }
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
            cluster.stop_with_the_last();
            let data = cluster.data();
            run(command("initdb")
                .args(["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"])
                .arg(&data));
            cluster.start();
            fs::write(folder.join("ready"), "").unwrap();
        }
        cluster
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A process that waits for all who use the server, and a moment more for the next, stops it and removes its folder.
    #[allow(clippy::zombie_processes, reason = "it outlives this process")]
    fn stop_with_the_last(&self) {
        let script = "folder=$1; shift; while :; do flock \"$folder.lock\" true; sleep 3; \
                      flock -n \"$folder.lock\" sh -c 'folder=$1; shift; \"$@\" stop -s -w -m immediate -D \"$folder/data\"; \
                      umount -l \"$folder/small\" 2>/dev/null; rm -rf \"$folder\" \"$folder.start\" \"$folder.lock\"' \
                      sh \"$folder\" \"$@\" && exit; done";
        let mut reaper = Command::new("sh");
        reaper.args(["-c", script, "sh"]).arg(&self.folder);
        if let Some((uid, gid)) = user() {
            let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={gid}"));
            reaper.args(["setpriv", &uid, &gid, "--clear-groups"]);
        }
        reaper.arg(programs().join("pg_ctl"));
        reaper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        reaper.current_dir("/").spawn().unwrap();
    }

    fn control(&self, words: &[&str]) {
        run(command("pg_ctl").args(words).args(["-s", "-w", "-D"]).arg(self.data()).stdout(Stdio::null()));
    }

    /// Starts it.
    pub fn start(&self) {
        let fsync = if self.alone { "on" } else { "off" };
        let options = format!(
            "-c listen_addresses='' -c unix_socket_directories='{}' -c max_connections=300 -c shared_buffers=32MB \
             -c fsync={fsync} -c autovacuum=off -c log_min_messages=warning",
            self.folder.display()
        );
        let log = self.folder.join("log");
        self.control(&["start", "-o", &options, "-l", &log.display().to_string()]);
    }

    /// Stops it, as a crash does.
    pub fn kill(&self) {
        self.control(&["stop", "-m", "immediate"]);
    }

    /// A small disk that the server may write; `None` where this user may not mount one. It goes with the server.
    pub fn small_disk(&self) -> Option<PathBuf> {
        let (uid, gid) = user()?;
        let disk = self.folder.join("small");
        fs::create_dir(&disk).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "none"]).arg(&disk).status();
        if !mounted.is_ok_and(|status| status.success()) {
            return None;
        }
        // Below the mount, so that this process may write beside it.
        fs::create_dir(disk.join("space")).unwrap();
        chown(disk.join("space"), Some(uid), Some(gid)).unwrap();
        Some(disk)
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.folder.display())
    }

    /// Runs SQL in a database, and returns what `psql` prints.
    pub fn tell(&self, database: &str, sql: &str) -> String {
        let mut psql = command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h"])
            .arg(&self.folder);
        let output = psql.args(["-d", database, "-c", sql]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Makes a user who is asked for a password; all others are trusted.
    pub fn add_user(&self, name: &str, password: &str) {
        self.tell("postgres", &format!("CREATE ROLE {name} SUPERUSER LOGIN PASSWORD '{password}'"));
        let file = self.data().join("pg_hba.conf");
        let rules = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("local all {name} scram-sha-256\n{rules}")).unwrap();
        self.tell("postgres", "SELECT pg_reload_conf()");
    }

    /// The name of a new, empty database.
    pub fn database(&self) -> String {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        self.tell("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
        name
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.users.unlock();
    }
}
