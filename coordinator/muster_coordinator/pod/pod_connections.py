"""The questions of coordinators to one another, sent over the network between pods (ADR 34)."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import structlog

from muster_coordinator.peers.asking import Asking
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.codec import Reader
from muster_coordinator.wire.errors import WireError
from muster_coordinator.wire.framing import encode_request_frame

logger = structlog.get_logger(__name__)

CLIENT_ID = "muster-coordinator"
WAITING_MAX = 10_000
"""Requests to one pod that wait for their answers; one more is refused."""

_T = TypeVar("_T")


class PodDialler(Protocol):
    """`peers.network.PeerNetwork` implements it."""

    async def ask(
        self, pod: str, received: Callable[[bytes], None], lost: Callable[[str], None], timeout_s: float
    ) -> Asking:
        """A new connection to `pod`. Raises OSError."""
        ...


class PodConnections:
    """One connection to each pod that is asked; requests are pipelined, and answered in their order."""

    def __init__(self, dialler: PodDialler, answer_timeout_s: float) -> None:
        """`answer_timeout_s`: a pod that gives no answer within it loses its connection."""
        self._dialler = dialler
        self._answer_timeout_s = answer_timeout_s
        self._connections: dict[str, _Connection] = {}

    def ask(
        self,
        pod: str,
        api: Api,
        version: int,
        body: bytes,
        decode: Callable[[Reader], _T],
        told: Callable[[_T | None], None],
    ) -> None:
        """`told` gets the decoded answer. None: there is none, and the connection is closed; the pod may have carried
        out the request or not."""
        connection = self._connections.get(pod)
        if connection is None:
            connection = self._connections[pod] = _Connection(pod, self._dialler, self._answer_timeout_s)
        connection.ask(api, version, body, decode, told)

    def stop(self) -> None:
        """Nobody is told anything any more."""
        for connection in self._connections.values():
            connection.stop()


class _Waiting:
    """A request that is not answered yet."""

    def __init__(
        self,
        number: int,
        decode: Callable[[Reader], Any],
        flexible: bool,
        told: Callable[[Any], None],
        timer: asyncio.TimerHandle,
    ) -> None:
        self._number = number
        self._decode, self._flexible = decode, flexible
        self.told, self.timer = told, timer

    def decoded(self, frame: bytes) -> Any:
        """Raises WireError, IndexError, struct.error."""
        number = int.from_bytes(frame[:4], "big")
        if number != self._number:
            raise WireError(f"it is for request {number}, the oldest one is {self._number}")
        reader = Reader(frame, 4, self._flexible)
        reader.tagged_fields()  # of the header
        return self._decode(reader)


class _Connection:
    def __init__(self, pod: str, dialler: PodDialler, answer_timeout_s: float) -> None:
        self._pod = pod
        self._dialler = dialler
        self._answer_timeout_s = answer_timeout_s
        self._link: Asking | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []  # until there is a link
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0

    def ask(
        self, api: Api, version: int, body: bytes, decode: Callable[[Reader], Any], told: Callable[[Any], None]
    ) -> None:
        if len(self._waiting) >= WAITING_MAX:
            told(None)
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._answer_timeout_s, self._end, f"no answer in {self._answer_timeout_s:g} s")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        self._waiting.append(_Waiting(self._correlation_id, decode, api.flexible(version), told, timer))
        frame = encode_request_frame(api, version, self._correlation_id, CLIENT_ID, body)
        if self._link is not None:
            self._link.send(frame)
            return
        self._unsent.append(frame)
        if self._dialling is None:
            self._dialling = loop.create_task(self._dial())

    def stop(self) -> None:
        for waiting in self._forget():
            waiting.timer.cancel()
        if self._dialling is not None:
            self._dialling.cancel()

    async def _dial(self) -> None:
        try:
            link = await self._dialler.ask(self._pod, self._received, self._end, self._answer_timeout_s)
        except OSError as error:
            self._dialling = None
            self._end(str(error) or type(error).__name__)
            return
        self._dialling = None
        if link.is_closed:  # again, before this task went on: what has come since is not sent
            self._end("the other pod closed the connection")
            return
        self._link = link
        unsent, self._unsent = self._unsent, []
        for frame in unsent:
            link.send(frame)

    def _received(self, frame: bytes) -> None:
        if not self._waiting:
            self._end("an answer that nobody waits for")
            return
        try:
            answer = self._waiting[0].decoded(frame)
        except (WireError, IndexError, struct.error) as error:
            self._end(f"an answer that cannot be read: {error}")
            return
        waiting = self._waiting.popleft()
        waiting.timer.cancel()
        waiting.told(answer)

    def _end(self, reason: str) -> None:
        """No request is on its way any more, as far as this pod can tell."""
        waiting = self._forget()
        if waiting:
            logger.warning("pod_gave_no_answer", pod=self._pod, requests=len(waiting), reason=reason)
        for each in waiting:
            each.timer.cancel()
            each.told(None)

    def _forget(self) -> deque[_Waiting]:
        """Close the connection. Returns what was waiting for answers."""
        link, self._link = self._link, None
        waiting, self._waiting = self._waiting, deque()
        self._unsent = []
        if link is not None:
            link.close()
        return waiting
