"""The real pod in the simulation: `ReplicaManager` with all that belongs to it, over a disk in memory, the world's
network, and an event loop and clocks of the simulation.

`HostedPod` and `HostedReplica` look like `pod.Pod` and `replica.Replica` to operators, clients and faults. What the
checker must see is read after each callback of the process.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.injected import Injected
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import CONFIG
from tests.simulation.pod import Pod
from tests.simulation.pods.clock import ProcessClock
from tests.simulation.pods.disk import DiskFaults, ProcessDisk
from tests.simulation.pods.network import ProcessNetwork
from tests.simulation.pods.replica import DATA, HostedReplica
from tests.simulation.storage import Disk
from tests.simulation.world import Violation, World
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.calls import CallResult
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.pod.chores.checkpointing import CheckpointerSettings
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.replica_manager import ManagerSettings, ReplicaManager
from muster_coordinator.replica.ports import Peers

__all__ = ["HostedPod"]

SEGMENT_BYTES = 4_000
JOURNAL_BYTES = 16_384
COMMIT_TIMEOUT_MS = 5_000


class _AllTopics:
    def has(self, topic: str, partition: int) -> bool:
        return True

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


class HostedPod(Pod):
    """`manager`, `partitions`, `events`, `disk_here`: of the present process. `is_dying`: the process ends with the
    present callback, and nothing that it does until then reaches disk, network or clients. `published`: directories
    whose checkpoint is new.
    """

    manager: ReplicaManager
    partitions: Partitions
    events: PodEvents
    disk_here: ProcessDisk
    replicas: list[HostedReplica]  # type: ignore[assignment]

    def __init__(self, name: str, world: World, new_disk: type[Disk]) -> None:
        super().__init__(name, world, Disk)
        self.fake = FakeDisk()
        self.is_dying = False
        self.published: list[Path] = []
        self._faults = DiskFaults(self)
        self._must_restart = False
        self._boots = 0
        self._ended: list[object] = []  # processes: collecting them would run their `finally` blocks

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.up and not self.is_dying

    @property
    def cannot_write(self) -> str:
        return self.manager.health.cannot_write if self.up else ""

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
        self.fake.fault = self._faults
        self.loop = self._new_loop()
        self._enter(self._start_process)

    def _new_loop(self) -> SimulatedLoop:
        return SimulatedLoop(
            partial(self._at, self.run),
            lambda: self.now_ms() / 1000,
            self._faults.thread_delay_s,
            partial(self._failed, self.run),
        )

    def _start_process(self) -> None:
        self.partitions, self.events = Partitions(), PodEvents()
        self.disk_here = ProcessDisk(self, self.fake)
        self.manager = ReplicaManager(
            self.partitions,
            DATA,
            self.disk_here,  # type: ignore[arg-type]
            self._settings(),
            ProcessClock(self),
            self._new_peers(),
            lambda: GroupCoordinator(CONFIG, _AllTopics(), lambda: f"{self.random.getrandbits(64):016x}"),
            self.events,
            self._restart_needed,
            lambda: f"{self.random.getrandbits(128):032x}",
        )
        self._ended.append((self.loop, self.manager))
        self.loop.create_task(self._run_process()).add_done_callback(self._started)

    def _new_peers(self) -> Peers:
        return ProcessNetwork(self)

    async def _run_process(self) -> None:
        """What the process does until it serves. Raises OSError: it cannot start."""
        await self.manager.start()

    def _settings(self) -> ManagerSettings:
        options = self.world.options
        storage = StorageSettings(
            segment_bytes=SEGMENT_BYTES,
            journal_bytes=JOURNAL_BYTES,
            flush_interval_ms=self.random.choice((5, 100)),
            boot_id=f"boot {self._boots}",
        )
        checkpoints = options.checkpoint_every_ms
        return ManagerSettings(
            storage,
            COMMIT_TIMEOUT_MS,
            checkpointer=CheckpointerSettings(1, checkpoints) if checkpoints else None,
        )

    def _started(self, task: asyncio.Task[None]) -> None:
        error = task.exception()
        if error is not None:  # as `process.compose` does
            self.world.log(f"{self.name} cannot start: {error}")
            if not isinstance(error, OSError):
                raise error
            self.is_dying = True

    def _restart_needed(self) -> None:
        self._must_restart = True

    def dies(self) -> None:
        """With the present callback."""
        self.is_dying = True

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
            directory = self.published.pop()
            next(one for one in self.replicas if one.directory == directory).check_checkpoint()

    def _failed(self, run: int, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or run != self.run or not self.is_running:
            return  # of a process that has ended
        if isinstance(error, Violation):
            raise error
        if not isinstance(error, OSError):
            raise Violation(f"{self.name}: {context.get('message')}: {error!r}")
