# Asks for hosts in every way there is, and prints what came of each: the last line of a page, the status of
# a refusal, or the name of an error. Plain sockets, so that nothing is mended on the way.
import errno, json, socket as s, sys

PROXY = ('127.0.0.1', 3128)

def read(x):
    data = b''
    while True:
        more = x.recv(65536)
        if not more:
            return data
        data += more

def page(x, host):
    x.sendall(b'GET / HTTP/1.0\r\nHost: ' + host.encode() + b'\r\n\r\n')
    lines = read(x).decode(errors='replace').split('\r\n\r\n', 1)
    return lines[-1].strip() or 'nothing'

def connect(host, port):
    x = s.create_connection(PROXY, 30)
    x.sendall(f'CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n'.encode())
    head = b''
    while b'\r\n\r\n' not in head:
        more = x.recv(1)
        if not more:
            return 'closed'
        head += more
    status = head.split()[1].decode()
    return page(x, host) if status == '200' else status

def http(host, port):
    x = s.create_connection(PROXY, 30)
    x.sendall(f'GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n'.encode())
    head, _, body = read(x).partition(b'\r\n\r\n')
    status = head.split()[1].decode() if head else 'closed'
    return body.decode().strip() if status == '200' else status

def socks(host, port):
    x = s.create_connection(PROXY, 30)
    x.sendall(b'\x05\x01\x00')
    if x.recv(2) != b'\x05\x00':
        return 'closed'
    bare = host.strip('[]')
    try:
        where = b'\x01' + s.inet_pton(s.AF_INET, bare)
    except OSError:
        try:
            where = b'\x04' + s.inet_pton(s.AF_INET6, bare)
        except OSError:
            where = b'\x03' + bytes([len(bare)]) + bare.encode()
    x.sendall(b'\x05\x01\x00' + where + port.to_bytes(2, 'big'))
    answer = x.recv(10)
    return page(x, host) if answer[1:2] == b'\0' else f'socks {answer[1]}' if len(answer) > 1 else 'closed'

def direct(host, port):
    return page(s.create_connection((host.strip('[]'), port), 30), host)

if __name__ == '__main__':
    answers = []
    for way, host, port in json.loads(sys.argv[1]):
        try:
            answers.append(globals()[way](host, port))
        except s.gaierror:
            answers.append('no such name')
        except TimeoutError:
            answers.append('timeout')
        except OSError as e:
            answers.append(errno.errorcode.get(e.errno, str(e)))
    print(json.dumps(answers))
