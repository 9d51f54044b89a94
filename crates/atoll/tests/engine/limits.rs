//! Every limit is enforced by the kernel, and says so when it strikes.

use super::fixture::{Instance, python, says, shell, spec};
use atoll_provider::{Command, ContainerSpec, Provider};
use atoll_types::{ErrorCode, Limits};
use std::fs;

const MIB: u64 = 1 << 20;

async fn limited(instance: &Instance, limits: Limits) -> std::sync::Arc<dyn atoll_provider::Container> {
    instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap()
}

const EAT: &str = "import sys\nb = []\nwhile True: b.append(bytearray(b'x' * (4 << 20)))";

#[tokio::test]
async fn memory_ends_the_command_and_not_the_sandbox() {
    let instance = Instance::start().await;
    let c = limited(&instance, Limits { memory_bytes: 96 * MIB, ..Limits::default() }).await;
    let finished = c.guest().run(&Command::new(["/usr/bin/python3", "-c", EAT])).await.unwrap();
    assert_eq!(
        (finished.report.signal, finished.report.oom_killed),
        (Some(9), true),
        "{:?}",
        finished.report
    );
    assert!(finished.report.oom_kills >= 1);
    assert_eq!(says(&c, "echo alive").await, "alive");
    // A kill that is nobody's memory is not called one.
    let finished = shell(&c, "kill -9 $$").await;
    assert_eq!((finished.report.signal, finished.report.oom_killed), (Some(9), false));
    // A file in memory counts as well.
    let finished = shell(&c, "head -c 200M /dev/zero > /dev/shm/x").await;
    assert_ne!(finished.report.exit_code, Some(0), "{:?}", finished.report);
    assert_eq!(says(&c, "rm -f /dev/shm/x; echo alive").await, "alive");
}

#[tokio::test]
async fn output_is_not_charged_to_a_small_sandbox() {
    let instance = Instance::start().await;
    let c = limited(&instance, Limits { memory_bytes: 32 * MIB, ..Limits::default() }).await;
    let finished = shell(&c, "head -c 60M /dev/zero").await;
    assert_eq!(
        (finished.report.exit_code, finished.stdout.len()),
        (Some(0), 60 << 20),
        "{:?}",
        finished.report
    );
    assert!(!finished.report.oom_killed);
}

#[tokio::test]
async fn processors_are_as_many_as_granted() {
    let instance = Instance::start().await;
    let c = limited(&instance, Limits { cpu_millis: 500, ..Limits::default() }).await;
    assert_eq!(says(&c, "nproc").await, "1");
    assert_eq!(python(&c, "import os; print(len(os.sched_getaffinity(0)))").await, "1");
    let program =
        "import os\nos.sched_setaffinity(0, range(os.cpu_count()))\nprint(len(os.sched_getaffinity(0)))";
    assert_eq!(python(&c, program).await, "1", "asking for more gives no more");
    // The share itself: the process is held back. So small a share that a busy machine gives as much.
    let small = Limits { cpu_millis: 50, ..Limits::default() };
    c.live_limits().unwrap().set_limits(small).await.unwrap();
    says(&c, "timeout 3 sh -c 'while :; do :; done' || true").await;
    let stat = cgroup_file(&instance, &c, "cpu", "cpu.stat");
    let throttled = stat.lines().find_map(|l| l.strip_prefix("nr_throttled ")).unwrap();
    assert!(throttled.parse::<u64>().unwrap() > 0, "{stat}");
}

fn cgroup_file(
    instance: &Instance,
    c: &std::sync::Arc<dyn atoll_provider::Container>,
    controller: &str,
    name: &str,
) -> String {
    let roots = [format!("/sys/fs/cgroup/{controller}"), "/sys/fs/cgroup".into()];
    let paths = roots.map(|r| format!("{r}/atoll/{}/{}/{name}", instance.layout.instance(), c.id()));
    paths.iter().find_map(|p| fs::read_to_string(p).ok()).unwrap()
}

#[tokio::test]
async fn a_fork_bomb_is_contained() {
    let instance = Instance::start().await;
    let c = limited(&instance, Limits { processes: 40, ..Limits::default() }).await;
    let bomb = "bomb() { bomb | bomb & }; bomb; sleep 1000";
    let command = Command { timeout: Some(std::time::Duration::from_secs(2)), ..Command::shell(bomb) };
    let finished = c.guest().run(&command).await.unwrap();
    assert!(finished.report.timed_out);
    assert_eq!(says(&c, "pgrep -c sleep || true; echo alive").await, "0\nalive");
}

#[tokio::test]
async fn open_files_and_disk_have_an_end() {
    let instance = Instance::start().await;
    let c = limited(&instance, Limits { open_files: 100, disk_bytes: 50 * MIB, ..Limits::default() }).await;
    assert_eq!(says(&c, "ulimit -n; ulimit -Hn").await, "100\n100");
    for place in ["/workspace", "/tmp", "$HOME"] {
        let finished = shell(&c, &format!("head -c 80M /dev/zero > {place}/big")).await;
        let error = String::from_utf8_lossy(&finished.stderr).into_owned();
        assert_ne!(finished.report.exit_code, Some(0), "{place}");
        assert!(error.contains("quota") || error.contains("No space"), "{place}: {error}");
        shell(&c, &format!("rm {place}/big; sync")).await;
    }
    // The sandbox still works, and its output does not need the disk that it filled.
    shell(&c, "head -c 80M /dev/zero > /workspace/big").await;
    assert_eq!(says(&c, "echo still here").await, "still here");
    let full = c.guest().write_file(
        "more",
        atoll_provider::WriteOptions::default(),
        futures_util::stream::iter([Ok(bytes::Bytes::from(vec![1; 8 << 20]))]),
    );
    assert_eq!(full.await.unwrap_err().code, ErrorCode::DiskFull);
    assert_eq!(says(&c, "ls -A /workspace").await, "big", "nothing half-written is left");
}

#[tokio::test]
async fn a_disk_limit_below_what_is_used_is_refused() {
    let instance = Instance::start().await;
    let c = limited(&instance, Limits { disk_bytes: 200 * MIB, ..Limits::default() }).await;
    says(&c, "head -c 100M /dev/zero > /workspace/big; sync /workspace/big").await;
    let power = c.live_limits().unwrap();
    let error = power.set_limits(Limits { disk_bytes: 20 * MIB, ..Limits::default() }).await.unwrap_err();
    assert!(
        matches!(error.code, ErrorCode::Conflict | ErrorCode::InvalidArgument | ErrorCode::DiskFull),
        "{error:?}"
    );
    power.set_limits(Limits { disk_bytes: 300 * MIB, ..Limits::default() }).await.unwrap();
    says(&c, "head -c 150M /dev/zero > /workspace/more").await;
}
