"""`muster local up`: runs pods as processes, and the operator with a SQLite store in this one, until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click
import uvloop

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir, RunRecord
from muster_cli.local.declare import CLUSTER, UpOptions, declared_cluster, declared_topics
from muster_cli.local.operator_loop import operator_running
from muster_cli.local.ports import LOOPBACK, consecutive_ports, free_ports
from muster_cli.local.procfs import own_process, stop_processes
from muster_cli.local.readiness import Readiness
from muster_cli.local.supervisor import stop_all
from muster_cli.local.workload import STOP_DEADLINE_S, LocalWorkload, PodNetwork, PodPorts
from muster_coordinator.security.roles import Role
from muster_coordinator.security.tls import TlsError
from muster_operator.api.models import OffsetsTopicSpec
from muster_operator.store.port import ClusterRecords
from muster_operator.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from muster_cli.local.certificates import LocalTls
    from muster_cli.local.front import FrontOptions, LocalGateway

LEFTOVER_DEADLINE_S = 5.0
RESTART_AFTER_S = 0.5
"""Seconds until a pod that ended starts again, if there are several replicas: the failover gets the CPU first. With one
replica the pod starts at once, because its partitions wait for it."""


def run_local_up(data: DataDir, options: UpOptions, networks: Sequence[PodNetwork] = ()) -> None:
    """Run until a signal, and return when all processes have ended. Raises CliError, CliUsageError."""
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
        if options.settings.get("muster.upstream.bootstrap"):
            from muster_cli.local.upstream import fitted_to_upstream

            options = await fitted_to_upstream(options, before)
        cluster = declared_cluster(options, before)
        topics = declared_topics(options, before, cluster.spec.pods)
        ports = choose_ports(options.base_port, cluster.spec.pods)
        await store.apply(cluster)
        for topic in topics:
            await store.apply(topic)
        tls = _tls(data, cluster.spec.pods) if options.tls else None
        collector = options.settings.get("muster.tracing.endpoint", "")
        await _Instance(data, store, ports, topics[0].spec, before, networks, tls, options.front, collector).run()
    finally:
        store.close()


def _tls(data: DataDir, pods: int) -> LocalTls:
    from muster_cli.local.certificates import LocalTls  # its library takes time to import

    try:
        return LocalTls(data, pods, _report)
    except (OSError, ValueError, TlsError) as error:
        raise CliError(f"{data.certificates}: {error}") from error


def choose_ports(base_port: int, pods: int) -> list[PodPorts]:
    """The ports of each pod: Kafka ports from `base_port` on, the others free. Raises CliError for a taken port."""
    kafka = consecutive_ports(base_port, pods) if base_port else free_ports(pods)
    others = free_ports(2 * pods, frozenset(kafka))
    return [
        PodPorts(kafka=each, api=api, peer=peer)
        for each, api, peer in zip(kafka, others[:pods], others[pods:], strict=True)
    ]


class _Instance:
    """One run of an instance, from the start of the first pod to the end of the last one."""

    def __init__(
        self,
        data: DataDir,
        store: SqliteStore,
        ports: list[PodPorts],
        topic: OffsetsTopicSpec,
        before: ClusterRecords,
        networks: Sequence[PodNetwork],
        tls: LocalTls | None,
        front: FrontOptions | None,
        collector: str,
    ) -> None:
        self._data = data
        self._collector = collector
        self._store = store
        self._me = own_process()
        self._tls = tls
        self._stop = asyncio.Event()
        self._readiness = Readiness(store, before, self._bootstrap, _report)
        self._workload = LocalWorkload(
            CLUSTER,
            data,
            ports,
            changed=self._pods_changed,
            report=_report,
            networks=networks,
            restart_after_s=RESTART_AFTER_S if topic.replication_factor > 1 else 0.0,
            tls=tls,
        )
        self._gateway = self._front(front, ports, networks) if front is not None else None

    def _front(self, options: FrontOptions, ports: list[PodPorts], networks: Sequence[PodNetwork]) -> LocalGateway:
        from muster_cli.local.front import LocalGateway, Pods

        hosts = [network.host for network in networks] or [LOOPBACK] * len(ports)
        kafka = ",".join(f"{host}:{each.kafka}" for host, each in zip(hosts, ports, strict=True))
        apis = ",".join(f"{host}:{each.api}" for host, each in zip(hosts, ports, strict=True))
        reader = self._data.certificates / Role.READER if self._tls is not None else None
        taken = frozenset(port for each in ports for port in (each.kafka, each.api, each.peer))
        return LocalGateway(
            self._data, options, Pods(kafka, apis, reader), taken, changed=self._pods_changed, report=_report
        )

    async def run(self) -> None:
        self._on_signals(self._asked_to_stop)
        self._store.watch(lambda _key: self._readiness.look_again())
        log_file = self._data.logs / "operator.log"
        async with operator_running(self._store, self._workload, log_file, self._collector) as operator:
            readiness = asyncio.create_task(self._readiness.run())
            stop = asyncio.create_task(self._stop.wait())
            besides = [asyncio.create_task(self._tls.run())] if self._tls is not None else []
            if self._gateway is not None:
                besides.append(asyncio.create_task(self._gateway.run()))
            await asyncio.wait([readiness, stop, operator, *besides], return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in (readiness, operator, *besides) if task.done()]
            for task in (readiness, stop, *besides):
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
            if self._gateway is not None:
                self._gateway.supervisor.kill()
        else:
            _report("stopping; once more to stop at once")
            self._stop.set()

    async def _stop_pods(self) -> None:
        if self._gateway is not None:
            await stop_all([self._gateway.supervisor], deadline_s=STOP_DEADLINE_S)
        killed = await self._workload.stop()
        if killed:
            _report(f"had to kill: {', '.join(killed)}")
        self._data.remove_run()
        _report("stopped")

    def _pods_changed(self) -> None:
        try:
            gateway = self._gateway.running if self._gateway is not None else None
            self._data.write_run(RunRecord(self._me, self._workload.running(), self._tls is not None, gateway))
        except OSError as error:  # a full disk must not end the supervision of pods
            _report(f"cannot write {self._data.root}: {error}")
        self._readiness.look_again()

    def _bootstrap(self) -> str:
        return ",".join(pod.kafka_address for pod in self._workload.running())


def _report(line: str) -> None:
    try:
        click.echo(line)
    except OSError:  # the reader of the output is gone; the pods stay
        pass
