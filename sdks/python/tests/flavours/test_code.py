from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import Server

from atoll_sandbox import AsyncSandbox, CodeFailedError, Display

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def sandbox(server: Server) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(base_url=server.url, api_key=server.key, memory_mb=512) as made:
        yield made


async def test_variables_stay_and_errors_are_told(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("x = 20", check=True)
    ran = await sandbox.run_code("print('hi'); x + 1")
    assert (ran.success, ran.stdout, ran.text) == (True, "hi\n", "21")
    ran = await sandbox.run_code("1 / 0")
    assert not ran.success and ran.error is not None and ran.error.type == "ZeroDivisionError"
    with pytest.raises(CodeFailedError, match="ZeroDivisionError"):
        await sandbox.run_code("1 / 0", check=True)
    assert (await sandbox.run_code("echo $((6*7))", language="bash")).stdout == "42\n"


async def test_pictures_come_as_files(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    shown: list[Display] = []
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show()"
    ran = await sandbox.run_code(code, on_display=shown.append, check=True, timeout=120)
    assert [picture.mime for picture in ran.images] == ["image/png"] and shown == ran.images
    assert ran.images[0].save(tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


async def test_output_comes_while_it_runs(sandbox: AsyncSandbox) -> None:
    pieces: list[str] = []
    code = "import sys, time\nfor n in range(3): print(n, flush=True); time.sleep(0.1)\nprint('e', file=sys.stderr)"
    errs: list[str] = []
    ran = await sandbox.run_code(code, on_stdout=pieces.append, on_stderr=errs.append)
    assert "".join(pieces) == ran.stdout == "0\n1\n2\n" and "".join(errs) == ran.stderr == "e\n"
    assert len(pieces) > 1


async def test_a_timeout_keeps_the_variables(sandbox: AsyncSandbox) -> None:
    await sandbox.run_code("kept = 7")
    ran = await sandbox.run_code("import time; time.sleep(100)", timeout=0.5)
    assert ran.timed_out and not ran.success and not ran.state_lost
    assert (await sandbox.run_code("kept")).text == "7"


async def test_kernels_have_checkpoints(sandbox: AsyncSandbox) -> None:
    kernel = await sandbox.kernels.start()
    await kernel.run("x = 1", check=True)
    await kernel.checkpoint("before")
    await kernel.run("x = 2", check=True)
    await kernel.rollback("before")
    assert (await kernel.run("x")).text == "1"
    assert "kernel" in repr(kernel).lower() and (await kernel.status()).language == "python"
    assert (await kernel.complete("impo")).matches
    await kernel.remove()
    assert kernel.kernel_id not in [item.kernel_id for item in await sandbox.kernels.list()]
