"""Commands: run to their end, or in the background with a handle."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, TypedDict, Unpack, overload

from .. import errors
from .._calls import Call, delete, get, keyed, segment, without_none
from .._config import READ_TIMEOUT, STREAM_TIMEOUT
from .._events import Collector, ExecSource
from .._results import CommandResult, Decoders, Output
from .._runtime_async import Callback, Event, alongside, emit, shielded
from ..models import ExecItem
from .client import AsyncClient

Input = str | bytes | AsyncIterable[bytes]

# Text up to this length is sent with the request, which may be repeated; more is sent beside the output.
INLINE_INPUT = 256 * 1024
PIECE = 256 * 1024
# How long a command whose caller was cancelled is being killed for.
KILL_SECONDS = 5.0


class AsyncStartOptions(TypedDict, total=False):
    """What can be said of a command in the background."""

    cwd: str
    """Absolute, or relative to /workspace."""
    env: dict[str, str]
    secrets: dict[str, str]
    """Variables too, whose values appear in no log of the server."""
    user: str
    timeout: float
    """In seconds, counted by the server: 300 where nothing is said, in the background none."""


class AsyncCommandOptions(AsyncStartOptions, total=False):
    """What can be said of a command."""

    on_stdout: Callback[str]
    on_stderr: Callback[str]


def _body(
    command: str | Sequence[str], options: AsyncStartOptions, kind: type[AsyncStartOptions] = AsyncStartOptions
) -> dict[str, Any]:
    # A word that is misspelled must not be lost.
    if unknown := options.keys() - kind.__annotations__.keys():
        raise TypeError(f"a command has no option {min(unknown)!r}; in the background, wait() takes callbacks")
    asked = {"command": command} if isinstance(command, str) else {"arguments": list(command)}
    return without_none({
        **asked,
        "working_directory": options.get("cwd"),
        "env_vars": options.get("env"),
        "secrets": options.get("secrets"),
        "user": options.get("user"),
        "timeout_seconds": options.get("timeout"),
    })


def _text(given: Input | None) -> str | None:
    """Input that a request can hold."""
    if isinstance(given, bytes) and len(given) <= INLINE_INPUT:
        try:
            return given.decode()
        except UnicodeDecodeError:
            return None
    return given if isinstance(given, str) and len(given) <= INLINE_INPUT else None


async def _pieces(content: str | bytes | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes):
        for at in range(0, len(content), PIECE):
            yield content[at : at + PIECE]
    else:
        async for piece in content:
            yield piece


class AsyncCommand:
    """A command that runs in the background. It goes on when this object, its client or a `wait()` ends."""

    def __init__(self, client: AsyncClient, sandbox: str, exec_id: str) -> None:
        self._client = client
        self._sandbox = sandbox
        self.exec_id = exec_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.exec_id}>"

    @property
    def _path(self) -> str:
        return f"{self._sandbox}/execs/{segment(self.exec_id)}"

    async def __aenter__(self) -> AsyncCommand:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaving the block kills the command, if it still runs."""
        with shielded(KILL_SECONDS):
            try:
                await self.kill(patience=KILL_SECONDS)
            except (errors.NotRunningError, errors.NotFoundError):
                pass

    async def status(self) -> ExecItem:
        return await self._client.value(ExecItem, get(self._path))

    async def output(self, offset: int = 0) -> AsyncGenerator[Output, None]:
        """What it prints, from a byte on and to its end. A broken connection is resumed."""
        source = ExecSource(self._sandbox, exec_id=self.exec_id, offset=offset)
        async with aclosing(self._client.follow(source)) as outputs:
            async for output in outputs:
                yield output

    async def wait(
        self, *, on_stdout: Callback[str] | None = None, on_stderr: Callback[str] | None = None, check: bool = False
    ) -> CommandResult:
        """Waits for its end. Cancelling this leaves the command running."""
        source = ExecSource(self._sandbox, exec_id=self.exec_id)
        result = await _gather(self._client, source, on_stdout, on_stderr, True)
        return result.check() if check else result

    async def kill(self, *, patience: float = READ_TIMEOUT) -> ExecItem:
        """Ends it and everything that it started. The server may be silent for `patience` seconds."""
        return await self._client.value(ExecItem, Call("POST", f"{self._path}/kill", safe=True, patience=patience))

    async def send_signal(self, signal: str | int) -> None:
        await self._client.request(Call("POST", f"{self._path}/signal", json={"signal": signal}))

    async def write_stdin(self, data: str | bytes | AsyncIterable[bytes], *, close: bool = False) -> int:
        """Gives it input, and returns how many bytes it took. It is never sent twice."""
        rewindable = isinstance(data, (str, bytes))
        call = Call("POST", f"{self._path}/stdin", {"close": close}, rewindable=rewindable, patience=None)
        response = await self._client.request(call, lambda: _pieces(data))
        written: int = response.json()["written"]
        return written

    async def close_stdin(self) -> None:
        await self.write_stdin(b"", close=True)

    async def forget(self) -> None:
        """Removes an ended command and its output."""
        await self._client.request(delete(self._path))


async def _gather(
    client: AsyncClient,
    source: ExecSource,
    on_stdout: Callback[str] | None,
    on_stderr: Callback[str] | None,
    capture: bool,
) -> CommandResult:
    collected, decoders = Collector(capture), Decoders()
    async with aclosing(client.follow(source)) as outputs:
        async for output in outputs:
            collected.add(output)
            callback = on_stdout if output.stream == "stdout" else on_stderr
            if callback is not None and (text := decoders.text(output)):
                await emit(callback, text)
    for stream, callback in (("stdout", on_stdout), ("stderr", on_stderr)):
        if callback is not None and (text := decoders.rest("stdout" if stream == "stdout" else "stderr")):
            await emit(callback, text)
    return source.result(*collected.bytes())


