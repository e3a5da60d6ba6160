"""What the replicas here know of leaders, for the answers to clients: ``cluster_view.LeaderKnowledge``."""

from __future__ import annotations

from muster_coordinator.peers.network import PeerNetwork
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.replication.epochs import NOBODY
from muster_coordinator.states import LEADING_STATES

__all__ = ["PromisedLeaders"]


class PromisedLeaders:
    """A replica promises an epoch to whom it is sealed by, well before an image names that leader."""

    def __init__(self, pod: str, manager: ReplicaManager, network: PeerNetwork) -> None:
        self._pod = pod
        self._manager = manager
        self._network = network

    def promised(self, partition: int) -> tuple[int, str] | None:
        replica = self._manager.replicas.get(partition)
        if replica is None:
            return None
        epoch, leader = replica.promised.epoch, replica.promised.leader
        if leader == NOBODY:
            return epoch, ""
        if leader == replica.log_id:
            shard = self._manager.shards.get(partition)
            host = self._manager.hosts.get(partition)
            leads = shard is not None and shard.state in LEADING_STATES
            return epoch, self._pod if leads or (host is not None and host.is_electing) else ""
        pod = self._network.pod_of(leader)
        return epoch, "" if pod is None or self._network.is_lost(pod) else pod

    def is_lost(self, pod: str) -> bool:
        return self._network.is_lost(pod)
