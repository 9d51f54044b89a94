# Fetches bytes in one way and prints how many milliseconds each fetch took, from before its connection to its
# last byte. `hold` opens connections, prints how long that took, and keeps them until its input ends.
import json, resource, socket, sys, time

way, host, port, proxy, size, count, pause = json.loads(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
buffer = bytearray(1 << 18)

def opened():
    if way == 'direct':
        return socket.create_connection((host, port), 60)
    x = socket.create_connection(('127.0.0.1', proxy), 60)
    x.sendall(f'CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n'.encode())
    head = b''
    while b'\r\n\r\n' not in head:
        more = x.recv(4096)
        if not more:
            break
        head += more
    if b' 200 ' not in head:
        sys.exit(f'the proxy said {head!r}')
    return x

def fetch():
    began = time.perf_counter()
    x = opened()
    x.sendall(b'%d\n' % size)
    got = 0
    while True:
        read = x.recv_into(buffer)
        if read == 0:
            break
        got += read
    if got != size:
        sys.exit(f'{size} bytes became {got}')
    return (time.perf_counter() - began) * 1e3

if pause is None:
    began = time.perf_counter()
    held = [opened() for _ in range(count)]
    print(json.dumps([(time.perf_counter() - began) * 1e3]), flush=True)
    sys.stdin.read()
    sys.exit()
taken = []
for _ in range(count):
    time.sleep(pause)
    taken.append(fetch())
print(json.dumps(taken))
