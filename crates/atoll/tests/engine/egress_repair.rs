//! Whichever process is killed: the egress sockets of living containers stay, and those of dead ones are closed.

use super::{
    egress_sockets::{Served, assert_serves, egress_sockets_of},
    fixture::{Instance, all_processes, eventually, options, python, says},
    network::{Network, ip},
};
use atoll_launch_proto::Request;
use atoll_provider::{Command, Container, EgressSockets, ExecEvent, Provider};
use atoll_provider_native::ensure_launcher;
use atoll_types::{ErrorCode, ExecId};
use rustix::{fd::AsFd, fs::fstat};
use std::{fs, process, sync::Arc};

fn signal(name: &str, pid: i32) {
    let status = process::Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill {name} {pid}");
}

/// The numbers of a gate's sockets.
fn numbers(egress_sockets: &EgressSockets) -> Vec<u64> {
    let EgressSockets { proxy, redirected, names, names_tcp } = egress_sockets;
    let all = [Some(proxy), redirected.as_ref(), Some(names), Some(names_tcp)];
    all.into_iter().flatten().map(|fd| fstat(fd.as_fd()).unwrap().st_ino).collect()
}

/// The processes that have one of these sockets open. As long as there is one, its network lives.
fn holders(numbers: &[u64]) -> Vec<i32> {
    let wanted: Vec<String> = numbers.iter().map(|n| format!("socket:[{n}]")).collect();
    let holds = |pid: &i32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = open.filter_map(|fd| fs::read_link(fd.path()).ok()?.to_str().map(str::to_owned));
        links.any(|link| wanted.contains(&link))
    };
    all_processes().into_iter().filter(holds).collect()
}

async fn restarted(instance: &Instance) {
    ensure_launcher(&options(instance.data(), &[])).await.unwrap();
}

/// Waits until the launcher has a keeper other than this one.
fn another_socket_holder(instance: &Instance, former: i32) -> i32 {
    eventually("another keeper", || instance.socket_holder_pid().is_some_and(|pid| pid != former));
    instance.socket_holder_pid().unwrap()
}

#[tokio::test]
async fn egress_sockets_outlive_launcher_and_monitor() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let egress_sockets = egress_sockets_of(&c).await;
    let before = numbers(&egress_sockets);
    let keeper = instance.socket_holder_pid().unwrap();
    // Only the socket holder and the server have them: no launcher, no worker, nothing inside.
    let mut known = vec![keeper, i32::try_from(process::id()).unwrap()];
    known.sort_unstable();
    eventually("two holders", || {
        let mut all = holders(&before);
        all.sort_unstable();
        all == known
    });
    drop(egress_sockets);
    let launcher = instance.launcher_pids()[1];
    signal("-KILL", launcher);
    eventually("a new launcher", || {
        let pids = instance.launcher_pids();
        pids.len() >= 2 && !pids.contains(&launcher)
    });
    instance.launcher_answers().await;
    assert_eq!(numbers(&egress_sockets_of(&c).await), before);
    for pid in instance.launcher_pids() {
        signal("-KILL", pid);
    }
    // No process serves or repairs them, and still no process inside can bind the port.
    let take = "import socket\ntry: socket.create_server(('127.0.0.1',3128)); print('taken')\nexcept OSError as e: print(e.errno)";
    assert_eq!(python(&c, take).await, "98");
    restarted(&instance).await;
    assert_eq!(instance.socket_holder_pid(), Some(keeper), "the next launcher takes it over");
    let egress_sockets = egress_sockets_of(&c).await;
    assert_eq!(numbers(&egress_sockets), before);
    assert_serves(&c, &Served::new(egress_sockets)).await;
}

