"""How commands and code went."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from . import errors
from .models import CellErrorItem, ChangedFile, FailureItem

StreamName = Literal["stdout", "stderr"]
# Characters of each output that the representation of a result has.
SHOWN = 500


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a command's output."""

    stream: StreamName
    offset: int
    """Of its first byte, over both outputs."""
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommandResult:
    """How a command went."""

    exec_id: str
    exit_code: int
    """124 after a timeout, 127 or 126 when it could not start, 128 and the signal."""
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    truncated: bool
    """Whether some output was lost, because the command printed faster than it was read."""
    timed_out: bool
    killed: bool
    oom_killed: bool
    signal: int | None
    duration_ms: int
    failure: FailureItem | None
    """Why its program could not be started."""
    files_changed: list[ChangedFile] | None
    """None where it is not known: of a background command, or after the connection broke."""
    files_changed_truncated: bool

    def __repr__(self) -> str:
        said = f"exit_code={self.exit_code}, stdout={_short(self.stdout)!r}, stderr={_short(self.stderr)!r}"
        flags = [name for name in ("truncated", "timed_out", "killed", "oom_killed") if getattr(self, name)]
        return f"CommandResult({', '.join([said, *(f'{name}=True' for name in flags)])})"

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def summary(self) -> str:
        if self.timed_out:
            return f"the command's time was over after {self.duration_ms} ms"
        if self.oom_killed:
            return f"the command ended with {self.exit_code}: the sandbox's memory was not enough for it"
        if self.failure is not None:
            return self.failure.message
        last = self.stderr.strip().rsplit("\n", 1)[-1]
        return f"the command ended with {self.exit_code}" + (f": {last}" if last else "")

    def check(self) -> CommandResult:
        """Raises CommandFailedError unless the exit code is 0."""
        if self.timed_out:
            raise errors.CommandTimeoutError(self)
        if not self.ok:
            raise errors.CommandFailedError(self)
        return self


@dataclass(frozen=True, slots=True)
class Display:
    """Something that code showed: a picture, a table, a chart, a sound."""

    mime: str
    data: str = field(repr=False)
    """Text, or base64 where the type is not text, SVG or JSON."""

    @property
    def content(self) -> bytes:
        """The bytes of a file with it."""
        plain = self.mime.startswith("text/") or self.mime.endswith(("+xml", "json"))
        return self.data.encode() if plain else base64.b64decode(self.data)

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        path.write_bytes(self.content)
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeResult:
    """How code in a kernel went."""

    success: bool
    stdout: str
    stderr: str
    values: Mapping[str, str]
    """The value of the last expression, by MIME type."""
    error: CellErrorItem | None
    displays: list[Display]
    kernel_id: str
    cell_id: str
    execution_count: int
    duration_ms: int
    timed_out: bool
    interrupted: bool
    state_lost: bool
    """Variables of before are lost: the interpreter died, or would not be interrupted."""
    restarted: bool
    truncated: bool
    files_changed: list[ChangedFile]
    files_changed_truncated: bool

    @property
    def text(self) -> str | None:
        """The value of the last expression as text."""
        return self.values.get("text/plain")

    @property
    def images(self) -> list[Display]:
        return [display for display in self.displays if display.mime.startswith("image/")]

    def summary(self) -> str:
        if self.error is not None:
            return f"{self.error.type}: {self.error.message}"
        return "the code's time was over" if self.timed_out else "the code failed"

    def check(self) -> CodeResult:
        """Raises CodeFailedError unless the code succeeded."""
        if not self.success:
            raise errors.CodeFailedError(self)
        return self


class Decoders:
    """Text of both outputs as it comes: a character that is cut waits for its rest."""

    def __init__(self) -> None:
        new = codecs.getincrementaldecoder("utf-8")
        self._of: dict[str, Any] = {"stdout": new(errors="replace"), "stderr": new(errors="replace")}

    def text(self, output: Output) -> str:
        text: str = self._of[output.stream].decode(output.data)
        return text

    def rest(self, stream: StreamName) -> str:
        text: str = self._of[stream].decode(b"", final=True)
        return text
