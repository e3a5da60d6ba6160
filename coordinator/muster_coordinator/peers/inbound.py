"""A connection that another pod opened, on which its messages arrive, or what it asks. Bad input closes this connection
only."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import msgspec
import structlog

from muster_coordinator.peers.endpoint import proven_pod
from muster_coordinator.peers.frames import (
    ASK,
    FRAME_BYTES_MAX,
    HELLO,
    HELLO_BYTES_MAX,
    PING,
    PONG,
    Hello,
    HelloError,
    decode_hello,
    decode_ping,
    encode_frame,
    partition_of,
)
from muster_coordinator.replication.messages import Message, decode_message
from muster_coordinator.wire.errors import FrameTooLargeError
from muster_coordinator.wire.framing import FrameReader

logger = structlog.get_logger(__name__)

_PONG_FRAME = encode_frame(PONG)


class InboundOwner(Protocol):
    """The network, as its incoming connections see it."""

    def accept(self, connection: Inbound) -> None:
        """A connection was made. May close it."""
        ...

    def own_hello(self, to: str) -> bytes:
        """The frame that answers a hello of pod `to`."""
        ...

    def introduced(self, connection: Inbound, hello: Hello) -> None:
        """`hello` came. Raises HelloError: the connection ends."""
        ...

    def asked(self, hello: Hello) -> asyncio.Protocol:
        """The service that takes over the connection of a pod that asks. Raises HelloError: the connection ends."""
        ...

    def announced(self, connection: Inbound, log_ids: dict[int, str]) -> None:
        """The pod of `connection` says which replicas it has, by partition."""
        ...

    def received(self, connection: Inbound, partition: int, message: Message, size: int) -> None: ...

    def rejected(self, connection: Inbound, reason: str, message: str) -> None:
        """Count and log; the connection closes."""
        ...

    def left(self, connection: Inbound) -> None:
        """The connection is gone."""
        ...


class Inbound(asyncio.Protocol):
    """`pod` and `uid` are "" until the hello. `senders`: by partition, the replica that was heard on it last, for the
    owner's use."""

    def __init__(self, owner: InboundOwner, hello_within_s: float) -> None:
        self.pod = ""
        self.uid = ""
        self.host = ""
        self.senders: dict[int, str] = {}
        self._owner = owner
        self._hello_within_s = hello_within_s
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._proven: str | None = None  # by its certificate

    def __repr__(self) -> str:
        return f"<Inbound {self.pod or '?'} at {self.host} closed={self._transport is None}>"

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.host = str(peer[0]) if peer else "unknown"
        self._proven = proven_pod(transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._hello_within_s, self._reject, "no_hello", "no hello came")
        self._owner.accept(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end()
        self._owner.left(self)

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except FrameTooLargeError as error:
            self._reject("frame_too_large", str(error))
            return
        for frame in frames:
            if self._transport is None:
                return
            try:
                self._receive(frame)
            except HelloError as error:
                self._reject(error.reason, str(error))
            except (msgspec.DecodeError, RecursionError) as error:
                self._reject("malformed", f"unreadable message: {error}")

    def pause_writing(self) -> None:
        """The other pod reads no pongs. The buffer is full of them, so the pod is not alive."""
        self.abort()

    # -- frames -------------------------------------------------------------------------------------------------------

    def _receive(self, frame: bytes) -> None:
        if not self.pod:
            self._introduce(frame)
            return
        partition = partition_of(frame)
        if partition >= 0:
            self._owner.received(self, partition, decode_message(memoryview(frame)[4:]), len(frame))
        elif partition == PING:
            log_ids = decode_ping(frame)
            if log_ids is not None:
                self._owner.announced(self, log_ids)
            self._write(_PONG_FRAME)
        else:
            raise HelloError("malformed", f"control frame {partition} is not expected here")

    def _introduce(self, frame: bytes) -> None:
        kind = ASK if partition_of(frame) == ASK else HELLO
        hello = decode_hello(frame, kind)
        if self._proven is not None and hello.pod != self._proven:
            raise HelloError("wrong_name", f"it calls itself {hello.pod!r}, and its certificate is of {self._proven!r}")
        self._write(self._owner.own_hello(hello.pod))  # also to one that is refused: it can say why in its log
        if kind == ASK:
            self._hand_over(self._owner.asked(hello))
            return
        self._owner.introduced(self, hello)
        self.pod, self.uid = hello.pod, hello.uid
        if self._deadline is not None:
            self._deadline.cancel()
        self._reader = FrameReader(FRAME_BYTES_MAX)  # nothing comes with a hello before its answer was read

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        transport, self._transport = self._transport, None
        self._end()
        self._owner.left(self)
        if transport is not None:
            transport.set_protocol(protocol)
            protocol.connection_made(transport)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _reject(self, reason: str, message: str) -> None:
        if self._transport is not None:
            self._owner.rejected(self, reason, message)
            self.close()

    def close(self) -> None:
        """Close after what was written has been sent; nothing is received any more."""
        transport, self._transport = self._transport, None
        self._end()
        if transport is not None:
            transport.close()

    def abort(self) -> None:
        transport, self._transport = self._transport, None
        self._end()
        if transport is not None:
            transport.abort()

    def _end(self) -> None:
        self._reader.drop()
        if self._deadline is not None:
            self._deadline.cancel()
