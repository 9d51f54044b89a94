# Sends packets in every way that needs no proxy, and prints those ways in which something was sent.
import errno, os, socket as s, struct, sys

OUT, PUBLIC, PORT = '192.0.2.1', '203.0.113.9', int(sys.argv[1])
V6 = '2001:db8:1::9'
sent = []

def way(name):
    def try_it(action):
        try:
            action()
            sent.append(name)
        except OSError:
            pass
    return try_it

def checksum(data):
    data += b'\0' * (len(data) % 2)
    total = sum(struct.unpack(f'!{len(data) // 2}H', data))
    total = (total >> 16) + (total & 0xffff)
    return ~(total + (total >> 16)) & 0xffff

def echo(kind):
    body = struct.pack('!BBHHH', kind, 0, 0, 7, 7) + b'data'
    return body[:2] + struct.pack('!H', checksum(body)) + body[4:] if kind == 8 else body

def udp_packet(to):
    udp = struct.pack('!HHHH', 4000, 53, 12, 0) + b'data'
    head = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 32, 1, 0, 64, 17, 0, s.inet_aton('192.0.2.2'), s.inet_aton(to))
    return head[:10] + struct.pack('!H', checksum(head)) + head[12:] + udp

for host in (OUT, PUBLIC, '10.0.0.1', '169.254.169.254'):
    way('tcp')(lambda: s.create_connection((host, PORT), 20))
    way('udp')(lambda: s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'data', (host, 53)))
    way('quick')(lambda: s.socket().sendto(b'data', s.MSG_FASTOPEN, (host, PORT)))
    way('raw icmp')(lambda: s.socket(s.AF_INET, s.SOCK_RAW, s.IPPROTO_ICMP).sendto(echo(8), (host, 0)))
    way('raw udp')(lambda: s.socket(s.AF_INET, s.SOCK_RAW, s.IPPROTO_RAW).sendto(udp_packet(host), (host, 0)))
    way('ping')(lambda: s.socket(s.AF_INET, s.SOCK_DGRAM, s.IPPROTO_ICMP).sendto(echo(8), (host, 0)))
    for name, kind, protocol in (('udplite', s.SOCK_DGRAM, 136), ('sctp', s.SOCK_STREAM, 132), ('dccp', 6, 33)):
        way(name)(lambda: s.socket(s.AF_INET, kind, protocol).connect((host, PORT)))
for host in (V6, '::ffff:' + PUBLIC, '64:ff9b::cb00:7109', 'ff02::1'):
    way('tcp6')(lambda: s.create_connection((host, PORT), 20))
    way('udp6')(lambda: s.socket(s.AF_INET6, s.SOCK_DGRAM).sendto(b'data', (host, 53)))
    way('raw icmp6')(lambda: s.socket(s.AF_INET6, s.SOCK_RAW, s.IPPROTO_ICMPV6).sendto(echo(128), (host, 0)))

def bound():
    x = s.socket(s.AF_INET, s.SOCK_DGRAM)
    x.setsockopt(s.SOL_SOCKET, s.SO_BINDTODEVICE, b'street\0')
    x.sendto(b'data', (PUBLIC, 53))
way('bound')(bound)

def broadcast():
    x = s.socket(s.AF_INET, s.SOCK_DGRAM)
    x.setsockopt(s.SOL_SOCKET, s.SO_BROADCAST, 1)
    x.sendto(b'data', ('255.255.255.255', 53))
way('broadcast')(broadcast)
way('multicast')(lambda: s.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b'data', ('239.1.2.3', 53)))
for kind in (s.SOCK_RAW, s.SOCK_DGRAM):
    for name in os.listdir('/sys/class/net') if os.path.isdir('/sys/class/net') else ['lo', 'street']:
        frame = b'\xff' * 6 + b'\x02' * 6 + b'\x08\0' + udp_packet(PUBLIC)
        address = (name, 0x800, 0, 1, b'\xff' * 6)
        body = frame if kind == s.SOCK_RAW else frame[14:]
        way('packet')(lambda: s.socket(s.AF_PACKET, kind, 0).sendto(body, address))
for cid in (0, 1, 2, 3):
    for kind in (s.SOCK_STREAM, s.SOCK_DGRAM):
        way('vsock')(lambda: s.socket(40, kind).connect((cid, 1024)))
print(','.join(sorted(set(sent))))
