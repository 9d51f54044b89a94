"""JSON to the data classes of `models`. What a newer server sends besides is left out."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def _same(value: Any) -> Any:
    return value


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is datetime:
        return datetime.fromisoformat
    if dataclasses.is_dataclass(kind):
        make_one: Callable[..., Any] = kind  # type: ignore[assignment]
        hints = typing.get_type_hints(kind)
        fields = [(name, _decoder(hint)) for name, hint in hints.items()]

        def make(value: dict[str, Any]) -> Any:
            return make_one(**{name: decode(value[name]) for name, decode in fields if name in value})

        return make
    if origin in (types.UnionType, typing.Union):
        of_values = [_decoder(part) for part in arguments if part is not type(None)]
        decode = of_values[0] if len(of_values) == 1 else _same
        return lambda value: None if value is None else decode(value)
    if origin is list:
        item = _decoder(arguments[0])
        return _same if item is _same else lambda value: [item(part) for part in value]
    if origin is dict:
        item = _decoder(arguments[1])
        return _same if item is _same else lambda value: {name: item(part) for name, part in value.items()}
    return _same


def decode(kind: type[T], value: Any) -> T:
    hashable: Any = kind
    decoded: T = _decoder(hashable)(value)
    return decoded
