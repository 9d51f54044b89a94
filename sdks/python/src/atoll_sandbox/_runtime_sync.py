"""What the two flavours do in different ways: this is the synchronous one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Callback: TypeAlias = Callable[[T], object]
sleep = time.sleep
Event = threading.Event


def emit(callback: Callback[T] | None, value: T) -> None:
    """Calls a callback."""
    if callback is not None:
        callback(value)


def shielded(seconds: float) -> AbstractContextManager[object]:
    """Nothing interrupts a thread but Ctrl-C, which still does."""
    return nullcontext()


def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls what may block."""
    return function(*args, **kwargs)


@contextmanager
def alongside(work: Callable[[], None]) -> Iterator[None]:
    """Does `work` in a thread while the block runs. It must not raise, and it ends soon after what it works for."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(timeout=10)
