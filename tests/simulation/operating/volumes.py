"""Volumes that somebody has copied: for a while a pod runs with a copy of another one's, so the same logs are twice.

Pods notice that as soon as one of them hears both. A copy that begins where nobody hears the first is that replica as
far as they can know, and may harm: so the network is quiet meanwhile (`profiles.COPIES`), and both pods run.
"""

from __future__ import annotations

from random import Random

from tests.simulation.cluster import Cluster
from tests.simulation.injected import Injected

__all__ = ["VolumeCopies"]

COPIED_MS = (1_000, 5_000)


class VolumeCopies:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = Random(f"copied volumes {cluster.world.options.seed}")
        self._world.every(self._world.options.copy_volume_every_ms, self._copy)

    def _copy(self) -> None:
        pods = list(self._cluster.pods.values())
        source, pod = self._random.sample(pods, 2)
        if any(each.carries_copy for each in pods) or not source.serves or not source.manager.hosts:
            return
        self._world.log(f"{pod.name} gets a copy of the volume of {source.name}")
        self._world.injected[Injected.VOLUME_COPIED] += 1
        pod.crash()
        own, pod.disk, pod.carries_copy = pod.disk, source.disk.clone(), True
        pod.start()

        def gets_its_own() -> None:
            self._world.log(f"{pod.name} gets its own volume back")
            pod.crash()
            pod.disk, pod.carries_copy = own, False
            pod.start()

        self._world.at(self._random.randint(*COPIED_MS), gets_its_own)