#[tokio::test]
async fn a_killed_socket_holder_is_replaced_and_sockets_are_bound_again() {
    let instance = Instance::start().await;
    let (served, idle) = (instance.container("default").await, instance.container("root").await);
    drop(egress_sockets_of(&idle).await);
    let egress_sockets = egress_sockets_of(&served).await;
    let before = numbers(&egress_sockets);
    let server = Served::new(egress_sockets);
    let keeper = instance.socket_holder_pid().unwrap();
    signal("-KILL", keeper);
    let keeper = another_socket_holder(&instance, keeper);
    // Where a server still has it, it is the same socket and was never free.
    assert_eq!(numbers(&egress_sockets_of(&served).await), before);
    assert_serves(&served, &server).await;
    drop(server);
    eventually("the keeper has it", || holders(&before).contains(&keeper));
    // Where none had, it is another socket at the same addresses.
    assert_serves(&idle, &Served::new(egress_sockets_of(&idle).await)).await;
    assert_serves(&served, &Served::new(egress_sockets_of(&served).await)).await;
    // And new containers have theirs.
    let c = instance.container("default").await;
    assert_serves(&c, &Served::new(egress_sockets_of(&c).await)).await;
}

/// Starts something inside that takes a port as soon as it is free, and keeps it.
async fn lie_in_wait(c: &Arc<dyn Container>) -> ExecId {
    let program = "import socket,time\nwhile True:\n try: s=socket.create_server(('127.0.0.1',3128)); break\n except OSError: time.sleep(0.001)\n\
                   print('mine',flush=True)\ntime.sleep(1000)";
    let id = ExecId::random();
    c.guest().start(id, &Command::new(["/usr/bin/python3", "-c", program])).await.unwrap();
    id
}

async fn says_mine(c: &Arc<dyn Container>, id: ExecId) {
    let mut events = c.guest().attach(id, 0, true).await.unwrap();
    while let Some(event) = events.next().await.unwrap() {
        if let ExecEvent::Output { data, .. } = event {
            return assert_eq!(data.as_ref(), b"mine\n");
        }
    }
    panic!("it ended");
}

#[tokio::test]
async fn a_port_that_was_taken_meanwhile_means_no_way_out() {
    let instance = Instance::start().await;
    let (hostile, other) = (instance.container("default").await, instance.container("default").await);
    drop((egress_sockets_of(&hostile).await, egress_sockets_of(&other).await));
    let [_, launcher] = instance.launcher_pids()[..] else { panic!("a monitor and a launcher") };
    let waiting = lie_in_wait(&hostile).await;
    // No launcher is there to bind it again before it is taken.
    signal("-STOP", launcher);
    let keeper = instance.socket_holder_pid().unwrap();
    signal("-KILL", keeper);
    says_mine(&hostile, waiting).await;
    signal("-CONT", launcher);
    another_socket_holder(&instance, keeper);
    let error = hostile.egress_endpoint().unwrap().egress_sockets().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict, "{error:?}");
    assert!(error.message.contains("127.0.0.1:3128") && error.message.contains("restart"), "{error:?}");
    // It is that container's way out and nothing else.
    assert_eq!(says(&hostile, "echo lives").await, "lives");
    assert_serves(&other, &Served::new(egress_sockets_of(&other).await)).await;
    let c = instance.container("default").await;
    assert_serves(&c, &Served::new(egress_sockets_of(&c).await)).await;
    instance.provider.destroy(hostile.id()).await.unwrap();
}

