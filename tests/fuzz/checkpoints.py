"""Damage that no single file shows: checkpoints, and a journal whose end is lost together with a closed segment.

A checkpoint that does not fit its CRCs must cost time and nothing else. A journal that was cut off and a segment that
was damaged somewhere in front lack different batches, so that a partition either has all of them or refuses. In both
cases what is served is exactly what was acknowledged. A checkpoint that was forged, its CRCs included, may hold other
values; one that cannot be read is as good as none.
"""

from __future__ import annotations

from random import Random
from struct import Struct

import structlog
from crc32c import crc32c
from tests.fuzz.logs import PARTITIONS, LogFuzz, new_manager, written_disk
from tests.fuzz.requests import mutate
from tests.unit.log.fake_disk import FakeDisk

from muster_coordinator.calls import CallStatus
from muster_coordinator.groups.snapshot import SNAPSHOT_VERSION
from muster_coordinator.log.checkpoint import MAGIC, NAME, CheckpointHead, CheckpointWriter

PART_ENTRIES = 2
_FRAME = Struct(">II")


async def disk_with_checkpoints() -> FakeDisk:
    """As `written_disk`, with a checkpoint of every partition from which a load reads on."""
    disk = await written_disk()
    with structlog.testing.capture_logs():
        manager = new_manager(disk, "boot")
        await manager.start()
        for partition in range(PARTITIONS):
            log_id = (await manager.create_replica(partition)).log_id
            outcome = await manager.elect(partition, 3, (log_id,))
            assert outcome.status is CallStatus.ACCEPTED, outcome
            replica, state = manager.replicas[partition], manager.shards[partition].replayed
            offset = replica.end_offset
            head = CheckpointHead(SNAPSHOT_VERSION, log_id, offset, replica.log.epochs.epoch_at(offset - 1))
            writer = CheckpointWriter(disk, replica.directory, head)
            for part in state.snapshot(PART_ENTRIES):
                writer.add(part)
            writer.publish()
        await manager.stop()
    return disk


class CheckpointFuzz(LogFuzz):
    """Checkpoints, one or all."""

    def _damage(self, disk: FakeDisk) -> bool:
        random = self.random
        files = sorted(path for path in disk.names if path.name == NAME)
        assert len(files) == PARTITIONS
        forged = False
        for path in random.sample(files, random.choice([1, len(files)])):
            content = bytes(disk.content(path))
            if random.random() < 0.3:
                content, forged = forge_checkpoint(random, content), True
            elif random.random() < 0.1:
                content = content[: random.randrange(len(content))]
            else:
                content = mutate(random, content)
            disk.write(path, content)
            self.failing[str(path)] = content.hex()
        return forged


def forge_checkpoint(random: Random, content: bytes) -> bytes:
    """Change some payloads and make their CRCs fit."""
    payloads, position = [], len(MAGIC)
    while position < len(content):
        size, _ = _FRAME.unpack_from(content, position)
        payloads.append(content[position + _FRAME.size : position + _FRAME.size + size])
        position += _FRAME.size + size
    for _ in range(random.randint(1, 3)):
        index = random.randrange(len(payloads))
        payloads[index] = mutate(random, payloads[index] or b"\0")
    return MAGIC + b"".join(_FRAME.pack(len(each), crc32c(each)) + each for each in payloads)


class CutJournalFuzz(LogFuzz):
    """The end of the journal is lost, and a closed segment of one partition, or its checkpoint too, is damaged."""

    def _damage(self, disk: FakeDisk) -> bool:
        random = self.random
        self._cut_journal(disk)
        partition = random.randrange(PARTITIONS)
        of_partition = [p for p in disk.names if p.parent.name.endswith(f"-{partition}") and disk.content(p)]
        segments = sorted(path for path in of_partition if path.suffix == ".log")
        damaged = [random.choice(segments[:-1])]
        damaged += [path for path in of_partition if path.name == NAME and random.random() < 0.5]
        for path in damaged:
            content = mutate(random, bytes(disk.content(path)))
            disk.write(path, content)
            self.failing[str(path)] = content.hex()
        return False

    def _cut_journal(self, disk: FakeDisk) -> None:
        """As a torn write leaves it: nothing but zeros from somewhere in its last third."""
        journals = sorted(path for path in disk.names if "journal" in str(path) and len(disk.content(path)) > 1 << 16)
        path = journals[-1]
        content = bytes(disk.content(path))
        used = len(content.rstrip(b"\0"))
        kept = used - self.random.randrange(1, used // 3)
        disk.write(path, content[:kept].ljust(len(content), b"\0"))
        self.failing[str(path)] = content[:kept].hex()
