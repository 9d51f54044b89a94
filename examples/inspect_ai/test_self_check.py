"""Inspect's own conformance checks for sandbox environments, against a running Atoll."""

import pytest
from atoll_sandbox import AtollSandboxEnvironment
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

pytestmark = pytest.mark.anyio

# Making a user needs root inside. As root, on the other hand, no file is unreadable, so the others run as the
# ordinary user that a sandbox has.
ROOT = {"test_exec_as_user"}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def sandbox_env(request):
    wanted = {"memory_mb": 512, "disk_mb": 1024}
    if request.node.originalname in ROOT:
        wanted["profile"] = "root"
    environment = await AtollSandboxEnvironment.create(wanted)
    yield environment
    await environment.destroy()
