"""Callers that go away: what they ran ends, unless it was in the background."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from support import Proxy, Server

from atoll_sandbox import AsyncSandbox, Sandbox

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_cancelled_command_is_killed_and_a_cancelled_wait_is_not(server: Server) -> None:
    async with await AsyncSandbox.create(base_url=server.url, api_key=server.key) as sandbox:
        with anyio.CancelScope() as scope:
            await sandbox.commands.run("echo x; sleep 1000", on_stdout=lambda _: scope.cancel())
        ended = (await sandbox.commands.list())[0]
        assert (ended.status, ended.killed) == ("ended", True)

        job = await sandbox.commands.start("echo x; sleep 1000")
        with anyio.CancelScope() as scope:
            await job.wait(on_stdout=lambda _: scope.cancel())
        assert (await job.status()).status == "running"
        await job.kill()


async def test_a_cell_is_interrupted_and_its_variables_stay(server: Server) -> None:
    async with await AsyncSandbox.create(base_url=server.url, api_key=server.key) as sandbox:
        with anyio.CancelScope() as scope:
            code = "x = 5; print('begun', flush=True)\nimport time; time.sleep(1000)"
            await sandbox.run_code(code, timeout=2000, on_stdout=lambda _: scope.cancel())
        assert (await sandbox.run_code("x")).text == "5"


async def test_a_command_cancelled_before_its_id_came_is_killed_too(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await AsyncSandbox.create(base_url=server.url, api_key=server.key) as sandbox:
        slow = await AsyncSandbox.connect(sandbox.id, base_url=proxy.url, api_key=server.key)
        slow.client._http.headers["Connection"] = "close"
        await slow.refresh()
        with anyio.CancelScope() as scope:
            sleep = anyio.sleep

            async def cancelled(_: float) -> None:
                scope.cancel()
                await sleep(0)

            # The answer is lost; while the client waits to ask again, it is cancelled.
            monkeypatch.setattr("atoll_sandbox._async.client.sleep", cancelled)
            proxy.cuts = [0]
            await slow.commands.run("sleep 1000")
        assert scope.cancelled_caught
        ended = await sandbox.commands.list()
        assert [(item.status, item.killed) for item in ended] == [("ended", True)]
        await slow.close()


async def test_the_block_of_a_cancelled_task_destroys_its_sandbox(server: Server) -> None:
    with anyio.CancelScope() as scope:
        async with await AsyncSandbox.create(base_url=server.url, api_key=server.key) as sandbox:
            scope.cancel()
            await anyio.sleep(1000)
    async with await AsyncSandbox.connect(sandbox.id, base_url=server.url, api_key=server.key) as found:
        assert found.record.status == "destroyed"


def test_a_task_of_asyncio_is_cancelled(server: Server) -> None:
    async def main() -> tuple[str, bool]:
        async with await AsyncSandbox.create(base_url=server.url, api_key=server.key) as sandbox:
            begun = asyncio.Event()
            run = sandbox.commands.run("echo x; sleep 1000", on_stdout=lambda _: begun.set())
            task = asyncio.create_task(run)
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ended = (await sandbox.commands.list())[0]
            return ended.status, ended.killed

    assert asyncio.run(main()) == ("ended", True)


def test_ctrl_c_kills_the_command(server: Server) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with Sandbox.create(base_url=server.url, api_key=server.key) as sandbox:
        with pytest.raises(KeyboardInterrupt):
            sandbox.commands.run("echo x; sleep 1000", on_stdout=interrupt)
        assert sandbox.commands.list()[0].killed
