"""The connection to a broker that belongs to one client's connection."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, cast

from muster_coordinator.listener.rotation import ANSWER_UNIT_BYTES, Rotation
from muster_gateway.answers import AnswerCutter, Pass, Whole
from muster_gateway.apis import HINTS_SINCE
from muster_gateway.caller import keep_alive
from muster_gateway.errors import UpstreamError
from muster_gateway.flow import Busy, ReadGate
from muster_gateway.hints import AddressOf, HintRewriter
from muster_gateway.slots import Slot


class Client(Protocol):
    """The side of the client's connection that the connection to a broker uses."""

    def is_next(self, slot: Slot) -> bool:
        """True if this answer is the next one that the client gets."""

    def pass_on(self, chunk: bytes | memoryview, last: bool) -> None:
        """Bytes of the answer that the client waits for."""

    def broker_slow(self, slow: bool) -> None:
        """Is called when the broker becomes slow to read, and when it is fast again."""

    def broker_failed(self, error: UpstreamError) -> None:
        """It sent what is no answer."""

    def broker_lost(self, waiting: int) -> None:
        """The connection ended; so many requests were not answered."""


class BrokerConnection(asyncio.Protocol):
    """Takes requests before it is connected. `address_of`: for leader hints. Implements `rotation.Taking`: answers that
    are read are read in turns."""

    def __init__(self, client: Client, address_of: AddressOf, limit: int, rotation: Rotation) -> None:
        self.reading = ReadGate()
        self._client: Client | None = client
        self._address_of = address_of
        self._cutter = AnswerCutter(self, limit)
        self._waiting: deque[Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._rotation = rotation
        self._has_read = False  # an answer, in this turn

    @property
    def held(self) -> int:
        return self._cutter.held

    def expect(self, slot: Slot) -> None:
        """The bytes that are sent next are those of a request with an answer."""
        self._waiting.append(slot)

    def send(self, chunk: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(chunk)
        elif self._client is not None:
            self._unsent.append(bytes(chunk))

    def go_on(self) -> None:
        """Another answer is the client's next."""
        if self._cutter.blocked and self._client is not None and self._client.is_next(self._waiting[0]):
            self._feed(None)

    def take_turn(self) -> None:
        """Implements `rotation.Taking`."""
        self._has_read = False
        if self._cutter.blocked and self._client is not None:
            self._feed(None)

    def abort(self) -> None:
        """Implements `rotation.Taking`. The client loses its connection, too."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        self._client = None
        self._rotation.forget(self)
        self._unsent.clear()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = cast(asyncio.Transport, transport)
        if self._client is None:
            connected.abort()
            return
        self._transport = connected
        self.reading.attach(connected)
        keep_alive(transport)
        if self._unsent:
            connected.writelines(self._unsent)
            self._unsent.clear()
        self._client.broker_slow(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        client, self._client = self._client, None
        if client is not None:
            client.broker_lost(len(self._waiting))

    def data_received(self, data: bytes) -> None:
        if self._client is not None:
            self._has_read = False
            self._feed(data)

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.broker_slow(True)

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.broker_slow(False)

    # -- AnswerSink ---------------------------------------------------------------------------------------------------

    def answer_begins(self, correlation_id: int) -> Pass | Whole | None:
        if not self._waiting:
            raise UpstreamError("an answer that nobody waits for")
        slot = self._waiting[0]
        head = slot.head
        if head.correlation_id != correlation_id:
            raise UpstreamError(f"an answer to request {correlation_id} where that to {head.correlation_id} is next")
        if slot.edit is not None:
            if self._rotation.units > 0:
                return Whole()
            self._rotation.wait(self, self._has_read)
            return None
        if self._client is None or not self._client.is_next(slot):
            return None
        hints_since = HINTS_SINCE.get(head.rule.key)
        if hints_since is None or head.version < hints_since:
            return Pass()
        return Pass(HintRewriter(head.rule.key, self._address_of))

    def answer_bytes(self, chunk: bytes | memoryview, last: bool) -> None:
        if last:
            self._waiting.popleft()
        if self._client is not None:
            self._client.pass_on(chunk, last)

    def answer_whole(self, frame: bytes) -> None:
        slot = self._waiting.popleft()
        assert slot.edit is not None
        self._has_read = True
        self._rotation.units -= 1 + len(frame) // ANSWER_UNIT_BYTES
        slot.edit(slot, frame)

    def _feed(self, data: bytes | None) -> None:
        try:
            if data is None:
                self._cutter.resume()
            else:
                self._cutter.feed(data)
        except UpstreamError as error:
            client, self._client = self._client, None
            if client is not None:
                client.broker_failed(error)
            return
        if self._cutter.blocked:
            self.reading.close(Busy.NOT_IN_TURN)
        else:
            self.reading.open(Busy.NOT_IN_TURN)
