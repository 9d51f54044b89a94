"""Streams of events: parsing them, and knowing where to resume. Nothing here does any I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from . import errors
from ._calls import Call, segment
from ._config import STREAM_TIMEOUT
from ._decode import decode
from ._results import CodeResult, CommandResult, Display, Output
from .models import CellResult, ChangedFile, ExecItem, WatchItem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    id: str | None
    data: str


class EventParser:
    """Server-sent events from bytes as they come."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._scanned = 0

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        self._rest += piece
        while (end := self._rest.find(b"\n\n", self._scanned)) >= 0:
            block = bytes(self._rest[:end]).decode()
            del self._rest[: end + 2]
            self._scanned = 0
            event = self._event(block)
            if event is not None:
                yield event
        self._scanned = max(0, len(self._rest) - 1)

    @staticmethod
    def _event(block: str) -> ServerEvent | None:
        id: str | None = None
        data: list[str] = []
        for line in block.split("\n"):
            name, _, value = line.rstrip("\r").partition(":")
            value = value.removeprefix(" ")
            if name == "id":
                id = value
            elif name == "data":
                data.append(value)
        return ServerEvent(id, "\n".join(data)) if data else None


class Source(Protocol[T]):
    """What is followed: the request that begins or resumes it, and what its events say."""

    ended: bool

    def call(self) -> Call: ...

    def take(self, event: ServerEvent) -> list[T]: ...


def _refusal(event: dict[str, Any]) -> errors.APIError:
    error = event["error"]
    return errors.of_code(error["code"], error["message"])


class ExecSource:
    """A command. Its request has a key, so it is begun once; then its output is read on from the byte where it broke off."""

    def __init__(self, sandbox: str, begin: Call | None = None, exec_id: str | None = None, offset: int = 0) -> None:
        self._sandbox = sandbox
        self._begin = begin
        self.exec_id = exec_id
        self.offset = offset
        self.on_started: Callable[[], object] = lambda: None
        self.asked = False
        """Whether its request may have reached the server."""
        self.ended = False
        self._exit: dict[str, Any] = {}
        self._ends: dict[str, int] = {"stdout": 0, "stderr": 0}
        self._lost = False

    def call(self) -> Call:
        if self.exec_id is not None:
            path = f"{self._sandbox}/execs/{segment(self.exec_id)}/output"
            params = {"follow": True, "from": self.offset}
            return Call("GET", path, params, safe=True, patience=STREAM_TIMEOUT)
        assert self._begin is not None
        self.asked = True
        return self._begin

    def take(self, event: ServerEvent) -> list[Output]:
        said = json.loads(event.data)
        kind = said["type"]
        outputs: list[Output] = []
        if kind == "started":
            self.exec_id = said["exec_id"]
            self.on_started()
        elif kind in ("stdout", "stderr"):
            outputs = self._output(said)
        elif kind == "dropped":
            self._lost = True
        elif kind == "error":
            raise _refusal(said)
        elif kind == "exit":
            self._exit, self.ended = said, True
        if event.id is not None and kind != "started":
            self.offset = max(self.offset, int(event.id))
        return outputs

    def _output(self, said: dict[str, Any]) -> list[Output]:
        stream, offset = said["type"], said["offset"]
        data = base64.b64decode(said["data"]) if said.get("encoding") == "base64" else said["data"].encode()
        # After a resumption the first events may repeat what came before. One with `next` is a single character
        # with bytes of the other output between its own.
        known = max(0, self._ends[stream] - offset)
        if "next" in said and known:
            known = len(data)
        self._ends[stream] = max(self._ends[stream], said.get("next", offset + len(data)))
        return [Output(stream, offset + known, data[known:])] if known < len(data) else []

    def result(self, stdout: bytes, stderr: bytes) -> CommandResult:
        item = decode(ExecItem, self._exit)
        files = self._exit.get("files_changed")
        return CommandResult(
            exec_id=item.exec_id,
            exit_code=-1 if item.exit_code is None else item.exit_code,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            truncated=self._lost,
            timed_out=item.timed_out,
            killed=item.killed,
            oom_killed=item.oom_killed,
            signal=item.signal,
            duration_ms=item.duration_ms,
            failure=item.failure,
            files_changed=None if files is None else decode(list[ChangedFile], files),
            files_changed_truncated=bool(self._exit.get("files_changed_truncated", files is None)),
        )


@dataclass(frozen=True, slots=True)
class CellOutput:
    stream: str
    text: str


class CellSource:
    """A cell. Its request has a key; sent again, it joins the cell, whose events then come from the first on."""

    def __init__(self, begin: Call) -> None:
        self._begin = begin
        self._delivered = {"stdout": 0, "stderr": 0, "display": 0}
        self._seen = dict(self._delivered)
        self.cell_id: str | None = None
        self.asked = False
        self.ended = False
        self._answer: dict[str, Any] = {}

    def call(self) -> Call:
        self._seen = dict.fromkeys(self._seen, 0)
        self.asked = True
        return self._begin

    def _fresh(self, kind: str, length: int) -> int:
        """How much of the next so many are known from an earlier connection."""
        known = min(length, max(0, self._delivered[kind] - self._seen[kind]))
        self._seen[kind] += length
        self._delivered[kind] = max(self._delivered[kind], self._seen[kind])
        return known

    def take(self, event: ServerEvent) -> list[CellOutput | Display]:
        said = json.loads(event.data)
        kind = said["type"]
        if kind == "started":
            self.cell_id = said["cell_id"]
        elif kind == "output":
            text = said["text"][self._fresh(said["stream"], len(said["text"])) :]
            return [CellOutput(said["stream"], text)] if text else []
        elif kind == "display" and not self._fresh("display", 1):
            return [Display(said["display"]["type"], said["display"]["data"])]
        elif kind == "error":
            raise _refusal(said)
        elif kind == "ended":
            self._answer, self.ended = said, True
        return []

    def result(self) -> CodeResult:
        cell = decode(CellResult, self._answer)
        return CodeResult(
            success=cell.success,
            stdout=cell.stdout,
            stderr=cell.stderr,
            values=self._answer.get("result") or {},
            error=cell.error,
            displays=[Display(shown.type, shown.data) for shown in cell.display_outputs],
            kernel_id=cell.kernel_id,
            cell_id=cell.cell_id,
            execution_count=cell.execution_count,
            duration_ms=cell.duration_ms,
            timed_out=cell.timed_out,
            interrupted=cell.interrupted,
            state_lost=cell.state_lost,
            restarted=cell.restarted,
            truncated=cell.truncated,
            files_changed=cell.files_changed,
            files_changed_truncated=cell.files_changed_truncated,
        )


class WatchSource:
    """A folder. Changes are lost while there is no connection, so a broken one ends it."""

    def __init__(self, begin: Call) -> None:
        self._begin = begin
        self.ended = False

    def call(self) -> Call:
        return self._begin

    def take(self, event: ServerEvent) -> list[WatchItem]:
        item = decode(WatchItem, json.loads(event.data))
        if item.event == "error":
            raise errors.of_code(item.code or "internal", item.message or "the folder cannot be followed further")
        return [item]


class Collector:
    """What a command printed, as bytes."""

    def __init__(self, keep: bool = True) -> None:
        self._keep = keep
        self._of = {"stdout": bytearray(), "stderr": bytearray()}

    def add(self, output: Output) -> None:
        if self._keep:
            self._of[output.stream] += output.data

    def bytes(self) -> tuple[bytes, bytes]:
        return bytes(self._of["stdout"]), bytes(self._of["stderr"])
