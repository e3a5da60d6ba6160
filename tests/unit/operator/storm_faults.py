"""Faults planted in the operator, and by which seed the GitOps storm catches each of them.

`python -m tests.unit.operator.storm --fault NAME` looks for the first seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace
from tests.simulation.faults.fault import Fault

from muster_operator.api.conditions import Reason
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, OffsetsTopic
from muster_operator.kube import pod_objects
from muster_operator.plan import adopt, failover, planner, scale
from muster_operator.plan.actions import ReplaceVolume, RestartPod
from muster_operator.plan.adopt import Found
from muster_operator.plan.cluster_facts import ClusterFacts
from muster_operator.plan.decision import Decision
from muster_operator.plan.identity import Identity
from muster_operator.plan.observation import Observation
from muster_operator.plan.partition_view import PartitionView
from muster_operator.steps import pods as pods_step

__all__ = ["STORM_FAULTS"]


# -- people's objects -------------------------------------------------------------------------------------------------


def _declared_pods(seen: Observation) -> int:
    assert seen.cluster is not None
    return 0 if seen.cluster.spec.hibernate else seen.cluster.spec.pods


def _no_logs(seen: Observation, records: Mapping[int, OffsetsPartition]) -> Found:
    return Found({}, {})


def _without_old_volumes(seen: Observation) -> int:
    return _pods_to_run(with_fields(seen, volumes=0))


_pods_to_run = scale.pods_to_run


def _id_of_the_object(seen: Observation) -> Identity:
    assert seen.cluster is not None
    return Identity(seen.cluster.status.cluster_id or seen.cluster.metadata.uid or "ns.c")


def _whatever_is_suspended(seen: Observation, now: float) -> tuple[Any, ...]:
    if seen.cluster is not None and seen.cluster.spec.suspend:
        seen = with_fields(seen, cluster=replace(seen.cluster, spec=replace(seen.cluster.spec, suspend=False)))
    return _plan(seen, now)


_plan = planner.plan


# -- what is told -----------------------------------------------------------------------------------------------------


def _never_rolling_out(seen: Observation) -> None:
    return None


def _says_nothing(found: OffsetsPartitionStatus, reason: Reason, message: str) -> Decision:
    return _leaderless(found, reason, "")


_leaderless = failover.leaderless


def _nothing_is_incomplete(*arguments: object) -> str:
    return ""


# -- leaders and pods -------------------------------------------------------------------------------------------------


def _as_recorded(self: PartitionView) -> int:
    return self.status.epoch


def _any_outdated(
    seen: Observation, facts: ClusterFacts, expected: Sequence[int], statuses: Mapping[int, OffsetsPartitionStatus]
) -> Iterator[RestartPod]:
    yield from (RestartPod(pod.name, pod.uid) for pod in seen.pods if pod.outdated)


def _one_is_enough(members: frozenset[str], those: Sequence[str]) -> bool:
    return any(each in those for each in members)


def _rolls_on(topic: OffsetsTopic, objects: Any) -> bool:
    return True


def _whatever_has_waited(
    seen: Observation, topics: Sequence[OffsetsTopic], statuses: Mapping[int, OffsetsPartitionStatus]
) -> Iterator[ReplaceVolume]:
    assert seen.cluster is not None
    after_s = parse_duration(seen.cluster.spec.storage.give_up_after)
    yield from [ReplaceVolume(each) for each in seen.stranded if 0 < after_s <= each.for_s][:1]


STORM_FAULTS = {
    "the StatefulSet shrinks first": Fault(6, pods_step, "pods_to_run", _declared_pods),
    "an empty status is taken for a new topic": Fault(4, planner, "read_logs", _no_logs),
    "volumes of pods that are not declared any more are forgotten": Fault(
        18, pods_step, "pods_to_run", _without_old_volumes
    ),
    "a cluster that is created again is another Kafka cluster": Fault(2, planner, "identify", _id_of_the_object),
    "a suspended cluster is worked on": Fault(1, planner, "plan", _whatever_is_suspended),
    "ready is computed from the old generation": Fault(1, planner, "verdict_of_rollout", _never_rolling_out),
    "a reason has no words": Fault(4, failover, "leaderless", _says_nothing),
    "a foreign object is adopted": Fault(1, pod_objects, "belongs_to", lambda meta, cluster: True),
    "an epoch is not above the promise": Fault(1, PartitionView, "highest_epoch", _as_recorded),
    "a rollout restarts whatever is outdated": Fault(1, planner, "restart", _any_outdated),
    "a minority of the logs is enough": Fault(27, adopt, "_is_majority", _one_is_enough),
    "a rollout goes on beside a partition that lacks something": Fault(69, planner, "_is_settled", _rolls_on),
    "a claim is replaced without a majority elsewhere": Fault(15, planner, "replace_volume", _whatever_has_waited),
    "copies that are declared and lack are no reason": Fault(8, planner, "incomplete_sets", _nothing_is_incomplete),
}
