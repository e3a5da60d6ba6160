"""The parts of a backup: its manifest, and the names of all files in a store.

backups/<id>.json       the manifest of a backup, written when everything that it names is in the store
segments/<sha256>       the committed bytes of a segment, by their checksum; backups share what has not changed
dropped/<id>.json       the manifest of a backup that was pruned; its segments stay for a day
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterator

import msgspec

from muster_coordinator.partition_numbers import partition_name

FORMAT = 1
BACKUPS, SEGMENTS, DROPPED = "backups/", "segments/", "dropped/"
_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")


class ManifestError(Exception):
    """The bytes are no manifest, or not what was written."""


class SegmentFile(msgspec.Struct, frozen=True, rename="camel"):
    """`size` in bytes. `end_offset`: after its last batch. `tail`: SHA-256 of the last `TAIL_BYTES`, by which an
    unchanged segment is known without reading it."""

    base_offset: int
    size: int
    end_offset: int
    sha256: str
    tail: str

    @property
    def name(self) -> str:
        return SEGMENTS + self.sha256


class PartitionCut(msgspec.Struct, frozen=True, rename="camel"):
    """The log of one partition up to the cut. `number`: as pods know it. `epochs`: (leader epoch, first offset)."""

    number: int
    log_id: str
    commit_point: int
    leader_epoch: int
    epochs: tuple[tuple[int, int], ...]
    segments: tuple[SegmentFile, ...]

    @property
    def name(self) -> str:
        return partition_name(self.number)


class Layout(msgspec.Struct, frozen=True, rename="camel"):
    """The numbers of the partitions that clients know as 0 and up, of both topics."""

    offsets_base: int
    offsets_partitions: int
    transaction_base: int
    transaction_partitions: int

    @property
    def offsets(self) -> range:
        return range(self.offsets_base, self.offsets_base + self.offsets_partitions)

    @property
    def transactions(self) -> range:
        return range(self.transaction_base, self.transaction_base + self.transaction_partitions)


class Backup(msgspec.Struct, frozen=True, rename="camel"):
    """One backup. `taken_at_ms`: of the cut, by the clock of the machine that took it, in ms since 1970."""

    id: str
    taken_at_ms: int
    version: str
    cluster_id: str
    pods: int
    layout: Layout
    partitions: tuple[PartitionCut, ...]
    format: int = FORMAT

    @property
    def name(self) -> str:
        return f"{BACKUPS}{self.id}.json"

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments())

    def segments(self, numbers: Container[int] | None = None) -> Iterator[SegmentFile]:
        """Those of all partitions, or of these."""
        for partition in self.partitions:
            if numbers is None or partition.number in numbers:
                yield from partition.segments


class _Sealed(msgspec.Struct, frozen=True):
    sha256: str
    backup: msgspec.Raw


class _Versioned(msgspec.Struct, frozen=True):
    format: int


def is_backup_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def encode_manifest(backup: Backup) -> bytes:
    body = msgspec.json.format(msgspec.json.encode(backup), indent=0)
    return msgspec.json.encode(_Sealed(hashlib.sha256(body).hexdigest(), msgspec.Raw(body))) + b"\n"


def decode_manifest(data: bytes) -> Backup:
    """Raises ManifestError."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        body = bytes(sealed.backup)
        if hashlib.sha256(body).hexdigest() != sealed.sha256:
            raise ManifestError("its checksum does not match")
        version = msgspec.json.decode(body, type=_Versioned).format
        if version > FORMAT:
            raise ManifestError(f"it has format {version}, which a later version of muster reads")
        return msgspec.json.decode(body, type=Backup)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"it is no manifest: {error}") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"it is no text: {error}") from error
