"""Client of the pod API. Every call can be repeated and has a time limit.

Errors:

    PodApiError
    +-- PodUnreachableError     there is no connection, or it broke; `refused`: nothing listens there
    +-- PodTimeoutError         no answer came in time: what the call did is unknown
    +-- PodRefusedError         the pod refused the whole call: HTTP status, reason, message
    +-- PodProtocolError        the answer cannot be read
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import closing
from ssl import SSLContext
from typing import TypedDict, TypeVar, get_args

import aiohttp
import msgspec

from muster_coordinator.podapi.cuts import MarkerHoldAnswer
from muster_coordinator.podapi.fields import ADDRESSEE_HEADER, Problem, Request
from muster_coordinator.podapi.image import MetadataAnswer, MetadataImage
from muster_coordinator.podapi.leases import LeasesAnswer, LeasesRequest
from muster_coordinator.podapi.models import (
    CallResults,
    ElectionsRequest,
    PodStatus,
    RemovalsRequest,
    ReplicasRequest,
    ReplicaStatus,
    ResignationsRequest,
    WatchEvent,
)
from muster_coordinator.podapi.moves import MoveAnswer, MoveRequest, MovesAnswer
from muster_coordinator.podapi.resets import PlanAnswer, PlanRequest, ResetAnswer, ResetRequest
from muster_coordinator.podapi.reshard import FenceResult, FencesRequest, FencesResponse
from muster_coordinator.podapi.segments import SegmentsAnswer
from muster_coordinator.podapi.users import AccessAnswer, AccessRequest
from muster_coordinator.security.tls import Tls

CONNECT_TIMEOUT_S = 1.0
"""A pod that does not accept a connection within this time is down."""
CALL_TIMEOUT_S = 5.0
"""A call without a time of its own fails after it."""
MAX_LINE_BYTES = 4 * 1024 * 1024
"""Longest line of a watch stream, in bytes: the status of 1,000 partitions takes a quarter of a megabyte."""

_A = TypeVar("_A")


class PodApiError(Exception):
    """A call to a pod failed."""


class PodUnreachableError(PodApiError):
    """There is no connection to the pod, or it broke. `refused`: the host answered that nothing listens there."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class PodTimeoutError(PodApiError):
    """No answer came in time."""


class PodRefusedError(PodApiError):
    """The pod refused the whole call."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class PodProtocolError(PodApiError):
    """The answer cannot be read."""


class _Partitions(msgspec.Struct):
    partitions: tuple[ReplicaStatus, ...]


class _Secured(TypedDict, total=False):
    ssl: SSLContext
    server_hostname: str


def new_session() -> aiohttp.ClientSession:
    """A session for any number of pods. It does not limit connections, because streams stay open."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


