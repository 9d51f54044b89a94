"""A sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Literal, TypedDict, Unpack

from .. import errors
from .._calls import Call, delete, get, keyed, segment, without_none
from .._config import INSTALL_TIMEOUT, RetryPolicy
from .._packages import versions
from .._results import CodeResult, Display
from .._runtime_async import Callback, shielded
from ..models import Attachment, EgressPolicy, Filesystem, InstalledItem, MetricsReply
from ..models import Sandbox as SandboxRecord
from .client import AsyncClient
from .code import AsyncKernels, Language
from .commands import AsyncCommands
from .files import AsyncFiles
from .snapshots import AsyncSnapshots

DESTROY_SECONDS = 20.0


class AsyncLimits(TypedDict, total=False):
    """What a new sandbox or a fork may have."""

    memory_mb: int
    cpu_cores: float
    disk_mb: int
    processes: int
    env: dict[str, str]
    secrets: dict[str, str]
    labels: dict[str, str]
    idle_timeout_seconds: float
    max_lifetime_seconds: float
    auto_snapshot: str


class AsyncCreateOptions(AsyncLimits, total=False):
    """What a new sandbox may have."""

    image: str
    profile: str
    egress: EgressPolicy
    network_enabled: bool
    session_key: str
    """One sandbox for each owner, key and image: asking again gives the same."""
    tenant_id: str
    volumes: list[Attachment]
    filesystem: Filesystem
    dependencies: dict[str, dict[str, str]]
    """Packages by language, versions by name; an empty version is the latest."""


def _renamed(options: AsyncLimits) -> dict[str, object]:
    return {"env_vars" if name == "env" else name: value for name, value in options.items()}


class AsyncSandbox:
    """A sandbox, with its `commands`, `files`, `kernels` and `snapshots`.

        async with await AsyncSandbox.create() as sandbox:
            result = await sandbox.commands.run("echo hello")

    Leaving the block destroys a sandbox that `create` or `fork` made, and closes the client that belongs to it. One
    with a `session_key`, or that `connect` found, goes on.
    """

    def __init__(self, client: AsyncClient, record: SandboxRecord, *, owns_client: bool, temporary: bool) -> None:
        self.client = client
        self.record = record
        """The record as it was when it was last asked for; see `refresh`."""
        self._owns_client = owns_client
        self._temporary = temporary
        path = f"sandboxes/{record.id}"
        self._path = path
        self.commands = AsyncCommands(client, path)
        self.files = AsyncFiles(client, path)
        self.kernels = AsyncKernels(client, path)
        self.snapshots = AsyncSnapshots(client, path)

    @property
    def id(self) -> str:
        return self.record.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.record.status}>"

    # -- Its life.

    @classmethod
    async def create(
        cls,
        *,
        client: AsyncClient | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        retry: RetryPolicy | None = None,
        **options: Unpack[AsyncCreateOptions],
    ) -> AsyncSandbox:
        """Makes a sandbox. With `client` it shares that one's connections."""
        connected = client or AsyncClient(base_url, api_key, retry=retry)
        try:
            call = keyed("sandboxes", _renamed(options), INSTALL_TIMEOUT)
            record = await connected.value(SandboxRecord, call)
        except BaseException:
            if client is None:
                await connected.close()
            raise
        return cls(connected, record, owns_client=client is None, temporary="session_key" not in options)

    @classmethod
    async def connect(
        cls,
        sandbox_id: str,
        *,
        client: AsyncClient | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        retry: RetryPolicy | None = None,
    ) -> AsyncSandbox:
        """Finds a sandbox by its id."""
        connected = client or AsyncClient(base_url, api_key, retry=retry)
        try:
            record = await connected.value(SandboxRecord, get(f"sandboxes/{segment(sandbox_id)}"))
        except BaseException:
            if client is None:
                await connected.close()
            raise
        return cls(connected, record, owns_client=client is None, temporary=False)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._temporary:
                await self.kill()
        finally:
            await self.close()

    async def kill(self) -> None:
        """Destroys the sandbox and its files. One that is gone already is no error."""
        with shielded(DESTROY_SECONDS):
            try:
                await self.client.request(delete(self._path))
            except errors.NotFoundError:
                pass

    async def close(self) -> None:
        """Closes the connections of a client that belongs to this sandbox. The sandbox goes on."""
        if self._owns_client:
            await self.client.close()

    async def refresh(self) -> SandboxRecord:
        return await self._changed(get(self._path))

    async def pause(self) -> SandboxRecord:
        """Freezes every process where it is. The next request that needs the sandbox resumes it."""
        return await self._changed(Call("POST", f"{self._path}/pause", safe=True))

    async def resume(self) -> SandboxRecord:
        return await self._changed(Call("POST", f"{self._path}/resume", safe=True))

    async def stop(self) -> SandboxRecord:
        """Ends its processes and keeps its files."""
        return await self._changed(Call("POST", f"{self._path}/stop", safe=True))

    async def update(
        self,
        *,
        memory_mb: int | None = None,
        cpu_cores: float | None = None,
        disk_mb: int | None = None,
        env: dict[str, str] | None = None,
        secrets: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        idle_timeout_seconds: float | None = None,
        auto_snapshot: str | None = None,
        volumes: list[Attachment] | None = None,
    ) -> SandboxRecord:
        """Changes limits and settings. The server says which of them need a stopped sandbox."""
        body = without_none({
            "memory_mb": memory_mb, "cpu_cores": cpu_cores, "disk_mb": disk_mb, "env_vars": env, "secrets": secrets,
            "labels": labels, "idle_timeout_seconds": idle_timeout_seconds, "auto_snapshot": auto_snapshot,
            "volumes": volumes,
        })
        return await self._changed(Call("PATCH", self._path, json=body, safe=True))

    async def _changed(self, call: Call) -> SandboxRecord:
        self.record = await self.client.value(SandboxRecord, call)
        return self.record

    async def fork(self, *, snapshot: str | None = None, **options: Unpack[AsyncLimits]) -> AsyncSandbox:
        """Makes another sandbox with the files of this one, as they are now or were in a snapshot, which is named
        by its id or label."""
        of = None if snapshot is None else await self.snapshots.id_of(snapshot)
        body = without_none({"snapshot": of, **_renamed(options)})
        record = await self.client.value(SandboxRecord, keyed(f"{self._path}/fork", body))
        return type(self)(self.client, record, owns_client=False, temporary=True)

    async def metrics(self) -> MetricsReply:
        return await self.client.value(MetricsReply, get(f"{self._path}/metrics"))

    # -- Code.

    async def run_code(
        self,
        code: str,
        *,
        language: Language = "python",
        timeout: float | None = None,
        on_stdout: Callback[str] | None = None,
        on_stderr: Callback[str] | None = None,
        on_display: Callback[Display] | None = None,
        check: bool = False,
    ) -> CodeResult:
        """Runs code in the default kernel of a language, which keeps its variables.

        It is run once, also when the connection breaks or the server is restarted meanwhile. Cancelling this call
        (and Ctrl-C) interrupts it. A timeout (30 seconds where nothing is said) interrupts it and keeps the variables.
        """
        body = without_none({"code": code, "language": language, "timeout": timeout, "stream": True})
        result = await self.kernels.follow(f"{self._path}/run", body, on_stdout, on_stderr, on_display)
        return result.check() if check else result

    async def install(
        self,
        packages: Sequence[str] | Mapping[str, str],
        *,
        language: Literal["python", "node", "r"] = "python",
        timeout: float | None = None,
        check: bool = False,
    ) -> InstalledItem:
        """Installs packages with pip, npm or R's installer, through the sandbox's egress policy: `["rich>=13",
        "uvicorn[standard]"]`, or versions by name. With `check`, a package that is not installed is an exception."""
        installed = await self.kernels.install(versions(language, packages), language, timeout)
        if check and not installed.success:
            raise errors.InstallFailedError(installed)
        return installed
