"""What the API server holds of the partitions, and what must be true of every call of an operator.

- A pod is elected only after leader, epoch and sets were recorded. An epoch of a partition is issued to one pod.
- A call with `allowDataLoss` needs the word of a person that covers what was led.
- What a call or a resignation names was decided by an operator: rogues do not come this way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.simulation.cluster import Cluster, Partition
from tests.simulation.operating.machine import NAMESPACE
from tests.simulation.operating.objects import Change, Json
from tests.simulation.operating.server import ApiServer
from tests.simulation.store import Record
from tests.simulation.world import Violation

from muster_coordinator.podapi.models import Election, Resignation
from muster_coordinator.replication.sets import Sets
from muster_operator.api.conditions import ConditionType, find_condition
from muster_operator.api.models import ClusterRef as ClusterReference
from muster_operator.api.models import (
    LeadershipRecord,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicSpec,
    Replica,
    Resource,
    TopicRef,
    partition_object_name,
)
from muster_operator.kube.objects import decode
from muster_operator.plan.partition_view import log_ids
from muster_operator.plan.record import as_recorded

__all__ = ["TOPIC", "OperatedStore", "Recorded"]

TOPIC = "t"

T = TypeVar("T", bound=Resource)


class Recorded:
    """Of all partitions, from the first write on."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self._partitions: Sequence[Partition] = ()
        self._status: dict[int, OffsetsPartitionStatus] = {}
        self._lines: dict[str, str] = {}
        self._issued: dict[tuple[int, int], set[tuple[str, Sets]]] = {}  # what was recorded, by partition and epoch
        self._led: dict[tuple[int, int], int] = {}  # the highest led epoch when an epoch was recorded first
        self._called: dict[tuple[int, int], str] = {}
        self._lost: dict[int, int] = {}  # epochs up to this one were issued before a record was lost
        self._words: dict[int, int] = {}  # the highest epoch of which a person allowed the loss
        server.on_write.append(self._written)

    def follow(self, cluster: Cluster) -> None:
        self._partitions = cluster.partitions

    def status(self, index: int) -> OffsetsPartitionStatus:
        """What an operator that sees the present would decide on."""
        known = self._status.get(index)
        if known is None:
            known = self._status[index] = as_recorded(self._topic(), self._partition(index)).status
        return known

    def _topic(self) -> OffsetsTopic:
        found = self._get(OffsetsTopic, TOPIC)
        return found or OffsetsTopic(ObjectMeta(TOPIC, NAMESPACE), OffsetsTopicSpec(ClusterReference("none")))

    def _partition(self, index: int) -> OffsetsPartition:
        name = partition_object_name(TOPIC, index)
        return self._get(OffsetsPartition, name) or OffsetsPartition(
            ObjectMeta(name, NAMESPACE), OffsetsPartitionSpec(TopicRef(TOPIC), index)
        )

    def _get(self, resource: type[T], name: str) -> T | None:
        raw = self.server.objects.get(resource.plural, NAMESPACE, name)
        return None if raw is None else decode(resource, raw)

    # -- what is written ----------------------------------------------------------------------------------------------

    def _written(self, change: Change) -> None:
        if change.name[0] not in (OffsetsTopic.plural, OffsetsPartition.plural):
            return
        self._status.clear()
        if change.name[0] == OffsetsTopic.plural:
            self._take(change.raw.get("status", {}).get("leaderships", {}))
        else:
            word = change.raw["spec"].get("allowDataLoss")
            if word is not None:
                index = change.raw["spec"]["index"]
                self._words[index] = max(word, self._words.get(index, -1))

    def _take(self, lines: Json) -> None:
        for index, line in lines.items():
            if self._lines.get(index) == line:
                continue
            before = self._lines.get(index)
            self._lines[index] = line
            record = LeadershipRecord.parse(line)
            if before is not None and record.epoch < LeadershipRecord.parse(before).epoch:
                raise Violation(f"the record of partition {index} goes back: {line} after {before}")
            self.server.world.log(f"recorded of {index}: {_short(record)}")
            sets = Sets(log_ids(record.replicas), log_ids(record.previous_replicas))
            self._led.setdefault((int(index), record.epoch), record.led_epoch)
            self._issued.setdefault((int(index), record.epoch), set()).add((record.leader or "", sets))
            if all(all(each) for each in sets.each):
                self._partitions[int(index)].named.update(sets.each)

    def restored(self) -> None:
        """etcd is an older one, or a status is lost: what is recorded may go back, and an epoch be issued again that no
        pod in sight has promised (ADR 23). Calls of before may still be on their way.
        """
        for index, epoch in self._issued:
            self._lost[index] = max(epoch, self._lost.get(index, -1))
        self._status.clear()
        self._lines.clear()
        topic = self._topic()
        self._take(topic.status.leaderships)

    # -- what is called ----------------------------------------------------------------------------------------------

    def elects(self, pod: str, call: Election) -> None:
        """A pod has got this call."""
        index, epoch = call.partition, call.epoch
        how = [name for name in ("bootstrap", "force", "allow_data_loss") if getattr(call, name)]
        self.server.world.log(f"{pod}/{index} is elected in {epoch} {' '.join(how)}")
        issued = self._issued.get((index, epoch), set())
        sets = Sets(call.replicas, call.previous_replicas)
        if call.allow_data_loss:
            self._allows_loss(pod, call)
        elif (pod, sets) not in issued:
            what = f"pod {pod} is elected in epoch {epoch} of partition {index} with {sets}"
            self._is_broken(f"{what}, recorded are {sorted(issued, key=str)}")
        first = self._called.setdefault((index, epoch), pod)
        led = self._partitions[index].has_led(pod, epoch)
        if first != pod and not led and epoch > self._lost.get(index, -1):
            self._is_broken(f"epoch {epoch} of partition {index} is issued to {first} and to {pod}")

    def _allows_loss(self, pod: str, call: Election) -> None:
        index, epoch = call.partition, call.epoch
        if pod not in {leader for leader, _ in self._issued.get((index, epoch), ())}:
            self._is_broken(f"pod {pod} is elected with loss in epoch {epoch} of partition {index}: not recorded")
        word, led = self._words.get(index, -1), self._led.get((index, epoch), -1)
        if word < max(led, 0):
            self._is_broken(f"epoch {epoch} of {index} accepts a loss; the word is about {word}, led was {led}")
        self._partitions[index].checker.accepts_loss(epoch)

    def resigns(self, pod: str, call: Resignation) -> None:
        """A pod has got this call."""
        self.server.world.log(f"{pod}/{call.partition} shall resign for {call.epoch}")
        issued = self._issued.get((call.partition, call.epoch), set())
        if not issued or pod in {leader for leader, _ in issued}:
            what = f"pod {pod} shall resign for epoch {call.epoch} of partition {call.partition}"
            self._is_broken(f"{what}, recorded are {sorted(issued, key=str)}")

    def _is_broken(self, text: str) -> None:
        """Not raised here: the server of the pod would answer with it."""

        def fail() -> None:
            raise Violation(text)

        self.server.world.at(0, fail)


