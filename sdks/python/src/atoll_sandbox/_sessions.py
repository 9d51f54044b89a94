"""What a manager of sessions answers with, and which paths of a session it exports and imports. Nothing here does any
I/O but at the end of the process, when sessions that are left are stopped."""

from __future__ import annotations

import atexit
import os
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import httpx

from . import errors
from ._config import Config
from ._results import CodeResult, Display

Runtime = Literal["python", "node", "r"]

WORKSPACE = "/workspace"
EXIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session that was made."""

    session_id: str
    runtime: Runtime
    status: Literal["running", "dead"]
    dependencies: dict[str, str]
    """What was asked for."""
    stderr: str | None = None
    """What could not be installed, and why."""
    success: bool = True
    """Whether the session is there. A package that could not be installed does not change that."""


@dataclass(frozen=True, slots=True)
class SessionResult:
    """How code in a session went."""

    success: bool
    stdout: str
    stderr: str
    result: str | None
    """The value of the last expression as text."""
    error: str | None
    """The traceback, or why there is none."""
    display_outputs: list[Display]
    details: CodeResult


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file or folder that was exported, or was to be."""

    session_id: str
    path: str
    success: bool
    size: int | None = None
    """In bytes; none of a folder."""
    error: str | None = None
    download_url: str | None = None
    """Where it can be had, with the key: a file as it is, a folder as a tar archive."""


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """A file or folder that was imported, or was to be."""

    source: str
    """A path, `session:path`, or a name."""
    destination: str
    success: bool
    size: int | None = None
    """In bytes; of a folder that of all files."""
    error: str | None = None


def _failed(files: list[ExportedFile] | list[ImportedFile]) -> str | None:
    failed = sum(not file.success for file in files)
    return f"{failed} of {len(files)} failed" if failed else None


@dataclass(frozen=True, slots=True)
class ExportedFiles:
    files: list[ExportedFile]

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def error(self) -> str | None:
        return _failed(self.files)


@dataclass(frozen=True, slots=True)
class ImportedFiles:
    files: list[ImportedFile]

    @property
    def success(self) -> bool:
        return self.error is None

    @property
    def error(self) -> str | None:
        return _failed(self.files)


def in_workspace(path: str) -> str:
    """A path as it is remembered: absolute, below /workspace or that itself, without `.` and `..`."""
    whole = posixpath.normpath(posixpath.join(WORKSPACE, path))
    if not covers(WORKSPACE, whole):
        message = f"{path} does not lie below {WORKSPACE}"
        raise errors.PathError(message, code="path_outside_root", details={"field": "path"})
    return whole


def covers(folder: str, path: str) -> bool:
    """Whether a path is this one or lies below it. Both are absolute and normal."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def destination(wanted: str | None, name: str, is_folder: bool = False) -> str:
    """Where a file called `name` goes: its own name where nothing is wanted, below a folder that ends in a slash. A
    folder becomes the one that is wanted."""
    if not wanted:
        return in_workspace(name)
    return in_workspace(f"{wanted}{name}" if wanted.endswith("/") and not is_folder else wanted)


class StopAtExit:
    """Destroys the sandboxes that are left when the process ends, by connections of its own: an event loop is gone by
    then. A process that is killed cannot; its sandboxes end when they have been idle for long enough."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._process = os.getpid()
        self.left: set[str] = set()
        self._at_exit: Callable[[], None] = self._stop
        atexit.register(self._at_exit)

    def done(self) -> None:
        atexit.unregister(self._at_exit)

    def _stop(self) -> None:
        # A fork has the same list, and not the same sessions.
        if not self.left or os.getpid() != self._process:
            return
        options = {**self._config.http_options(), "timeout": EXIT_SECONDS}
        with httpx.Client(**options) as http:  # type: ignore[arg-type]
            for sandbox in self.left:
                try:
                    http.delete(f"sandboxes/{sandbox}")
                except httpx.HTTPError:
                    return
