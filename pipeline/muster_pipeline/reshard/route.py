"""The records of a log that are carried over, and the partition of the new topic that gets each.

Carried are offsets, group metadata and the records of consumer groups (KIP-848), with their tombstones, each group to
the partition that Kafka's hash gives it; of the transaction topic the states of transactional ids with their
tombstones, each id likewise. The record of reserved producer ids is not: a new partition has a range of its own, and
nobody hands out those of the old one (ADR 25).
A transactional offset is carried, without its transaction, where the next marker of its producer is COMMIT: replay
counts the record with the highest offset, so its own place in the log is the right one. Markers, aborted offsets and
records of the leadership have no meaning in the new logs. What cannot be carried is counted, never passed over: it is
the caller's to refuse or to leave out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from muster_coordinator.records.partitioner import partition_for
from muster_pipeline.decode.bytes_source import FileBytes
from muster_pipeline.decode.columns import Ints
from muster_pipeline.decode.decoder import Decoder, Stretch
from muster_pipeline.decode.fast_rows import KIND_NAMES, parse_records
from muster_pipeline.decode.schema import Kind, Problem
from muster_pipeline.decode.slow_rows import slow_rows
from muster_pipeline.decode.structure import CONTROL, TRANSACTIONAL
from muster_pipeline.source.files import SegmentFile

ABORTED = "aborted"
OPEN_TRANSACTION = "open_transaction"
LEFT_OUT_KINDS = (Kind.DAMAGED, Kind.UNREADABLE, Kind.UNKNOWN, OPEN_TRANSACTION)
"""Kinds of records that are refused unless the caller allows to leave them out."""

_OF_IDS = (Kind.TRANSACTION_STATE, Kind.TRANSACTION_TOMBSTONE)
_OF_CONSUMER_GROUPS = (Kind.CONSUMER_GROUP, Kind.CONSUMER_GROUP_TOMBSTONE)
_OF_GROUPS = (Kind.GROUP_METADATA, Kind.GROUP_TOMBSTONE, *_OF_CONSUMER_GROUPS)
_CARRIED = (Kind.OFFSET_COMMIT, Kind.OFFSET_TOMBSTONE, *_OF_GROUPS, *_OF_IDS)
_IS_CARRIED = np.array([name in _CARRIED for name in KIND_NAMES])


@dataclass(frozen=True)
class Fates:
    """The ends of a log's transactions: for each producer id the offsets of its markers, rising, and which of them
    commit."""

    markers: dict[int, tuple[list[int], list[bool]]]

    def of(self, producer_id: int, offset: int) -> str | None:
        """Return None if the record at `offset` counts, else why it does not."""
        offsets, committed = self.markers.get(producer_id, ([], []))
        index = bisect_right(offsets, offset)
        if index == len(offsets):
            return OPEN_TRANSACTION
        return None if committed[index] else ABORTED


def read_fates(log: Iterable[SegmentFile], sizes: Mapping[str, int]) -> Fates:
    """Read all markers of a log. Raises SegmentReadError."""
    markers: dict[int, tuple[list[int], list[bool]]] = defaultdict(lambda: ([], []))
    for segment in log:
        with FileBytes(segment.path) as source:
            for stretch in Decoder().stretches(source, segment.origin(), sizes[segment.path]):
                window = stretch.window
                control = (window.headers["attributes"] & CONTROL != 0)[window.records.batch]
                records = window.records[control]
                parse = parse_records(window, records)
                for batch, offset, kind, slow in zip(
                    records.batch, records.offset, parse.kind, parse.slow, strict=True
                ):
                    if not slow and KIND_NAMES[kind] in (Kind.TXN_COMMIT, Kind.TXN_ABORT):
                        offsets, committed = markers[int(window.headers["producer_id"][batch])]
                        offsets.append(int(offset))
                        committed.append(KIND_NAMES[kind] == Kind.TXN_COMMIT)
    return Fates(dict(markers))


@dataclass(frozen=True)
class Carried:
    """Records of one window, in the order of the log. In `data` a record's key and value, each behind its length, lie
    from `start` to `end`.
    """

    data: bytes
    groups: list[str]  # that occur, or transactional ids
    group: Ints  # of each record, index into `groups`
    target: Ints
    timestamp_ms: Ints
    start: Ints
    end: Ints


class Router:
    """Routes records to the `partitions` of the new topic. `counts`: rows by kind, those not carried included.
    `groups`: the partition of each group, or of each transactional id. `open`: producers with an open transaction, and
    the groups that it has offsets of."""

    def __init__(self, partitions: int) -> None:
        self.counts: Counter[str] = Counter()
        self.groups: dict[str, int] = {}
        self.open: dict[int, set[str]] = {}
        self._partitions = partitions

    def carried(self, stretch: Stretch, fates: Fates) -> Carried:
        """Add the rows of the stretch to `counts`."""
        window, records = stretch.window, stretch.window.records
        self.counts.update(Kind.DAMAGED for one in stretch.damages if one.problem != Problem.ZERO_TAIL)
        of_transactions = stretch.origin.transaction_partition is not None
        parse = parse_records(window, records, of_transactions=of_transactions)
        ids = [""] * len(records)
        keep = _IS_CARRIED[parse.kind]
        fast = np.bincount(parse.kind[~parse.slow], minlength=len(KIND_NAMES))
        self.counts.update({name: int(count) for name, count in zip(KIND_NAMES, fast, strict=True) if count})
        slow = np.flatnonzero(parse.slow)
        for index, row in zip(slow.tolist(), slow_rows(window, records, slow, stretch.origin), strict=True):
            self.counts[row["kind"]] += 1
            keep[index] = row["kind"] in _CARRIED
            if row["kind"] in _OF_IDS:
                ids[index] = row["transactional_id"]
                keep[index] = bool(ids[index])  # a broker lets the record of producer ids expire, too
        attributes = window.headers["attributes"][records.batch]
        in_transaction = keep & (attributes & TRANSACTIONAL != 0) & (attributes & CONTROL == 0)
        for index in np.flatnonzero(in_transaction).tolist():
            producer_id = int(window.headers["producer_id"][records.batch[index]])
            why_not = fates.of(producer_id, int(records.offset[index]))
            if why_not is not None:
                self.counts[why_not] += 1
                keep[index] = False
            if why_not == OPEN_TRANSACTION:
                self.open.setdefault(producer_id, set()).add(str(parse.group[index].as_py()))
        kept = np.flatnonzero(keep)
        chosen = records[kept]
        keys = pa.array(ids, pa.string()) if of_transactions else parse.group
        encoded = keys.take(kept).dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        targets = np.array([self._target(name) for name in names], np.int64)
        return Carried(
            window.source.data,
            names,
            codes,
            targets[codes] if len(codes) else codes,
            chosen.timestamp_ms,
            chosen.fields,
            np.maximum(chosen.value_end, chosen.value_start),
        )

    def _target(self, group: str) -> int:
        target = self.groups.get(group)
        if target is None:
            target = self.groups[group] = partition_for(group, self._partitions)
        return target

    def refused(self, leave_out: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Return the kinds that were found, cannot be carried and may not be left out."""
        allowed = set(leave_out)
        return ((kind, self.counts[kind]) for kind in LEFT_OUT_KINDS if self.counts[kind] and kind not in allowed)
