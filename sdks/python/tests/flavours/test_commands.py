from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator

import pytest
from support import Server

from atoll_sandbox import AsyncSandbox, CommandFailedError, CommandTimeoutError, errors

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def sandbox(server: Server) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(base_url=server.url, api_key=server.key, memory_mb=512) as made:
        yield made


async def test_a_command_tells_how_it_went(sandbox: AsyncSandbox) -> None:
    ran = await sandbox.commands.run("echo out; echo err >&2; echo x > made.txt; exit 3")
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.ok) == ("out\n", "err\n", 3, False)
    assert ran.files_changed is not None
    assert [(file.path, file.action) for file in ran.files_changed] == [("made.txt", "created")]
    with pytest.raises(CommandFailedError) as failed:
        ran.check()
    assert failed.value.result is ran and "err" in str(failed.value)
    with pytest.raises(CommandFailedError):
        await sandbox.commands.run("false", check=True)


async def test_arguments_environment_directory_and_secrets(sandbox: AsyncSandbox) -> None:
    ran = await sandbox.commands.run(
        ["python3", "-c", "import os; print(os.environ['A'], os.environ['B'], os.getcwd(), '$A')"],
        env={"A": "1"}, secrets={"B": "hidden-value"}, cwd="/tmp", check=True,
    )
    assert ran.stdout == "1 hidden-value /tmp $A\n"


async def test_output_comes_while_the_command_runs_and_is_exact(sandbox: AsyncSandbox) -> None:
    pieces: list[str] = []
    errs: list[str] = []

    async def stdout(text: str) -> None:
        pieces.append(text)

    line = r"printf 'a\303'; sleep 0.1; printf '\251b'; sleep 0.1; printf '\377\000'; echo e >&2"
    ran = await sandbox.commands.run(line, on_stdout=stdout, on_stderr=errs.append)
    assert ran.stdout_bytes == b"a\xc3\xa9b\xff\x00"
    assert "".join(pieces) == "aéb\ufffd\x00" and len(pieces) > 1
    assert errs == ["e\n"]


async def test_all_bytes_of_a_binary_output_arrive(sandbox: AsyncSandbox) -> None:
    code = "import os, sys, hashlib; d = os.urandom(8 << 20); sys.stdout.buffer.write(d); print(hashlib.sha256(d).hexdigest(), file=sys.stderr)"
    ran = await sandbox.commands.run(["python3", "-c", code], lossless=True, check=True)
    assert not ran.truncated and len(ran.stdout_bytes) == 8 << 20
    assert hashlib.sha256(ran.stdout_bytes).hexdigest() == ran.stderr.strip()


async def test_input_is_text_or_bytes_of_any_length(sandbox: AsyncSandbox) -> None:
    assert (await sandbox.commands.run("tr a-z A-Z", stdin="hello\n")).stdout == "HELLO\n"
    content = os.urandom(3 << 20)
    ran = await sandbox.commands.run("sha256sum", stdin=content)
    assert ran.stdout.split()[0] == hashlib.sha256(content).hexdigest()

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d\n" % number

    assert (await sandbox.commands.run("cat", stdin=pieces())).stdout == "0\n1\n2\n"
    # A command that does not read its input ends all the same.
    assert (await sandbox.commands.run("echo done", stdin=os.urandom(1 << 20))).stdout == "done\n"


async def test_a_timeout_ends_the_command_with_its_children(sandbox: AsyncSandbox) -> None:
    ran = await sandbox.commands.run("echo before; sleep 1000 & sleep 1000", timeout=0.5)
    assert ran.timed_out and ran.exit_code == 124 and ran.stdout == "before\n"
    assert (await sandbox.commands.run("pgrep -c sleep")).stdout == "0\n"
    with pytest.raises(CommandTimeoutError):
        await sandbox.commands.run("sleep 1000", timeout=0.1, check=True)


async def test_options_that_are_misspelled_or_would_be_lost_are_errors(sandbox: AsyncSandbox) -> None:
    with pytest.raises(TypeError, match="timout"):
        await sandbox.commands.run("true", timout=1)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="on_stdout"):
        await sandbox.commands.run("true", background=True, on_stdout=print)  # type: ignore[call-overload]
    with pytest.raises(errors.NotFoundError):
        await sandbox.commands.get("../files").status()
    shown = repr(await sandbox.commands.run("printf hello; exit 3"))
    assert shown == "CommandResult(exit_code=3, stdout='hello', stderr='')"
    ran = await sandbox.commands.run(["python3", "-c", "x = bytearray(2 << 30)"])
    assert ran.oom_killed and "memory" in ran.summary()


async def test_what_cannot_start_says_why(sandbox: AsyncSandbox) -> None:
    ran = await sandbox.commands.run(["no-such-program"])
    assert ran.exit_code == 127 and ran.failure is not None and "no-such-program" in ran.summary()
    with pytest.raises(errors.ExecFailedError) as failed:
        await sandbox.commands.run("true", cwd="/no/such")
    assert (failed.value.code, failed.value.field, failed.value.status) == ("exec_failed", "working_directory", 400)


async def test_a_background_command_is_followed_fed_signalled_and_killed(sandbox: AsyncSandbox) -> None:
    job = await sandbox.commands.start("while read line; do echo got $line; done; echo end", stdin_open=True)
    assert await job.write_stdin("one\n") == 4
    assert (await job.status()).status == "running"
    await job.write_stdin(b"two\n", close=True)
    ended = await job.wait(check=True)
    assert ended.stdout == "got one\ngot two\nend\n" and ended.files_changed is None
    # From a byte on, by another handle.
    rest = [output async for output in sandbox.commands.get(job.exec_id).output(offset=8)]
    assert b"".join(output.data for output in rest) == b"got two\nend\n" and rest[0].offset == 8
    await job.forget()
    with pytest.raises(errors.NotFoundError):
        await job.status()

    async with await sandbox.commands.run("trap 'echo caught; exit 5' TERM; while :; do sleep 0.1; done", background=True) as job:
        await job.send_signal("TERM")
        assert (await job.wait()).exit_code == 5
    async with await sandbox.commands.run("sleep 1000", background=True) as job:
        assert job.exec_id in [item.exec_id for item in await sandbox.commands.list()]
    ended = await job.wait()
    assert ended.killed and ended.exit_code == 137


async def test_an_exception_of_a_callback_kills_the_command(sandbox: AsyncSandbox) -> None:
    def refuse(text: str) -> None:
        raise ZeroDivisionError(text)

    with pytest.raises(ZeroDivisionError):
        await sandbox.commands.run("echo x; sleep 1000", on_stdout=refuse)
    assert (await sandbox.commands.list())[0].killed
