"""The GitOps storm: what people and their tools do to the objects at any moment, beside faults of pods and operators.

`storm(seed)` draws it, and raises AssertionError where one of these does not hold, whatever happens:

- no epoch is issued to two pods, and none is led by two logs;
- a leader has every record that was committed;
- a suspended cluster is left alone, and a rollout takes no pod without which a partition has no majority;
- Ready is true only of what runs; every condition has a reason and a message;
- in the end everything is ready, by itself or by what the conditions say, and then nothing more is done.

`python -m tests.unit.operator.storm --seeds 2000`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections import defaultdict
from contextlib import ExitStack, nullcontext
from random import Random
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace
from tests.unit.operator.storm_events import MOST_PODS, PARTITIONS, draw, draw_of_nodes
from tests.unit.operator.storm_kube import BROKEN, StormKube, image_of, is_waiting
from tests.unit.operator.storm_operator import StormModel, StormOperator
from tests.unit.podapi import fake_pod
from tests.unit.podapi.fake_pod import FakePod
from tests.unit.podapi.fake_volume import FakeVolume

from muster_operator.api.conditions import Reason, find_condition
from muster_operator.api.models import PartitionState, Rollout
from muster_operator.plan.actions import Refresh

EVENTS = 120
"""Drawn for a seed, at most."""
OF_NODES = 0.15
"""How often one of nodes follows."""


class Storm:
    """One run. `random` draws everything."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = Random(~seed) if seed % 4 == 2 else None
        """Draws what happens to nodes, in a part of the seeds: the others are as they were without it."""
        self.model = StormModel(pods=self.random.choice([3, 3, 5]), partitions=PARTITIONS, replication_factor=3)
        self.model.running.clear()
        self.model.net.pods.clear()
        self.kube = StormKube()
        self.operators = [StormOperator(self.model, self.kube, token) for token in (1, 2)]
        self.volumes: dict[str, FakeVolume] = {}
        """Of pods that do not run: they stay."""
        self._uids: dict[str, str] = {}
        """Of the pods whose processes run."""
        self._claims: dict[str, str] = {}
        """Uids of the claims of these volumes."""
        self.committed: dict[int, set[tuple[int, int]]] = defaultdict(set)
        """(epoch, end) of logs of which a majority had it, by partition."""
        self.led: dict[tuple[int, int], str] = {}
        """The log that led, by partition and epoch."""
        self._backups: list[tuple[Any, Any, dict[str, Any]]] = []
        self.trace: list[str] = []

    # Time goes on

    def happen(self, kind: str, what: Any = None) -> None:
        if kind not in ("act", "control", "restart", "fast", "plan", "finish"):
            self.trace.append(f"{kind} {what}")
        getattr(self, f"_{kind}")(what)
        self._kubelets()
        self._check_logs()
        self.kube.check_foreign()

    def _kubelets(self) -> None:
        """The processes are those of the pods that exist; those of a broken image do not run."""
        model, pods = self.model, self.kube.pods
        for name in [*model.running]:
            if name not in pods or self._uids[name] != pods[name]["metadata"]["uid"] or is_waiting(pods[name]):
                self.volumes[name] = model.running[name].volume
                model.stop(name)
                del model.running[name]
                model.down.discard(name)
        for name, raw in pods.items():
            if is_waiting(raw):
                continue
            if name not in model.running:
                model.running[name] = FakePod(name, int(name[2:]), self._volume_of(name), model.net)
                self._uids[name] = raw["metadata"]["uid"]
                model.net.replicate()
            if image_of(raw) == BROKEN:
                model.stop(name)

    def _volume_of(self, name: str) -> FakeVolume | None:
        """The one that is bound to its claim; None: an empty one."""
        claim = self.kube.claim_of(name)
        assert claim is not None
        uid, volume = claim["metadata"]["uid"], self.volumes.pop(name, None)
        before = self._claims.get(name)
        self._claims[name] = uid
        return volume if before == uid else None

    def _check_logs(self) -> None:
        running = {name: pod for name, pod in self.model.running.items() if name not in self.model.down}
        newest: dict[int, tuple[int, FakePod]] = {}
        for pod in running.values():
            for index, epoch in pod._led.items():
                log = pod.volume.replicas[index]
                if epoch != log.promised:
                    continue
                holder = self.led.setdefault((index, epoch), log.log_id)
                assert holder == log.log_id, f"two logs led partition {index} in epoch {epoch}"
                if epoch > newest.get(index, (-1, pod))[0]:
                    newest[index] = (epoch, pod)
        for index, (_, pod) in newest.items():
            log = pod.volume.replicas[index]
            for epoch, end in self.committed[index]:
                assert log.has(epoch, end), f"partition {index} lost what was committed at {end} in epoch {epoch}"
            there = self.model.net.holders(index, log.replicas)
            same = [each for each in there if there[each].volume.replicas[index].rank == log.rank]
            if 2 * len(same) > len(log.replicas) and not log.previous:
                self.committed[index].add(log.rank)

    # Operators

    def _plan(self, which: int) -> None:
        self.operators[which].replan()

    def _act(self, which: int) -> None:
        self.operators[which].act()

    def _finish(self, which: int) -> None:
        while self.operators[which].todo:
            self.operators[which].act()

    def _crash(self, which: int) -> None:
        token = max(each.token for each in self.operators) + 1
        self.operators[which] = StormOperator(self.model, self.kube, token)

    # Pods

    def _control(self, _: Any) -> None:
        self.kube.control()

    def _restart(self, name: str) -> None:
        if name in self.model.running:
            self.model.restart(name)

    def _stop(self, name: str) -> None:
        if name in self.model.running:
            self.model.stop(name)

    def _drain(self, name: str) -> None:
        if name in self.model.running:
            self.model.running[name].drained = True

    def _seal(self, name: str) -> None:
        """A replica has promised an epoch that no operator has issued."""
        pod = self.model.running.get(name)
        if pod is not None and name not in self.model.down:
            for index, replica in pod.volume.replicas.items():
                if replica.used:
                    pod.promise_elsewhere(index, replica.promised + 2)

    def _slow(self, name: str) -> None:
        if name in self.model.running:
            self.model.running[name].slow_sets.update(range(PARTITIONS))

    def _fast(self, name: str) -> None:
        pod = self.model.running.get(name)
        if pod is not None and name not in self.model.down:
            for index in range(PARTITIONS):
                pod.finish_sets(index)

    def _commit(self, name: str) -> None:
        """Groups commit in every partition that the pod leads."""
        pod = self.model.running.get(name)
        if pod is not None and name not in self.model.down:
            for index in pod._led:
                pod.volume.replicas[index].end_offset += 3
            pod.replicate()

    def _lose(self, name: str) -> None:
        """A volume, if every other replica of its partitions is there and has everything."""
        pod = self.model.running.get(name)
        if pod is not None and name not in self.model.down and self._can_be_lost(pod):
            self.model.lose_volume(name)

    def _lose_node(self, name: str) -> None:
        """For good, unless it comes back: what is on it counts as lost."""
        pod = self.model.running.get(name)
        if pod is not None and name not in self.model.down and self._can_be_lost(pod):
            self.kube.lose_node(name)

    def _node_back(self, name: str) -> None:
        self.kube.bring_node_back(name)

    def _can_be_lost(self, pod: FakePod) -> bool:
        for index, log in pod.volume.replicas.items():
            there = self.model.net.holders(index, log.replicas)
            others = [each.volume.replicas[index] for each in there.values() if each is not pod]
            whole = all(each.rank == log.rank and each.replicas == log.replicas for each in others)
            if log.used and (len(others) < 2 or len(there) < len(log.replicas) or not whole or log.previous):
                return False
        return True

    # People and their tools

    def _declare(self, spec: dict[str, Any]) -> None:
        """Of the cluster."""
        model = self.model
        changed = replace(model.cluster.spec, **spec)
        if changed != model.cluster.spec:
            meta = replace(model.cluster.metadata, generation=model.cluster.metadata.generation + 1)
            model.cluster = replace(model.cluster, spec=changed, metadata=meta)

    def _factor(self, factor: Any) -> None:
        model = self.model
        spec = replace(model.topic.spec, replication_factor=factor)
        meta = replace(model._topic_meta(), generation=model.topic.metadata.generation + 1)
        model.topic = replace(model.topic, spec=spec, metadata=meta)

    def _recreate(self, what: str) -> None:
        """Objects are deleted and applied again. What a cluster owns goes with it, or is orphaned."""
        if what in ("cluster", "all"):
            self.kube.deleted_cluster(orphan=self.random.random() < 0.5)
        self.model.recreate(
            cluster=what in ("cluster", "all"),
            topic=what in ("topic", "all"),
            partitions=what in ("topic", "partitions", "all"),
        )
        self._forget_what_was_not_led()

    def _rename(self, _: Any) -> None:
        """The topic has another name in Git, so the tool prunes the one before."""
        model = self.model
        other = "u" if model.topic.metadata.name == "t" else "t"
        model.recreate(cluster=False, topic=True, partitions=True)
        model.topic = replace(model.topic, metadata=replace(model._topic_meta(), name=other))
        self._forget_what_was_not_led()

    def _prune(self, index: int) -> None:
        if self.model.objects.pop(f"{self.model.topic.metadata.name}-{index}", None) is not None:
            self._forget_what_was_not_led()

    def _prefer(self, index: int) -> None:
        self._declare_partition(index, preferred_leader=f"c-{self.random.randrange(MOST_PODS)}")

    def _place(self, index: int) -> None:
        factor = self.model.topic.spec.replication_factor
        pods = [f"c-{number}" for number in range(self.model.cluster.spec.pods)]
        asked = self.random.sample(pods, factor) if self.random.random() < 0.5 and factor <= len(pods) else ()
        self._declare_partition(index, replicas=tuple(asked))

    def _declare_partition(self, index: int, **spec: Any) -> None:
        name = f"{self.model.topic.metadata.name}-{index}"
        if each := self.model.objects.get(name):
            self.model.objects[name] = replace(each, spec=replace(each.spec, **spec), metadata=self.model._meta(name))

    def _forget_status(self, _: Any) -> None:
        """As Velero restores a namespace."""
        model = self.model
        model.recreate(partitions=False)
        for name, each in model.objects.items():
            model.objects[name] = replace(each, status=type(each.status)(), metadata=model._meta(name))
        self._forget_what_was_not_led()

    def _back_up(self, _: Any) -> None:
        model = self.model
        statuses = {name: each.status for name, each in model.objects.items()}
        self._backups.append((model.cluster.status, model.topic, statuses))

    def _restore(self, _: Any) -> None:
        """Statuses are what they were."""
        model = self.model
        if not self._backups:
            return
        of_cluster, topic, statuses = self.random.choice(self._backups)
        if topic.metadata.name != model.topic.metadata.name:
            return
        model.cluster = replace(model.cluster, status=of_cluster)
        model.topic = replace(model.topic, status=topic.status, metadata=model._topic_meta())
        for name, each in model.objects.items():
            status = statuses.get(name, type(each.status)())
            model.objects[name] = replace(each, status=status, metadata=model._meta(name))
        self._forget_what_was_not_led()

    def _kubectl(self, what: tuple[str, str, str]) -> None:
        verb, plural, name = what
        getattr(self.kube, verb)(plural, name)

    def _edit_set(self, pods: int) -> None:
        self.kube.edit_number(pods)

    def _forget_what_was_not_led(self) -> None:
        """An epoch that only a lost record named, and that no majority promised, can be named again (ADR 23)."""
        self.model.losses += 1
        self.model.called = {led: pod for led, pod in self.model.called.items() if led in self.led}

    # The end

    def calm_down(self) -> None:
        """Nothing happens any more: pods run, and one operator is left. It ends when nothing is left to do but to ask
        pods how far they are, which they have told.
        """
        self.trace.append("calm")
        for name in [*self.model.running]:
            self.happen("restart", name)
            self.happen("fast", name)
        last = StormOperator(self.model, self.kube, token=1 + max(each.token for each in self.operators))
        self.operators[0] = last
        for _ in range(400):
            before = self.kube.api.objects.revision
            actions = last.replan()
            last.ensure()
            while last.todo:
                self.happen("act", 0)
            self.happen("control")
            self.model.now += 10
            quiet = all(isinstance(each, Refresh) for each in actions) and not last.has_news
            if quiet and self.kube.api.objects.revision == before:
                return
        raise AssertionError(f"no end of plans: {last.replan()}")

    def obey(self) -> bool:
        """Do what the conditions say, to the letter. False: there is nothing to do."""
        model = self.model
        ready = find_condition(model.cluster.status.conditions, "Ready")
        assert ready is not None
        in_words = (remedy for text, remedy in _IN_WORDS.items() if text in ready.message)
        remedy = _REMEDIES.get(ready.reason) or next(in_words, None)
        if remedy is not None:
            self.happen("declare", remedy)
            return True
        told = [model.cluster.status, model.topic.status, *(each.status for each in model.objects.values())]
        stalled = (find_condition(each.conditions, "Stalled") for each in told)
        found = (re.search(_COMMAND, condition.message) for condition in stalled if condition is not None)
        command = next((each for each in found if each is not None), None)
        if command is None:
            return False
        verb, kind, name, rest = command.groups()
        spec = json.loads(rest.partition("'")[2].rpartition("'")[0])["spec"] if verb == "patch" else {}
        match verb, kind, spec:
            case "patch", "coordinatorcluster", {"pods": int(pods)}:
                self.happen("declare", {"pods": pods})
            case "patch", "offsetstopic", {"replicationFactor": int(factor)}:
                self.happen("factor", factor)
            case "patch", "offsetspartition", {"replicas": [*pods]}:
                self._declare_partition(model.objects[name].spec.index, replicas=tuple(pods))
            case "delete", ("service" | "statefulset" | "poddisruptionbudget"), _:
                self.happen("kubectl", ("delete", f"{kind}s", name))
            case "delete", claim, _ if claim.startswith("pvc/"):
                self.kube.delete("persistentvolumeclaims", claim.removeprefix("pvc/"))
                self.kube.delete("pods", name.removeprefix("pod/").rstrip(";"))
            case _:
                raise AssertionError(f"nothing was lost, and a person shall do this: {command[0]}")
        return True

    def check_end(self) -> None:
        model = self.model
        ready = find_condition(model.cluster.status.conditions, "Ready")
        assert ready is not None
        assert ready.status == "True", f"no progress, and no next step: {ready.reason}: {ready.message}"
        assert self.operators[0].replan() == (), "everything is ready, and something more is done"
        assert {each.status.state for each in model.objects.values()} == {PartitionState.LED}
        assert len(model.objects) == model.partitions
        for each in model.objects.values():
            assert len(each.status.replicas) == model.topic.spec.replication_factor or each.spec.replicas
        assert len(model.running) == model.cluster.spec.pods, "Ready, and other pods run than are declared"


