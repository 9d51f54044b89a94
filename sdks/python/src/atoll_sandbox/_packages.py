"""Packages as people write them, such as `uvicorn[standard]>=0.30`. Nothing here does any I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from . import errors

# The name with its extras, and what is said of the version.
PYTHON = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(.*)", re.DOTALL)
NODE = re.compile(r"\s*(@?[^@\s]+)(?:@(\S*))?\s*")


def _without_spaces(text: str) -> str:
    return "".join(text.split())


def _split(language: str, written: str) -> tuple[str, str]:
    if language == "python" and (found := PYTHON.fullmatch(written)):
        name, extras, version = found.groups(default="")
        return name + _without_spaces(extras), _without_spaces(version)
    if language == "node" and (found := NODE.fullmatch(written)):
        name, version = found.groups(default="")
        return name, version
    return written.strip(), ""


def versions(language: str, packages: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Versions by name, as the server takes them; an empty version is the latest."""
    if isinstance(packages, str):
        raise errors.InvalidArgumentError("packages is a list of names, and not one name", code="invalid_argument")
    if isinstance(packages, Mapping):
        return dict(packages)
    found: dict[str, str] = {}
    for written in packages:
        name, version = _split(language, written)
        if name in found:
            raise errors.InvalidArgumentError(
                f"packages names {name} twice", code="invalid_argument", details={"field": "packages"}
            )
        found[name] = version
    return found
