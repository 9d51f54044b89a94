//! The Debian package: what Debian's own checkers say of it and of its units, and an installation's life.
//!
//! dpkg works on copies and overlays of the machine's folders, in a mount namespace of the test. There is no systemd there:
//! what the units start is started from their own lines.

use super::{http, machine::Apart};
use crate::engine::fixture::eventually;
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Packs this build's programs.
fn pack(folder: &Path, version: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_BIN_EXE_atoll")).parent().unwrap();
    let mut script = Command::new(repository().join("scripts/package-deb"));
    let packed =
        script.arg(programs).arg(folder).arg(version).env("ATOLL_DEB_COMPRESSION", "0").output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let name = format!("atoll_{version}_");
    let mut found = fs::read_dir(folder).unwrap().flatten().map(|file| file.path());
    found.find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&name)).unwrap()
}

/// What a checker prints, and whether it is content.
fn check(program: &str, arguments: &[&str], about: &Path) -> (bool, String) {
    let ran = Command::new(program).args(arguments).arg(about).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (ran.status.success(), said.concat())
}

#[test]
fn the_servers_unit_has_no_privilege() {
    let (server, launcher) = ("deploy/systemd/atoll.service", "deploy/systemd/atoll-launch.service");
    let judge = |unit: &str| {
        let threshold = ["security", "--offline=true", "--no-pager", "--threshold=25"];
        check("systemd-analyze", &threshold, &repository().join(unit))
    };
    let (content, said) = judge(server);
    assert!(content, "{said}");
    // The launcher is root; a check that takes it too would say nothing of the server.
    assert!(!judge(launcher).0);
}

/// A machine of its own, as far as dpkg and the package see it.
struct Machine {
    apart: Apart,
    launched: usize,
    answered: usize,
}

impl Machine {
    fn new() -> Self {
        let mut apart = Apart::new();
        apart.say("mkdir over && mount -t tmpfs none over");
        for folder in ["/usr/bin", "/usr/lib", "/usr/share", "/etc"] {
            let name = folder.replace('/', "_");
            apart.say(&format!("mkdir -p over/{name}/upper over/{name}/work"));
            apart.say(&format!(
                "mount -t overlay -o lowerdir={folder},upperdir=over/{name}/upper,workdir=over/{name}/work none {folder}"
            ));
        }
        // Triggers and logs of dpkg are the machine's, and so is its systemd.
        for folder in ["/var/log", "/var/cache"] {
            apart.say(&format!("mount -t tmpfs none {folder}"));
        }
        apart.say("[ ! -d /run/systemd ] || mount -t tmpfs none /run/systemd");
        apart.say(&format!("cp -a /proc/{}/root/var/lib/dpkg /var/lib/dpkg", std::process::id()));
        apart.say("unset ATOLL_BOOTSTRAP_KEY; set +e");
        Self { apart, launched: 0, answered: 0 }
    }

    /// The output of a line, which ends with its exit status.
    fn ask(&mut self, line: &str) -> String {
        self.answered += 1;
        let name = format!("answer-{}", self.answered);
        let done = self.apart.path(&format!("{name}.done"));
        self.apart
            .say(&format!("{{ {line}; }} >{name} 2>&1 </dev/null; echo $? >>{name}; touch {name}.done"));
        eventually("the end of a line", || done.exists());
        fs::read_to_string(self.apart.path(&name)).unwrap()
    }

    fn does(&mut self, line: &str) -> String {
        let said = self.ask(line);
        assert!(said.ends_with("0\n"), "{line}: {said}");
        said
    }

    fn dpkg(&mut self, arguments: &str) -> String {
        self.does(&format!("dpkg --no-triggers {arguments}"))
    }

    /// Starts both units' programs, each as its unit says.
    fn start(&mut self) -> SocketAddr {
        self.does("launch=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/atoll-launch.service) && $launch");
        self.does("install -d -o atoll -g atoll -m 700 /var/lib/atoll/server");
        self.launched += 1;
        let serve = "env -i PATH=/usr/bin:/bin ATOLL_LISTEN=127.0.0.1:0 ATOLL_GRPC_LISTEN= ATOLL_SETTINGS_WARM_POOL_ENABLED=false \
             $(cat /etc/atoll/atoll.env) setpriv --reuid=atoll --regid=atoll --clear-groups --no-new-privs \
             $(sed -n 's/^ExecStart=//p' /lib/systemd/system/atoll.service)";
        self.apart.serve_with(serve, &format!("server-{}", self.launched))
    }

