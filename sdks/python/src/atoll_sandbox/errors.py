"""What can go wrong, as exceptions. An error of the server has the API's own code, and the field that it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ._results import CodeResult, CommandResult
    from .models import InstalledItem


class AtollError(Exception):
    """The base of every exception of this package."""


class ConnectionFailedError(AtollError):
    """The server cannot be reached, or the connection broke and the request must not be sent twice."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong field of a request."""

    location: tuple[str | int, ...]
    message: str


class APIError(AtollError):
    """The server refused a request, or could not carry it out."""

    codes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        message: str,
        *,
        code: str = "internal",
        status: int = 0,
        details: Mapping[str, Any] | None = None,
        problems: tuple[Problem, ...] = (),
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        """The API's name of the reason, such as `not_found`."""
        self.status = status
        """The HTTP status; 0 where the error came within a stream of events."""
        self.details = dict(details or {})
        self.problems = problems
        """Each wrong field of the request."""
        self.request_id = request_id
        """The `X-Request-Id` of the answer, where the server or a proxy before it sends one."""
        self.retry_after = retry_after
        """Seconds to wait before the same request may succeed."""

    @property
    def field(self) -> str | None:
        """The field that the error is about."""
        if self.problems:
            return ".".join(str(part) for part in self.problems[0].location[1:]) or None
        field = self.details.get("field")
        return field if isinstance(field, str) else None

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class InvalidArgumentError(APIError):
    codes = ("invalid_argument", "skill-file-missing", "skill-file-ambiguous", "skill-malformed-frontmatter",
             "skill-frontmatter-missing-field")


class AuthenticationError(APIError):
    """No key, or one that is not valid."""


class NotFoundError(APIError):
    """There is no such thing, or it is another owner's."""

    codes = ("not_found",)


class AlreadyExistsError(APIError):
    codes = ("already_exists",)


class NotRunningError(APIError):
    """The sandbox is stopped, or the command has ended."""

    codes = ("not_running",)


class ConflictError(APIError):
    codes = ("conflict", "directory_not_empty")


class PathError(APIError):
    """A path that leads out of the sandbox, or something that is no file or no folder."""

    codes = ("path_outside_root", "special_file", "is_a_directory", "not_a_directory")


class PermissionDeniedError(APIError):
    codes = ("permission_denied", "read_only")


class LimitExceededError(APIError):
    """Too many requests, too many sandboxes, or no room on the machine; see `retry_after`."""

    codes = ("limit_exceeded",)


class DiskFullError(APIError):
    codes = ("disk_full",)


class TooLargeError(APIError):
    codes = ("too_large",)


class ExecFailedError(APIError):
    """A command could not be started: its working directory or its user does not exist."""

    codes = ("exec_failed",)


class SandboxDiedError(APIError):
    """The sandbox's container, or the kernel, died while it was needed."""

    codes = ("container_died", "kernel_died")


class RolledBackError(APIError):
    """A rollback of the sandbox ended what was running."""

    codes = ("rolled_back",)


class UnsupportedError(APIError):
    codes = ("unsupported",)


class GrpcEndpointError(UnsupportedError):
    """The URL is that of the server's gRPC endpoint, which this client does not speak."""

    def __init__(self, url: str) -> None:
        message = (
            f"{url} is a gRPC endpoint, which this client does not speak: give the URL of the server's HTTP API, such "
            "as http://127.0.0.1:7300, or use gRPC with a client that is generated from sandbox.proto"
        )
        super().__init__(message, code="unsupported")


class UnavailableError(APIError):
    """A part of the server does not answer at the moment."""

    codes = ("unavailable", "bad_gateway", "version_mismatch")


class ServerTimeoutError(APIError):
    codes = ("timeout",)


class CommandFailedError(AtollError):
    """A command that was run with `check=True` failed; `result` is how it went."""

    def __init__(self, result: CommandResult) -> None:
        super().__init__(result.summary())
        self.result = result


class CommandTimeoutError(CommandFailedError):
    """The same, where its time was over."""


class InstallFailedError(AtollError):
    """An installation that was asked for with `check=True` failed; `result` has what the package manager said."""

    def __init__(self, result: InstalledItem) -> None:
        super().__init__(f"the packages are not installed: {result.stderr.strip()[-500:]}")
        self.result = result


class CodeFailedError(AtollError):
    """Code that was run with `check=True` raised an error; `result` is how it went."""

    def __init__(self, result: CodeResult) -> None:
        super().__init__(result.summary())
        self.result = result


_BY_CODE: dict[str, type[APIError]] = {code: kind for kind in APIError.__subclasses__() for code in kind.codes}


def of_code(code: str, message: str, **about: Any) -> APIError:
    return _BY_CODE.get(code, APIError)(message, code=code, **about)


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None


def of_response(status: int, headers: Mapping[str, str], body: bytes) -> APIError:
    """The error that an answer tells of. A proxy's page is no error of the API, and has the code of its status."""
    about: dict[str, Any] = {
        "status": status,
        "request_id": headers.get("x-request-id"),
        "retry_after": _seconds(headers.get("retry-after")),
    }
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("detail"), list):
        problems = tuple(Problem(tuple(part["loc"]), str(part["msg"])) for part in answer["detail"])
        message = "; ".join(problem.message for problem in problems) or "the request is not valid"
        return InvalidArgumentError(message, code="invalid_argument", problems=problems, **about)
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        code = "unavailable" if status in (502, 503) else "timeout" if status == 504 else "internal"
        return of_code(code, f"the server answered {status} without a reason", **about)
    code, message, details = str(error.get("code")), str(error.get("message")), error.get("details")
    about["details"] = details if isinstance(details, dict) else {}
    if status == 401:
        return AuthenticationError(message, code=code, **about)
    return of_code(code, message, **about)
