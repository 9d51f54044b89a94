//! Starting: wrong configurations, TCP with its token, and life as PID 1.

use crate::support::*;
use atoll_guest_proto::{
    CONFIG_VARIABLE, GuestConfig, Listen,
    v1::{HelloRequest, guest_client::GuestClient},
};
use atoll_types::ErrorCode;
use std::process::{Command, Stdio};
use tonic::{Request, metadata::MetadataValue, transport::Endpoint};

fn start_with(config: &str) -> (Option<i32>, String) {
    let output = Command::new(binary()).env(CONFIG_VARIABLE, config).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_wrong_configuration_is_said_and_ends_with_2() {
    let json = |config: GuestConfig| serde_json::to_string(&config).unwrap();
    let tcp = |address: &str, token: &str| Listen::Tcp { address: address.into(), token: token.into() };
    let cases = [
        ("not json SECRET".into(), "ATOLL_INIT"),
        (json(config()), "descriptor 3"),
        (json(GuestConfig { listen: Listen::Inherited(0), ..config() }), "descriptor 0"),
        (json(GuestConfig { listen: tcp("nowhere", "t"), ..config() }), "address"),
        (json(GuestConfig { listen: tcp("127.0.0.1:0", ""), ..config() }), "token"),
        (json(GuestConfig { listen: tcp("127.0.0.1:0", "t"), ..config() }), "spool_fd"),
        (json(GuestConfig { uid: 70000, ..config() }), "uid"),
        (json(GuestConfig { capabilities: root_config().capabilities, ..config() }), "capabilities"),
    ];
    for (config, word) in cases {
        let (code, message) = start_with(&config);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(word) && !message.contains("SECRET"), "{message}");
    }
    let output = Command::new(binary()).env_remove(CONFIG_VARIABLE).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[tokio::test]
async fn over_tcp_every_call_carries_the_token() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let listen = Listen::Tcp { address: address.clone(), token: "s3cret".into() };
    let config = GuestConfig { listen, spool_fd: None, oom_fd: None, ..config() };
    let scratch = tempfile::tempdir().unwrap();
    let mut child = command(&config, scratch.path(), Inside::Nothing).spawn().unwrap();
    let mut client = None;
    eventually("it listens", async || {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        client = endpoint.connect().await.ok().map(GuestClient::new);
        client.is_some()
    })
    .await;
    let mut client = client.unwrap();
    let hello = |token: Option<&str>| {
        let mut request = Request::new(HelloRequest { min_protocol: 1, max_protocol: 1 });
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", MetadataValue::try_from(token).unwrap());
        }
        request
    };
    for wrong in [None, Some("Bearer wrong!"), Some("s3cret"), Some("Bearer s3cre"), Some("Bearer s3crets")] {
        assert_eq!(error(client.hello(hello(wrong)).await).code, ErrorCode::PermissionDenied);
    }
    let reply = client.hello(hello(Some("Bearer s3cret"))).await.unwrap().into_inner();
    assert!(!reply.features.contains(&"descriptors".to_string()), "only bytes can pass here");
    // Without a descriptor the spool is in /tmp, where the user cannot look.
    let mut request = Request::new(sh("ls -ld /tmp/.atoll-spool; ls /tmp/.atoll-spool"));
    request.metadata_mut().insert("authorization", MetadataValue::from_static("Bearer s3cret"));
    let seen = collect(client.exec(request).await.unwrap().into_inner()).await;
    assert!(
        seen.stdout().starts_with("drwx------") && seen.stdout().lines().count() == 1,
        "{}",
        seen.stdout()
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn pid_1_reaps_and_survives_its_children() {
    let guest = Guest::as_pid_1(config()).await;
    assert_eq!(guest.output("cat /proc/1/comm").await, "atoll-init");
    // Orphans of a finished command end later and leave no zombie.
    guest.output("for i in 1 2 3 4 5; do (setsid sleep 0.0$i >/dev/null 2>&1 &); done").await;
    eventually("no zombie and no orphan is left", async || {
        guest.output("ps -eo stat=,comm= | grep -c -e '^Z' -e sleep || :").await == "0"
    })
    .await;
    for signal in ["TERM", "INT", "KILL", "HUP"] {
        guest.run(sh(&format!("kill -{signal} 1"))).await;
    }
    assert_eq!(guest.output("echo alive").await, "alive");
}

#[tokio::test]
async fn root_inside_cannot_end_pid_1() {
    let guest = Guest::as_pid_1(root_config()).await;
    for signal in ["TERM", "INT", "KILL", "HUP", "SEGV", "PIPE", "CHLD"] {
        guest.run(sh(&format!("kill -{signal} 1"))).await;
    }
    assert_eq!(guest.output("echo alive").await, "alive");
}

#[tokio::test]
async fn an_idle_process_has_one_thread_for_files() {
    let guest = Guest::start().await;
    let threads = || std::fs::read_dir(format!("/proc/{}/task", guest.pid())).unwrap().count();
    guest.client.clone().stat(crate::files::stat("/workspace")).await.unwrap();
    eventually("the other file threads are gone", async || threads() == 2).await;
    assert_eq!(guest.output("echo works").await, "works");
}

#[tokio::test]
async fn the_launchers_capabilities_suffice() {
    for (config, uid) in [(config(), "1000"), (GuestConfig { capabilities: vec![], ..root_config() }, "0")] {
        let spool = GuestConfig { spool_fd: None, ..config };
        let guest = Guest::launch(&spool, Inside::UserNamespace).await;
        let home = spool.home.clone();
        let script =
            "cd; id -u; grep -c -e 'CapEff.*0000000000000000' /proc/self/status; echo x >f; stat -c %u f";
        assert_eq!(guest.output(script).await, format!("{uid}\n1\n{uid}"));
        let entry =
            guest.client.clone().stat(crate::files::stat(&format!("{home}/f"))).await.unwrap().into_inner();
        assert_eq!(entry.uid.to_string(), uid);
        let made =
            crate::files::write(&guest, crate::files::head(&format!("{home}/g")), &[b"y"]).await.unwrap();
        assert_eq!(made.uid.to_string(), uid);
        assert_eq!(guest.output("cat ~/g; echo out >/dev/stdout").await, "yout");
        let request = sh("setsid sleep 1000 >/dev/null 2>&1 & echo $!");
        let id = request.exec_id.clone();
        let pid = guest.run(request).await.stdout();
        guest.client.clone().kill_exec(reference(&id)).await.unwrap();
        let look = format!("[ -d /proc/{} ] || echo gone", pid.trim());
        assert_eq!(guest.output(&look).await, "gone");
    }
}

/// A cgroup that limits processes, removed on drop; none where this machine lets us make none.
struct PidsGroup(std::path::PathBuf);

impl PidsGroup {
    fn new() -> Option<Self> {
        // That of the controller, or the unified hierarchy, where the root gives the controller to its children.
        let roots = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(std::path::Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists())?;
        let _ = std::fs::write(root.join("cgroup.subtree_control"), "+pids");
        let path = root.join(format!("atoll-guest-test-{}", new_id()));
        std::fs::create_dir(&path).ok()?;
        let group = Self(path);
        group.0.join("pids.max").exists().then_some(group)
    }

    fn set(&self, file: &str, value: &str) {
        std::fs::write(self.0.join(file), value).unwrap();
    }
}

impl Drop for PidsGroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[tokio::test]
async fn too_many_processes_is_a_limit_and_not_a_failure() {
    let Some(group) = PidsGroup::new() else {
        assert!(std::env::var_os("ATOLL_TEST_ALL").is_none(), "no pids controller that this test may use");
        eprintln!("skipped: no pids controller that this test may use");
        return;
    };
    let guest = Guest::start().await;
    group.set("cgroup.procs", &guest.pid().to_string());
    // With no room beside PID 1 and its thread not even the shim can start, with room for one its command cannot.
    for most in ["2", "3"] {
        group.set("pids.max", most);
        let request = sh("echo no");
        let id = request.exec_id.clone();
        let mut client = guest.client.clone();
        let error = error(client.start_exec(request.clone()).await);
        assert_eq!(error.code, ErrorCode::Conflict, "{most}: {error}");
        assert!(error.message.contains("stop and resume"), "{error}");
        assert!(client.get_exec(reference(&id)).await.is_err());
        // Files need no process or thread more.
        client.stat(crate::files::stat("/workspace")).await.unwrap();
        group.set("pids.max", "max");
        assert_eq!(guest.run(request).await.stdout(), "no\n");
    }
    drop(guest);
}
