"""What a pod does around the protocol core: storage, journal, shard, state, chores."""

from __future__ import annotations

from itertools import islice
from typing import Any

from tests.simulation.faults.fault import Fault

from muster_coordinator.groups import snapshot as snapshot_module
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.log.checkpoint import CheckpointHead
from muster_coordinator.log.cleaning.cleaner import Cleaning
from muster_coordinator.log.cleaning.compaction import Compaction
from muster_coordinator.log.disk import write_fully
from muster_coordinator.log.flush_state import FlushState
from muster_coordinator.log.journal.history import HistoryBuilder
from muster_coordinator.log.segments import reading as reading_module
from muster_coordinator.log.segments.cleaned import CleanedTo
from muster_coordinator.log.segments.partition_log import PartitionLog
from muster_coordinator.log.writer import JournalWriter
from muster_coordinator.pod.chores.archiving import Archiver
from muster_coordinator.pod.chores.checkpointing import Checkpointer
from muster_coordinator.pod.opening import Opening
from muster_coordinator.pod.storage_health import StorageHealth
from muster_coordinator.records.group_metadata import GroupMetadataRecord
from muster_coordinator.replica import promise_file as promise_module
from muster_coordinator.replica import storage_work as storage_work_module
from muster_coordinator.replica import stored as stored_module
from muster_coordinator.replica.leader_writer import LeaderWriter
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.replica.role import Role
from muster_coordinator.replica.standby import Standby
from muster_coordinator.replica.storage_work import StorageWork
from muster_coordinator.replica.stored import StoredReplica
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.follower import Follower
from muster_coordinator.shard.fencing import Fencing
from muster_coordinator.shard.parked_answers import ParkedAnswers
from muster_coordinator.state_machine import Result, SetTimer

__all__ = ["HOST_FAULTS"]


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


def _empty_lost_nothing(self: Opening, host: Any) -> bool:
    return _has_noted(self, host) or (host.replica.is_open and host.replica.never_used)


_has_noted = Opening._has_noted
_swap_in = StoredReplica.swap_in


def _without_horizon(self: Any, copy: Any, horizon: int, settings: Any) -> None:
    _swap_in(self, copy, 0, settings)


def _unordered(segment: Any, chunk: bytes, position: int, size: int, expected: int, end_offset: int) -> int:
    return expected


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


def _begins_without_reading_horizon(head: CheckpointHead, log: PartitionLog) -> str:
    reason = _fits(head, log)
    return "" if reason.startswith("tombstones") else reason


_fits = stored_module.fits


def _forgets_members(self: GroupCoordinator, now_ms: int) -> Result:
    for group_id in list(self._state.groups):
        self.replay(GroupMetadataRecord(group_id, None), 0, 0)
    return _on_loaded(self, now_ms)


_on_loaded = GroupCoordinator.on_loaded


def _short_sessions(self: GroupCoordinator, now_ms: int) -> Result:
    result = _on_loaded(self, now_ms)
    timers = [SetTimer(one.key, 1) if one.key[0] == "session" else one for one in result.timers]  # type: ignore[union-attr]
    return Result(result.records, result.response, result.replies, tuple(timers))


def _keeps_standby(self: Role) -> None:
    self.generation += 1
    self.end("another log was better")


def _without_pending(state: Any, size: int) -> Any:
    return (part for part in _parts(state, size) if not part.pending)


_parts = snapshot_module._parts


def _untold(self: StoredReplica, offset: int) -> None:
    """The journal does not hear of a cut."""
    self.log.flush_segment()
    end = self.log.cut_end(offset)
    self.journal._staged_ends[self.partition] = end
    self.journal.stage_gap(self.partition, end, offset)


HOST_FAULTS = {
    "checkpoint below the horizon is loaded": Fault(300, stored_module, "fits", _begins_without_reading_horizon),
    "members are forgotten at a load": Fault(20, GroupCoordinator, "on_loaded", _forgets_members),
    "sessions end early after a load": Fault(60, GroupCoordinator, "on_loaded", _short_sessions),
    "followers never ack": Fault(5, Follower, "_ack", _nothing),
    "reads are not confirmed by the writer": Fault(60, LeaderWriter, "confirm_read", lambda self: 0),
    "a state is kept through a cut": Fault(
        60, Role, "log_changes", _keeps_standby, ((Standby, "fits", property(lambda self: True)),)
    ),
    "a checkpoint forgets open transactions": Fault(200, snapshot_module, "_parts", _without_pending),
    "a cut is not told to the journal": Fault(1000, StoredReplica, "stage_truncation", _untold),
    "a cut does not wait for what was appended": Fault(300, storage_work_module, "all_durable", _at_once),
    "promise is not stored": Fault(5, StoredReplica, "store_promise", _nothing),
    "promise is reported before it is stored": Fault(5, StorageWork, "begin", _begin_and_report),
    "promise is written without a sync": Fault(60, promise_module, "write_fully_durably", write_fully),
    "I/O error of a promise is ignored": Fault(300, PromiseFile, "_write", _ignores_errors),
    "both promises in one slot": Fault(400, PromiseFile, "_write", _one_slot),
    "journal writes nothing": Fault(5, JournalWriter, "_write", lambda self, staged: 0.0),
    "failed write is forgotten": Fault(60, StorageHealth, "storage_failed", _failed_and_forgotten),
    "recovery of the storage does nothing": Fault(60, JournalWriter, "recover", _at_once),
    "damaged log begins anew and does not say so": Fault(200, StoredReplica, "begin_anew", _without_promise),
    "power loss under flush os is not noted": Fault(100, FlushState, "lost_power", property(lambda self: False)),
    "a log that a power loss emptied lost nothing": Fault(20, Opening, "_has_noted", _empty_lost_nothing),
    "a batch is taken at the place of another one": Fault(1600, reading_module, "_check_order", _unordered),
    "holes in the journal are passed over": Fault(600, HistoryBuilder, "doubt_all", _nothing),
    "copy is swapped in without its horizon": Fault(200, StoredReplica, "swap_in", _without_horizon),
    "checkpoint does not wait for the commit": Fault(5, Checkpointer, "_at_hand", _at_hand),
    "answers do not wait for the commit": Fault(5, ParkedAnswers, "turn_ended", _turn_committed),
    "fence is answered before it is committed": Fault(100, Fencing, "_committed", _fence_uncommitted),
    "abort of a transaction commits": Fault(10, GroupCoordinator, "replay_transaction_marker", _always_committed),
    "cleaner does not wait for the archive": Fault(60, Archiver, "archived_to", _everything_archived),
    "horizon of a cleaned log is not noted": Fault(10, Cleaning, "hand_over", _horizon_unnoted),
    "compaction drops what a transaction wrote": Fault(200, Compaction, "_keeps", _drops_pending),
}
