"""What people declare: the cluster and its topic, preferred leaders, the pods of a partition, an accepted loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec
from tests.simulation.cluster import Cluster
from tests.simulation.operating.machine import CLUSTER, NAMESPACE
from tests.simulation.operating.objects import Json
from tests.simulation.operating.record import TOPIC
from tests.simulation.operating.server import ApiServer

from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterSpec,
    Failover,
    OffsetsPartition,
    OffsetsTopic,
    OffsetsTopicSpec,
    partition_object_name,
)
from muster_operator.kube.objects import API_VERSION, collection_path, object_path

__all__ = ["Person"]

FAILOVER = Failover(suspect_after="1s", election_timeout="5s", rebalance_after="2s", replace_after="6s")


class Person:
    """Looks at the present objects, and tries again when somebody else was faster. `drain`: ends a pod in order."""

    def __init__(self, server: ApiServer, cluster: Cluster, drain: Callable[[str], None]) -> None:
        options = cluster.world.options
        self._server = server
        self._pods: Sequence[str] = list(cluster.pods)
        self._partitions = options.partitions
        self._factor = options.replicas
        self._drain = drain
        self._random = Random(f"person {options.seed}")
        self._create(
            CoordinatorCluster, CLUSTER, CoordinatorClusterSpec(pods=len(self._pods), image="i", failover=FAILOVER)
        )
        self._create(
            OffsetsTopic,
            TOPIC,
            OffsetsTopicSpec(ClusterRef(CLUSTER), options.partitions, self._factor),  # type: ignore[arg-type]
        )

    def _create(self, resource: type[CoordinatorCluster | OffsetsTopic], name: str, spec: msgspec.Struct) -> None:
        body = {
            "apiVersion": API_VERSION,
            "kind": resource.__name__,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": msgspec.to_builtins(spec),
        }
        self._server.objects.handle("POST", collection_path(resource, NAMESPACE), {}, body)

    def wants(self, what: str) -> None:
        """`move`, `change`, or `resign`: a pod is drained."""
        random = self._random
        index = random.randrange(self._partitions)
        if what == "move":
            self.declare(index, {"preferredLeader": random.choice(self._pods)})
        elif what == "change":
            self.declare(index, {"replicas": random.sample(self._pods, self._factor)})
        else:
            self._drain(random.choice(self._pods))

    def declare(self, index: int, changes: Json) -> None:
        """Nothing happens while the API server is away, or the partition is not there yet."""
        server = self._server
        path = object_path(OffsetsPartition, NAMESPACE, partition_object_name(TOPIC, index))
        found = server.objects.handle("GET", path, {}, None)
        if server.world.now_ms < server.down_until or found.code != 200:
            return
        server.world.log(f"a person declares {changes} of partition {index}")
        body = {**found.body, "spec": {**found.body["spec"], **changes}}
        server.objects.handle("PUT", path, {}, body)
