"""A simulated replica: hosts the core as the shard runtime would, over a disk that may fail.

A crash can come between any two effects. The state behind the log is the real group coordinator's (``machine``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.machine import Machine, leader_change, make_batch, replica_set
from tests.simulation.pod import Pod
from tests.simulation.shard import Request, SimulatedShard
from tests.simulation.storage import Checkpoint, DiskLog, Storage

from muster_coordinator.calls import CallResult
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Batch, Message, decode_message, encode_message
from muster_coordinator.shard.ports import NO_PRODUCER
from muster_coordinator.state_machine import Record

if TYPE_CHECKING:
    from tests.simulation.cluster import Partition

__all__ = ["Replica"]


class Replica:
    """``core`` is None while the process is down."""

    def __init__(self, pod: Pod, partition: Partition) -> None:
        self.pod = pod
        self.partition = partition
        self.world = pod.world
        self.name = f"{pod.name}/{partition.index}"
        self.random = Random(f"replica {self.name} {pod.world.options.seed}")
        self.storage = self.new_storage()
        self.core: ReplicaCore | None = None
        self.log = DiskLog()
        self.machine = Machine(self.random)
        self.learners: tuple[str, ...] = ()
        self.shard: SimulatedShard | None = None
        self._copy = DiskLog()
        self._effects: deque[fx.Effect] = deque()
        self._carrying = False
        self._turn_due = False
        self._lazy = False  # the core does not know the last batches of a leader that is alone
        self._durable_end = 0
        self._answers: dict[int, Callable[[CallResult], None]] = {}
        self._calls = 0
        self._opened = (0, self.machine.state())  # offset and state when the last epoch was opened here

    def new_storage(self) -> Storage:
        return self.pod.disk.new_storage(f"{self.random.getrandbits(128):032x}", self.partition.index, self.random)

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open what is on the disk."""
        storage = self.storage
        state = storage.open()
        self.log = storage.durable.copy()
        self.machine.reset()
        self._effects.clear()
        self._carrying = self._turn_due = self._lazy = False
        self._durable_end = self.log.end
        self._answers = {}
        self.learners = ()
        drawn = Random(f"nominate {self.name} {self.pod.run}")
        period = self.world.options.nomination_ms
        self.core = ReplicaCore(
            self.partition.index,
            storage.log_id,
            storage.promise,
            state,
            self.pod.now_ms(),
            self.partition.settings,
            (lambda: drawn.randint(period, 2 * period)) if period else None,
            self.partition.rules,
        )
        self.partition.checker.restarted(storage.log_id)
        if storage.power_lost and not storage.promise.used:
            storage.power_lost = False  # nothing of it was ever acked
        if storage.lost or storage.power_lost:
            self.world.log(f"{self.name} lost data: {storage.lost or 'power'}")
            self.carry(self.core.lost_data(self.pod.now_ms()))

    def crash(self) -> None:
        self.core = None
        self._effects.clear()
        self._end_shard()

    def flip_bit(self) -> bool:
        return self.storage.flip_bit()

    def tick(self) -> None:
        self._event(lambda core: core.tick(self.pod.now_ms()))

    def event(self, call: Callable[[ReplicaCore], list[fx.Effect]]) -> None:
        """Give the core an event; a frozen process gets it later, a dead one never."""
        if self.pod.up:
            self.pod.when_thawed(self.pod.run, lambda: self._event(call))

    def _event(self, call: Callable[[ReplicaCore], list[fx.Effect]]) -> None:
        core = self.running
        self._bring_up_to_date(core)
        self.carry(call(core))

    def _bring_up_to_date(self, core: ReplicaCore) -> None:
        if self._lazy:
            self._lazy = False
            self.carry(core.advance_alone(self.log.end, self._durable_end, self.pod.now_ms()))

    @property
    def running(self) -> ReplicaCore:
        assert self.core is not None
        return self.core

    # -- effects ------------------------------------------------------------------------------------------------------

    def carry(self, effects: list[fx.Effect]) -> None:
        """Carry out, in order; what an effect brings about comes behind."""
        self._effects.extend(effects)
        if self._carrying:
            return
        self._carrying = True
        try:
            while self._effects:
                self.pod.may_crash()
                self._one(self._effects.popleft())
        finally:
            self._carrying = False
        core = self.core
        if self.shard is not None and core is not None and core.leading_epoch < 0 and not core.is_candidate:
            self._give_up_shard()

    def _one(self, effect: fx.Effect) -> None:
        checker = self.partition.checker
        match effect:
            case fx.Send(message=message):
                self._send(message)
            case fx.StorePromise(promise=promise):
                self.world.log(f"{self.name} promises {promise.epoch} to {promise.leader[:4]}")
                self.pod.write(lambda: self._store_promise(promise), self._storage_done)
            case fx.Truncate(end_offset=end):
                self._truncate(end)
            case fx.StartCopy():
                self._copy = DiskLog()
                self.pod.write(lambda: None, self._storage_done)
            case fx.SwapCopy():
                self._swap()
            case fx.AppendRange():
                self._append_range(effect)
            case fx.ReadLog():
                self._read_log(effect)
            case fx.Load(epoch=epoch):
                if self.shard is None:
                    self._replay(self.log.end)
                self.carry(self.running.loaded(epoch, self.pod.now_ms()))
            case fx.AppendLeaderChange(epoch=epoch, sets=sets):
                self.world.log(f"{self.name} opens epoch {epoch} at {self.log.end}")
                checker.opens(self, epoch, sets)
                self.append_own([leader_change(self.storage.log_id, sets)], self.pod.wall_ms(), control=True)
                self._opened = (self.machine.replayed, self.machine.state())
                if self.shard is None:
                    self.shard = SimulatedShard(self)
                self.shard.open_epoch(epoch)
            case fx.AppendReplicaSet(replicas=replicas):
                self.append_own([replica_set(replicas)], self.pod.wall_ms(), control=True)
            case fx.Active(epoch=epoch):
                self.world.log(f"{self.name} is ACTIVE in {epoch}")
                checker.active(self, epoch, self._opened)
                if self.shard is not None:
                    self.shard.activate()
            case fx.SteppedDown(epoch=epoch, reason=reason):
                self.world.log(f"{self.name} no longer leads {epoch}: {reason}")
                if effect.elected_again and self.shard is not None and self.shard.is_active:
                    self.shard.hold()
                else:
                    self._end_shard()
                    self.machine.reset()
            case fx.CommitPointMoved(offset=offset):
                self._commit_moved(offset)
            case fx.ReadsConfirmed(round=round_):
                if self.shard is not None:
                    self.shard.reads_confirmed(round_)
            case fx.DiscardCheckpoints():
                self.storage.checkpoint = None
            case fx.CallEnded(call=call, result=result):
                answer = self._answers.pop(call, None)
                if answer is not None:
                    answer(result)
            case fx.DataLossAccepted(epoch=epoch):
                self.world.log(f"{self.name} accepts data loss in {epoch}")
                checker.accepts_loss(epoch)

    def _send(self, message: Message) -> None:
        target = self.partition.replica_of(message.to)
        if target is not None:
            sent = decode_message(encode_message(message)) if self.world.options.encode else message
            self.world.send(
                self.pod.name,
                target.pod.name,
                lambda: target.event(lambda core: core.receive(sent, target.pod.now_ms())),
            )

    def _end_shard(self) -> None:
        shard, self.shard = self.shard, None
        if shard is not None:
            shard.end()

    def _give_up_shard(self) -> None:
        """An election of the leader itself failed, or found a better log."""
        if self.shard is not None:
            self._end_shard()
            self.machine.reset()

    def _commit_moved(self, offset: int) -> None:
        self.partition.checker.committed(self, offset)
        if self.running.leading_epoch < 0:
            self._replay(offset)
            self.partition.checker.replayed(self)
        if self.shard is not None:
            self.shard.committed(offset)

    # -- storage ------------------------------------------------------------------------------------------------------

    def _storage_done(self) -> None:
        self._event(lambda core: core.storage_done(self.pod.now_ms()))

    def _store_promise(self, promise: fx.Promise) -> None:
        self.partition.checker.promised(self.storage, promise)
        self.storage.keep_promise(promise)

    def _truncate(self, end: int) -> None:
        self._give_up_shard()
        self.world.log(f"{self.name} cuts its log from {self.log.end} to {end}")
        self.log.cut(end)
        self._durable_end = min(self._durable_end, end)
        if self.machine.replayed > end:
            self.machine.reset()
        self.pod.write(lambda: self.storage.cut(end), self._storage_done)

    def _swap(self) -> None:
        self._give_up_shard()
        self.world.log(f"{self.name} swaps its log (end {self.log.end}) for a copy (end {self._copy.end})")
        copy = self.log = self._copy
        self._copy = DiskLog()
        self.machine.reset()
        self.partition.checker.restarted(self.storage.log_id)
        self.pod.write(lambda: self.storage.swap(copy), self._storage_done)

    def _read_log(self, effect: fx.ReadLog) -> None:
        end, batches = self.log.read(effect.start, effect.bytes_max)
        self.world.at(
            self.random.randint(0, 1),
            lambda: self.event(lambda core: core.log_read(effect.ticket, end, batches, self.pod.now_ms())),
        )

    def _append_range(self, effect: fx.AppendRange) -> None:
        if effect.to_copy:
            runs = [(batch.epoch, batch.base_offset) for batch in effect.batches]
            self._copy.append(effect.end, effect.batches, runs, effect.horizon)
        else:
            self._give_up_shard()
            self._append(effect.end, effect.batches, effect.horizon)

    def _append(self, end: int, batches: tuple[Batch, ...], horizon: int) -> None:
        self.pod.check_room()
        runs = self.running.log.runs(self.log.end, end)
        self.log.append(end, batches, runs, horizon)
        storage = self.storage

        def write() -> None:
            storage.append(end, batches, runs, horizon)
            if not self.world.options.flush_os or end % 7 == 0:
                storage.sync()

        self.pod.write(write, lambda: self._log_durable(end))

    def _log_durable(self, end: int) -> None:
        """A leader that is alone commits by its own disk; its core hears of it with the next event."""
        self._durable_end = max(self._durable_end, end)
        if self._lazy:
            self._commit_moved(end)
        else:
            self._event(lambda core: core.log_durable(end, self.pod.now_ms()))

    def append_own(
        self, records: list[Record], now_ms: int, producer: tuple[int, int] = NO_PRODUCER, *, control: bool = False
    ) -> None:
        """As the leader: one batch, which the state has already. Raises Crash."""
        core = self.running
        batch = make_batch(records, self.log.end, core.leading_epoch, now_ms, producer, control=control)
        if self.world.options.lazy and core.is_alone and batch.sets is None:
            self._lazy = True
        else:
            self._bring_up_to_date(core)
            core.appended(batch)
        self._append(batch.end_offset, (batch,), self.log.horizon)
        self.machine.replayed = batch.end_offset
        self.turn_soon()

    # -- state --------------------------------------------------------------------------------------------------------

    def _replay(self, end: int) -> None:
        """From checkpoint and log, as far as it is not replayed yet."""
        machine, point = self.machine, self.storage.checkpoint
        if machine.replayed == 0 and point is not None and self.running.checkpoint_fits(point.offset, point.epoch):
            machine.restore(point.parts, point.offset)
        machine.replay_to(self.log.batches_from(machine.replayed), end)

    def publish_checkpoint(self) -> None:
        core, machine = self.core, self.machine
        if core is None or core.promise.rebuilding:
            return
        offset = min(machine.replayed, core.checkpoint_limit)
        if offset == machine.replayed and offset > 0 and self.log.end >= offset:
            self.partition.checker.checkpoint(self, offset)
            self.storage.checkpoint = Checkpoint(offset, self.log.epoch_before(offset), machine.snapshot())

    def clean(self) -> None:
        """Compact below the commit point what is on the disk, tombstones included."""
        core = self.core
        if core is None or core.waiting_for_storage:
            return
        limit = min(core.commit_point, self.storage.durable.end)
        changed, horizon = self.storage.clean(limit, self.pod.wall_ms())
        if not changed:
            return
        self.partition.checker.cleaned(limit)
        self.world.log(f"{self.name} cleans below {limit}, horizon {horizon}")
        self.log.clean(changed, horizon)
        core.log.horizon = max(core.log.horizon, horizon)

    # -- clients ------------------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        """From the network, perhaps while frozen."""
        self.pod.when_thawed(self.pod.run, lambda: self._request(request))

    def _request(self, request: Request) -> None:
        if request.cancelled:
            return
        if self.shard is None:
            request.answer(None)
        else:
            self.shard.submit(request)

    def confirm_read(self) -> int:
        self.turn_soon()
        return self.running.confirm_read()

    def turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            run = self.pod.run
            self.world.at(self.random.randint(0, 1), lambda: self.pod.when_thawed(run, self._turn))

    def _turn(self) -> None:
        self._turn_due = False
        if self.shard is not None:
            self.shard.end_turn()
        self._event(lambda core: core.end_turn(self.pod.now_ms()))

    # -- calls of the operator ----------------------------------------------------------------------------------------

    def elect(self, election: ElectionCall, answer: Callable[[CallResult], None]) -> None:
        why = self.pod.cannot_write
        election = replace(election, learners=self.learners)
        self._call(lambda call: lambda core: core.elect(call, election, self.pod.now_ms(), cannot_write=why), answer)

    def resign(self, epoch: int, answer: Callable[[CallResult], None]) -> None:
        self._call(lambda call: lambda core: core.resign(call, epoch, self.pod.now_ms()), answer)

    def delete_log(self, log_id: str, epoch: int) -> None:
        """It left its set for good under a leader of ``epoch``. What comes in its place is another replica; the pod is
        restarted for it.
        """
        core = self.core
        if core is None or log_id != self.storage.log_id or core.promise.epoch > epoch:
            return
        self.world.log(f"{self.name} deletes log {log_id[:4]}")
        self.pod.crash()
        self.pod.disk.delete(self.partition.index)
        self.storage = self.new_storage()
        self.pod.start_later()

    def set_learners(self, learners: tuple[str, ...]) -> None:
        self.learners = tuple(one for one in learners if one != self.storage.log_id)
        self.event(lambda core: core.set_learners(self.learners, self.pod.now_ms()))

    def _call(
        self,
        make: Callable[[int], Callable[[ReplicaCore], list[fx.Effect]]],
        answer: Callable[[CallResult], None],
    ) -> None:
        if self.core is None:
            return
        self._calls += 1
        self._answers[self._calls] = answer
        self.event(make(self._calls))
