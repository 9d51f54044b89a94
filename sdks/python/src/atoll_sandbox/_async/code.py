"""Kernels: interpreters that keep their variables."""

from __future__ import annotations

import builtins
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from .. import errors
from .._calls import Call, delete, get, is_id, keyed, segment, without_none
from .._config import INSTALL_TIMEOUT, STREAM_TIMEOUT
from .._events import CellOutput, CellSource
from .._results import CodeResult, Display
from .._runtime_async import Callback, emit, shielded
from ..models import CheckpointItem, CompletionItem, InstalledItem, KernelItem
from .client import AsyncClient

Language = Literal["python", "node", "r", "bash"]
INTERRUPT_SECONDS = 5.0


class AsyncKernel:
    """One interpreter."""

    def __init__(self, client: AsyncClient, sandbox: str, kernel_id: str) -> None:
        self._client = client
        self._sandbox = sandbox
        self.kernel_id = kernel_id

    @property
    def _path(self) -> str:
        return f"{self._sandbox}/kernels/{segment(self.kernel_id)}"

    async def status(self) -> KernelItem:
        return await self._client.value(KernelItem, get(self._path))

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        on_stdout: Callback[str] | None = None,
        on_stderr: Callback[str] | None = None,
        on_display: Callback[Display] | None = None,
        check: bool = False,
    ) -> CodeResult:
        """Runs code in this kernel; see `run_code` of a sandbox."""
        body = without_none({"code": code, "timeout": timeout, "stream": True})
        kernels = AsyncKernels(self._client, self._sandbox)
        result = await kernels.follow(f"{self._path}/execute", body, on_stdout, on_stderr, on_display)
        return result.check() if check else result

    async def interrupt(self) -> None:
        await self._client.request(Call("POST", f"{self._path}/interrupt"))

    async def restart(self) -> KernelItem:
        return await self._client.value(KernelItem, Call("POST", f"{self._path}/restart"))

    async def complete(self, code: str, cursor: int | None = None) -> CompletionItem:
        body = without_none({"code": code, "cursor": cursor})
        return await self._client.value(CompletionItem, Call("POST", f"{self._path}/complete", json=body, safe=True))

    async def checkpoint(self, name: str | None = None) -> CheckpointItem:
        """Keeps the variables as they are now."""
        body = without_none({"name": name})
        return await self._client.value(CheckpointItem, Call("POST", f"{self._path}/checkpoints", json=body))

    async def rollback(self, checkpoint: str) -> KernelItem:
        """Makes the variables what they were, by the id or the name of a checkpoint."""
        if not is_id(checkpoint):
            named = [found for found in (await self.status()).checkpoints if found.name == checkpoint]
            if not named:
                raise errors.NotFoundError(f"there is no checkpoint {checkpoint}", code="not_found")
            checkpoint = named[-1].checkpoint_id
        call = Call("POST", f"{self._path}/checkpoints/{checkpoint}/rollback")
        return await self._client.value(KernelItem, call)

    async def remove(self) -> None:
        await self._client.request(delete(self._path))


class AsyncKernels:
    """The kernels of a sandbox."""

    def __init__(self, client: AsyncClient, sandbox: str) -> None:
        self._client = client
        self._sandbox = sandbox

    async def start(
        self, language: Language = "python", *, cwd: str | None = None, env: dict[str, str] | None = None
    ) -> AsyncKernel:
        body = without_none({"language": language, "working_directory": cwd, "env_vars": env})
        item = await self._client.value(KernelItem, Call("POST", f"{self._sandbox}/kernels", json=body))
        return AsyncKernel(self._client, self._sandbox, item.kernel_id)

    def get(self, kernel_id: str) -> AsyncKernel:
        return AsyncKernel(self._client, self._sandbox, kernel_id)

    async def list(self) -> builtins.list[KernelItem]:
        return await self._client.value(builtins.list[KernelItem], get(f"{self._sandbox}/kernels"))

    async def install(self, packages: dict[str, str], language: str, timeout: float | None) -> InstalledItem:
        body = without_none({"packages": packages, "language": language, "timeout": timeout})
        patience = INSTALL_TIMEOUT if timeout is None else timeout + 60
        return await self._client.value(InstalledItem, keyed(f"{self._sandbox}/dependencies", body, patience))

    async def follow(
        self,
        path: str,
        body: dict[str, Any],
        on_stdout: Callback[str] | None,
        on_stderr: Callback[str] | None,
        on_display: Callback[Display] | None,
    ) -> CodeResult:
        source = CellSource(keyed(path, body, STREAM_TIMEOUT))
        try:
            async with aclosing(self._client.follow(source)) as events:
                async for event in events:
                    if isinstance(event, CellOutput):
                        await emit(on_stdout if event.stream == "stdout" else on_stderr, event.text)
                    else:
                        await emit(on_display, event)
        except BaseException:
            await self._abandon(source)
            raise
        return source.result()

    async def _abandon(self, source: CellSource) -> None:
        """Interrupts a cell whose caller is gone. Its kernel is found by it: events do not name the kernel."""
        if source.ended or source.cell_id is None:
            return
        with shielded(INTERRUPT_SECONDS):
            try:
                call = replace(get(f"{self._sandbox}/kernels"), patience=INTERRUPT_SECONDS)
                for kernel in await self._client.value(builtins.list[KernelItem], call):
                    if kernel.cell_id == source.cell_id:
                        await self.get(kernel.kernel_id).interrupt()
            except errors.AtollError:
                pass
