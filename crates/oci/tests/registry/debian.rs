//! Debian's registry on loopback. Tests of other crates use this file too.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Runs a program that must succeed.
pub(crate) fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; `make setup-tests` installs it"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Debian's `docker-registry`, with or without a password; it ends with the test.
pub(crate) struct Registry {
    child: Child,
    pub(crate) host: String,
}

/// `secret`, as `htpasswd -B` writes it.
const PASSWORD: &str = "user:$2y$05$ouLndDEhIbpjDbl2vHysoODcSCBnE875qtd4vQQVfVH/KnIjjAZw2\n";

impl Registry {
    pub(crate) fn start(top: &Path, password: bool) -> Self {
        Self::start_with(top, password, "")
    }

    /// One with more settings of `http`, each a line that is indented by two spaces.
    pub(crate) fn start_with(top: &Path, password: bool, http: &str) -> Self {
        let data = top.join("registry");
        fs::create_dir_all(&data).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let host = format!("127.0.0.1:{port}");
        let auth = match password {
            true => {
                fs::write(top.join("htpasswd"), PASSWORD).unwrap();
                format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", top.join("htpasswd").display())
            }
            false => String::new(),
        };
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n{http}{auth}",
            data.display()
        );
        fs::write(top.join("config.yml"), config).unwrap();
        let child = Command::new("docker-registry")
            .args(["serve", "config.yml"])
            .current_dir(top)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry; `make setup-tests` installs it");
        let registry = Self { child, host };
        for _ in 0..600 {
            if TcpStream::connect(&registry.host).is_ok() {
                return registry;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the registry does not start");
    }

    /// Copies the layout to the registry.
    pub(crate) fn fill(&self, top: &Path, name: &str, password: bool) {
        let to = format!("docker://{}/{name}", self.host);
        let mut arguments = vec!["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false"];
        if password {
            arguments.extend(["--dest-creds", "user:secret"]);
        }
        arguments.extend(["oci:layout:latest", &to]);
        run("skopeo", &arguments, top);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