    fn stop_the_server(&mut self) {
        self.does("kill $(cat /var/lib/atoll/server/server.pid)");
        self.does("while [ -e /var/lib/atoll/server/server.pid ]; do sleep 0.05; done");
    }
}

/// An answer of the API, whose status must be below 300.
fn api(address: SocketAddr, key: &str, method: &str, path: &str, body: &str) -> http::Answer {
    let key = format!("Bearer {key}");
    let headers = [("Authorization", key.as_str()), ("Content-Type", "application/json")];
    let path = format!("/api/v1/sandboxes{path}");
    let answer = http::request(address, method, &path, &headers, body.as_bytes()).unwrap();
    assert!(answer.status < 300, "{method} {path}: {answer:?}");
    answer
}

fn says(address: SocketAddr, key: &str, sandbox: &str, line: &str) -> String {
    let body = serde_json::json!({ "command": line }).to_string();
    let answer = api(address, key, "POST", &format!("/{sandbox}/exec"), &body).json();
    answer["stdout"].as_str().unwrap().trim().to_owned()
}

#[test]
fn a_package_is_installed_upgraded_removed_and_purged() {
    let mut machine = Machine::new();
    let packages = machine.apart.path("packages");
    fs::create_dir(&packages).unwrap();
    let (old, new) = (pack(&packages, "1.0.0"), pack(&packages, "1.0.1"));
    let (content, said) = check("lintian", &["--fail-on", "error,warning"], &new);
    assert!(content, "{said}");

    let said = machine.dpkg(&format!("-i {}", old.display()));
    assert!(said.contains("the first admin key is in /etc/atoll/atoll.env"), "{said}");
    assert_eq!(machine.does("stat -c '%U %a' /etc/atoll/atoll.env"), "root 600\n0\n");
    assert_eq!(machine.does("atoll --version; id -un atoll"), "atoll 0.1.0\natoll\n0\n");
    let variables = machine.does("cat /etc/atoll/atoll.env");
    let key = variables.strip_prefix("ATOLL_BOOTSTRAP_KEY=").unwrap().lines().next().unwrap().to_owned();
    let address = machine.start();
    let made = api(address, &key, "POST", "", "{}").json();
    let sandbox = made["id"].as_str().unwrap();
    assert_eq!(says(address, &key, sandbox, "echo kept > file; setsid sleep 600 & cat file"), "kept");
    let running = says(address, &key, sandbox, "pgrep -x sleep");
    assert!(!running.is_empty());

    // An upgrade, with the services restarted as systemd does it: the sandbox goes on, and nothing of the operator's changes.
    machine.does("echo '# of the operator' >> /etc/atoll/atoll.toml");
    let said = machine.dpkg(&format!("-i {}", new.display()));
    assert!(!said.contains("first admin key"), "{said}");
    assert_eq!(says(address, &key, sandbox, "pgrep -x sleep"), running);
    machine.stop_the_server();
    let monitor = machine.apart.running("/atoll-launch")[0];
    machine.does(&format!("kill {monitor}"));
    eventually("the end of the launcher", || !machine.apart.running("/atoll-launch").contains(&monitor));
    let address = machine.start();
    assert_eq!(says(address, &key, sandbox, "pgrep -x sleep; cat file"), format!("{running}\nkept"));
    assert!(machine.does("cat /etc/atoll/atoll.toml").contains("of the operator"));

    // A removal ends it all and keeps what it holds; an installation finds that again.
    machine.dpkg("-r atoll");
    assert!(std::net::TcpStream::connect(address).is_err());
    for program in ["/atoll", "/atoll-launch"] {
        eventually("the end of the programs", || machine.apart.running(program).is_empty());
    }
    machine.dpkg(&format!("-i {}", new.display()));
    let address = machine.start();
    api(address, &key, "POST", &format!("/{sandbox}/resume"), "");
    assert_eq!(says(address, &key, sandbox, "cat file"), "kept");

    machine.dpkg("-P atoll");
    let gone = "ls -d /var/lib/atoll /etc/atoll /usr/lib/atoll /usr/bin/atoll /lib/systemd/system/atoll* /etc/systemd/system/*/atoll*";
    let said = machine.ask(gone);
    assert_eq!(said.matches("No such file").count(), 6, "{said}");
    machine.apart.end();
}
