"""What does no I/O: events, retries, decoding, and the generator of the synchronous flavour."""

from __future__ import annotations

import ast
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import httpx
import pytest
from support import REPOSITORY

from atoll_sandbox import RetryPolicy, errors
from atoll_sandbox._archives import pack, unpack
from atoll_sandbox._calls import Attempts, Call, file_path, get
from atoll_sandbox._config import Config
from atoll_sandbox._decode import decode
from atoll_sandbox._events import CellOutput, CellSource, EventParser, ExecSource, ServerEvent
from atoll_sandbox._packages import versions
from atoll_sandbox._results import Display, Output
from atoll_sandbox._sessions import covers, in_workspace
from atoll_sandbox.models import FileItem, SandboxPage


def event(id: int | None, **said: object) -> ServerEvent:
    return ServerEvent(None if id is None else str(id), json.dumps(said))


def test_events_are_the_same_however_they_are_cut() -> None:
    wire = ": alive\n\nid: 3\ndata: {\"é\":\ndata: 1}\n\ndata:x\n\nid: 9\n\n".encode()
    whole = list(EventParser().feed(wire))
    assert whole == [ServerEvent("3", '{"é":\n1}'), ServerEvent(None, "x")]
    for size in range(1, 8):
        parser = EventParser()
        pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
        assert [found for piece in pieces for found in parser.feed(piece)] == whole


def test_a_resumed_command_repeats_no_byte() -> None:
    source = ExecSource("sandboxes/s", Call("POST", "exec", key="k"))
    assert source.call().key == "k"
    source.take(event(0, type="started", exec_id="e"))
    # A cut character of stdout waits at 0, and bytes of stderr come before its rest.
    assert source.take(event(0, type="stderr", offset=1, data="ab")) == [Output("stderr", 1, b"ab")]
    again = source.call()
    assert (again.method, again.path, again.params["from"]) == ("GET", "sandboxes/s/execs/e/output", 0)
    assert source.take(event(0, type="stderr", offset=1, data="abc")) == [Output("stderr", 3, b"c")]
    assert source.take(event(5, type="stdout", offset=0, next=5, data="é")) == [Output("stdout", 0, "é".encode())]
    assert source.take(event(5, type="stdout", offset=0, next=5, data="é")) == []
    assert source.take(event(7, type="stdout", offset=5, encoding="base64", data="//4=")) == [
        Output("stdout", 5, b"\xff\xfe")
    ]
    assert source.call().params["from"] == 7
    source.take(event(9, type="dropped", offset=7, bytes=2))
    assert source.take(event(9, type="something_new")) == []
    with pytest.raises(errors.UnavailableError):
        source.take(event(9, type="error", error={"code": "unavailable", "message": "ends"}))


def test_a_joined_cell_repeats_nothing() -> None:
    source = CellSource(Call("POST", "run", key="k"))
    source.call()
    assert source.take(event(None, type="output", stream="stdout", text="ab")) == [CellOutput("stdout", "ab")]
    shown = {"type": "image/png", "data": "eA=="}
    assert source.take(event(None, type="display", display=shown)) == [Display("image/png", "eA==")]
    source.call()
    assert source.take(event(None, type="output", stream="stdout", text="abc")) == [CellOutput("stdout", "c")]
    assert source.take(event(None, type="display", display=shown)) == []
    assert source.take(event(None, type="display", display=shown)) == [Display("image/png", "eA==")]


