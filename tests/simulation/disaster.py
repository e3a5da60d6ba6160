"""A partition loses the data of a majority: it stays leaderless until a person passes ``allowDataLoss``.

Unless its leader survived: then the others are rebuilt from it, and nothing is lost. Some log keeps records: from
nothing at all nobody is elected.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.cluster import Partition
from tests.simulation.pods.replica import HostedReplica
from tests.simulation.store import Recorded

__all__ = ["Disaster", "flip_bit", "lose_volume"]

PATIENCE_MS = 3_000
STEP_MS = 200


def flip_bit(replica: HostedReplica) -> None:
    replica.flip_bit()


def lose_volume(replica: HostedReplica) -> None:
    """With all other replicas of the pod."""
    for one in replica.pod.replicas:
        one.partition.checker.lost_ids.add(one.storage.log_id)
    replica.pod.lose_volume()


class Disaster:
    """Strikes once. `take`: what happens to the data of a replica whose pod is down."""

    def __init__(
        self,
        partition: Partition,
        store: Recorded,
        at_ms: int,
        take: Callable[[HostedReplica], None],
    ) -> None:
        self._partition = partition
        self._world = partition.world
        self._store = store
        self._take = take
        self._leaderless_ms = 0
        self._world.at(at_ms, self._strike)

    def _strike(self) -> None:
        random, replicas = self._world.random, self._store.record.sets.members
        left = [one for one in replicas if self._has_records(one)]
        if not left:
            return  # it was never placed, or has nothing
        spared = random.choice(left)
        others = [one for one in replicas if one != spared]
        struck = random.sample(others, min(len(replicas) // 2 + 1, len(others)))
        self._world.log(f"disaster: {' '.join(one[:4] for one in struck)} lose data")
        self._partition.checker.loss_allowed = True
        for log_id in struck:
            replica = self._partition.replica_of(log_id)
            if replica is not None:
                replica.pod.crash()
                self._take(replica)
                self._world.at(random.randint(1, 300), replica.pod.start)
        self._watch()

    def _has_records(self, log_id: str) -> bool:
        replica = self._partition.replica_of(log_id)
        return replica is not None and replica.storage.durable.end > 0 and not replica.storage.lost

    def _watch(self) -> None:
        """The person looks from time to time, and acts when nobody leads for long."""
        replicas = self._partition.replicas.values()
        leads = any(one.core is not None and one.core.is_active for one in replicas)
        self._leaderless_ms = 0 if leads else self._leaderless_ms + STEP_MS
        if self._leaderless_ms > PATIENCE_MS:
            self._leaderless_ms = 0
            if self._store.allow_loss():
                self._world.log("a person allows data loss")
        self._world.at(STEP_MS, self._watch)
