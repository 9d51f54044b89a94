from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Proxy, Server


def pytest_configure() -> None:
    """Writes the tests of the synchronous flavour, as the build writes the flavour itself."""
    here = Path(__file__).parent
    generator = here.parent / "generate/sync.py"
    subprocess.run([sys.executable, str(generator), str(here / "flavours"), str(here / "sync")], check=True)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    started = Server()
    os.environ["ATOLL_URL"], os.environ["ATOLL_API_KEY"] = started.url, started.key
    yield started
    started.end()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may kill."""
    started = Server()
    yield started
    started.end()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    between = Proxy(server)
    yield between
    between.end()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
