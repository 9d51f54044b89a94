//! Other OCI runtimes by name. The set-up installs runc and runsc, so these never pass by being absent.

use super::fixture::{Instance, says, shell, spec};
use atoll_provider::{Command, Container, ContainerSpec, Provider, TerminalSize};
use atoll_types::{ErrorCode, Isolation, Profile};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn by(runtime: &str, profile: &str) -> ContainerSpec {
    let isolation = Isolation::Runtime(runtime.into());
    ContainerSpec { profile: Profile { isolation, ..Profile::builtin(profile).unwrap() }, ..spec(profile) }
}

async fn on_terminal(c: &Arc<dyn Container>, line: &str) -> String {
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let finished = c.guest().run(&Command { terminal, ..Command::shell(line) }).await.unwrap();
    assert_eq!(finished.report.failure, None);
    String::from_utf8_lossy(&finished.stdout).into_owned()
}

#[tokio::test]
async fn runc_gives_the_same_sandbox() {
    let instance = Instance::start().await;
    assert!(instance.provider.capabilities().await.unwrap().runtimes.contains(&"runc".to_owned()));
    let c = instance.provider.create(by("runc", "default")).await.unwrap();
    assert_eq!(says(&c, "id -u; echo $HOME; nproc; hostname").await, "1000\n/home/user\n1\nsandbox");
    let status = says(&c, "cat /proc/self/status").await;
    assert!(status.contains("CapBnd:\t0000000000000000") && status.contains("Seccomp:\t2"), "{status}");
    assert_ne!(shell(&c, "touch /usr/x").await.report.exit_code, Some(0));
    assert_eq!(on_terminal(&c, "tty; stty size").await, "/dev/pts/0\r\n24 80\r\n");
    let c = instance.provider.create(by("runc", "tools")).await.unwrap();
    assert_eq!(says(&c, "id -u; touch /workspace/x && ls /workspace").await, "65532\nx");
    // Its end is seen as any other's.
    let pid = instance.pid_of(&c);
    std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    assert_eq!(c.died().await.unwrap().signal, Some(9));
}

#[tokio::test]
async fn gvisor_answers_instead_of_the_kernel() {
    let instance = Instance::start().await;
    let c = instance.provider.create(by("runsc", "default")).await.unwrap();
    assert_eq!(says(&c, "id -u; pwd").await, "1000\n/workspace");
    let kernel = says(&c, "cat /proc/version").await;
    let host = std::fs::read_to_string("/proc/version").unwrap();
    assert_ne!(kernel, host.trim());
    assert_eq!(says(&c, "python3 -c 'print(6*7)'; echo x > /workspace/x; cat /workspace/x").await, "42\nx");
    assert_ne!(shell(&c, "touch /usr/x").await.report.exit_code, Some(0));
    assert_eq!(on_terminal(&c, "stty size; test -t 1 && id -u").await, "24 80\r\n1000\r\n");
    // Files need openat2, which gVisor of 2022 has not: then it is refused, and never done less safely.
    match c.guest().list_dir("/workspace").await {
        Ok(entries) => assert_eq!(entries.len(), 1),
        Err(error) => assert_eq!(error.code, ErrorCode::Unsupported, "{error:?}"),
    }
    // PID 1 listens on the loopback there; without its token it says nothing.
    let knock = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:2024/\", timeout=5)'";
    assert_ne!(shell(&c, knock).await.report.exit_code, Some(0));
}

#[tokio::test]
async fn an_absent_runtime_is_refused_by_name() {
    let instance = Instance::start().await;
    for name in ["kata-runtime", "sh", "python3"] {
        let error = instance.provider.create(by(name, "default")).await.err().unwrap();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::Unsupported, Some("profile.isolation")));
        assert!(error.message.contains("runc"), "it says what there is: {}", error.message);
    }
}

#[tokio::test]
async fn servers_under_other_runtimes_are_reached_too() {
    let instance = Instance::start().await;
    for runtime in ["runc", "runsc"] {
        let c = instance.provider.create(by(runtime, "default")).await.unwrap();
        let power = c.ports().unwrap();
        let closed = power.connect(8080).await.err().unwrap();
        assert_eq!(closed.code, ErrorCode::BadGateway, "{runtime}");
        let line = "mkdir /tmp/w; echo hello > /tmp/w/x; cd /tmp/w; \
                    setsid python3 -m http.server 8080 --bind 127.0.0.1 > /tmp/log 2>&1 < /dev/null & sleep 0.1";
        assert_eq!(shell(&c, line).await.report.exit_code, Some(0), "{runtime}");
        let mut stream = loop {
            match power.connect(8080).await {
                Ok(stream) => break stream,
                Err(error) => assert_eq!(error.code, ErrorCode::BadGateway),
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        };
        assert_eq!(power.listening().await.unwrap(), [8080], "{runtime}: PID 1's own port is not told");
        stream.write_all(b"GET /x HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("hello\n"), "{runtime}: {answer}");
        instance.provider.destroy(c.id()).await.unwrap();
    }
}
