"""`muster local status`: asks the store and the pods, and prints their report."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir, RunningPod, RunRecord
from muster_cli.local.declare import CLUSTER
from muster_cli.local.report import StatusReport, build_report, stall_causes
from muster_cli.local.tls import tls_of
from muster_coordinator.partition_numbers import partition_name
from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.podapi.models import PodStatus
from muster_coordinator.security.roles import Role
from muster_coordinator.security.tls import Tls
from muster_operator.store.sqlite import SqliteStore

ASK_TIMEOUT_S = 1.0


def run_local_status(data: DataDir, *, as_json: bool) -> None:
    """Print the report to stdout, and warnings to stderr. Raises CliError if nothing runs there."""
    report, causes = collect_report(data)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        _print_tables(data, report)
    for partition, cause in sorted(causes.items()):
        click.echo(f"partition {partition_name(partition)} is stalled: {cause}", err=as_json)
    record = data.read_run()
    if record is not None and not record.supervisor.alive():
        click.echo(
            f"warning: the `muster local up` that started these pods (pid {record.supervisor.pid}) is gone, "
            f"and with it restarts and elections. Start it again on {data.root}: it replaces them.",
            err=True,
        )


def collect_report(data: DataDir) -> tuple[StatusReport, dict[int, str]]:
    """The report, and the cause of each stalled partition. Raises CliError if neither a pod nor a supervisor runs."""
    record = data.read_run()
    if record is None or not (record.supervisor.alive() or any(pod.alive for pod in record.pods)):
        raise CliError(f"nothing runs on {data.root}; start it with: muster local up --data-dir {data.root}")
    return asyncio.run(_collect(data, record))


async def _collect(data: DataDir, record: RunRecord) -> tuple[StatusReport, dict[int, str]]:
    tls = tls_of(data, record, Role.READER)
    store = SqliteStore(data.store)
    try:
        records, answers = await asyncio.gather(store.observe(CLUSTER), _ask(record.pods, tls))
    finally:
        store.close()
    return build_report(record.pods, records.partitions, answers), stall_causes(records.partitions)


async def _ask(pods: Sequence[RunningPod], tls: Tls | None) -> dict[str, PodStatus]:
    """The answers of the pods by name, without pods that do not answer within `ASK_TIMEOUT_S` seconds."""
    alive = [pod for pod in pods if pod.alive]
    async with new_session() as session:
        calls = [PodClient(session, pod.name, pod.api_address, tls).status(ASK_TIMEOUT_S) for pod in alive]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    said = {}
    for pod, answer in zip(alive, answers, strict=True):
        if isinstance(answer, PodStatus):
            said[pod.name] = answer
        elif not isinstance(answer, PodApiError):
            raise answer
    return said


def _print_tables(data: DataDir, report: StatusReport) -> None:
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = max(console.width, 110)
    console.print(f"data dir   {data.root}\nbootstrap  {report.bootstrap}\n", soft_wrap=True)
    pods = Table("pod", "pid", "kafka address", "alive", "leads", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for pod in report.pods:
        leads = sum(line.leader == pod.name for line in report.partitions)
        alive = "yes" if pod.alive else "[red]no[/]"
        pods.add_row(pod.name, str(pod.pid or "-"), pod.kafka_address, alive, str(leads))
    console.print(pods)
    console.print()
    lines = Table(
        "partition", "leader", "epoch", "state", "followers", "replicas", box=None, pad_edge=False, padding=(0, 3, 0, 0)
    )
    for line in report.partitions:
        state = line.state if line.leader else f"[red]{line.state}[/]"
        epoch = str(line.epoch) if line.epoch >= 0 else "-"
        wanted = max(len(line.replicas) - 1, 0)
        followers = f"{len(line.followers)} of {wanted}" if line.leader and wanted else "-"
        lines.add_row(
            partition_name(line.partition), line.leader or "-", epoch, state, followers, ", ".join(line.replicas) or "-"
        )
    console.print(lines)
    console.print(f"\n{report.led} of {len(report.partitions)} partitions have a leader")
