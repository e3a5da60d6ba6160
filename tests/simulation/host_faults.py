"""A planted fault: some function of the production code is another one while a seed runs.

`HOST_FAULTS` break what a pod does around the protocol core: storage, journal, shard, state, chores. `rule_faults.py`
breaks the protocol itself, `operating/faults.py` the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.cleaning.cleaner import Cleaning
from muster_coordinator.log.cleaning.compaction import Compaction
from muster_coordinator.log.disk import write_fully
from muster_coordinator.log.flush_state import FlushState
from muster_coordinator.log.segments.cleaned import CleanedTo
from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.pod.chores.archiving import Archiver
from muster_coordinator.pod.chores.checkpointing import Checkpointer
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.replica import promise_file as promise_module
from muster_coordinator.replica import stored as stored_module
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.replica.storage_work import StorageWork
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication import effects as fx
from muster_coordinator.shard.fencing import Fencing
from muster_coordinator.shard.parked_answers import ParkedAnswers

__all__ = ["HOST_FAULTS", "HostFault"]


@dataclass(frozen=True)
class HostFault:
    """`owner.name` is `planted` instead; `also`: so are these. It is caught within `seeds` seeds."""

    seeds: int
    owner: Any
    name: str
    planted: Any
    also: tuple[tuple[Any, str, Any], ...] = ()

    @contextmanager
    def plant(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, planted in ((self.owner, self.name, self.planted), *self.also):
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, planted)
            yield


def _nothing(*arguments: object, **more: object) -> None:
    pass


async def _at_once(*arguments: object) -> None:
    pass


# -- storage ----------------------------------------------------------------------------------------------------------

_begin = StorageWork.begin


def _begin_and_report(self: Any, effect: fx.StorageEffect) -> bool:
    if isinstance(effect, fx.StorePromise):
        self._workers.spawn(self._workers.blocking(self._replica.store_promise, effect.promise))
        return True
    return _begin(self, effect)


_write_promise = PromiseFile._write


def _ignores_errors(self: Any, slot: Any) -> None:
    try:
        _write_promise(self, slot)
    except OSError:
        self._slot = slot


def _one_slot(self: Any, slot: Any) -> None:
    data = promise_module._encode(slot)
    descriptor = self._disk.open(self._path, direct=True)
    try:
        promise_module.write_fully_durably(self._disk, descriptor, data, 0)
    finally:
        self._disk.close(descriptor)
    self._slot = slot


def _failed_and_forgotten(self: Any, error: Exception) -> None:
    """Nothing gives up; a later write goes on."""
    self.failed.set()


def _without_promise(self: Any, reason: str, settings: Any) -> None:
    self.close_log()
    stored_module.set_aside(self._disk, self.directory, stored_module.swap_count(self._disk, self.directory), reason)
    self._begin_history()
    self.open_log(settings)


_swap_in = StoredReplica.swap_in


def _without_horizon(self: Any, copy: Any, horizon: int, settings: Any) -> None:
    _swap_in(self, copy, 0, settings)


# -- shards and states ------------------------------------------------------------------------------------------------


async def _at_hand(self: Any, host: Any, generation: int) -> Any:
    at_rest = host.role.state_at_rest
    if at_rest is None or at_rest[1] <= self._newest(host)[0]:
        return None
    return at_rest[1], list(islice(at_rest[0].snapshot(200), 4))


async def _fence_uncommitted(self: Any, shard: Any, fence: Any) -> Any:
    return fence


def _turn_committed(self: Any, monotonic_ms: int) -> None:
    """Answers do not wait for the commit."""
    self.high_watermark = max(self.high_watermark, self.queue[-1][0])
    self.release()


_replay_marker = GroupCoordinator.replay_transaction_marker


def _always_committed(self: Any, producer: int, epoch: int, committed: bool, offset: int, coordinator: int) -> None:
    _replay_marker(self, producer, epoch, True, offset, coordinator)


# -- chores -----------------------------------------------------------------------------------------------------------


def _everything_archived(self: Any, host: Any) -> int:
    return 1 << 40


def _horizon_unnoted(self: Any) -> bool:
    changed = _hand_over(self)
    self._log.cleaned_to = CleanedTo(self._log.cleaned_to.end_offset, 0)
    return changed


_hand_over = Cleaning.hand_over


def _drops_pending(self: Any, record: Any, producer: int) -> bool:
    return producer < 0 and bool(_keeps(self, record, producer))


_keeps = Compaction._keeps


HOST_FAULTS = {
    "promise is not stored": HostFault(5, StoredReplica, "store_promise", _nothing),
    "promise is reported before it is stored": HostFault(5, StorageWork, "begin", _begin_and_report),
    "promise is written without a sync": HostFault(60, promise_module, "write_fully_durably", write_fully),
    "I/O error of a promise is ignored": HostFault(300, PromiseFile, "_write", _ignores_errors),
    "both promises in one slot": HostFault(400, PromiseFile, "_write", _one_slot),
    "journal writes nothing": HostFault(5, JournalWriter, "_write", lambda self, staged: 0.0),
    "failed write is forgotten": HostFault(60, StorageHealth, "storage_failed", _failed_and_forgotten),
    "recovery of the storage does nothing": HostFault(60, JournalWriter, "recover", _at_once),
    "damaged log begins anew and does not say so": HostFault(5, StoredReplica, "begin_anew", _without_promise),
    "power loss under flush os is not noted": HostFault(100, FlushState, "lost_power", property(lambda self: False)),
    "copy is swapped in without its horizon": HostFault(10, StoredReplica, "swap_in", _without_horizon),
    "checkpoint does not wait for the commit": HostFault(5, Checkpointer, "_at_hand", _at_hand),
    "answers do not wait for the commit": HostFault(5, ParkedAnswers, "turn_ended", _turn_committed),
    "fence is answered before it is committed": HostFault(100, Fencing, "_committed", _fence_uncommitted),
    "abort of a transaction commits": HostFault(10, GroupCoordinator, "replay_transaction_marker", _always_committed),
    "cleaner does not wait for the archive": HostFault(40, Archiver, "archived_to", _everything_archived),
    "horizon of a cleaned log is not noted": HostFault(10, Cleaning, "hand_over", _horizon_unnoted),
    "compaction drops what a transaction wrote": HostFault(10, Compaction, "_keeps", _drops_pending),
}