_COMMAND = r"kubectl -n ns (patch|delete) (\S+) (\S+)( --type merge -p '.*?')?"
_REMEDIES: dict[str, dict[str, Any]] = {
    Reason.SUSPENDED: {"suspend": False},
    Reason.HIBERNATED: {"hibernate": False},
    Reason.ROLLOUT_PAUSED: {"rollout": Rollout()},
    Reason.ROLLOUT_HALTED: {"image": "muster:2"},
    Reason.INVALID_SETTINGS: {"settings": {}},
}
_IN_WORDS: dict[str, dict[str, Any]] = {
    "spec.rollout.paused keeps": {"rollout": Rollout()},
    "CrashLoopBackOff": {"image": "muster:2"},
}
"""What conditions ask for in words: they name the field or the pod, and only people know the right value."""


def storm(seed: int) -> Storm:
    """Run a seed. AssertionError says what did not hold; other exceptions are faults of the operator too."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(fake_pod, "_log_numbers", itertools.count(1)))
        made = Storm(seed)
        try:
            made.calm_down()
            for _ in range(made.random.randint(EVENTS // 3, EVENTS)):
                made.happen(*draw(made.random))
                if made.nodes is not None and made.nodes.random() < OF_NODES:
                    made.happen(*draw_of_nodes(made.nodes))
            made.calm_down()
            for _ in range(12):
                if not made.obey():
                    break
                made.calm_down()
            made.check_end()
        except Exception as error:
            error.add_note("\n".join([f"seed {seed}:", *made.trace]))
            raise
    return made


def main() -> None:
    from tests.unit.operator.storm_faults import STORM_FAULTS

    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--fault", choices=[*STORM_FAULTS], help="plant it, and end at the first seed that catches it")
    options = parser.parse_args()
    failed = 0
    with STORM_FAULTS[options.fault].plant() if options.fault else nullcontext():
        for seed in range(options.first, options.first + options.seeds):
            try:
                storm(seed)
            except Exception as error:  # whatever it is, this seed has found it
                failed += 1
                print(f"seed {seed}: {error!r}")
                if options.seeds == 1:
                    raise
                if options.fault:
                    break
    print(f"{failed} of {options.seeds} seeds failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
