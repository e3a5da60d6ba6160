"""Logs of two topics as drawn clients write them, on pods whose clocks differ, with two backups and what is true."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from muster_cli.backup.manifest import Backup, Layout, PartitionCut, SegmentFile, encode_manifest
from muster_cli.backup.store import DirectoryStore
from muster_coordinator.partition_numbers import OFFSETS
from muster_coordinator.records.batch import encode_batch, iter_batches
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.offset_commit import encode_offset_commit_key, encode_offset_commit_value
from muster_coordinator.records.structs import OffsetCommitValue
from muster_coordinator.records.transaction_log import (
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)

BASE_MS = 1_800_000_000_000
GROUPS = (0, 1, 2)
TRANSACTIONS = (500_000, 500_001)
LAYOUT = Layout(0, len(GROUPS), TRANSACTIONS[0], len(TRANSACTIONS))

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Told:
    """The places of one transaction. `before`: the one before of its producer."""

    committed: bool
    partitions: tuple[int, ...]
    offsets: list[tuple[int, int, str, int]] = field(default_factory=list)  # partition, offset, group, value
    decision: Place | None = None
    markers: list[Place] = field(default_factory=list)
    completion: Place | None = None
    before: Told | None = None


class Logs:
    """Logs that grow while `now_ms` goes on. `skews`: by how much the clock of each partition's leader is wrong."""

    def __init__(self, rng: Random, skew_ms: int, *, repeats: bool) -> None:
        self.rng, self.repeats = rng, repeats
        self.now_ms = 0
        self.skews = {number: rng.randint(-skew_ms, skew_ms) for number in (*GROUPS, *TRANSACTIONS)}
        self.data = dict.fromkeys(self.skews, b"")
        self.ends = dict.fromkeys(self.skews, 0)
        self.written: dict[int, list[tuple[int, int]]] = {number: [] for number in self.skews}  # real time, end
        self.plain: list[tuple[int, int, str, int]] = []
        self.transactions: list[Told] = []
        self.holding = False
        self._serial = 0

    def append(self, number: int, record: tuple[bytes, bytes], **fields: int) -> int:
        offset = self.ends[number]
        at_ms = BASE_MS + self.now_ms + self.skews[number]
        self.data[number] += encode_batch(
            [record],
            base_offset=offset,
            leader_epoch=1,
            timestamp_ms=at_ms,
            **fields,  # type: ignore[arg-type]
        )
        self.ends[number] += 1
        self.written[number].append((self.now_ms, self.ends[number]))
        return offset

    def commit(self, number: int, group: str, **fields: int) -> tuple[int, int, str, int]:
        """Groups of one name are other ones in other partitions."""
        self._serial += 1
        group = f"{group}-in-{number}"
        value = encode_offset_commit_value(OffsetCommitValue(self._serial, -1, "", BASE_MS, -1))
        key = encode_offset_commit_key(group, "t", 0)
        return number, self.append(number, (key, value), **fields), group, self._serial

    def real_cut(self, at_ms: int) -> dict[int, int]:
        return {
            number: max((end for when, end in written if when <= at_ms), default=0)
            for number, written in self.written.items()
        }


def producer(logs: Logs, index: int) -> Iterator[None]:
    """One transactional id: each step is one record, and others come between."""
    rng, number = logs.rng, TRANSACTIONS[index % 2]
    name, producer_id, epoch = f"tx-{index}", (number - TRANSACTIONS[0] + 1 << 40) + index, 0
    version = rng.choice((0, 2))
    before: Told | None = None

    def state(status: TransactionStatus, partitions: tuple[int, ...]) -> Place:
        topics = ((OFFSETS.name, partitions),) if partitions else ()
        value = TransactionLogValue(
            producer_id, epoch, 60_000, status, topics, BASE_MS, BASE_MS, client_version=version
        )
        return number, logs.append(number, (encode_transaction_key(name), encode_transaction_value(value)))

    while True:
        chosen = tuple(sorted(rng.sample(GROUPS, rng.randint(1, 3))))
        told = Told(rng.random() < 0.6, chosen, before=before)
        logs.transactions.append(told)
        state(TransactionStatus.ONGOING, chosen)
        yield
        inside = {"producer_id": producer_id, "producer_epoch": epoch, "transactional": True}
        for partition in chosen:
            for _ in range(rng.choice((0, 1, 1, 1, 2))):
                told.offsets.append(logs.commit(partition, f"g-{rng.randint(0, 3)}", **inside))
                yield
        if version:
            epoch += 1
        told.decision = state(
            TransactionStatus.PREPARE_COMMIT if told.committed else TransactionStatus.PREPARE_ABORT, chosen
        )
        yield
        sent = [each for each in chosen for _ in range(2 if logs.repeats and rng.random() < 0.15 else 1)]
        rng.shuffle(sent)
        marker = encode_end_txn_marker(EndTxnMarker(committed=told.committed, coordinator_epoch=0))
        for partition in sent:
            while logs.holding:
                yield
            told.markers.append(
                (
                    partition,
                    logs.append(
                        partition,
                        marker,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        transactional=True,
                        control=True,
                    ),
                )
            )
            yield
        while logs.holding:  # pods take no note of markers that have arrived (ADR 45)
            yield
        done = TransactionStatus.COMPLETE_COMMIT if told.committed else TransactionStatus.COMPLETE_ABORT
        told.completion = state(done, ())
        before = told
        yield