def test_only_what_does_not_run_twice_is_sent_again() -> None:
    plain, keyed, safe = Call("POST", "x"), Call("POST", "x", key="k"), get("x")
    broken, refused = httpx.ReadError("cut"), httpx.ConnectError("refused")
    away = errors.of_response(503, {}, b"")
    busy = errors.of_code("conflict", "a request with this Idempotency-Key is being carried out")
    limited = errors.of_response(429, {"retry-after": "1"}, b'{"error":{"code":"limit_exceeded","message":"m"}}')
    far = errors.of_response(429, {"retry-after": "5"}, b'{"error":{"code":"limit_exceeded","message":"m"}}')

    def again(call: Call, *failures: Exception, seconds: float = 30) -> bool:
        attempts = Attempts(RetryPolicy(seconds=seconds))
        return [attempts.delay(call, failure) for failure in failures][-1] is not None

    assert not again(plain, broken) and again(keyed, broken) and again(safe, broken)
    assert not again(plain, away) and again(keyed, away)
    assert again(plain, refused) and again(plain, limited) and not again(keyed, far)
    assert not again(keyed, busy) and again(keyed, broken, busy)
    # Content that may be used up is sent again only where none of it was.
    once = Call("PUT", "x", safe=True, rewindable=False)
    assert again(once, refused) and not again(once, limited) and not again(once, broken) and not again(once, away)
    # A call that is made on the way out does not wait long for a server that is away.
    assert not again(Call("POST", "kill", safe=True, patience=0), broken)
    assert not again(keyed, errors.of_code("not_found", "m")) and not again(keyed, refused, seconds=0)


def test_answers_become_data_and_newer_fields_are_left_out() -> None:
    file = {
        "name": "f", "path": "/f", "type": "file", "size": 1, "is_directory": False, "mode": "0644", "uid": 1, "gid": 1,
        "modified_at": "2026-01-02T03:04:05.678Z", "of_a_newer_server": 1,
    }
    found = decode(list[FileItem], [file])[0]
    assert found.modified_at == datetime(2026, 1, 2, 3, 4, 5, 678000, timezone.utc) and found.target is None
    page = decode(SandboxPage, {"items": [], "page": 1, "page_size": 10, "total": 0, "status_counts": {"running": 1}})
    assert page.status_counts == {"running": 1}


def test_a_proxys_page_is_an_error_with_a_code() -> None:
    error = errors.of_response(502, {"x-request-id": "r"}, b"<html>")
    assert isinstance(error, errors.UnavailableError) and error.request_id == "r" and "502" in str(error)


def test_keys_are_not_shown_and_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "secret" not in repr(Config(api_key="secret"))
    assert Config(base_url="http://127.0.0.1:1").http_options()["trust_env"] is False
    assert Config(base_url="http://there.example:1").http_options()["trust_env"] is True
    assert file_path("/a b/é?#%") == "/a%20b/%C3%A9%3F%23%25"


def test_no_path_leads_to_another_resource() -> None:
    for path in ("..", "../execs", "a/../../x", "/workspace/../x", "a/.."):
        with pytest.raises(errors.PathError):
            file_path(path)
    assert file_path("a..b/.c/...") == "a..b/.c/..."
    for path in ("..", "../etc", "/etc/passwd", "/workspaces/x", "/", "a/../../x"):
        with pytest.raises(errors.PathError):
            in_workspace(path)
    assert in_workspace("./a//b/../c/") == "/workspace/a/c" and in_workspace("/workspace") == "/workspace"
    assert covers("/workspace/a", "/workspace/a/b") and not covers("/workspace/a", "/workspace/ab")


def test_packages_are_read_as_people_write_them() -> None:
    written = ["requests", "rich ~= 13.0", "uvicorn[standard, x] >=0.30, <1", "a.b-c==1"]
    assert versions("python", written) == {
        "requests": "", "rich": "~=13.0", "uvicorn[standard,x]": ">=0.30,<1", "a.b-c": "==1",
    }
    named = versions("node", ["ms", "ms2@^2.1", "@types/node@20", "@a/b"])
    assert named == {"ms": "", "ms2": "^2.1", "@types/node": "20", "@a/b": ""}
    assert versions("r", ["readr "]) == {"readr": ""} and versions("python", {"a": "1"}) == {"a": "1"}
    with pytest.raises(errors.InvalidArgumentError, match="a twice"):
        versions("python", ["a>1", "a<2"])


def test_the_generator_leaves_no_asynchronous_word() -> None:
    package = Path(sys.modules["atoll_sandbox"].__file__ or "").parent
    generated = sorted(package.glob("_sync/*.py"))
    assert [file.name for file in generated] == [file.name for file in sorted(package.glob("_async/*.py"))]
    for file in generated:
        code = file.read_text().split("\n", 1)[1]
        assert "async" not in code.lower() and "await" not in code, file


