"""Planted faults of the pod's own code, not of the protocol core: what the simulation of real pods must notice.

`HOST_FAULTS`: name -> within how many seeds it is caught, and what is put in the place of what.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.pod.chores.checkpointing import Checkpointer
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.replica.storage_work import StorageWork
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication import effects as fx

__all__ = ["HOST_FAULTS", "HostFault"]


@dataclass(frozen=True)
class HostFault:
    """`owner.name` is `planted` instead."""

    seeds: int
    owner: Any
    name: str
    planted: Any

    @contextmanager
    def plant(self) -> Iterator[None]:
        before = self.owner.__dict__[self.name]
        setattr(self.owner, self.name, self.planted)
        try:
            yield
        finally:
            setattr(self.owner, self.name, before)


async def _at_once(*arguments: object) -> None:
    pass


_begin = StorageWork.begin


def _begin_and_report(self: Any, effect: fx.StorageEffect) -> bool:
    if isinstance(effect, fx.StorePromise):
        self._workers.spawn(self._workers.blocking(self._replica.store_promise, effect.promise))
        return True
    return _begin(self, effect)


async def _at_hand(self: Any, host: Any, generation: int) -> Any:
    at_rest = host.role.state_at_rest
    if at_rest is None or at_rest[1] <= self._newest(host)[0]:
        return None
    return at_rest[1], list(islice(at_rest[0].snapshot(200), 4))


def _failed_and_forgotten(self: Any, error: Exception) -> None:
    """Nothing gives up; a later write goes on."""
    self.failed.set()


HOST_FAULTS = {
    "promise is not stored": HostFault(1, StoredReplica, "store_promise", lambda self, promise: None),
    "promise is reported before it is stored": HostFault(1, StorageWork, "begin", _begin_and_report),
    "journal writes nothing": HostFault(10, JournalWriter, "_write", lambda self, staged: 0.0),
    "checkpoint does not wait for the commit": HostFault(10, Checkpointer, "_at_hand", _at_hand),
    "failed write is forgotten": HostFault(60, StorageHealth, "storage_failed", _failed_and_forgotten),
    "recovery of the storage does nothing": HostFault(60, JournalWriter, "recover", _at_once),
}
