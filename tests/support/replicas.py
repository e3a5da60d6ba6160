"""Several pods in one event loop: real logs and journals in directories, messages through memory.

Messages are encoded and decoded on the way, as between pods. A pod can be killed (nothing is written out), cut off,
delayed, and started again on its directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.disk import OsDisk, write_fully
from muster_coordinator.pod.chores.checkpointing import CheckpointerSettings
from muster_coordinator.pod.chores.cleaning import CleanerSettings
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.replica_manager import ManagerSettings, ReplicaManager
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.replication.messages import Message, decode_message, encode_message
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.shard import Shard
from muster_coordinator.states import ShardState

__all__ = ["AnyTopic", "Asked", "InMemoryPeers", "KilledDisk", "NoPeers", "PatientClock", "ReplicaPod", "ReplicaPods"]

LIMIT_S = 30.0
"""The limit for what takes milliseconds on an idle machine."""
POLL_S = 0.002


class AnyTopic:
    def has(self, topic: str, partition: int) -> bool:
        return True

    def id_of(self, topic: str) -> bytes:
        return b"the id of topics"


class NoPeers:
    """The peers of a pod that has no others."""

    def send(self, partition: int, message: Message) -> None:
        raise AssertionError(f"a message to another pod: {message}")


class Asked:
    """One request's answer."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, response: Any) -> None:
        self.done.set_result(response)

    def refuse(self, code: ErrorCode) -> None:
        self.done.set_result(code)


class PatientClock(SystemClock):
    """The clock of all pods of a test: time in which nobody asked for it, as when the whole process stands still,
    counts `STEP_MS` at most. So no leader steps down because this machine had other work.
    """

    STEP_MS = 50

    def __init__(self) -> None:
        self._asked_ms = self._now_ms = super().monotonic_ms()

    def monotonic_ms(self) -> int:
        asked_ms = super().monotonic_ms()
        self._now_ms += min(asked_ms - self._asked_ms, self.STEP_MS)
        self._asked_ms = asked_ms
        return self._now_ms


class KilledDisk(OsDisk):
    """After `kill` every write fails, as if the process had ended: what is on the disk stays as it is.

    Nothing is synced: pods are killed here, machines are not, and a disk busy for a second would depose a leader.
    """

    def __init__(self) -> None:
        super().__init__()
        self.dead = False

    def _live(self) -> None:
        if self.dead:
            raise OSError("the process was killed")

    def open(self, path: Path, *, create: bool = False, direct: bool = False) -> int:
        return super().open(path, create=create)

    def pwritev(self, *arguments: Any) -> int:
        self._live()
        return super().pwritev(*arguments)

    def pwritev_durably(self, *arguments: Any) -> int:
        return self.pwritev(*arguments)

    def fdatasync(self, descriptor: int) -> None:
        pass

    def fsync_dir(self, path: Path) -> None:
        pass

    def fill_with_zeros(self, descriptor: int, size: int, *, gently: bool = False) -> None:
        write_fully(self, descriptor, bytes(size), 0)

    def rename(self, *arguments: Any) -> None:
        self._live()
        super().rename(*arguments)

    def unlink(self, *arguments: Any) -> None:
        self._live()
        super().unlink(*arguments)

    def truncate(self, *arguments: Any) -> None:
        self._live()
        super().truncate(*arguments)


@dataclass
class InMemoryPeers:
    """The network of all pods. `cut`: (from, to) of connections that lose everything; `delay_s`: of each message;
    `drop`: messages of which it says True are lost.
    """

    pods: dict[str, ReplicaPod] = field(default_factory=dict)
    cut: set[tuple[str, str]] = field(default_factory=set)
    delay_s: float = 0.0
    drop: Callable[[Message], bool] = lambda message: False
    sent: int = 0
    clock: PatientClock = field(default_factory=PatientClock)

    def pod_of(self, log_id: str) -> ReplicaPod | None:
        return next((pod for pod in self.pods.values() if log_id in pod.log_ids), None)

    def send(self, sender: ReplicaPod, partition: int, message: Message) -> None:
        target = self.pod_of(message.to)
        if target is None or (sender.name, target.name) in self.cut or sender.manager is None or self.drop(message):
            return
        self.sent += 1
        data = encode_message(message)
        run = target.run

        def deliver() -> None:
            if target.run == run and target.manager is not None and (sender.name, target.name) not in self.cut:
                target.manager.receive(partition, decode_message(data))

        loop = asyncio.get_running_loop()
        if self.delay_s:
            loop.call_later(self.delay_s, deliver)
        else:
            loop.call_soon(deliver)

    def isolate(self, name: str) -> None:
        for other in self.pods:
            self.cut |= {(name, other), (other, name)}

    def heal(self) -> None:
        self.cut.clear()


