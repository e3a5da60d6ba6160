"""`muster restore`: a new data directory of an embedded instance, or of one pod on Kubernetes, from a backup.

What is needed is verified first. Then each log is written into the directory of one pod, up to the cut; it gets a new
log id, and a leader-change record that names this log as the only replica, in an epoch far above all that the
backup knows of. What `fencing` says is appended in that epoch. The volumes remember Kafka cluster id and
layout (ADR 23).
The directory gets its name last, when all of it is on stable storage, so an interrupted run leaves nothing on which a
pod would start.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from muster_cli.backup.catalog import Catalog
from muster_cli.backup.fencing import OpenOffsets, Transactions, marked_later
from muster_cli.backup.manifest import Backup, PartitionCut
from muster_cli.backup.store import Source
from muster_cli.backup.verify import verify
from muster_cli.backup.volume import alone, make_durable, write_note
from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_cli.local.declare import CLUSTER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from muster_cli.local.declared_logs import declare_logs, pod_of
from muster_cli.progress import Amount
from muster_coordinator.log.disk import OsDisk, replace_file
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.log.segments.segment import segment_name
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS, index_of, topic_of
from muster_coordinator.pod.last_image import NAME as LAST_IMAGE_NAME
from muster_coordinator.podapi.image import MetadataImage
from muster_coordinator.records.batch import (
    CorruptBatchError,
    RecordBatch,
    encode_batch,
    iter_batches,
    split_records,
)
from muster_coordinator.records.control import EndTxnMarker, LeaderChange, encode_end_txn_marker, encode_leader_change
from muster_coordinator.records.epoch_cache import CHECKPOINT_NAME, EpochCache
from muster_coordinator.records.errors import RecordDecodeError, UnsupportedValueVersionError
from muster_coordinator.replica.log_id import new_log_id
from muster_coordinator.replica.promise_file import PromiseFile
from muster_coordinator.sites.origin import Origin
from muster_operator.api.models import ClusterRef, OffsetsTopicSpec
from muster_operator.api.restore_result import RestoreResult

SEGMENT_BYTES = 100 << 20
BATCH_BYTES = 1 << 20
EPOCH_STEP = 1_000
"""Number of epochs above those of the backup at which a restored log begins: the lost cluster, should it come back, is
known by its lower epochs (`continuity`) until it has had so many elections more in every partition. An epoch is an
int32."""
NO_COORDINATOR_EPOCH = 0
"""Stands in markers that no coordinator has written, so that markers of every coordinator may follow."""


@dataclass(frozen=True)
class Restored:
    """`open_transactions`: ids whose transaction was open at the cut, and is aborted. `markers`: ABORT markers for
    transactions that began after the cut of the transaction topic."""

    backup: str
    cluster_id: str
    partitions: int
    size: int
    open_transactions: tuple[str, ...]
    markers: int


def run_restore(
    store: Source, catalog: Catalog, backup: Backup, data: DataDir, pods: int, now_ms: int, progress: Amount
) -> Restored:
    """Make the data directory. Blocks. Raises CliError."""
    check_restore(store, catalog, backup, data.root, progress)
    making = DataDir(_partial(data.root))
    if making.root.exists():
        raise CliError(f"{making.root} is left of an interrupted run: remove it")
    with _made(making.root, data.root, backup):
        making.create()
        places = {name: making.pod(name) for name in (_name(number) for number in range(pods))}
        restored = _Restore(store, backup, places, pods, now_ms).run(progress)
        for number in range(pods):
            write_note(places[_name(number)], _note(backup, number, pods))
        asyncio.run(declare_logs(making, pods, _topics(backup)))
    return restored


def restore_volume(
    store: Source, catalog: Catalog, backup: Backup, root: Path, pod: int, pods: int, now_ms: int, progress: Amount
) -> Restored:
    """Make the data directory of pod number `pod` of `pods`, which has its share of the logs. Blocks. Raises CliError.
    What an interrupted run has left is made anew.
    """
    with alone(root):
        check_restore(store, catalog, backup, root, progress, _needed(backup, pod, pods))
        making = _partial(root)
        shutil.rmtree(making, ignore_errors=True)
        with _made(making, root, backup):
            restored = _Restore(store, backup, {_name(pod): making}, pods, now_ms).run(progress)
            write_note(making, _note(backup, pod, pods))
    return restored


def result_of(backup: Backup) -> RestoreResult:
    """The result of a restore that the operator reads."""
    layout = backup.layout
    return RestoreResult(
        backup.id,
        backup.taken_at_ms,
        backup.cluster_id,
        backup.size,
        layout.offsets_base,
        layout.offsets_partitions,
        layout.transaction_base,
        layout.transaction_partitions,
    )


def _note(backup: Backup, pod: int, pods: int) -> Origin:
    layout = backup.layout
    return Origin(backup.id, pod, pods, layout.offsets_partitions, layout.transaction_partitions)


def _name(pod: int) -> str:
    return f"{CLUSTER.name}-{pod}"


def _partial(root: Path) -> Path:
    return root.with_name(root.name + ".partial")


@contextmanager
def _made(making: Path, root: Path, backup: Backup) -> Iterator[None]:
    """Give `making` its name `root` when all of it is durable, and remove it if that fails. Raises CliError."""
    try:
        yield
        make_durable(making)
        making.rename(root)
        OsDisk().fsync_dir(root.parent)
    except (DamagedLogError, CorruptBatchError, RecordDecodeError, UnsupportedValueVersionError) as error:
        shutil.rmtree(making, ignore_errors=True)
        raise CliError(f"{backup.id} cannot be restored: {error}") from error
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        raise CliError(f"{error.filename or making}: {error.strerror or error}") from error
    except CliError:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _needed(backup: Backup, pod: int, pods: int) -> set[int]:
    """The partitions whose logs are read for a pod: its own, and all transactions, which say of markers."""
    numbers = {cut.number for cut in backup.partitions}
    return {each for each in numbers if topic_of(each) is TRANSACTIONS or pod_of(each, pods) == _name(pod)}


def check_restore(
    store: Source,
    catalog: Catalog,
    backup: Backup,
    root: Path,
    progress: Amount,
    numbers: Container[int] | None = None,
) -> None:
    """Raises CliError: something is there already, or the store is not as it was written. `numbers`: only the logs of
    these partitions are read."""
    if root.exists() and any(root.iterdir()):
        raise CliError(f"{root} is not empty: a restore makes a new data directory and overwrites nothing")
    found = verify(store, catalog, [backup], progress, numbers)
    if found.problems:
        told = "; ".join(str(each) for each in found.problems[:5])
        raise CliError(f"{backup.id} is not restored, because {store.address} is not as it was written: {told}")


class _Restore:
    """Writes the logs of the pods in `places` (the data directory of each, by name), of `pods` that there are."""

    def __init__(self, store: Source, backup: Backup, places: Mapping[str, Path], pods: int, now_ms: int) -> None:
        self._store = store
        self._backup = backup
        self._places = places
        self._pods = pods
        self._now_ms = now_ms
        self._marked_later: set[tuple[int, int]] = set()
        self._open: list[str] = []
        self._markers = 0

    def run(self, progress: Amount) -> Restored:
        """The transactions first, because they say which markers the groups need. Raises what `run_restore` tells."""
        cuts = sorted(self._backup.partitions, key=lambda cut: topic_of(cut.number) is OFFSETS)
        for done, cut in enumerate(cuts):
            progress("logs written", done, len(cuts))
            self._log(cut)
        progress("logs written", len(cuts), len(cuts))
        for pod in self._places.values():
            self._remember(pod)
        written = [cut for cut in cuts if pod_of(cut.number, self._pods) in self._places]
        return Restored(
            self._backup.id,
            self._backup.cluster_id,
            len(written),
            sum(segment.size for cut in written for segment in cut.segments),
            tuple(sorted(self._open)),
            self._markers,
        )

    def _log(self, cut: PartitionCut) -> None:
        disk = OsDisk()
        pod = self._places.get(pod_of(cut.number, self._pods))
        if pod is None:
            if topic_of(cut.number) is TRANSACTIONS:
                self._transactions(cut, self._stored(cut))
            return
        directory = partition_directory(pod, cut.number)
        disk.mkdir(pod)
        disk.mkdir(directory)
        for segment in cut.segments:
            with (directory / segment_name(segment.base_offset)).open("xb") as file:
                for data in self._store.read(segment.name):
                    file.write(data)
        replace_file(disk, directory / CHECKPOINT_NAME, EpochCache(cut.epochs).encode())
        settings = LogSettings(segment_bytes=SEGMENT_BYTES)
        log = PartitionLog.open(disk, directory, cut.number, settings, History(boot_id=""))
        try:
            if log.end_offset != cut.commit_point:
                reason = f"the log ends at {log.end_offset}, it was cut at {cut.commit_point}"
                raise DamagedLogError(directory, 0, reason)
            log_id = new_log_id()
            epoch = max(log.epochs.last_epoch, cut.leader_epoch) + EPOCH_STEP
            change = encode_leader_change(LeaderChange(log_id, (log_id,)))
            appender = _Appender(log, epoch, self._now_ms)
            appender.append([change], control=True)
            self._fence(cut, _batches(cut, directory), appender)
            log.sync()
        finally:
            log.close()
        PromiseFile.create(disk, directory, log_id).store(epoch, log_id, used=True)

    def _fence(self, cut: PartitionCut, batches: Iterator[RecordBatch], appender: _Appender) -> None:
        if topic_of(cut.number) is TRANSACTIONS:
            transactions = self._transactions(cut, batches)
            self._open += transactions.open
            for records in split_records(transactions.fenced(self._now_ms), BATCH_BYTES):
                appender.append(records)
            return
        offsets = OpenOffsets()
        for batch in batches:
            offsets.take(batch)
        index = cut.number - self._backup.layout.offsets_base
        for producer_id, producer_epoch in sorted(offsets.epochs.items()):
            if (producer_id, index) not in self._marked_later:
                marker = encode_end_txn_marker(EndTxnMarker(committed=False, coordinator_epoch=NO_COORDINATOR_EPOCH))
                appender.append([marker], control=True, producer_id=producer_id, producer_epoch=producer_epoch)
                self._markers += 1

    def _transactions(self, cut: PartitionCut, batches: Iterator[RecordBatch]) -> Transactions:
        transactions = Transactions(index_of(cut.number))
        for batch in batches:
            transactions.take(batch)
        self._marked_later |= marked_later(transactions.values.values())
        return transactions

    def _stored(self, cut: PartitionCut) -> Iterator[RecordBatch]:
        """The batches up to the cut, of a log that is another pod's."""
        for segment in cut.segments:
            yield from iter_batches(b"".join(self._store.read(segment.name)))

    def _remember(self, pod: Path) -> None:
        """Have the volume of a pod know which Kafka cluster it is of, and its layout."""
        layout = self._backup.layout
        image = MetadataImage(
            token=0,
            version=0,
            cluster_id=self._backup.cluster_id,
            brokers=(),
            offsets_partitions=layout.offsets_partitions,
            leaders=(),
            offsets_base=layout.offsets_base,
            transaction_base=layout.transaction_base,
            transaction_partitions=layout.transaction_partitions,
        )
        disk = OsDisk()
        disk.mkdir(pod)
        replace_file(disk, pod / LAST_IMAGE_NAME, msgspec.json.encode(image))


