"""A log that cannot be opened: what the journal has of it is kept beside it, and the journal is given back."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.unit.log.fake_disk import FakeDisk
from tests.unit.pod.test_replica_manager import DATA, PodUnderTest

from muster_coordinator.calls import CallStatus
from muster_coordinator.log import writer as writer_module
from muster_coordinator.log.segments.copy import COPYING
from muster_coordinator.log.segments.partition_log import LogSettings
from muster_coordinator.log.segments.salvage import FOLDER, REASON_NAME
from muster_coordinator.log.segments.segment import segment_name
from muster_coordinator.pod import storage_upkeep
from muster_coordinator.records.batch import iter_batches

DIRECTORY = DATA / "__consumer_offsets-0"
SEGMENT = DIRECTORY / segment_name(0)
SAVED = DIRECTORY / FOLDER / segment_name(0)


@pytest_asyncio.fixture
async def pod(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PodUnderTest]:
    """Leads partition 0, which has commits of the offsets 0..9."""
    monkeypatch.setattr(storage_upkeep, "RETRY_S", 0.01)
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_INTERVAL_S", 0.0)
    pod = PodUnderTest()
    await pod.manager.start()
    await pod.lead(1, bootstrap=True)
    for offset in range(10):
        await pod.commit(offset)
    yield pod
    pod.disk.fault = None
    await pod.manager.stop()


async def start_again(pod: PodUnderTest) -> None:
    """After `manager.stop` and whatever the test did to the disk."""
    pod.manager = pod._new_manager()
    await pod.manager.start()
    await pod.until(lambda: pod.manager.is_settled)


def journal_files(pod: PodUnderTest) -> set[str]:
    return {name for name in pod.disk.listdir(DATA / "journal") if name.endswith(".journal")}


async def fill_journal(pod: PodUnderTest) -> None:
    """Commits to partition 1, until the journal has gone on to its third file."""
    log_id = (await pod.manager.create_replica(1)).log_id
    await pod.manager.elect(1, 100, (log_id,), bootstrap=True)
    pod.manager.shards[0] = pod.manager.shards[1]
    last = "00000000000000000003.journal"
    while last not in journal_files(pod):
        await pod.commit(1, metadata="x" * 4000)


def damage_middle(pod: PodUnderTest) -> bytes:
    content = bytes(pod.disk.content(SEGMENT))
    pod.disk.flip(SEGMENT, len(content) // 2)
    return content


async def test_journaled_batches_of_a_damaged_log_are_saved_whole_and_the_journal_goes(pod: PodUnderTest) -> None:
    await pod.manager.stop()
    content = damage_middle(pod)
    await start_again(pod)
    assert "valid batches follow" in pod.manager.health.damage[0]
    assert bytes(pod.disk.content(SAVED)) == content
    assert [batch.base_offset for batch in iter_batches(bytes(pod.disk.content(SAVED)))] == list(range(11))
    assert b"valid batches follow" in pod.disk.content(DIRECTORY / FOLDER / REASON_NAME)
    await fill_journal(pod)
    await pod.until(lambda: "00000000000000000001.journal" not in journal_files(pod))


async def test_new_log_lost_nothing_when_the_journal_was_damaged_before_it(pod: PodUnderTest) -> None:
    """Also in the next process, as long as nothing was counted of it."""
    await pod.manager.stop()
    [journal] = journal_files(pod)
    pod.disk.flip(DATA / "journal" / journal, 20)
    await start_again(pod)
    created = await pod.manager.create_replica(1)
    assert created.status is CallStatus.ACCEPTED, created.message
    await pod.manager.stop()
    await start_again(pod)
    assert 1 not in pod.manager.health.damage
    elected = await pod.manager.elect(1, 1, (created.log_id,), bootstrap=True)
    assert elected.status is CallStatus.ACCEPTED


async def test_refused_log_stays_refused_when_the_journal_has_forgotten_why(pod: PodUnderTest) -> None:
    await pod.manager.stop()
    intact = damage_middle(pod)
    await start_again(pod)
    await pod.manager.stop()
    for name in journal_files(pod):
        pod.disk.unlink(DATA / "journal" / name)
    pod.disk.write(SEGMENT, intact)
    await start_again(pod)
    assert "found damaged before" in pod.manager.health.damage[0]
    await pod.manager.stop()
    for name in pod.disk.listdir(DIRECTORY / FOLDER):
        pod.disk.unlink(DIRECTORY / FOLDER / name)
    await start_again(pod)
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 9


async def swap_in_a_copy(pod: PodUnderTest) -> None:
    """Partition 0 is a full copy of itself then, of which the journal has nothing. The process dies."""
    await pod.until(lambda: pod.manager.replicas[0].log.journaled_end == pod.manager.replicas[0].log.end_offset)
    replica = pod.manager.replicas[0]
    batches = list(replica.log.read_batches(0))
    copy = replica.begin_copy(1 << 20)
    for batch in batches:
        copy.append(batch.data, batch.base_offset, batch.end_offset, batch.leader_epoch)
    replica.swap_in(copy, 0, LogSettings(1 << 20))
    await pod.manager.stop()
    for name in journal_files(pod):
        pod.disk.unlink(DATA / "journal" / name)  # as if it had never been told of the copy


async def test_damage_at_the_end_of_a_copy_that_the_journal_does_not_know_is_no_torn_write(pod: PodUnderTest) -> None:
    await swap_in_a_copy(pod)
    pod.disk.flip(SEGMENT, len(pod.disk.content(SEGMENT)) - 1)
    await start_again(pod)
    assert "log ends at offset 10, it was durable up to 11" in pod.manager.health.damage[0]


async def test_whole_copy_that_the_journal_does_not_know_is_opened(pod: PodUnderTest) -> None:
    await swap_in_a_copy(pod)
    await start_again(pod)
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 9


async def test_refused_log_of_which_the_journal_has_nothing_stays_refused(pod: PodUnderTest) -> None:
    await swap_in_a_copy(pod)
    intact = damage_middle(pod)
    await start_again(pod)
    assert "valid batches follow" in pod.manager.health.damage[0]
    await pod.manager.stop()
    pod.disk.write(SEGMENT, intact)
    await start_again(pod)
    assert "found damaged before" in pod.manager.health.damage[0]


async def test_saved_batches_restore_a_log_as_its_next_segment(pod: PodUnderTest) -> None:
    """What docs/failures.md tells a person to do."""
    await pod.manager.stop()
    damage_middle(pod)
    await start_again(pod)
    await pod.manager.stop()
    pod.disk.rename(SAVED, SEGMENT)
    pod.disk.unlink(DIRECTORY / FOLDER / REASON_NAME)
    await start_again(pod)
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 9


async def test_a_second_start_saves_nothing_twice(pod: PodUnderTest) -> None:
    await pod.manager.stop()
    damage_middle(pod)
    for _ in range(3):
        await start_again(pod)
        await pod.manager.stop()
    await start_again(pod)
    assert sorted(pod.disk.listdir(DIRECTORY / FOLDER)) == [segment_name(0), REASON_NAME]


async def test_batches_that_cannot_be_saved_keep_the_journal(pod: PodUnderTest) -> None:
    await pod.manager.stop()
    content = damage_middle(pod)
    pod.disk.fail_with(errno.ENOSPC, "pwritev", only=lambda path: FOLDER in path.parts)
    await start_again(pod)
    assert 0 in pod.manager.health.damage
    await fill_journal(pod)
    assert "00000000000000000001.journal" in journal_files(pod)
    await pod.manager.stop()
    pod.disk.fault = None
    await start_again(pod)
    assert bytes(pod.disk.content(SAVED)) == content


@pytest.mark.parametrize("lost", ["promise", "directory"])
async def test_batches_of_a_log_that_is_not_there_are_saved(pod: PodUnderTest, lost: str) -> None:
    await pod.manager.stop()
    content = bytes(pod.disk.content(SEGMENT))
    names = pod.disk.listdir(DIRECTORY) if lost == "directory" else ["muster.promise"]
    for name in names:
        pod.disk.unlink(DIRECTORY / name)
    await start_again(pod)
    root: Path = DATA / "lost" if lost == "directory" else DATA
    assert bytes(pod.disk.content(root / DIRECTORY.name / FOLDER / segment_name(0))) == content
    await fill_journal(pod)
    await pod.until(lambda: "00000000000000000001.journal" not in journal_files(pod))


@pytest.mark.parametrize(("call", "name"), [("open", SEGMENT.name), ("unlink", f"{SEGMENT.name}{COPYING}")])
async def test_log_that_could_not_be_read_at_first_opens_with_its_journal_later(
    pod: PodUnderTest, call: str, name: str
) -> None:
    """Not when its segment is read, nor before, when what is left of a copy is removed."""
    await pod.manager.stop()
    pod.disk.write(SEGMENT, bytes(pod.disk.content(SEGMENT))[:-40])
    pod.disk.write(DIRECTORY / f"{SEGMENT.name}{COPYING}", b"")
    pod.disk.fail_with(errno.EIO, call, only=lambda path: path.name == name)
    await start_again(pod)
    assert not pod.manager.health.damage
    pod.disk.fault = None
    assert (await pod.lead(2)).status is CallStatus.ACCEPTED
    assert await pod.fetch() == 9


async def kill(pod: PodUnderTest) -> None:
    """What is on the disk now is what the next process finds."""
    found = {path: bytes(pod.disk.content(path)) for path in pod.disk.names}
    await pod.manager.stop()
    pod.disk = FakeDisk()
    for path, content in found.items():
        pod.disk.write(path, content)


async def test_log_that_begins_anew_does_not_inherit_the_holes_of_the_journal(pod: PodUnderTest) -> None:
    """Neither at once nor at the next start: what is missing there was of other logs."""
    await pod.until(lambda: not pod.manager.replicas[0].log.has_pending)
    await kill(pod)
    damage_middle(pod)
    pod.disk.flip(DATA / "journal" / "00000000000000000001.journal", 600)
    await start_again(pod)
    assert 0 in pod.manager.health.damage
    pod.manager._opening.leader_heard(pod.manager.hosts[0])
    await pod.until(lambda: pod.manager.is_settled and not pod.manager._directory.journal.staged)
    assert pod.manager.health.damage == {}
    await kill(pod)
    await start_again(pod)
    assert pod.manager.health.damage == {}
    assert pod.manager.replicas[0].promised.incarnation == 1


async def test_damage_that_is_found_when_a_replica_starts_again_is_damage(pod: PodUnderTest) -> None:
    await pod.until(lambda: not pod.manager.replicas[0].log.has_pending)
    pod.disk.flip(SEGMENT, 30)
    pod.manager.hosts[0].failed(RuntimeError("a defect"))
    await pod.until(lambda: "CRC-32C" in pod.manager.health.damage.get(0, ""))
    assert pod.manager.hosts[0].core is None