def archive(*members: tuple[str, bytes | str]) -> io.BytesIO:
    """An archive of files (bytes) and symbolic links (text)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in members:
            about = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
            else:
                about.type, about.linkname = tarfile.SYMTYPE, content
                tar.addfile(about)
    packed.seek(0)
    return packed


def test_links_that_lead_out_together_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for members in [(("a", "b/.."), ("b", ".")), (("b", "."), ("a", "b/..")), (("a", "b"), ("b", "a"))]:
        unpack(archive(*members, ("x/file", b"1")), folder)
        for one in folder.rglob("*"):
            assert one.resolve().is_relative_to(folder.resolve()), one
        assert (folder / "x/file").read_bytes() == b"1"


def test_no_archive_writes_outside_of_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    kept = outside / "kept"
    kept.write_text("kept")
    attacks: list[list[tuple[str, bytes | str]]] = [
        [("../outside/new", b"x")],
        [(str(outside / "new"), b"x")],
        [("link", "../outside"), ("link/new", b"x")],
        [("a/link", ".."), ("a/link/../../outside/new", b"x")],
    ]
    for number, members in enumerate(attacks):
        folder = tmp_path / f"into{number}"
        try:
            unpack(archive(*members), folder)
        except errors.PathError as refused:
            assert refused.code == "path_outside_root"
        assert [file.name for file in outside.iterdir()] == ["kept"]
    # A link that was there before is replaced and not followed.
    folder = tmp_path / "into"
    folder.mkdir()
    (folder / "file").symlink_to(kept)
    unpack(archive(("file", b"new"), ("in/side", "../file"), ("out", "/etc/passwd")), folder)
    assert kept.read_text() == "kept" and (folder / "in/side").read_text() == "new" and not (folder / "out").exists()
    packed = io.BytesIO()
    pack(folder, packed)
    packed.seek(0)
    unpack(packed, tmp_path / "copy")
    assert (tmp_path / "copy/in/side").read_text() == "new"


def requested(source: Path) -> Iterator[tuple[str, list[str]]]:
    """The methods and the paths of a module's requests, as segments; `*` is one that is computed, and a path that begins
    with a field begins with `**`."""
    methods = {"get": "get", "delete": "delete", "keyed": "post"}
    for node in ast.walk(ast.parse(source.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
            continue
        if node.func.id == "Call":
            method, path = node.args[0], node.args[1]
            name = str(method.value).lower() if isinstance(method, ast.Constant) else ""
        elif node.func.id in methods:
            name, path = methods[node.func.id], node.args[0]
        else:
            continue
        if isinstance(path, ast.Constant):
            yield name, str(path.value).replace("../../", "/").split("/")
        elif isinstance(path, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "*" for part in path.values]
            yield name, ("*" + "".join(parts) if parts[0] == "*" else "".join(parts)).split("/")


def test_every_path_is_one_of_the_api() -> None:
    paths = json.loads((REPOSITORY / "docs/openapi.json").read_text())["paths"]
    known = [
        (method, ["*" if part.startswith("{") else part for part in path.replace("/api/v1/", "").split("/")])
        for path, methods in paths.items()
        for method in methods
    ]

    def same(ours: list[str], there: list[str]) -> bool:
        if ours[0] == "**":
            ours, there = ours[1:], there[1 - len(ours) :]
        return len(ours) == len(there) and all(one in ("*", other) for one, other in zip(ours, there, strict=True))

    package = Path(sys.modules["atoll_sandbox"].__file__ or "").parent
    asked = [found for file in sorted(package.glob("_async/*.py")) for found in requested(file)]
    asked += [found for file in sorted(package.glob("_*.py")) for found in requested(file)]
    assert len(asked) > 20
    for method, path in asked:
        if path != ["**"]:
            found = any(method == other and same(path, there) for other, there in known)
            assert found, f"{method} {'/'.join(path)} is no path of docs/openapi.json"
