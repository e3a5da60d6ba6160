"""A replica of a real pod, as operators, clients, faults and checker see it: what it has is read after each callback of
its process: the log, what of it is durable, promises, commit points, states at rest, checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.checker import STATE_EVERY
from tests.simulation.machine import Machine, decode_batch
from tests.simulation.pod import Pod
from tests.simulation.pods.network import ClientAnswer
from tests.simulation.replica import Replica
from tests.simulation.shard import Request
from tests.simulation.storage import DiskLog, Storage
from tests.simulation.world import Violation
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.calls import CallResult
from muster_coordinator.groups.coordinator import DurableState
from muster_coordinator.log.checkpoint import CheckpointFile
from muster_coordinator.log.segments.partition_log import PartitionLog, partition_directory
from muster_coordinator.pod.replica_manager import ReplicaManager
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Ack, Batch

if TYPE_CHECKING:
    from tests.simulation.cluster import Partition
    from tests.simulation.pods.process import HostedPod

__all__ = ["DATA", "HostedReplica"]

DATA = Path("/data")


class _State:
    """The materialised state of a replica at rest, as `Machine` shows it."""

    def __init__(self, replica: HostedReplica) -> None:
        self._replica = replica

    @property
    def replayed(self) -> int:
        found = self._replica.state_at_rest
        return found[1] if found is not None else 0

    def state(self) -> DurableState:
        found = self._replica.state_at_rest
        if found is None:
            return Machine(Random(0)).state()
        machine: Any = found[0].machine
        state: DurableState = machine.durable_state()
        return state


class HostedStorage(Storage):
    """A mirror of what is on the disk."""

    def flip_bit(self) -> bool:
        return False  # this fault is not drawn here yet


class HostedReplica(Replica):
    pod: HostedPod

    def __init__(self, pod: Pod, partition: Partition) -> None:
        self.pod = pod  # type: ignore[assignment]
        self.partition = partition
        self.world = pod.world
        self.name = f"{pod.name}/{partition.index}"
        self.random = Random(f"replica {self.name} {pod.world.options.seed}")
        self.directory = partition_directory(DATA, partition.index)
        self.learners = ()
        self.shard = None
        self.machine = _State(self)  # type: ignore[assignment]
        self.new_replica()

    def new_replica(self) -> None:
        """Another log, which the next start creates."""
        self.storage = HostedStorage(f"{self.random.getrandbits(128):032x}", self.random)
        self.log = DiskLog()
        self._acked = (0, 0)  # (end, incarnation)
        self._is_new = True
        self._forget()

    def _forget(self) -> None:
        self._open: PartitionLog | None = None
        self._reported = 0  # commit point
        self._active = -1
        self._compared = -1

    # -- life ---------------------------------------------------------------------------------------------------------

    def process_starts(self, fake: FakeDisk) -> None:
        if self._is_new:
            PartitionLog.create(fake, self.directory)
            PromiseFile.create(fake, self.directory, self.storage.log_id)
            self._is_new = False
        self._forget()
        self.learners = ()
        self.partition.checker.restarted(self.storage.log_id)

    def process_ends(self) -> None:
        self.log = self.storage.durable.copy()

    @property
    def host(self) -> ReplicaHost | None:
        return self.pod.manager.hosts.get(self.partition.index) if self.pod.up else None

    @property
    def core(self) -> ReplicaCore | None:  # type: ignore[override]
        host = self.host
        return host.core if host is not None else None

    @property
    def state_at_rest(self) -> Any:
        """With committed records only: a state that has others is kept as long as the log has them."""
        host = self.host
        found = host.role.state_at_rest if host is not None else None
        return found if found is not None and found[1] <= self._reported else None

    # -- what happened ------------------------------------------------------------------------------------------------

    def observe(self) -> None:
        host = self.host
        if host is None or host.replica.log_id != self.storage.log_id:
            return
        self._observe_promise(host)
        log = host.open_log
        core = host.core
        if log is None or core is None:
            return
        self._observe_log(host, log, core)
        if self._reported < host.commit_point:
            self._reported = host.commit_point
            self.partition.checker.committed(self, self._reported)
        if core.is_active and self._active != core.leading_epoch:
            self._active = core.leading_epoch
            self.world.log(f"{self.name} is ACTIVE in {self._active}")
            self.partition.checker.active(self, self._active, (0, Machine(Random(0)).state()))
        self._compare_state(host)

    def _observe_promise(self, host: ReplicaHost) -> None:
        promise = host.replica.promise
        if promise != self.storage.promise:
            self.world.log(f"{self.name} promises {promise.epoch} to {promise.leader[:4]}")
            self.partition.checker.promised(self.storage, promise)
            self.storage.keep_promise(promise)

    def _observe_log(self, host: ReplicaHost, log: PartitionLog, core: ReplicaCore) -> None:
        if log is not self._open:
            self._opened(log)
        end = log.end_offset
        if end < self.log.end:
            self.world.log(f"{self.name} cuts its log from {self.log.end} to {end}")
            self._never_below_committed(end)
            self.log.cut(end)
        if end > self.log.end:
            self._mirror(log, core)
        if self.storage.durable.end != log.journaled_end:
            self.storage.durable = DiskLog(self.log.batches, self.log.runs, log.journaled_end)
            if len(self.log.batches) and log.journaled_end < self.log.end:
                self.storage.durable = self.log.copy()
                self.storage.durable.cut(log.journaled_end)

    def _opened(self, log: PartitionLog) -> None:
        """The log was recovered, or a copy took its place."""
        checker = self.partition.checker
        before, swapped = self.log, self._open is not None
        self._open = log
        self.log = DiskLog()
        self._append(_content(log, 0), log.end_offset)
        self.storage.durable = self.log.copy()
        checker.restarted(self.storage.log_id)
        if swapped:
            self.world.log(f"{self.name} swaps its log (end {before.end}) for a copy (end {self.log.end})")
            self._never_below_committed(self.log.end)
        promise = self.storage.promise
        acked, incarnation = self._acked
        if self.log.end < acked and incarnation == promise.incarnation and not promise.rebuilding and not swapped:
            raise Violation(f"the log of {self.name} ends at {self.log.end} after a start, acked was {acked}")

    def check_checkpoint(self) -> None:
        """A new one was published."""
        fake = self.pod.fake
        before, fake.fault = fake.fault, None
        file = CheckpointFile.open(fake, self.directory)
        fake.fault = before
        if file is not None:
            checker = self.partition.checker
            self.world.log(f"{self.name} has a checkpoint at {file.head.offset}")
            if file.head.offset > checker.committed_end:
                raise Violation(
                    f"{self.name} publishes a checkpoint at {file.head.offset}, committed is {checker.committed_end}"
                )
            file.close()

    def _never_below_committed(self, end: int) -> None:
        if end < self._reported and not self.storage.promise.rebuilding and not self.partition.checker.loss_accepted:
            raise Violation(f"{self.name} cuts its log to {end}, it reported {self._reported} as committed")

    def _mirror(self, log: PartitionLog, core: ReplicaCore) -> None:
        for batch in _content(log, self.log.end):
            opened = self.partition.checker.epochs_opened
            if batch.sets is not None and batch.epoch == core.leading_epoch and opened.get(batch.epoch) != core.log_id:
                self.world.log(f"{self.name} opens epoch {batch.epoch} at {batch.base_offset}")
                self.partition.checker.opens(self, batch.epoch, batch.sets)
            self._append([batch], batch.end_offset)
        self.log.end = log.end_offset

    def _append(self, batches: Sequence[Batch], end: int) -> None:
        self.log.append(end, batches, [(batch.epoch, batch.base_offset) for batch in batches], 0)

    def _compare_state(self, host: ReplicaHost) -> None:
        found = host.role.state_at_rest
        if found is None:
            return
        offset = found[1]
        if offset != self._compared and offset >= 0 and offset % STATE_EVERY == 0 and offset <= self._reported:
            self._compared = offset
            self.partition.checker.compare_state(self)

    def acked(self, ack: Ack) -> None:
        if not ack.rebuilding:
            end, incarnation = self._acked
            self._acked = (max(ack.end, end) if incarnation == ack.incarnation else ack.end, ack.incarnation)

    # -- calls --------------------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        self.pod.call(lambda manager: self._submit(manager, request))

    def _submit(self, manager: ReplicaManager, request: Request) -> None:
        if request.cancelled:
            return
        shard = manager.shards.get(self.partition.index)
        answer = ClientAnswer(self.pod, request)
        if shard is None:
            manager.submit_early(self.partition.index, request.message, answer)
        else:
            shard.submit(request.message, answer)

    def elect(self, election: ElectionCall, answer: Callable[[CallResult], None]) -> None:
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

    def set_learners(self, learners: tuple[str, ...]) -> None:
        self.pod.call(lambda manager: manager.set_learners(self.partition.index, learners))

    def delete_log(self, log_id: str, epoch: int) -> None:
        """As in `Replica`: by hand, while the process is down. What comes in its place is another replica."""
        core = self.core
        if core is None or log_id != self.storage.log_id or core.promise.epoch > epoch:
            return
        self.world.log(f"{self.name} deletes log {log_id[:4]}")
        self.pod.crash()
        for path in [path for path in self.pod.fake.names if path.parent == self.directory]:
            self.pod.fake.unlink(path)
        self.pod.fake.fsync_dir(self.directory)
        self.new_replica()
        self.pod.start_later()

    def publish_checkpoint(self) -> None:
        """The pod does that by itself."""

    def clean(self) -> None:
        """This work is not run here yet."""


def _content(log: PartitionLog, start: int) -> list[Batch]:
    return [
        Batch(one.base_offset, one.end_offset, one.leader_epoch, one.data, decode_batch(one.data).sets)
        for one in log.read_batches(max(start, log.start_offset))
    ]
