"""Files of a sandbox. Paths are absolute, or relative to /workspace."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal

import httpx

from .. import errors
from .._archives import pack, unpack
from .._calls import Attempts, Call, file_path, final, get, without_none
from .._config import STREAM_TIMEOUT
from .._decode import decode
from .._events import WatchSource
from .._runtime_async import in_thread, sleep
from ..models import FileHistoryPage, FileItem, FindResult, GrepResult, UnpackResult, WatchItem
from .client import AsyncClient, Content

Written = str | bytes | bytearray | memoryview | IO[bytes] | AsyncIterable[bytes]
PIECE = 256 * 1024
# Archives up to this size are made in memory.
IN_MEMORY = 8 * 1024 * 1024


async def _read_from(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while piece := await in_thread(file.read, PIECE):
        if not isinstance(piece, bytes):
            raise TypeError('a file to write must be open in binary mode: open(path, "rb")')
        yield piece


class AsyncFiles:
    """The files of a sandbox."""

    def __init__(self, client: AsyncClient, sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    # -- Whole files.

    async def read(self, path: str, *, encoding: str = "utf-8") -> str:
        return (await self.read_bytes(path)).decode(encoding)

    async def read_bytes(self, path: str) -> bytes:
        return b"".join([piece async for piece in self.stream(path)])

    async def stream(self, path: str, *, start: int = 0) -> AsyncGenerator[bytes, None]:
        """The bytes of a file as they come. A broken download is resumed, unless the file changed meanwhile."""
        before = await self.stat(path, follow=True)
        attempts = Attempts(self._client.config.retry)
        at, end = start, before.size
        while True:
            headers = {"Range": f"bytes={at}-"} if at else {}
            call = Call("GET", self._of(path), safe=True, headers=headers)
            try:
                if at and at >= end:
                    return
                async with self._client.opened(call) as response:
                    async for piece in response.aiter_raw():
                        attempts.progress()
                        at += len(piece)
                        yield piece
                return
            except (httpx.TransportError, errors.APIError) as failure:
                delay = attempts.delay(call, failure)
                if delay is None:
                    raise final(failure, self._client.config.base_url) from failure
            await sleep(delay)
            now = await self.stat(path, follow=True)
            if at and (now.size, now.modified_at) != (before.size, before.modified_at):
                raise errors.ConflictError(f"{path} changed while it was read", code="conflict")

    async def write(
        self, path: str, content: Written, *, force: bool = False
    ) -> None:
        """Writes a file, whole or not at all, and the folders above it. `force` replaces one that is read-only.

        A stream that cannot be rewound is sent once; anything else again, if the connection breaks.
        """
        call = Call("PUT", self._of(path), {"overwrite": "force" if force else None}, safe=True)
        await self._send(call, content)

    async def _send(self, call: Call, content: Written) -> httpx.Response:
        source: Callable[[], Content]
        rewindable = False
        if isinstance(content, str):
            content = content.encode()
        if isinstance(content, (bytes, bytearray, memoryview)):
            whole = bytes(content)
            return await self._client.request(call, lambda: whole)
        if hasattr(content, "read"):
            file: Any = content
            rewindable = file.seekable()
            start = file.tell() if rewindable else 0

            def source() -> Content:
                if rewindable:
                    file.seek(start)
                return _read_from(file)
        else:
            pieces = content

            def source() -> Content:
                return pieces

        return await self._client.request(replace(call, rewindable=rewindable), source)

    # -- To and from this machine.

    async def upload(self, local: str | os.PathLike[str], path: str | None = None) -> int:
        """Copies a file or a folder of this machine into the sandbox, and returns how many bytes its files have."""
        here = Path(local)
        there = path or here.name
        if here.is_dir():
            with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
                await in_thread(pack, here, archive)
                archive.seek(0)
                await self.mkdir(there)
                return (await self.unpack(archive, there)).bytes
        with here.open("rb") as file:
            await self.write(there, file)
            return file.tell()

    async def download(self, path: str, local: str | os.PathLike[str] | None = None) -> Path:
        """Copies a file or a folder of the sandbox to this machine. A file appears whole or not at all. Links of a
        folder that lead out of it are left out."""
        there = await self.stat(path, follow=True)
        here = Path(local) if local is not None else Path(there.name)
        if there.is_directory:
            with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
                async for piece in self.pack(path):
                    await in_thread(archive.write, piece)
                archive.seek(0)
                await in_thread(unpack, archive, here)
            return here
        part = here.with_name(here.name + ".part")
        try:
            with part.open("wb") as file:
                async for piece in self.stream(path):
                    await in_thread(file.write, piece)
            part.replace(here)
        finally:
            part.unlink(missing_ok=True)
        return here

    async def pack(self, path: str = ".") -> AsyncGenerator[bytes, None]:
        """A folder as a tar archive."""
        call = Call("GET", f"{self._sandbox}/fs/tar", {"path": path})
        try:
            async with self._client.opened(call) as response:
                async for piece in response.aiter_raw():
                    yield piece
        except httpx.TransportError as failure:
            raise final(failure, self._client.config.base_url) from failure

    async def unpack(self, archive: Written, path: str = ".") -> UnpackResult:
        """Unpacks a tar archive into a folder."""
        call = Call("PUT", f"{self._sandbox}/fs/tar", {"path": path}, safe=True)
        return decode(UnpackResult, (await self._send(call, archive)).json())

    # -- Folders.

    async def list(self, path: str = ".") -> list[FileItem]:
        """All entries of a folder, by name."""
        found: list[FileItem] = []
        after: str | None = None
        while True:
            response = await self._client.request(get(f"{self._sandbox}/files", path=path, after=after))
            found += decode(list[FileItem], response.json())
            if response.headers.get("atoll-truncated") != "true":
                return found
            after = found[-1].name

    async def stat(self, path: str, *, follow: bool = False) -> FileItem:
        return await self._client.value(FileItem, get(f"{self._sandbox}/fs/stat", path=path, follow=follow))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except errors.NotFoundError as error:
            if error.field == "path":
                return False
            raise
        return True

    async def mkdir(self, path: str, *, parents: bool = True) -> FileItem:
        """Makes a folder. With `parents` those above it too, and one that is there is no error."""
        return await self._client.value(FileItem, self._post("mkdir", parents, path=path, parents=parents))

    async def move(self, source: str, target: str, *, overwrite: bool = False) -> FileItem:
        call = self._post("move", False, **{"from": source}, to=target, overwrite=overwrite)
        return await self._client.value(FileItem, call)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        await self._client.request(self._post("remove", False, path=path, recursive=recursive))

    async def find(
        self,
        pattern: str | None = None,
        *,
        path: str | None = None,
        kind: Literal["file", "directory", "symlink", "any"] | None = None,
        hidden: bool | None = None,
        max_depth: int | None = None,
        limit: int | None = None,
    ) -> FindResult:
        call = self._post(
            "find", True, pattern=pattern, path=path, kind=kind, hidden=hidden, max_depth=max_depth, limit=limit
        )
        return await self._client.value(FindResult, call)

    async def grep(
        self,
        pattern: str,
        *,
        path: str | None = None,
        glob: str | None = None,
        ignore_case: bool = False,
        literal: bool = False,
        context: int | None = None,
        max_matches: int | None = None,
    ) -> GrepResult:
        call = self._post(
            "grep", True, pattern=pattern, path=path, glob=glob, ignore_case=ignore_case, literal=literal,
            context=context, max_matches=max_matches,
        )
        return await self._client.value(GrepResult, call)

    async def watch(self, path: str = ".", *, recursive: bool = True) -> AsyncGenerator[WatchItem, None]:
        """What changes in a folder; the first event is `ready`. A connection that breaks is an error: what changed
        meanwhile is not known."""
        call = Call("GET", f"{self._sandbox}/fs/watch", {"path": path, "recursive": recursive}, patience=STREAM_TIMEOUT)
        async with aclosing(self._client.follow(WatchSource(call))) as events:
            async for event in events:
                yield event

    async def history(self, path: str, *, limit: int | None = None) -> FileHistoryPage:
        """Which commands, cells and requests changed a file, the latest first."""
        return await self._client.value(FileHistoryPage, get(f"{self._sandbox}/fs/history", path=path, limit=limit))

    def _of(self, path: str) -> str:
        return f"{self._sandbox}/files/{file_path(path)}"

    def _post(self, what: str, safe: bool, **body: Any) -> Call:
        return Call("POST", f"{self._sandbox}/fs/{what}", json=without_none(body), safe=safe)
