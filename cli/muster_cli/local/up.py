"""`muster local up`: pods as processes, and the operator over the SQLite store in this process, until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import click
import uvloop

from muster_cli.local.data_dir import DataDir, RunRecord
from muster_cli.local.declare import CLUSTER, UpOptions, declared_cluster, declared_offsets_topic
from muster_cli.local.operator_loop import operator_running
from muster_cli.local.ports import consecutive_ports, free_ports
from muster_cli.local.procfs import own_process, stop_processes
from muster_cli.local.report import stall_causes
from muster_cli.local.workload import LocalWorkload, PodNetwork, PodPorts
from muster_operator.api.models import OffsetsTopicSpec, PartitionState
from muster_operator.store.port import ClusterRecords
from muster_operator.store.sqlite import SqliteStore

LEFTOVER_DEADLINE_S = 5.0
PROGRESS_EVERY_S = 2.0
NO_EPOCH = -1
RESTART_AFTER_S = 0.5
"""With one replica the start is what everybody waits for; with more it would take the processor from the failover."""


def run_local_up(data: DataDir, options: UpOptions, networks: Sequence[PodNetwork] = ()) -> None:
    """Returns when a signal asked it to stop and everything is stopped. Raises CliError, CliUsageError."""
    data.create()
    with data.locked():
        _stop_leftovers(data)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_up(data, options, networks))


def _stop_leftovers(data: DataDir) -> None:
    leftovers = {pod.process: pod.name for pod in data.leftover_pods() if pod.process is not None}
    if leftovers:
        _report(f"stopping pods that an earlier run left behind: {', '.join(leftovers.values())}")
        stop_processes(list(leftovers), deadline_s=LEFTOVER_DEADLINE_S)
    data.remove_run()


async def _up(data: DataDir, options: UpOptions, networks: Sequence[PodNetwork]) -> None:
    store = SqliteStore(data.store)
    try:
        before = await store.observe(CLUSTER)
        cluster = declared_cluster(options, before)
        topic = declared_offsets_topic(options, before, cluster.spec.pods)
        ports = choose_ports(options.base_port, cluster.spec.pods)
        await store.apply(cluster)
        await store.apply(topic)
        await _Instance(data, store, ports, topic.spec, _led_epochs(before), networks).run()
    finally:
        store.close()


def choose_ports(base_port: int, pods: int) -> list[PodPorts]:
    """Kafka ports as asked for; the others are free ones. Raises CliError for a port that is taken."""
    kafka = consecutive_ports(base_port, pods) if base_port else free_ports(pods)
    others = free_ports(2 * pods, frozenset(kafka))
    return [
        PodPorts(kafka=each, api=api, peer=peer)
        for each, api, peer in zip(kafka, others[:pods], others[pods:], strict=True)
    ]


class _Instance:
    """One run: from the first pod started to the last one stopped."""

    def __init__(
        self,
        data: DataDir,
        store: SqliteStore,
        ports: list[PodPorts],
        topic: OffsetsTopicSpec,
        led_before: Mapping[int, int],
        networks: Sequence[PodNetwork],
    ) -> None:
        self._data = data
        self._store = store
        self._led_before = led_before
        self._me = own_process()
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._workload = LocalWorkload(
            CLUSTER,
            data,
            ports,
            changed=self._pods_changed,
            report=_report,
            networks=networks,
            restart_after_s=RESTART_AFTER_S if topic.replication_factor > 1 else 0.0,
        )

    async def run(self) -> None:
        self._on_signals(self._asked_to_stop)
        self._store.watch(lambda _key: self._changed.set())
        async with operator_running(self._store, self._workload, self._data.logs / "operator.log") as operator:
            watcher = asyncio.create_task(self._tell_readiness())
            stop = asyncio.create_task(self._stop.wait())
            await asyncio.wait([watcher, stop, operator], return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in (watcher, operator) if task.done()]
            for task in (watcher, stop):
                task.cancel()
        await self._stop_pods()
        for task in ended:
            task.result()

    def _on_signals(self, handler: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, handler)

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            _report("stopping at once")
            self._workload.kill()
        else:
            _report("stopping; once more to stop at once")
            self._stop.set()

    async def _stop_pods(self) -> None:
        killed = await self._workload.stop()
        if killed:
            _report(f"had to kill: {', '.join(killed)}")
        self._data.remove_run()
        _report("stopped")

    def _pods_changed(self) -> None:
        try:
            self._data.write_run(RunRecord(supervisor=self._me, pods=self._workload.running()))
        except OSError as error:  # a full disk must not end the supervision of pods
            _report(f"cannot write {self._data.root}: {error}")
        self._changed.set()

    async def _tell_readiness(self) -> None:
        """One line whenever all partitions have a leader, and progress while some have not."""
        first, incomplete_since = True, time.monotonic()
        next_progress = incomplete_since + PROGRESS_EVERY_S
        complete = False
        told: dict[int, str] = {}
        while True:
            self._changed.clear()
            records = await self._store.observe(CLUSTER)
            led = self._led(records)
            for partition, cause in stall_causes(records.partitions).items():
                if told.get(partition) != cause:
                    _report(f"partition {partition} is stalled: {cause}")
                    told[partition] = cause
            now = time.monotonic()
            wanted = len(_serving(records))
            if led == wanted and not complete:
                complete = True
                _report(self._complete_line(first, wanted, now - incomplete_since))
                first = False
            elif led < wanted:
                if complete:
                    complete, incomplete_since, next_progress = False, now, now + PROGRESS_EVERY_S
                if now >= next_progress:
                    _report(f"{led} of {wanted} partitions have a leader")
                    next_progress = now + PROGRESS_EVERY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), None if complete else PROGRESS_EVERY_S)

    def _complete_line(self, first: bool, partitions: int, took_s: float) -> str:
        if first:
            return "ready bootstrap=" + ",".join(pod.kafka_address for pod in self._workload.running())
        return f"all {partitions} partitions have a leader again, after {took_s:.1f} s"

    def _led(self, records: ClusterRecords) -> int:
        # What the store says of an earlier run is about pods that are gone: only a later epoch is of this run.
        led = _led_epochs(records)
        return sum(led.get(i, NO_EPOCH) > self._led_before.get(i, NO_EPOCH) for i in _serving(records))


def _serving(records: ClusterRecords) -> range:
    return records.topics[0].layout.indexes


def _led_epochs(records: ClusterRecords) -> dict[int, int]:
    """Partition -> epoch, of those that are recorded as led."""
    return {
        each.spec.index: each.status.epoch for each in records.partitions if each.status.state is PartitionState.LED
    }


def _report(line: str) -> None:
    try:
        click.echo(line)
    except OSError:  # whoever read our output is gone; the pods stay
        pass
