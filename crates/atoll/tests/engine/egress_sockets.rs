//! The egress sockets, from both sides: no process inside can bind their addresses, and whatever is asked there is heard
//! outside, under every runtime.

use super::fixture::{Instance, python, says, shell, spec};
use atoll_provider::{Command, Container, ContainerSpec, EgressSockets, Provider};
use atoll_types::{ErrorCode, ExecId, Isolation, Profile};
use rustix::{fd::AsFd, fs::fstat};
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
};

pub(crate) async fn egress_sockets_of(container: &Arc<dyn Container>) -> EgressSockets {
    container.egress_endpoint().unwrap().egress_sockets().await.unwrap()
}

/// Egress sockets that a test serves.
pub(crate) struct Served {
    pub(crate) proxy: TcpListener,
    pub(crate) names: UdpSocket,
    names_tcp: TcpListener,
    pub(crate) redirected: TcpListener,
}

impl Served {
    pub(crate) fn new(egress_sockets: EgressSockets) -> Self {
        let EgressSockets { proxy, redirected, names, names_tcp } = egress_sockets;
        let listener = |fd| TcpListener::from_std(std::net::TcpListener::from(fd)).unwrap();
        Self {
            proxy: listener(proxy),
            names: UdpSocket::from_std(std::net::UdpSocket::from(names)).unwrap(),
            names_tcp: listener(names_tcp),
            redirected: listener(redirected.expect("this kernel redirects")),
        }
    }
}

/// Runs a program inside that must end well, while the other side is played here.
async fn together<T>(c: &Arc<dyn Container>, program: &str, other: impl Future<Output = T>) -> (String, T) {
    tokio::join!(python(c, program), other)
}

/// Answers one connection with what it said, and tells from which address and at which.
async fn echo(listener: &TcpListener) -> (SocketAddr, SocketAddr) {
    let (mut stream, from) = listener.accept().await.unwrap();
    let at = stream.local_addr().unwrap();
    reply(&mut stream).await;
    (from, at)
}

async fn reply(stream: &mut TcpStream) {
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    stream.write_all(&said).await.unwrap();
    stream.shutdown().await.unwrap();
}

fn talk(address: &str, port: u16, said: &str) -> String {
    format!(
        "import socket\ns=socket.create_connection(('{address}',{port}),60); s.sendall(b'{said}'); s.shutdown(1)\n\
         print(s.makefile().read())"
    )
}

/// Everything that can be asked at a gate arrives there.
pub(crate) async fn assert_serves(c: &Arc<dyn Container>, served: &Served) {
    let (said, (from, at)) = together(c, &talk("127.0.0.1", 3128, "hello"), echo(&served.proxy)).await;
    assert_eq!((said.as_str(), at.to_string().as_str()), ("hello", "127.0.0.1:3128"));
    assert!(from.ip().is_loopback());
    let (said, _) = together(c, &talk("127.0.0.53", 53, "a name"), echo(&served.names_tcp)).await;
    assert_eq!(said, "a name");
    let ask = "import socket\ns=socket.socket(2,2); s.settimeout(60); s.sendto(b'who?',('127.0.0.53',53))\n\
               print(s.recvfrom(99))";
    let (said, ()) = together(c, ask, async {
        let mut question = [0; 16];
        let (length, from) = served.names.recv_from(&mut question).await.unwrap();
        assert_eq!(&question[..length], b"who?");
        served.names.send_to(b"nobody", from).await.unwrap();
    })
    .await;
    assert_eq!(said, "(b'nobody', ('127.0.0.53', 53))");
    for (address, port) in [("198.18.0.1", 443), ("198.19.255.254", 1), ("198.18.77.1", 3128)] {
        let (said, (_, at)) = together(c, &talk(address, port, "x"), echo(&served.redirected)).await;
        assert_eq!((said, at.to_string()), ("x".into(), format!("{address}:{port}")));
    }
}

