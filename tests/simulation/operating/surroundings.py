"""Puts a run with real operators together: API server, network, pods, kubelets, people, operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from aiohttp import web_app
from tests.simulation.cluster import Cluster
from tests.simulation.operating.machine import Kubernetes
from tests.simulation.operating.mischief import ApiMischief
from tests.simulation.operating.operator import RealOperator
from tests.simulation.operating.person import Person
from tests.simulation.operating.pods import OperatedPod, OperatedReplica
from tests.simulation.operating.record import OperatedStore, Recorded
from tests.simulation.operating.server import ApiServer
from tests.simulation.operating.volumes import VolumeCopies
from tests.simulation.operating.wire import Wire
from tests.simulation.world import World

__all__ = ["Operated"]


class Operated:
    """`operators`: the last one goes on when the faults stop."""

    def __init__(self, world: World) -> None:
        self.api = ApiServer(world)
        wire, recorded = Wire(world), Recorded(self.api)
        self.cluster = Cluster(world, partial(OperatedPod, wire=wire, recorded=recorded), OperatedReplica)
        recorded.follow(self.cluster)
        kubernetes = Kubernetes(self.cluster, self.api, wire)
        person = Person(self.api, self.cluster, self._drain)
        pods = list(self.cluster.pods)
        self.stores: Sequence[OperatedStore] = [
            OperatedStore(recorded, partition.index, pods, person.declare) for partition in self.cluster.partitions
        ]
        self.operators = [
            RealOperator(f"op-{index}", f"lease-{index if world.options.two_leases else 0}", self.api, wire, person)
            for index in range(world.options.operators)
        ]

        VolumeCopies(self.cluster)
        ApiMischief(self.api, recorded, kubernetes, self.operators)

    def close(self) -> None:
        """The run is over. aiohttp remembers applications; without that all of the run is collected."""
        web_app._cached_build_middleware.cache_clear()

    def _drain(self, name: str) -> None:
        pod = self.cluster.pods[name]
        assert isinstance(pod, OperatedPod)
        pod.drain()
