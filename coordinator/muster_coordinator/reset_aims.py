"""The offset at which a reset puts a partition, in the words of Kafka's own tool, kafka-consumer-groups. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

AimKind = Literal["earliest", "latest", "current", "offset", "shiftBy", "datetime", "file"]


class Aim(msgspec.Struct, frozen=True):
    """The aim of a reset. `number`: an offset, how far to shift, or milliseconds since 1970."""

    kind: AimKind
    number: int = 0


class Edges(msgspec.Struct, frozen=True):
    """The first offset of a partition, and the one behind its last record."""

    start: int
    end: int


class Impossible(ValueError):
    """A group that cannot be reset as asked, with the reason."""


def aimed(aim: Aim, name: str, now: int | None, edges: Edges, found: int | None) -> tuple[int, str]:
    """The offset, and why it is another one than was asked for, "" if it is not.

    `name`: of the partition, for people. `now`: what is committed; None if nothing is. `found`: the offset that a file
    has, or that of the first record that is not older than the time; None if all are. Raises Impossible.
    """
    match aim.kind:
        case "earliest":
            return edges.start, ""
        case "latest":
            return edges.end, ""
        case "current":
            return (now, "") if now is not None else (edges.end, "nothing is committed: the end")
        case "datetime":
            return (found, "") if found is not None else (edges.end, "nothing is as new: the end")
        case "shiftBy":
            if now is None:
                raise Impossible(f"nothing is committed for {name}, so there is nothing to shift")
            return _within(now + aim.number, edges)
        case "offset" | "file":
            return _within(aim.number if found is None else found, edges)


def _within(offset: int, edges: Edges) -> tuple[int, str]:
    """Kafka's tool does not leave what is in the log either."""
    if offset > edges.end:
        return edges.end, f"{offset} is behind the end"
    if offset < edges.start:
        return edges.start, f"{offset} is before the start"
    return offset, ""
