"""The world of a plan without I/O: declared objects with versions, fake pods, and operators that carry plans out action
by action. What must always hold is asserted at every record."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from msgspec.structs import replace
from tests.unit.operator.fakes import cluster, topic
from tests.unit.podapi.fake_net import FakeNet
from tests.unit.podapi.fake_pod import FakePod

from muster_coordinator.calls import CallStatus
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.podapi.models import (
    Election,
    ElectionsRequest,
    RemovalRequest,
    RemovalsRequest,
    ReplicaRequest,
    ReplicasRequest,
    Resignation,
    ResignationsRequest,
)
from muster_coordinator.podapi.reshard import FenceCall, FencesRequest
from muster_operator.api.models import (
    CoordinatorCluster,
    CoordinatorClusterStatus,
    Layout,
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    OffsetsTopic,
    OffsetsTopicStatus,
    PartitionState,
    Reshard,
    TopicRef,
    partition_object_name,
)
from muster_operator.attempts import attempt_of
from muster_operator.plan.actions import (
    Action,
    CreatePartitions,
    CreateReplicas,
    Elect,
    PublishMetadata,
    RecordLeadership,
    RecordReshard,
    RemoveReplicas,
    SetFences,
    WriteClusterStatus,
    WritePartitionStatus,
    WriteTopicStatus,
)
from muster_operator.plan.maintenance import as_asked
from muster_operator.plan.metadata import token_above
from muster_operator.plan.observation import Attempt, Connection, Observation, PodView
from muster_operator.plan.partition_view import log_ids
from muster_operator.plan.planner import plan
from muster_operator.plan.record import as_recorded, leadership_of

T = TypeVar("T")


def run(call: Coroutine[Any, Any, T]) -> T:
    """The fake pod's calls wait for nothing."""
    try:
        call.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError("the call waits for something")