class Drawn:
    """A run of some clients with two backups in the store, and the moments between."""

    def __init__(self, seed: int, store: DirectoryStore, *, skew_ms: int = 0, repeats: bool = False) -> None:
        rng = Random(seed)
        self.logs = Logs(rng, skew_ms, repeats=repeats)
        self.clients = [producer(self.logs, index) for index in range(6)]
        self.steps(rng.randint(0, 120))
        self.base = self.backup(store, 1)
        self.steps(rng.randint(50, 250))
        self.later = self.backup(store, 2)

    def steps(self, count: int) -> None:
        logs = self.logs
        for _ in range(count):
            logs.now_ms += logs.rng.randint(0, 20)
            if logs.rng.random() < 0.2:
                partition = logs.rng.choice(GROUPS)
                logs.plain.append(logs.commit(partition, f"g-{logs.rng.randint(0, 3)}"))
            else:
                next(logs.rng.choice(self.clients))

    def backup(self, store: DirectoryStore, number: int) -> Backup:
        """The transactions first, then the groups, and no marker between (ADR 45)."""
        logs = self.logs
        at_ms = logs.now_ms
        logs.holding = True
        ends = {each: logs.ends[each] for each in TRANSACTIONS}
        self.steps(logs.rng.choice((0, 0, 10)))
        ends |= {each: logs.ends[each] for each in GROUPS}
        logs.holding = False
        cuts = []
        for each in (*GROUPS, *TRANSACTIONS):
            content = upto(logs.data[each], ends[each])
            digest = hashlib.sha256(content).hexdigest()
            file = SegmentFile(0, len(content), ends[each], digest, digest)
            store.write(file.name, content)
            cuts.append(PartitionCut(each, f"{each:032}", ends[each], 1, ((1, 0),) if ends[each] else (), (file,)))
        backup = Backup(f"20270115T08000{number}Z-00000{number}", BASE_MS + at_ms, "1", "c", 2, LAYOUT, tuple(cuts))
        store.write(backup.name, encode_manifest(backup))
        return backup

    def torn_by(self, base: dict[int, int], cut: dict[int, int]) -> list[str]:
        """What the cut tears. What `base` has torn already is not looked at."""

        def has(place: Place | None) -> bool:
            return place is not None and place[1] < cut[place[0]]

        found = []
        for told in self.logs.transactions:
            offsets = [(number, offset) for number, offset, _, _ in told.offsets]
            if has(told.decision) and not all(map(has, offsets)):
                found.append(f"decided without an offset: {told}")
            if has(told.completion) and not all(map(has, told.markers)):
                found.append(f"complete without a marker: {told}")
            if not has(told.decision) and any(map(has, told.markers)):
                found.append(f"a marker and no decision: {told}")
            came = [(number, offset) for number, offset in offsets if offset >= base[number] and has((number, offset))]
            before = told.before
            if before is not None and not has(before.completion) and {n for n, _ in came} & {*before.partitions}:
                found.append(f"offsets while markers of the one before may be repeated: {told}")
        return found

    def offsets_at(self, cut: dict[int, int]) -> dict[str, dict[int, int]]:
        """The offsets by group and its partition, as clients would find them after all transactions have ended."""
        settled = [*self.logs.plain]
        for told in self.logs.transactions:
            if told.committed and told.decision is not None and told.decision[1] < cut[told.decision[0]]:
                settled += told.offsets
        found: dict[str, dict[int, int]] = {}
        for number, offset, group, value in sorted(settled, key=lambda each: each[:2]):
            if offset < cut[number]:
                found.setdefault(group, {})[number] = value
        return found


def upto(data: bytes, end: int) -> bytes:
    """The batches below the offset `end`."""
    return b"".join(each.data for each in iter_batches(data) if each.end_offset <= end)
