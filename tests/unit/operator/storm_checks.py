"""What must hold of each plan of the GitOps storm when it is made: of a fresh observation."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.operator.model import Model
from tests.unit.operator.storm_kube import StormKube, image_of, settings_of

from muster_operator.api.conditions import find_condition
from muster_operator.plan.actions import (
    Action,
    RecordLeadership,
    ReplaceVolume,
    RestartPod,
    WriteClusterStatus,
    WritePartitionStatus,
    WriteTopicStatus,
)
from muster_operator.plan.observation import Observation
from muster_operator.store.workload import pod_settings

__all__ = ["check_plan"]


def check_plan(model: Model, kube: StormKube, seen: Observation, actions: Sequence[Action]) -> None:
    if model.cluster.spec.suspend:
        told = (WriteClusterStatus,)
        assert all(isinstance(each, told) for each in actions), f"a suspended cluster is not left alone: {actions}"
    for each in actions:
        if isinstance(each, RestartPod):
            _check_restart(model, each.pod)
        if isinstance(each, ReplaceVolume):
            _check_replacement(model, kube, each.volume.pod, actions)
        if isinstance(each, (WriteClusterStatus, WritePartitionStatus, WriteTopicStatus)):
            told_of = each.status.conditions
            assert all(one.reason and one.message for one in told_of), f"nobody learns why: {told_of}"
            if isinstance(each, WritePartitionStatus):
                assert each.status.reason, f"no reason: {each.status}"
    _check_ready(model, kube, actions)


def _check_restart(model: Model, name: str) -> None:
    assert not model.cluster.spec.rollout.paused, "a paused rollout goes on"
    if name in model.down or name not in model.running:
        return
    for index, log in model.running[name].volume.replicas.items():
        if log.log_id not in log.replicas or len(log.replicas) == 1:
            continue
        others = [pod for pod in model.net.holders(index, log.replicas).values() if pod.name != name]
        assert 2 * len(others) > len(log.replicas), f"without pod {name}, partition {index} has no majority"
        assert index not in model.running[name]._led, f"pod {name} leads partition {index}, and is restarted"


def _check_replacement(model: Model, kube: StormKube, name: str, actions: Sequence[Action]) -> None:
    """By what the logs say, and not by what any operator has recorded."""
    assert sum(isinstance(each, ReplaceVolume) for each in actions) == 1, "two volumes are given up at once"
    assert kube.api.objects.get("nodes", "", kube.node_of(name)) is None, f"the node of pod {name} is there"
    assert name not in model.running, f"pod {name} runs, and loses its volume"
    logs = [(index, log) for pod in model.running.values() for index, log in pod.volume.replicas.items()]
    for index, log in logs:
        gone = [log_id for log_id in log.replicas if not model.net.holders(index, [log_id])]
        if log.log_id in log.replicas and index in _led(model):
            assert 2 * len(gone) < len(log.replicas), f"the volume of pod {name} is needed by partition {index}"


def _led(model: Model) -> set[int]:
    return {index for pod in model.running.values() for index in pod._led}


def _check_ready(model: Model, kube: StormKube, actions: Sequence[Action]) -> None:
    cluster = model.cluster
    status = next((each.status for each in actions if isinstance(each, WriteClusterStatus)), cluster.status)
    ready = find_condition(status.conditions, "Ready")
    if ready is None or ready.status != "True" or ready.observed_generation != cluster.metadata.generation:
        return
    if any(isinstance(each, RecordLeadership) for each in actions):
        return  # what is told of it follows
    spec = cluster.spec
    lines = "\n".join(f"{key}={value}" for key, value in sorted(pod_settings(cluster).items()))
    for name, pod in kube.pods.items():
        assert spec.image in (None, image_of(pod)), f"Ready, and pod {name} runs {image_of(pod)}"
        assert settings_of(pod) == lines, f"Ready, and pod {name} has the settings {settings_of(pod)!r}"
