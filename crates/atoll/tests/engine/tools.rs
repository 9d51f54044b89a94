//! Tools in real containers: every profile and runtime, and user code that is after their program.

use super::fixture::{Instance, every_spec, says};
use atoll_provider::{Command, Container, ExecEvent, Provider};
use atoll_types::ExecId;
use std::{fs, sync::Arc};

fn tool(name: &str, request: &str) -> Command {
    Command::tool(name, request.as_bytes().to_vec())
}

async fn finds(container: &Arc<dyn Container>) -> String {
    let found = container.guest().run(&tool("find", r#"{"kind":"file"}"#)).await.unwrap();
    assert_eq!(found.report.exit_code, Some(0), "{found:?}");
    String::from_utf8(found.stdout).unwrap()
}

#[tokio::test]
async fn tools_run_in_every_profile_and_runtime() {
    let instance = Instance::start().await;
    for spec in every_spec() {
        let about = format!("{} {:?}", spec.profile.name, spec.profile.isolation);
        let c = instance.provider.create(spec).await.unwrap();
        assert!(c.guest().has("tools"), "{about}");
        says(&c, "mkdir -p a/b && echo x > a/b/f").await;
        assert!(finds(&c).await.starts_with(r#"{"entry":{"path":"a/b/f","type":"file","size":2"#), "{about}");
        // Not all at once: each is promised a gigabyte of disk.
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

/// Tries whatever could reach a tool's program, and says what worked.
const ATTACK: &str = r#"
import os, glob, stat
found = set()
def attempt(name, act):
    try:
        act()
        found.add(name)
    except OSError:
        pass
def reopen(path, flags):
    fd = os.open(path, os.O_PATH)
    os.close(os.open(f"/proc/self/fd/{fd}", flags))
for _ in range(int(os.environ.get("ROUNDS", "1"))):
    for exe in glob.glob("/proc/[0-9]*/exe"):
        pid = exe.split("/")[2]
        try:
            line = open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            continue
        if not line.startswith(b"atoll-init"):
            continue
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            attempt("open", lambda: os.close(os.open(exe, flags)))
            attempt("reopen", lambda: reopen(exe, flags))
        attempt("chmod", lambda: os.chmod(exe, 0o777))
        attempt("chown", lambda: os.chown(exe, os.getuid(), os.getgid()))
        attempt("truncate", lambda: os.truncate(exe, 0))
        attempt("mem", lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)))
        attempt("path", lambda: found.add("path " + os.readlink(exe)) if os.readlink(exe) not in ("/", "") else 1/0)
print(sorted(found - {"path"}))
"#;

#[tokio::test]
async fn nobody_can_change_a_tools_program() {
    let instance = Instance::start().await;
    let programs = || -> Vec<(std::path::PathBuf, Vec<u8>)> {
        let folder = fs::read_dir(instance.layout.run().join("bin")).unwrap();
        folder.map(|e| e.unwrap().path()).map(|p| (p.clone(), fs::read(p).unwrap())).collect()
    };
    let before = programs();
    assert_eq!(before.len(), 1);
    for profile in ["default", "root"] {
        let c = instance.container(profile).await;
        let attack = Command::new([
            "/usr/bin/python3".to_owned(),
            "-c".into(),
            // What is no OSError would end the attack early and prove nothing.
            ATTACK.replace("1/0", "os.stat('/no/such')"),
        ]);
        // One that stays.
        let id = ExecId::random();
        let watch = Command { stdin: true, ..tool("watch", r#"{"path":"/workspace","recursive":true}"#) };
        let mut events = c.guest().exec(id, &watch).await.unwrap();
        while !matches!(events.next().await.unwrap(), Some(ExecEvent::Output { .. })) {}
        let tried = c.guest().run(&attack).await.unwrap();
        let said = String::from_utf8_lossy(&tried.stdout).into_owned();
        assert_eq!(said.trim(), "[]", "{profile}: {tried:?}");
        // And many that begin while the attack goes on, when they can still be looked at.
        let mut long = attack.clone();
        long.environment.insert("ROUNDS".into(), "400".into());
        let guest = c.guest().clone();
        let attacking = tokio::spawn(async move { guest.run(&long).await });
        let mut runs = 0;
        while !attacking.is_finished() {
            finds(&c).await;
            runs += 1;
        }
        let tried = attacking.await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&tried.stdout).into_owned();
        assert!(runs > 3, "{runs}");
        for power in ["open", "chmod", "chown", "truncate", instance.data().to_str().unwrap()] {
            assert!(!said.contains(power), "{profile}: {said}");
        }
        assert_eq!(tried.report.exit_code, Some(0), "{tried:?}");
        c.guest().kill(id).await.unwrap();
    }
    assert!(programs() == before, "the program changed");
}
