"""A pod that keeps every rule of the pod API and holds no data: for tests of whatever talks to pods.

`FakeVolume` is what survives a restart (log ids, promises), `FakePod` is one run of the process, `FakeNet` connects
those that reach one another; `fake_server` puts one behind the real server on loopback.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

import msgspec
from tests.unit.podapi.fake_moves import FakeMoves
from tests.unit.podapi.fake_net import FakeNet
from tests.unit.podapi.fake_resets import FakeResets
from tests.unit.podapi.fake_volume import FakeReplica, FakeVolume, may_become

from muster_coordinator.calls import CallResult, CallStatus, FenceRefusal
from muster_coordinator.pod.fencing_token import FencingTokens
from muster_coordinator.podapi.control import RefusedCallError
from muster_coordinator.podapi.events import EventHub
from muster_coordinator.podapi.image import MetadataAnswer, MetadataImage
from muster_coordinator.podapi.models import (
    CallResults,
    Election,
    ElectionsRequest,
    FenceStatus,
    FollowerStatus,
    PartitionEvent,
    PodStatus,
    RemovalRequest,
    RemovalsRequest,
    ReplicasRequest,
    ReplicaStatus,
    Resignation,
    ResignationsRequest,
    StatusEvent,
)
from muster_coordinator.podapi.reshard import FenceCall, FenceResult, FencesRequest, FencesResponse
from muster_coordinator.podapi.users import AccessAnswer, AccessImage, AccessRequest
from muster_coordinator.states import ReplicaRole, ShardState

_log_numbers = itertools.count(1)


class FakePod:
    """One run. `slow` partitions stay LOADING until `finish_loading`; `full` refuses with 507; `damaged` with 500; a
    change of the set of a partition in `slow_sets` is not final until `finish_sets`.

    Pods of one `net` promise, seal and follow by the rules: an election needs majorities, takes the best log, and ends
    who led before.
    """

    def __init__(self, name: str, node_id: int, volume: FakeVolume | None = None, net: FakeNet | None = None) -> None:
        self.name = name
        self.node_id = node_id
        self.volume = volume if volume is not None else FakeVolume()
        self.net = net if net is not None else FakeNet()
        self.net.pods[name] = self
        self.lost_peers: tuple[str, ...] = ()
        self.moves = FakeMoves()
        self.resets = FakeResets()
        self.given: list[AccessImage] | None = None
        """Users and ACLs that were given; None: the pod takes none."""
        self.slow: set[int] = set()
        self.slow_sets: set[int] = set()
        self.damaged: set[int] = set()
        self.full = False
        self.kafka_address = f"127.0.0.1:{9092 + node_id}"
        self.elections: list[Election] = []
        self.removed: list[str] = []
        self.election_calls = 0
        self.traces: list[str] = []
        self.images: list[MetadataImage] = []
        self.drained = False
        self.operator_heard_count = 0
        self._led: dict[int, int] = {}  # partition -> epoch, of this run
        self._loading: set[int] = set()
        self._hub = EventHub(self.status)
        self.tokens = FencingTokens(self._hub.publish_status)
        self.accepted: list[tuple[int, int]] = []  # (partition, epoch), promised by this run

    async def create_replicas(self, request: ReplicasRequest) -> CallResults:
        self.tokens.check(request.fencing_token)
        results = []
        created = False
        for wanted in request.partitions:
            replica = self.volume.replicas.get(wanted.partition)
            if replica is None:
                if self.full:
                    results.append(CallResult(wanted.partition, CallStatus.CANNOT_WRITE, message="disk full"))
                    continue
                created = True
                replica = self.volume.replicas[wanted.partition] = FakeReplica(f"log-{next(_log_numbers)}")
            results.append(
                CallResult(
                    wanted.partition,
                    CallStatus.ACCEPTED,
                    log_id=replica.log_id,
                    end_offset=replica.end_offset,
                    used=replica.used,
                )
            )
        if created:
            self._hub.publish_status()
        return CallResults(tuple(results))

    async def remove_replicas(self, request: RemovalsRequest) -> CallResults:
        self.tokens.check(request.fencing_token)
        results = tuple(self._remove(each) for each in request.removals)
        self._hub.publish_status()
        return CallResults(results)

    def _remove(self, each: RemovalRequest) -> CallResult:
        index = each.partition
        replica = self.volume.replicas.get(index)
        if replica is None or replica.log_id != each.log_id:
            return CallResult(index, CallStatus.ACCEPTED)
        named = {place.log_id for place in (self.images[-1].places if self.images else ())}
        if each.log_id in named or index in self._led:
            return CallResult(index, CallStatus.INVALID, message="in use")
        if replica.promised > each.epoch:
            return CallResult(index, CallStatus.STALE_EPOCH, epoch=replica.promised)
        image = self._last_image
        retired = image is not None and not 0 <= index - image.offsets_base < image.offsets_partitions
        closed = retired and replica.fence is not None and replica.fence.closed
        if replica.used and not self._partition(index).has_left and not closed:
            return CallResult(index, CallStatus.INVALID, message="it may still count")
        del self.volume.replicas[index]
        self.removed.append(each.log_id)
        return CallResult(index, CallStatus.ACCEPTED)

    async def elect(self, request: ElectionsRequest) -> CallResults:
        self.election_calls += 1
        self.traces.append(request.trace)
        return CallResults(tuple(self._elect(election) for election in request.elections))

    def _elect(self, election: Election) -> CallResult:
        self.elections.append(election)
        index = election.partition
        replica = self.volume.replicas.get(index)
        sets = [each for each in (election.replicas, election.previous_replicas) if each]
        if replica is None or not any(replica.log_id in each for each in sets):
            return self._election(index, CallStatus.WRONG_REPLICA, "no such log here")
        if self._led.get(index) == election.epoch == replica.promised:  # the same election again, in the same run
            return self._election(index, CallStatus.LOADING if index in self._loading else CallStatus.ACCEPTED)
        if election.epoch <= replica.promised:
            return self._election(index, CallStatus.STALE_EPOCH, f"promised {replica.promised}")
        if self.full or self.drained:
            return self._election(index, CallStatus.CANNOT_WRITE, "disk full")
        if index in self.damaged or replica.rebuilding:
            return self._election(index, CallStatus.DAMAGED, "a flipped byte")
        if election.bootstrap and replica.end_offset > 0:
            return self._election(index, CallStatus.INVALID, "bootstrap of a used log")
        there = self.net.holders(index, (*election.replicas, *election.previous_replicas))
        refused = None if election.force or election.bootstrap else self._ask(index, replica, there)
        return refused or self._seal(election, replica, sets, there)

    def _ask(self, index: int, replica: FakeReplica, there: dict[str, FakePod]) -> CallResult | None:
        for log_id, pod in there.items():
            if pod is not self and index in pod._led:
                return self._election(index, CallStatus.LEADER_LIVES, f"{pod.name} leads")
            if pod.volume.replicas[index].rank > replica.rank:
                return self._election(index, CallStatus.BETTER_LOG, f"{pod.name} has more", better=log_id)
        return None

    def _seal(
        self, election: Election, replica: FakeReplica, sets: list[tuple[str, ...]], there: dict[str, FakePod]
    ) -> CallResult:
        index, epoch = election.partition, election.epoch
        sealed = self._sealed(index, epoch, replica, there)
        best = max(sealed.values(), key=lambda each: (each.rank, each is replica))
        # The logs of the sets that the best log names count too, whoever the call names.
        sealed |= self._sealed(index, epoch, replica, self.net.holders(index, (*best.replicas, *best.previous)))
        best = max(sealed.values(), key=lambda each: (each.rank, each is replica))
        named = [each for each in (best.replicas, best.previous) if each]
        enough = all(2 * sum(one in sealed for one in each) > len(each) for each in (*sets, *named))
        if not enough and not election.allow_data_loss:
            self._publish(index)
            return self._election(index, CallStatus.NO_MAJORITY, f"{len(sealed)} sealed")
        if not named and not election.bootstrap and not election.allow_data_loss:
            return self._election(index, CallStatus.INVALID, "an empty log without bootstrap")
        if named and not election.allow_data_loss and not may_become(best, election):
            self._publish(index)
            return self._election(index, CallStatus.SET_CONFLICT, "the log names other sets", sets=best)
        replica.copy(best)
        replica.epochs = (*replica.epochs, (epoch, replica.end_offset))
        replica.end_offset += 1
        replica.last_epoch = epoch
        replica.replicas, replica.previous = election.replicas, election.previous_replicas
        self._led[index] = epoch
        self.accepted.append((index, epoch))
        if index in self.slow:
            self._loading.add(index)
        self.replicate()
        self._publish(index)
        return self._election(index, CallStatus.LOADING if index in self._loading else CallStatus.ACCEPTED)

    def _sealed(
        self, index: int, epoch: int, replica: FakeReplica, there: dict[str, FakePod]
    ) -> dict[str, FakeReplica]:
        """The logs, by id, that promise the epoch to this pod's log now, or have promised it."""
        sealed: dict[str, FakeReplica] = {}
        for log_id, pod in there.items():
            other = pod.volume.replicas[index]
            if pod is self or other.promised < epoch or (other.promised == epoch and other.leader is None):
                other.promised, other.leader, other.used = epoch, replica.log_id, True
                pod._step_down(index)
            if (other.promised, other.leader) == (epoch, replica.log_id) and not other.rebuilding:
                sealed[log_id] = other
        return sealed

    def _election(
        self, index: int, status: CallStatus, message: str = "", better: str = "", sets: FakeReplica | None = None
    ) -> CallResult:
        replica = self.volume.replicas.get(index)
        return CallResult(
            index,
            status,
            epoch=replica.promised if replica else -1,
            message=message,
            log_id=replica.log_id if replica else "",
            replicas=sets.replicas if sets else (),
            previous_replicas=sets.previous if sets else (),
            better_log_id=better,
        )

    def _step_down(self, index: int) -> None:
        self._loading.discard(index)
        self._led.pop(index, None)
        self._publish(index)

    def _end_change(self, index: int) -> None:
        """The set record is committed, if majorities of both sets have it."""
        replica = self.volume.replicas[index]
        there = self.net.holders(index, (*replica.replicas, *replica.previous))
        same = {each for each, pod in there.items() if pod.volume.replicas[index].rank == replica.rank}
        sets = [each for each in (replica.replicas, replica.previous) if each]
        if not all(2 * sum(one in same for one in each) > len(each) for each in sets):
            return
        replica.previous = ()
        if replica.log_id not in replica.replicas:
            self._step_down(index)

    def finish_sets(self, index: int) -> None:
        self.slow_sets.discard(index)
        if index in self._led:
            self._end_change(index)
            self.replicate()
            self._publish(index)

    def replicate(self) -> None:
        """Push what this pod leads to the replicas of the sets, and to learners as the image places them."""
        for index in tuple(self._led):
            self._push(index)
            if index not in self.slow_sets and self.volume.replicas[index].previous:
                self._end_change(index)
                self._push(index)
        for index in tuple(self._led):
            self._publish(index)

    def _push(self, index: int) -> None:
        replica = self.volume.replicas[index]
        learners = [each.log_id for image in self.images[-1:] for each in image.places if each.partition == index]
        for log_id, pod in self.net.holders(index, (*replica.replicas, *replica.previous, *learners)).items():
            other = pod.volume.replicas[index]
            if log_id == replica.log_id or other.promised > replica.promised:
                continue
            before = (other.promised, other.leader, other.rank)
            other.promised, other.leader, other.rebuilding = replica.promised, replica.log_id, False
            other.copy(replica)
            if before != (other.promised, other.leader, other.rank):
                pod._publish(index)

    async def fence(self, request: FencesRequest) -> FencesResponse:
        self.tokens.check(request.fencing_token)
        return FencesResponse(tuple(self._fence(each) for each in request.fences))

    def _fence(self, call: FenceCall) -> FenceResult:
        """As `shard.fencing.Fencing`."""
        index = call.partition
        if index not in self._led or index in self._loading:
            return FenceResult(index, reason=FenceRefusal.NOT_LEADER)
        replica = self.volume.replicas[index]
        before = replica.fence
        if before is not None and (before.reshard, before.closed) == (call.reshard, not call.open):
            return FenceResult(index, before)
        known = before is not None and before.reshard == call.reshard
        if known != call.open or (not call.open and before is not None and before.reshard >= call.reshard):
            return FenceResult(index, reason=FenceRefusal.STALE)
        if call.open:
            assert before is not None
            replica.fence = msgspec.structs.replace(before, closed=False)
        else:
            replica.fence = FenceStatus(call.reshard, True, 0 if call.importing else -1)
        replica.end_offset += 1
        self.replicate()
        self._publish(index)
        return FenceResult(index, replica.fence)

    def fill(self, index: int, reshard: int) -> None:
        """The new partition takes in all of its log, if this pod leads it and it is closed for that."""
        replica = self.volume.replicas.get(index)
        fence = replica.fence if replica is not None and index in self._led else None
        if replica is not None and fence is not None and fence.closed and fence.reshard == reshard:
            replica.fence = msgspec.structs.replace(fence, complete=True)
            replica.end_offset += 1
            self.replicate()
            self._publish(index)

    async def resign(self, request: ResignationsRequest) -> CallResults:
        return CallResults(tuple(self._resign(resignation) for resignation in request.resignations))

    def _resign(self, resignation: Resignation) -> CallResult:
        index = resignation.partition
        replica = self.volume.replicas.get(index)
        if replica is None:
            return CallResult(index, CallStatus.WRONG_REPLICA)
        if resignation.epoch <= replica.promised:
            return CallResult(index, CallStatus.STALE_EPOCH, epoch=replica.promised)
        replica.promised, replica.leader = resignation.epoch, None
        ended = self._led.pop(index, -1)
        self._loading.discard(index)
        self._publish(index)
        return CallResult(index, CallStatus.ACCEPTED, epoch=replica.promised, ended_epoch=ended)

    def status(self) -> PodStatus:
        return PodStatus(
            pod=self.name,
            node_id=self.node_id,
            pod_uid=f"uid-{self.name}",
            boot_id="boot-1",
            version="test",
            kafka_address=self.kafka_address,
            ready=bool(self.images),
            draining=self.drained,
            metadata_token=self.images[-1].token if self.images else -1,
            metadata_version=self.images[-1].version if self.images else -1,
            partitions=self.partitions(),
            peer_address=f"127.0.0.1:{19092 + self.node_id}",
            fencing_token=self.tokens.highest,
            lost_peers=self.lost_peers,
            cluster_id=self._last_image.cluster_id if self._last_image else "",
            offsets_base=self._last_image.offsets_base if self._last_image else 0,
            offsets_partitions=self._last_image.offsets_partitions if self._last_image else 0,
            access=self._access,
        )

    @property
    def _access(self) -> str | None:
        if self.given is None:
            return None
        return self.given[-1].fingerprint if self.given else ""

    def give_access(self, request: AccessRequest) -> AccessAnswer:
        self.tokens.check(request.token)
        if self.given is None:
            raise RefusedCallError(404, "NotFound", "there is no such route")
        self.given.append(request.access)
        return AccessAnswer(request.access.fingerprint)

    def partitions(self) -> tuple[ReplicaStatus, ...]:
        return tuple(self._partition(index) for index in sorted(self.volume.replicas))

    def _partition(self, index: int) -> ReplicaStatus:
        replica = self.volume.replicas[index]
        led = self._led.get(index, -1)
        leads = led == replica.promised and led >= 0
        others = self.net.holders(index, (*replica.replicas, *replica.previous, *self._placed(index)))
        heard = any(index in pod._led and pod._led[index] == replica.promised for pod in others.values())
        return ReplicaStatus(
            index,
            self._leading_state(index) if leads else ShardState.INITIAL,
            ReplicaRole.LEADER
            if leads
            else ReplicaRole.FOLLOWER
            if heard and replica.leader in others
            else ReplicaRole.NONE,
            replica.promised,
            led if leads else -1,
            replica.log_id,
            replica.used,
            replica.end_offset,
            replica.end_offset,
            leader=replica.leader or "",
            replicas=replica.replicas,
            previous_replicas=replica.previous,
            sets_committed=(leads or replica.log_id not in replica.replicas) and not replica.previous,
            rebuilding=replica.rebuilding,
            needs_higher_epoch=leads and any(p.volume.replicas[index].promised > led for p in others.values()),
            followers=tuple(
                FollowerStatus(log_id, pod.volume.replicas[index].end_offset)
                for log_id, pod in others.items()
                if leads and log_id != replica.log_id
            ),
            fence=replica.fence if leads else None,
            last_epoch=replica.last_epoch,
        )

    def _leading_state(self, index: int) -> ShardState:
        fence = self.volume.replicas[index].fence
        open_state = ShardState.FENCED if fence is not None and fence.closed else ShardState.ACTIVE
        return ShardState.LOADING if index in self._loading else open_state

    def _placed(self, index: int) -> list[str]:
        return [each.log_id for image in self.images[-1:] for each in image.places if each.partition == index]

    def finish_loading(self, index: int) -> None:
        self._loading.discard(index)
        self._publish(index)

    def promise_elsewhere(self, index: int, epoch: int) -> None:
        """A seal of somebody else: the replica promises an epoch that no operator here has issued."""
        replica = self.volume.replicas[index]
        replica.promised, replica.leader = epoch, "somebody"
        self._led.pop(index, None)
        self._publish(index)

    def _publish(self, index: int) -> None:
        self._hub.publish(self._partition(index))

    @property
    def _last_image(self) -> MetadataImage | None:
        return self.volume.last_image

    def update_metadata(self, image: MetadataImage) -> MetadataAnswer:
        if self._last_image is not None and self._last_image.cluster_id != image.cluster_id:
            raise RefusedCallError(409, "ForeignCluster", "the volume belongs to another cluster")
        self.tokens.check(image.token)
        current = self.images[-1] if self.images else None
        if current is not None and (image.token, image.version) < (current.token, current.version):
            raise RefusedCallError(409, "StaleImage", "there is a newer one")
        self.images.append(image)
        self.volume.last_image = image
        self._hub.publish_status()
        self.replicate()
        return MetadataAnswer(image.token, image.version)

    def subscribe(self) -> AsyncGenerator[StatusEvent | PartitionEvent, None]:
        return self._hub.subscribe()

    def operator_heard(self) -> None:
        self.operator_heard_count += 1

    async def drain(self, token: int | None = None) -> None:
        if token is not None:
            self.tokens.check(token)
        self.drained = True
        self._hub.publish_status()
        for index, epoch in tuple(self._led.items()):
            replica = self.volume.replicas[index]
            if len(replica.replicas) > 1:
                continue  # led on, until another one is elected
            replica.promised, replica.leader = epoch + 1, None
            del self._led[index]
            self._publish(index)

    def live(self) -> tuple[bool, str]:
        return True, "alive"

    def ready(self) -> tuple[bool, str]:
        return bool(self.images), "has metadata" if self.images else "no metadata yet"

    def started(self) -> tuple[bool, str]:
        return True, "started"
