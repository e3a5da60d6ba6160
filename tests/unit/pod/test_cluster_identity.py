"""A volume remembers the Kafka cluster and the layout that it belongs to, and the pod on it takes no others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.pod.test_drain import IMAGE, FakeManager, draining_pod

from muster_coordinator.log.disk import OsDisk
from muster_coordinator.pod.control import Pod
from muster_coordinator.pod.last_image import LastImage
from muster_coordinator.podapi.control import RefusedCallError


def idle(tmp_path: Path, *, first: bool = False) -> Pod:
    """A pod without replicas, started as the process does it."""
    manager = FakeManager()
    manager.replicas, manager.shards = {}, {}
    pod = draining_pod(tmp_path, manager, drain_timeout_ms=0, image=IMAGE if first else None)
    remembered = LastImage(OsDisk(), tmp_path).load()
    if remembered is not None:
        pod.remember(remembered)
    return pod


async def test_cluster_and_layout_of_the_last_image_are_shown_also_after_a_restart(tmp_path: Path) -> None:
    pod = idle(tmp_path)
    status = pod.status()
    assert (status.cluster_id, status.offsets_base, status.offsets_partitions) == ("", 0, 0)
    pod.update_metadata(msgspec.structs.replace(IMAGE, offsets_base=50, offsets_partitions=7))
    await pod.stop()
    status = idle(tmp_path).status()
    assert (status.cluster_id, status.offsets_base, status.offsets_partitions) == ("c", 50, 7)


@pytest.mark.parametrize("restarted", [False, True])
async def test_image_of_another_cluster_is_refused_whatever_its_number(tmp_path: Path, restarted: bool) -> None:
    pod = idle(tmp_path, first=True)
    if restarted:
        await pod.stop()
        pod = idle(tmp_path)
    with pytest.raises(RefusedCallError, match="belongs to Kafka cluster 'c', not 'another'") as refused:
        pod.update_metadata(msgspec.structs.replace(IMAGE, cluster_id="another", token=99, version=99))
    assert (refused.value.code, refused.value.problem.reason) == (409, "ForeignCluster")
    assert pod.status().fencing_token == 1, "the call of a stranger fences no operator"
    pod.update_metadata(msgspec.structs.replace(IMAGE, version=2))
    await pod.stop()
