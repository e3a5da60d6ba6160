"""A backup with other numbers of partitions, for `muster restore --partitions`, as if the cluster had been re-sharded
before it was made (ADR 59).

First all transactions are ended, as the restored cluster would end them: markers name partitions by the numbers that
clients knew, which are others afterwards. Then the job of `muster reshard` writes both topics anew and verifies them.
The store is only read; the new logs are in a directory of this machine. Each pod's volume is restored by itself, so
all of this gives the same logs in every run.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from muster_cli.backup.at_moment import Overlay
from muster_cli.backup.copying import TAIL_BYTES
from muster_cli.backup.fencing import OpenOffsets, Transactions, marked_later
from muster_cli.backup.manifest import Backup, Layout, PartitionCut, SegmentFile
from muster_cli.backup.restore import BATCH_BYTES, NO_COORDINATOR_EPOCH, result_of
from muster_cli.backup.store import DirectoryStore, Source
from muster_cli.backup.then import batches_of
from muster_cli.errors import CliError
from muster_cli.progress import Amount
from muster_coordinator.log.segments.segment import segment_name
from muster_coordinator.partition_numbers import (
    OFFSETS,
    TRANSACTIONS,
    InternalTopic,
    index_of,
    partition_name,
    topic_of,
)
from muster_coordinator.records.batch import CorruptBatchError, RecordBatch, encode_batch, split_records
from muster_coordinator.records.control import EndTxnMarker, encode_end_txn_marker
from muster_coordinator.records.epoch_cache import EpochCache
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.records.transaction_log import TransactionStatus
from muster_pipeline.decode.errors import PipelineError
from muster_pipeline.reshard.job import reshard
from muster_pipeline.reshard.writer import LEADER_EPOCH, log_directory


@dataclass
class Ends:
    """The ends of transactions that had none at the cut. `open`: ids whose transaction was open, and is aborted.
    `markers`: ABORT markers of transactions that began after the cut of the transaction topic."""

    open: list[str] = field(default_factory=list)
    markers: int = 0


@dataclass(frozen=True)
class Resharded:
    """`backup`: as if it had been made after the re-shard. `before`: the layout of the one in the store. `groups`,
    `transactional_ids`: how many were carried over."""

    backup: Backup
    before: Layout
    groups: int
    transactional_ids: int
    ends: Ends


@contextmanager
def resharded(
    store: Source, backup: Backup, partitions: int, transaction_partitions: int, progress: Amount
) -> Iterator[tuple[Resharded, Source]]:
    """Yields the backup with these numbers of partitions (0: as many as it has), and its files. Raises CliError."""
    wanted = result_of(backup).with_numbers(partitions, transaction_partitions)
    layout = Layout(
        wanted.offsets_base, wanted.offsets_partitions, wanted.transaction_base, wanted.transaction_partitions
    )
    with TemporaryDirectory(prefix="muster-restore-") as scratch:
        root = Path(scratch)
        try:
            ends = _Ending(store, backup, root / "old").write(progress)
            epoch = max(max(cut.leader_epoch, EpochCache(cut.epochs).last_epoch) for cut in backup.partitions)
            rewrite = _Rewriting(root, epoch, progress)
            groups = rewrite.topic(OFFSETS, layout.offsets)
            ids = rewrite.topic(TRANSACTIONS, layout.transactions) if layout.transactions else 0
        except PipelineError as error:
            raise CliError(
                f"{backup.id} cannot be re-sharded: {error}. Restore it with the numbers of partitions that it has, and"
                " look at `muster reshard`"
            ) from error
        except OSError as error:
            raise CliError(f"{error.filename or root}: {error.strerror or error}") from error
        made = replace(backup, layout=layout, partitions=tuple(rewrite.cuts))
        files = DirectoryStore(rewrite.files)
        yield Resharded(made, backup.layout, groups, ids, ends), Overlay(store, files, set(files.files()))


class _Ending:
    """Writes the logs of a backup to a directory for each topic, with the ends of all transactions behind them."""

    def __init__(self, store: Source, backup: Backup, root: Path) -> None:
        self._store = store
        self._backup = backup
        self._root = root
        self._ends = Ends()
        self._known: set[tuple[int, int]] = set()  # producer id and index of the groups' partition
        self._commits: set[tuple[int, int]] = set()  # likewise

    def write(self, progress: Amount) -> Ends:
        """The transactions first, because they say how offsets end. Raises CliError, OSError."""
        cuts = sorted(self._backup.partitions, key=lambda cut: topic_of(cut.number) is OFFSETS)
        for done, cut in enumerate(cuts):
            progress("logs read", done, len(cuts))
            directory = self._root / topic_of(cut.number).name / partition_name(cut.number)
            directory.mkdir(parents=True)
            try:
                with (directory / segment_name(0)).open("xb") as file:
                    file.writelines(self._log(cut))
            except (CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
                raise CliError(f"{self._backup.id}, {cut.name}: {error}") from error
        progress("logs read", len(cuts), len(cuts))
        self._ends.open.sort()
        return self._ends

    def _log(self, cut: PartitionCut) -> Iterator[bytes]:
        batches = batches_of(self._store, cut)
        return self._transactions(cut, batches) if topic_of(cut.number) is TRANSACTIONS else self._groups(cut, batches)

    def _transactions(self, cut: PartitionCut, batches: Iterable[RecordBatch]) -> Iterator[bytes]:
        found = Transactions(index_of(cut.number))
        for batch in batches:
            found.take(batch)
            yield batch.data
        values = found.values.values()
        self._known |= marked_later(values)
        self._commits |= marked_later(each for each in values if each.status is TransactionStatus.PREPARE_COMMIT)
        self._ends.open += found.open
        end = cut.commit_point
        for records in split_records(found.ended(self._backup.taken_at_ms), BATCH_BYTES):
            yield self._batch(cut, end, records)
            end += len(records)

    def _groups(self, cut: PartitionCut, batches: Iterable[RecordBatch]) -> Iterator[bytes]:
        offsets = OpenOffsets()
        for batch in batches:
            offsets.take(batch)
            yield batch.data
        index = cut.number - self._backup.layout.offsets_base
        for count, (producer_id, producer_epoch) in enumerate(sorted(offsets.epochs.items())):
            self._ends.markers += (producer_id, index) not in self._known
            committed = (producer_id, index) in self._commits
            marker = encode_end_txn_marker(EndTxnMarker(committed, NO_COORDINATOR_EPOCH))
            yield self._batch(cut, cut.commit_point + count, [marker], producer_id, producer_epoch)

    def _batch(
        self,
        cut: PartitionCut,
        base_offset: int,
        records: list[tuple[bytes, bytes]],
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> bytes:
        """A batch behind the cut; of a producer: its marker."""
        return encode_batch(
            records,
            base_offset=base_offset,
            leader_epoch=cut.leader_epoch,
            timestamp_ms=self._backup.taken_at_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id >= 0,
            control=producer_id >= 0,
        )


class _Rewriting:
    """Writes topics anew from the logs in `root`/old. `cuts`: their logs, whose segments are in `files`, named as in a
    store. `epoch`: no log of the backup has a higher one, so a restore begins above it."""

    def __init__(self, root: Path, epoch: int, progress: Amount) -> None:
        self.cuts: list[PartitionCut] = []
        self.files = root / "store"
        self._root = root
        self._epoch = epoch
        self._progress = progress

    def topic(self, topic: InternalTopic, numbers: range) -> int:
        """Returns how many groups, or transactional ids, there are. Raises PipelineError, OSError."""
        old, new = self._root / "old" / topic.name, self._root / topic.name
        summary = reshard([str(old)], new, len(numbers), topic=topic.name, progress=self._progress)
        shutil.rmtree(old)
        for index, (number, end) in enumerate(zip(numbers, summary.records, strict=True)):
            segments = self._segments(log_directory(new, index, topic.name), end)
            epochs = ((LEADER_EPOCH, 0),) if end else ()
            self.cuts.append(PartitionCut(number, "", end, self._epoch, epochs, tuple(segments)))
        return summary.groups

    def _segments(self, log: Path, end: int) -> Iterator[SegmentFile]:
        """Move the segments of a log without holes that ends there."""
        paths = sorted(log.glob("*.log"))
        bases = [int(path.stem) for path in paths]
        for path, base, following in zip(paths, bases, [*bases[1:], end], strict=True):
            content = path.read_bytes()
            digest, tail = (hashlib.sha256(data).hexdigest() for data in (content, content[-TAIL_BYTES:]))
            segment = SegmentFile(base, len(content), following, digest, tail)
            place = self.files / segment.name
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
            yield segment
