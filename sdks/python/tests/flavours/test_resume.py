"""Broken connections and restarted servers. Each command leaves a line in a file, so one that ran twice is seen."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import pytest
from support import Proxy, Server

from atoll_sandbox import AsyncSandbox, RetryPolicy, errors

pytestmark = pytest.mark.anyio


async def _through(proxy: Proxy, server: Server) -> AsyncSandbox:
    """A sandbox by the proxy; each request has a connection of its own."""
    made = await AsyncSandbox.create(base_url=proxy.url, api_key=server.key)
    made.client._http.headers["Connection"] = "close"
    await made.refresh()
    return made


async def test_a_command_whose_answer_is_lost_is_not_run_again(server: Server, proxy: Proxy) -> None:
    async with await _through(proxy, server) as sandbox:
        proxy.cuts = [0, 0]
        ran = await sandbox.commands.run("echo line >> ran; cat ran", check=True)
        assert ran.stdout == "line\n" and not proxy.cuts
        proxy.cuts = [0]
        job = await sandbox.commands.start("echo line >> started; cat started")
        assert (await job.wait()).stdout == "line\n" and not proxy.cuts
        proxy.cuts = [0]
        code = await sandbox.run_code("open('cell', 'a').write('x'); len(open('cell').read())")
        assert code.text == "1" and not proxy.cuts


async def test_an_installation_whose_answer_is_lost_is_not_begun_again(server: Server, proxy: Proxy) -> None:
    async with await _through(proxy, server) as sandbox:
        # `python3 -m pip` finds this one first: it notes that it ran.
        await sandbox.files.write("pip.py", "open('ran', 'a').write('x')")
        proxy.cuts = [0]
        assert (await sandbox.install(["six"], check=True)).success and not proxy.cuts
        assert await sandbox.files.read("ran") == "x"


async def test_input_that_cannot_be_rewound_is_sent_once(server: Server, proxy: Proxy) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"once\n"

    async with await _through(proxy, server) as sandbox:
        job = await sandbox.commands.start("cat", stdin_open=True)
        proxy.limited = 1
        with pytest.raises(errors.LimitExceededError):
            await job.write_stdin(pieces(), close=True)
        proxy.limited = 1
        assert await job.write_stdin("again\n", close=True) == 6
        assert (await job.wait()).stdout == "again\n" and proxy.limited == 0


async def test_a_sandbox_whose_answer_is_lost_is_made_once(server: Server, proxy: Proxy) -> None:
    proxy.cuts = [0]
    async with await AsyncSandbox.create(base_url=proxy.url, api_key=server.key, labels={"of": "lost"}) as sandbox:
        assert [found.id async for found in sandbox.client.sandboxes(labels="of=lost")] == [sandbox.id]
        assert not proxy.cuts


async def test_a_stream_that_is_cut_goes_on_at_its_byte(server: Server, proxy: Proxy) -> None:
    async with await _through(proxy, server) as sandbox:
        pieces: list[str] = []
        proxy.cuts = [3000, 5000, 9000]
        line = "echo line >> ran; for n in $(seq 2000); do echo out é $n; echo err ü $n >&2; done; cat ran"
        ran = await sandbox.commands.run(line, on_stdout=pieces.append, check=True)
        assert not proxy.cuts
        numbers = range(1, 2001)
        assert ran.stdout == "".join(f"out é {n}\n" for n in numbers) + "line\n"
        assert ran.stderr == "".join(f"err ü {n}\n" for n in numbers)
        assert "".join(pieces) == ran.stdout and not ran.truncated

        proxy.cuts = [2000, 4000]
        pieces.clear()
        code = "for n in range(2000): print('cell', n, flush=True)"
        cell = await sandbox.run_code(code, on_stdout=pieces.append, check=True)
        assert not proxy.cuts
        assert "".join(pieces) == cell.stdout == "".join(f"cell {n}\n" for n in range(2000))


async def test_a_server_that_is_killed_meanwhile_costs_nothing(own_server: Server) -> None:
    threads: list[threading.Thread] = []

    def restart(_: str) -> None:
        if not threads:
            threads.append(own_server.restart_later())

    patient = RetryPolicy(seconds=120)
    async with await AsyncSandbox.create(base_url=own_server.url, api_key=own_server.key, retry=patient) as sandbox:
        line = "echo line >> ran; echo begun; sleep 2; cat ran; echo done >&2"
        ran = await sandbox.commands.run(line, on_stdout=restart)
        threads[0].join()
        assert (ran.stdout, ran.stderr, ran.exit_code) == ("begun\nline\n", "done\n", 0)

        threads.clear()
        pieces: list[str] = []

        def both(text: str) -> None:
            pieces.append(text)
            restart(text)

        code = "open('cell', 'a').write('x'); print('begun', flush=True)\nimport time; time.sleep(2)\nprint('end')\nopen('cell').read()"
        cell = await sandbox.run_code(code, on_stdout=both, timeout=60)
        threads[0].join()
        assert (cell.text, cell.stdout, "".join(pieces)) == ("'x'", "begun\nend\n", "begun\nend\n")

        threads.clear()
        job = await sandbox.commands.start("echo begun; sleep 2; echo end")
        assert (await job.wait(on_stdout=restart)).stdout == "begun\nend\n"
        threads[0].join()
