"""POST and GET /v1/moves: live groups move from Kafka to Muster, or back, at the leader of their partition
(docs/adr/0048)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_coordinator.podapi.fields import Answer, Request


class MoveRequest(Request, frozen=True):
    """`dry_run`: say what stands in the way, and start nothing. `back`: from Muster to Kafka."""

    group: Annotated[str, msgspec.Meta(min_length=1, max_length=32_767)]
    dry_run: bool = False
    back: bool = False


class MoveStatus(Answer, frozen=True):
    """`step`: as `mirror.moving.move.Step` has them. `reason`: why it was given up, "" if it was not. `fenced_ms`: how
    long the group's requests have waited, or did."""

    group: str
    partition: int
    step: str
    reason: str
    fenced_ms: int
    back: bool = False


class MoveAnswer(Answer, frozen=True):
    """`obstacles`: what stands in the way; if there is anything, no move was started. `move`: that of the group, which
    may have been under way before; None: there is none."""

    obstacles: tuple[str, ...]
    move: MoveStatus | None


class RoutedGroup(Answer, frozen=True):
    """A group that has moved: `at_muster`, or back. `unwritten_ms`: for how long offsets of it may not be at Kafka,
    which would be lost with all pods; 0: none; -1: not known yet, or none is written. `write_problem`: why Kafka does
    not get them; "" if nothing is wrong."""

    group: str
    partition: int
    epoch: int
    at_muster: bool
    unwritten_ms: int = -1
    write_problem: str = ""


class MovesAnswer(Answer, frozen=True):
    """`moves`: those under way at this pod, and the last ones that ended there; its memory has them, no log.
    `routes`: the groups that have moved, of all partitions that the pod leads."""

    moves: tuple[MoveStatus, ...]
    routes: tuple[RoutedGroup, ...]
