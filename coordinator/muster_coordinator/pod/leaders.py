"""The leaders that the replicas here know, for the answers to clients."""

from __future__ import annotations

from muster_coordinator.peers.network import PeerNetwork
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.replication.epochs import NOBODY
from muster_coordinator.states import LEADING_STATES


class PromisedLeaders:
    """Implements `cluster_view.LeaderKnowledge`. A replica promises an epoch to the one that seals it, well before an
    image names that leader.
    """

    def __init__(self, pod: str, partitions: Partitions, network: PeerNetwork) -> None:
        self._pod = pod
        self._partitions = partitions
        self._network = network

    def promised(self, partition: int) -> tuple[int, str] | None:
        host = self._partitions.hosts.get(partition)
        if host is None:
            return None
        replica = host.replica
        epoch, leader = replica.promised.epoch, replica.promised.leader
        if leader == NOBODY:
            return epoch, ""
        if leader == replica.log_id:
            shard = self._partitions.shards.get(partition)
            leads = shard is not None and shard.state in LEADING_STATES
            return epoch, self._pod if leads or host.is_electing else ""
        pod = self._network.pod_of(leader)
        return epoch, "" if pod is None or self._network.is_lost(pod) else pod

    def is_lost(self, pod: str) -> bool:
        return self._network.is_lost(pod)