@dataclass
class Model:
    pods: int = 3
    partitions: int = 4
    replication_factor: Literal[1, 3, 5] = 1
    cluster: CoordinatorCluster = field(init=False)
    topic: OffsetsTopic = field(init=False)
    objects: dict[str, OffsetsPartition] = field(default_factory=dict)
    running: dict[str, FakePod] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    called: dict[tuple[int, int], str] = field(default_factory=dict)
    """The pod that was called, by index of the partition and epoch."""
    forgotten: dict[str, int] = field(default_factory=dict)
    """The highest epoch that was recorded of a partition before its objects were lost."""
    net: FakeNet = field(default_factory=FakeNet)
    loss_allowed: bool = False
    steady_s: float = 60.0
    version: int = 0
    now: float = 0.0
    idle_since: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = cluster(self.pods)
        self.topic = topic(self.partitions, replication_factor=self.replication_factor)
        for number in range(self.pods):
            self.running[f"c-{number}"] = FakePod(f"c-{number}", number, net=self.net)

    # What happens to objects

    def recreate(self, *, cluster: bool = True, topic: bool = True, partitions: bool = True) -> None:
        """Objects are deleted and applied again: other uids, and no status."""
        self.version += 1
        uid = f"again-{self.version}"
        for name in self.objects:
            self.forgotten[name] = max(self.forgotten.get(name, -1), self.recorded(name).epoch)
        if cluster:
            meta = replace(self.cluster.metadata, uid=uid)
            self.cluster = replace(self.cluster, metadata=meta, status=CoordinatorClusterStatus())
        if topic:
            meta = replace(self._topic_meta(), uid=uid)
            self.topic = replace(self.topic, metadata=meta, status=OffsetsTopicStatus())
        if partitions:
            self.objects.clear()

    # What happens to pods

    def restart(self, name: str) -> None:
        old = self.running[name]
        self.running[name] = FakePod(name, old.node_id, old.volume, self.net)
        self.down.discard(name)
        self.net.replicate()

    def stop(self, name: str) -> None:
        self.down.add(name)
        self.net.pods.pop(name, None)

    def lose_volume(self, name: str) -> None:
        """The pod comes back with an empty one."""
        old = self.running[name]
        self.running[name] = FakePod(name, old.node_id, None, self.net)
        self.down.discard(name)
        self.net.replicate()

    def reaches(self, name: str) -> bool:
        """Whether a call of the pod gets an answer."""
        return name in self.running and name not in self.down

    def view(self, name: str) -> PodView:
        pod = self.running[name]
        if name in self.down:
            return PodView(name, pod.node_id, Connection.DOWN, detail="connection refused", steady_s=self.steady_s)
        status = pod.status()
        return PodView(
            name,
            pod.node_id,
            Connection.UP,
            status.kafka_address,
            status.ready,
            (status.metadata_token, status.metadata_version),
            {each.partition: each for each in status.partitions},
            draining=status.draining,
            peer_address=status.peer_address,
            fencing_token=status.fencing_token,
            lost_peers=frozenset(status.lost_peers),
            steady_s=self.steady_s,
            cluster_id=status.cluster_id,
            layouts=tuple(Layout(*each) for each in status.layouts),
            uid=f"uid-{pod.node_id}",
        )

    # The store

    def recorded(self, name: str) -> OffsetsPartitionStatus:
        """What operators decide on."""
        topic, _, index = name.rpartition("-")
        deleted = OffsetsPartition(ObjectMeta(name, "ns"), OffsetsPartitionSpec(TopicRef(topic), int(index)))
        return as_recorded(self.topic, self.objects.get(name, deleted)).status

    def record(self, action: RecordLeadership) -> bool:
        if self.topic.metadata.resource_version != action.seen.metadata.resource_version:
            return False
        before = {name: self.recorded(name) for name in self.objects}
        status = replace(self.topic.status, leaderships=dict(action.leaderships))
        self.topic = replace(self.topic, status=status, metadata=self._topic_meta())
        for name, each in before.items():
            after = self.recorded(name)
            assert after.epoch >= each.epoch, "an epoch was lowered"
            self._check_sets(each, after)
        return True

    def show(self, action: WritePartitionStatus) -> None:
        name = action.seen.metadata.name
        now = self.objects.get(name)
        if now is not None and now.metadata.resource_version == action.seen.metadata.resource_version:
            self.objects[name] = replace(self.objects[name], status=action.status, metadata=self._meta(name))

    def put(self, name: str, status: OffsetsPartitionStatus) -> None:
        """Have the record and the object say this."""
        self.objects[name] = replace(self.objects[name], status=status, metadata=self._meta(name))
        index = str(self.objects[name].spec.index)
        line = leadership_of(status, self.objects[name].metadata.uid).line
        leaderships = {**self.topic.status.leaderships, index: line}
        status_of_topic = replace(self.topic.status, leaderships=leaderships)
        self.topic = replace(self.topic, status=status_of_topic, metadata=self._topic_meta())

    def call(self, action: Elect) -> None:
        """What must hold of every election that is called."""
        if self.recorded(action.partition).epoch < action.epoch:
            # An operator was about to call when the record was lost. Its epoch may come again: pods promise it once.
            assert action.epoch <= self.forgotten.get(action.partition, -1), "called before it was recorded"
            return
        holder = self.called.setdefault((action.index, action.epoch), action.pod)
        assert holder == action.pod, "an epoch was issued to two pods"

    def _check_sets(self, before: OffsetsPartitionStatus, after: OffsetsPartitionStatus) -> None:
        """One change at a time: the set is replaced only with the old one named next to it, or by what the log says."""
        old, new = set(log_ids(before.replicas)), set(log_ids(after.replicas))
        if not all(old) or not old or old == new or self.loss_allowed:
            return
        assert (
            before.previous_replicas == ()
            or after.previous_replicas == ()
            or new == set(log_ids(before.previous_replicas))
        ), "a second change of the set before the first one was over"
        if set(log_ids(after.previous_replicas)) != old:
            named = [pod.volume.replicas.get(index) for pod in self.running.values() for index in pod.volume.replicas]
            assert any(each is not None and set(each.replicas) == new for each in named), "a set that no log names"

    def record_topic(self, action: WriteTopicStatus | RecordReshard) -> None:
        if self.topic.metadata.resource_version == action.seen.metadata.resource_version:
            self.topic = replace(self.topic, status=action.status, metadata=self._topic_meta())

    def ask(self, partitions: int | None) -> None:
        """A person sets spec.reshard, or takes it back."""
        spec = replace(self.topic.spec, reshard=None if partitions is None else Reshard(partitions))
        meta = replace(self._topic_meta(), generation=self.topic.metadata.generation + 1)
        self.topic = replace(self.topic, spec=spec, metadata=meta)

    def _topic_meta(self) -> ObjectMeta:
        self.version += 1
        return replace(self.topic.metadata, resource_version=str(self.version))

    def create(self, indexes: tuple[int, ...]) -> None:
        topic = self.topic.metadata.name
        for index in indexes:
            name = partition_object_name(topic, index)
            if name not in self.objects:
                self.objects[name] = OffsetsPartition(self._meta(name), OffsetsPartitionSpec(TopicRef(topic), index))

    def _meta(self, name: str) -> ObjectMeta:
        self.version += 1
        known = self.objects.get(name)
        uid = f"uid-{name}-{self.version}" if known is None else known.metadata.uid
        return ObjectMeta(name, "ns", uid, str(self.version))

    @property
    def all_led(self) -> bool:
        return len(self.objects) == self.partitions and all(
            each.status.state is PartitionState.LED for each in self.objects.values()
        )


