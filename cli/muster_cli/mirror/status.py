"""Asks the pods of an instance how far they have mirrored, and prints it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import click
import msgspec
from rich.console import Console
from rich.table import Table

from muster_cli.errors import CliError
from muster_cli.local.data_dir import DataDir, RunningPod, RunRecord
from muster_cli.local.tls import tls_of
from muster_coordinator.podapi.client import PodApiError, PodClient, new_session
from muster_coordinator.podapi.mirror import MirrorAnswer
from muster_coordinator.security.roles import Role
from muster_coordinator.security.tls import Tls

ASK_TIMEOUT_S = 1.0


class MirrorLine(msgspec.Struct, frozen=True):
    """One partition, as the pod says that leads it. -1: not known."""

    partition: int
    pod: str
    upstream_end: int
    position: int
    lag: int
    complete: bool
    records: int
    read_again: int
    problem: str


class MirrorReport(msgspec.Struct, frozen=True):
    """The object that `--json` prints. Its names stay compatible. `problems`: of a pod's whole mirror, by pod."""

    upstream: str
    problems: dict[str, str]
    partitions: tuple[MirrorLine, ...]


def run_mirror_status(data: DataDir, *, as_json: bool) -> None:
    """Print the report. Raises CliError if nothing runs there, or no pod mirrors anything."""
    record = data.read_run()
    if record is None or not any(pod.alive for pod in record.pods):
        raise CliError(f"nothing runs on {data.root}; start it with: muster local up --data-dir {data.root}")
    answers = asyncio.run(ask_pods(record, tls_of(data, record, Role.READER)))
    if not answers:
        raise CliError(
            f"no pod of {data.root} mirrors anything; start it with --upstream, or with "
            "--config muster.upstream.bootstrap=HOST:PORT"
        )
    report = build_report(answers)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        _print(report)


def build_report(answers: Mapping[str, MirrorAnswer]) -> MirrorReport:
    """`answers`: by pod. Only the leader of a partition tells of it."""
    lines = [
        MirrorLine(
            each.partition,
            pod,
            each.upstream_end,
            each.position,
            each.lag,
            each.complete,
            each.records,
            each.read_again,
            each.problem,
        )
        for pod, answer in answers.items()
        for each in answer.partitions
    ]
    return MirrorReport(
        upstream=next(iter(answers.values())).upstream,
        problems={pod: answer.problem for pod, answer in sorted(answers.items()) if answer.problem},
        partitions=tuple(sorted(lines, key=lambda line: line.partition)),
    )


async def ask_pods(record: RunRecord, tls: Tls | None) -> dict[str, MirrorAnswer]:
    """The answer of each pod that mirrors something."""
    async with new_session() as session:

        async def ask(pod: RunningPod) -> MirrorAnswer | None:
            client = PodClient(session, pod.name, pod.api_address, tls)
            try:
                return msgspec.json.decode(await client.read("/v1/mirror", {}, ASK_TIMEOUT_S), type=MirrorAnswer)
            except PodApiError:
                return None  # it mirrors nothing, or is on its way up or down

        alive = [pod for pod in record.pods if pod.alive]
        answers = await asyncio.gather(*map(ask, alive))
    return {pod.name: answer for pod, answer in zip(alive, answers, strict=True) if answer is not None}


def _print(report: MirrorReport) -> None:
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = max(console.width, 120)
    console.print(f"upstream  {report.upstream}\n", soft_wrap=True)
    for pod, problem in report.problems.items():
        console.print(f"[red]{pod}: {problem}[/]", soft_wrap=True)
    table = Table(
        *("partition", "pod", "upstream end", "position", "lag", "records", "read again", "problem"),
        box=None,
        pad_edge=False,
        padding=(0, 3, 0, 0),
    )
    for line in report.partitions:
        state = line.problem or ("" if line.complete else "not read to the end yet")
        numbers = (line.upstream_end, line.position, line.lag)
        table.add_row(
            str(line.partition),
            line.pod,
            *("-" if number < 0 else str(number) for number in numbers),
            str(line.records),
            str(line.read_again),
            f"[red]{state}[/]" if state else "",
        )
    console.print(table)
    behind = sum(max(line.lag, 0) for line in report.partitions)
    console.print(f"\n{len(report.partitions)} partitions are followed, {behind} records are not read yet")
