//! Memory that a sandbox holds by sockets. Each attack held hundreds of megabytes of the machine in a
//! sandbox of 64.

use super::fixture::{Instance, eventually, says, spec};
use atoll_provider::{Command, Container, ContainerSpec, Provider};
use atoll_types::Limits;
use std::{fs, sync::Arc, time::Duration};

const MIB: u64 = 1 << 20;

/// Pairs of connections with large buffers, filled until nothing more goes in.
const TCP: &str = r"
import socket
server = socket.create_server(('127.0.0.1', 0), backlog=100); kept = []
for _ in range(58):
    a = socket.create_connection(server.getsockname()); b = server.accept()[0]
    for s in (a, b):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF): s.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
        s.setblocking(False)
    kept.append((a, b))
for pair in kept:
    for s in pair:
        try:
            while True: s.send(bytes(1 << 20))
        except BlockingIOError: pass
";

const UDP: &str = r"
import socket
kept = []
for _ in range(200):
    r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(('127.0.0.1', 0))
    r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setblocking(False)
    try:
        for _ in range(200): s.sendto(bytes(60000), r.getsockname())
    except OSError: pass
    kept.append((r, s))
";

const UNIX: &str = r"
import socket
kept = []
try:
    for _ in range(500):
        a, b = socket.socketpair(); kept.append((a, b))
        for s in (a, b):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20); s.setblocking(False)
            try:
                while True: s.send(bytes(1 << 16))
            except BlockingIOError: pass
except OSError: pass
";

/// What the buffers of a container's sockets hold: received, to be sent, and taken in advance. The kernel's own sum
/// is over the whole machine, where others use sockets too.
fn buffers(pid: i32) -> u64 {
    let look = ["--target", &pid.to_string(), "--net", "ss", "--no-header", "-atum"];
    let shown = std::process::Command::new("nsenter").args(look).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    // As in skmem:(r0,rb131072,t0,tb2626560,f0,w0,o0,bl0,d0).
    let of_one = |figures: &str| -> u64 {
        let held = |figure: &str| figure.strip_prefix(['r', 'f', 'w']).and_then(|n| n.parse::<u64>().ok());
        figures.split(',').filter_map(held).sum()
    };
    String::from_utf8(shown.stdout).unwrap().split("skmem:(").skip(1).map(of_one).sum()
}

/// Runs an attack that holds what it took, until it has taken it all.
async fn attacked(c: &Arc<dyn Container>, program: &str) {
    let program = format!("{program}\nopen('/workspace/done', 'w')\nimport time; time.sleep(1000)");
    let hostile = Arc::clone(c);
    let held = tokio::spawn(async move {
        hostile.guest().run(&Command::new(["/usr/bin/python3", "-c", &program])).await
    });
    let began = std::time::Instant::now();
    // Ended for its memory is as good an end.
    while !held.is_finished() && says(c, "ls /workspace").await != "done" {
        assert!(began.elapsed() < Duration::from_secs(120));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn small(instance: &Instance) -> Arc<dyn Container> {
    let limits = Limits { memory_bytes: 64 * MIB, ..Limits::default() };
    instance.provider.create(ContainerSpec { limits, ..spec("default") }).await.unwrap()
}

#[tokio::test]
async fn buffers_of_sockets_are_within_the_limit() {
    let instance = Instance::start().await;
    let power = instance.provider.usage().unwrap();
    for (name, program) in [("tcp", TCP), ("udp", UDP), ("unix", UNIX)] {
        let c = small(&instance).await;
        let shown_before = power.one(c.id()).await.unwrap().memory_bytes.unwrap();
        attacked(&c, program).await;
        let held = buffers(instance.pid_of(&c));
        let shown = power.one(c.id()).await.unwrap().memory_bytes.unwrap();
        println!("{name}: {} MiB in buffers, {} MiB shown", held / MIB, shown / MIB);
        // cgroup v2 charges buffers to the sandbox's memory and has no limit of their own; the kernel's sum counts
        // whole pages that are partly used.
        let most = if fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap() { 96 } else { 48 };
        assert!(held < most * MIB, "{name}: {} MiB are held in a sandbox of 64", held / MIB);
        // The kernel charges whole pages, and not at once, so the figures are not compared to the byte.
        assert!(
            shown <= 96 * MIB && shown + 8 * MIB > shown_before + held,
            "{name}: shown {shown}, held {held}"
        );
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

/// The limit is set again with the memory's.
#[tokio::test]
async fn the_limit_of_buffers_follows_the_memory() {
    let instance = Instance::start().await;
    let c = small(&instance).await;
    let file = format!("/sys/fs/cgroup/memory/atoll/{}/{}", instance.layout.instance(), c.id());
    let Ok(limit) = fs::read_to_string(format!("{file}/memory.kmem.tcp.limit_in_bytes")) else { return };
    assert_eq!(limit.trim(), (16 * MIB).to_string());
    let limits = Limits { memory_bytes: 128 * MIB, ..Limits::default() };
    c.live_limits().unwrap().set_limits(limits).await.unwrap();
    let limit = fs::read_to_string(format!("{file}/memory.kmem.tcp.limit_in_bytes")).unwrap();
    assert_eq!(limit.trim(), (32 * MIB).to_string());
}

/// Connections that were closed again and wait to be accepted for ever: made by the kernel, and charged to
/// no cgroup.
pub(crate) const UNACCEPTED: &str = r"
import socket
kept = []
while True:
    server = socket.create_server(('127.0.0.1', 0), backlog=4096); kept.append(server)
    server.setblocking(False)
    for _ in range(1000):
        with socket.socket() as s: s.connect(server.getsockname())
";

/// Requests on netlink whose answers are never read.
const NETLINK: &str = r"
import socket, struct, time
kept = []
message = struct.pack('IHHII', 16, 9999, 5, 1, 0)
while True:
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((0, 0)); s.setblocking(False)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20); kept.append(s)
    try:
        for _ in range(4000): s.send(message)
    except OSError: pass
    if len(kept) > 500: time.sleep(1000)
";

/// What no cgroup counts is looked at, and ends the commands that hold it. The sandbox stays.
#[tokio::test]
async fn uncounted_sockets_end_their_commands() {
    let instance = Instance::start().await;
    for (name, program) in [("unaccepted", UNACCEPTED), ("netlink", NETLINK)] {
        let c = small(&instance).await;
        let finished = c.guest().run(&Command::new(["/usr/bin/python3", "-c", program])).await.unwrap();
        assert_eq!(finished.report.signal, Some(9), "{name}: {:?}", finished.report);
        assert_eq!(says(&c, "echo alive").await, "alive", "{name}");
        let usage = instance.provider.usage().unwrap();
        while usage.one(c.id()).await.unwrap().socket_kills == Some(0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let network = format!("/proc/{}/net/sockstat", instance.pid_of(&c));
        eventually("the end of its sockets", || {
            let text = fs::read_to_string(&network).unwrap();
            let used = text.lines().next().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            used.unwrap() < 100
        });
        instance.provider.destroy(c.id()).await.unwrap();
    }
}