@dataclass
class Operator:
    """One operator's knowledge: its last image, and the plan that it is carrying out."""

    model: Model
    token: int = 1
    image: MetadataImage | None = None
    todo: list[Action] = field(default_factory=list)
    attempts: dict[str, Attempt] = field(default_factory=dict)

    def observe(self) -> Observation:
        model = self.model
        views = tuple(model.view(name) for name in sorted(model.running))
        pods = as_asked(model.cluster, views, model.idle_since, model.now)
        self.token = token_above(self.token, pods)
        return Observation(
            namespace="ns",
            name="c",
            cluster=model.cluster,
            topics=(model.topic,),
            partitions=tuple(model.objects[name] for name in sorted(model.objects)),
            pods=pods,
            bootstrap="b:1",
            fencing_token=self.token,
            image=self.image,
            attempts=self.attempts,
        )

    def replan(self) -> tuple[Action, ...]:
        self.model.now += 0.4
        seen = self.observe()
        actions = plan(seen, self.model.now)
        self.todo = [*actions]
        return actions

    def act(self) -> None:
        """Carry out the next action of the plan, however old that is by now."""
        if self.todo:
            self._carry_out(self.todo.pop(0))

    def settle(self, rounds: int = 30) -> None:
        for _ in range(rounds):
            if not self.replan():
                return
            while self.todo:
                self.act()
        raise AssertionError(f"no end of plans: {self.replan()}")

    def _carry_out(self, action: Action) -> None:
        try:
            self._do(action)
        except RefusedCallError as refused:
            if refused.problem.reason not in ("StaleToken", "StaleImage", "ForeignCluster"):
                raise

    def _do(self, action: Action) -> None:
        model = self.model
        match action:
            case RecordLeadership():
                if not model.record(action):
                    self.todo = []  # the plan was made from another record
            case Elect():
                model.call(action)
                if model.reaches(action.pod):
                    self._elect(action)
            case WritePartitionStatus():
                model.show(action)
            case PublishMetadata():
                self._publish(action)
            case CreatePartitions():
                model.create(action.indexes)
            case CreateReplicas():
                if model.reaches(action.pod):
                    wanted = tuple(ReplicaRequest(index) for index in action.indexes)
                    run(model.running[action.pod].create_replicas(ReplicasRequest(self.token, wanted)))
            case RemoveReplicas():
                if model.reaches(action.pod):
                    gone = tuple(RemovalRequest(*each) for each in action.removals)
                    run(model.running[action.pod].remove_replicas(RemovalsRequest(self.token, gone)))
            case WriteTopicStatus() | RecordReshard():
                model.record_topic(action)
            case SetFences():
                if model.reaches(action.pod):
                    calls = (FenceCall(each.index, each.reshard, each.open, each.importing) for each in action.fences)
                    run(model.running[action.pod].fence(FencesRequest(self.token, tuple(calls))))
            case WriteClusterStatus():
                model.cluster = replace(model.cluster, status=action.status)

    def _elect(self, action: Elect) -> None:
        election = Election(
            action.index,
            action.epoch,
            action.replicas,
            action.previous_replicas,
            bootstrap=action.bootstrap,
            force=action.force,
            allow_data_loss=action.allow_data_loss,
        )
        answer = run(self.model.running[action.pod].elect(ElectionsRequest((election,))))
        (result,) = answer.results
        self.attempts[action.partition] = attempt_of(action.pod, action.epoch, result)
        if result.status in (CallStatus.ACCEPTED, CallStatus.LOADING):
            del self.attempts[action.partition]
            former = self.model.running.get(action.resign)
            if former is not None and self.model.reaches(action.resign):
                resignation = Resignation(action.index, action.epoch)
                run(former.resign(ResignationsRequest((resignation,))))

    def _publish(self, action: PublishMetadata) -> None:
        self.image = action.image
        for pod in action.pods:
            if self.model.reaches(pod):
                self.model.running[pod].update_metadata(action.image)
