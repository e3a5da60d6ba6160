"""The partitions of a pod: what is here, and what it leads."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.shard.shard import Shard


@dataclass(frozen=True)
class Partitions:
    """The replicas that are here (`hosts`) and the shards that this pod leads or failed to lead, by partition.

    The replica manager fills and changes both. The event loop alone reads them.
    """

    hosts: dict[int, ReplicaHost] = field(default_factory=dict)
    shards: dict[int, Shard] = field(default_factory=dict)
