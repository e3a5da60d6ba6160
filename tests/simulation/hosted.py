"""The real pod in the simulation: `ReplicaManager` with all that belongs to it, over a disk in memory, the world's
network, and an event loop and clocks of the simulation.

`HostedPod` and `HostedReplica` look like `pod.Pod` and `replica.Replica` to operators, clients and faults. What the
checker must see is read after each callback of the process: the log, what of it is durable, promises, commit points,
states at rest, checkpoints.
"""

from __future__ import annotations

import asyncio
import errno
import math
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation.checker import STATE_EVERY
from tests.simulation.injected import Injected
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import CONFIG, Machine, decode_batch
from tests.simulation.pod import Pod
from tests.simulation.replica import Replica
from tests.simulation.shard import Request
from tests.simulation.storage import Disk, DiskLog, Storage
from tests.simulation.world import Violation, World
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.calls import CallResult
from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.coordinator import DurableState, GroupCoordinator
from muster_coordinator.log.checkpoint import NAME as CHECKPOINT_NAME
from muster_coordinator.log.checkpoint import CheckpointFile
from muster_coordinator.log.segments.partition_log import PartitionLog, partition_directory
from muster_coordinator.pod.chores.checkpointing import CheckpointerSettings
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.replica_manager import ManagerSettings, ReplicaManager
from muster_coordinator.replica.host import ReplicaHost
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Ack, Batch, Message, decode_message, encode_message

if TYPE_CHECKING:
    from tests.simulation.cluster import Partition

__all__ = ["HostedPod", "HostedReplica"]

DATA = Path("/data")
SEGMENT_BYTES = 4_000
JOURNAL_BYTES = 16_384
COMMIT_TIMEOUT_MS = 5_000
APPENDS = ("pwritev", "pwritev_durably", "fill_with_zeros")
WRITES = (*APPENDS, "fdatasync", "rename", "unlink", "fsync_dir")


class _AllTopics:
    def has(self, topic: str, partition: int) -> bool:
        return True


class ProcessDisk:
    """A process's way to its disk: implements `log.disk.Disk`. A process that ended reaches it no more."""

    def __init__(self, pod: HostedPod, fake: FakeDisk) -> None:
        self._pod = pod
        self._fake = fake
        self._run = pod.run

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._fake, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if self._pod.run != self._run or not self._pod.up or self._pod.is_dying:
                raise OSError(errno.EIO, "the process has ended")
            if name == "rename" and arguments[1].name == CHECKPOINT_NAME:
                self._pod.published.append(arguments[1].parent)
            return operation(*arguments, **options)

        return call


class ProcessClock:
    """Implements `shard.ports.Clock`."""

    def __init__(self, pod: HostedPod) -> None:
        self._pod = pod

    def wall_ms(self) -> int:
        return self._pod.wall_ms()

    def monotonic_ms(self) -> int:
        return self._pod.now_ms()

    def monotonic_s(self) -> float:
        return self._pod.now_ms() / 1000


