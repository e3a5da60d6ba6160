"""The real ``plan()`` drives the cluster: objects with versions in a store that may be late or fail, views of pods that
may be old, and operators that die between any two actions of a plan.

Also what a person declares: preferred leaders, the pods of a partition, and that data may be lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Literal, cast

from msgspec.structs import replace
from tests.simulation.cluster import Cluster, Partition
from tests.simulation.injected import Injected
from tests.simulation.operator_process import OperatorProcess
from tests.simulation.pod import Pod
from tests.simulation.store import Api, Record
from tests.simulation.views import PodMemory

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.sets import Sets
from muster_operator.api.conditions import ConditionType, find_condition
from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterSpec,
    Failover,
    LeadershipRecord,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicSpec,
    OffsetsTopicStatus,
    TopicRef,
    partition_object_name,
)
from muster_operator.attempts import Attempts
from muster_operator.plan.actions import (
    Action,
    Elect,
    PublishMetadata,
    RecordLeadership,
    RemoveReplicas,
    WriteClusterStatus,
    WritePartitionStatus,
    WriteTopicStatus,
)
from muster_operator.plan.metadata import number_of
from muster_operator.plan.observation import Observation
from muster_operator.plan.partition_view import log_ids
from muster_operator.plan.planner import plan
from muster_operator.plan.record import as_recorded

__all__ = ["Objects", "PlannedOperator", "PlannedStore"]

STEP_MS = 80
CALL_MS = 5_000
FAILOVER = Failover(suspect_after="1s", election_timeout="5s", rebalance_after="2s", replace_after="4s")


class Objects:
    """What is declared and recorded, by all operators."""

    def __init__(self, api: Api, cluster: Cluster) -> None:
        options = cluster.world.options
        factor = cast("Literal[1, 3, 5]", options.replicas)
        self.cluster = CoordinatorCluster(
            ObjectMeta("c", "ns"), CoordinatorClusterSpec(pods=len(cluster.pods), image="i", failover=FAILOVER)
        )
        self.topic = OffsetsTopic(
            ObjectMeta("t", "ns", "t", "0"), OffsetsTopicSpec(ClusterRef("c"), options.partitions, factor)
        )
        self.api = api
        self.pods = list(cluster.pods)
        self.factor = options.replicas
        self.partitions = [self._new(index) for index in range(options.partitions)]
        self._called: dict[tuple[int, int], str] = {}
        self._running = cluster
        self._topics = [(0, self.topic)]
        self._past = [(0, tuple(self.partitions))]

    @staticmethod
    def _new(index: int) -> OffsetsPartition:
        name = partition_object_name("t", index)
        return OffsetsPartition(ObjectMeta(name, "ns", name, "0"), OffsetsPartitionSpec(TopicRef("t"), index))

    def read(self, operator: str) -> tuple[OffsetsTopic, tuple[OffsetsPartition, ...]] | None:
        """None: not now. A watch that lags shows the past, and each kind has a watch of its own."""
        topic, partitions = self.api.seen(operator, self._topics), self.api.seen(operator, self._past)
        return None if topic is None or partitions is None else (topic, partitions)

    def write_topic(self, seen: OffsetsTopic, status: OffsetsTopicStatus, operator: str) -> bool:
        """False: another writer was faster (409), or it failed, or the answer was lost."""
        version = int(self.topic.metadata.resource_version)
        if not self.api.may_write(int(seen.metadata.resource_version), version):
            return False
        metadata = replace(self.topic.metadata, resource_version=str(version + 1))
        self.topic = replace(self.topic, status=status, metadata=metadata)
        self._topics.append((self.api.world.now_ms, self.topic))
        return self.api.wrote(operator)

    def calls(self, action: Elect) -> None:
        """Check what must hold of all elections that all operators call.

        A rogue caller may have elected a pod in an epoch that an operator has recorded for another one. The operator
        then records the pod that leads, or did when it last looked, and repeats its election. Whoever led in an epoch
        has it promised by a majority: no call can give it to another one.
        """
        assert self.recorded(action.index).epoch >= action.epoch, f"epoch {action.epoch} is called and not recorded"
        pod = self._called.setdefault((action.index, action.epoch), action.pod)
        led = self._running.partitions[action.index].has_led(action.pod, action.epoch)
        assert pod == action.pod or led, f"epoch {action.epoch} of {action.index} is issued to {pod} and {action.pod}"

    def recorded(self, index: int) -> OffsetsPartitionStatus:
        """What operators decide on."""
        return as_recorded(self.topic, self.partitions[index]).status

    def write(self, seen: OffsetsPartition, value: OffsetsPartition, operator: str = "") -> bool:
        """False: another writer was faster (409), or it failed, or its answer was lost."""
        now = self.partitions[seen.spec.index]
        version = int(now.metadata.resource_version)
        if not self.api.may_write(int(seen.metadata.resource_version), version):
            return False
        metadata = replace(now.metadata, resource_version=str(version + 1))
        self.partitions[seen.spec.index] = replace(value, metadata=metadata)
        self._past.append((self.api.world.now_ms, tuple(self.partitions)))
        return self.api.wrote(operator)

    def declare(self, index: int, **changes: object) -> None:
        """A person changes the spec."""
        now = self.partitions[index]
        self.write(now, replace(now, spec=replace(now.spec, **changes)))


class PlannedStore:
    """One partition as clients and faults look at it."""

    def __init__(self, objects: Objects, index: int) -> None:
        self._objects = objects
        self._index = index

    @property
    def record(self) -> Record:
        status = self._objects.recorded(self._index)
        sets = Sets(log_ids(status.replicas), log_ids(status.previous_replicas))
        leader = status.leader or self._objects.pods[0]
        return Record(status.epoch, leader, sets, status.led_epoch >= 0)

    def allow_loss(self) -> bool:
        """A person sets `allowDataLoss` to the number that the condition's message names. False: it names none, or that
        number is set already."""
        partition = self._objects.partitions[self._index]
        ready = find_condition(partition.status.conditions, ConditionType.READY)
        asked = re.search(r'"allowDataLoss":(\d+)', ready.message if ready is not None else "")
        if asked is None or partition.spec.allow_data_loss == int(asked[1]):
            return False
        self._objects.declare(self._index, allow_data_loss=int(asked[1]))
        return True


class PlannedOperator(OperatorProcess):
    """``wants``: what a person declares next."""

    def __init__(self, name: str, token: int, cluster: Cluster, objects: Objects) -> None:
        self._token = token
        self._cluster = cluster
        self._objects = objects
        super().__init__(name, cluster.world)

    def _forget(self) -> None:
        self._pods = {name: PodMemory(pod, self.world) for name, pod in self._cluster.pods.items()}
        self._attempts = Attempts(self.world.random.random)
        self._image: MetadataImage | None = None

    def _now_s(self) -> float:
        return self.world.now_ms / 1000

    def _step(self, run: int) -> None:
        if run != self._run:
            return
        for memory in self._pods.values():
            memory.poll(self.name, lambda: run == self._run)
        self._declare()
        seen = self._objects.read(self.name)
        if seen is not None:
            self._carry_out(plan(self._observe(*seen), self._now_s()), run)
        if run == self._run:
            self.world.at(STEP_MS + self.world.random.randint(0, STEP_MS), lambda: self._step(run))

    def _declare(self) -> None:
        wants, self.wants = self.wants, ""
        random, objects = self.world.random, self._objects
        index = random.randrange(len(objects.partitions)) if wants else 0
        if wants == "move":
            objects.declare(index, preferred_leader=random.choice(objects.pods))
        elif wants == "change":
            objects.declare(index, replicas=tuple(random.sample(objects.pods, objects.factor)))

    def _observe(self, topic: OffsetsTopic, partitions: tuple[OffsetsPartition, ...]) -> Observation:
        views = tuple(memory.view() for memory in self._pods.values())
        active = {(view.name, index) for view in views for index, one in view.replicas.items() if one.is_active}
        for partition in (as_recorded(topic, each) for each in partitions):
            if (partition.status.leader, partition.spec.index) in active:
                self._attempts.settle(partition.metadata.name, self._now_s())
        return Observation(
            "ns",
            "c",
            self._objects.cluster,
            (topic,),
            partitions,
            views,
            "b:1",
            self._token,
            self._image,
            self._attempts.view(self._now_s()),
        )

    # -- actions ------------------------------------------------------------------------------------------------------

    def _carry_out(self, actions: tuple[Action, ...], run: int) -> None:
        """In order; the operator may die before each."""
        options, random = self.world.options, self.world.random
        withheld: set[str] = set()
        for action in actions:
            if self.world.faults and random.random() < options.operator_crash_in_steps / 4:
                self.world.log(f"{self.name} dies in a plan")
                self.world.injected[Injected.OPERATOR_CRASH_IN_STEPS] += 1
                self.crash()
                return
            match action:
                case RecordLeadership():
                    withheld = self._beyond_budget(action)
                    if not self._record(action, withheld):
                        return  # the rest of the plan was made from another record
                case Elect():
                    if str(action.index) not in withheld:
                        self._elect(action, run)
                case WritePartitionStatus(seen=seen, status=status):
                    if str(seen.spec.index) not in withheld:
                        self._objects.write(seen, replace(seen, status=status), self.name)
                case PublishMetadata():
                    self._publish(action)
                case RemoveReplicas(pod=name, removals=removals):
                    for index, log_id, epoch in removals:
                        replica = self._cluster.partitions[index].replicas[name]
                        self.world.send(self.name, name, partial(replica.delete_log, log_id, epoch))
                case WriteTopicStatus(seen=seen, status=topic_status):
                    self._objects.write_topic(seen, topic_status, self.name)
                case WriteClusterStatus(status=cluster_status):
                    self._objects.cluster = replace(self._objects.cluster, status=cluster_status)
                case _:
                    pass  # logs are there already, positions come with every poll, pods are never outdated

    def _beyond_budget(self, action: RecordLeadership) -> set[str]:
        """Partitions whose new sets would be more than the fault budget allows."""
        before = action.seen.status.leaderships
        return {
            index
            for index, line in action.leaderships.items()
            if not _may_name(self._cluster.partitions[int(index)], before.get(index, LeadershipRecord().line), line)
        }

    def _record(self, action: RecordLeadership, withheld: set[str]) -> bool:
        status = action.seen.status
        kept = {index: each for index, each in status.leaderships.items() if index in withheld}
        new = {index: each for index, each in action.leaderships.items() if index not in withheld}
        return self._objects.write_topic(action.seen, replace(status, leaderships={**kept, **new}), self.name)

    def _elect(self, action: Elect, run: int) -> None:
        world = self.world
        pod = self._cluster.pods[action.pod]
        self._objects.calls(action)
        self._attempts.start(action.partition, action.pod, action.epoch, self._now_s(), action.reason, action.message)
        world.log(
            f"{self.name} elects {action.pod}/{action.index} in {action.epoch}"
            f"{' force' if action.force else ''}{' bootstrap' if action.bootstrap else ''}"
            f"{' whatever is lost' if action.allow_data_loss else ''} of {len(action.replicas)}"
        )

        def ended(result: CallResult | str) -> None:
            """`result`: what the pod answered, or why no answer came."""
            if run != self._run:
                return
            if isinstance(result, str):
                self._attempts.unanswered(action.partition, action.epoch, self._now_s(), result)
                return
            self._attempts.answered(action.partition, action.epoch, self._now_s(), result)
            if result.status in (CallStatus.ACCEPTED, CallStatus.LOADING) and action.resign:
                self._resign(action)

        def answered(result: CallResult) -> None:
            world.log(f"{self.name} hears {result.status} {result.epoch} {result.message}")
            world.send(action.pod, self.name, lambda: ended(result))

        def call() -> None:
            if not pod.up:
                world.send(action.pod, self.name, lambda: ended("connection refused"))
                return
            sets = Sets(action.replicas, action.previous_replicas)
            election = ElectionCall(
                action.epoch,
                sets,
                bootstrap=action.bootstrap,
                force=action.force,
                allow_data_loss=action.allow_data_loss,
            )
            self._cluster.partitions[action.index].replicas[action.pod].elect(election, answered)

        world.send(self.name, action.pod, call)
        world.at(CALL_MS, lambda: ended("no answer"))

    def _resign(self, action: Elect) -> None:
        replica = self._cluster.partitions[action.index].replicas[action.resign]
        self.world.send(self.name, action.resign, lambda: replica.resign(action.epoch, lambda answer: None))

    def _publish(self, action: PublishMetadata) -> None:
        self._image = action.image
        for name in action.pods:
            pod = self._cluster.pods[name]
            self.world.send(self.name, name, _take_image(pod, action))


def _may_name(partition: Partition, seen_line: str, decided_line: str) -> bool:
    """The fault budget: a set that is named keeps a majority. One that a person gave up for lost needs none."""
    seen, decided = LeadershipRecord.parse(seen_line), LeadershipRecord.parse(decided_line)
    sets = Sets(log_ids(decided.replicas), log_ids(decided.previous_replicas))
    if partition.checker.loss_allowed or not sets.replicas or not all(sets.replicas):
        return True
    before = Sets(log_ids(seen.replicas), log_ids(seen.previous_replicas))
    return sets == before or partition.may_name(sets)


def _take_image(pod: Pod, action: PublishMetadata) -> Callable[[], None]:
    def take() -> None:
        if pod.up and number_of(action.image) > pod.image:
            pod.image = number_of(action.image)
            for replica in pod.replicas:
                index = replica.partition.index
                replica.set_learners(tuple(each.log_id for each in action.image.places if each.partition == index))

    return take