class _Appender:
    """Appends batches to a log in one epoch. The log's sync makes them durable: there is no journal."""

    def __init__(self, log: PartitionLog, epoch: int, now_ms: int) -> None:
        self._log = log
        self._epoch = epoch
        self._now_ms = now_ms

    def append(
        self,
        records: Sequence[tuple[bytes, bytes]],
        *,
        control: bool = False,
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        start = self._log.end_offset
        end = start + len(records)
        batch = encode_batch(
            records,
            base_offset=start,
            leader_epoch=self._epoch,
            timestamp_ms=self._now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id >= 0,
            control=control,
        )
        self._log.append(batch, start, end, self._epoch)
        self._log.journaled_end = end


def _batches(cut: PartitionCut, directory: Path) -> Iterator[RecordBatch]:
    """The batches up to the cut."""
    for segment in cut.segments:
        data = (directory / segment_name(segment.base_offset)).read_bytes()
        yield from iter_batches(data[: segment.size])


def _topics(backup: Backup) -> list[tuple[str, OffsetsTopicSpec, range]]:
    """The topics to declare: a cluster may have none of transactions."""
    layout = backup.layout
    groups = OffsetsTopicSpec(ClusterRef(CLUSTER.name), len(layout.offsets), 1)
    transactions = replace(groups, partitions=len(layout.transactions), topic=TRANSACTIONS.name)
    topics = [(OFFSETS_TOPIC, groups, layout.offsets), (TRANSACTIONS_TOPIC, transactions, layout.transactions)]
    return [(name, spec, numbers) for name, spec, numbers in topics if numbers]
