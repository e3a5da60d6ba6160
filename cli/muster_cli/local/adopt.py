"""`muster local adopt`: make an embedded instance from the logs of another cluster.

A pod opens no log without a promise file, because records of unknown origin would become a partition's history. With
`adopt` a person vouches for them. Each log is copied, gets a log id and a promise file, and ends with a leader-change
record that names this log as the only replica, in an epoch above all of its records. Each partition is declared with
the pod that holds its log, because the operator uses a log with data only where it is told to. Source: replication.md,
"Identity", "Sets".
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir
from muster_cli.local.declare import CLUSTER, OFFSETS_TOPIC
from muster_cli.local.declared_logs import declare_logs, pod_of
from muster_coordinator.log.disk import OsDisk
from muster_coordinator.log.errors import DamagedLogError
from muster_coordinator.log.journal.history import History
from muster_coordinator.log.segments.partition_log import LogSettings, PartitionLog, partition_directory
from muster_coordinator.records.batch import encode_batch
from muster_coordinator.records.control import LeaderChange, encode_leader_change
from muster_coordinator.records.epoch_cache import CHECKPOINT_NAME
from muster_coordinator.replica.log_id import new_log_id
from muster_coordinator.replica.promise_file import PromiseFile
from muster_operator.api.models import ClusterRef, OffsetsTopicSpec

SEGMENT_BYTES = 100 << 20


def run_adopt(data: DataDir, logs: Sequence[str], pods: int) -> int:
    """Make the instance, and return its number of partitions. Raises CliError.

    The directory gets its name last: an interrupted run leaves nothing on which `muster local up` would start.
    """
    if data.root.exists():
        raise CliError(f"{data.root} exists already: adopt makes a new data directory")
    sources = _directories(logs)
    making = DataDir(data.root.with_name(data.root.name + ".partial"))
    if making.root.exists():
        raise CliError(f"{making.root} is left of an interrupted run: remove it")
    try:
        making.create()
        for partition, directory in enumerate(sources):
            _adopt_log(directory, making.pod(pod_of(partition, pods)), partition)
        spec = OffsetsTopicSpec(cluster_ref=ClusterRef(CLUSTER.name), partitions=len(sources), replication_factor=1)
        asyncio.run(declare_logs(making, pods, [(OFFSETS_TOPIC, spec, range(len(sources)))]))
        making.root.rename(data.root)
    except DamagedLogError as error:
        shutil.rmtree(making.root)
        raise CliError(f"cannot adopt a damaged log: {error}") from error
    except OSError as error:
        raise CliError(f"{error.filename or making.root}: {error.strerror or error}") from error
    return len(sources)


def _directories(logs: Sequence[str]) -> list[Path]:
    """The directories of the logs, by partition. Raises CliError if one is missing."""
    try:
        from muster_cli.unflushed import refuse_unflushed
        from muster_pipeline.decode.errors import PipelineError
        from muster_pipeline.source.files import find_segments
    except ImportError as exc:
        raise CliError(f"{exc.name} is missing: pip install 'muster[pipeline]'") from exc
    try:
        segments = find_segments(logs)
        refuse_unflushed(segments)
        found = {each.offsets_partition: Path(each.log) for each in segments}
    except PipelineError as exc:
        raise CliError(str(exc)) from exc
    numbers = [number for number in found if number is not None]
    missing = sorted(set(range(max(numbers, default=0) + 1)) - set(numbers))
    if missing or len(numbers) < len(found):
        raise CliError(f"no log of offsets partition {missing[0] if missing else '?'} under {', '.join(logs)}")
    return [found[number] for number in sorted(numbers)]


def _adopt_log(source: Path, pod: Path, partition: int) -> None:
    """Copy one log into the directory of a pod. Raises DamagedLogError, OSError."""
    disk = OsDisk()
    directory = partition_directory(pod, partition)
    disk.mkdir(pod)
    disk.mkdir(directory)
    for file in source.iterdir():
        if file.suffix == ".log" or file.name == CHECKPOINT_NAME:
            shutil.copyfile(file, directory / file.name)
    log_id = new_log_id()
    log = PartitionLog.open(disk, directory, partition, LogSettings(segment_bytes=SEGMENT_BYTES), History(boot_id=""))
    epoch = log.epochs.last_epoch + 1
    end = log.end_offset
    if end:  # an empty log gets its first set from the bootstrap election
        now_ms = int(time.time() * 1000)
        change = encode_leader_change(LeaderChange(log_id, (log_id,)))
        batch = encode_batch([change], base_offset=end, leader_epoch=epoch, timestamp_ms=now_ms, control=True)
        log.append(batch, end, end + 1, epoch)
        log.journaled_end = end + 1  # there is no journal: the sync below makes it durable
    log.sync()
    log.close()
    promise = PromiseFile.create(disk, directory, log_id)
    if end:
        promise.store(epoch, log_id)