class OperatedStore:
    """One partition as clients, faults and the end of a run look at it."""

    def __init__(
        self, recorded: Recorded, index: int, pods: Sequence[str], declare: Callable[[int, Json], None]
    ) -> None:
        self._recorded = recorded
        self._index = index
        self._pods = pods
        self._declare = declare

    @property
    def record(self) -> Record:
        status = self._recorded.status(self._index)
        sets = Sets(log_ids(status.replicas), log_ids(status.previous_replicas))
        return Record(status.epoch, status.leader or self._pods[0], sets, status.led_epoch >= 0)

    def allow_loss(self) -> bool:
        """A person does what the partition's message says, if it says how to go on from what is left."""
        ready = find_condition(self._recorded.status(self._index).conditions, ConditionType.READY)
        command = re.search('"allowDataLoss":([0-9]+)', ready.message) if ready is not None else None
        if command is None:
            return False
        self._declare(self._index, {"allowDataLoss": int(command[1])})
        return True


def _short(record: LeadershipRecord) -> str:
    def pods(replicas: Sequence[Replica]) -> str:
        return ",".join(f"{each.pod}/{each.log_id[:4]}" for each in replicas)

    return (
        f"{record.leader} in {record.epoch}, led {record.led_epoch}, of {pods(record.replicas)}, before"
        f" {pods(record.previous_replicas)}, learn {pods(record.learners)}, left {pods(record.left)}"
    )
