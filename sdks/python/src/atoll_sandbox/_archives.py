"""Folders of this machine to tar archives and back. An archive of a sandbox is hostile: nothing of it may be written
outside of its folder. (The filter of `tarfile` for this is younger than the oldest Python that is supported.)"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from typing import IO, Any

from . import errors


def pack(folder: Path, archive: Any) -> None:
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(folder, arcname=".")


def unpack(archive: Any, folder: Path) -> None:
    """Files, folders and symbolic links that stay inside. Owners are not kept, devices and other links are left out.

    Links are made last, so that no file is written through one, and all of them are looked at together: two links may
    each stay inside and lead out together."""
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    links: dict[Path, str] = {}
    with tarfile.open(fileobj=archive, mode="r|") as tar:
        for member in tar:
            target = root / os.path.normpath(member.name)
            if target == root:
                continue
            _inside(root, target.parent)
            if member.isdir():
                _inside(root, target)
                target.mkdir(parents=True, exist_ok=True)
            elif member.isreg() and (content := tar.extractfile(member)) is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(target, content, member.mode)
            elif member.issym():
                links[target] = member.linkname
    _link(root, links)


def _link(root: Path, links: dict[Path, str]) -> None:
    made = []
    for link, to in links.items():
        # The folder that holds a link may itself be reached by one that was made before it.
        if link.is_dir() and not link.is_symlink() or not _stays(root, link.parent):
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(to)
        made.append(link)
        while outside := [one for one in made if not _stays(root, one)]:
            made = [one for one in made if one not in outside]
            for one in outside:
                one.unlink()


def _stays(root: Path, path: Path) -> bool:
    """Whether a path leads to something inside, or to nothing that would be inside."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError):  # Links that lead to each other.
        return False


def _inside(root: Path, path: Path) -> None:
    """Fails where a name, or a link on the way, leads out."""
    if not _stays(root, path):
        raise errors.PathError(f"the archive leads out of its folder: {path}", code="path_outside_root")


def _write(target: Path, content: IO[bytes], mode: int) -> None:
    """Replaces what is there, and never writes through a link."""
    target.unlink(missing_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o777)
    with os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(content, file)