@dataclass
class _PortOf:
    pod: ReplicaPod

    def send(self, partition: int, message: Message) -> None:
        self.pod.network.send(self.pod, partition, message)


def _new_groups() -> GroupCoordinator:
    return GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix")


class ReplicaPod:
    """One pod. `manager` is None while it is down."""

    def __init__(self, name: str, directory: Path, network: InMemoryPeers, **options: Any) -> None:
        self.name = name
        self.directory = directory
        self.network = network
        self.manager: ReplicaManager | None = None
        self.log_ids: set[str] = set()
        self.disk = KilledDisk()
        self.run = 0
        self.boot_id = "boot-1"
        self.options = options
        network.pods[name] = self

    @property
    def up(self) -> ReplicaManager:
        assert self.manager is not None, f"{self.name} is down"
        return self.manager

    async def start(self) -> None:
        self.run += 1
        self.disk = KilledDisk()
        options = dict(self.options)
        storage = StorageSettings(
            segment_bytes=options.pop("segment_bytes", 1 << 20),
            journal_bytes=1 << 20,
            flush_interval_ms=5,
            boot_id=self.boot_id,
            **options.pop("storage", {}),
        )
        cleaner = CleanerSettings(
            storage.segment_bytes,
            min_cleanable_ratio=0.01,
            delete_retention_ms=0,
            backoff_ms=10**8,
            io_max_bytes_per_second=10**9,
        )
        checkpointer = CheckpointerSettings(1, check_interval_ms=10**8)
        settings = ManagerSettings(
            storage,
            commit_timeout_ms=5000,
            cleaner=cleaner if options.pop("cleaned", False) else None,
            checkpointer=checkpointer if options.pop("checkpoints", False) else None,
            self_nomination_ms=options.pop("self_nomination_ms", 0),
        )
        new_machine = options.pop("new_machine", _new_groups)
        self.manager = ReplicaManager(
            Partitions(),
            data_dir=self.directory,
            disk=self.disk,
            settings=settings,
            clock=self.network.clock,
            peers=_PortOf(self),
            new_machine=lambda number: new_machine(),
            events=PodEvents(),
            must_restart=lambda: None,
        )
        assert not options, options
        await self.manager.start()

    async def stop(self) -> None:
        """An orderly end of the process."""
        manager, self.manager = self.manager, None
        if manager is not None:
            await manager.stop()

    async def kill(self) -> None:
        """End the pod as SIGKILL does: after this nothing is written, sent or answered."""
        self.disk.dead = True
        manager, self.manager = self.manager, None
        self.run += 1
        if manager is not None:
            try:
                await manager.stop()
            except OSError:
                pass  # it could not write anything out, as it should be

    async def lose_power(self, boot_id: str) -> None:
        """Power is lost under flush os, before the kernel wrote anything back: promises and names are left, and files
        as long as they were made."""
        await self.kill()
        self.boot_id = boot_id
        for path in self.directory.rglob("*.log"):
            path.write_bytes(b"")
        for path in (self.directory / "journal").iterdir():
            path.write_bytes(bytes(path.stat().st_size))

    def log_id(self, partition: int = 0) -> str:
        return self.up.replicas[partition].log_id

    def shard(self, partition: int = 0) -> Shard:
        return self.up.shards[partition]

    def end(self, partition: int = 0) -> int:
        return self.up.replicas[partition].end_offset

    def leads(self, partition: int = 0) -> bool:
        shard = self.manager.shards.get(partition) if self.manager is not None else None
        return shard is not None and shard.state is ShardState.ACTIVE

    async def flushed(self, partition: int = 0) -> None:
        """Waits until the segments have everything."""
        log = self.up.replicas[partition].log
        async with asyncio.timeout(LIMIT_S):
            while log.has_pending:
                await asyncio.sleep(POLL_S)

    def ask(self, request: Any, partition: int = 0) -> Asked:
        asked = Asked()
        shard = self.up.shards.get(partition)
        if shard is None:
            asked.refuse(ErrorCode.NOT_COORDINATOR)
        else:
            shard.submit(request, asked)
        return asked

    def ask_commit(self, offset: int, partition: int = 0, group: str = "g", metadata: str = "") -> Asked:
        request = m.OffsetCommitRequest(group, -1, "", None, -1, (("t", ((0, offset, -1, metadata),)),), 7)
        return self.ask(request, partition)

    def ask_early(self, offset: int | None) -> Asked:
        """A commit, or a fetch, that comes to a pod that does not lead partition 0."""
        asked = Asked()
        request: Any = m.OffsetFetchRequest("g", None, -1, (("t", (0,)),), False)
        if offset is not None:
            request = m.OffsetCommitRequest("g", -1, "", None, -1, (("t", ((0, offset, -1, ""),)),), 7)
        self.up.submit_early(0, request, asked)
        return asked

    async def commit(self, offset: int, partition: int = 0, group: str = "g", metadata: str = "") -> int:
        """The error code; 0 if it was committed."""
        response = await asyncio.wait_for(self.ask_commit(offset, partition, group, metadata).done, LIMIT_S)
        return int(response.topics[0][1][0][1] if isinstance(response, m.OffsetCommitResponse) else response)

    def ask_fetch(self, partition: int = 0, group: str = "g") -> Asked:
        return self.ask(m.OffsetFetchRequest(group, None, -1, (("t", (0,)),), False), partition)

    async def fetch(self, partition: int = 0, group: str = "g") -> int | ErrorCode:
        """The committed offset, -1 if there is none; or why not."""
        response = await asyncio.wait_for(self.ask_fetch(partition, group).done, LIMIT_S)
        if isinstance(response, m.OffsetFetchResponse):
            offset: int = response.topics[0][1][0][1]
            return offset
        return ErrorCode(response)

    async def delete(self, group: str, partition: int = 0) -> None:
        await asyncio.wait_for(self.ask(m.DeleteGroupRequest(group), partition).done, LIMIT_S)


