"""Identifies a log, to tell whether a position in it is still valid after its segments were rewritten.

A log that was compacted holds the same records at other bytes; one that was truncated, wiped or re-sharded does not.
What tells them apart is the log's identity and its leader epochs, as a pod lists them, or as its directory has them:
`muster.promise` (two slots of 4096 bytes: "MPR1", serial i64, epoch i32, log id, ..., CRC-32C) or Kafka's
`partition.metadata` (KIP-516), and `leader-epoch-checkpoint`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from muster_pipeline.decode.errors import SegmentReadError
from muster_pipeline.source.locations import is_pod, is_uri, open_segment
from muster_pipeline.source.pod_logs import PodLog, list_logs, root_of

_PROMISE, _METADATA, _EPOCHS = "muster.promise", "partition.metadata", "leader-epoch-checkpoint"
_SLOT_BYTES = 4096
_SLOT = Struct(">4sqi32s")
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Lineage:
    """Identity of a log. `log_id` is "" if unknown. `epochs`: (leader epoch, its first offset), rising."""

    log_id: str = ""
    epochs: tuple[tuple[int, int], ...] = ()

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch in which the record at `offset` was appended; -1 not known."""
        index = bisect_right(self.epochs, offset, key=lambda each: each[1])
        return self.epochs[index - 1][0] if index else -1


class Lineages:
    """The lineages of several logs. A pod is asked once for all of its logs."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodLog]] = {}

    def of(self, home: str) -> Lineage:
        """Return the lineage of the log at `home`. Raises SegmentReadError if a pod does not answer."""
        if is_uri(home) and not is_pod(home):
            return Lineage()  # a copy, or an archive: nothing there is rewritten
        if not is_pod(home):
            return Lineage(_identity(home), _epochs(_text(f"{home}/{_EPOCHS}")))
        root = root_of(home)
        if root not in self._pods:
            self._pods[root] = {each.home: each for each in list_logs(root).logs}
        found = self._pods[root].get(home)
        return Lineage() if found is None else Lineage(found.log_id, found.epochs)


def _read(path: str) -> bytes:
    """Empty if there is no such file."""
    try:
        with open_segment(path) as source:
            return bytes(source.read(0, min(source.size, _MAX_FILE_BYTES)))
    except SegmentReadError:
        return b""


def _text(path: str) -> str:
    return _read(path).decode("ascii", "replace")


def _identity(home: str) -> str:
    data = _read(f"{home}/{_PROMISE}")
    slots = [data[:_SLOT_BYTES], data[_SLOT_BYTES : 2 * _SLOT_BYTES]]
    valid = [_SLOT.unpack_from(each) for each in slots if _is_valid(each)]
    if valid:
        return str(max(valid, key=lambda each: each[1])[3].decode("ascii", "replace"))
    fields = dict(line.split(": ", 1) for line in _text(f"{home}/{_METADATA}").splitlines() if ": " in line)
    return fields.get("topic_id", "")


def _is_valid(slot: bytes) -> bool:
    whole = len(slot) == _SLOT_BYTES and slot.startswith(b"MPR1")
    return whole and crc32c(slot[:-4]) == int.from_bytes(slot[-4:], "big")


def _epochs(text: str) -> tuple[tuple[int, int], ...]:
    """Parse a leader-epoch-checkpoint: version, number of entries, entries. Lines that are no entry are ignored."""
    pairs = [line.split() for line in text.splitlines()[2:]]
    return tuple((int(each[0]), int(each[1])) for each in pairs if len(each) == 2 and all(map(str.isdigit, each)))
