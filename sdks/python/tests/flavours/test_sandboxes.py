from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support import Server

from atoll_sandbox import AsyncClient, AsyncSandbox, RetryPolicy, errors
from atoll_sandbox.models import EgressPolicy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, server.key) as connected:
        yield connected


async def test_the_end_of_its_block_destroys_what_was_created(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, labels={"of": "block"}) as sandbox:
        assert [found.id async for found in client.sandboxes(labels="of=block")] == [sandbox.id]
        async with await AsyncSandbox.connect(sandbox.id, client=client):
            pass
        assert (await sandbox.refresh()).status == "running"
    assert (await sandbox.refresh()).status == "destroyed"
    with pytest.raises(errors.NotRunningError):
        await sandbox.commands.run("true")
    await sandbox.kill()  # Again is no error.
    async with await AsyncSandbox.create(base_url=client.config.base_url, api_key=client.config.api_key) as own:
        pass
    with pytest.raises(errors.ConnectionFailedError, match="closed"):
        await own.commands.run("true")
    for name in ("../keys", "..", "not-a-sandbox"):
        with pytest.raises(errors.NotFoundError):
            await AsyncSandbox.connect(name, client=client)


async def test_a_session_key_finds_the_same_sandbox(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, session_key="agent-1") as first:
        await first.files.write("kept", "x")
    async with await AsyncSandbox.create(client=client, session_key="agent-1") as second:
        assert second.id == first.id and await second.files.read("kept") == "x"
        await second.kill()


async def test_pause_stop_resume_and_limits(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, memory_mb=256) as sandbox:
        assert (await sandbox.pause()).status == "paused"
        assert (await sandbox.commands.run("echo awake")).stdout == "awake\n"
        assert (await sandbox.stop()).status == "stopped"
        with pytest.raises(errors.NotRunningError):
            await sandbox.commands.run("true")
        assert (await sandbox.update(memory_mb=300, labels={"a": "b"})).memory_mb == 300
        assert (await sandbox.resume()).status == "running"
        assert (await sandbox.metrics()).sandbox_id == sandbox.id


async def test_snapshots_and_forks(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client) as sandbox:
        await sandbox.files.write("notes", "one")
        good = await sandbox.snapshots.create("good")
        await sandbox.files.write("notes", "two")
        diff = await sandbox.snapshots.diff(good.id)
        assert [(file.path, file.action) for file in diff.files] == [("/workspace/notes", "modified")]
        async with await sandbox.fork(snapshot="good", labels={"is": "fork"}) as fork:
            assert fork.id != sandbox.id and await fork.files.read("notes") == "one"
        rolled = await sandbox.snapshots.rollback("good")
        assert rolled.before is not None and rolled.before.kind == "before_rollback"
        assert await sandbox.files.read("notes") == "one"
        assert (await sandbox.snapshots.set_label(good.id, "better")).label == "better"
        assert [found.kind async for found in sandbox.snapshots.list()] == ["before_rollback", "manual"]
        await sandbox.snapshots.delete(good.id)
        with pytest.raises(errors.NotFoundError):
            await sandbox.snapshots.get(good.id)


async def test_volumes_outlive_sandboxes(client: AsyncClient) -> None:
    await client.volumes.create("data", disk_mb=64)
    try:
        for text in ("", "shared\n"):
            async with await AsyncSandbox.create(client=client, volumes=[{"name": "data", "path": "/mnt/data"}]) as one:
                ran = await one.commands.run("cat /mnt/data/file 2> /dev/null; echo shared > /mnt/data/file")
                assert ran.stdout == text
                with pytest.raises(errors.ConflictError):
                    await client.volumes.delete("data")
        assert (await client.volumes.resize("data", 128)).disk_mb == 128
        assert [volume.name async for volume in client.volumes.list()] == ["data"]
    finally:
        await client.volumes.delete("data")
    with pytest.raises(errors.NotFoundError):
        await client.volumes.get("data")


async def test_an_owner_cannot_see_anothers_sandbox(client: AsyncClient, server: Server) -> None:
    async with await AsyncSandbox.create(client=client) as sandbox:
        for name in ("ann", "bob"):
            async with AsyncClient(server.url, server.new_key(name)) as other:
                with pytest.raises(errors.NotFoundError):
                    await AsyncSandbox.connect(sandbox.id, client=other)
                assert [found async for found in other.sandboxes()] == []
                async with await AsyncSandbox.create(client=other) as own:
                    assert [found.id async for found in other.sandboxes()] == [own.id]


async def test_errors_have_code_field_and_status(client: AsyncClient, server: Server) -> None:
    with pytest.raises(errors.InvalidArgumentError) as wrong:
        await AsyncSandbox.create(client=client, memory_mb=1)
    assert (wrong.value.code, wrong.value.field, wrong.value.status) == ("invalid_argument", "memory_mb", 422)
    assert wrong.value.problems[0].location[0] == "body" and wrong.value.request_id is None
    async with AsyncClient(server.url, "no-such-key") as stranger:
        with pytest.raises(errors.AuthenticationError) as refused:
            await AsyncSandbox.create(client=stranger)
        assert refused.value.status == 401
    with pytest.raises(errors.ConnectionFailedError):
        await AsyncSandbox.create(base_url="http://127.0.0.1:1", retry=RetryPolicy(seconds=0))
    with pytest.raises(ValueError, match="http://"):
        AsyncClient("127.0.0.1:7300")
    assert (await client.health()).status == "ok"


async def test_too_many_sandboxes_are_an_error_that_says_when_to_come_back(server: Server) -> None:
    made = []
    async with AsyncClient(server.url, server.new_key("carl")) as client:
        try:
            with pytest.raises(errors.LimitExceededError) as full:
                for _ in range(4):
                    made.append(await AsyncSandbox.create(client=client))
            assert len(made) == 3 and full.value.retry_after is not None
        finally:
            for sandbox in made:
                await sandbox.kill()


async def test_the_url_of_grpc_is_a_clear_error(server: Server) -> None:
    async with AsyncClient(server.grpc_url, server.key) as client:
        for _ in range(2):
            with pytest.raises(errors.GrpcEndpointError, match="gRPC endpoint.*HTTP API"):
                await AsyncSandbox.create(client=client)
        with pytest.raises(errors.UnsupportedError):
            await AsyncSandbox.connect("0d94b343-a2de-4d5c-9b1c-5861a4c89cb6", client=client)


PYTHON: EgressPolicy = {"mode": "allowlist", "presets": ["python"]}


async def test_packages_have_extras(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, egress=PYTHON) as sandbox:
        await sandbox.install(["requests[socks] >= 2.31, < 3"], check=True)
        assert (await sandbox.run_code("import socks; socks.__name__", check=True)).text == "'socks'"


async def test_packages_have_versions(client: AsyncClient) -> None:
    async with await AsyncSandbox.create(client=client, egress=PYTHON) as sandbox:
        await sandbox.install(["toposort >= 1.9, < 1.10", "iniconfig==2.0.0"], check=True)
        names = "import importlib.metadata as m; print(m.version('iniconfig'), m.version('toposort')[:3])"
        assert (await sandbox.run_code(names, check=True)).stdout == "2.0.0 1.9\n"
        assert (await sandbox.install({"iniconfig": "2.0.0"})).success
        with pytest.raises(errors.InstallFailedError, match="no-such-package-of-atoll") as failed:
            await sandbox.install(["no-such-package-of-atoll"], check=True)
        assert not failed.value.result.success
        with pytest.raises(errors.InvalidArgumentError, match="a list of names"):
            await sandbox.install("requests")
