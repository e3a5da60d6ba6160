"""A connection whose client has not said yet who it is (Kafka: SaslServerAuthenticator). Then a `KafkaConnection` takes
its place.

In this order: ApiVersions, if the client likes; SaslHandshake; the tokens of the mechanism, in SaslAuthenticate or, for
a handshake of version 0, bare. Anything else closes the connection. The answer to a failed login waits, longer each
time (`admission.py`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, cast

from msgspec.structs import replace

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.rotation import QUANTUM
from muster_coordinator.listener.sasl import Sasl, told
from muster_coordinator.listener.state import Handler, ServerState
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests.refusals import has_refusal, refusal
from muster_coordinator.security.identity import Identity, normal_host
from muster_coordinator.security.sasl import LaterError, Mechanism, SaslError, Work
from muster_coordinator.wire import k17_sasl_handshake, k18_api_versions, k36_sasl_authenticate
from muster_coordinator.wire.api import RequestHeader
from muster_coordinator.wire.errors import FrameTooLargeError, UnsupportedRequestError, WireError
from muster_coordinator.wire.framing import FrameReader, encode_response_frame, read_header

_LENGTH = struct.Struct(">i")

Welcome = Callable[[Identity, int | None], asyncio.Protocol]
"""Makes what takes the connection over: (who it is, how long (ms) that counts; None: as long as it lasts)."""


class _Expected(Enum):
    VERSIONS_OR_HANDSHAKE = "versions or handshake"
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    BARE_TOKENS = "bare tokens"


class _RefusedError(Exception):
    """The connection ends; `answer` is the frame that says so, if there is one."""

    def __init__(self, reason: str, text: str, answer: bytes | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.answer = answer


class Entrance(asyncio.Protocol):
    """Implements `state.Connection` and `rotation.Taking`. `handlers` has the handler of ApiVersions."""

    def __init__(self, state: ServerState, sasl: Sasl, handlers: Mapping[type, Handler], welcome: Welcome) -> None:
        self.last_active_ms = state.clock.monotonic_ms()
        self.held_bytes = 0
        self.closing_since_ms: int | None = None
        self.identity = None
        self.is_idle = False  # a timer of its own ends it
        self._state = state
        self._sasl = sasl
        self._handlers = handlers
        self._welcome = welcome
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(min(sasl.max_receive_bytes, state.settings.socket_request_max_bytes))
        self._transport: asyncio.Transport | None = None
        self._socket: asyncio.Transport | None = None  # `_transport` until the end, also while it is closing
        self._address = ""
        self._counted = False
        self._deadline: asyncio.TimerHandle | None = None
        self._waits = False  # for a hash, or for the end of a delay
        self._is_unread = False  # the transport holds answers that the client does not read
        self._hashing: asyncio.Future[tuple[bytes, SaslError | None]] | None = None
        self._is_refused = False  # and has been told so
        self._expected = _Expected.VERSIONS_OR_HANDSHAKE
        self._mechanism: Mechanism | None = None
        self._mechanism_name = ""

    def __repr__(self) -> str:
        return f"<Entrance {self._address} {self._expected.value}>"

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._socket = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = normal_host(peer[0]) if peer else ""
        self._state.opened(self, self._address)
        self._counted = self._sasl.admission.enter(self._address)
        if not self._counted:
            self._end("too_many_logins", "too many logins of this address are under way")
            return
        timeout_s = self._sasl.login_timeout_ms / 1000
        self._deadline = self._loop.call_later(timeout_s, self._end, "login_timeout", "the login took too long")

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._socket = None
        self._state.closed(self)

    def data_received(self, data: bytes) -> None:
        is_behind = self._reader.has_frame()
        self._reader.push(data)
        if is_behind:  # a transport that has been paused may still give what it has
            self._count()
        else:
            self.take_turn()

    def pause_writing(self) -> None:
        """The client does not read: it gets no more answers."""
        self._is_unread = True
        self._go_on_reading()

    def resume_writing(self) -> None:
        self._is_unread = False
        self.take_turn()

    # -- state.Connection ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close after what is written has been sent."""
        transport = self._transport
        if transport is not None:
            self._leave()
            self.closing_since_ms = self._state.now_ms
            transport.close()

    def abort(self) -> None:
        """Close at once; what was not written is dropped."""
        transport, self._socket = self._socket, None
        if transport is not None:
            self._leave()
            transport.abort()

    def look(self, now_ms: int) -> None:
        """A client that was told why it is refused had a moment to read it: some read the end of a connection first."""
        if self._is_refused:
            self.close()

    # -- frames -------------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """Take some of the frames: a login has six at most."""
        rotation, most = self._state.rotation, QUANTUM
        while most and rotation.units > rotation.light_reserve:
            if self._waits or self._is_unread or self._transport is None:
                break
            try:
                frame = self._reader.take()
            except FrameTooLargeError as error:
                self._end("frame_too_large", str(error))
                return
            if frame is None:
                break
            most -= 1
            rotation.units -= 1
            self._take_one(frame)
        self._count()
        self._go_on_reading(has_spent=not most)

    def _go_on_reading(self, has_spent: bool = False) -> None:
        """Goes on reading when all that came is taken. What is left waits for a turn, behind other connections if this
        one `has_spent` its own."""
        if self._transport is None:
            return
        if self._waits or self._is_unread:
            self._transport.pause_reading()
        elif not self._reader.has_frame():
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
            self._state.rotation.wait(self, has_spent)

    def _take_one(self, frame: bytes) -> None:
        try:
            self._take(frame)
        except _RefusedError as error:
            self._refuse(error)
        except UnsupportedRequestError as error:
            if error.answer is not None and self._expected is _Expected.VERSIONS_OR_HANDSHAKE:
                self._write(error.answer)
            else:
                self._end("unsupported_request", str(error))
        except WireError as error:
            self._end("malformed_request", str(error))

    def _take(self, frame: bytes) -> None:
        if self._expected is _Expected.BARE_TOKENS:
            self._token(frame, self._answer_bare)
            return
        header = read_header(frame, self._state.served_versions)
        key, expected = header.api_key, self._expected
        if expected is _Expected.TOKENS and key == k36_sasl_authenticate.KEY:
            request = self._decoded(header, frame)
            self._token(request.auth_bytes, lambda token, error: self._answer_token(header, token, error))
        elif expected is _Expected.VERSIONS_OR_HANDSHAKE and key == k18_api_versions.KEY:
            self._versions(header, self._decoded(header, frame))
        elif expected is not _Expected.TOKENS and key == k17_sasl_handshake.KEY:
            self._handshake(header, self._decoded(header, frame))
        else:
            answer = self._illegal_state(header, frame) if expected is _Expected.TOKENS else None
            raise _RefusedError("sasl_state", f"{header.api.name} instead of {expected.value}", answer)

    def _decoded(self, header: RequestHeader, frame: bytes) -> Any:
        self._state.requests[header.api_key] += 1
        return header.api.decode_request(header, frame, self._address)

    def _illegal_state(self, header: RequestHeader, frame: bytes) -> bytes | None:
        """Another request in place of a token is told so; before the handshake Kafka says nothing."""
        code = ErrorCode.ILLEGAL_SASL_STATE
        request = self._decoded(header, frame)
        if isinstance(request, w.ApiVersionsRequest):
            return _frame(header, w.ApiVersionsResponse(code))
        if isinstance(request, w.SaslHandshakeRequest):
            return _frame(header, w.SaslHandshakeResponse(code))
        return _frame(header, refusal(request, code)) if has_refusal(request) else None

    def _versions(self, header: RequestHeader, request: w.ApiVersionsRequest) -> None:
        """The client is held to the server that it means after its login only (SaslServerAuthenticator)."""
        if request.cluster_id is not None and request.node_id != w.NO_NODE:
            request = replace(request, cluster_id=None, node_id=w.NO_NODE)
        answered = _Answered(header)
        self._handlers[w.ApiVersionsRequest](request, cast(ClientAnswer, answered))
        self._write(_frame(header, answered.response))
        if not answered.response.error_code:
            self._expected = _Expected.HANDSHAKE

    def _handshake(self, header: RequestHeader, request: w.SaslHandshakeRequest) -> None:
        mechanisms = self._sasl.mechanisms
        if request.mechanism not in mechanisms:
            code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            answer = _frame(header, w.SaslHandshakeResponse(code, mechanisms))
            raise _RefusedError("sasl_mechanism", "a mechanism that is not enabled", answer)
        self._mechanism_name, self._mechanism = request.mechanism, self._sasl.start(request.mechanism)
        self._expected = _Expected.TOKENS if header.api_version >= 1 else _Expected.BARE_TOKENS
        self._write(_frame(header, w.SaslHandshakeResponse(0, mechanisms)))

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _token(self, token: bytes, answer: Callable[[bytes, SaslError | None], None]) -> None:
        assert self._mechanism is not None
        try:
            step = self._mechanism.step(token)
        except SaslError as error:
            answer(b"", error)
            return
        if isinstance(step, bytes):
            answer(step, None)
        else:
            self._hash(step, answer)

    def _hash(self, work: Work, answer: Callable[[bytes, SaslError | None], None]) -> None:
        self._wait()
        hashing = self._hashing = self._loop.run_in_executor(self._sasl.hashing, _outcome, work)

        def hashed(done: asyncio.Future[tuple[bytes, SaslError | None]]) -> None:
            if self._transport is None or done.cancelled():
                return
            self._waits = False
            try:
                answer(*done.result())
            except _RefusedError as error:
                self._refuse(error)
                return
            self.take_turn()

        hashing.add_done_callback(hashed)

    def _answer_token(self, header: RequestHeader, token: bytes, error: SaslError | None) -> None:
        if isinstance(error, LaterError):
            raise _RefusedError("login", str(error))
        if error is not None:
            code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
            text = told(error, self._mechanism_name, again=False)
            raise _RefusedError("login", str(error), _frame(header, w.SaslAuthenticateResponse(code, text)))
        assert self._mechanism is not None
        lifetime_ms = self._sasl.lifetime_ms(self._mechanism) if self._mechanism.user is not None else None
        self._write(_frame(header, w.SaslAuthenticateResponse(0, "", token, lifetime_ms or 0)))
        self._let_in(lifetime_ms)

    def _answer_bare(self, token: bytes, error: SaslError | None) -> None:
        """A client of a handshake of version 0 is not told why it is refused."""
        if error is not None:
            raise _RefusedError("login", str(error))
        assert self._mechanism is not None
        if token or self._mechanism.user is not None:
            self._write(_LENGTH.pack(len(token)) + token)
        self._let_in(self._sasl.lifetime_ms(self._mechanism))

    def _let_in(self, lifetime_ms: int | None) -> None:
        """Lets the client in if all tokens are there: another protocol takes the connection over, with what the client
        has sent since.
        """
        user = self._mechanism.user if self._mechanism is not None else None
        transport = self._transport
        if user is None or transport is None:
            return
        rest = self._reader.rest()
        self._leave()
        self._socket = None
        self._state.handed_over(self)
        by = self._mechanism.by if self._mechanism is not None else ""
        protocol = self._welcome(Identity(f"User:{user}", self._address, self._mechanism_name, by), lifetime_ms)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        if rest:
            protocol.data_received(rest)

    # -- end ----------------------------------------------------------------------------------------------------------

    def _refuse(self, error: _RefusedError) -> None:
        """Refuses the client after a while in which nothing is read."""
        delay_ms = self._sasl.admission.failed(self._address, self._state.clock.monotonic_ms())
        self._wait()
        self._reader.drop()

        def end() -> None:
            if self._transport is None or error.answer is None:
                self._end(error.reason, str(error))
                return
            self._write(error.answer)
            self._refused(error.reason, str(error))
            self._is_refused = True

        self._loop.call_later(delay_ms / 1000, end)

    def _end(self, reason: str, text: str) -> None:
        if self._transport is None:
            return
        self._refused(reason, text)
        self.close()

    def _refused(self, reason: str, text: str) -> None:
        self._state.connection_errors[reason] += 1
        self._state.audit.tell(
            "login_refused", self._address, reason=reason, error=text, mechanism=self._mechanism_name
        )

    def _wait(self) -> None:
        self._waits = True
        self._go_on_reading()

    def _leave(self) -> None:
        """The connection is not this one's any more."""
        self._transport = None
        self._state.rotation.forget(self)
        if self._hashing is not None:  # others wait for the thread
            self._hashing.cancel()
        self._reader.drop()
        self._count()
        if self._deadline is not None:
            self._deadline.cancel()
        if self._counted:
            self._counted = False
            self._sasl.admission.leave(self._address)

    def _write(self, frame: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame)

    def _count(self) -> None:
        held = self._reader.held
        before, self.held_bytes = self.held_bytes, held
        self._state.held(held - before)


class _Answered:
    """The answer in place of a ClientAnswer: the handler of ApiVersions needs no more of it."""

    def __init__(self, header: RequestHeader) -> None:
        self.version = header.api_version
        self.response: Any = None

    def answer(self, response: Any) -> None:
        self.response = response


def _frame(header: RequestHeader, response: Any) -> bytes:
    api, version = header.api, header.api_version
    return encode_response_frame(api, version, header.correlation_id, api.encode_response(version, response))


def _outcome(work: Work) -> tuple[bytes, SaslError | None]:
    try:
        return work(), None
    except SaslError as error:
        return b"", error
