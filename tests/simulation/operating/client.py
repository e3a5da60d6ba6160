"""What an operator's process has in place of `kubernetes.aio` and kopf: requests and watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import aiohttp
import msgspec
from tests.simulation.operating.objects import Json
from tests.simulation.operating.process import Process
from tests.simulation.operating.server import ApiServer, Stream, Unanswered

from muster_operator.watch.watcher import Source

__all__ = ["FakeApiClient", "FakeWatch"]

BACKOFFS_S = (0.1, 0.2, 0.5)
"""As `watcher.Forever`: then each second."""
RECONNECT_S = 0.05


@dataclass(frozen=True)
class _Response:
    status: int
    body: bytes

    async def read(self) -> bytes:
        return self.body


class FakeApiClient:
    """The part of `kubernetes.aio.client.ApiClient` that `KubeClient` uses."""

    def __init__(self, server: ApiServer, process: Process) -> None:
        self._server = server
        self._process = process

    async def close(self) -> None:
        pass

    async def param_serialize(
        self,
        method: str,
        path: str,
        query_params: list[tuple[str, str]] | None = None,
        header_params: Mapping[str, str] | None = None,
        body: Json | None = None,
        auth_settings: list[str] | None = None,
    ) -> tuple[str, str, dict[str, str], bytes | None]:
        return method, path, dict(query_params or ()), msgspec.json.encode(body) if body is not None else None

    async def call_api(
        self, method: str, path: str, query: dict[str, str], body: bytes | None, _request_timeout: float
    ) -> _Response:
        """Raises aiohttp.ClientError, TimeoutError."""
        future: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

        def answered(result: tuple[int, bytes] | Unanswered) -> None:
            if future.done():
                return
            if isinstance(result, Unanswered):
                future.set_exception(aiohttp.ClientConnectionError(str(result)))
            else:
                future.set_result(result)

        self._server.request(self._process, method, path, query, body, answered)
        async with asyncio.timeout(_request_timeout):
            return _Response(*await future)


class FakeWatch:
    """Implements `watch.watcher.Watch` as kopf does it: a list, then a stream from there on, which goes on behind the
    last event when it ends; after 410 Gone another list, which tells nothing of what was deleted meanwhile.
    """

    def __init__(
        self,
        server: ApiServer,
        process: Process,
        later: Callable[[float, Callable[[], None]], None],
        sources: tuple[Source, ...],
        namespace: str | None,
        on_restart: Callable[[], None],
    ) -> None:
        """`later`: (seconds, callback), on the loop of the process."""
        self._followers = [_Follower(server, process, later, source, namespace or "") for source in sources]

    def start(self) -> None:
        for each in self._followers:
            each.begin()

    def again(self) -> None:
        """Each asks for its kind until there is one."""

    async def close(self) -> None:
        for each in self._followers:
            each.close()


class _Follower:
    """Of one source."""

    def __init__(
        self,
        server: ApiServer,
        process: Process,
        later: Callable[[float, Callable[[], None]], None],
        source: Source,
        namespace: str,
    ) -> None:
        self._server = server
        self._process = process
        self._later = later
        self._source = source
        self._namespace = namespace
        self._revision = 0
        self._closed = False
        self._stream: Stream | None = None
        self._backoffs = iter(chain(BACKOFFS_S, repeat(1.0)))

    def begin(self) -> None:
        source = self._source
        group = f"apis/{source.group}" if source.group else "api"
        scope = f"/namespaces/{self._namespace}" if self._namespace else ""
        path = f"/{group}/{source.version}{scope}/{source.plural}"
        query = {"labelSelector": source.label_selector} if source.label_selector else {}
        answers: list[object] = []  # the first of answer and time-out counts

        def answered(result: tuple[int, bytes] | Unanswered | None) -> None:
            if self._closed or answers:
                return
            answers.append(result)
            if result is None or isinstance(result, Unanswered) or result[0] != 200:
                self._later(next(self._backoffs), self.begin)
            else:
                self._listed(msgspec.json.decode(result[1]))

        self._server.request(self._process, "GET", path, query, None, answered)
        self._later(5.0, lambda: answered(None))

    def _listed(self, listed: Any) -> None:
        self._backoffs = iter(chain(BACKOFFS_S, repeat(1.0)))
        self._revision = int(listed["metadata"]["resourceVersion"])
        for raw in listed["items"]:
            self._source.deliver(None, raw)
        self._follow()

    def _follow(self) -> None:
        if self._closed:
            return
        self._stream = Stream(
            self._process,
            self._source.plural,
            self._namespace,
            self._source.label_selector,
            self._take,
            self._ended,
        )
        self._server.watch(self._stream, self._revision)

    def _take(self, event: str, raw: Json) -> None:
        self._revision = int(raw["metadata"]["resourceVersion"])
        self._source.deliver(event, raw)

    def _ended(self, gone: bool) -> None:
        if not self._closed:
            self._later(RECONNECT_S, self.begin if gone else self._follow)

    def close(self) -> None:
        self._closed = True
        if self._stream is not None:
            self._stream.is_open = False
