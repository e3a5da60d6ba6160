"""The actions on objects and logs that follow from the decisions about partitions: what is made, deleted, or asked for
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_operator.api.models import OffsetsTopic
from muster_operator.plan.actions import Action, CreatePartitions, CreateReplicas, Refresh, RemoveReplicas
from muster_operator.plan.decision import Decision
from muster_operator.plan.objects import Objects
from muster_operator.plan.observation import CallKind, Observation
from muster_operator.plan.reshard import indexes
from muster_operator.plan.set_change import removable


def missing_partitions(topic: OffsetsTopic, objects: Objects) -> Iterator[Action]:
    """Make the OffsetsPartitions that the topic lacks."""
    missing = tuple(index for index in indexes(topic) if index not in objects.recorded)
    if missing:
        yield CreatePartitions(topic, missing)


def new_replicas(seen: Observation, topic: OffsetsTopic, decisions: Mapping[int, Decision]) -> Iterator[Action]:
    """Create replicas of the topic, with one call to each pod."""
    creating = {
        index: decision.create_on
        for index, decision in decisions.items()
        if decision.create_on and index in topic.numbers
    }
    for pod in seen.pods if creating else ():
        created = tuple(index for index, pods in creating.items() if pod.name in pods)
        if created and (CallKind.CREATE, pod.name) not in seen.busy:
            yield CreateReplicas(pod.name, created, topic.spec.segment_bytes)


def removals(seen: Observation, objects: Objects, decisions: Mapping[int, Decision]) -> Iterator[Action]:
    """Delete the logs of replicas that left, as recorded: the leader's log names only the present set, and that set is
    committed.
    """
    left = [
        (index, decision.status)
        for index, decision in decisions.items()
        if decision.elect is None and objects.recorded[index].status.left
    ]
    for pod in seen.pods if left else ():
        those = [
            (index, view.log_id, status.led_epoch)
            for index, status in left
            if (view := pod.replicas.get(index)) is not None and removable(status, pod.name, view)
        ]
        if those and pod.is_up and (CallKind.REMOVE, pod.name) not in seen.busy:
            yield RemoveReplicas(pod.name, tuple(those))


def refreshes(seen: Observation, decisions: Mapping[int, Decision]) -> Iterator[Action]:
    """Read the status of the pods anew whose answers leave something open."""
    for pod in sorted({decision.refresh for decision in decisions.values() if decision.refresh}):
        if (CallKind.REFRESH, pod) not in seen.busy:
            yield Refresh(pod)