#[tokio::test]
async fn a_destroyed_container_leaves_no_socket() {
    let instance = Instance::start().await;
    let gone = |what: &str, numbers: &[u64]| eventually(what, || holders(numbers).is_empty());
    let destroyed = async |between: &dyn Fn()| {
        let c = instance.container("default").await;
        let egress_sockets = egress_sockets_of(&c).await;
        let numbers = numbers(&egress_sockets);
        let closed = c.egress_endpoint().unwrap().closed();
        drop(egress_sockets);
        assert_eq!(holders(&numbers), [instance.socket_holder_pid().unwrap()]);
        between();
        restarted(&instance).await;
        instance.provider.destroy(c.id()).await.unwrap();
        // The server that has it is told.
        closed.await;
        numbers
    };
    gone("a plain end", &destroyed(&|| {}).await);
    let kill_all = || instance.launcher_pids().into_iter().for_each(|pid| signal("-KILL", pid));
    gone("an end after the launcher's", &destroyed(&kill_all).await);
    // One that died is kept until it is destroyed, as everything of it is.
    let c = instance.container("default").await;
    let kept = numbers(&egress_sockets_of(&c).await);
    signal("-KILL", instance.pid_of(&c));
    c.died().await.unwrap();
    assert_eq!(
        c.egress_endpoint().unwrap().egress_sockets().await.unwrap_err().code,
        ErrorCode::ContainerDied
    );
    instance.provider.destroy(c.id()).await.unwrap();
    gone("the end of a dead one", &kept);
    // One whose folder vanished while no launcher ran.
    let c = instance.container("default").await;
    let kept = numbers(&egress_sockets_of(&c).await);
    kill_all();
    fs::remove_file(instance.layout.run().join("c").join(c.id().to_string()).join("record.json")).unwrap();
    restarted(&instance).await;
    gone("the end of half a container", &kept);
    assert_eq!(instance.provider.list().await.unwrap(), vec![]);
    // Sockets that came with a create and were never asked for are closed as well.
    let c = instance.container("default").await;
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", instance.pid_of(&c))).unwrap();
    let proxy = table.lines().find(|line| line.contains("0100007F:0C38")).unwrap();
    let kept: u64 = proxy.split_whitespace().nth(9).unwrap().parse().unwrap();
    assert!(holders(&[kept]).contains(&i32::try_from(process::id()).unwrap()));
    instance.provider.destroy(c.id()).await.unwrap();
    gone("the end of one that nobody served", &[kept]);
    let error = c.egress_endpoint().unwrap().egress_sockets().await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotFound, "{error:?}");
}

/// Whether there is a link with this name in this thread's network.
fn has_link(name: &str) -> bool {
    let shown = process::Command::new("ip").args(["link", "show", name]).output().unwrap();
    shown.status.success()
}

#[tokio::test]
async fn a_destroyed_containers_network_is_gone() {
    let (before, own) = (Network::here(), Network::new());
    own.enter();
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    // One end here, the other inside: the kernel takes it away when that network ends, and not before.
    let inside = format!("/proc/{}/ns/net", instance.pid_of(&c));
    ip(&[format!("link add watch type veth peer name inside netns {inside}")]);
    let egress_sockets = egress_sockets_of(&c).await;
    instance.provider.destroy(c.id()).await.unwrap();
    drop(c);
    assert!(has_link("watch"), "a socket that somebody holds keeps it");
    drop(egress_sockets);
    eventually("the end of the network", || !has_link("watch"));
    // The same where the sockets were never asked for, and where the container died.
    let c = instance.container("default").await;
    let pid = instance.pid_of(&c);
    ip(&[format!("link add watch type veth peer name inside netns /proc/{pid}/ns/net")]);
    signal("-KILL", pid);
    c.died().await.unwrap();
    instance.provider.destroy(c.id()).await.unwrap();
    eventually("the end of the dead one's network", || !has_link("watch"));
    before.enter();
}

#[tokio::test]
async fn the_socket_holder_listens_to_root_alone_and_ends_with_the_instance() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let keeper = instance.socket_holder_pid().unwrap();
    let socket = instance.layout.run().join("keep.sock");
    let knock = |uid: u32| {
        let program = format!(
            "import os,socket\nos.setgid({uid}); os.setuid({uid})\ns=socket.socket(socket.AF_UNIX)\n\
             try:\n s.connect({socket:?}); s.sendall(b'\\0\\0\\0\\6\"list\"'); print(len(s.recv(4096)))\n\
             except OSError: print(0)"
        );
        let ran = process::Command::new("/usr/bin/python3").args(["-c", &program]).output().unwrap();
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    };
    assert_ne!(knock(0), "0");
    assert_eq!(knock(4242), "0");
    // Nonsense changes nothing.
    for bytes in [&b"\0\0\0\x02{}"[..], b"\xff\xff\xff\xff", b"\0\0", b"\0\0\0\x04null"] {
        use std::io::Write;
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.write_all(bytes).unwrap();
    }
    assert_serves(&c, &Served::new(egress_sockets_of(&c).await)).await;
    assert_eq!(instance.socket_holder_pid(), Some(keeper));
    assert_eq!(fs::read_dir(format!("/proc/{keeper}/task")).unwrap().count(), 1);
    instance.client.ask(Request::Shutdown).await.unwrap();
    eventually("its end", || instance.socket_holder_pid().is_none());
}
