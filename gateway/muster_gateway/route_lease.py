"""Decides to which side a gateway sends a movable group's requests, and whether it may pass an answer of Kafka's on.
The leader of the group's partition at Muster says so, and its word holds as long as a lease lasts. No I/O.

Source: docs/adr/0048.
"""

from __future__ import annotations

from enum import Enum

from muster_coordinator.requests.moving import LeaseAnswer, LeaseRequest, Route


class Way(Enum):
    KAFKA = "kafka"
    MUSTER = "muster"
    WAIT = "wait"


ASKED_MAX = 64
"""Requests that are remembered. An answer to an older one comes too late to be of use."""


class RouteLease:
    """A gateway's lease for the groups of one partition. `gateway`: a name that no other start of a gateway has. Times
    are of the gateway's monotonic clock (ms)."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._number = 0
        self._asked_ms: dict[int, int] = {}
        self._until_ms = -1
        self._term = 0
        self._answer = LeaseAnswer(0, -1, 0, (), ())
        self._routes: dict[str, Route] = {}
        self._fenced: frozenset[str] = frozenset()
        self._outstanding: dict[str, int] = {}

    def ask(self, now_ms: int) -> LeaseRequest:
        self._look(now_ms)
        self._number += 1
        self._asked_ms[self._number] = now_ms
        self._asked_ms.pop(self._number - ASKED_MAX, None)
        return LeaseRequest(self._gateway, self._number, self._answer.leader_epoch, self._drained())

    def take(self, answer: LeaseAnswer, now_ms: int) -> list[Route]:
        """Returns the routes that are new. An answer that was overtaken by a later one, or by another leader's, says
        nothing any more."""
        self._look(now_ms)
        asked_ms = self._asked_ms.get(answer.number)
        if asked_ms is None or answer.leader_epoch < self._answer.leader_epoch:
            return []
        self._asked_ms = {number: at_ms for number, at_ms in self._asked_ms.items() if number > answer.number}
        self._answer = answer
        self._until_ms = asked_ms + answer.lease_ms
        self._fenced = frozenset(fence.group_id for fence in answer.fences)
        changed = []
        for route in answer.routes:
            known = self._routes.get(route.group_id)
            if known is None or route.epoch > known.epoch:
                self._routes[route.group_id] = route
                changed.append(route)
        return changed

    @property
    def has_answer(self) -> bool:
        """True if a leader has answered once."""
        return self._answer.number > 0

    def has_route(self, group_id: str) -> bool:
        """True if the group has ever moved, as far as the gateway has heard."""
        return group_id in self._routes

    @property
    def fenced(self) -> frozenset[str]:
        return self._fenced

    def is_held(self, now_ms: int) -> bool:
        self._look(now_ms)
        return self._until_ms >= 0

    def is_at_muster(self, group_id: str) -> bool:
        """True if the group has moved, as far as the gateway has heard. Not for requests about it: they have a way."""
        route = self._routes.get(group_id)
        return route is not None and route.at_muster

    def way(self, group_id: str, now_ms: int) -> Way:
        """The way of a request of the group now. Muster refuses what it does not serve, so that needs no lease."""
        self._look(now_ms)
        if group_id in self._fenced:
            return Way.WAIT
        if self.is_at_muster(group_id):
            return Way.MUSTER
        return Way.KAFKA if now_ms < self._until_ms else Way.WAIT

    def sent(self, group_id: str) -> int:
        """A request goes to Kafka. Returns what `answered` wants."""
        self._outstanding[group_id] = self._outstanding.get(group_id, 0) + 1
        return self._term

    def answered(self, group_id: str, term: int, now_ms: int) -> bool:
        """Kafka's answer is here, or the client is gone: whether the answer may pass. If not, the client's connection
        ends: the lease has ended since the request was sent, so the group may have moved before Kafka took it."""
        self._look(now_ms)
        if term != self._term:
            return False
        left = self._outstanding[group_id] - 1
        if left:
            self._outstanding[group_id] = left
        else:
            del self._outstanding[group_id]
        return True

    def is_current(self, term: int, now_ms: int) -> bool:
        """True if an answer to what was sent in that term would pass now."""
        self._look(now_ms)
        return term == self._term

    def _drained(self) -> frozenset[int]:
        return frozenset(fence.number for fence in self._answer.fences if fence.group_id not in self._outstanding)

    def _look(self, now_ms: int) -> None:
        """With the end of a lease no answer to what was sent under it will pass."""
        if self._until_ms >= 0 and now_ms >= self._until_ms:
            self._term += 1
            self._until_ms = -1
            self._outstanding.clear()
