"""What survives a restart of a fake pod: logs without records, their promises and the sets that they name."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.podapi.models import Election, FenceStatus

__all__ = ["FakeReplica", "FakeVolume", "may_become"]


@dataclass
class FakeReplica:
    """A log without records: its promise, how far it goes, and the sets that it names last."""

    log_id: str
    promised: int = -1
    leader: str | None = None  # log id; "somebody" is nobody here
    used: bool = False
    end_offset: int = 0
    last_epoch: int = -1
    replicas: tuple[str, ...] = ()
    previous: tuple[str, ...] = ()
    rebuilding: bool = False
    fence: FenceStatus | None = None
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, offset at which it begins), as the file `leader-epoch-checkpoint` has them."""

    def has(self, epoch: int, offset: int) -> bool:
        """Whether the record before `offset` is here, and is the one that this epoch wrote."""
        begun = [each for each, start in self.epochs if start < offset]
        return self.end_offset >= offset and begun[-1:] == [epoch]

    @property
    def rank(self) -> tuple[int, int]:
        return (self.last_epoch, self.end_offset)

    def copy(self, other: FakeReplica) -> None:
        self.end_offset, self.last_epoch, self.used = other.end_offset, other.last_epoch, True
        self.replicas, self.previous, self.fence = other.replicas, other.previous, other.fence
        self.epochs = other.epochs


@dataclass
class FakeVolume:
    replicas: dict[int, FakeReplica] = field(default_factory=dict)
    last_image: MetadataImage | None = None


def may_become(log: FakeReplica, call: Election) -> bool:
    now, before = set(log.replicas), set(log.previous)
    wanted, named = set(call.replicas), set(call.previous_replicas)
    if (now, before) == (wanted, named):
        return True
    if not before:
        return named == now
    return (wanted, named) == (before, now)
