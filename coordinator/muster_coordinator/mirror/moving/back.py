"""The way back of a group from Muster to Kafka: its steps, and what is appended at their end. No I/O.

Muster's shard takes the commits of the group one after the other, so the comparison and the route, which are one
operation of it, need no gateway's word. The fence only keeps new commits from making the two sides differ for ever.
Nothing that this leader or an earlier one has written can come to Kafka after that: `pod/mirroring/writing`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from muster_coordinator.mirror.moving.at_kafka import GroupAtKafka
from muster_coordinator.mirror.moving.leases import Leases
from muster_coordinator.mirror.moving.move import Move, Step, Task
from muster_coordinator.mirror.write_back import has_members, only_there
from muster_coordinator.requests.groups import OffsetFetchResponse


class WayBack(Move):
    def look(self, leases: Leases, position: int, complete: bool, open_transactions: bool, now_ms: int) -> Task | None:
        if self._has_ended(now_ms):
            return None
        if self.step is Step.WAITING and leases.are_known(now_ms):
            self._put_fence(now_ms)
        elif self.step is Step.DRAINING and leases.are_drained(self.number, now_ms) and not open_transactions:
            self.step = Step.WRITING
            return Task.WRITE
        return None

    def written(self) -> Task | None:
        """Kafka has taken the offsets."""
        if self.step is not Step.WRITING:
            return None
        self.step = Step.COMPARING
        return Task.COMPARE

    def compared(self, difference: str) -> Task | None:
        """`difference`: between Kafka's offsets and those here. A commit that was under way makes one, and is written
        then."""
        if self.step is not Step.COMPARING:
            return None
        self.step = Step.WRITING if difference else Step.DECIDING
        return Task.WRITE if difference else Task.DECIDE


@dataclass(frozen=True)
class DecideBackRequest:
    """`there`: Kafka's answers, asked for in `COMPARING`."""

    group_id: str
    move: WayBack
    there: GroupAtKafka


class DecideBackResponse(msgspec.Struct, frozen=True, gc=False):
    """`reason`: why the group stays at Muster; "": the route was appended, and is committed, unless `write_again`."""

    reason: str
    write_again: bool = False


def trouble_at_kafka(there: GroupAtKafka, here: OffsetFetchResponse) -> str:
    """The reason why Kafka cannot take the group, from its answers; "": it can."""
    described, fetched = there.described, there.fetched
    if described.error_code:
        return f"Kafka answers {there.describing} with error code {int(described.error_code)}"
    if has_members(described):
        return (
            f"it has members at Kafka, where it is {described.group_state}: those of before the move, until their"
            " session ends, or clients that do not come by gateways"
        )
    if fetched.error_code:
        return f"Kafka answers OffsetFetch with error code {int(fetched.error_code)}"
    removed = only_there(here, fetched)
    if removed:
        topic, partition = removed[0]
        return (
            f"Kafka has an offset of {topic}-{partition} that was removed here: remove it there as well"
            " (kafka-consumer-groups --delete-offsets), or commit it here"
        )
    return ""
