"""Atoll: hardened Linux sandboxes for AI agents.

    from atoll_sandbox import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.commands.run("echo hello").stdout)

`AsyncSandbox` is the same for asyncio and trio.
"""

from . import errors, models
from ._async.client import AsyncClient, AsyncVolumes
from ._async.code import AsyncKernel, AsyncKernels, Language
from ._async.commands import AsyncCommand, AsyncCommands
from ._async.files import AsyncFiles
from ._async.manager import AsyncSandboxManager
from ._async.sandbox import AsyncSandbox
from ._async.snapshots import AsyncSnapshots
from ._config import RetryPolicy
from ._results import CodeResult, CommandResult, Display, Output
from ._sessions import ExportedFile, ExportedFiles, ImportedFile, ImportedFiles, SessionInfo, SessionResult
from ._sync.client import Client, Volumes
from ._sync.code import Kernel, Kernels
from ._sync.commands import Command, Commands
from ._sync.files import Files
from ._sync.manager import SandboxManager
from ._sync.sandbox import Sandbox
from ._sync.snapshots import Snapshots
from ._version import __version__
from .errors import (
    APIError,
    AtollError,
    CodeFailedError,
    CommandFailedError,
    CommandTimeoutError,
    InstallFailedError,
)

__all__ = [
    "APIError",
    "AsyncClient",
    "AsyncCommand",
    "AsyncCommands",
    "AsyncFiles",
    "AsyncKernel",
    "AsyncKernels",
    "AsyncSandbox",
    "AsyncSandboxManager",
    "AsyncSnapshots",
    "AsyncVolumes",
    "AtollError",
    "Client",
    "CodeFailedError",
    "CodeResult",
    "Command",
    "CommandFailedError",
    "CommandResult",
    "CommandTimeoutError",
    "Commands",
    "Display",
    "ExportedFile",
    "ExportedFiles",
    "Files",
    "ImportedFile",
    "ImportedFiles",
    "InstallFailedError",
    "Kernel",
    "Kernels",
    "Language",
    "Output",
    "RetryPolicy",
    "Sandbox",
    "SandboxManager",
    "SessionInfo",
    "SessionResult",
    "Snapshots",
    "Volumes",
    "__version__",
    "errors",
    "models",
]
