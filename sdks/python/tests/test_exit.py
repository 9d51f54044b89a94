"""What a process leaves behind that ends without closing its manager."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import Server

from atoll_sandbox import Sandbox

SYNC = """
from atoll_sandbox import SandboxManager
manager = SandboxManager()
print(manager.create_session().session_id, flush=True)
"""

ASYNC = """
import asyncio
from atoll_sandbox import AsyncSandboxManager
async def main():
    global manager
    manager = AsyncSandboxManager()
    print((await manager.create_session()).session_id, flush=True)
asyncio.run(main())
"""

FORKED = """
import os, sys
from atoll_sandbox import SandboxManager
manager = SandboxManager()
sid = manager.create_session().session_id
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
assert manager.execute_terminal(sid, "true").exit_code == 0
print(sid, flush=True)
raise RuntimeError("an error that is not caught")
"""


@pytest.mark.parametrize(("code", "status"), [(SYNC, 0), (ASYNC, 0), (FORKED, 1)])
def test_the_end_of_a_process_stops_its_sessions(code: str, status: int, server: Server) -> None:
    env = {**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key}
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == status, ran.stderr
    with Sandbox.connect(ran.stdout.strip(), base_url=server.url, api_key=server.key) as left:
        assert left.record.status == "destroyed"
