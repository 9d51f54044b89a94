from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from support import Server

from atoll_sandbox import AsyncClient, AsyncSandbox, AsyncSandboxManager, errors

pytestmark = pytest.mark.anyio


@pytest.fixture
async def manager(server: Server) -> AsyncIterator[AsyncSandboxManager]:
    async with AsyncSandboxManager(server.url, server.key) as made:
        yield made


async def test_it_works_as_its_example(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_URL", server.url)
    monkeypatch.setenv("ATOLL_API_KEY", server.key)
    manager = AsyncSandboxManager()
    info = await manager.create_session(
        runtime="python",
        dependencies={"pandas": "2.2.3", "matplotlib": ""},
    )
    sid = info.session_id
    assert (info.success, info.status, info.stderr) == (True, "running", None)
    r1 = await manager.execute_code(sid, """
import pandas as pd
df = pd.DataFrame({'x': [1, 2, 3], 'y': [4, 5, 6]})
print(df.describe())
""")
    assert r1.success and "mean   2.0  5.0" in r1.stdout
    # Variables persist between calls
    r2 = await manager.execute_code(sid, "df.shape")
    assert r2.result == "(3, 2)"
    assert (await manager.execute_code(sid, "pd.__version__")).result == "'2.2.3'"
    # Export files from the sandbox (registers for download, no host copy)
    await manager.execute_code(sid, "df.to_csv('/workspace/output.csv', index=False)")
    export = await manager.export_files(sid, [{"source": "output.csv"}])
    assert (export.files[0].session_id, export.files[0].path) == (sid, "/workspace/output.csv")
    # Another runtime consumes the same data
    sid_b = (await manager.create_session(runtime="r")).session_id
    await manager.import_files(sid_b, [{"session_id": sid, "path": export.files[0].path, "destination": "data.csv"}])
    summed = await manager.execute_code(sid_b, 'df <- read.csv("/workspace/data.csv"); sum(df$y)')
    assert summed.result is not None and "15" in summed.result, summed.error
    assert await manager.stop_session(sid)
    await manager.close()


async def test_code_and_sessions_that_fail_say_why(manager: AsyncSandboxManager) -> None:
    sid = (await manager.create_session()).session_id
    failed = await manager.execute_code(sid, "nothing")
    assert not failed.success and failed.error is not None and "NameError" in failed.error
    assert (await manager.execute_terminal(sid, "echo out; exit 3")).exit_code == 3
    assert (await manager.execute_code(sid, "import time; time.sleep(100)", timeout=0.5)).details.timed_out
    broken = await manager.create_session(dependencies={"no-such-package-of-atoll": ""})
    assert broken.success and broken.stderr is not None and "no-such-package-of-atoll" in broken.stderr
    with pytest.raises(errors.InvalidArgumentError, match="python, node, r"):
        await manager.create_session(runtime="ruby")  # type: ignore[arg-type]
    assert not await manager.stop_session("no-such-session")
    with pytest.raises(errors.NotFoundError, match=sid):
        await manager.execute_code("no-such-session", "1")


async def test_exports_lie_in_the_workspace_and_cover_folders(
    manager: AsyncSandboxManager, server: Server, tmp_path: Path
) -> None:
    sid = (await manager.create_session()).session_id
    await manager.execute_terminal(sid, "mkdir -p results/in; echo one > results/in/a.txt; ln -s /etc/passwd link; echo x > b")
    sources = ["results/", "b", "/workspace/b", "missing", "link", "../../etc/passwd", "/etc/passwd", "/workspaces/b", ""]
    export = await manager.export_files(sid, [{"source": source} for source in sources])
    assert [file.success for file in export.files] == [True, True, True] + [False] * 6
    assert [file.size for file in export.files[:3]] == [None, 2, 2] and not export.success
    assert export.error == "6 of 9 failed" and export.files[3].path == "/workspace/missing"
    assert all("outside" in str(file.error) for file in export.files[4:7])
    for file, content in zip(export.files[:2], (b"results", b"x\n")):
        answer = httpx.get(str(file.download_url), headers={"Authorization": f"Bearer {server.key}"}, trust_env=False)
        assert answer.status_code == 200 and (answer.content == content or b"a.txt" in answer.content)
    assert (await manager.download(sid, "results/in/a.txt", tmp_path / "a.txt")).read_text() == "one\n"
    for path in ("/workspace/other", "results/../../etc/passwd", "/workspace/resultss"):
        with pytest.raises((errors.NotFoundError, errors.PathError)):
            await manager.download(sid, path, tmp_path / "never")
    await manager.stop_session(sid)
    with pytest.raises(errors.NotFoundError):
        await manager.download(sid, "b", tmp_path / "never")


async def test_imports_come_from_here_from_sessions_and_from_text(manager: AsyncSandboxManager, tmp_path: Path) -> None:
    sid, other = [(await manager.create_session()).session_id for _ in range(2)]
    (tmp_path / "project/src").mkdir(parents=True)
    (tmp_path / "project/src/main.py").write_text("print(1)")
    (tmp_path / "local.txt").write_text("local")
    await manager.execute_terminal(other, "mkdir shared; echo there > shared/file")
    await manager.export_files(other, [{"source": "shared"}])
    done = await manager.import_files(sid, [
        {"source": str(tmp_path / "local.txt")},
        {"source": str(tmp_path / "local.txt"), "destination": "folder/"},
        {"source": str(tmp_path / "project") + "/", "destination": "project/"},
        {"session_id": other, "path": "/workspace/shared/file"},
        {"session_id": other, "path": "/workspace/shared", "destination": "copy"},
        {"file_name": "inline.txt", "file_content": "eA==", "encoding": "base64"},
        {"file_name": "x", "file_content": "text", "destination": "deep/er/named.txt"},
        {"source": str(tmp_path / "missing")},
        {"source": str(tmp_path / "local.txt"), "destination": "../../etc/never"},
        {"session_id": other, "path": "/etc/passwd"},
        {"session_id": other, "path": "/workspace/not-exported"},
        {"file_name": "bad", "file_content": "!", "encoding": "base64"},
        {"destination": "nothing"},
    ])
    assert [file.success for file in done.files] == [True] * 7 + [False] * 6, done.files
    assert [file.size for file in done.files[:7]] == [5, 5, 8, 6, 6, 1, 4]
    assert [file.destination for file in done.files[:4]] == [
        "/workspace/local.txt", "/workspace/folder/local.txt", "/workspace/project", "/workspace/file",
    ]
    told = "cat local.txt folder/local.txt project/src/main.py file copy/file inline.txt deep/er/named.txt"
    assert (await manager.execute_terminal(sid, told)).stdout == "locallocalprint(1)there\nthere\nxtext"
    assert all(file.error for file in done.files[7:]) and done.error == "6 of 13 failed"


async def test_folders_to_import_from_can_be_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed/data").write_text("data")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "allowed/link").symlink_to(tmp_path / "secret")
    async with AsyncSandboxManager(server.url, server.key, import_allowed_dirs=[tmp_path / "allowed"]) as manager:
        sid = (await manager.create_session(network_enabled=False)).session_id
        sources = ["allowed/data", "secret", "allowed/../secret", "allowed/link"]
        done = await manager.import_files(sid, [{"source": str(tmp_path / source)} for source in sources])
        assert [file.success for file in done.files] == [True, False, False, False]
        assert "import_allowed_dirs" in str(done.files[1].error)


async def test_a_session_has_the_network_of_its_tier(manager: AsyncSandboxManager, server: Server) -> None:
    sid = (await manager.create_session()).session_id
    assert manager.sandbox(sid).record.network_enabled
    off = (await manager.create_session(network_enabled=False)).session_id
    assert not manager.sandbox(off).record.network_enabled
    async with AsyncSandboxManager(server.url, server.new_key("small", "sandbox")) as small:
        sid = (await small.create_session()).session_id
        assert not small.sandbox(sid).record.network_enabled
        with pytest.raises(errors.PermissionDeniedError):
            await small.create_session(network_enabled=True)


async def test_closing_stops_every_session_also_where_one_cannot_be(own_server: Server) -> None:
    key = own_server.new_key("owner")
    manager = AsyncSandboxManager(own_server.url, key)
    made = [(await manager.create_session()).session_id for _ in range(2)]
    manager.sandbox(made[0]).client = AsyncClient(own_server.url, "no-such-key")
    with pytest.raises(errors.AuthenticationError):
        await manager.close()
    async with AsyncClient(own_server.url, key) as client:
        found = [(await AsyncSandbox.connect(sandbox, client=client)).record.status for sandbox in made]
    assert found == ["running", "destroyed"]
