"""Atoll as a sandbox environment of Inspect (inspect-ai), over Atoll's REST API.

    from inspect_ai import Task
    import atoll_sandbox                      # registers the sandbox type "atoll"
    Task(..., sandbox="atoll")                # or ("atoll", "atoll.json")

ATOLL_URL and ATOLL_API_KEY say where the server is and who asks. The configuration file is the body of
`POST /api/v1/sandboxes` as JSON: limits, labels, an egress policy, a profile."""

import base64
import json
import os
from pathlib import Path
from urllib.parse import quote

import anyio
import httpx
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    sandboxenv,
)

PIECE = 256 * 1024


class Refused(RuntimeError):
    """The server says no; `code` is its own name of the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def refused(status: int, body: bytes) -> Refused:
    try:
        said = json.loads(body)
    except ValueError:
        return Refused("http_error", f"the server answered {status}")
    if "error" in said:
        return Refused(said["error"]["code"], said["error"]["message"])
    return Refused("invalid_argument", "; ".join(part["msg"] for part in said.get("detail", [])))


def client() -> httpx.AsyncClient:
    key = os.environ.get("ATOLL_API_KEY", "")
    return httpx.AsyncClient(
        base_url=os.environ.get("ATOLL_URL", "http://127.0.0.1:7300") + "/api/v1",
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=None,
        trust_env=False,
    )


async def ask(http: httpx.AsyncClient, method: str, path: str, **request) -> httpx.Response:
    answer = await http.request(method, path, **request)
    if answer.is_error:
        raise refused(answer.status_code, answer.content)
    return answer


@sandboxenv(name="atoll")
class AtollSandboxEnvironment(SandboxEnvironment):
    def __init__(self, http: httpx.AsyncClient, id: str) -> None:
        super().__init__()
        self.http, self.id = http, id
        self.path = f"/sandboxes/{id}"

    @classmethod
    def config_files(cls) -> list[str]:
        return ["atoll.json"]

    @classmethod
    async def create(cls, request: dict) -> "AtollSandboxEnvironment":
        http = client()
        try:
            made = await ask(http, "POST", "/sandboxes", json=request)
        except BaseException:
            await http.aclose()
            raise
        return cls(http, made.json()["id"])

    async def destroy(self) -> None:
        try:
            await ask(self.http, "DELETE", self.path)
        except Refused as error:
            if error.code != "not_found":
                raise
        finally:
            await self.http.aclose()

    @classmethod
    async def sample_init(cls, task_name, config, metadata) -> dict[str, SandboxEnvironment]:
        request = json.loads(Path(config).read_text()) if isinstance(config, str) else {}
        request.setdefault("labels", {})["inspect_task"] = task_name[:60]
        return {"default": await cls.create(request)}

    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted) -> None:
        for environment in environments.values():
            await environment.as_type(cls).destroy()

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        who = f" --user {user}" if user else ""
        return SandboxConnection(type="atoll", command=f"atoll shell {self.id}{who}")

    # -- Commands.

    async def exec(self, cmd, input=None, cwd=None, env=None, user=None, timeout=None, timeout_retry=True,
                   concurrency=True) -> ExecResult[str]:
        request = {"arguments": cmd, "stream": True, "lossless": True, "env_vars": env or {}}
        if input is not None:
            request["stdin_open"] = True
        for name, value in (("working_directory", cwd), ("user", user), ("timeout_seconds", timeout)):
            if value is not None:
                request[name] = value
        content = input.encode() if isinstance(input, str) else input
        try:
            return await self.follow(request, content, cmd)
        except Refused as error:
            # A user that does not exist, for example, is a failure of the command and not of the sandbox.
            if error.code in ("invalid_argument", "not_found", "exec_failed"):
                return ExecResult(False, 1, "", str(error))
            raise

    async def follow(self, request: dict, content: bytes | None, cmd: list[str]) -> ExecResult[str]:
        """Runs a command, feeds it and gathers what it prints."""
        printed = {"stdout": bytearray(), "stderr": bytearray()}
        async with self.http.stream("POST", f"{self.path}/exec", json=request) as answer:
            if answer.is_error:
                raise refused(answer.status_code, await answer.aread())
            event = await self.gather(answer, content, printed)
        if isinstance(event, Exception):
            raise event
        if event["timed_out"]:
            raise TimeoutError(f"the command took longer than {request.get('timeout_seconds')} seconds")
        stdout, stderr = (bytes(part).decode(errors="replace") for part in printed.values())
        failure = event.get("failure")
        if failure and event["exit_code"] == 126:
            raise PermissionError(f"{cmd[0]}: {failure['message']}")
        if failure:
            stderr += failure["message"]
        return ExecResult(event["exit_code"] == 0, event["exit_code"], stdout, stderr)

    async def gather(self, answer: httpx.Response, content: bytes | None, printed: dict) -> dict | Exception:
        """The last event, or what went wrong: raised inside of a task group it would come as a group."""
        async with anyio.create_task_group() as tasks:
            try:
                async for line in answer.aiter_lines():
                    if not line.startswith("data: "):
                        continue
                    event = json.loads(line[len("data: "):])
                    kind = event["type"]
                    if kind == "started" and content is not None:
                        tasks.start_soon(self.feed, event["exec_id"], content)
                    elif kind in printed:
                        coded = event.get("encoding") == "base64"
                        data = base64.b64decode(event["data"]) if coded else event["data"].encode()
                        self.keep(printed[kind], data)
                    elif kind == "error":
                        return Refused(event["error"]["code"], event["error"]["message"])
                    elif kind == "exit":
                        return event
            except OutputLimitExceededError as error:
                return error
            finally:
                tasks.cancel_scope.cancel()
        return Refused("unavailable", "the answer ended before the command")

    @staticmethod
    def keep(kept: bytearray, data: bytes) -> None:
        kept += data
        if len(kept) > SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE:
            limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(limit, bytes(kept[-PIECE:]).decode(errors="replace"))

    async def feed(self, exec_id: str, content: bytes) -> None:
        async def pieces():
            for at in range(0, len(content), PIECE):
                yield content[at:at + PIECE]

        try:
            await ask(self.http, "POST", f"{self.path}/execs/{exec_id}/stdin?close=true", content=pieces())
        except Refused:
            pass  # a command may end before it has read everything

    # -- Files.

    def file(self, file: str) -> str:
        return f"{self.path}/files/{quote(file, safe='/')}"

    async def about(self, file: str) -> dict:
        return (await ask(self.http, "GET", f"{self.path}/fs/stat", params={"path": file, "follow": "true"})).json()

    async def write_file(self, file: str, contents: str | bytes) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        with errors_of(file):
            await self.refuse_folder(file)
            parent = os.path.dirname(file)
            if parent not in ("", "/"):
                try:
                    await self.about(parent)
                except Refused:
                    await ask(self.http, "POST", f"{self.path}/fs/mkdir", json={"path": parent, "parents": True})
            await ask(self.http, "PUT", self.file(file), content=content)

    async def refuse_folder(self, file: str) -> None:
        try:
            about = await self.about(file)
        except Refused as error:
            if error.code == "not_found":
                return
            raise
        if about["is_directory"]:
            raise IsADirectoryError(f"{file} is a directory")

    async def read_file(self, file: str, text: bool = True):
        with errors_of(file):
            about = await self.about(file)
            if about["is_directory"]:
                raise IsADirectoryError(f"{file} is a directory")
            if about["size"] > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            content = (await ask(self.http, "GET", self.file(file))).content
        return content.decode() if text else content


class errors_of:
    """The server's reasons, as the exceptions that Inspect expects."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind, error, _trace) -> None:
        if not isinstance(error, Refused):
            return
        kinds = {"not_found": FileNotFoundError, "permission_denied": PermissionError}
        kind = kinds.get(error.code)
        if kind is None and "directory" in str(error):
            kind = IsADirectoryError
        if kind is not None:
            raise kind(f"{self.file}: {error}") from error
