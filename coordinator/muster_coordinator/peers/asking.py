"""The connection of a pod that asks another one what brokers ask of one another: hellos, then Kafka's requests in one
direction and their answers in the other (ADR 34)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from muster_coordinator.peers.frames import HELLO_BYTES_MAX, Hello, HelloError, decode_hello
from muster_coordinator.wire.errors import FrameTooLargeError
from muster_coordinator.wire.framing import FrameReader

ANSWER_BYTES_MAX = 1 << 20


class Asking(asyncio.Protocol):
    """`received` gets the frame of each answer, without its length; `lost` why the connection is gone, unless `close`
    was called."""

    def __init__(
        self,
        hello: bytes,
        check: Callable[[Hello], None],
        received: Callable[[bytes], None],
        lost: Callable[[str], None],
    ) -> None:
        """`check` raises HelloError for the hello of a pod that is not the one that was called."""
        self._hello = hello
        self._check = check
        self._received = received
        self._lost = lost
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._introduced = False
        self._unsent: list[bytes] = []  # until the other pod has said who it is
        self._transport: asyncio.Transport | None = None

    def __repr__(self) -> str:
        return f"<Asking introduced={self._introduced} closed={self.is_closed}>"

    @property
    def is_closed(self) -> bool:
        return self._transport is None

    def send(self, frame: bytes) -> None:
        """A request, with its length."""
        if not self._introduced:
            self._unsent.append(frame)
        elif self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc is not None else "the other pod closed the connection")

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                if self._transport is None:
                    return
                if self._introduced:
                    self._received(frame)
                else:
                    self._introduce(frame)
        except (FrameTooLargeError, HelloError) as error:
            self._end(str(error))

    def _introduce(self, frame: bytes) -> None:
        self._check(decode_hello(frame))
        self._introduced = True
        self._reader = FrameReader(ANSWER_BYTES_MAX)  # nothing comes with a hello: it answers requests
        unsent, self._unsent = self._unsent, []
        for each in unsent:
            self.send(each)

    def _end(self, reason: str) -> None:
        if self._transport is not None:
            self.close()
            self._lost(reason)
