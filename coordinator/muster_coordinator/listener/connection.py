"""One client connection: frames in, requests out to the handlers, answers back in the order of the requests.

A callback protocol (no streams, no task, no future per request): answers that became ready in one turn of the loop
leave with one write. Bad input costs its own connection and is counted; the pod serves on. Requests are decoded and
carried out when it is the connection's turn (`rotation`), and not while its client does not read its answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from muster_coordinator.listener.answer_queue import COUNTED_BYTES, AnswerQueue
from muster_coordinator.listener.exchange import Exchange, ThrottledExchange
from muster_coordinator.listener.rotation import LIGHT_UNITS, QUANTUM, READ_UNIT_BYTES, SLICE_UNITS, UNIT_BYTES
from muster_coordinator.listener.state import EndingSession, Handler, ServerState
from muster_coordinator.listener.user_load import UserLoad
from muster_coordinator.security.identity import ANONYMOUS, Identity, normal_host
from muster_coordinator.security.principal_mapping import NoPrincipalError
from muster_coordinator.wire import k18_api_versions
from muster_coordinator.wire.api import RequestHeader
from muster_coordinator.wire.errors import FrameTooLargeError, UnsupportedRequestError, WireError
from muster_coordinator.wire.framing import FrameReader, read_header
from muster_coordinator.wire.slicing import Decoding
from muster_coordinator.wire.throttling import SINCE

DECODED_FACTOR = 8
"""A decoded request takes up to so many times the bytes of its frame: those of small fields, in objects of Python."""

LARGE_BYTES = 8 << 10
"""A request of so many bytes is decoded in slices, and nothing behind it is carried out before it is answered, as Kafka
does with every request: a client that pipelines such would fill memory, decoded, and the batches of the log."""


def peer_host(transport: asyncio.BaseTransport) -> str:
    """The client's address as `normal_host` writes it, "" if the connection has none."""
    peer = transport.get_extra_info("peername")
    return normal_host(peer[0]) if peer else ""


def nobody(transport: asyncio.BaseTransport) -> Identity:
    """The identity of a client that nobody asks for one."""
    return Identity(ANONYMOUS, peer_host(transport))


