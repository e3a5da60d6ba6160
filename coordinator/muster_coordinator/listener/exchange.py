"""One request of a connection and the place of its answer: answers leave a connection in the order of its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.error_codes import error_codes
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.security.identity import Identity
from muster_coordinator.shard.ports import Answer
from muster_coordinator.wire.api import Api
from muster_coordinator.wire.framing import encode_response_frame
from muster_coordinator.wire.slicing import Slices
from muster_coordinator.wire.throttling import with_throttle_time


class Answers(Protocol):
    """The destination of a connection's answers. `slow`: the exchange whose request or answer may be large."""

    slow: Exchange | None

    def complete(self, exchange: Exchange, frame: bytes, errors: Sequence[int] = ()) -> None:
        """`exchange` is answered by `frame`, which leaves once every earlier request of the connection is answered.
        `errors`: the error codes in it."""
        ...

    def complete_in_slices(self, exchange: Exchange, body: Callable[[], Iterator[bytes]]) -> None:
        """`exchange` is answered by a large body. `body` begins to make it, slice after slice, each time the same."""
        ...

    def complete_in_steps(self, exchange: Exchange, making: Slices) -> None:
        """`exchange` is answered by the frame that `making` ends with, and the error codes in it."""
        ...


class AnsweringConnection(Protocol):
    """The connection, as an exchange knows it."""

    identity: Identity
    peer: str
    """The client's address and port; "" if it has none."""
    client_id: str | None
    """The client's name in its first request; None before it."""

    def serve(self, handlers: Mapping[type, Callable[[Any, ClientAnswer], None]]) -> None:
        """Let these carry out the requests from the next one on."""
        ...

    @property
    def answers(self) -> Answers: ...

    def close(self) -> None:
        """Close after what is ready has been written; requests in flight are not answered any more."""
        ...


class ClientAnswer(Answer, Protocol):
    """The receiver of the answer to a client's request: an Exchange, or what a guard puts in its place."""

    @property
    def version(self) -> int:
        """The version of the API that the client asked with."""
        ...

    @property
    def connection(self) -> AnsweringConnection: ...


class Exchange:
    """Implements ClientAnswer. The only object that the hot path makes for a request."""

    __slots__ = ("api", "came_s", "connection", "correlation_id", "frame", "request", "size", "version")

    def __init__(
        self,
        connection: AnsweringConnection,
        api: Api,
        version: int,
        correlation_id: int,
        request: Any,
        size: int,
        came_s: float,
    ) -> None:
        self.connection = connection
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.size = size  # of the request's frame
        self.came_s = came_s  # when it had been read whole, by the monotonic clock
        self.frame: bytes | None = None  # the answer, while earlier requests of the connection are not answered

    def answer(self, response: Any) -> None:
        version = self.version
        api = self.api
        answers = self.connection.answers
        if api.slices is not None and api.slices(version, response) is not None:
            answers.complete_in_slices(self, partial(self.slices, response))
        elif api.slices is None and answers.slow is self:
            answers.complete_in_steps(self, Slices(partial(self._made, response)))
        else:
            frame = encode_response_frame(api, version, self.correlation_id, self.whole(response))
            answers.complete(self, frame, error_codes(response))

    def _made(self, response: Any) -> tuple[bytes, Sequence[int]]:
        """The answer to a large request, and the error codes in it."""
        frame = encode_response_frame(self.api, self.version, self.correlation_id, self.whole(response))
        return frame, error_codes(response)

    def whole(self, response: Any) -> bytes:
        """The body of an answer that is not large."""
        return self.api.encode_response(self.version, response)

    def slices(self, response: Any) -> Iterator[bytes]:
        """The body of a large answer."""
        assert self.api.slices is not None
        slices = self.api.slices(self.version, response)
        assert slices is not None
        return slices

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self.request, code))


class ThrottledExchange(Exchange):
    """One above the rate of its user: its answer says for how long (ms) the connection still rests then (KIP-219)."""

    __slots__ = ("_rest_ms",)

    def __init__(
        self,
        connection: AnsweringConnection,
        api: Api,
        version: int,
        correlation_id: int,
        request: Any,
        size: int,
        came_s: float,
        rest_ms: Callable[[], int],
    ) -> None:
        super().__init__(connection, api, version, correlation_id, request, size, came_s)
        self._rest_ms = rest_ms

    def whole(self, response: Any) -> bytes:
        return self._throttled(super().whole(response))

    def slices(self, response: Any) -> Iterator[bytes]:
        slices = super().slices(response)
        yield self._throttled(next(slices))  # the field comes before what is sliced
        yield from slices

    def _throttled(self, body: bytes) -> bytes:
        return with_throttle_time(self.api, self.version, body, self._rest_ms())
