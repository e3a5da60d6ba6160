"""Writes that a drive puts at another place: in the same file, or in another file of the same disk. What was to be
overwritten stays as it was, and all calls go well.

What shows it is that the batches of a segment are in their order, and the checksums of batches, of checkpoints and of
the journal's frames. Some things nothing on that disk can show, so they are not drawn: a write to the journal or to a
promise file that never came; the newest frame of the journal or the newest promise overwritten, which look like torn
writes; and a batch that lands exactly on one with the same offset, in another partition's segment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.injected import Injected
from tests.simulation.pods.disk import FILES

from muster_coordinator.log.journal.format import scan_frames
from muster_coordinator.log.segments.cleaned import STATE_NAME
from muster_coordinator.log.segments.copy import COUNT_NAME
from muster_coordinator.records.batch import HEADER_BYTES, LENGTH_OVERHEAD

if TYPE_CHECKING:
    from tests.simulation.pods.process import HostedPod

__all__ = ["Misdirection"]

WRITTEN = ("segment", "segment", "segment", "checkpoint", "copy", "cleaner")
"""Kinds of files of which a write goes astray, but for those with one number: what the checksum there finds stops the
replica until a person has cleared it."""


class Misdirection:
    """A `fake_disk.Astray` of one pod's disk, for one write. `may_lose`: whether all replicas of the pod may lose what
    they have at this moment."""

    def __init__(self, pod: HostedPod, random: Random, may_lose: Callable[[], bool]) -> None:
        self._pod = pod
        self._random = random
        self._may_lose = may_lose
        self._is_written = FILES[random.choice(WRITTEN)]

    def __call__(self, path: Path, position: int, data: bytes) -> tuple[Path, int] | None:
        pod = self._pod
        if not self._is_written(path) or path.name.startswith((STATE_NAME, COUNT_NAME)):
            return None
        if not pod.is_running or not self._may_lose():
            return None
        place = self._place(path, data)
        if place is None:
            return None
        pod.disk.astray = None
        pod.world.injected[Injected.MISDIRECTED] += 1
        pod.world.log(f"{pod.name} writes {len(data)} bytes of {path}, {position} to {place[0]}, {place[1]}")
        for replica in pod.replicas:
            if any(replica.directory in file.parents or FILES["journal"](file) for file in (path, place[0])):
                replica.storage.lost = "a write that landed elsewhere"
            if FILES["journal"](place[0]):
                replica.holed = place[0]
        return place

    def _place(self, path: Path, data: bytes) -> tuple[Path, int] | None:
        random, disk = self._random, self._pod.disk
        kinds = [FILES[kind] for kind in ("segment", "segment", "journal", "journal", "checkpoint")]
        is_chosen = random.choice(kinds)
        files = [one for one in disk.names if is_chosen(one)]
        if random.random() < 0.5:
            files = [path]
        if not files:
            return None
        file = random.choice(files)
        content = bytes(disk.content(file))
        if FILES["journal"](file):
            places = _before_last_frame(file, content, len(data))
        elif FILES["segment"](file):
            places = _batches_unlike(content, data) if random.random() < 0.7 else range(len(content) - HEADER_BYTES)
        else:
            places = range(len(content) - 1)
        return (file, random.choice(places)) if places else None


def _before_last_frame(file: Path, content: bytes, size: int) -> range:
    if not file.stem.isdigit():
        return range(0)
    frames = scan_frames(content, int(file.stem)).frames
    return range(frames[-1].position - size) if frames else range(0)


def _batches_unlike(content: bytes, data: bytes) -> list[int]:
    """Where batches begin that have another base offset than `data`."""
    found: list[int] = []
    start = 0
    while start + HEADER_BYTES <= len(content):
        if content[start : start + 8] != data[:8]:
            found.append(start)
        start += max(LENGTH_OVERHEAD + int.from_bytes(content[start + 8 : start + 12], "big"), HEADER_BYTES)
    return found