class HostedPod(Pod):
    """`manager`: of the present process. `is_dying`: the process ends with the present callback, and nothing that it
    does until then reaches disk, network or clients. `published`: directories whose checkpoint is new.
    """

    manager: ReplicaManager
    replicas: list[HostedReplica]  # type: ignore[assignment]

    def __init__(self, name: str, world: World, new_disk: type[Disk]) -> None:
        super().__init__(name, world, Disk)
        self.fake = FakeDisk()
        self.is_dying = False
        self.published: list[Path] = []
        self._must_restart = False
        self._boots = 0
        self._ended: list[object] = []  # processes: collecting them would run their `finally` blocks

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.up:
            return
        self.up = True
        self.run += 1
        self.world.injected[Injected.RESTART] += self.run > 1
        self.image = (-1, -1)
        self.is_dying = self._must_restart = False
        self.fake.fault = None
        for replica in self.replicas:
            replica.process_starts(self.fake)
        self.fake.fault = self._fault
        self.loop = SimulatedLoop(
            partial(self._at, self.run),
            lambda: self.now_ms() / 1000,
            self._thread_delay_s,
            partial(self._failed, self.run),
        )
        self._enter(self._start_process)

    def _start_process(self) -> None:
        options = self.world.options
        self.manager = ReplicaManager(
            Partitions(),
            DATA,
            ProcessDisk(self, self.fake),  # type: ignore[arg-type]
            ManagerSettings(
                StorageSettings(
                    segment_bytes=SEGMENT_BYTES,
                    journal_bytes=JOURNAL_BYTES,
                    flush_interval_ms=self.random.choice((5, 100)),
                    boot_id=f"boot {self._boots}",
                ),
                COMMIT_TIMEOUT_MS,
                checkpointer=CheckpointerSettings(1, options.checkpoint_every_ms)
                if options.checkpoint_every_ms
                else None,
            ),
            ProcessClock(self),
            _Network(self),
            lambda: GroupCoordinator(CONFIG, _AllTopics(), lambda: f"{self.random.getrandbits(64):016x}"),
            PodEvents(),
            self._restart_needed,
        )
        self._ended.append((self.loop, self.manager))
        self.loop.create_task(self.manager.start()).add_done_callback(self._started)

    def _started(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if error is not None:  # as `process.compose` does
            self.world.log(f"{self.name} cannot start: {error}")
            if not isinstance(error, OSError):
                raise error
            self.is_dying = True

    def _restart_needed(self) -> None:
        self._must_restart = True

    def crash(self, *, power: bool = False, failed: bool = False) -> None:
        if not self.up:
            return
        self.world.log(f"{self.name} crashes{' with power loss' if power else ''}")
        self.world.injected[Injected.CRASH] += 1
        self.up = False
        self.fake.fault = None
        if power:
            self._boots += 1
            self.world.injected[Injected.WRITE_TORN] += self.fake.lose_power(self.random)
        else:
            self.fake.kill()
        for replica in self.replicas:
            replica.process_ends()

    def lose_volume(self) -> None:
        self.fake = FakeDisk()
        for replica in self.replicas:
            replica.new_replica()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _at(self, run: int, delay_s: float, callback: Callable[[], None]) -> None:
        delay_ms = math.ceil(delay_s * 1000 / self.clock_rate) + 1 if delay_s > 0 else 0
        self.world.at(delay_ms, lambda: self.when_thawed(run, lambda: self._observed(callback)))

    def _enter(self, do: Callable[[], None]) -> None:
        self._observed(lambda: self.loop.enter(do))

    def call(self, do: Callable[[ReplicaManager], None]) -> None:
        """From outside of the process: a dead one never gets it, a frozen one when it thaws."""
        if self.up:
            self.when_thawed(self.run, lambda: self._enter(lambda: do(self.manager)))

    def call_later(
        self, work: Callable[[ReplicaManager], Coroutine[Any, Any, CallResult]], answer: Callable[[CallResult], None]
    ) -> None:
        """The answer of a coroutine; none if the process ends before."""

        def ended(task: asyncio.Task[CallResult]) -> None:
            if not self.is_dying:
                answer(task.result())

        self.call(lambda manager: self.loop.create_task(work(manager)).add_done_callback(ended))

    def _observed(self, callback: Callable[[], None]) -> None:
        callback()
        if self.is_dying or self._must_restart:
            self.crash(power=self.is_dying and self.random.random() < self.world.options.power_loss)
            self.start_later()
            return
        for replica in self.replicas:
            replica.observe()
        while self.published:
            self._check_checkpoint(self.published.pop())

    def _check_checkpoint(self, directory: Path) -> None:
        replica = next(one for one in self.replicas if one.directory == directory)
        before, self.fake.fault = self.fake.fault, None
        file = CheckpointFile.open(self.fake, directory)
        self.fake.fault = before
        if file is not None:
            checker = replica.partition.checker
            self.world.log(f"{replica.name} has a checkpoint at {file.head.offset}")
            if file.head.offset > checker.committed_end:
                raise Violation(
                    f"{replica.name} publishes a checkpoint at {file.head.offset}, committed is {checker.committed_end}"
                )
            file.close()

    def _failed(self, run: int, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or run != self.run or not self.up or self.is_dying:
            return  # of a process that has ended
        if isinstance(error, Violation):
            raise error
        if not isinstance(error, OSError):
            raise Violation(f"{self.name}: {context.get('message')}: {error!r}")

    # -- disk ---------------------------------------------------------------------------------------------------------

    @property
    def cannot_write(self) -> str:
        return self.manager.health.cannot_write if self.up else ""

    def _thread_delay_s(self) -> float:
        options = self.world.options
        took = self.random.randint(0, options.disk_ms_max)
        if self.world.now_ms < self.slow_until:
            self.world.injected[Injected.SLOW_DISK] += 1
            took += self.random.randint(0, options.slow_disk_ms)
        return took / 1000

    def _fault(self, operation: str, path: Path, size: int) -> None:
        if operation not in WRITES:
            return
        if self.world.faults and self.random.random() < self.world.options.crash_in_effects:
            self.world.injected[Injected.CRASH_BETWEEN_EFFECTS] += 1
            self.is_dying = True
            raise OSError(errno.EIO, "the process ends here")
        if self.full and operation in APPENDS:
            self.world.injected[Injected.DISK_FULL] += 1
            raise OSError(errno.ENOSPC, "disk full")
        if self.world.now_ms < self.broken_until and operation in APPENDS:
            self.world.injected[Injected.IO_ERROR] += 1
            raise OSError(errno.EIO, f"{operation} {path}")


class _Network:
    """Implements `replica.ports.Peers`."""

    def __init__(self, pod: HostedPod) -> None:
        self._pod = pod

    def send(self, partition: int, message: Message) -> None:
        pod = self._pod
        here = next(one for one in pod.replicas if one.partition.index == partition)
        target = here.partition.replica_of(message.to)
        if target is None or pod.is_dying or not pod.up:
            return
        if isinstance(message, Ack):
            here.acked(message)
        to: HostedPod = target.pod  # type: ignore[assignment]
        sent = decode_message(encode_message(message))
        pod.world.send(pod.name, to.name, lambda: to.call(lambda manager: manager.receive(partition, sent)))


class _Answer:
    """Implements `shard.ports.Answer`."""

    def __init__(self, pod: HostedPod, request: Request) -> None:
        self._pod = pod
        self._run = pod.run
        self._request = request

    def answer(self, response: Any) -> None:
        if self._pod.run == self._run and self._pod.up and not self._pod.is_dying:
            self._request.answer(response)

    def refuse(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation(f"{self._pod.name} has no answer for {self._request.message}")
        self.answer(None)


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
        assert isinstance(pod, HostedPod)
        self.pod = pod
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
        answer = _Answer(self.pod, request)
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
