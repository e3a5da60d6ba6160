"""The verdict of a cluster while pods are asked, down, or ready."""

from __future__ import annotations

from msgspec.structs import replace

from muster_operator.api.conditions import Reason, find_condition
from muster_operator.api.models import (
    CoordinatorCluster,
    CoordinatorClusterSpec,
    CoordinatorClusterStatus,
    ObjectMeta,
    OffsetsPartitionStatus,
    PartitionState,
)
from muster_operator.plan.identity import Identity
from muster_operator.plan.observation import Connection, Observation, PodView
from muster_operator.plan.status import cluster_status
from muster_operator.plan.verdict import Verdict

LED = (OffsetsPartitionStatus(state=PartitionState.LED),)
ALL_LED = Verdict(Reason.ALL_LED, "all 1 partitions are led", ready=True)


def status(before: CoordinatorClusterStatus, *connections: Connection) -> CoordinatorClusterStatus:
    cluster = CoordinatorCluster(
        ObjectMeta(name="c", namespace="n", generation=1), CoordinatorClusterSpec(pods=len(connections)), before
    )
    pods = tuple(PodView(f"c-{i}", i, connection, ready=True) for i, connection in enumerate(connections))
    seen = Observation("n", "c", cluster=cluster, pods=pods)
    return cluster_status(seen, LED, ALL_LED, Identity("id"), now="1970-01-01T00:00:00Z")


def reason(of: CoordinatorClusterStatus) -> tuple[str, str]:
    condition = find_condition(of.conditions, "Ready")
    assert condition is not None
    return condition.status, condition.reason


def test_operator_that_has_just_started_does_not_take_back_what_it_does_not_know() -> None:
    ready = status(CoordinatorClusterStatus(), Connection.UP, Connection.UP)
    assert reason(ready) == ("True", "AllPartitionsLed")
    asking = status(ready, Connection.UNSURE, Connection.UP)
    assert reason(asking) == ("True", "AllPartitionsLed")
    assert asking.ready_pods == 2


def test_pod_that_is_known_to_be_down_is_news() -> None:
    ready = status(CoordinatorClusterStatus(), Connection.UP, Connection.UP)
    down = status(ready, Connection.DOWN, Connection.UP)
    assert reason(down) == ("False", "PodsNotReady")
    assert down.ready_pods == 1


def test_cluster_that_was_never_seen_is_not_ready_while_its_pods_are_asked() -> None:
    first = status(CoordinatorClusterStatus(), Connection.UNSURE)
    assert reason(first) == ("False", "PodsNotReady")
    changed = status(
        replace(status(CoordinatorClusterStatus(), Connection.UP), observed_generation=0), Connection.UNSURE
    )
    assert reason(changed)[0] == "False", "the verdict was about an older spec"
