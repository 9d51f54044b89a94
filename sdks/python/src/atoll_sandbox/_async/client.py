"""The connection to a server: requests, repeated where that is safe, and streams that resume."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

import httpx

from .. import errors
from .._calls import Attempts, Call, delete, final, get, keyed, segment, without_none
from .._config import Config, RetryPolicy, config
from .._decode import decode
from .._events import EventParser, Source
from .._runtime_async import shielded, sleep
from ..models import Health, Volume, VolumeList
from ..models import Sandbox as SandboxRecord
from ..models import SandboxPage

T = TypeVar("T")
Content = bytes | AsyncIterable[bytes]


class AsyncClient:
    """A client of one server. Several sandboxes can share it.

    `base_url` and `api_key` default to the variables ATOLL_URL and ATOLL_API_KEY.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        retry: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.config: Config = config(base_url, api_key, retry)
        options: Any = self.config.http_options()
        self._http = httpx.AsyncClient(**options, transport=transport)
        self._grpc: bool | None = None
        self.volumes = AsyncVolumes(self)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Sandboxes go on."""
        with shielded(5):
            await self._http.aclose()

    async def health(self) -> Health:
        return decode(Health, (await self.request(get("../../health"))).json())

    async def sandboxes(self, **filters: str | int) -> AsyncGenerator[SandboxRecord, None]:
        """The records of your sandboxes, page by page; `filters` are the query parameters of the list."""
        page = 1
        while True:
            answer = await self.request(get("sandboxes", page=page, **filters))
            found = decode(SandboxPage, answer.json())
            for record in found.items:
                yield record
            if not found.items or page * found.page_size >= found.total:
                return
            page += 1

    # -- Requests.

    async def request(self, call: Call, content: Callable[[], Content] | None = None) -> httpx.Response:
        """Sends a request until it is answered, as often as that does it at most once."""
        attempts = Attempts(self.config.retry)
        while True:
            self._check_open()
            try:
                options = call.options()
                if content is not None:
                    options["content"] = content()
                response = await self._http.request(call.method, call.path, **options)
                if response.is_error:
                    raise errors.of_response(response.status_code, response.headers, response.content)
                return response
            except errors.NotFoundError as missing:
                if call.method == "DELETE" and attempts.unclear:
                    # The first attempt deleted it.
                    return httpx.Response(204)
                if missing.field is None and await self._is_grpc():
                    raise errors.GrpcEndpointError(self.config.base_url) from missing
                raise
            except (httpx.TransportError, errors.APIError) as failure:
                delay = attempts.delay(call, failure)
                if delay is None:
                    raise final(failure, self.config.base_url) from failure
            await sleep(delay)

    def _check_open(self) -> None:
        if self._http.is_closed:
            raise errors.ConnectionFailedError("this client is closed: its block has ended, or close() was called")

    async def _is_grpc(self) -> bool:
        """Whether the URL is that of the server's gRPC endpoint, which serves nothing else. Asked once."""
        if self._grpc is None:
            url = f"{self.config.base_url.rstrip('/')}/sandbox.v1.SandboxService/ListSessions"
            headers = {"Content-Type": "application/grpc-web+proto"}
            try:
                answer = await self._http.post(url, headers=headers, content=bytes(5))
            except httpx.TransportError:
                return False
            self._grpc = answer.headers.get("content-type", "").startswith("application/grpc")
        return self._grpc

    async def value(self, kind: type[T], call: Call) -> T:
        """A request whose answer is JSON."""
        return decode(kind, (await self.request(call)).json())

    @asynccontextmanager
    async def opened(self, call: Call) -> AsyncIterator[httpx.Response]:
        """One attempt of a request whose answer is read as it comes."""
        self._check_open()
        async with self._http.stream(call.method, call.path, **call.options()) as response:
            if response.is_error:
                body = await response.aread()
                raise errors.of_response(response.status_code, response.headers, body)
            yield response

    async def follow(self, source: Source[T]) -> AsyncGenerator[T, None]:
        """What happens to a source, to its end. A connection that breaks is made again where the source can resume."""
        attempts = Attempts(self.config.retry)
        failure: Exception
        while not source.ended:
            call = source.call()
            opened = time.monotonic()
            try:
                async with self.opened(call) as response, aclosing(self._events(response, source)) as items:
                    async for item in items:
                        attempts.progress()
                        yield item
                failure = httpx.RemoteProtocolError("the stream ended before what it tells of")
            except (httpx.TransportError, errors.APIError) as broken:
                failure = broken
            if source.ended:
                return
            if time.monotonic() - opened > self.config.retry.seconds:
                attempts.progress()
            delay = attempts.delay(call, failure)
            if delay is None:
                raise final(failure, self.config.base_url) from failure
            await sleep(delay)

    async def _events(self, response: httpx.Response, source: Source[T]) -> AsyncGenerator[T, None]:
        parser = EventParser()
        async for piece in response.aiter_raw():
            for event in parser.feed(piece):
                for item in source.take(event):
                    yield item
                if source.ended:
                    return


class AsyncVolumes:
    """Volumes, which outlive sandboxes and are attached to several of them."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(self, name: str, *, disk_mb: int | None = None) -> Volume:
        body = without_none({"name": name, "disk_mb": disk_mb})
        return await self._client.value(Volume, keyed("volumes", body))

    async def get(self, name: str) -> Volume:
        return await self._client.value(Volume, get(f"volumes/{segment(name)}"))

    async def list(self) -> AsyncGenerator[Volume, None]:
        page = 1
        while True:
            found = await self._client.value(VolumeList, get("volumes", page=page))
            for volume in found.items:
                yield volume
            if not found.items or page * found.page_size >= found.total:
                return
            page += 1

    async def resize(self, name: str, disk_mb: int) -> Volume:
        call = Call("PATCH", f"volumes/{segment(name)}", json={"disk_mb": disk_mb}, safe=True)
        return await self._client.value(Volume, call)

    async def delete(self, name: str) -> None:
        await self._client.request(delete(f"volumes/{segment(name)}"))
