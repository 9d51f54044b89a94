//! A way out for a tool on this machine: the proxy on loopback, a resolver that knows names of a test, and
//! the variables that a sandbox would have.

use atoll_egress::{
    Decision, Egress, EgressSettings, Policy, Reach, Recorder, Rules, Serving, Sockets,
    presets::{PresetRegistry, ToolLocation, learn},
    variables,
};
use atoll_types::egress_address::{PROXY, TRUST_BUNDLE};
use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex},
};
use tempfile::TempDir;
use tokio::{runtime::Runtime, sync::watch};

/// What was decided, as `allow host:port` or `deny host:port`.
#[derive(Default)]
pub(crate) struct Decisions(Mutex<Vec<String>>);

impl Recorder for Decisions {
    fn asked(&self, _: SocketAddr) -> u64 {
        0
    }
    fn decided(&self, _: u64, decision: Decision) {
        let word = if decision.allowed { "allow" } else { "deny" };
        self.0.lock().unwrap().push(format!("{word} {}:{}", decision.host, decision.port));
    }
}

/// A way out.
pub(crate) struct Way {
    decisions: Arc<Decisions>,
    folder: TempDir,
    proxy: SocketAddr,
    serving: Option<Serving>,
    runtime: Runtime,
    _rules: watch::Sender<Arc<Rules>>,
}

impl Way {
    /// Opens one with a policy. Without `names` the machine's own resolver is asked.
    pub(crate) fn new(policy: &str, names: Option<SocketAddr>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let _entered = runtime.enter();
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = proxy.local_addr().unwrap();
        let sockets = Sockets {
            proxy: proxy.into(),
            redirected: None,
            names: UdpSocket::bind("127.0.0.1:0").unwrap().into(),
            names_tcp: TcpListener::bind("127.0.0.1:0").unwrap().into(),
        };
        let settings =
            EgressSettings { nameservers: names.into_iter().collect(), ..EgressSettings::default() };
        let egress = Egress::new(settings).unwrap();
        let registry = PresetRegistry::new(
            learn(&ToolLocation::machine().unwrap()),
            BTreeMap::new(),
            Arc::new(Reach::default()),
            None,
        );
        let policy: Policy = serde_json::from_str(policy).unwrap();
        let rules =
            Rules::new("egress", &policy, &registry.presets(None), &Arc::new(Reach::default())).unwrap();
        let (sender, rules) = watch::channel(Arc::new(rules));
        let decisions = Arc::new(Decisions::default());
        let recorder: Arc<dyn Recorder> = Arc::<Decisions>::clone(&decisions);
        let serving = egress.serve(sockets, rules, recorder).unwrap();
        let folder = tempfile::tempdir().unwrap();
        drop(_entered);
        Self { decisions, folder, proxy: address, serving: Some(serving), runtime, _rules: sender }
    }

    /// A folder that is gone with it.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a tool that has nothing of this machine's settings, and the variables of a sandbox.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder()).env_clear();
        command.env("HOME", self.folder()).env("PATH", std::env::var_os("PATH").unwrap());
        for (name, home) in [("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv")] {
            let own = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(home));
            command.env(name, std::env::var_os(name).map_or_else(|| own.unwrap_or_default(), PathBuf::from));
        }
        let bundle = openssl_bundle();
        for (name, value) in variables(true) {
            let value = value.replace(&PROXY.to_string(), &self.proxy.to_string());
            command.env(name, value.replace(TRUST_BUNDLE, &bundle));
        }
        command.output().unwrap()
    }

    /// Ends it, and says what was decided.
    pub(crate) fn end(mut self) -> Vec<String> {
        if let Some(serving) = self.serving.take() {
            self.runtime.block_on(serving.end());
        }
        self.decisions.0.lock().unwrap().clone()
    }
}

/// The machine's own certificates.
fn openssl_bundle() -> String {
    let usual =
        ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];
    usual.into_iter().find(|path| Path::new(path).exists()).unwrap().to_owned()
}

/// Whether a program is here; a test of a tool that is not has nothing to test.
pub(crate) fn is_here(program: &str) -> bool {
    let is = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is {
        // `make test` installs what it needs first.
        assert!(std::env::var_os("ATOLL_TEST_ALL").is_none(), "there is no {program} on this machine");
        eprintln!("skipped: there is no {program} on this machine");
    }
    is
}

/// Both outputs.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
