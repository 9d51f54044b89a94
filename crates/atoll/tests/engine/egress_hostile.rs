//! There is no way out but the gate: what a program finds that looks for another.

use super::{
    egress_sockets::{Served, assert_serves, egress_sockets_of},
    fixture::{Instance, python},
};
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

/// Prints what was possible that should not be. Addresses are those of documentation: nobody's.
const SEARCH: &str = r"
import errno, socket as s, struct
def tried(name, wanted, action):
    try: action(); print(name, 'was possible')
    except OSError as e:
        if e.errno not in wanted: print(name, e)
nowhere = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
refused = (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT)
def to(family, kind, *address):
    def go():
        x = s.socket(family, kind); x.settimeout(20)
        x.connect(address); x.send(b'x')
    return go
for host in ['192.0.2.1', '203.0.113.9', '10.0.0.1', '169.254.169.254', '172.17.0.1', '224.0.0.1', '255.255.255.255']:
    # To many at once is refused as such, which is as good.
    tried('tcp ' + host, nowhere, to(s.AF_INET, s.SOCK_STREAM, host, 80))
    tried('udp ' + host, nowhere + (errno.EACCES,), to(s.AF_INET, s.SOCK_DGRAM, host, 53))
for host in ['2001:db8::1', '64:ff9b::c000:201', 'fe80::1%lo', 'fd00::1', '::ffff:192.0.2.1', 'ff02::1']:
    a = s.getaddrinfo(host, 53, s.AF_INET6, 0, 0, s.AI_NUMERICHOST)[0][4] if s.has_ipv6 else (host, 53)
    tried('tcp6 ' + host, nowhere + (errno.EINVAL,), to(s.AF_INET6, s.SOCK_STREAM, *a))
    tried('udp6 ' + host, nowhere + (errno.EINVAL,), to(s.AF_INET6, s.SOCK_DGRAM, *a))
# Only connections go to the reserved block; the rest is refused at once.
tried('udp to the block', refused, to(s.AF_INET, s.SOCK_DGRAM, '198.18.0.1', 443))
tried('ping to the block', refused, lambda: s.socket(s.AF_INET, s.SOCK_DGRAM, s.IPPROTO_ICMP).sendto(b'\x08\0\0\0\0\0\0\0', ('198.18.0.1', 0)))
tried('ping', refused + nowhere, lambda: s.socket(s.AF_INET, s.SOCK_DGRAM, s.IPPROTO_ICMP).sendto(b'\x08\0\0\0\0\0\0\0', ('192.0.2.1', 0)))
for name, family, kind, protocol in [('raw', s.AF_INET, s.SOCK_RAW, s.IPPROTO_RAW), ('icmp', s.AF_INET, s.SOCK_RAW, s.IPPROTO_ICMP),
    ('raw6', s.AF_INET6, s.SOCK_RAW, s.IPPROTO_RAW), ('packet', s.AF_PACKET, s.SOCK_RAW, 0x300), ('packets', s.AF_PACKET, s.SOCK_DGRAM, 0x300),
    ('vsock', 40, s.SOCK_STREAM, 0), ('vsocks', 40, s.SOCK_DGRAM, 0), ('xdp', 44, s.SOCK_RAW, 0), ('tipc', 30, s.SOCK_DGRAM, 0)]:
    tried(name, refused, lambda: s.socket(family, kind, protocol))
for name, option in [('transparent', 19), ]:
    tried(name, refused, lambda: s.socket().setsockopt(s.IPPROTO_IP, option, 1))
tried('mark', refused, lambda: s.socket().setsockopt(s.SOL_SOCKET, 36, 1))
open('/tmp/x', 'w').close()
tried('tun', (errno.ENOENT, errno.EPERM, errno.EACCES), lambda: open('/dev/net/tun', 'r+b'))
";

/// Prints every change of the network that the kernel lets a program make by netlink.
const CHANGE: &str = r"
import errno, socket as s, struct
def attribute(kind, value): return struct.pack('HH', 4 + len(value), kind) + value + b'\0' * (-len(value) % 4)
def message(kind, flags, body): return struct.pack('IHHII', 16 + len(body), kind, flags, 1, 0) + body
def ask(name, part, *messages):
    try: x = s.socket(16, s.SOCK_RAW, part)
    except OSError: return
    x.settimeout(20)
    try: x.send(b''.join(messages))
    except OSError: return
    while True:
        answer = x.recv(65536)
        while answer:
            length, kind = struct.unpack('IH', answer[:6])
            if kind == 2:
                code = -struct.unpack('i', answer[16:20])[0]
                if code not in (errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EPROTONOSUPPORT): print(name, code)
                return
            answer = answer[(length + 3) & ~3:]
