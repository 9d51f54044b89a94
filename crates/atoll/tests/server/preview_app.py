"""What runs inside the sandbox in the tests of previews: an honest server on one port, and one that does
whatever its path says, with bytes of its own, on another."""
import hashlib, json, os, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Honest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        digest, length = hashlib.sha256(), 0
        self.start = b""
        def take(piece):
            nonlocal length
            digest.update(piece)
            length += len(piece)
            self.start = (self.start + piece)[:65536]
        if self.headers.get("Transfer-Encoding") == "chunked":
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                left = size
                while left:
                    piece = self.rfile.read(min(left, 65536))
                    left -= len(piece)
                    take(piece)
                self.rfile.readline()
                if size == 0:
                    break
        else:
            left = int(self.headers.get("Content-Length") or 0)
            while left:
                piece = self.rfile.read(min(left, 65536))
                left -= len(piece)
                take(piece)
        return digest.hexdigest(), length

    def answer(self):
        digest, length = self.body()
        path = self.path.split("?")[0]
        if path == "/big":
            total = int(self.path.split("?")[1])
            self.send_response(200)
            self.send_header("Content-Length", str(total))
            self.end_headers()
            piece = b"x" * 65536
            while total:
                self.wfile.write(piece[: min(total, 65536)])
                total -= min(total, 65536)
            return
        if path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b"one,", b"two,", b"three"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        if path == "/redirect":
            self.send_response(302)
            self.send_header("Location", self.path.split("?", 1)[1])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path == "/nasty":
            self.send_response(200)
            for line in (
                "Set-Cookie: console=stolen; Path=/; Domain=example.com",
                'Clear-Site-Data: "*"',
                "Service-Worker-Allowed: /",
                "Strict-Transport-Security: max-age=1; includeSubDomains",
                "Public-Key-Pins: x",
                'Alt-Svc: h2="evil:443"',
                "Access-Control-Allow-Origin: https://evil",
                "Access-Control-Allow-Credentials: true",
                "NEL: {}",
                "Report-To: {}",
                'Reporting-Endpoints: a="https://evil"',
                "Referrer-Policy: unsafe-url",
                "Content-Security-Policy: default-src 'self'",
                "Keep-Alive: timeout=5",
                "X-App: kept",
            ):
                self.send_header(*line.split(": ", 1))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if path.startswith("/page/") and "." in path:
            page = open("/workspace" + path, "rb").read()
            self.send_response(200)
            kind = "text/javascript" if path.endswith(".js") else "text/html"
            self.send_header("Content-Type", kind)
            self.send_header("Set-Cookie", "planted=1; Path=/")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)
            return
        if path.endswith("/report"):
            # Whole or not at all, for whoever waits for it.
            with open("/workspace/report.new", "wb") as file:
                file.write(self.start)
            with open("/tmp/headers", "w") as file:
                file.write(str(self.headers).lower())
            os.rename("/workspace/report.new", "/workspace/report.json")
        said = {
            "method": self.command,
            "path": self.path,
            "headers": [[k.lower(), v] for k, v in self.headers.items()],
            "length": length,
            "sha256": digest,
            "peer": self.client_address[1],
            "requests": self.server.count,
        }
        self.server.count += 1
        said = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)


def odd(connection):
    with connection:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.recv(65536)
            if not piece:
                return
            head += piece
        path = head.split(b" ")[1].decode()
        send = connection.sendall
        try:
            if path == "/garbage":
                send(os.urandom(4096))
            elif path == "/endless":
                send(b"HTTP/1.1 200 OK\r\n")
                while True:
                    send(b"X-More: " + b"y" * 1000 + b"\r\n")
            elif path == "/lines":
                send(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(1000)) + b"\r\n")
            elif path == "/informed":
                while True:
                    send(b"HTTP/1.1 100 Continue\r\n\r\n")
                    time.sleep(0.01)
            elif path == "/close":
                pass
            elif path == "/unasked":
                send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
                time.sleep(5)
            elif path == "/lengths":
                send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")
            elif path == "/slow":
                time.sleep(600)
            elif path == "/cut":
                send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
            elif path == "/split":
                send(b"HTTP/1.1 200 OK\r\nX-A: b\r\n Set-Cookie: c\r\nContent-Length: 0\r\n\r\n")
            elif path == "/upgrade":
                upgrade = [l.split(b": ", 1)[1] for l in head.split(b"\r\n") if l.lower().startswith(b"upgrade:")]
                send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + upgrade[0] + b"\r\nX-App: kept\r\n\r\n")
                while True:
                    piece = connection.recv(65536)
                    if not piece:
                        send(b"bye")
                        return
                    send(piece.upper())
        except OSError:
            pass


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 8080), Honest)
    server.count = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    listener = socket.create_server(("127.0.0.1", 8081))
    while True:
        threading.Thread(target=odd, args=(listener.accept()[0],), daemon=True).start()


main()
