"""Writes the synchronous flavour of the package from the asynchronous one, word by word.

Both flavours then have one logic. What truly differs (sleeping, threads, shielding from cancellation) is in
`_runtime_async.py` and `_runtime_sync.py`, which have the same names."""

import re
import sys
from pathlib import Path

WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\baclosing\b", "closing"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsyncExitStack\b", "ExitStack"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_(bytes|raw)\b", r"iter_\1"),
    (r"\b_runtime_async\b", "_runtime_sync"),
    (r"\b_async\b", "_sync"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basynchronous", "synchronous"),
    # Of tests and examples.
    (r"\bStopAsyncIteration\b", "StopIteration"),
]

NOTICE = "# Generated from {source} by generate/sync.py.\n"


def synchronous(text: str, source: str) -> str:
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    return NOTICE.format(source=source) + text


def generate(source: Path, target: Path, pattern: str = "*.py") -> None:
    target.mkdir(exist_ok=True)
    for stale in target.glob("*.py"):
        stale.unlink()
    for file in sorted(source.glob(pattern)):
        (target / file.name).write_text(synchronous(file.read_text(), f"{source.name}/{file.name}"))


if __name__ == "__main__":
    generate(Path(sys.argv[1]), Path(sys.argv[2]))
