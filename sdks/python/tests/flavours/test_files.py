from __future__ import annotations

import hashlib
import io
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support import Proxy, Server

from atoll_sandbox import AsyncSandbox, errors

pytestmark = pytest.mark.anyio
NEVER = 1 << 40


@pytest.fixture(scope="module")
async def sandbox(server: Server) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(base_url=server.url, api_key=server.key) as made:
        yield made


async def test_text_bytes_and_names(sandbox: AsyncSandbox) -> None:
    files = sandbox.files
    for name in ("plain.txt", "deep/er/with space & % ? # é.txt", "/tmp/absolute"):
        await files.write(name, f"of {name}")
        assert await files.read(name) == f"of {name}"
    await files.write("empty", b"")
    assert await files.read_bytes("empty") == b""
    about = await files.stat("plain.txt")
    assert (about.type, about.size, about.path) == ("file", 12, "/workspace/plain.txt")
    assert await files.exists("plain.txt") and not await files.exists("missing")
    with pytest.raises(errors.NotFoundError) as missing:
        await files.read("missing")
    assert (missing.value.code, missing.value.field) == ("not_found", "path")


async def test_a_big_file_is_the_same_in_both_directions(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    here, back = tmp_path / "big", tmp_path / "back"
    content = os.urandom(1 << 20)
    with here.open("wb") as file:
        for number in range(64):
            file.write(number.to_bytes(2, "big") + content)
    await sandbox.files.upload(here, "big")
    inside = (await sandbox.commands.run("sha256sum big", check=True)).stdout.split()[0]
    await sandbox.files.download("big", back)
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (here, back)}
    assert digests == {inside}
    assert not list(tmp_path.glob("*.part"))


async def test_a_download_that_breaks_off_is_resumed(sandbox: AsyncSandbox, proxy: Proxy, server: Server) -> None:
    content = os.urandom(4 << 20)
    await sandbox.files.write("resumed", content)
    async with await _through(proxy, server, sandbox) as other:
        # Every second connection asks whether the file is still the same.
        proxy.cuts = [NEVER, 1_000_000, NEVER, 1_500_000]
        read = b"".join([piece async for piece in other.files.stream("resumed")])
    assert read == content and not proxy.cuts

    changed = False
    async with await _through(proxy, server, sandbox) as other:
        proxy.cuts = [NEVER, 1_000_000]
        with pytest.raises(errors.ConflictError):
            async for _ in other.files.stream("resumed"):
                if not changed:
                    changed = True
                    await sandbox.files.write("resumed", content + b"more")


async def _through(proxy: Proxy, server: Server, sandbox: AsyncSandbox) -> AsyncSandbox:
    """A sandbox by the proxy, with no connection that is kept."""
    found = await AsyncSandbox.connect(sandbox.id, base_url=proxy.url, api_key=server.key)
    found.client._http.headers["Connection"] = "close"
    await found.refresh()
    return found


async def test_streams_are_written_as_they_come(sandbox: AsyncSandbox) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(1000):
            yield b"%04d" % number

    await sandbox.files.write("streamed", pieces())
    assert (await sandbox.files.stat("streamed")).size == 4000
    file = io.BytesIO(b"skipped,kept")
    file.seek(8)
    await sandbox.files.write("from-file", file)
    assert await sandbox.files.read("from-file") == "kept"


async def test_an_upload_whose_answer_is_lost_is_sent_again(sandbox: AsyncSandbox, proxy: Proxy, server: Server) -> None:
    async with await _through(proxy, server, sandbox) as other:
        proxy.cuts = [0]
        await other.files.write("again", "content")
        assert not proxy.cuts
    assert await sandbox.files.read("again") == "content"

    async def once() -> AsyncIterator[bytes]:
        yield b"x"

    async with await _through(proxy, server, sandbox) as other:
        proxy.cuts = [0]
        with pytest.raises(errors.ConnectionFailedError):
            await other.files.write("once", once())


async def test_content_that_cannot_be_rewound_is_sent_once(
    sandbox: AsyncSandbox, proxy: Proxy, server: Server
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"x"

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    contents: list[Any] = [pieces(), Pipe(b"x")]
    await sandbox.files.write("limited", "old")
    async with await _through(proxy, server, sandbox) as other:
        for content in contents:
            proxy.limited = 1
            with pytest.raises(errors.LimitExceededError):
                await other.files.write("limited", content)
            assert await sandbox.files.read("limited") == "old"
        contents = [b"bytes", io.BytesIO(b"bytes")]
        for number, content in enumerate(contents):
            proxy.limited = 1
            await other.files.write(f"rewound{number}", content)
            assert await sandbox.files.read(f"rewound{number}") == "bytes" and proxy.limited == 0


async def test_folders(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    files = sandbox.files
    (tmp_path / "site/css").mkdir(parents=True)
    (tmp_path / "site/index.html").write_text("<h1>hello</h1>\n")
    (tmp_path / "site/css/main.css").write_text("h1 { color: teal }\n")
    await files.upload(tmp_path / "site")
    assert [entry.name for entry in await files.list("site")] == ["css", "index.html"]
    found = await files.find("*.css")
    assert [entry.path for entry in found.entries] == ["site/css/main.css"]
    matches = (await files.grep(r"color: \w+", path="site")).matches
    assert [(match.line, match.text) for match in matches] == [(1, "h1 { color: teal }")]
    await files.move("site/index.html", "site/start.html")
    copy = await files.download("site", tmp_path / "copy")
    assert (copy / "start.html").read_text() == "<h1>hello</h1>\n" and (copy / "css/main.css").exists()
    with pytest.raises(errors.ConflictError):
        await files.remove("site")
    await files.remove("site", recursive=True)
    assert not await files.exists("site")
    await files.mkdir("a/b")
    await files.mkdir("a/b")
    with pytest.raises(errors.PathError) as folder:
        await files.write("a/b", "x")
    assert folder.value.code == "is_a_directory"
    history = await files.history("plain.txt")
    assert history.path.endswith("plain.txt")


async def test_a_folder_is_watched(sandbox: AsyncSandbox) -> None:
    await sandbox.files.mkdir("watched")
    seen = []
    async for event in sandbox.files.watch("watched"):
        seen.append(event.event)
        if event.event == "ready":
            await sandbox.commands.run("echo x > watched/new")
        elif event.event == "created":
            assert event.path is not None and event.path.endswith("new")
            break
    assert seen[0] == "ready"