class KafkaConnection(asyncio.Protocol):
    """Implements `state.Connection`, `exchange.AnsweringConnection`, `answer_queue.Flow`, `rotation.Taking` and
    `user_load.Waiting`."""

    def __init__(
        self,
        state: ServerState,
        handlers: Mapping[type, Handler],
        identity_of: Callable[[asyncio.BaseTransport], Identity] = nobody,
        session: EndingSession | None = None,
    ) -> None:
        """`identity_of`: who the client is; raises NoPrincipalError for who is not let in. `session`: if the client is
        not known for ever."""
        self._state = state
        self._handlers = handlers
        self._served_versions = state.served_versions
        self._reader = FrameReader(state.settings.socket_request_max_bytes)
        self.answers = AnswerQueue(self, state.rotation, state.counts, state.may_answer)
        self.paused_reading = False
        self._client_ended = False  # it sends no more, and may still read
        self._write_paused = False
        self._transport: asyncio.Transport | None = None
        self._max_in_flight = state.settings.max_in_flight_requests
        self._host = ""  # Java's InetAddress text
        self.peer = ""
        self.client_id: str | None = None
        self._identity_of = identity_of
        self.identity = Identity(ANONYMOUS, "")
        self._has_tls = False
        self.session = session
        self.last_active_ms = state.clock.monotonic_ms()
        self._now_s = state.clock.monotonic_s
        self._came_s = 0.0  # when the last bytes were read
        self.held_bytes = 0  # as last reported to `ServerState.held`
        self.closing_since_ms: int | None = None
        self._socket: asyncio.Transport | None = None  # `_transport` until the end, also while it is closing
        self._load: UserLoad | None = None
        self._rotation = state.rotation
        self._spent_units = LIGHT_UNITS + 1  # in its last turn; who is new is not known to be light
        self._decoding: Decoding | None = None
        self._read_units = 0  # of what was read last, if reading waits for a turn
        self._rest: asyncio.TimerHandle | None = None
        self._rests_until_ms = 0

    def __repr__(self) -> str:
        return f"<KafkaConnection {self._host} pending={len(self.answers.pending)} closed={self._transport is None}>"

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._socket = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._state.settings.max_unread_bytes)
        self.answers.open(self._transport)
        peer = transport.get_extra_info("peername")
        self._host = f"/{peer[0]}" if peer else "/unknown"
        self.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._has_tls = transport.get_extra_info("sslcontext") is not None
        host = peer_host(transport)
        self._state.opened(self, host)
        try:
            self.identity = self._identity_of(transport)
            self._load = self._state.known(self, self.identity)
            if self._load is not None:
                self.answers.count_for(self._load)
        except NoPrincipalError as error:
            self._reject("no_principal", error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._socket = None
        self._drop()
        self._state.closed(self)

    def eof_received(self) -> bool:
        """The client sends no more. What it asked for before is answered, as in Kafka, and then this side closes. Of a
        TLS connection nothing is left then."""
        if self._has_tls:
            return False
        self._client_ended = True
        self.paused_reading = True  # for good: `resume_reading` is told of every answer that leaves
        self.wait_for_turn()  # thousands may end at once
        return True

    def data_received(self, data: bytes) -> None:
        self.last_active_ms = self._state.now_ms
        self._came_s = self._now_s()
        self._go_on(data)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._pause_reading()  # a client that does not read its answers gets no more requests in
        self.count()

    def resume_writing(self) -> None:
        self._write_paused = False
        self.last_active_ms = self._state.now_ms
        self.wait_for_turn()
        self.count()

    # -- requests -----------------------------------------------------------------------------------------------------

    def wait_for_turn(self) -> None:
        """Implements `answer_queue.Flow`."""
        self._rotation.wait(self, True)

    def take_turn(self) -> None:
        """Make a slice of a large answer, decode one of a large request, or carry out requests."""
        answers = self.answers
        if answers.has_slice(self._write_paused):
            self._rotation.units -= SLICE_UNITS
            answers.make_slice()
            if answers.has_slice(self._write_paused):
                self._rotation.wait(self, True)
                return
        self._rotation.units -= self._read_units
        self._read_units = 0
        self._go_on()
        if self.paused_reading:
            self.resume_reading()

    def _go_on(self, data: bytes = b"") -> None:
        """Take `data`, and carry out the requests that have come, in their order, as far as it is the connection's turn
        and there is room."""
        answers, reader, rotation = self.answers, self._reader, self._rotation
        most, is_ready, units = QUANTUM, self._is_ready(), rotation.units
        kept = rotation.light_reserve if self._spent_units > LIGHT_UNITS else 0
        if data:
            reader.push(data)
            if len(data) >= READ_UNIT_BYTES:
                self._read_much(len(data))
        while is_ready:
            if most <= 0 or rotation.units <= kept:
                if self._decoding is not None or reader.has_frame():
                    rotation.wait(self, most < QUANTUM or kept > 0)
                break
            try:
                decoding = self._decoding
                if decoding is not None:
                    most -= 1
                    rotation.units -= SLICE_UNITS
                    header, size, request = decoding.header, decoding.size, self._decode(decoding)
                else:
                    frame = reader.take()
                    if frame is None:
                        break
                    size = len(frame)
                    most -= 1
                    rotation.units -= 1 + size // UNIT_BYTES
                    header = read_header(frame, self._served_versions)
                    if self.client_id is None:
                        self.client_id = header.client_id
                    answers.request_bytes += size
                    if size < LARGE_BYTES:
                        request = header.api.decode_request(header, frame, self._host)
                    else:
                        request = self._decode(Decoding(header, frame, self._host))
                if request is None:
                    break
                api = header.api
                if self._load is None:
                    version, number = header.api_version, header.correlation_id
                    exchange = Exchange(self, api, version, number, request, size, self._came_s)
                else:
                    exchange = self._charged(self._load, header, request, size)
                answers.pending.append(exchange)
                if api.slices is not None or size >= LARGE_BYTES:
                    answers.slow = exchange
                self._state.requests[api.key] += 1
                self._handlers[type(request)](request, exchange)
            except UnsupportedRequestError as error:
                self._unsupported(error)
            except FrameTooLargeError as error:
                self._reject("frame_too_large", error)
            except WireError as error:
                self._reject("malformed_request", error)
            if not reader.held:
                break  # as nearly always
            is_ready = self._is_ready()
        if most < QUANTUM:
            self._spent_units = units - rotation.units
        if self._decoding is not None or (reader.held and reader.has_frame()):
            self._is_behind(is_ready)
        elif len(answers.pending) >= self._max_in_flight and not self.paused_reading:
            self._pause_reading()
        if answers.request_bytes + reader.held > COUNTED_BYTES or self.held_bytes > COUNTED_BYTES:
            self.count()

    def _decode(self, decoding: Decoding) -> object | None:
        """Decode a slice of a large request. Returns the request after the last one; until then the connection waits
        for its next turn. Raises WireError."""
        request = decoding.step()
        self._decoding = decoding if request is None else None
        if request is None:
            self._rotation.wait(self, True)
        return request

    def _read_much(self, size: int) -> None:
        """Charge the turn for `size` bytes that came at once. If it has no room for more, the connection is read from
        again in its own turn, which has to have room for as many."""
        rotation, units = self._rotation, size // READ_UNIT_BYTES
        rotation.units -= units
        if rotation.units <= rotation.light_reserve:
            self._read_units = units
            self._pause_reading()
            rotation.wait(self, True)

    def _is_ready(self) -> bool:
        """True if the next request of the connection can be carried out."""
        answers, load = self.answers, self._load
        return (
            self._transport is not None
            and not self._write_paused
            and answers.slow is None
            and self._rest is None
            and len(answers.pending) < self._max_in_flight
            and (load is None or not load.is_full())
        )

    def _is_behind(self, is_ready: bool) -> None:
        """Requests wait. For the next turn only, nobody needs to stop reading."""
        if is_ready and self._reader.held <= COUNTED_BYTES:
            return
        self._pause_reading()
        if self._load is not None and self._rest is None and self._load.is_full():
            self._load.wait(self)

    def serve(self, handlers: Mapping[type, Handler]) -> None:
        """Has `handlers` answer from the next request on."""
        self._handlers = handlers

    def _unsupported(self, error: UnsupportedRequestError) -> None:
        """ApiVersions of an unknown version is answered in version 0 with what is served (KIP-511), in its turn; others
        are closed."""
        if error.answer is None:
            self._reject("unsupported_request", error)
            return
        self._state.connection_errors["unsupported_api_versions"] += 1
        exchange = Exchange(self, k18_api_versions.API, 0, 0, None, 0, self._came_s)
        if self._load is not None:
            self._load.in_flight += 1
        self.answers.pending.append(exchange)
        self.answers.complete(exchange, error.answer)

    def _reject(self, reason: str, error: Exception) -> None:
        self._state.connection_errors[reason] += 1
        self._state.audit.tell("connection_closed", self._host, reason=reason, error=str(error))
        self.close()

    # -- the user's bounds --------------------------------------------------------------------------------------------

    def _charged(self, load: UserLoad, header: RequestHeader, request: object, size: int) -> Exchange:
        """The exchange of a request that counts among its user's; the connection rests if it came too early."""
        load.in_flight += 1
        api, version = header.api, header.api_version
        rest_ms = load.throttle_ms(self._state.clock.monotonic_ms) if api.key in SINCE else 0
        if not rest_ms:
            return Exchange(self, api, version, header.correlation_id, request, size, self._came_s)
        self._state.throttled += 1
        self._rests_until_ms = self._state.clock.monotonic_ms() + rest_ms
        self._rest = asyncio.get_running_loop().call_later(rest_ms / 1000, self._rested)
        self._pause_reading()
        return ThrottledExchange(self, api, version, header.correlation_id, request, size, self._came_s, self._rest_ms)

    def _rest_ms(self) -> int:
        return max(0, self._rests_until_ms - self._state.clock.monotonic_ms())

    def _rested(self) -> None:
        self._rest = None
        self.take_turn()

    # -- end ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close after what is ready has been written; requests in flight are not answered any more."""
        self.answers.write()
        transport = self._transport
        if transport is not None:
            self._transport = None
            self._drop()
            self.closing_since_ms = self._state.now_ms
            transport.close()

    def abort(self) -> None:
        """Close at once; what was not written is dropped."""
        transport = self._socket
        if transport is not None:
            self._transport = self._socket = None
            self._drop()
            transport.abort()

    def look(self, now_ms: int) -> None:
        if self.session is not None:
            self.session.look(self, now_ms)

    @property
    def is_idle(self) -> bool:
        """Nothing is asked that the pod could answer. A client that does not read its answers is idle too."""
        has_request = self.answers.pending or self._decoding is not None or self._reader.has_frame()
        return self._write_paused or not has_request

    # -- memory -------------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Tell the listener what this connection holds: of requests what has come and what is not answered yet, of
        answers what is not sent."""
        transport = self._socket
        unsent = transport.get_write_buffer_size() if transport is not None else 0
        answers = self.answers
        held = answers.request_bytes * DECODED_FACTOR + answers.ready_bytes + answers.unmade_bytes + unsent
        held += self._reader.held
        if held <= COUNTED_BYTES:
            held = 0
        before, self.held_bytes = self.held_bytes, held
        self._state.held(held - before)

    def _drop(self) -> None:
        self.answers.drop()
        self._decoding = None
        self._reader.drop()
        self._rotation.forget(self)
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self._load is not None:
            self._load.forget(self)
        if self.session is not None:
            self.session.leave()
        self.count()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self.paused_reading:
            self.paused_reading = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, if there is room for another request, or carry out the next one that has come."""
        if self._decoding is not None or self._reader.has_frame():
            if self._is_ready():
                self._rotation.wait(self, True)
        elif self._client_ended:
            if not self.answers.pending:
                self._rotation.units -= 1
                self.close()
        elif self._write_paused or self._rest is not None or len(self.answers.pending) >= self._max_in_flight:
            return
        elif self._transport is not None and self.paused_reading:
            self.paused_reading = False
            self._transport.resume_reading()
