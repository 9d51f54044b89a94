//! Ends: signals, timeouts, and whole trees of processes that do not want to die.

use crate::support::*;
use atoll_guest_proto::v1::{ExecRequest, SignalRequest};
use atoll_types::ErrorCode;

/// Double forks and new sessions, three levels deep, every process ignoring what can be ignored.
const BOMB: &str = r"
import os, signal, time
for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
def detach(depth):
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    for _ in range(2):
        if depth: detach(depth - 1)
    open('/workspace/alive-%d' % os.getpid(), 'w').close()
    time.sleep(1000)
for _ in range(3): detach(3)
print('up', flush=True)
time.sleep(1000)
";

/// The processes below this one that are still there, by looking for their files' pids.
async fn alive(guest: &Guest) -> usize {
    let script = r"n=0; for f in alive-*; do [ -d /proc/${f#alive-} ] && n=$((n+1)); done; echo $n";
    guest.output(script).await.parse().unwrap()
}

async fn start_bomb(guest: &Guest) -> String {
    let request = python(BOMB);
    let id = request.exec_id.clone();
    guest.client.clone().start_exec(request).await.unwrap();
    eventually("the bomb is up", async || guest.output("ls | grep -c alive- || :").await == "45").await;
    id
}

#[tokio::test]
async fn killing_reaches_everything_below() {
    let guest = Guest::start().await;
    let id = start_bomb(&guest).await;
    assert!(alive(&guest).await >= 24);
    let info = guest.client.clone().kill_exec(reference(&id)).await.unwrap().into_inner();
    assert_eq!(alive(&guest).await, 0);
    assert!(info.killed && !info.timed_out && !info.descendants_alive);
    assert_eq!(info.signal, Some(libc::SIGKILL));
}

#[tokio::test]
async fn a_fork_bomb_is_caught() {
    let guest = Guest::start().await;
    // Every process forks without end, up to a bound that keeps the machine usable for others.
    let bomb = "import os, resource\nresource.setrlimit(resource.RLIMIT_NPROC, (150, 150))\n\
                print('up', flush=True)\nwhile 1:\n  try: os.fork() or os.setsid()\n  except OSError: pass\n";
    let request = ExecRequest { user: "4321".into(), working_directory: "/tmp".into(), ..python(bomb) };
    let id = request.exec_id.clone();
    guest.client.clone().start_exec(request).await.unwrap();
    eventually("it grows", async || {
        guest.output("ps -o pid= -U 4321 | wc -l").await.parse::<usize>().unwrap() > 100
    })
    .await;
    let info = guest.client.clone().kill_exec(reference(&id)).await.unwrap().into_inner();
    assert!(info.killed);
    assert_eq!(guest.output("ps -o pid= -U 4321 | wc -l").await, "0");
}

#[tokio::test]
async fn a_timeout_kills_the_tree_and_says_so() {
    let guest = Guest::start().await;
    let line = "setsid sleep 1000 & echo $! >pid; echo before; sleep 1000";
    let (mut id, mut said) = (String::new(), String::new());
    // On a busy machine the time may be up before the shell has come so far; then it gets more.
    for timeout_ms in [200, 2000, 20_000, 60_000] {
        let request = ExecRequest { timeout_ms, ..sh(line) };
        id.clone_from(&request.exec_id);
        let seen = guest.run(request).await;
        assert_eq!((seen.info().timed_out, seen.info().killed), (true, false));
        assert_eq!((seen.info().signal, seen.info().exit_code), (Some(libc::SIGKILL), None));
        said = seen.stdout();
        if !said.is_empty() {
            break;
        }
    }
    assert_eq!(said, "before\n");
    // The time has ended all of it, what left the group too; killed by name it is only below.
    let gone = "kill -0 $(cat pid) 2>/dev/null || echo gone";
    while guest.output(gone).await != "gone" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    guest.client.clone().kill_exec(reference(&id)).await.unwrap();
    let seen = guest.run(ExecRequest { timeout_ms: 60_000, ..sh("exit 5") }).await;
    assert_eq!((seen.info().exit_code, seen.info().timed_out), (Some(5), false));
    let seen = guest.run(ExecRequest { timeout_ms: u64::MAX, ..sh("exit 6") }).await;
    assert_eq!((seen.info().exit_code, seen.info().timed_out), (Some(6), false));
}

