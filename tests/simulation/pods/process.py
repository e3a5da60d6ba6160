"""The real pod in the simulation: `ReplicaManager` with all that belongs to it, over a disk in memory, the world's
network, and an event loop and clocks of the simulation.

What the checker must see is read after each callback of the process.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.injected import Injected
from tests.simulation.loop import At, SimulatedLoop
from tests.simulation.machine import CONFIG, CONSUMER_CONFIG
from tests.simulation.pods.archive import SharedArchive
from tests.simulation.pods.clock import MachineClock, ProcessClock
from tests.simulation.pods.disk import DiskFaults, ProcessDisk
from tests.simulation.pods.groups import WatchedGroups
from tests.simulation.pods.network import ProcessNetwork
from tests.simulation.pods.replica import DATA, HostedReplica
from tests.simulation.world import Violation, World
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.groups.consumer.tables import ConsumerTables
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.checkpoint import NAME as CHECKPOINT_NAME
from muster_coordinator.log.segments.cleaned import COMPACTED
from muster_coordinator.pod.chores.archiving import ArchiverSettings
from muster_coordinator.pod.chores.checkpointing import CheckpointerSettings
from muster_coordinator.pod.chores.cleaning import CleanerSettings
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.regex_resolver import RegexResolver
from muster_coordinator.pod.replica_manager import ManagerSettings, ReplicaManager
from muster_coordinator.replica.ports import Peers
from muster_coordinator.replication.settings import ReplicationSettings
from muster_coordinator.shard.fencing import Fencing
from muster_coordinator.state_machine import StateMachine

__all__ = ["HostedPod"]

JOURNAL_BYTES = 16_384
COMMIT_TIMEOUT_MS = 5_000
BYTES_PER_SECOND = 1 << 20
"""Of cleaner and archiver: a segment takes some milliseconds."""


class _AllTopics:
    def has(self, topic: str, partition: int) -> bool:
        return True

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


class HostedPod:
    """`manager`, `partitions`, `events`, `disk_here`, `fencing`: of the present process. `up`: a process runs; `run`
    counts them. `is_dying`: the process ends with the present callback, and nothing that it does until then reaches
    disk, network or clients. `checks`: of what happened in the present callback.
    """

    manager: ReplicaManager
    partitions: Partitions
    events: PodEvents
    disk_here: ProcessDisk
    fencing: Fencing
    loop: SimulatedLoop

    def __init__(self, name: str, world: World, archive: SharedArchive) -> None:
        self.name = name
        self.world = world
        self.random = Random(f"pod {name} {world.options.seed}")
        self.replicas: list[HostedReplica] = []
        self.peers: list[HostedPod] = []
        self.image = (-1, -1)  # number of the metadata image that it got last
        self.machine_clock = MachineClock(world, self.random)
        self.clock = ProcessClock(self.machine_clock)
        self.disk = FakeDisk()
        self.carries_copy = False  # of another pod's volume
        self.faults = DiskFaults(world, self.random, self.dies)
        self.up = False
        self.run = 0
        self.frozen_until = -1
        self.is_dying = False
        self.archive = archive
        self._busy_until = -1
        self._must_restart = False
        self._serves = False
        self._boots = 0
        self.checks: list[Callable[[], None]] = []
        self._ended: list[object] = []  # processes: collecting them would run their `finally` blocks

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.up and not self.is_dying

    @property
    def serves(self) -> bool:
        return self.up and self._serves

    @property
    def cannot_write(self) -> str:
        return self.manager.health.cannot_write if self.up else ""

    def now_ms(self) -> int:
        """On the monotonic clock of this machine."""
        return self.machine_clock.monotonic_ms()

    def replica_of(self, partition: int) -> HostedReplica:
        return next(one for one in self.replicas if one.partition.index == partition)

    def start(self) -> None:
        if self.up:
            return
        self.up = True
        self.run += 1
        self.world.injected[Injected.RESTART] += self.run > 1
        self.image = (-1, -1)
        self.is_dying = self._must_restart = self._serves = False
        self.clock = ProcessClock(self.machine_clock)
        self.disk.fault = None
        for replica in self.replicas:
            replica.process_starts(self.disk)
        self.disk.fault = self.faults
        self.loop = self._new_loop()
        self._enter(self._start_process)

    def _new_loop(self) -> SimulatedLoop:
        return SimulatedLoop(*self._loop_ports())

    def _loop_ports(self) -> tuple[At, Callable[[], float], Callable[[], float], Callable[[dict[str, Any]], None]]:
        """What the loop of this run of the process stands on (`SimulatedLoop`)."""
        return (
            partial(self._at, self.run),
            self.clock.monotonic_s,
            self._thread_delay_s,
            partial(self._failed, self.run),
        )

    def _start_process(self) -> None:
        self.partitions, self.events = Partitions(), PodEvents()
        self.disk_here = ProcessDisk(self, self.disk)
        topics = self.world.topics
        self._regexes = RegexResolver(
            self.partitions.shards, lambda: (topics.counts, topics.version), self.clock.wall_ms
        )
        self._before_manager()
        self.manager = ReplicaManager(
            self.partitions,
            DATA,
            self.disk_here,  # type: ignore[arg-type]
            self._settings(),
            self.clock,
            self._new_peers(),
            self._new_machine,
            self.events,
            self._restart_needed,
            Random(self.random.getrandbits(64)),
        )
        self.fencing = Fencing(self.partitions.shards, self.events.partition_changed)
        self._ended.append((self.loop, self.manager))
        self.loop.create_task(self._run_process()).add_done_callback(self._started)

    def _before_manager(self) -> None:
        """Make what else the process has, and what state machines need."""

    def _new_peers(self) -> Peers:
        return ProcessNetwork(self)

    async def _run_process(self) -> None:
        """What the process does until it serves. Raises OSError: it cannot start."""
        await self.manager.start()

    def _new_machine(self, partition: int) -> StateMachine:
        config = replace(CONSUMER_CONFIG, migration_policy=self.world.options.policy)
        consumers = ConsumerTables(config, self.world.topics, self._regexes.of(partition), self._new_suffix)
        coordinator = GroupCoordinator(CONFIG, _AllTopics(), self._new_suffix, consumers=consumers)
        return WatchedGroups(self, coordinator, consumers)

    def _new_suffix(self) -> str:
        return f"{self.random.getrandbits(64):016x}"

    def _settings(self) -> ManagerSettings:
        options = self.world.options
        storage = StorageSettings(
            segment_bytes=options.segment_bytes,
            journal_bytes=JOURNAL_BYTES,
            flush_interval_ms=self.random.choice((5, 100)),
            boot_id=f"{self.name} {self._boots}",
            flush_os=options.flush_os,
        )
        cleaner = CleanerSettings(options.segment_bytes, 0.01, 0, BYTES_PER_SECOND, options.clean_every_ms)
        archiver = ArchiverSettings(self.archive.of(self), BYTES_PER_SECOND, options.archive_every_ms)
        return ManagerSettings(
            storage,
            COMMIT_TIMEOUT_MS,
            cleaner=cleaner if options.clean_every_ms else None,
            checkpointer=CheckpointerSettings(1, options.checkpoint_every_ms) if options.checkpoint_every_ms else None,
            archiver=archiver if options.archive_every_ms else None,
            self_nomination_ms=options.nomination_ms,
            replication=ReplicationSettings(append_bytes_max=options.append_bytes_max),
        )

    def _started(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if error is not None:  # as `process.compose` does
            self.world.log(f"{self.name} cannot start: {error}")
            if not isinstance(error, OSError):
                raise error
            self.is_dying = True
        else:
            self._serves = True

    def _restart_needed(self) -> None:
        self._must_restart = True

    def dies(self) -> None:
        """With the present callback."""
        self.is_dying = True

    def crash(self, *, power: bool = False) -> None:
        if not self.up:
            return
        self.world.log(f"{self.name} crashes{' with power loss' if power else ''}")
        self.world.injected[Injected.CRASH] += 1
        self.up = self._serves = False
        self.disk.fault = None
        if power:
            self._lose_power()
        else:
            self.disk.kill()
        for replica in self.replicas:
            replica.process_ends()

    def _lose_power(self) -> None:
        """Under flush os the kernel may have written nothing back."""
        self._boots += 1
        flush_os = self.world.options.flush_os
        torn = self.disk.lose_power(self.random, written_back=not flush_os or self.random.random() < 0.5)
        self.world.injected[Injected.WRITE_TORN] += torn
        if flush_os:
            self.world.injected[Injected.CACHE_LOST] += 1
            for replica in self.replicas:
                replica.storage.power_lost = True

    def start_later(self, within_ms: int = 0) -> None:
        self.world.at(self.random.randint(1, within_ms or self.world.options.restart_ms_max), self.start)

    def heal(self) -> None:
        """Nothing of this machine fails any more. A frozen process thaws in its time: what waits for it is in order."""
        self.faults.heal()
        self.disk.astray = None
        self.start()

    def lose_volume(self) -> None:
        self.disk = FakeDisk()
        for replica in self.replicas:
            replica.new_replica()

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _at(self, run: int, delay_s: float, callback: Callable[[], None]) -> None:
        delay_ms = math.ceil(delay_s * 1000 / self.machine_clock.rate) + 1 if delay_s > 0 else 0
        self.world.at(delay_ms, lambda: self.when_thawed(run, callback))

    def _enter(self, do: Callable[[], None]) -> None:
        self._observed(lambda: self.loop.enter(do))

    def call(self, do: Callable[[ReplicaManager], None]) -> None:
        """From outside of the process: a dead one never gets it, nor one that starts, a frozen one when it thaws."""
        if self._serves:
            self.when_thawed(self.run, lambda: self.loop.enter(lambda: do(self.manager)))

    def call_later(
        self, work: Callable[[ReplicaManager], Coroutine[Any, Any, Any]], answer: Callable[[Any], None]
    ) -> None:
        """The answer of a coroutine, also an exception; none if the process ends before."""

        def ended(task: asyncio.Task[Any]) -> None:
            if not self.is_dying:
                error = task.exception()
                answer(error if error is not None else task.result())

        self.call(lambda manager: self.loop.create_task(work(manager)).add_done_callback(ended))

    def when_thawed(self, run: int, do: Callable[[], None]) -> None:
        """Now, or when the process is no longer frozen, or waits for the disk; never if it ends first."""
        if self.run != run or not self.up:
            return
        now_ms, until_ms = self.world.now_ms, max(self.frozen_until, self._busy_until)
        if now_ms < until_ms:
            self.world.injected[Injected.FREEZE] += now_ms < self.frozen_until
            self.world.at(until_ms - now_ms, lambda: self.when_thawed(run, do))
        else:
            self._observed(do)

    def _observed(self, callback: Callable[[], None]) -> None:
        clock = self.clock
        callback()
        if clock.spent_ms:  # on the event loop, which is blocked
            self._busy_until = self.world.now_ms + clock.spent_ms
            clock.spent_ms = 0
        if self.is_dying or self._must_restart:
            self.crash(power=self.is_dying and self.may_lose_power and self._chance(self.world.options.power_loss))
            self.start_later()
            self.checks.clear()
            return
        for replica in self.replicas:
            replica.observe()
        checks, self.checks = self.checks, []
        for check in checks:
            check()

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    @property
    def may_lose_power(self) -> bool:
        """Under flush os that loses data."""
        return not self.world.options.flush_os or all(one.partition.may_lose(one) for one in self.replicas)

    def _failed(self, run: int, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or run != self.run or not self.is_running:
            return  # of a process that has ended
        if isinstance(error, Violation):
            raise error
        if not isinstance(error, OSError):
            raise Violation(f"{self.name}: {context.get('message')}: {error!r}")

    # -- the disk -----------------------------------------------------------------------------------------------------

    def waits_for_disk(self, path: Path) -> None:
        self.clock.spent_ms += self.faults.latency_ms(path)

    def _thread_delay_s(self) -> float:
        """How long the function that a thread has just run took."""
        spent_ms, self.clock.spent_ms = self.clock.spent_ms, 0
        return spent_ms / 1000

    def renamed(self, target: Path) -> None:
        """What gets its name now is checked at the end of the callback."""
        for replica in self.replicas:
            if replica.archive_directory in target.parents:
                self.checks.append(partial(replica.check_archived, target))
            elif target.parent == replica.directory and target.name == CHECKPOINT_NAME:
                self.checks.append(replica.check_checkpoint)
            elif target.parent == replica.directory and target.name.endswith(COMPACTED):
                replica.cleans()
