"""Runs the generators before the package is built. An sdist already holds what they write."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GeneratedSources(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        sys.path.insert(0, str(root / "generate"))
        try:
            import models
            import sync
        finally:
            sys.path.pop(0)
        package = root / "src/atoll_sandbox"
        sync.generate(package / "_async", package / "_sync")
        description = root.parent.parent / "docs/openapi.json"
        if description.exists():
            (package / "models.py").write_text(models.generate(description))
        elif not (package / "models.py").exists():
            raise FileNotFoundError(f"{description}: models.py is generated from it")
