"""The highest (epoch, leader) that a replica promised, with its log id, durable before any answer.

File `muster.promise`, two slots of 4096 bytes, written in turn, so that a promise needs no free space and a torn
write leaves the promise before it. Slot, big-endian: magic "MPR1" | serial i64 | epoch i32 | log id, 32 bytes ASCII |
leader length i16 | leader, UTF-8 | incarnation i64 | rebuilding i8 | used i8: 1 no, 2 yes | length i16 | why the
replica was stopped, UTF-8 | zeros | CRC-32C of the 4092 bytes before u32. The valid slot with the higher serial counts.
In slots of earlier versions the last fields are zeros: incarnation 0, not rebuilding, used if an epoch was promised,
not stopped.
Source: replication.md, "Promise", "Resignation", "Loss, rebuild, start-up".
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import msgspec
from crc32c import crc32c

from muster_coordinator.log.disk import Disk, create_file, read_whole_file, write_fully_durably
from muster_coordinator.replication.epochs import NO_EPOCH, NOBODY, check_epoch

PROMISE_NAME = "muster.promise"
_SLOT_BYTES = 4096
_MAGIC = b"MPR1"
_HEAD = Struct(">4sqi32sh")
_TAIL = Struct(">qbbh")
_NOT_USED, _USED = 1, 2
_CRC = Struct(">I")
_MAX_LEADER_BYTES = 1024
_MAX_REASON_BYTES = 1024


class StalePromiseError(ValueError):
    """A promise below the stored one, or to another leader in the same epoch."""


class PromiseError(Exception):
    """The file is missing or has no valid slot: the replica must not promise, ack or be counted."""


class _Slot(msgspec.Struct, frozen=True):
    serial: int
    epoch: int
    log_id: str
    leader: str
    incarnation: int = 0
    rebuilding: bool = False
    used: bool = False
    stopped: str = ""


class PromiseFile:
    """`epoch` -1: nothing was promised yet. `leader` None: promised to nobody, the name may still be filled in
    once.
    """

    def __init__(self, disk: Disk, path: Path, slot: _Slot) -> None:
        """Use `create` and `open`."""
        self._disk = disk
        self._path = path
        self._slot = slot

    @property
    def epoch(self) -> int:
        return self._slot.epoch

    @property
    def leader(self) -> str:
        return self._slot.leader

    @property
    def log_id(self) -> str:
        return self._slot.log_id

    @property
    def incarnation(self) -> int:
        """The number of times that data was lost here."""
        return self._slot.incarnation

    @property
    def rebuilding(self) -> bool:
        """The log may lack what was acked once."""
        return self._slot.rebuilding

    @property
    def used(self) -> bool:
        """The log may have been counted: a record of it was acked, or this replica was about to lead."""
        return self._slot.used

    @property
    def stopped(self) -> str:
        """The reason why this replica must promise, ack and lead nothing until people have looked at it; "": it may."""
        return self._slot.stopped

    @classmethod
    def create(cls, disk: Disk, directory: Path, log_id: str) -> PromiseFile:
        """Makes the file of a new, empty log. Both slots are there when this returns, durably. Raises OSError."""
        first = _Slot(0, NO_EPOCH, log_id, NOBODY)
        path = directory / PROMISE_NAME
        making = directory / f"{PROMISE_NAME}.tmp"
        descriptor = create_file(disk, making)
        try:
            write_fully_durably(disk, descriptor, _encode(first) + bytes(_SLOT_BYTES), 0)
            disk.fdatasync(descriptor)
        finally:
            disk.close(descriptor)
        disk.rename(making, path)
        disk.fsync_dir(directory)
        return cls(disk, path, first)

    @classmethod
    def open(cls, disk: Disk, directory: Path) -> PromiseFile:
        """The returned promise is durable: a process that ended within `store` may have left one that a power loss
        would take back. Raises PromiseError; OSError if the disk cannot be read or synced.
        """
        path = directory / PROMISE_NAME
        try:
            descriptor = disk.open(path)
            try:
                disk.fdatasync(descriptor)
            finally:
                disk.close(descriptor)
            data = read_whole_file(disk, path)
        except FileNotFoundError as exc:
            raise PromiseError(f"{path} is missing") from exc
        slots = [_decode(data[:_SLOT_BYTES]), _decode(data[_SLOT_BYTES : 2 * _SLOT_BYTES])]
        valid = [slot for slot in slots if slot is not None]
        if not valid:
            raise PromiseError(f"{path} has no valid slot")
        return cls(disk, path, max(valid, key=lambda slot: slot.serial))

    def store(
        self,
        epoch: int,
        leader: str,
        incarnation: int | None = None,
        rebuilding: bool | None = None,
        used: bool | None = None,
    ) -> None:
        """Promise `epoch` to `leader`, or to nobody; durable when this returns. None: as it was.

        Raises StalePromiseError, EpochJumpError; OSError: nothing was promised as far as this process may say, and the
        next attempt uses the same slot.
        """
        self._check(epoch, leader)
        now = self._slot
        slot = _Slot(
            now.serial + 1,
            epoch,
            now.log_id,
            leader,
            now.incarnation if incarnation is None else incarnation,
            now.rebuilding if rebuilding is None else rebuilding,
            now.used if used is None else used,
            now.stopped,
        )
        if msgspec.structs.replace(slot, serial=now.serial) != now:
            self._write(slot)

    def stop(self, reason: str) -> None:
        """Say durably that people have to look at this replica. Raises OSError."""
        told = reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore")
        self._write(msgspec.structs.replace(self._slot, serial=self._slot.serial + 1, stopped=told))

    def _write(self, slot: _Slot) -> None:
        data = _encode(slot)
        descriptor = self._disk.open(self._path, direct=True)  # a slot is a block
        try:
            write_fully_durably(self._disk, descriptor, data, (slot.serial % 2) * _SLOT_BYTES)
        finally:
            self._disk.close(descriptor)
        self._slot = slot

    def _check(self, epoch: int, leader: str) -> None:
        check_epoch(self.epoch, epoch)
        if epoch < self.epoch or (epoch == self.epoch and self.leader != NOBODY and leader != self.leader):
            raise StalePromiseError(f"epoch {self.epoch} is promised to {self.leader}, not {epoch} to {leader}")


def _encode(slot: _Slot) -> bytes:
    leader = slot.leader.encode()
    log_id = slot.log_id.encode()
    if len(leader) > _MAX_LEADER_BYTES or len(log_id) != 32:
        raise ValueError(f"leader of {len(leader)} bytes, log id of {len(log_id)}")
    body = _HEAD.pack(_MAGIC, slot.serial, slot.epoch, log_id, len(leader)) + leader
    stopped = slot.stopped.encode()
    body += _TAIL.pack(slot.incarnation, slot.rebuilding, _USED if slot.used else _NOT_USED, len(stopped)) + stopped
    body = body.ljust(_SLOT_BYTES - _CRC.size, b"\0")
    return body + _CRC.pack(crc32c(body))


def _decode(data: bytes) -> _Slot | None:
    if len(data) != _SLOT_BYTES or not data.startswith(_MAGIC):
        return None
    body = data[: -_CRC.size]
    if crc32c(body) != _CRC.unpack(data[-_CRC.size :])[0]:
        return None
    _, serial, epoch, log_id, length = _HEAD.unpack_from(body)
    leader = body[_HEAD.size : _HEAD.size + length].decode()
    incarnation, rebuilding, mark, told = _TAIL.unpack_from(body, _HEAD.size + length)
    used = mark == _USED or (mark != _NOT_USED and epoch > NO_EPOCH)
    start = _HEAD.size + length + _TAIL.size
    stopped = body[start : start + told].decode()
    return _Slot(serial, epoch, log_id.decode(), leader, incarnation, bool(rebuilding), used, stopped)
