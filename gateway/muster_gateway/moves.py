"""The ways of requests about movable groups: the leases of all partitions, and the requests that wait for them.

A lease is of one partition (`route_lease`). The gateway asks for those of all partitions, so that it knows the route of
every movable group before a client names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.requests.moving import LeaseAnswer, LeaseRequest, Route
from muster_gateway.route_lease import RouteLease, Way

logger = structlog.get_logger(__name__)

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # it goes on while the machine sleeps


def now_ms() -> int:
    """The time of the clock, never the event loop's, which stands still while the process does."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


@dataclass(slots=True)
class MoveCounts:
    """Requests about movable groups. `parked`: how many wait now. `delayed`: how many have had to. `given_up`: those of
    them that waited too long. `withheld`: answers of Kafka's, had or to come, that no client gets."""

    parked: int = 0
    delayed: int = 0
    given_up: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class Pledge:
    """A group's request that has gone to Kafka under a lease."""

    lease: RouteLease
    group_id: str
    term: int


class Moves:
    """`prefixes`: of the ids of movable groups, as the gateway's settings have them. `gateway`: a name that no other
    start of a gateway has. `learned`: pods let more groups move than those; what was sent to Kafka about any of them
    has no lease, so no answer to it may pass any more. `clock`: ms."""

    def __init__(
        self,
        prefixes: Sequence[str],
        gateway: str,
        learned: Callable[[], None] = lambda: None,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.prefixes = tuple(prefixes)
        self.own = self.prefixes
        """The beginnings that the settings name."""
        self._learned = learned
        self.counts = MoveCounts()
        self.gateway = gateway
        self._clock = clock
        self._leases: list[RouteLease] = []
        self._watchers: set[Callable[[], None]] = set()

    # -- what clients ask ---------------------------------------------------------------------------------------------

    def is_movable(self, group_id: str) -> bool:
        """True if a request about the group has to have a lease. Until the leader of its partition has answered once,
        that is any group: it may have moved before this gateway started, whatever the settings name."""
        return group_id.startswith(self.prefixes) or _may_have_moved(group_id, self._lease(group_id))

    def way(self, group_id: str) -> Way:
        """The way of a request of a movable group now."""
        lease = self._lease(group_id)
        return lease.way(group_id, self._clock()) if lease is not None else Way.WAIT

    def is_at_muster(self, group_id: str) -> bool:
        """True if the group has moved, as far as the gateway has heard."""
        lease = self._lease(group_id)
        return lease is not None and lease.is_at_muster(group_id)

    def is_unknown(self, group_id: str) -> bool:
        """True if the movable group may have moved without the gateway's knowing."""
        lease = self._lease(group_id)
        if not (group_id.startswith(self.prefixes) or _may_have_moved(group_id, lease)):
            return False
        return lease is None or not (lease.is_at_muster(group_id) or lease.is_held(self._clock()))

    def sent(self, group_ids: Iterable[str]) -> tuple[Pledge, ...]:
        """A request about these groups, all on their way to Kafka, is sent there."""
        pledges = []
        for group_id in group_ids:
            lease = self._lease(group_id)
            assert lease is not None, "only a lease sends to Kafka"
            pledges.append(Pledge(lease, group_id, lease.sent(group_id)))
        return tuple(pledges)

    def answered(self, pledges: Iterable[Pledge]) -> bool:
        """Kafka's answer is here, or the client is gone. Returns whether the answer may pass."""
        now = self._clock()
        passes = [each.lease.answered(each.group_id, each.term, now) for each in pledges]  # each is told
        return all(passes)

    def may_pass(self, pledges: Iterable[Pledge]) -> bool:
        """True if an answer could still pass, if it came now."""
        now = self._clock()
        return all(each.lease.is_current(each.term, now) for each in pledges)

    def watch(self, look: Callable[[], None]) -> None:
        """`look` is called whenever leases may have changed, until `unwatch`."""
        self._watchers.add(look)

    def unwatch(self, look: Callable[[], None]) -> None:
        self._watchers.discard(look)

    # -- leases -------------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """The number of partitions of Muster's offsets topic; 0: no pod has said so yet."""
        return len(self._leases)

    @property
    def held(self) -> int:
        """Leases that hold now."""
        now = self._clock()
        return sum(lease.is_held(now) for lease in self._leases)

    @property
    def is_fenced(self) -> bool:
        """True if a group is moving."""
        return any(lease.fenced for lease in self._leases)

    def learn_partitions(self, count: int) -> bool:
        """Returns whether leases of that many partitions are what this gateway can use: the number never changes."""
        if count and not self._leases:
            self._leases = [RouteLease(self.gateway) for _ in range(count)]
        return bool(count) and count == len(self._leases)

    def learn_movable(self, prefixes: Iterable[str]) -> None:
        """A pod lets groups move whose ids begin so. They are movable from now on, until the gateway ends."""
        new = tuple([each for each in prefixes if not each.startswith(self.prefixes)])
        if new:
            self.prefixes += new
            logger.warning("movable_groups_learned", groups=shown_prefixes(new), setting="muster.movable.groups")
            self._learned()

    def ask(self, partition: int) -> LeaseRequest:
        return self._leases[partition].ask(self._clock())

    def take(self, partition: int, answer: LeaseAnswer) -> bool:
        """Returns whether it names a fence that this gateway has not heard of."""
        lease = self._leases[partition]
        is_first, fenced = not lease.has_answer, lease.fenced
        changed = lease.take(answer, self._clock())
        for route in changed if not is_first else ():
            _tell(partition, route)
        return not lease.fenced <= fenced

    def look(self) -> None:
        """Leases may have begun, ended, or say something else."""
        for look in tuple(self._watchers):
            look()

    def _lease(self, group_id: str) -> RouteLease | None:
        return self._leases[partition_for(group_id, len(self._leases))] if self._leases else None


def _may_have_moved(group_id: str, lease: RouteLease | None) -> bool:
    """True if the group has a route, or its partition's leader has not told the routes yet."""
    return lease is None or not lease.has_answer or lease.has_route(group_id)


def shown_prefixes(prefixes: Iterable[str]) -> list[str]:
    """The form that settings have."""
    return [each or "*" for each in prefixes]


def _tell(partition: int, route: Route) -> None:
    side = "muster" if route.at_muster else "kafka"
    logger.info("group_moved", group=route.group_id, to=side, epoch=route.epoch, partition=partition)
