"""The checkpoint file: whole or as good as none, and used only by the log that it is of."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.fake_disk import FakeDisk
from tests.unit.log.harness import Pod
from tests.unit.log.offsets_history import HISTORIES, History, NoTopics, Step, state_of

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.checkpoint import NAME, CheckpointFile, CheckpointHead, CheckpointWriter, fits
from muster_coordinator.log.segments.cleaned import CleanedTo
from muster_coordinator.records.batch import read_batch

DIRECTORY = Path("/data/__consumer_offsets-0")
HEAD = CheckpointHead(1, "log-0", 7, 3)
PARTS = [b"first", b"second" * 100, b"third"]


def coordinator() -> GroupCoordinator:
    return GroupCoordinator(GroupConfig(), NoTopics(), lambda: "")


def written(disk: FakeDisk, head: CheckpointHead = HEAD) -> None:
    writer = CheckpointWriter(disk, DIRECTORY, head)
    for part in PARTS:
        writer.add(part)
    writer.publish()
    writer.discard()


def read(disk: FakeDisk) -> list[bytes] | None:
    file = CheckpointFile.open(disk, DIRECTORY)
    if file is None:
        return None
    try:
        assert file.head == HEAD
        return list(file.parts())
    except ValueError:
        return None
    finally:
        file.close()


@pytest.mark.long
@settings(max_examples=300)
@given(HISTORIES, st.integers(0, 25), st.integers(1, 3))
def test_checkpoint_and_tail_give_the_state_of_the_whole_log(steps: list[Step], count: int, size: int) -> None:
    history = History()
    batches = [read_batch(data) for step in steps if (data := history.batch(step)) is not None]
    first, second = coordinator(), coordinator()
    state_of(batches[:count], first)
    for part in first.snapshot(size):
        second.restore(part)
    assert second.durable_state() == first.durable_state()
    restored, whole = state_of(batches[count:], second), state_of(batches)
    assert restored == whole
    for ours, theirs in (
        (restored.producer_epochs, whole.producer_epochs),
        (restored.coordinator_epochs, whole.coordinator_epochs),
    ):
        assert set(ours.items()) == set(theirs.items())
    assert list(restored.producer_epochs) == list(whole.producer_epochs), "who is forgotten first"
    assert second.offset_count == len(whole.committed)


def test_published_checkpoint_survives_a_power_loss() -> None:
    disk = FakeDisk()
    written(disk)
    disk.kill()
    disk.lose_power(Random(1))
    assert read(disk) == PARTS


def test_any_damaged_byte_or_cut_makes_it_useless() -> None:
    disk = FakeDisk()
    written(disk)
    content = bytes(disk.content(DIRECTORY / NAME))
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x41
        disk.write(DIRECTORY / NAME, damaged)
        assert read(disk) is None, position
        disk.write(DIRECTORY / NAME, content[:position])
        assert read(disk) is None, position
    disk.write(DIRECTORY / NAME, content)
    assert read(disk) == PARTS


def test_one_that_was_not_published_is_not_seen_and_leaves_the_one_before() -> None:
    disk = FakeDisk()
    written(disk)
    before = bytes(disk.content(DIRECTORY / NAME))
    writer = CheckpointWriter(disk, DIRECTORY, CheckpointHead(1, "log-0", 99, 3))
    writer.add(b"part")
    assert read(disk) == PARTS
    writer.discard()
    assert disk.listdir(DIRECTORY) == [NAME]
    disk.fail_with(errno.ENOSPC, "fdatasync")
    writer = CheckpointWriter(disk, DIRECTORY, CheckpointHead(1, "log-0", 99, 3))
    with pytest.raises(OSError, match="fdatasync"):
        writer.publish()
    assert disk.content(DIRECTORY / NAME) == before


def test_no_checkpoint_is_none() -> None:
    assert CheckpointFile.open(FakeDisk(), DIRECTORY) is None


@pytest.mark.parametrize(
    ("offset", "epoch", "horizon", "reason"),
    [
        (6, 2, 0, ""),
        (4, 1, 0, ""),
        (4, 2, 0, "epoch 2 at offset 4"),
        (6, 1, 0, "epoch 1 at offset 6"),
        (8, 2, 0, ""),
        (9, 2, 0, "reaches from 0 to 8"),
        (6, 2, 6, ""),
        (6, 2, 7, "tombstones up to 7"),
    ],
)
def test_checkpoint_fits_if_the_log_has_its_epoch_there_and_its_tombstones_behind(
    offset: int, epoch: int, horizon: int, reason: str
) -> None:
    pod = Pod()
    for pod.epoch in (1, 2):
        for _ in range(4):
            pod.commit()
    pod.log.cleaned_to = CleanedTo(8, horizon)
    found = fits(CheckpointHead(1, "log-0", offset, epoch), pod.log)
    assert reason in found
    assert bool(reason) == bool(found)
