"""A replica of a real pod, as operators, clients and faults see it, and the calls that reach it through its pod."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.injected import Injected
from tests.simulation.pods.archive import ROOT
from tests.simulation.pods.disk import covered
from tests.simulation.pods.groups import WatchedGroups
from tests.simulation.pods.mirror import Mirror
from tests.simulation.pods.network import ClientAnswer
from tests.simulation.pods.statements import check
from tests.simulation.request import Request
from tests.simulation.world import Violation
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.calls import CallResult
from muster_coordinator.log.checkpoint import NAME as CHECKPOINT_NAME
from muster_coordinator.log.checkpoint import CheckpointFile
from muster_coordinator.log.segments.partition_log import PartitionLog, partition_directory
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.records.batch import RecordBatch
from muster_coordinator.records.control import Fence
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.promise_file import PROMISE_NAME, PromiseFile
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Ack, Message, Mismatch, Sealed
from muster_coordinator.shard.fencing import FenceRefusedError

if TYPE_CHECKING:
    from tests.simulation.cluster import Partition
    from tests.simulation.pods.process import HostedPod

__all__ = ["DATA", "HostedReplica"]

DATA = Path("/data")
SLOT_BYTES = 4096


class HostedReplica(Mirror):
    """`learners`: as the pod was told last."""

    def __init__(self, pod: HostedPod, partition: Partition) -> None:
        self.pod = pod
        self.learners: tuple[str, ...] = ()
        self.directory = partition_directory(DATA, partition.index)
        super().__init__(f"{pod.name}/{partition.index}", partition)
        self.random = Random(f"replica {self.name} {pod.world.options.seed}")
        self.holed: Path | None = None  # a file of the journal, in which entries of this log may be missing
        self.new_replica()

    def new_replica(self) -> None:
        """Another log, which the next start creates."""
        self.becomes(f"{self.random.getrandbits(128):032x}")
        self._is_new = True

    # -- life ---------------------------------------------------------------------------------------------------------

    def process_starts(self, fake: FakeDisk) -> None:
        if self._is_new:
            PartitionLog.create(fake, self.directory)
            PromiseFile.create(fake, self.directory, self.storage.log_id)
            self._is_new = False
        self.learners = ()
        self.starts()

    def process_ends(self) -> None:
        self.ends()

    @property
    def host(self) -> ReplicaHost | None:
        """Nowhere, while its pod has another volume."""
        return self.pod.manager.hosts.get(self.partition.index) if self.pod.up and not self.pod.carries_copy else None

    @property
    def core(self) -> ReplicaCore | None:
        host = self.host
        return host.core if host is not None else None

    @property
    def is_damaged(self) -> bool:
        """As its pod says."""
        return self.pod.up and self.partition.index in self.pod.manager.health.damage

    @property
    def may_be_given_up(self) -> bool:
        """While a journal file with a hole is there, each start doubts what it cannot prove. Another log of this pod
        that is not opened keeps it there.
        """
        return self.storage.is_damaged or self.holed in self.pod.disk.names

    @property
    def running(self) -> ReplicaCore:
        core = self.core
        assert core is not None
        return core

    # -- what happened ------------------------------------------------------------------------------------------------

    def observe(self) -> None:
        host = self.host
        if host is None:
            self._look_at_copy()
            return
        shard, disk = host.shard, self.pod.disk
        if shard is not None and isinstance(shard.machine, WatchedGroups):
            shard.machine.settle()
        before, disk.fault = disk.fault, None
        self.look_at(host)
        disk.fault = before

    def _look_at_copy(self) -> None:
        """Of another pod's replica, which runs as well."""
        host = self.pod.manager.hosts.get(self.partition.index) if self.pod.up and self.pod.carries_copy else None
        if host is not None and host.core is not None and host.core.is_active:
            raise Violation(f"{self.pod.name} leads partition {self.partition.index} with a copied log")

    def compare_now(self) -> None:
        """At the end of a run."""
        if self.host is not None:
            self.compare(self.host, every=1)

    def sends(self, message: Message) -> None:
        if self.pod.carries_copy:
            return
        if isinstance(message, Ack | Sealed) and not message.rebuilding and self.lacks:
            raise Violation(f"{self.name} sends {message}, and does not say that it lost {self.lacks}")
        check(self, message)
        if isinstance(message, Ack) and not message.sync and not message.rebuilding:
            self.acks(message)

    def hears(self, message: Message) -> None:
        """It is about to handle `message`."""
        core = self.core
        if core is None or core.waiting_for_storage or not isinstance(message, Ack | Mismatch):
            return
        if core.leading_epoch == message.epoch:
            self.partition.statements.heard(message.sender, message.epoch, message.incarnation)

    def leads_since(self, led: int, message: Any) -> None:
        """It answers `message`; when that came, epoch `led` was ACTIVE already, perhaps elsewhere."""
        shard = self.pod.manager.shards.get(self.partition.index)
        if shard is not None and shard.epoch < led and not self.partition.checker.loss_accepted:
            raise Violation(f"{self.name} answers {message} in epoch {shard.epoch}, asked when {led} was ACTIVE")

    def answers(self, message: Any, response: Any, generation: int) -> None:
        """A client, as the leader. `generation`: of the group when it was asked, if it was a classic one; the answer
        may come when a fence has ended live state."""
        shard = self.pod.manager.shards.get(self.partition.index)
        if shard is not None:
            assert isinstance(shard.machine, WatchedGroups)
            shard.machine.answers()
            self.pod.checks.append(partial(self._check_answer, message, response, shard.epoch, generation))

    def _check_answer(self, message: Any, response: Any, epoch: int, generation: int) -> None:
        """Against the committed log."""
        members, consumers = self.partition.members, self.partition.consumers
        reached = consumers.reached(getattr(message, "group_id", ""), getattr(message, "member_id", ""))
        members.answered(message, response, epoch, generation, reached)
        consumers.answered(message, response, epoch)

    def check_checkpoint(self) -> None:
        """A new one was published."""
        fake = self.pod.disk
        before, fake.fault = fake.fault, None
        file = CheckpointFile.open(fake, self.directory)
        fake.fault = before
        if file is None:
            return
        offset = file.head.offset
        file.close()
        committed = self.partition.checker.committed_end
        self.world.log(f"{self.name} has a checkpoint at {offset}")
        if offset > committed:
            raise Violation(f"{self.name} publishes a checkpoint at {offset}, committed is {committed}")

    @property
    def archive_directory(self) -> Path:
        """Of all logs that it had, one after the other."""
        return ROOT / self.directory.name / self.storage.log_id

    def archived(self) -> dict[int, RecordBatch]:
        assert self.host is not None
        return self.pod.archive.batches_in(ROOT / self.directory.name / self.host.replica.log_name)

    def check_archived(self, path: Path) -> None:
        """A segment of this log is in the archive."""
        self.world.injected[Injected.ARCHIVED] += 1
        self.partition.checker.archived(self.storage.log_id, self.pod.archive.batches(path))

    # -- faults, while the process is down ----------------------------------------------------------------------------

    def flip_bit(self) -> bool:
        """In a record of a segment. False: there is none."""
        disk = self.pod.disk
        names = [path for path in disk.names if path.suffix == ".log" and path.parent == self.directory]
        places = [(path, position) for path in names for position in covered(bytes(disk.content(path)))]
        if not places:
            return False
        disk.flip(*self.random.choice(places))
        self.storage.lost = "flipped bit"
        return True

    def flip_checkpoint(self) -> bool:
        """Nothing depends on it. False: there is none."""
        disk, path = self.pod.disk, self.directory / CHECKPOINT_NAME
        size = len(disk.content(path)) if path in disk.names else 0
        if size:
            disk.flip(path, self.random.randrange(size))
        return size > 0

    def damage_promise(self) -> None:
        """Both slots: the replica is lost."""
        path = self.directory / PROMISE_NAME
        for slot in range(2):
            self.pod.disk.flip(path, slot * SLOT_BYTES + self.random.randrange(40))

    def delete(self) -> None:
        """Its directory, durably."""
        disk = self.pod.disk
        for path in [path for path in disk.names if self.directory in path.parents]:
            disk.unlink(path)
            disk.fsync_dir(path.parent)
        self.new_replica()

    # -- calls --------------------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        self.pod.call(lambda manager: self._submit(manager, request))

    def _submit(self, manager: ReplicaManager, request: Request) -> None:
        if request.cancelled:
            return
        shard = manager.shards.get(self.partition.index)
        answer = ClientAnswer(self, request)
        if shard is None:
            manager.submit_early(self.partition.index, request.message, answer)
        else:
            shard.submit(request.message, answer)

    def elect(self, election: ElectionCall, answer: Callable[[CallResult], None]) -> None:
        self.partition.called.add(election.epoch)
        self.pod.call_later(
            lambda manager: manager.elect(
                self.partition.index,
                election.epoch,
                election.sets.replicas,
                election.sets.previous_replicas,
                bootstrap=election.bootstrap,
                force=election.force,
                allow_data_loss=election.allow_data_loss,
            ),
            answer,
        )

    def resign(self, epoch: int, answer: Callable[[CallResult], None]) -> None:
        self.pod.call_later(lambda manager: manager.resign(self.partition.index, epoch), answer)

    def remove(self, log_id: str, epoch: int, answer: Callable[[CallResult], None]) -> None:
        self.pod.call_later(lambda manager: manager.remove_replica(self.partition.index, log_id, epoch), answer)

    def create(self) -> None:
        self.pod.call_later(lambda manager: manager.create_replica(self.partition.index), lambda answer: None)

    def set_learners(self, learners: tuple[str, ...]) -> None:
        self.learners = learners
        self.pod.call(lambda manager: manager.set_learners(self.partition.index, learners))

    def fence(self, reshard: int, *, close: bool, answer: Callable[[Fence | FenceRefusedError], None]) -> None:
        """Close the partition to clients, or open it again."""
        fencing, index = self.pod.fencing, self.partition.index
        if close:
            self.pod.call_later(lambda manager: fencing.close(index, reshard, importing=False), answer)
        else:
            self.pod.call_later(lambda manager: fencing.open(index, reshard), answer)