class PodClient:
    """The API of one pod at one address (host:port). `pod` is its name: another pod at this address refuses all calls.
    `tls`: for the connection, on which the pod has to prove its name; None: it is plain.

    Every method raises PodApiError. Timeouts are in seconds.
    """

    def __init__(self, session: aiohttp.ClientSession, pod: str, address: str, tls: Tls | None = None) -> None:
        self._session = session
        self._tls = tls
        self._headers = {ADDRESSEE_HEADER: pod, "Content-Type": "application/json"}
        self._base = f"{'https' if tls is not None else 'http'}://{address}"
        self.pod = pod
        self.address = address

    def __repr__(self) -> str:
        return f"PodClient({self.pod} at {self.address})"

    async def create_replicas(self, request: ReplicasRequest, timeout_s: float = CALL_TIMEOUT_S) -> CallResults:
        return await self._call("POST", "/v1/replicas", CallResults, request, timeout_s)

    async def remove_replicas(self, request: RemovalsRequest, timeout_s: float = CALL_TIMEOUT_S) -> CallResults:
        return await self._call("POST", "/v1/removals", CallResults, request, timeout_s)

    async def elect(self, request: ElectionsRequest, timeout_s: float = CALL_TIMEOUT_S) -> CallResults:
        return await self._call("POST", "/v1/elections", CallResults, request, timeout_s)

    async def resign(self, request: ResignationsRequest, timeout_s: float = CALL_TIMEOUT_S) -> CallResults:
        return await self._call("POST", "/v1/resignations", CallResults, request, timeout_s)

    async def fence(self, request: FencesRequest, timeout_s: float = 2 * CALL_TIMEOUT_S) -> FencesResponse:
        return await self._call("POST", "/v1/fences", FencesResponse, request, timeout_s)

    async def take_in(
        self,
        partition: int,
        batches: bytes,
        *,
        token: int,
        reshard: int,
        position: int,
        last: bool,
        timeout_s: float,
    ) -> FenceResult:
        """Have a new partition take in record batches, of which the first record is number `position`; `last`: no more
        follow.
        """
        query = f"?token={token}&reshard={reshard}&position={position}" + ("&last" if last else "")
        return await self._answer("POST", f"/v1/imports/{partition}{query}", FenceResult, batches, timeout_s)

    async def status(self, timeout_s: float = CALL_TIMEOUT_S) -> PodStatus:
        return await self._call("GET", "/v1/status", PodStatus, None, timeout_s)

    async def partitions(self, timeout_s: float = CALL_TIMEOUT_S) -> tuple[ReplicaStatus, ...]:
        return (await self._call("GET", "/v1/partitions", _Partitions, None, timeout_s)).partitions

    async def update_metadata(self, image: MetadataImage, timeout_s: float = CALL_TIMEOUT_S) -> MetadataAnswer:
        """Raises PodRefusedError (409) if the pod has seen a higher token, or has a newer image."""
        return await self._call("PUT", "/v1/metadata", MetadataAnswer, image, timeout_s)

    async def give_access(self, request: AccessRequest, timeout_s: float = CALL_TIMEOUT_S) -> AccessAnswer:
        """Raises PodRefusedError (409) if the pod has seen a higher token."""
        return await self._call("PUT", "/v1/access", AccessAnswer, request, timeout_s)

    async def drain(self, timeout_s: float = CALL_TIMEOUT_S, *, token: int | None = None) -> PodStatus:
        """`token`: of the operator that drains the pod; None for a person."""
        query = "" if token is None else f"?token={token}"
        return await self._call("POST", "/v1/drain" + query, PodStatus, None, timeout_s)

    async def hold_markers(self, name: str, for_ms: int, timeout_s: float = CALL_TIMEOUT_S) -> MarkerHoldAnswer:
        """Have no marker of a transaction leave the pod, for `for_ms` milliseconds at most. `name`: 32 hex digits."""
        return await self._call("POST", f"/v1/marker-holds/{name}?forMs={for_ms}", MarkerHoldAnswer, None, timeout_s)

    async def let_markers_go(self, name: str, timeout_s: float = CALL_TIMEOUT_S) -> MarkerHoldAnswer:
        """End the hold. Says whether it was in force until now."""
        return await self._call("DELETE", f"/v1/marker-holds/{name}", MarkerHoldAnswer, None, timeout_s)

    async def leases(self, request: LeasesRequest, timeout_s: float = CALL_TIMEOUT_S) -> LeasesAnswer:
        """Raises PodRefusedError (404) if no group can move there."""
        return await self._call("POST", "/v1/leases", LeasesAnswer, request, timeout_s)

    async def move(self, request: MoveRequest, timeout_s: float = 2 * CALL_TIMEOUT_S) -> MoveAnswer:
        """Raises PodRefusedError: 409 if another pod leads the group's partition, 404 if no group can move there."""
        return await self._call("POST", "/v1/moves", MoveAnswer, request, timeout_s)

    async def moves(self, timeout_s: float = CALL_TIMEOUT_S) -> MovesAnswer:
        """Raises PodRefusedError (404) if no group can move there."""
        return await self._call("GET", "/v1/moves", MovesAnswer, None, timeout_s)

    async def plan_reset(self, request: PlanRequest, timeout_s: float = 2 * CALL_TIMEOUT_S) -> PlanAnswer:
        """Raises PodRefusedError (409) if another pod leads the group's partition."""
        return await self._call("POST", "/v1/resets/plan", PlanAnswer, request, timeout_s)

    async def reset(self, request: ResetRequest, timeout_s: float = 2 * CALL_TIMEOUT_S) -> ResetAnswer:
        """Raises PodRefusedError (409) if another pod leads the group's partition."""
        return await self._call("POST", "/v1/resets", ResetAnswer, request, timeout_s)

    async def segments(self, timeout_s: float = CALL_TIMEOUT_S) -> SegmentsAnswer:
        return await self._call("GET", "/v1/segments", SegmentsAnswer, None, timeout_s)

    async def read(self, path: str, headers: Mapping[str, str], timeout_s: float = CALL_TIMEOUT_S) -> bytes:
        """The body of a GET, for instance of a part of a segment (a Range header)."""
        try:
            status, content = await self._send("GET", path, None, timeout_s, headers)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._translate(error) from error
        if status not in (200, 206):
            raise _refusal(status, content)
        return content

    async def watch(self, silence_s: float) -> AsyncGenerator[WatchEvent, None]:
        """Yield events until the stream ends, those of kinds that this version knows. Raises PodApiError if it breaks.

        Raises PodTimeoutError if nothing comes for `silence_s`; a pod sends something every 200 ms.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
        try:
            url = self._base + "/v1/watch?operator"  # while an operator watches, no replica nominates itself
            async with asyncio.timeout(CONNECT_TIMEOUT_S + silence_s):
                response = await self._session.get(url, headers=self._headers, timeout=timeout, **self._secured())
            async with response:
                if response.status != 200:
                    async with asyncio.timeout(silence_s):
                        raise _refusal(response.status, await response.read())
                lines = _Lines()
                with closing(_Silence(response.content, silence_s)) as silence:
                    while chunk := await response.content.readany():
                        silence.heard()
                        for line in lines.take(chunk):
                            event = _event(line)
                            if event is not None:
                                yield event
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError) as error:
            raise self._translate(error) from error

    async def _call(
        self,
        method: str,
        path: str,
        answer: type[_A],
        request: Request | None,
        timeout_s: float,
    ) -> _A:
        body = msgspec.json.encode(request) if request is not None else None
        return await self._answer(method, path, answer, body, timeout_s)

    async def _answer(
        self,
        method: str,
        path: str,
        answer: type[_A],
        body: bytes | None,
        timeout_s: float,
    ) -> _A:
        try:
            try:
                status, content = await self._send(method, path, body, timeout_s)
            except aiohttp.ServerDisconnectedError:
                # The pod has closed a connection that was kept, as when it restarted. Calls can be repeated.
                status, content = await self._send(method, path, body, timeout_s)
            if status != 200:
                raise _refusal(status, content)
            return msgspec.json.decode(content, type=answer)
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.MsgspecError) as error:
            raise self._translate(error) from error

    async def _send(
        self, method: str, path: str, body: bytes | None, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        sent = {**self._headers, **(headers or {})}
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)
        async with self._session.request(
            method, self._base + path, data=body, headers=sent, timeout=timeout, **self._secured()
        ) as response:
            return response.status, await response.read()

    def _secured(self) -> _Secured:
        """The context of this moment: a connection that is open and kept has the one that it was made with."""
        return _Secured(ssl=self._tls.context, server_hostname=self.pod) if self._tls is not None else _Secured()

    def _translate(self, error: Exception) -> PodApiError:
        if isinstance(error, msgspec.MsgspecError):
            return PodProtocolError(f"{self.pod} at {self.address}: {error}")
        if isinstance(error, TimeoutError):
            return PodTimeoutError(f"{self.pod} at {self.address}: no answer in time")
        refused = isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError)
        return PodUnreachableError(f"{self.pod} at {self.address}: {error or type(error).__name__}", refused=refused)


_decode_event = msgspec.json.Decoder(WatchEvent).decode
_KINDS = tuple(str(kind.__struct_config__.tag) for kind in get_args(WatchEvent))


class _Kind(msgspec.Struct):
    type: str


def _event(line: bytes) -> WatchEvent | None:
    """None: a later version of the pod has events of this kind. Raises msgspec.MsgspecError."""
    try:
        event: WatchEvent = _decode_event(line)
    except msgspec.ValidationError:
        if msgspec.json.decode(line, type=_Kind).type in _KINDS:
            raise
        return None
    return event


def _refusal(status: int, content: bytes) -> PodRefusedError:
    try:
        problem = msgspec.json.decode(content, type=Problem)
    except msgspec.MsgspecError:
        problem = Problem("HttpError", content[:200].decode("utf-8", "replace"))
    return PodRefusedError(status, problem.reason, problem.message)


class _Silence:
    """Ends a stream on which nothing comes for `silence_s`, by a TimeoutError for its reader.

    aiohttp's own limit (`sock_read`) sets a timer anew for each piece that comes. This one looks at the time when it is
    due: for an operator of many pods the timers were a quarter of what it costs while nothing happens.
    """

    def __init__(self, stream: aiohttp.StreamReader, silence_s: float) -> None:
        self._stream, self._silence_s = stream, silence_s
        self._loop = asyncio.get_running_loop()
        self._read = stream.total_bytes
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(silence_s, self._look)

    def heard(self) -> None:
        """Something was read."""
        self._read, self._heard = self._stream.total_bytes, self._loop.time()

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if self._stream.total_bytes != self._read:  # it has come, and its reader has not had a turn yet
            self._heard = now
        due = self._heard + self._silence_s
        if due > now:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._stream.set_exception(aiohttp.SocketTimeoutError(f"nothing came for {self._silence_s:g} s"))


class _Lines:
    """Lines of up to MAX_LINE_BYTES from chunks. The reader's own `readline` stops at its buffer's size.

    No generator: an operator takes a line from each pod every 200 ms.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def take(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk. Raises ClientPayloadError if one grows too long."""
        *ended, rest = chunk.split(b"\n")
        if ended and self._pieces:
            ended[0] = b"".join((*self._pieces, ended[0]))
        if ended:
            self._pieces, self._held = [], 0
        if rest:
            self._pieces.append(rest)
            self._held += len(rest)
            if self._held > MAX_LINE_BYTES:
                raise aiohttp.ClientPayloadError(f"a line of the watch stream is longer than {MAX_LINE_BYTES} bytes")
        return ended
