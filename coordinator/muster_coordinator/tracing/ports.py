"""Spans as those see them who tell what takes long: the ports that `tracing.spans` implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

Attribute = str | int | float | bool | Sequence[str]
NOTHING: Mapping[str, Attribute] = MappingProxyType({})


class Span(Protocol):
    """Work that is under way."""

    @property
    def trace(self) -> str:
        """Its name for another process: W3C's traceparent."""
        ...

    @property
    def trace_id(self) -> str:
        """32 hex digits, under which a collector shows it."""
        ...

    def end(self, at_s: float | None = None, **attributes: Attribute) -> None:
        """`at_s`: seconds since 1970; None: now."""
        ...


class Spans(Protocol):
    """All spans of one process. Nobody waits for them to be sent."""

    def begin(
        self,
        name: str,
        parent: str = "",
        start_s: float | None = None,
        attributes: Mapping[str, Attribute] = NOTHING,
    ) -> Span:
        """`parent`: `Span.trace` of this or another process; "", or what is no such text: a trace begins. `start_s`:
        seconds since 1970; None: now."""
        ...

    def close(self) -> None:
        """Send what waits. Takes as long as a collector that does not answer is waited for."""
        ...
