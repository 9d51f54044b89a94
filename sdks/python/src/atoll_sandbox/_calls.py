"""Requests as data, and whether a failed one may be sent again. Nothing here does any I/O."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from . import errors
from ._config import CONNECT_TIMEOUT, READ_TIMEOUT, RetryPolicy


def new_key() -> str:
    return uuid.uuid4().hex


def without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def file_path(path: str) -> str:
    """A path of the sandbox as the rest of a URL. One that is absolute keeps its first slash. One with `..` would be
    the path of another resource, or of another sandbox."""
    if ".." in path.split("/"):
        message = f"{path}: a path must not contain '..'"
        raise errors.PathError(message, code="path_outside_root", details={"field": "path"})
    return quote(path, safe="/~")


def segment(name: str) -> str:
    """An id or a name as one segment of a URL, and never the path of another resource."""
    if name in ("", ".", ".."):
        raise errors.NotFoundError(f"there is nothing called {name!r}", code="not_found")
    return quote(name, safe="")


def is_id(name: str) -> bool:
    """Whether a name is an id of the server's, and not a label."""
    try:
        uuid.UUID(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    """Below /api/v1/."""
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    key: str | None = None
    """With an Idempotency-Key the server carries a request out once, however often it comes."""
    safe: bool = False
    """Whether carrying it out twice is the same as once, also without a key."""
    rewindable: bool = True
    """Whether its content can be sent from its beginning again: not where it comes from an iterator."""
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: float | None = READ_TIMEOUT
    """How long the server may be silent. Streams have signs of life; other answers come when all is done."""

    def options(self) -> dict[str, Any]:
        """The arguments of httpx."""
        headers = dict(self.headers)
        if self.key is not None:
            headers["Idempotency-Key"] = self.key
        spelled = {k: str(v).lower() if isinstance(v, bool) else v for k, v in without_none(self.params).items()}
        timeout = httpx.Timeout(self.patience, connect=CONNECT_TIMEOUT, pool=None)
        options: dict[str, Any] = {"params": spelled, "headers": headers, "timeout": timeout}
        if self.json is not None:
            options["json"] = self.json
        return options

    @property
    def repeatable(self) -> bool:
        return self.key is not None or self.safe


def get(path: str, /, **params: Any) -> Call:
    return Call("GET", path, params, safe=True)


def delete(path: str, /, **params: Any) -> Call:
    return Call("DELETE", path, params, safe=True)


def keyed(path: str, json: Any, patience: float = READ_TIMEOUT) -> Call:
    return Call("POST", path, json=json, key=new_key(), patience=patience)


NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Attempts:
    """Decides whether a failed request is sent again, and when."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._since: float | None = None
        self._delay = policy.first_delay
        self.unclear = False
        """Whether an earlier attempt may have been carried out."""

    def progress(self) -> None:
        """The server answers: the next failure is the first of another outage."""
        self._since = None
        self._delay = self._policy.first_delay

    def delay(self, call: Call, failure: Exception) -> float | None:
        """Seconds to wait before the next attempt; none where there must not be one."""
        wait = self._wanted(call, failure)
        now = time.monotonic()
        since = self._since = now if self._since is None else self._since
        most = self._policy.seconds if call.patience is None else min(self._policy.seconds, call.patience)
        if wait is None or now + wait - since > most:
            return None
        return wait

    def _wanted(self, call: Call, failure: Exception) -> float | None:
        if not call.rewindable:
            # Its content may be used up, also where the server refused the request: what is left is not what was meant.
            return self._next() if isinstance(failure, NEVER_SENT) else None
        if isinstance(failure, errors.LimitExceededError):
            # The server refuses before it does anything.
            wait = failure.retry_after
            return wait if wait is not None and wait <= self._policy.longest_wait else None
        if isinstance(failure, errors.ConflictError):
            # The first attempt arrived and is still being carried out.
            return self._next() if self.unclear and "Idempotency-Key" in failure.message else None
        if isinstance(failure, NEVER_SENT):
            return self._next()
        if isinstance(failure, (httpx.TransportError, errors.UnavailableError)):
            self.unclear = True
            return self._next() if call.repeatable else None
        return None

    def _next(self) -> float:
        delay = self._delay * random.uniform(0.5, 1.0)
        self._delay = min(self._delay * 2, self._policy.longest_delay)
        return delay


def final(failure: Exception, url: str) -> Exception:
    """A failure as the caller gets it."""
    if isinstance(failure, httpx.TransportError):
        said = str(failure) or type(failure).__name__
        return errors.ConnectionFailedError(f"the server at {url} cannot be reached: {said}")
    return failure
