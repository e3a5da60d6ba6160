"""How a pod that starts opens its logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.replicas import ReplicaPods

from muster_coordinator.shard import opening
from muster_coordinator.shard.opening import Opening
from muster_coordinator.shard.replication_host import ReplicaHost

NewPods = Callable[..., Awaitable[ReplicaPods]]


async def test_start_rests_behind_a_log_that_another_pod_leads(
    new_pods: NewPods, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = await new_pods(3, partitions=4)
    for pod in pods.pods:
        await pod.kill()
    monkeypatch.setattr(opening, "RESTS", 1e12)
    monkeypatch.setattr(opening, "LONGEST_REST_S", 3600.0)
    open_one = Opening.open

    async def open_and_hear(self: Opening, host: ReplicaHost) -> None:
        if host.core is None and host.partition in (1, 2):
            self.leader_heard(host, active=host.partition == 2)
        await open_one(self, host)

    monkeypatch.setattr(Opening, "open", open_and_hear)
    await pods[2].start()
    hosts = pods[2].up.hosts
    await pods.until(lambda: hosts[2].core is not None)
    assert hosts[1].core is not None, "somebody who only stands for election is no leader"
    assert hosts[3].core is None, "it rests"
    await open_one(pods[2].up._opening, hosts[3])
    assert hosts[3].core is not None, "whoever needs a log does not wait"
