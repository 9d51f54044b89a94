"""What the two flavours do in different ways: this is the asynchronous one, for asyncio and trio."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager
from typing import ParamSpec, TypeAlias, TypeVar

import anyio
import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")

Callback: TypeAlias = Callable[[T], Awaitable[None] | None]
sleep = anyio.sleep
Event = anyio.Event


async def emit(callback: Callback[T] | None, value: T) -> None:
    """Calls a callback, which may be a coroutine function."""
    if callback is not None and inspect.isawaitable(returned := callback(value)):
        await returned


def shielded(seconds: float) -> AbstractContextManager[object]:
    """What is done here is done although the caller was cancelled, for so long at most."""
    return anyio.move_on_after(seconds, shield=True)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls what may block."""
    return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))


@asynccontextmanager
async def alongside(work: Callable[[], Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """Does `work` while the block runs, and no longer. It must not raise."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        try:
            yield
        except Exception as error:
            # Raised inside of a task group, it would come as a group.
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
