"""What people and their tools do to the objects at any moment, beside faults of pods and operators.

Whatever that is: an epoch is never issued to two pods, no committed offset is lost, and at the end every partition is
led, or a condition says what to do next.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator
from tests.unit.operator.test_planner_properties import finish_loads
from tests.unit.operator.test_sets_properties import EVENTS, happen
from tests.unit.podapi.fake_pod import FakePod
from tests.unit.podapi.fake_volume import FakeVolume

from muster_operator.api.conditions import find_condition
from muster_operator.api.models import PartitionState, Rollout
from muster_operator.plan.scale import pods_to_run

MOST_PODS = 5

PEOPLE = st.one_of(
    st.tuples(st.just("scale"), st.integers(1, MOST_PODS)),
    st.tuples(st.just("factor"), st.sampled_from([1, 3, 5])),
    st.tuples(st.just("recreate"), st.sampled_from(["all", "cluster", "topic", "partitions"])),
    st.tuples(st.just("prune"), st.integers(0, 2)),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("workload"), st.just(0)),
)


@dataclass
class Storm:
    model: Model
    operators: list[Operator]
    volumes: dict[str, FakeVolume] = field(default_factory=dict)
    """Of pods that the workload has ended: they stay."""
    committed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Where each partition's log ends that a majority of its set had."""

    def happen(self, kind: str, what: object) -> None:
        model = self.model
        match kind:
            case "scale":
                model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, pods=what))
            case "factor":
                factor = cast(Literal[1, 3, 5], what)
                spec = replace(model.topic.spec, replication_factor=factor)
                model.topic = replace(model.topic, spec=spec, metadata=model._topic_meta())
            case "recreate":
                everything = what == "all"
                model.recreate(
                    cluster=everything or what == "cluster",
                    topic=everything or what == "topic",
                    partitions=everything or what == "partitions",
                )
                self._forget_what_nobody_promised()
            case "prune":
                if model.objects.pop(f"t-{what}", None) is not None:
                    self._forget_what_nobody_promised()
            case "suspend":
                model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, suspend=what))
            case "pause":
                model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, rollout=Rollout(bool(what))))
            case "workload":
                self.run_pods()
            case _ if what in (0, 1) or f"c-{what}" in model.running:
                happen(model, self.operators, kind, cast(int, what))
        self._note_commits()

    def run_pods(self) -> None:
        """As a StatefulSet does it, unless the cluster is suspended."""
        model = self.model
        if model.cluster.spec.suspend:
            return
        wanted = min(pods_to_run(self.operators[0].observe()), MOST_PODS)
        for name, pod in [*model.running.items()]:
            if pod.node_id >= wanted:
                self.volumes[name] = pod.volume
                model.stop(name)
                del model.running[name]
        for number in range(wanted):
            name = f"c-{number}"
            if name not in model.running:
                model.running[name] = FakePod(name, number, self.volumes.pop(name, None), model.net)
                model.down.discard(name)

    def _forget_what_nobody_promised(self) -> None:
        """An epoch that only a lost record named, and no replica promised, was led by nobody."""
        volumes = [pod.volume for pod in self.model.running.values()] + [*self.volumes.values()]
        for (name, epoch), _ in [*self.model.called.items()]:
            index = int(name[2:])
            if all(volume.replicas[index].promised < epoch for volume in volumes if index in volume.replicas):
                del self.model.called[name, epoch]

    def _note_commits(self) -> None:
        running = self.model.running
        for pod in running.values():
            for index in pod._led:
                log = pod.volume.replicas[index]
                ends = [
                    other.volume.replicas[index].end_offset
                    for other in running.values()
                    if index in other.volume.replicas and other.volume.replicas[index].log_id in log.replicas
                ]
                if 2 * sum(end >= log.end_offset for end in ends) > len(log.replicas) and not log.previous:
                    self.committed[index] = max(self.committed[index], log.end_offset)

    def calm_down(self) -> None:
        """Nothing happens any more: pods start, and one operator is left."""
        model = self.model
        for flag in ("suspend", "pause"):
            self.happen(flag, False)
        for name in [*model.running]:
            model.restart(name)
            finish_loads(model.running[name])
            for index in range(model.partitions):
                model.running[name].finish_sets(index)
        self.operators[0] = Operator(model, token=999)
        for _ in range(12):
            self.operators[0].settle(120)
            before = {*model.running}
            self.run_pods()
            if {*model.running} == before:
                return

    def obey(self) -> bool:
        """Do what the conditions say, to the letter. False: none of them has a command."""
        model = self.model
        told = [model.cluster.status.conditions, *(each.status.conditions for each in model.objects.values())]
        stalled = (find_condition(each, "Stalled") for each in told)
        found = (re.search(COMMAND, condition.message) for condition in stalled if condition is not None)
        command = next((each for each in found if each is not None), None)
        if command is None:
            return False
        kind, name, spec = command[1], command[2], json.loads(command[3])["spec"]
        match kind, spec:
            case "coordinatorcluster", {"pods": int(pods)}:
                self.happen("scale", pods)
            case "offsetstopic", {"replicationFactor": int(factor)}:
                self.happen("factor", factor)
            case "offsetspartition", {"replicas": [*pods]}:
                each = model.objects[name]
                model.objects[name] = replace(each, spec=replace(each.spec, replicas=tuple(pods)))
            case _:
                raise AssertionError(f"nothing was lost, and a person shall do this: {command[0]}")
        return True


COMMAND = r"kubectl -n ns patch (\S+) (\S+) --type merge -p '(.*?)'"


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(EVENTS, EVENTS, PEOPLE, PEOPLE), max_size=80))
def test_everything_is_ready_in_the_end_by_itself_or_by_the_commands_of_the_conditions(
    events: list[tuple[str, object]],
) -> None:
    model = Model(pods=MOST_PODS, partitions=6, replication_factor=3)
    storm = Storm(model, [Operator(model, token=1), Operator(model, token=2)])
    storm.operators[0].settle()
    for kind, what in events:
        storm.happen(kind, what)
    storm.calm_down()
    for _ in range(8):
        if not storm.obey():
            break
        storm.calm_down()
    assert {each.status.state for each in model.objects.values()} == {PartitionState.LED}
    assert len(model.objects) == model.partitions
    for each in model.objects.values():
        log = model.running[each.status.leader or ""].volume.replicas[each.spec.index]
        assert log.end_offset >= storm.committed[each.spec.index], "a committed offset is lost"
        assert len(each.status.replicas) == model.topic.spec.replication_factor or each.spec.replicas
    ready = find_condition(model.cluster.status.conditions, "Ready")
    assert ready is not None
    assert ready.status == "True", ready
    assert len(model.running) == model.cluster.spec.pods, "Ready, and other pods run than are declared"
