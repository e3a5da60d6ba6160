"""Reading from a connection: it pauses while any of several reasons holds."""

from __future__ import annotations

import asyncio
from enum import IntFlag


class Busy(IntFlag):
    """The reasons why nothing is read from a connection."""

    CLIENT_SLOW = 1
    """The client does not read its answers as fast as they come."""
    BROKER_SLOW = 2
    """The broker, or the connection to it that is being made, does not take the requests as fast as they come."""
    TOO_MANY = 4
    """Too many requests wait for their answers."""
    NOT_IN_TURN = 8
    """The next answer is not the one that the client waits for."""
    ENDED = 16
    """The other side sends no more."""
    WAITS = 32
    """The bytes that have come wait for the connection's turn."""
    PARKED = 64
    """A request waits until it is known which side serves its group."""
    ASKS = 128
    """A broker is asked for the names of the topics in a request."""


class ReadGate:
    """Pauses and resumes one transport, which may come later."""

    __slots__ = ("_reasons", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reasons = Busy(0)

    def is_closed(self, reasons: Busy) -> bool:
        """True if a reason to pause holds."""
        return bool(self._reasons) and bool(self._reasons & reasons)

    def attach(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self._reasons:
            transport.pause_reading()

    def close(self, reason: Busy) -> None:
        if not self._reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reasons |= reason

    def open(self, reason: Busy) -> None:
        if not self._reasons or not self._reasons & reason:  # flags are slow, and mostly there is none
            return
        self._reasons &= ~reason
        if not self._reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