/// Tries every place of the gate with every option that could let a second one in.
const TAKE: &str = r"
import errno, itertools, socket as s
def taken(family, kind, address, options):
    x = s.socket(family, kind)
    for option in options: x.setsockopt(s.SOL_SOCKET, option, 1)
    if family == s.AF_INET6: x.setsockopt(s.IPPROTO_IPV6, s.IPV6_V6ONLY, 0)
    try:
        x.bind(address)
        if kind == s.SOCK_STREAM: x.listen()
        print('taken', family, kind, address, options)
    except OSError as e:
        if e.errno not in (errno.EADDRINUSE, errno.EACCES): print(e, address)
names, ports = ['127.0.0.53', '0.0.0.0'], ['127.0.0.1', '0.0.0.0']
places = [(s.SOCK_STREAM, ports, 3128), (s.SOCK_STREAM, ports, 3129), (s.SOCK_STREAM, names, 53), (s.SOCK_DGRAM, names, 53)]
for options in [(), (s.SO_REUSEADDR,), (s.SO_REUSEPORT,), (s.SO_REUSEADDR, s.SO_REUSEPORT)]:
    for kind, addresses, port in places:
        for address in addresses: taken(s.AF_INET, kind, (address, port), options)
        for address in ['::', '::ffff:' + addresses[0]]: taken(s.AF_INET6, kind, (address, port), options)
";

#[tokio::test]
async fn no_process_inside_can_bind_an_egress_port() {
    let instance = Instance::start().await;
    for profile in ["default", "tools", "root", "build"] {
        let c = instance.container(profile).await;
        assert_eq!(python(&c, TAKE).await, "", "{profile}");
        // Also not while no process serves them; a server of the sandbox's own at another address is its own.
        drop(egress_sockets_of(&c).await);
        assert_eq!(python(&c, TAKE).await, "", "{profile}");
        let own = "import socket; s=socket.create_server(('127.0.0.1',3130)); print('own')";
        assert_eq!(python(&c, own).await, "own");
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

#[tokio::test]
async fn requests_to_the_egress_sockets_reach_the_server() {
    let instance = Instance::start().await;
    for profile in ["default", "root"] {
        let c = instance.container(profile).await;
        assert_serves(&c, &Served::new(egress_sockets_of(&c).await)).await;
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

#[tokio::test]
async fn egress_sockets_are_the_same_under_other_runtimes() {
    let instance = Instance::start().await;
    for runtime in ["runc", "runsc"] {
        let isolation = Isolation::Runtime(runtime.into());
        let profile = Profile { isolation, ..Profile::builtin("default").unwrap() };
        let c = instance.provider.create(ContainerSpec { profile, ..spec("default") }).await.unwrap();
        let served = Served::new(egress_sockets_of(&c).await);
        assert_eq!(python(&c, TAKE).await, "", "{runtime}");
        assert_serves(&c, &served).await;
        assert_eq!(
            says(&c, "cat /etc/resolv.conf | head -1; echo /etc/atoll/*.pem").await,
            "nameserver 127.0.0.53\n/etc/atoll/ca-bundle.pem"
        );
        instance.provider.destroy(c.id()).await.unwrap();
    }
}

#[tokio::test]
async fn every_call_gives_the_same_sockets_and_each_container_has_its_own() {
    let instance = Instance::start().await;
    let (a, b) = (instance.container("default").await, instance.container("default").await);
    let numbers = async |c| {
        let EgressSockets { proxy, redirected, names, names_tcp } = egress_sockets_of(c).await;
        let all = [&proxy, redirected.as_ref().unwrap(), &names, &names_tcp];
        all.map(|fd| fstat(fd.as_fd()).unwrap().st_ino)
    };
    let first = numbers(&a).await;
    assert_eq!(first, numbers(&a).await);
    // A server that starts anew finds them too.
    let again = instance.provider.attach(a.id()).await.unwrap();
    assert_eq!(first, numbers(&again).await);
    assert!(numbers(&b).await.iter().all(|number| !first.contains(number)));
    // They belong to no server, and no process outside connects in a sandbox's name.
    let power = a.ports().unwrap();
    assert_eq!(power.listening().await.unwrap(), [0u16; 0]);
    for port in [3128, 3129] {
        assert_eq!(power.connect(port).await.err().unwrap().code, ErrorCode::BadGateway);
    }
    let nobodys =
        instance.client.ask(atoll_launch_proto::Request::EgressSockets(atoll_types::ContainerId::random()));
    assert_eq!(nobodys.await.unwrap_err().code, ErrorCode::NotFound);
}

/// The answer of a resolver: that name has this address.
fn answer(question: &[u8], address: [u8; 4]) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|b| *b == 0).unwrap() + 5;
    let kind = u16::from_be_bytes([question[end - 4], question[end - 3]]);
    let count = u8::from(kind == 1);
    let mut answer = [&question[..2], &[0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0], &question[12..end]].concat();
    if count == 1 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
        answer.extend(address);
    }
    answer
}

#[tokio::test]
async fn a_tool_that_knows_no_proxy_reaches_it_by_name() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let served = Served::new(egress_sockets_of(&c).await);
    let resolver = async {
        let mut question = [0; 512];
        loop {
            let (length, from) = served.names.recv_from(&mut question).await.unwrap();
            served.names.send_to(&answer(&question[..length], [198, 18, 4, 7]), from).await.unwrap();
        }
    };
    let program = talk("registry.example", 8443, "by name");
    let (said, (_, at)) = tokio::select! {
        result = together(&c, &program, echo(&served.redirected)) => result,
        () = resolver => unreachable!(),
    };
    assert_eq!((said.as_str(), at.to_string().as_str()), ("by name", "198.18.4.7:8443"));
}

