"""Real servers, each with a data folder of its own, and a proxy that cuts connections.

ATOLL_PROGRAM names the server's program; without it the one that cargo built is used."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
KEY = "bootstrap-key-of-a-test"


def program() -> str:
    return os.environ.get("ATOLL_PROGRAM") or str(REPOSITORY / "target/debug/atoll")


def free_port(other_than: int = 0) -> int:
    """A port that the kernel gives to no connection, so that it is free also while a server is restarted."""
    for number in range(20_000):
        port = 10_000 + (os.getpid() * 8 + number) % 20_000
        with socket.socket() as probe:
            try:
                if port == other_than:
                    continue
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError("no free port")


class Server:
    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="atoll-sdk-"))
        self.data.chmod(0o755)
        self.address = ("127.0.0.1", free_port())
        self.url = "http://127.0.0.1:%d" % self.address[1]
        self._grpc = "127.0.0.1:%d" % free_port(self.address[1])
        self.grpc_url = "http://" + self._grpc
        self.key = KEY
        self.start()

    def start(self) -> None:
        variables = {
            "ATOLL_BOOTSTRAP_KEY": KEY,
            "ATOLL_GRPC_LISTEN": self._grpc,
            "ATOLL_SETTINGS_WARM_POOL_ENABLED": "false",
            "ATOLL_EGRESS_ASK_INDEXES": "false",
            "ATOLL_LOG": "warn",
        }
        listen = "%s:%d" % self.address
        self.process = subprocess.Popen(
            [program(), "serve", "--listen", listen, "--data-dir", str(self.data)],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert "http://" in first, f"the server did not start: {first}"
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def kill(self) -> None:
        """Ends the server as violently as possible. Sandboxes go on."""
        self.process.kill()
        self.process.wait()

    def restart_later(self) -> threading.Thread:
        """Kills the server now, and starts it again meanwhile."""
        self.kill()
        thread = threading.Thread(target=self.start)
        thread.start()
        return thread

    def new_key(self, name: str, tier: str | None = None) -> str:
        """A key of another owner."""
        import httpx

        made = httpx.post(
            f"{self.url}/api/v1/keys",
            headers={"Authorization": f"Bearer {KEY}"},
            json={"name": name, "owner": name, "scope": "user", "tier": tier},
            trust_env=False,
        )
        made.raise_for_status()
        return str(made.json()["key"])

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()
        subprocess.run([program(), "down", "--data-dir", str(self.data), "--purge"], check=True, capture_output=True)
        shutil.rmtree(self.data, ignore_errors=True)


class Proxy:
    """Passes connections on to a server. The next ones end after as many bytes of answers as `cuts` says; with 0 the
    request arrives, and its answer is lost. As many as `limited` says are read whole and refused with 429."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.cuts: list[int] = []
        self.limited = 0
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.limited:
                self.limited -= 1
                threading.Thread(target=self._refuse, args=(client,), daemon=True).start()
                continue
            cut = self.cuts.pop(0) if self.cuts else None
            threading.Thread(target=self._pass, args=(client, cut), daemon=True).start()

    @staticmethod
    def _refuse(client: socket.socket) -> None:
        """Answers a request when all of it has come: the server's own refusal of too many requests."""
        body = b'{"error":{"code":"limit_exceeded","message":"too many requests"}}'
        with client, client.makefile("rb") as request:
            lines = iter(lambda: request.readline().strip(), b"")
            headers = {name.lower(): value for name, _, value in (line.partition(b":") for line in lines)}
            if length := int(headers.get(b"content-length", b"0")):
                request.read(length)
            elif b"transfer-encoding" in headers:
                while size := int(request.readline(), 16):
                    request.read(size + 2)
            head = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nConnection: close\r\n"
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _pass(self, client: socket.socket, cut: int | None) -> None:
        with client, socket.create_connection(self._server.address) as upstream:
            threading.Thread(target=self._copy, args=(client, upstream, None), daemon=True).start()
            self._copy(upstream, client, cut)
            for end in (client, upstream):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket, left: int | None) -> None:
        try:
            while piece := source.recv(65536):
                if left is not None and len(piece) >= left:
                    target.sendall(piece[:left])
                    return
                target.sendall(piece)
                left = None if left is None else left - len(piece)
        except OSError:
            pass

    def end(self) -> None:
        self._listener.close()