class AsyncCommands:
    """The commands of a sandbox."""

    def __init__(self, client: AsyncClient, sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    @overload
    async def run(
        self,
        command: str | Sequence[str],
        *,
        background: Literal[False] = False,
        stdin: Input | None = None,
        check: bool = False,
        capture: bool = True,
        lossless: bool = False,
        **options: Unpack[AsyncCommandOptions],
    ) -> CommandResult: ...

    @overload
    async def run(
        self,
        command: str | Sequence[str],
        *,
        background: Literal[True],
        stdin: str | None = None,
        **options: Unpack[AsyncStartOptions],
    ) -> AsyncCommand: ...

    async def run(
        self,
        command: str | Sequence[str],
        *,
        background: bool = False,
        stdin: Any = None,
        check: bool = False,
        capture: bool = True,
        lossless: bool = False,
        **options: Unpack[AsyncCommandOptions],
    ) -> CommandResult | AsyncCommand:
        """Runs a command: a line for the shell, or a program and its arguments.

        It is run once, also when the connection breaks or the server is restarted meanwhile. Cancelling this call
        (and Ctrl-C) kills the command. With `check`, an exit code other than 0 is an exception. `capture=False` keeps
        no output, for callbacks of a command that prints without end. With `lossless` the command waits for its reader
        instead of losing its oldest output; what was in flight when a connection broke is then lost.

        With `background` it returns a handle at once, and the command outlives this process.
        """
        if background:
            return await self.start(command, stdin=stdin, **options)  # type: ignore[misc]
        body = {**_body(command, options, AsyncCommandOptions), "stream": True}
        if lossless:
            body["lossless"] = True
        text = _text(stdin)
        if text is not None:
            body["stdin"] = text
        elif stdin is not None:
            body["stdin_open"] = True
        begin = keyed(f"{self._sandbox}/exec", body, STREAM_TIMEOUT)
        source = ExecSource(self._sandbox, begin)
        callbacks = options.get("on_stdout"), options.get("on_stderr")
        try:
            if "stdin_open" in body:
                result = await self._fed(source, stdin, *callbacks, capture)
            else:
                result = await _gather(self._client, source, *callbacks, capture)
        except BaseException as error:
            # Asking again for the id of a command that the server refused could start it.
            refused = isinstance(error, errors.APIError) and source.exec_id is None
            if not refused:
                await self._abandon(source, begin)
            raise
        return result.check() if check else result

    async def _fed(
        self,
        source: ExecSource,
        stdin: Input,
        on_stdout: Callback[str] | None,
        on_stderr: Callback[str] | None,
        capture: bool,
    ) -> CommandResult:
        """A command whose input is sent while its output is read."""
        failed: list[errors.AtollError] = []
        started = Event()
        source.on_started = started.set

        async def feed() -> None:
            await started.wait()
            if source.exec_id is None:
                return
            try:
                await self.get(source.exec_id).write_stdin(stdin, close=True)
            except (errors.NotRunningError, errors.ConflictError, errors.NotFoundError):
                pass  # A command may end before it has read everything.
            except errors.AtollError as error:
                failed.append(error)
                await self._abandon(source, None)

        async with alongside(feed):
            try:
                result = await _gather(self._client, source, on_stdout, on_stderr, capture)
            finally:
                started.set()
        if failed:
            raise failed[0]
        return result

    async def _begun(self, source: ExecSource) -> str:
        """Starts a command and returns its id."""
        async with aclosing(self._client.follow(_Start(source))) as started:
            async for exec_id in started:
                return exec_id
        raise errors.ConnectionFailedError("the command's events did not begin with its start")

    async def _abandon(self, source: ExecSource, begin: Call | None) -> None:
        """Kills a command whose caller is gone. Where its id never came, the same request asks for it: the key makes
        it the same command."""
        if source.ended or not source.asked:
            return
        with shielded(KILL_SECONDS):
            try:
                again = begin and replace(begin, patience=KILL_SECONDS)
                exec_id = source.exec_id or await self._begun(ExecSource(self._sandbox, again))
                await self.get(exec_id).kill(patience=KILL_SECONDS)
            except errors.AtollError:
                pass

    async def start(
        self,
        command: str | Sequence[str],
        *,
        stdin: str | None = None,
        stdin_open: bool = False,
        **options: Unpack[AsyncStartOptions],
    ) -> AsyncCommand:
        """Starts a command in the background. With `stdin_open`, `write_stdin` gives it more input."""
        body = {**_body(command, options), "background": True, **without_none({"stdin": stdin})}
        if stdin_open:
            body["stdin_open"] = True
        item = await self._client.value(ExecItem, keyed(f"{self._sandbox}/exec", body))
        return AsyncCommand(self._client, self._sandbox, item.exec_id)

    def get(self, exec_id: str) -> AsyncCommand:
        """A handle of a command by its id."""
        return AsyncCommand(self._client, self._sandbox, exec_id)

    async def list(self) -> list[ExecItem]:
        """The commands that the sandbox remembers, the latest first."""
        return await self._client.value(list[ExecItem], get(f"{self._sandbox}/execs"))

    async def kill(self, exec_id: str) -> ExecItem:
        return await self.get(exec_id).kill()


class _Start:
    """Follows a command to its start."""

    def __init__(self, source: ExecSource) -> None:
        self._source = source
        self.ended = False

    def call(self) -> Call:
        return self._source.call()

    def take(self, event: Any) -> list[str]:
        self._source.take(event)
        self.ended = True
        return [self._source.exec_id or ""]
