"""Snapshots: a sandbox's files as they were at one moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from .. import errors
from .._calls import Call, delete, get, is_id, keyed, without_none
from ..models import RolledBackItem, SnapshotDiff, SnapshotItem, SnapshotList
from .client import AsyncClient


class AsyncSnapshots:
    """The snapshots of a sandbox. Each is named by its id or its label."""

    def __init__(self, client: AsyncClient, sandbox: str) -> None:
        self._client = client
        self._path = f"{sandbox}/snapshots"

    async def create(self, label: str | None = None, *, kernels: bool = False) -> SnapshotItem:
        """Makes a snapshot; with `kernels` the variables of Python kernels too."""
        body = without_none({"label": label, "kernels": kernels})
        return await self._client.value(SnapshotItem, keyed(self._path, body))

    async def list(self) -> AsyncGenerator[SnapshotItem, None]:
        """The newest first."""
        page = 1
        while True:
            found = await self._client.value(SnapshotList, get(self._path, page=page))
            for snapshot in found.items:
                yield snapshot
            if not found.items or page * found.page_size >= found.total:
                return
            page += 1

    async def get(self, snapshot: str) -> SnapshotItem:
        return await self._client.value(SnapshotItem, get(await self._of(snapshot)))

    async def set_label(self, snapshot: str, label: str | None) -> SnapshotItem:
        call = Call("PATCH", await self._of(snapshot), json={"label": label}, safe=True)
        return await self._client.value(SnapshotItem, call)

    async def diff(self, snapshot: str, to: str = "now") -> SnapshotDiff:
        """The files that differ from another snapshot, or from now."""
        return await self._client.value(SnapshotDiff, get(f"{await self._of(snapshot)}/diff", to=await self.id_of(to)))

    async def rollback(self, snapshot: str, *, kernels: bool = False, keep_before: bool = True) -> RolledBackItem:
        """Makes the files what they were. Commands that run end."""
        body = {"kernels": kernels, "keep_before": keep_before}
        return await self._client.value(RolledBackItem, keyed(f"{await self._of(snapshot)}/rollback", body))

    async def delete(self, snapshot: str) -> None:
        await self._client.request(delete(await self._of(snapshot)))

    async def id_of(self, snapshot: str) -> str:
        """The id of a snapshot that has this id or label; the newest, where several have the label."""
        if snapshot == "now" or is_id(snapshot):
            return snapshot
        async for found in self.list():
            if found.label == snapshot:
                return found.id
        raise errors.NotFoundError(f"there is no snapshot {snapshot}", code="not_found")

    async def _of(self, snapshot: str) -> str:
        return f"{self._path}/{await self.id_of(snapshot)}"