REQUEST = 1 | 4
NEW = REQUEST | 0x600
lo = struct.pack('BxHiII', 0, 0, 1, 1, 1)
ask('link', 0, message(16, NEW, struct.pack('BxHiII', 0, 0, 0, 0, 0) + attribute(3, b'new\0') + attribute(18, attribute(1, b'dummy\0'))))
ask('loopback down', 0, message(16, REQUEST, struct.pack('BxHiII', 0, 0, 1, 0, 1)))
ask('address', 0, message(20, NEW, struct.pack('BBBBi', 2, 24, 0, 0, 1) + attribute(2, bytes([192, 0, 2, 1]))))
route = struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 4, 0, 1, 0) + attribute(4, struct.pack('I', 1))
ask('route', 0, message(24, NEW, route))
block = struct.pack('BBBBBBBBI', 2, 15, 0, 0, 255, 4, 254, 2, 0) + attribute(1, bytes([198, 18, 0, 0]))
ask('route of the block', 0, message(25, REQUEST, block))
ask('rule', 0, message(32, NEW, struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 0, 0, 1, 0)))
begin, end = (message(kind, 1, struct.pack('BBH', 0, 0, s.htons(10))) for kind in (16, 17))
ip = struct.pack('BBH', 2, 0, 0)
ask('delete the table', 12, begin, message(10 << 8 | 2, REQUEST, ip + attribute(1, b'atoll\0')), end)
ask('delete a chain', 12, begin, message(10 << 8 | 5, REQUEST, ip + attribute(1, b'atoll\0') + attribute(3, b'in\0')), end)
ask('flush rules', 12, begin, message(10 << 8 | 8, REQUEST, ip + attribute(1, b'atoll\0')), end)
ask('a table', 12, begin, message(10 << 8 | 0, NEW, ip + attribute(1, b'mine\0')), end)
# The end of somebody else's socket: 127.0.0.1:3128, listening.
sock = struct.pack('>HH', 3128, 0) + bytes([127, 0, 0, 1]) + bytes(12) + bytes(16) + struct.pack('=III', 0, 0xffffffff, 0xffffffff)
ask('destroy a socket', 4, message(21, REQUEST, struct.pack('BBBxI', 2, 6, 0, 1 << 10) + sock))
";

#[tokio::test]
async fn there_is_no_other_way_out() {
    let instance = Instance::start().await;
    for profile in ["default", "root", "build"] {
        let c = instance.container(profile).await;
        assert_eq!(python(&c, SEARCH).await, "", "{profile}");
    }
}

#[tokio::test]
async fn nothing_inside_can_change_the_network() {
    let instance = Instance::start().await;
    for profile in ["default", "root", "build"] {
        let c = instance.container(profile).await;
        assert_eq!(python(&c, CHANGE).await, "", "{profile}");
        let files = "for f in ('net/ipv4/ip_forward','net/ipv4/ip_unprivileged_port_start','net/ipv4/conf/all/route_localnet'):\n \
            try: open('/proc/sys/'+f,'w').write('0'); print(f)\n except OSError: pass";
        assert_eq!(python(&c, files).await, "", "{profile}");
        // All of it is as it was.
        assert_serves(&c, &Served::new(egress_sockets_of(&c).await)).await;
    }
}

#[tokio::test]
async fn connections_to_the_reserved_block_reach_no_process_inside() {
    let instance = Instance::start().await;
    let c = instance.container("root").await;
    let served = Served::new(egress_sockets_of(&c).await);
    // Servers of one's own at every address, and at the block's: neither gets what goes there.
    let program = "import socket as s, errno\n\
        any=s.create_server(('0.0.0.0',8443)); own=s.create_server(('198.18.0.1',8444)); u=s.socket(2,2); u.bind(('0.0.0.0',8443))\n\
        for l in (any,own,u): l.settimeout(0.5)\n\
        c=[s.create_connection(('198.18.0.1',p),20) for p in (8443,8444)]\n\
        try: s.socket(2,2).sendto(b'x',('198.18.0.1',8443)); print('sent')\nexcept PermissionError: pass\n\
        for l in (any,own):\n try: l.accept(); print('taken')\n except TimeoutError: pass\n\
        try: u.recv(9); print('taken')\nexcept TimeoutError: pass\n\
        print(*[x.getpeername()[0] for x in c])";
    assert_eq!(python(&c, program).await, "198.18.0.1 198.18.0.1");
    for port in [8443, 8444] {
        let (stream, _) = served.redirected.accept().await.unwrap();
        assert_eq!(stream.local_addr().unwrap().to_string(), format!("198.18.0.1:{port}"));
    }
}

#[tokio::test]
async fn abstract_sockets_of_the_machine_are_out_of_reach() {
    let instance = Instance::start().await;
    let name = format!("atoll-test-{}", std::process::id());
    let _host = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let c = instance.container("root").await;
    let program = format!(
        "import socket\ntry: socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('reached')\n\
         except ConnectionRefusedError: print('refused')"
    );
    assert_eq!(python(&c, &program).await, "refused");
}
