"""Pods and partitions: which replica is where, what all of a partition share, and what may still fail."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from tests.simulation.checker import Checker
from tests.simulation.consuming.log import ConsumerLog
from tests.simulation.history import FenceHistory, History
from tests.simulation.members import Members
from tests.simulation.pods.archive import SharedArchive
from tests.simulation.pods.process import HostedPod
from tests.simulation.pods.replica import HostedReplica
from tests.simulation.pods.statements import Statements
from tests.simulation.transactions.model import Model
from tests.simulation.world import Violation, World

from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.partition_numbers import TRANSACTIONS, index_of
from muster_coordinator.replication.sets import Sets

__all__ = ["Cluster", "Partition"]


class Partition:
    """``index``: its number. ``replicas``: by pod. ``named``: sets that somebody named in a call. ``transactions``:
    what is known of all of them, if there are any.
    """

    def __init__(self, index: int, world: World, transactions: Model | None = None) -> None:
        self.index = index
        self.world = world
        self.transactions = transactions
        self.members = Members()
        self.consumers = ConsumerLog(self.members.removed)
        self.checker = Checker(self)
        self.statements = Statements()
        self.replicas: dict[str, HostedReplica] = {}
        self._by_id: dict[str, HostedReplica] = {}
        self.histories: list[History] = []
        self.named: set[tuple[str, ...]] = set()
        self.called: set[int] = set()  # epochs of elections that somebody called
        self.fences = FenceHistory(f"fence {index}")

    @property
    def tenure(self) -> tuple[int, int]:
        """Another one when a leader may have begun to measure time-outs anew: elected, or opened by a re-shard."""
        return self.checker.highest_active, self.fences.tried

    def replica_of(self, log_id: str) -> HostedReplica | None:
        found = self._by_id.get(log_id)
        if found is None or found.storage.log_id != log_id:
            self._by_id = {one.storage.log_id: one for one in self.replicas.values()}
            found = self._by_id.get(log_id)
        return found

    def has_led(self, pod: str, epoch: int) -> bool:
        """It leads in `epoch`, is about to, or did so once."""
        replica = self.replicas[pod]
        leads = replica.core is not None and replica.core.leading_epoch == epoch
        return leads or self.checker.epochs_opened.get(epoch) == replica.storage.log_id

    def damaged(self, also: HostedReplica | None = None) -> set[str]:
        """Log ids of replicas that lost data, and have not caught up since."""
        return self.checker.lost_ids | {
            one.storage.log_id for one in self.replicas.values() if one is also or one.may_be_given_up
        }

    def is_whole(self, replicas: tuple[str, ...], also: HostedReplica | None = None) -> bool:
        """A majority of ``replicas`` has all that it acked."""
        damaged = self.damaged(also)
        return 2 * sum(one in damaged for one in replicas) < len(replicas)

    def may_name(self, sets: Sets) -> bool:
        """Whether somebody may name these sets: each keeps a majority. Remembers them."""
        if not all(self.is_whole(each) for each in sets.each):
            return False
        self.named.update(sets.each)
        return True

    def may_lose(self, replica: HostedReplica) -> bool:
        """The fault budget: of every set that anybody ever named, a majority keeps its data, and of all replicas."""
        if 2 * len(self.damaged(replica) - self.checker.lost_ids) >= self.world.options.replicas:
            return False
        return all(self.is_whole(each, replica) for each in self.named)


class Cluster:
    """Partition ``i`` begins on the pods from ``i`` on, so that leaders differ."""

    def __init__(
        self,
        world: World,
        new_pod: Callable[[str, World, SharedArchive], HostedPod] = HostedPod,
        new_replica: Callable[[HostedPod, Partition], HostedReplica] = HostedReplica,
        transactions: Model | None = None,
    ) -> None:
        options = world.options
        self.world = world
        names = [f"pod-{index}" for index in range(options.replicas + options.spares)]
        self.archive = SharedArchive(world)
        self.pods = {name: new_pod(name, world, self.archive) for name in names}
        numbers = [*range(options.partitions), *(TRANSACTIONS.first + index for index in range(options.coordinators))]
        self.partitions = [Partition(number, world, transactions) for number in numbers]
        for partition in self.partitions:
            for pod in self.pods.values():
                replica = new_replica(pod, partition)
                pod.replicas.append(replica)
                partition.replicas[pod.name] = replica
        world.listeners["data_loss_accepted"] = [
            lambda event: self.partition(event["partition"]).checker.accepts_loss(event["epoch"])
        ]
        world.listeners["replica_failed"] = [self._gives_up]
        for pod in self.pods.values():
            pod.peers = [other for other in self.pods.values() if other is not pod]
            pod.start()

    def partition(self, number: int) -> Partition:
        return next(one for one in self.partitions if one.index == number)

    def _gives_up(self, event: MutableMapping[str, Any]) -> None:
        """A host begins anew from what is durable after any error; one that is not the disk's is a defect."""
        error = event["exc_info"]
        if not isinstance(error, OSError | DamagedLogError | Violation):
            with self.world.noting():
                raise Violation(f"a replica of partition {event['partition']} gives up: {error!r}")

    def first_sets(self, partition: Partition) -> tuple[str, Sets]:
        """(pod that leads first, sets) of a new partition."""
        replicas = list(partition.replicas.values())
        first = index_of(partition.index) % len(replicas)
        turned = replicas[first:] + replicas[:first]
        chosen = turned[: self.world.options.replicas]
        sets = Sets(tuple(replica.storage.log_id for replica in chosen))
        partition.named.add(sets.replicas)
        return chosen[0].pod.name, sets

    def may_lose(self, pod: HostedPod) -> bool:
        return all(replica.partition.may_lose(replica) for replica in pod.replicas)
