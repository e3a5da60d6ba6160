"""The leases under which gateways send requests of movable groups to Kafka, as the leader of a partition knows them."""

from __future__ import annotations

from muster_coordinator.requests.moving import LeaseRequest

CLOCKS_DIFFER = 10
"""The leader takes a lease to be longer by this part of it: a tenth covers two clocks that go wrong by 4% each."""


class Leases:
    """`lease_ms`: how long a gateway takes one to be. `loaded_ms`: when this leader could give its first. Times are
    of the leader's monotonic clock (ms)."""

    def __init__(self, leader_epoch: int, lease_ms: int, loaded_ms: int) -> None:
        self._leader_epoch = leader_epoch
        self._longest_ms = lease_ms + lease_ms // CLOCKS_DIFFER
        self._unknown_until_ms = loaded_ms + self._longest_ms
        self._until_ms: dict[str, int] = {}
        self._drained: dict[str, tuple[int, frozenset[int]]] = {}

    def asked(self, request: LeaseRequest, now_ms: int) -> None:
        """A gateway asks, and will be answered."""
        self._until_ms[request.gateway] = now_ms + self._longest_ms
        number, _ = self._drained.get(request.gateway, (-1, frozenset()))
        if request.number > number:
            drained = request.drained if request.leader_epoch == self._leader_epoch else frozenset[int]()
            self._drained[request.gateway] = (request.number, drained)

    def gateways(self, now_ms: int) -> tuple[str, ...]:
        """Those that have a lease."""
        self._forget(now_ms)
        return tuple(self._until_ms)

    def are_known(self, now_ms: int) -> bool:
        """True if no lease of an earlier leader is left."""
        return now_ms >= self._unknown_until_ms

    def are_drained(self, fence: int, now_ms: int) -> bool:
        """True if each gateway that has a lease has nothing outstanding behind the fence."""
        self._forget(now_ms)
        return all(fence in drained for _, drained in self._drained.values())

    def _forget(self, now_ms: int) -> None:
        for gateway in [gateway for gateway, until_ms in self._until_ms.items() if until_ms <= now_ms]:
            del self._until_ms[gateway], self._drained[gateway]
