"""The examples, as a reader would start them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import Server

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

SAID = {
    "quick_start": "hello from user\nsum: 45\nstep 1\nstep 2\nstep 3\n",
    "data_analysis": "total: 1850\nplot: {plot} True\n",
    "parallel_forks": "factor 1: 6\nfactor 10: 60\nfactor 100: 600\n",
    "langchain_tools": "wrote greeting.txt\n5\n\n'HELLO'\n'hellohello'\nerror: missing.txt: no such file or directory [not_found]\n",
}


def test_every_example_is_tried() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_does_what_it_says(name: str, server: Server, tmp_path: Path) -> None:
    plot = tmp_path / "sales.png"
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), str(plot)],
        env={**os.environ, "ATOLL_URL": server.url, "ATOLL_API_KEY": server.key},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.returncode, ran.stdout) == (0, SAID[name].format(plot=plot)), ran.stderr
    assert name != "data_analysis" or plot.read_bytes().startswith(b"\x89PNG")
