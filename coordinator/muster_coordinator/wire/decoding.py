"""Large requests are decoded a slice at a time: others have their turn between two slices (ADR 51).

A decoder is plain code that reads one field after the other. A `Decoding` runs it in a greenlet of its own, and each
`pause` of the decoder ends a slice. A decoder that is called without one does not notice.
"""

from __future__ import annotations

from functools import partial

from greenlet import getcurrent, greenlet

from muster_coordinator.wire.api import RequestHeader


class _Decoder(greenlet):
    """The greenlet of a `Decoding`: `pause` leaves those of others alone."""


class Decoding:
    """A large request that is being decoded. Who forgets it before its end, ends the decoder."""

    def __init__(self, header: RequestHeader, frame: bytes, client_host: str) -> None:
        self.header = header
        self.size = len(frame)
        self._decoder = _Decoder(partial(header.api.decode_request, header, frame, client_host))

    def step(self) -> object | None:
        """Decode a slice. Returns the request after the last one, None before; raises WireError."""
        request: object | None = self._decoder.switch()
        return request


def pause() -> None:
    """Called by decoders after every SLICE_ENTRIES entries."""
    decoder = getcurrent()
    parent = decoder.parent if isinstance(decoder, _Decoder) else None
    del decoder  # one that its own frame holds would never be forgotten
    if parent is not None:
        parent.switch(None)
