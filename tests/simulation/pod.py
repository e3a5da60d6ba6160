"""A simulated pod: hosts the core of one replica as the shard runtime would, over a disk that may fail.

A crash can come between any two effects. Requests of clients are answered when they are committed and, for reads,
confirmed. The state is one version number per group (negative: deleted), replayed from records "group=version".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation.checker import Checker
from tests.simulation.storage import Checkpoint, DiskLog, Storage
from tests.simulation.world import World

from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.messages import Batch, Message
from muster_coordinator.replication.rules import Rules
from muster_coordinator.replication.sets import Sets
from muster_coordinator.replication.settings import ReplicationSettings

__all__ = ["Cluster", "Crash", "Pod", "Request"]

TICK_MS = 50


class Crash(Exception):
    """The process dies here."""


@dataclass
class Request:
    """``version`` None: a read. ``cancelled``: the client closed its connection, nobody would see an answer."""

    group: str
    version: int | None
    answer: Callable[[str, int], None]  # ("ok" | "not_coordinator", version that was read)
    cancelled: bool = False


class Cluster:
    """Which pod holds which log id, and what all pods share."""

    def __init__(self, world: World, checker: Checker, rules: Rules, settings: ReplicationSettings) -> None:
        self.world = world
        self.checker = checker
        self.rules = rules
        self.settings = settings
        self.pods: dict[str, Pod] = {}
        self.named: set[tuple[str, ...]] = set()  # sets that somebody named in a call

    def damaged(self, also: Pod | None = None) -> set[str]:
        """Log ids of replicas that lost data, and have not caught up since."""
        return self.checker.lost_ids | {
            pod.storage.log_id for pod in self.pods.values() if pod is also or pod.storage.is_damaged
        }

    def is_whole(self, replicas: tuple[str, ...], also: Pod | None = None) -> bool:
        """A majority of ``replicas`` has all that it acked."""
        damaged = self.damaged(also)
        return 2 * sum(one in damaged for one in replicas) < len(replicas)

    def may_name(self, sets: Sets) -> bool:
        """Whether somebody may name these sets: each keeps a majority. Remembers them."""
        if not all(self.is_whole(each) for each in sets.each):
            return False
        self.named.update(sets.each)
        return True

    def pod_of(self, log_id: str) -> Pod | None:
        return next((pod for pod in self.pods.values() if pod.storage.log_id == log_id), None)


class Pod:
    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.world = cluster.world
        self.random = Random(f"pod {name} {cluster.world.options.seed}")
        self.storage = self.new_storage()
        self.core: ReplicaCore | None = None  # None: the process is down
        self.frozen_until = -1
        self.full = False  # disk full
        self.slow_until = -1
        self.run = 0  # of the process
        self.clock_rate = 1 + self.random.uniform(-1, 1) * self.world.options.drift
        self.clock_start = self.random.randint(0, 10_000)
        self.log = DiskLog()
        self.state: dict[str, int] = {}
        self.replayed = 0
        self.set_final: Sets | None = None
        self._copy = DiskLog()
        self._effects: deque[fx.Effect] = deque()
        self._carrying = False
        self._parked: deque[tuple[int, int, Request, int]] = deque()  # (log end, round, request, version read)
        self._confirmed = 0
        self._turn_due = False
        self._disk_free_at = 0
        self._answers: dict[int, Callable[[fx.Answer], None]] = {}
        self._calls = 0
        self.start()

    def new_storage(self) -> Storage:
        return Storage(f"{self.random.getrandbits(64):016x}", self.random)

    def now_ms(self) -> int:
        return self.clock_start + int(self.world.now_ms * self.clock_rate)

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open what is on the disk."""
        storage = self.storage
        self.run += 1
        self.log = storage.durable.copy()
        self.state, self.replayed, self._confirmed = {}, 0, 0
        self._parked.clear()
        self._effects.clear()
        self._carrying = self._turn_due = False
        self._disk_free_at = 0
        self._answers = {}
        self.set_final = None
        drawn = Random(f"nominate {self.name} {self.run}")
        period = self.world.options.nomination_ms
        self.core = ReplicaCore(
            storage.log_id,
            storage.promise,
            self.log.state(),
            self.now_ms(),
            self.cluster.settings,
            (lambda: drawn.randint(period, 2 * period)) if period else None,
            self.cluster.rules,
        )
        self.cluster.checker.restarted(storage.log_id)
        if storage.lost or storage.power_lost:
            self.world.log(f"{self.name} lost data: {storage.lost or 'power'}")
            self.carry(self.core.lost_data(self.now_ms()))
        run = self.run
        self.world.at(self.random.randint(0, TICK_MS), lambda: self._tick(run))

    def crash(self, *, power: bool = False) -> None:
        if self.core is None:
            return
        self.world.log(f"{self.name} crashes{' with power loss' if power else ''}")
        self.core = None
        self.storage.crash()
        if self.world.options.flush_os and power:
            self.storage.lose_power()
        self._effects.clear()
        self._refuse_parked()

    def _tick(self, run: int) -> None:
        if self.core is None or run != self.run:
            return
        if self.world.now_ms < self.frozen_until:
            self.world.at(self.frozen_until - self.world.now_ms, lambda: self._tick(run))
            return
        self.event(lambda core: core.tick(self.now_ms()))
        self.world.at(TICK_MS, lambda: self._tick(run))

    def event(self, call: Callable[[ReplicaCore], list[fx.Effect]]) -> None:
        """Give the core an event; a frozen process gets it later, a dead one never."""
        core, run = self.core, self.run
        if core is None:
            return
        if self.world.now_ms < self.frozen_until:

            def later() -> None:
                if self.run == run:
                    self.event(call)

            self.world.at(self.frozen_until - self.world.now_ms, later)
            return
        self.carry(call(core))

    # -- effects ------------------------------------------------------------------------------------------------------

    def carry(self, effects: list[fx.Effect]) -> None:
        """Carry out, in order; what an effect brings about comes behind."""
        self._effects.extend(effects)
        if self._carrying:
            return
        self._carrying = True
        try:
            while self._effects:
                if self.world.faults and self.random.random() < self.world.options.crash_in_effects:
                    raise Crash
                self._one(self._effects.popleft())
        except Crash:
            self._carrying = False
            self.crash()
            self.world.at(self.random.randint(1, self.world.options.restart_ms_max), self.start_again)
        finally:
            self._carrying = False

    def start_again(self) -> None:
        if self.core is None:
            self.start()

    def _one(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Send(message=message):
                self._send(message)
            case fx.StorePromise(promise=promise):
                self.world.log(f"{self.name} promises {promise.epoch} to {promise.leader[:4]}")
                self._write(lambda: self._store_promise(promise), self._storage_done)
            case fx.Truncate(end_offset=end):
                self._truncate(end)
            case fx.StartBeside():
                self._copy = DiskLog()
                self._write(lambda: None, self._storage_done)
            case fx.SwapBeside():
                self._swap()
            case fx.AppendRange():
                self._append_range(effect)
            case fx.ReadLog(ticket=ticket, start=start, bytes_max=bytes_max):
                end, batches = self.log.read(start, bytes_max)
                self.world.at(
                    self.random.randint(0, 1),
                    lambda: self.event(lambda core: core.log_read(ticket, end, batches, self.now_ms())),
                )
            case fx.Load(epoch=epoch):
                self._replay(self.log.end)
                self.carry(self._core.loaded(epoch, self.now_ms()))
            case fx.AppendLeaderChange(epoch=epoch, sets=sets):
                self.world.log(f"{self.name} opens epoch {epoch} at {self.log.end}")
                self.cluster.checker.opens(self, epoch, sets)
                self._append_own(b"", sets)
            case fx.AppendReplicaSet(replicas=replicas):
                self._append_own(b"", Sets(replicas))
            case fx.Active(epoch=epoch):
                self.world.log(f"{self.name} is ACTIVE in {epoch}")
                self.cluster.checker.active(epoch, self.storage.log_id)
            case fx.SteppedDown(epoch=epoch, reason=reason):
                self.world.log(f"{self.name} no longer leads {epoch}: {reason}")
                self._refuse_parked()
                self.state, self.replayed = {}, 0
            case fx.CommitPointMoved(offset=offset):
                self.cluster.checker.committed(self, offset)
                if self._core.leading_epoch < 0:
                    self._replay(offset)
                    self.cluster.checker.replayed(self)
                self._release()
            case fx.ReadsConfirmed(round=round_):
                self._confirmed = round_
                self._release()
            case fx.SetFinal(replicas=replicas):
                self.set_final = Sets(replicas)
            case fx.DiscardCheckpoints():
                self.storage.checkpoint = None
            case fx.Answer(call=call):
                answer = self._answers.pop(call, None)
                if answer is not None:
                    answer(effect)
            case fx.DataLossAccepted():
                pass

    @property
    def _core(self) -> ReplicaCore:
        assert self.core is not None
        return self.core

    def _send(self, message: Message) -> None:
        target = self.cluster.pod_of(message.to)
        if target is not None:
            self.world.send(
                self.name, target.name, lambda: target.event(lambda core: core.receive(message, target.now_ms()))
            )

    # -- storage ------------------------------------------------------------------------------------------------------

    def _write(self, write: Callable[[], None], done: Callable[[], None]) -> None:
        """One write behind the other; ``done`` unless the process dies first."""
        options = self.world.options
        run = self.run
        finish = self.storage.begin(write)
        took = self.random.randint(0, options.disk_ms_max)
        if self.world.now_ms < self.slow_until:
            took += self.random.randint(0, options.slow_disk_ms)
        self._disk_free_at = max(self._disk_free_at, self.world.now_ms) + took

        def finished() -> None:
            if self.run == run and finish():
                self._when_thawed(run, done)

        self.world.at(self._disk_free_at - self.world.now_ms, finished)

    def _when_thawed(self, run: int, done: Callable[[], None]) -> None:
        if self.run != run or self.core is None:
            return
        if self.world.now_ms < self.frozen_until:
            self.world.at(self.frozen_until - self.world.now_ms, lambda: self._when_thawed(run, done))
        else:
            done()

    def _storage_done(self) -> None:
        self.carry(self._core.storage_done(self.now_ms()))

    def _store_promise(self, promise: fx.Promise) -> None:
        self.cluster.checker.promised(self.storage, promise)
        self.storage.promise = promise
        if promise.rebuilding:
            self.storage.lost, self.storage.power_lost = "", False

    def _truncate(self, end: int) -> None:
        self.world.log(f"{self.name} cuts its log from {self.log.end} to {end}")
        self.log.cut(end)
        if self.replayed > end:
            self.state, self.replayed = {}, 0
        storage = self.storage

        def cut() -> None:
            storage.durable.cut(end)
            storage.synced_end = min(storage.synced_end, end)

        self._write(cut, self._storage_done)

    def _swap(self) -> None:
        self.world.log(f"{self.name} swaps its log (end {self.log.end}) for a copy (end {self._copy.end})")
        copy = self.log = self._copy
        self._copy = DiskLog()
        self.state, self.replayed = {}, 0
        self.cluster.checker.restarted(self.storage.log_id)
        storage = self.storage

        def swap() -> None:
            storage.durable = copy.copy()
            storage.synced_end = copy.end
            storage.checkpoint = None

        self._write(swap, self._storage_done)

    def _append_range(self, effect: fx.AppendRange) -> None:
        log = self._copy if effect.beside else self.log
        if self.full:
            raise Crash
        self._append(log, effect.end, effect.batches, effect.horizon, durably=not effect.beside)

    def _append(
        self, log: DiskLog, end: int, batches: tuple[Batch, ...], horizon: int, *, durably: bool = True
    ) -> None:
        start = log.end
        runs = self._core.log.runs(start, end) if durably else tuple((b.epoch, b.base_offset) for b in batches)
        log.append(end, batches, runs, horizon)
        if not durably:
            return
        storage = self.storage

        def write() -> None:
            storage.durable.append(end, batches, runs, horizon)
            if not self.world.options.flush_os or storage.durable.end % 7 == 0:
                storage.synced_end = storage.durable.end

        def written() -> None:
            self.carry(self._core.log_durable(end, self.now_ms()))

        self._write(write, written)

    def _append_own(self, data: bytes, sets: Sets | None = None) -> None:
        if self.full:
            raise Crash
        epoch = self._core.leading_epoch
        base = self.log.end
        batch = Batch(base, base + max(data.count(b";") + 1, 1), epoch, data, sets)
        self._core.appended(batch)
        self._append(self.log, batch.end_offset, (batch,), self.log.horizon)
        apply(batch, self.state)
        self.replayed = batch.end_offset
        self.turn_soon()

    # -- state --------------------------------------------------------------------------------------------------------

    def _replay(self, end: int) -> None:
        """From checkpoint and log, as far as it is not replayed yet."""
        if self.replayed == 0 and self.storage.checkpoint is not None:
            point = self.storage.checkpoint
            if self._core.checkpoint_fits(point.offset, point.epoch):
                self.state, self.replayed = dict(point.state), point.offset
        for batch in self.log._from(self.replayed):
            if batch.end_offset > end:
                break
            apply(batch, self.state)
        self.replayed = max(self.replayed, end)

    def publish_checkpoint(self) -> None:
        core = self.core
        if core is None or core.promise.rebuilding:
            return
        offset = min(self.replayed, core.checkpoint_limit)
        if offset == self.replayed and offset > 0 and self.log.end >= offset:
            self.cluster.checker.checkpoint(self, offset)
            self.storage.checkpoint = Checkpoint(offset, self.log.epoch_before(offset), dict(self.state))

    def clean(self) -> None:
        """Remove what later records supersede, tombstones included, below the commit point and on the disk."""
        core = self.core
        if core is None or core.waiting_for_storage:
            return
        limit = min(core.commit_point, self.storage.durable.end)
        latest: dict[str, int] = {}
        for batch in self.log.batches:
            if batch.end_offset <= limit:
                for group, _ in records(batch):
                    latest[group] = batch.base_offset
        horizon = 0
        kept: list[Batch] = []
        for batch in self.log.batches:
            content = records(batch)
            dead = all(latest.get(group) != batch.base_offset or version < 0 for group, version in content)
            if batch.end_offset <= limit and content and dead:
                if any(version < 0 for _, version in content):
                    horizon = batch.end_offset
            else:
                kept.append(batch)
        if len(kept) < len(self.log.batches):
            self.cluster.checker.cleaned_end = max(self.cluster.checker.cleaned_end, limit)
            self.world.log(f"{self.name} cleans below {limit}, horizon {horizon}")
            removed = {b.base_offset for b in self.log.batches} - {b.base_offset for b in kept}
            for log in (self.log, self.storage.durable):
                log.batches = [batch for batch in log.batches if batch.base_offset not in removed]
                log.horizon = max(log.horizon, horizon)
            core.log.horizon = max(core.log.horizon, horizon)

    # -- clients ------------------------------------------------------------------------------------------------------

    def request(self, request: Request) -> None:
        """From the network, perhaps while frozen."""
        run = self.run
        if self.core is not None:
            self._when_thawed(run, lambda: self._request(request))

    def _request(self, request: Request) -> None:
        core = self._core
        if request.cancelled:
            return
        if not core.is_active:
            request.answer("not_coordinator", 0)
            return
        try:
            if request.version is not None:
                self._append_own(f"{request.group}={request.version}".encode())
                self._parked.append((self.log.end, 0, request, 0))
            else:
                self._parked.append((self.log.end, core.confirm_read(), request, self.state.get(request.group, 0)))
                self.turn_soon()
                self._release()
        except Crash:
            self.crash()
            self.world.at(self.random.randint(1, self.world.options.restart_ms_max), self.start_again)

    def turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            run = self.run
            self.world.at(self.random.randint(0, 1), lambda: self._when_thawed(run, self._turn))

    def _turn(self) -> None:
        self._turn_due = False
        self.carry(self._core.end_turn(self.now_ms()))

    def _release(self) -> None:
        core = self._core
        if not core.is_active:
            return
        while self._parked:
            end, round_, request, version = self._parked[0]
            if end > core.commit_point or round_ > self._confirmed:
                return
            self._parked.popleft()
            request.answer("ok", version)

    def _refuse_parked(self) -> None:
        parked, self._parked = self._parked, deque()
        for _, _, request, _ in parked:
            request.answer("unknown", 0)

    # -- calls of the operator ----------------------------------------------------------------------------------------

    def elect(self, election: ElectionCall, answer: Callable[[fx.Answer], None]) -> None:
        self._call(
            lambda call: lambda core: core.elect(call, election, self.now_ms(), cannot_write=self._why()), answer
        )

    def resign(self, epoch: int, answer: Callable[[fx.Answer], None]) -> None:
        self._call(lambda call: lambda core: core.resign(call, epoch, self.now_ms()), answer)

    def _why(self) -> str:
        return "disk full" if self.full else ""

    def _call(
        self,
        make: Callable[[int], Callable[[ReplicaCore], list[fx.Effect]]],
        answer: Callable[[fx.Answer], None],
    ) -> None:
        if self.core is None:
            return
        self._calls += 1
        self._answers[self._calls] = answer
        self.event(make(self._calls))


def records(batch: Batch) -> list[tuple[str, int]]:
    """(group, version) of each record; a negative version is a tombstone."""
    if not batch.data:
        return []
    return [(group, int(version)) for group, version in (one.split("=") for one in batch.data.decode().split(";"))]


def apply(batch: Batch, state: dict[str, int]) -> None:
    for group, version in records(batch):
        if version < 0:
            state.pop(group, None)
        else:
            state[group] = version