class ReplicaPods:
    """`count` pods on `directory`, each with a replica of each partition of `partitions`."""

    def __init__(self, directory: Path, count: int = 3, partitions: int = 1, **options: Any) -> None:
        self.network = InMemoryPeers()
        self.pods = [ReplicaPod(f"pod-{n}", directory / f"pod-{n}", self.network, **options) for n in range(count)]
        self.partitions = partitions
        self.sets: dict[int, tuple[str, ...]] = {}
        self.epochs: dict[int, int] = {}

    def __getitem__(self, index: int) -> ReplicaPod:
        return self.pods[index]

    async def start(self) -> None:
        for pod in self.pods:
            await pod.start()
        for partition in range(self.partitions):
            for pod in self.pods:
                await self.create(pod, partition)
            self.sets[partition] = tuple(pod.log_id(partition) for pod in self.pods)

    async def create(self, pod: ReplicaPod, partition: int = 0) -> str:
        outcome = await pod.up.create_replica(partition)
        assert outcome.status is CallStatus.ACCEPTED, outcome
        pod.log_ids.add(outcome.log_id)
        return outcome.log_id

    async def stop(self) -> None:
        for pod in self.pods:
            await pod.stop()

    async def try_elect(self, index: int, partition: int = 0, **flags: Any) -> CallResult:
        """An election of that pod in a new epoch, with the pods' set unless `replicas` says another one; until it has
        an outcome."""
        self.epochs[partition] = self.epochs.get(partition, 0) + 1
        replicas = flags.pop("replicas", self.sets[partition])
        epoch = flags.pop("epoch", self.epochs[partition])
        previous = flags.pop("previous", ())
        async with asyncio.timeout(LIMIT_S):
            while True:
                outcome = await self.pods[index].up.elect(partition, epoch, replicas, previous, **flags)
                if outcome.status is not CallStatus.LOADING:
                    return outcome

    async def elect(self, index: int, partition: int = 0, **flags: Any) -> None:
        """Waits until that pod is ACTIVE. If another pod has a better log, that one is elected first, as the operator
        does: a majority acknowledged what this pod lacks."""
        outcome = await self.try_elect(index, partition, **flags)
        async with asyncio.timeout(LIMIT_S):
            while outcome.status is not CallStatus.ACCEPTED:
                flags.pop("epoch", None)
                if outcome.status is CallStatus.BETTER_LOG:
                    better = self.network.pod_of(outcome.better_log_id)
                    await self.elect(next(n for n, pod in enumerate(self.pods) if pod is better), partition, **flags)
                    flags["force"] = True
                else:
                    await asyncio.sleep(0.05)
                outcome = await self.try_elect(index, partition, **flags)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.sleep(POLL_S)

    async def caught_up(self, partition: int = 0) -> None:
        """Waits until all pods that are up have the leader's log and know it to be committed."""
        up = [pod for pod in self.pods if pod.manager is not None]

        def same() -> bool:
            hosts = [pod.up.hosts[partition] for pod in up]
            if any(host.core is None or not host.replica.is_open for host in hosts):
                return False
            ends = {host.replica.end_offset for host in hosts}
            return len(ends) == 1 and all(host.commit_point in ends for host in hosts)

        await self.until(same)

    def contents(self, partition: int = 0) -> list[list[bytes]]:
        """The batches of each pod that is up."""
        return [
            [batch.data for batch in pod.up.replicas[partition].log.read_batches(0)]
            for pod in self.pods
            if pod.manager is not None
        ]
