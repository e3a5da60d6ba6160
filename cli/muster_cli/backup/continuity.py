"""Checks that the logs of a cluster go on where a backup ends, as far as epochs and offsets say."""

from __future__ import annotations

from collections.abc import Iterable

from muster_cli.backup.cut import Cut, Ends, OtherHistoryError
from muster_cli.backup.manifest import Backup, PartitionCut
from muster_coordinator.partition_numbers import OFFSETS, topic_of
from muster_coordinator.records.epoch_cache import EpochCache


def forked_at(base: Backup, later: Iterable[PartitionCut]) -> PartitionCut | None:
    """A partition of `later` whose log has other records than `base` below the cut of that one. A restore begins a
    higher epoch; a lower one says nothing, because copies of compacted logs do not know where epochs began."""
    cuts = {each.number: each for each in base.partitions}
    for cut in later:
        before = cuts.get(cut.number)
        if before is None or not before.commit_point:
            continue
        last = before.commit_point - 1
        if cut.commit_point <= last or EpochCache(cut.epochs).epoch_at(last) > EpochCache(before.epochs).epoch_at(last):
            return cut
    return None


def _is_left_behind(number: int, backup: Backup) -> bool:
    """True if the partition served before a re-shard: numbers only rise, also in a restore with others (ADR 59)."""
    layout = backup.layout
    return number < (layout.offsets_base if topic_of(number) is OFFSETS else layout.transaction_base)


def check_goes_on(backup: Backup, ends: Ends | Cut) -> None:
    """Raises OtherHistoryError: another Kafka cluster, one that was left behind, or one that parted before the cut."""
    if ends.cluster_id != backup.cluster_id:
        raise OtherHistoryError(
            f"{backup.id} is of Kafka cluster {backup.cluster_id}, and this one is {ends.cluster_id}"
        )
    now = [
        PartitionCut(entry.partition, entry.log_id, entry.commit_point, entry.leader_epoch, entry.epochs, ())
        for entry in (log.entry for log in ends.logs)
    ]
    left = next((each for each in now if _is_left_behind(each.number, backup)), None)
    if left is not None:
        raise OtherHistoryError(
            f"{left.name} serves here, and {backup.id} is of a re-shard that has replaced it: another cluster has gone"
            " on from this one. End this one before clients commit to both; if it is the one to go on with, as after a"
            " restore of an older backup, give it a store of its own"
        )
    epochs = {each.number: each.leader_epoch for each in backup.partitions}
    older = next((each for each in now if each.leader_epoch < epochs.get(each.number, -1)), None)
    if older is not None:
        raise OtherHistoryError(
            f"{older.name} is in epoch {older.leader_epoch} here, and in {epochs[older.number]} in {backup.id}: another"
            " cluster has gone on from this one. End this one before clients commit to both"
        )
    forked = forked_at(backup, now)
    if forked is not None:
        raise OtherHistoryError(
            f"{forked.name} does not go on where {backup.id} ends, as after a restore of an older backup: give what"
            " became of this cluster a store of its own"
        )
