"""The result of replaying the log of one partition: the state of its coordinator, and the last Fence record of a
re-shard.

The Fence record is kept here and not in the state machine, so that a re-shard works for any coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from muster_coordinator.records.control import EndTxnMarker, Fence, decode_control
from muster_coordinator.records.structs import BatchRecord
from muster_coordinator.state_machine import StateMachine

_encode = msgspec.msgpack.Encoder().encode
_decode_fence = msgspec.msgpack.Decoder(Fence | None).decode


class ReplayedState:
    """`fence`: the last Fence record of the log; None if there is none."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self.fence: Fence | None = None

    @property
    def is_closed(self) -> bool:
        """A re-shard has closed the partition to clients."""
        return self.fence is not None and self.fence.closed

    def replay_control(self, records: list[BatchRecord], producer: tuple[int, int]) -> None:
        """Apply the records of a control batch. Raises RecordDecodeError, UnsupportedValueVersionError."""
        for record in records:
            control = decode_control(record.key, record.value)
            if isinstance(control, EndTxnMarker):
                self.machine.replay_transaction_marker(
                    *producer, control.committed, record.offset, control.coordinator_epoch
                )
            elif isinstance(control, Fence):
                self.fence = control

    def snapshot(self, size: int) -> Iterator[bytes]:
        """Returns the state in parts of about `size` entries. Nothing may be replayed until all are taken."""
        yield _encode(self.fence)
        yield from self.machine.snapshot(size)

    def check(self, parts: Iterator[bytes]) -> Iterator[None]:
        """Check a snapshot before `restore`, which cannot be undone. Raises msgspec.MsgspecError. Yields after each
        part."""
        _decode_fence(next(parts, b""))
        for part in parts:
            self.machine.check(part)
            yield

    def restore(self, parts: Iterator[bytes]) -> Iterator[None]:
        """Put a snapshot into this state, which is empty. Yields after each part."""
        self.fence = _decode_fence(next(parts, b""))
        for part in parts:
            self.machine.restore(part)
            yield
