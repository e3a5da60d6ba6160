"""The requests of one client about movable groups: on their way to Kafka or to Muster, or parked until there is one.

One request of a connection is parked at a time, and nothing that the client sent after it is taken before it goes on:
so its connection's order holds, and it takes no more memory than one request. Other connections are not touched. When a
client has closed its connection, what it has left parked is dropped: it goes on by another one, and commits of before
must not come after those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from muster_gateway.errors import ClientError, GatewayError
from muster_gateway.moves import Moves, Pledge
from muster_gateway.route_lease import Way
from muster_gateway.slots import Slot


class LeaseEndedError(GatewayError):
    """A request that went to Kafka may never be answered: its group may have moved before Kafka took it."""


class ParkedTooLongError(GatewayError):
    """A request has waited for longer than its client would."""


class Parked:
    """A request that waits. `timer`: for when it has waited too long."""

    __slots__ = ("frame", "groups", "slot", "timer")

    def __init__(self, slot: Slot, frame: bytes, groups: tuple[str, ...], timer: asyncio.TimerHandle) -> None:
        self.slot = slot
        self.frame = frame
        self.groups = groups
        self.timer = timer


class MovableRequests:
    """`is_served`: whether Muster serves a group for good. `to_kafka(slot, frame)` and `to_muster(slot, frame, group)`
    send, `mixed(slot, frame)` refuses what is of both, `hold(True)` keeps what comes after. `ends_if_gone()` is true if
    the client has closed its connection, `answered(slot, frame)` takes an answer of Kafka's that may pass, `fail` ends
    the client's connection."""

    def __init__(
        self,
        moves: Moves,
        park_s: float,
        is_served: Callable[[str], bool],
        *,
        to_kafka: Callable[[Slot, bytes], None],
        to_muster: Callable[[Slot, bytes, str], None],
        mixed: Callable[[Slot, bytes], None],
        hold: Callable[[bool], None],
        ends_if_gone: Callable[[], bool],
        answered: Callable[[Slot, bytes], None],
        fail: Callable[[str, Exception], None],
    ) -> None:
        self._moves = moves
        self._park_s = park_s
        self._is_served = is_served
        self._to_kafka = to_kafka
        self._to_muster = to_muster
        self._mixed = mixed
        self._hold = hold
        self._ends_if_gone = ends_if_gone
        self._answered = answered
        self._fail = fail
        self._parked: Parked | None = None
        self._pledges: dict[Slot, tuple[Pledge, ...]] = {}
        self._watches = False

    def take(self, slot: Slot, frame: bytes, groups: tuple[str, ...]) -> None:
        """A request of the client, in its order; of several groups, each has its way."""
        if not self._went(slot, frame, groups):
            self._park(slot, frame, groups)
        self._watch()

    def look(self) -> None:
        """Leases may have changed."""
        for pledges in self._pledges.values():
            if not self._moves.may_pass(pledges):
                self._withhold(pledges)
                return
        parked = self._parked
        if parked is None or self._ends_if_gone():
            return
        self._parked = None
        try:
            went = self._went(parked.slot, parked.frame, parked.groups)
        except ClientError as error:
            went = True
            self._fail(error.reason, error)
        if went:
            self._let_go(parked)
            self._hold(False)
        else:
            self._parked = parked
        self._watch()

    def close(self) -> None:
        """The client is gone."""
        if self._parked is not None:
            self._let_go(self._parked)
            self._parked = None
        for pledges in self._pledges.values():
            self._moves.answered(pledges)
        self._pledges.clear()
        self._watch()

    def _went(self, slot: Slot, frame: bytes, groups: tuple[str, ...]) -> bool:
        """Send the request where its groups are; False: that is not known now. Raises ClientError."""
        ways = {self._way(group) for group in groups}
        if Way.WAIT in ways:
            return False
        if len(ways) > 1:  # only of who found the coordinators before one of them moved: it finds them again
            self._mixed(slot, frame)
        elif Way.MUSTER in ways:
            self._to_muster(slot, frame, groups[0])
        else:
            self._pledges[slot] = self._moves.sent(filter(self._moves.is_movable, groups))
            slot.edit = self._from_kafka
            self._to_kafka(slot, frame)
        return True

    def _way(self, group_id: str) -> Way:
        if self._is_served(group_id):
            return Way.MUSTER
        return self._moves.way(group_id) if self._moves.is_movable(group_id) else Way.KAFKA

    def _from_kafka(self, slot: Slot, frame: bytes) -> None:
        pledges = self._pledges.pop(slot, None)
        if pledges is None:  # the client is gone
            return
        if self._moves.answered(pledges):
            self._answered(slot, frame)
        else:
            self._withhold(pledges)
        self._watch()

    def _withhold(self, pledges: tuple[Pledge, ...]) -> None:
        self._moves.counts.withheld += 1
        groups = ", ".join(sorted({repr(each.group_id) for each in pledges}))
        self._fail("lease_ended", LeaseEndedError(f"Kafka's answer about {groups} came too late, or would"))

    def _park(self, slot: Slot, frame: bytes, groups: tuple[str, ...]) -> None:
        timer = asyncio.get_running_loop().call_later(self._park_s, self._too_long, groups)
        self._parked = Parked(slot, frame, groups, timer)
        self._moves.counts.parked += 1
        self._moves.counts.delayed += 1
        self._hold(True)

    def _let_go(self, parked: Parked) -> None:
        parked.timer.cancel()
        self._moves.counts.parked -= 1

    def _too_long(self, groups: tuple[str, ...]) -> None:
        self._moves.counts.given_up += 1
        unknown = next((each for each in groups if self._moves.is_unknown(each)), None)
        why = f"no pod of Muster gives a lease for group {unknown!r}" if unknown is not None else "a group is moving"
        self._fail("parked_too_long", ParkedTooLongError(f"{why}, for {self._park_s:g} s"))

    def _watch(self) -> None:
        if self._parked is not None or self._pledges:
            self._moves.watch(self.look)
        else:
            self._moves.unwatch(self.look)
