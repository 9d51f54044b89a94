"""Where the server is, who asks, and how patient the client is."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from ._version import __version__

DEFAULT_URL = "http://127.0.0.1:7300"

CONNECT_TIMEOUT = 10.0
# The server sends a sign of life every 15 seconds on every stream.
STREAM_TIMEOUT = 50.0
# Snapshots with kernels wait for cells, for two minutes at most.
READ_TIMEOUT = 300.0
# The server's own limit of an installation where none is given, and some more.
INSTALL_TIMEOUT = 660.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a client outlasts a server that does not answer, such as one that is being restarted."""

    seconds: float = 30.0
    """From the first failure on. 0: every failure is an error at once."""
    first_delay: float = 0.1
    longest_delay: float = 2.0
    longest_wait: float = 2.0
    """A request that the server limits is repeated where `Retry-After` is at most this."""


@dataclass(frozen=True, slots=True)
class Config:
    base_url: str = field(default_factory=lambda: os.environ.get("ATOLL_URL") or DEFAULT_URL)
    api_key: str = field(default_factory=lambda: os.environ.get("ATOLL_API_KEY", ""), repr=False)
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base_url is {self.base_url!r}: it must begin with http:// or https:// and name a host")

    def http_options(self) -> dict[str, object]:
        """What both flavours of HTTP client are made with."""
        headers = {"User-Agent": f"atoll-sandbox-python/{__version__}"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        host = urlsplit(self.base_url).hostname or ""
        loopback = host in ("localhost", "::1") or host.startswith("127.")
        return {
            "base_url": self.base_url.rstrip("/") + "/api/v1/",
            "headers": headers,
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
            # A proxy of the environment is for other machines.
            "trust_env": not loopback,
        }


def config(base_url: str | None, api_key: str | None, retry: RetryPolicy | None) -> Config:
    given: dict[str, object] = {"base_url": base_url, "api_key": api_key, "retry": retry}
    return Config(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