#[tokio::test]
async fn a_hostile_egress_client_harms_itself_only() {
    let instance = Instance::start().await;
    let (hostile, other) = (instance.container("default").await, instance.container("default").await);
    // More connections than may wait, and no process that accepts them.
    let program = "import socket\nheld=[]\n\
        for n in range(900):\n s=socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1' if n%2 else '198.18.0.9',3128)); held.append(s)\n\
        u=socket.socket(2,2); u.setblocking(False)\n\
        for n in range(20000):\n try: u.sendto(b'x'*512,('127.0.0.53',53))\n except OSError: pass\n\
        print('full',flush=True)\nimport time; time.sleep(1000)";
    let id = ExecId::random();
    hostile.guest().start(id, &Command::new(["/usr/bin/python3", "-c", program])).await.unwrap();
    let mut events = hostile.guest().attach(id, 0, true).await.unwrap();
    while let Some(event) = events.next().await.unwrap() {
        if let atoll_provider::ExecEvent::Output { data, .. } = event
            && data.starts_with(b"full")
        {
            break;
        }
    }
    assert_serves(&other, &Served::new(egress_sockets_of(&other).await)).await;
    let third = instance.container("default").await;
    assert_eq!(says(&third, "echo fine").await, "fine");
    // A process that serves them later still can.
    let served = Served::new(egress_sockets_of(&hostile).await);
    drop(served.proxy.accept().await.unwrap());
    assert_eq!(
        served.redirected.accept().await.unwrap().0.local_addr().unwrap().to_string(),
        "198.18.0.9:3128"
    );
}

#[tokio::test]
async fn the_resolver_is_the_sandboxs_own() {
    let instance = Instance::start().await;
    for profile in ["default", "tools", "root"] {
        let c = instance.container(profile).await;
        let text = says(&c, "cat /etc/resolv.conf").await;
        assert_eq!(text, "nameserver 127.0.0.53\noptions timeout:2 attempts:2", "{profile}");
    }
    let c = instance.container("default").await;
    assert_ne!(shell(&c, "echo x > /etc/resolv.conf").await.report.exit_code, Some(0));
}
