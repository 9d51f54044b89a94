"""Sessions by their id, for agents' tools: each is a sandbox."""

from __future__ import annotations

import base64
import builtins
import os
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args
from urllib.parse import quote

from .. import errors
from .._calls import file_path
from .._config import RetryPolicy
from .._results import CommandResult
from .._sessions import (
    ExportedFile,
    ExportedFiles,
    ImportedFile,
    ImportedFiles,
    Runtime,
    SessionInfo,
    SessionResult,
    StopAtExit,
    covers,
    destination,
    in_workspace,
)
from .client import AsyncClient
from .sandbox import AsyncSandbox

IDLE_SECONDS = 1800
LIFETIME_SECONDS = 7200


class AsyncSandboxManager:
    """Makes sessions and works with them by their id, which is the id of a sandbox.

    Leaving its block, `close`, and the end of the process stop the sessions that it made. Files that are imported come
    from anywhere on this machine, unless `import_allowed_dirs` says from where: name the folders where a model chooses
    the paths.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        import_allowed_dirs: Sequence[str | os.PathLike[str]] | None = None,
    ) -> None:
        self.client = AsyncClient(base_url, api_key, retry=retry)
        self._import_from = None if import_allowed_dirs is None else [Path(d).resolve() for d in import_allowed_dirs]
        self._sessions: dict[str, tuple[AsyncSandbox, Runtime]] = {}
        self._exported: set[tuple[str, str]] = set()
        self._exit = StopAtExit(self.client.config)

    async def __aenter__(self) -> AsyncSandboxManager:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops every session and closes the connections. One that cannot be stopped does not keep the others."""
        failures: list[errors.AtollError] = []
        try:
            for session in builtins.list(self._sessions):
                try:
                    await self.stop_session(session)
                except errors.AtollError as error:
                    failures.append(error)
        finally:
            await self.client.close()
        if failures:
            raise failures[0]
        self._exit.done()

    def sandbox(self, session_id: str) -> AsyncSandbox:
        """The sandbox of a session."""
        return self._session(session_id)[0]

    def _session(self, session_id: str) -> tuple[AsyncSandbox, Runtime]:
        found = self._sessions.get(session_id)
        if found is None:
            known = ", ".join(self._sessions) or "none"
            raise errors.NotFoundError(f"there is no session {session_id}; there are: {known}", code="not_found")
        return found

    async def create_session(
        self,
        runtime: Runtime = "python",
        dependencies: dict[str, str] | None = None,
        *,
        network_enabled: bool | None = None,
        memory_mb: int | None = None,
        cpu_cores: float | None = None,
    ) -> SessionInfo:
        """Makes a session. `dependencies` are versions of packages by name, an empty one the latest. A session has the
        network that the key's tier allows, unless `network_enabled` is false."""
        if runtime not in get_args(Runtime):
            message = f"runtime is {runtime!r}: it must be one of {', '.join(get_args(Runtime))}"
            raise errors.InvalidArgumentError(message, code="invalid_argument", details={"field": "runtime"})
        options: dict[str, Any] = {"memory_mb": memory_mb, "cpu_cores": cpu_cores}
        if dependencies:
            options["dependencies"] = {runtime: dependencies}
        given = {name: value for name, value in options.items() if value is not None}
        given |= {"idle_timeout_seconds": IDLE_SECONDS, "max_lifetime_seconds": LIFETIME_SECONDS}
        try:
            network = True if network_enabled is None else network_enabled
            sandbox = await AsyncSandbox.create(client=self.client, network_enabled=network, **given)
        except errors.PermissionDeniedError as refused:
            # The default is taken as far as the tier goes; what was asked for is not.
            if network_enabled is not None or refused.field != "network_enabled":
                raise
            sandbox = await AsyncSandbox.create(client=self.client, **given)
        self._sessions[sandbox.id] = (sandbox, runtime)
        self._exit.left.add(sandbox.id)
        status: Literal["running", "dead"] = "dead" if sandbox.record.status in ("dead", "destroyed") else "running"
        return SessionInfo(sandbox.id, runtime, status, dict(dependencies or {}), sandbox.record.stderr)

    async def execute_code(self, session_id: str, code: str, *, timeout: float | None = None) -> SessionResult:
        """Runs code in the session's interpreter, which keeps its variables."""
        sandbox, runtime = self._session(session_id)
        ran = await sandbox.run_code(code, language=runtime, timeout=timeout)
        error = None if ran.success else (ran.error and ran.error.traceback) or ran.summary()
        return SessionResult(ran.success, ran.stdout, ran.stderr, ran.text, error, ran.displays, ran)

    async def execute_terminal(
        self, session_id: str, command: str, *, timeout: float | None = None
    ) -> CommandResult:
        """Runs a line of the shell."""
        sandbox = self.sandbox(session_id)
        if timeout is None:
            return await sandbox.commands.run(command)
        return await sandbox.commands.run(command, timeout=timeout)

    # -- Files.

    async def export_files(self, session_id: str, files: Sequence[Mapping[str, str]]) -> ExportedFiles:
        """Offers files and folders below /workspace, `{"source": path}` each, to other sessions and to `download`."""
        sandbox = self.sandbox(session_id)
        return ExportedFiles([await self._export(sandbox, file.get("source", "")) for file in files])

    async def _export(self, sandbox: AsyncSandbox, source: str) -> ExportedFile:
        path = source
        try:
            if not source:
                raise ValueError("a file to export has a source")
            path = in_workspace(source)
            # The server follows no link that leads out of the workspace.
            found = await sandbox.files.stat(path, follow=True)
        except (errors.APIError, ValueError) as error:
            return ExportedFile(sandbox.id, path, False, error=str(error))
        self._exported.add((sandbox.id, path))
        here = f"{self.client.config.base_url.rstrip('/')}/api/v1/sandboxes/{sandbox.id}"
        if found.is_directory:
            return ExportedFile(sandbox.id, path, True, download_url=f"{here}/fs/tar?path={quote(path, safe='/')}")
        return ExportedFile(sandbox.id, path, True, found.size, download_url=f"{here}/files/{file_path(path)}")

    async def download(self, session_id: str, path: str, local: str | os.PathLike[str]) -> Path:
        """Copies an exported file or folder, or one below an exported folder, to this machine."""
        return await self.sandbox(session_id).files.download(self._offered(session_id, path), local)

    def _offered(self, session_id: str, path: str) -> str:
        whole = in_workspace(path)
        if not any(session == session_id and covers(folder, whole) for session, folder in self._exported):
            raise errors.NotFoundError(f"{path} of {session_id} was not exported", code="not_found")
        return whole

    async def import_files(self, session_id: str, files: Sequence[Mapping[str, str]]) -> ImportedFiles:
        """Copies files into a session, below /workspace. Each is `{"source"}` for a file or folder of this machine,
        `{"session_id", "path"}` for one that another session exported, or `{"file_name", "file_content"}`, in base64
        where `encoding` says so. `destination` is where it goes; its own name where that is absent."""
        sandbox = self.sandbox(session_id)
        return ImportedFiles([await self._import(sandbox, file) for file in files])

    async def _import(self, sandbox: AsyncSandbox, file: Mapping[str, str]) -> ImportedFile:
        wanted = file.get("destination")
        source = file.get("source") or file.get("file_name") or wanted or ""
        try:
            if "source" in file:
                there, size = await self._from_here(sandbox, file["source"], wanted)
            elif "session_id" in file and "path" in file:
                source = f"{file['session_id']}:{file['path']}"
                there, size = await self._from_session(sandbox, file["session_id"], file["path"], wanted)
            elif "file_content" in file and source:
                content = file["file_content"].encode()
                if file.get("encoding") == "base64":
                    content = base64.b64decode(content, validate=True)
                there, size = destination(wanted, posixpath.basename(source)), len(content)
                await sandbox.files.write(there, content)
            else:
                raise ValueError("a file has a source, a session_id and a path, or a file_name and a file_content")
        except (errors.AtollError, OSError, ValueError) as error:
            return ImportedFile(source, wanted or "", False, error=str(error))
        return ImportedFile(source, there, True, size)

    async def _from_here(self, sandbox: AsyncSandbox, source: str, wanted: str | None) -> tuple[str, int]:
        here = Path(source).resolve(strict=True)
        if self._import_from is not None and not any(here.is_relative_to(folder) for folder in self._import_from):
            message = f"{source} is in no folder of import_allowed_dirs"
            raise errors.PermissionDeniedError(message, code="permission_denied", details={"field": "source"})
        there = destination(wanted, Path(source).name, here.is_dir())
        return there, await sandbox.files.upload(here, there)

    async def _from_session(
        self, sandbox: AsyncSandbox, session: str, path: str, wanted: str | None
    ) -> tuple[str, int]:
        path = self._offered(session, path)
        other = self.sandbox(session).files
        found = await other.stat(path, follow=True)
        there = destination(wanted, posixpath.basename(path), found.is_directory)
        if not found.is_directory:
            await sandbox.files.write(there, other.stream(path))
            return there, found.size
        await sandbox.files.mkdir(there)
        return there, (await sandbox.files.unpack(other.pack(path), there)).bytes

    async def stop_session(self, session_id: str) -> bool:
        """Ends a session and removes its files and exports. False: there is none."""
        found = self._sessions.get(session_id)
        if found is None:
            return False
        await found[0].kill()
        del self._sessions[session_id]
        self._exit.left.discard(session_id)
        self._exported = {offered for offered in self._exported if offered[0] != session_id}
        return True