#[tokio::test]
async fn killing_after_the_end_reaches_what_was_left() {
    let guest = Guest::start().await;
    let request = sh("setsid sleep 1000 >/dev/null 2>&1 & echo $!");
    let id = request.exec_id.clone();
    let seen = guest.run(request).await;
    assert!(seen.info().descendants_alive);
    let info = guest.client.clone().kill_exec(reference(&id)).await.unwrap().into_inner();
    assert!(!info.descendants_alive && !info.killed);
    assert_eq!(info.exit_code, Some(0));
    let gone = format!("kill -0 {} 2>/dev/null || echo gone", seen.stdout().trim());
    assert_eq!(guest.output(&gone).await, "gone");
    // Once more is no error.
    guest.client.clone().kill_exec(reference(&id)).await.unwrap();
}

#[tokio::test]
async fn signals_reach_the_group() {
    let guest = Guest::start().await;
    let request = sh("trap 'echo got; exit 9' USR1; echo up; while :; do sleep 0.02; done");
    let id = request.exec_id.clone();
    let mut events = guest.client.clone().exec(request).await.unwrap().into_inner();
    let mut seen = Seen::default();
    while seen.stdout().is_empty() {
        seen.add(events.message().await.unwrap().unwrap());
    }
    let mut client = guest.client.clone();
    let signal = |signal| SignalRequest { exec_id: id.clone(), signal };
    for wrong in [0, -1, 65, 1000] {
        assert_eq!(error(client.signal_exec(signal(wrong)).await).field.as_deref(), Some("signal"));
    }
    client.signal_exec(signal(libc::SIGUSR1)).await.unwrap();
    while let Some(event) = events.message().await.unwrap() {
        seen.add(event);
    }
    assert_eq!((seen.stdout().as_str(), seen.info().exit_code), ("up\ngot\n", Some(9)));
    assert!(!seen.info().killed);
    assert_eq!(error(client.signal_exec(signal(15)).await).code, ErrorCode::Conflict);
}

#[tokio::test]
async fn nothing_outlives_atoll_init() {
    let mut guest = Guest::start().await;
    start_bomb(&guest).await;
    let pids: Vec<String> = std::fs::read_dir(guest.path("/workspace"))
        .unwrap()
        .filter_map(|e| Some(e.unwrap().file_name().to_str()?.strip_prefix("alive-")?.to_owned()))
        .collect();
    assert!(!pids.is_empty());
    guest.kill();
    let left = || pids.iter().filter(|pid| is_bomb(pid)).count();
    eventually("all are gone", async || left() == 0).await;
}

/// Whether the process is there and is still ours: numbers are used again.
fn is_bomb(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("alive-"))
}

#[tokio::test]
async fn a_killed_shim_takes_its_command_along() {
    let guest = Guest::as_pid_1(root_config()).await;
    let other = sh("sleep 1000");
    let other_id = other.exec_id.clone();
    let mut client = guest.client.clone();
    client.start_exec(other).await.unwrap();
    // Root can kill the shim: its parent.
    let request = sh("setsid sleep 1000 >/dev/null 2>&1 & echo $! >pid; kill -9 $PPID; sleep 1000");
    let id = request.exec_id.clone();
    let seen = guest.run(request).await;
    assert_eq!((seen.info().signal, seen.info().killed), (Some(libc::SIGKILL), false));
    client.kill_exec(reference(&id)).await.unwrap();
    assert_eq!(guest.output("kill -0 $(cat pid) 2>/dev/null || echo gone").await, "gone");
    let info = client.get_exec(reference(&other_id)).await.unwrap().into_inner();
    assert_eq!((info.signal, info.exit_code), (None, None), "another command was hit");
}
