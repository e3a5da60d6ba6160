"""Data directories that were damaged: a pod must start over them or say why not, and never serve another value.

One round damages one to three files of a pod that ended in order, starts a pod over them, and elects it for all
partitions. Every partition is then ACTIVE, or has a reason. Where one file was damaged, and no CRC made to fit again, a
partition that is ACTIVE serves exactly what was acknowledged; segments and journal that are damaged together may have
lost the same batch twice.
"""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import structlog
from crc32c import crc32c
from tests.fuzz.requests import mutate
from tests.support.replicas import AnyTopic, Asked, NoPeers
from tests.unit.log.fake_disk import FakeDisk
from tests.unit.pod.test_replica_manager import DATA

from muster_coordinator.calls import CallStatus
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.pod.data_directory import StorageSettings
from muster_coordinator.pod.events import PodEvents
from muster_coordinator.pod.partitions import Partitions
from muster_coordinator.pod.replica_manager import ManagerSettings, ReplicaManager
from muster_coordinator.process.clock import SystemClock
from muster_coordinator.records.batch import CorruptBatchError, iter_batches
from muster_coordinator.requests import groups as m
from muster_coordinator.states import ShardState

PARTITIONS = 3
COMMITS = 12
ROUND_S = 30.0


def new_manager(disk: FakeDisk, boot_id: str) -> ReplicaManager:
    storage = StorageSettings(segment_bytes=600, journal_bytes=1 << 20, flush_interval_ms=5, boot_id=boot_id)
    return ReplicaManager(
        Partitions(),
        data_dir=DATA,
        disk=disk,
        settings=ManagerSettings(storage, commit_timeout_ms=5000),
        clock=SystemClock(),
        peers=NoPeers(),
        new_machine=lambda number: GroupCoordinator(GroupConfig(), AnyTopic(), lambda: "suffix"),
        events=PodEvents(),
        must_restart=lambda: None,
    )


async def ask(manager: ReplicaManager, partition: int, request: Any) -> Any:
    asked = Asked()
    manager.shards[partition].submit(request, asked)
    return await asyncio.wait_for(asked.done, ROUND_S)


def commit_request(offset: int) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest("g", -1, "", None, -1, (("t", ((0, offset, -1, "m" * (offset % 50)),)),), 7)


async def written_disk() -> FakeDisk:
    """The disk of a pod that led all partitions twice, in several segments, with transactions, and ended in order."""
    with structlog.testing.capture_logs():
        return await _written_disk()


async def _written_disk() -> FakeDisk:
    disk = FakeDisk()
    transactional = m.TxnOffsetCommitRequest("txn", "h", 7, 1, -1, "", None, (("t", ((0, 3, -1, ""),)),), 3)
    for epoch in (1, 2):
        manager = new_manager(disk, "boot")
        await manager.start()
        for partition in range(PARTITIONS):
            log_id = (await manager.create_replica(partition)).log_id
            outcome = await manager.elect(partition, epoch, (log_id,), bootstrap=epoch == 1)
            assert outcome.status is CallStatus.ACCEPTED, outcome
            await ask(manager, partition, transactional)
            for offset in range(1, COMMITS + 1):
                response = await ask(manager, partition, commit_request(offset))
                assert response.topics[0][1] == ((0, 0),)
            manager.replicas[partition].log.sync()  # writes leader-epoch-checkpoint
        await manager.stop()
    return disk


class LogFuzz:
    """`run_round` raises AssertionError with what is wrong; `failing` then holds the damaged files of the round."""

    def __init__(self, disk: FakeDisk, seed: int) -> None:
        self.random = Random(seed)
        self.rounds = 0
        self.active = 0
        self.failing: dict[str, str] = {}
        self._disk = disk

    async def run_round(self) -> None:
        disk = copy.deepcopy(self._disk)
        values_open = self._damage(disk)
        with structlog.testing.capture_logs():
            async with asyncio.timeout(ROUND_S):
                await self._start_and_elect(disk, values_open)
        self.rounds += 1
        self.failing = {}

    def _damage(self, disk: FakeDisk) -> bool:
        """Damage some files; True if values may be others then."""
        random = self.random
        files = sorted(path for path in disk.names if disk.content(path))
        chosen = random.sample(files, random.choice([1, 1, 1, 2, 3]))
        values_open = len(chosen) > 1
        for path in chosen:
            content = bytes(disk.content(path))
            if path.suffix == ".log" and random.random() < 0.4:
                content, values_open = forge(random, content), True
            elif len(content) > 1 << 16:
                used = 1 << 14  # the rest of a journal file is zeros
                content = mutate(random, content[:used]).ljust(used, b"\0")[:used] + content[used:]
            elif random.random() < 0.1:
                content = b""
            else:
                content = mutate(random, content)
            disk.write(path, content)
            self.failing[str(path)] = content.rstrip(b"\0").hex()
        return values_open

    async def _start_and_elect(self, disk: FakeDisk, values_open: bool) -> None:
        manager = new_manager(disk, self.random.choice(["boot", "another boot"]))
        await manager.start()
        try:
            for partition in range(PARTITIONS):
                created = await manager.create_replica(partition)
                assert created.status in CallStatus
                if created.status is not CallStatus.ACCEPTED:
                    assert created.message, "refused without a reason"
                    continue
                outcome = await manager.elect(partition, 1000, (created.log_id,), bootstrap=not created.used)
                shard = manager.shards.get(partition)
                if shard is None:
                    assert outcome.message, "refused without a reason"
                    continue
                while shard.state is ShardState.LOADING:
                    await asyncio.sleep(0)
                assert shard.state in (ShardState.ACTIVE, ShardState.FAILED)
                if shard.state is ShardState.FAILED:
                    assert shard.reason
                    assert shard.message
                    continue
                await self._check_serves(manager, partition, values_open)
        finally:
            await manager.stop()

    async def _check_serves(self, manager: ReplicaManager, partition: int, values_open: bool) -> None:
        self.active += 1
        if not values_open:
            response = await ask(manager, partition, m.OffsetFetchRequest("g", None, -1, (("t", (0,)),), False))
            assert response.topics[0][1][0][1] == COMMITS, f"partition {partition} serves {response}"
        await ask(manager, partition, commit_request(99))
        assert manager.shards[partition].state is ShardState.ACTIVE


def forge(random: Random, segment: bytes) -> bytes:
    """Change something behind the header of one batch and make its CRC fit."""
    try:
        batches = [batch.data for batch in iter_batches(segment)]
    except CorruptBatchError:
        return segment
    index = random.randrange(len(batches))
    data = bytearray(batches[index])
    for _ in range(random.randint(1, 3)):
        at = random.randrange(21, len(data))
        data[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    batches[index] = bytes(data)
    return b"".join(batches)


def save(files: dict[str, str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(files))
