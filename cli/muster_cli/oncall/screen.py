"""The report of `muster status` on one screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from muster_cli.oncall.doctor import Diagnosis
from muster_cli.oncall.explain import Explanation
from muster_cli.oncall.status import ClusterReport, PartitionLine, PodLine, StatusReport
from muster_cli.oncall.verdict import Note, age_s
from muster_coordinator.partition_numbers import OFFSETS, topic_of

LEADS_SHOWN = 60
"""Partitions of one pod, of one list, and failovers of a cluster: a screen has no room for more."""
PARTITIONS_SHOWN = 10
FAILOVERS_SHOWN = 5
COLORS = {"healthy": "green", "under way": "yellow", "needs a person": "red"}


def screen(report: StatusReport, now: float) -> RenderableType:
    """All clusters, one below the other. `now`: seconds since 1970."""
    if not report.clusters:
        return Text("no CoordinatorCluster")
    parts: list[RenderableType] = []
    for each in report.clusters:
        parts += [*_cluster(each, now), ""]
    return Group(*parts[:-1])


def explanation(told: Explanation, now: float) -> RenderableType:
    """One partition. `now`: seconds since 1970."""
    color = "green" if told.leader else "red" if told.needs_person else "yellow"
    since = f" for {ago(told.since, now)}" if told.since else ""
    kafka = f", {told.kafka_name} to clients" if told.kafka_name else ""
    title = f"[bold]{told.namespace}/{told.partition}[/]  [{color}]{told.state}[/]{since}"
    replicas = _table("replica", "node", "pod", "role", "log")
    for each in told.replicas:
        ready = "[green]ready[/]" if each.ready else "[red]not ready[/]"
        replicas.add_row(each.pod, each.node or "-", ready, each.role, each.log_id or "-")
    parts: list[RenderableType] = [Text.from_markup(f"{title}   of cluster {told.cluster}{kafka}")]
    for word, sentences in (("where", told.where), ("why", told.why), ("next", told.next)):
        parts += [Text.from_markup(f"[bold]{word:5}[/]  {escape(each)}") for each in sentences]
    return Group(*parts, "", replicas) if told.replicas else Group(*parts)


LEVELS = {"must": "red", "advice": "yellow", "unknown": "cyan", "ok": "green"}


def diagnosis(told: Diagnosis, *, show_all: bool) -> RenderableType:
    """One cluster: a line for each finding, and one for its fix, to be copied."""
    shown = [each for each in told.findings if show_all or each.level != "ok"]
    counts = ", ".join(f"{sum(each.level == level for each in told.findings)} {level}" for level in LEVELS)
    parts: list[RenderableType] = [Text.from_markup(f"[bold]{told.namespace}/{told.cluster}[/]  {counts}")]
    for each in shown:
        line = f"[{LEVELS[each.level]}]{each.level:7}[/] [bold]{each.check}[/]: {escape(each.reason)}"
        parts.append(Text.from_markup(line))
        if each.fix:
            parts.append(Text(f"        fix: {each.fix}"))
    return Group(*parts)


def ago(time: str, now: float) -> str:
    """The age of a time, in one unit: 42s, 5m, 3h, 2d."""
    if not time:
        return ""
    passed = age_s(time, now)
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if passed >= 2 * seconds:
            return f"{int(passed // seconds)}{unit}"
    return f"{int(passed)}s"


def short(partition: int) -> str:
    """The number of a partition, with a `t` before those of transactions."""
    topic = topic_of(partition)
    return str(partition) if topic is OFFSETS else f"t{partition - topic.first}"


def _cluster(report: ClusterReport, now: float) -> list[RenderableType]:
    color = COLORS[report.verdict]
    ready = sum(pod.ready for pod in report.pods)
    parts: list[RenderableType] = [
        Text.from_markup(f"[bold]{report.namespace}/{report.name}[/]  [{color}]{report.verdict}[/]"),
        Text(
            f"{ready} of {report.declared_pods} pods ready, {report.led} of {len(report.partitions)} partitions led, "
            f"{report.behind} replicas behind"
        ),
        Text(f"bootstrap {report.bootstrap or '-'}   operator {report.operator or 'not known'}"),
    ]
    for title, notes, mark in (
        ("needs a person", report.needs_person, "red"),
        ("under way", report.under_way, "yellow"),
        ("good to know", report.notes, "cyan"),
    ):
        parts += _notes(title, notes, mark, now)
    parts += ["", _pods(report.pods, report.partitions)]
    if amiss := [each for each in report.partitions if each.leader is None or each.behind]:
        parts += ["", _partitions(amiss)]
    if report.failovers:
        parts += ["", _failovers(report, now)]
    return parts


def _notes(title: str, notes: Sequence[Note], color: str, now: float) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for each in notes:
        since = f" [dim]for {ago(each.since, now)}[/]" if each.since else ""
        text = f"[{color}]{title}[/]: {escape(each.about)} [bold]{each.reason}[/]{since}: {escape(each.message)}"
        lines.append(Text.from_markup(text))
    return lines


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))


def _pods(pods: Sequence[PodLine], partitions: Sequence[PartitionLine]) -> Table:
    table = _table("pod", "node", "state", "restarts", "holds", "leads", "partition:epoch")
    for pod in pods:
        led = [each for each in partitions if each.leader == pod.name]
        shown = " ".join(f"{short(each.partition)}:{each.epoch}" for each in led[:LEADS_SHOWN])
        more = f" and {len(led) - LEADS_SHOWN} more" if len(led) > LEADS_SHOWN else ""
        state = "[green]ready[/]" if pod.ready else f"[red]{escape(pod.trouble or pod.phase or 'not ready')}[/]"
        if not pod.ready and not pod.trouble and pod.phase == "Running":
            state = "[red]not ready[/]"
        if pod.maintenance:
            state += f" [yellow]{pod.maintenance.lower()}[/]"
        counts = (str(pod.restarts), str(pod.holds), str(pod.leads))
        table.add_row(pod.name, pod.node or "-", state, *counts, shown + more)
    return table


def _partitions(partitions: Sequence[PartitionLine]) -> Table:
    """Those of which something is to be said; first those without a leader."""
    ordered = sorted(partitions, key=lambda each: (each.leader is not None, each.partition))
    table = _table("partition", "state", "leader", "epoch", "behind", "replicas", "reason")
    for each in ordered[:PARTITIONS_SHOWN]:
        state = each.state if each.leader else f"[red]{each.state}[/]"
        counts = (str(each.epoch), f"{each.behind} of {len(each.replicas)}" if each.leader else "-")
        table.add_row(each.name, state, each.leader or "-", *counts, ", ".join(each.replicas), each.reason)
    if len(ordered) > PARTITIONS_SHOWN:
        table.add_row(f"and {len(ordered) - PARTITIONS_SHOWN} more")
    return table


def _failovers(report: ClusterReport, now: float) -> Table:
    table = _table("last failovers", "partition", "epoch", "from", "to", "took", "")
    for each in report.failovers[:FAILOVERS_SHOWN]:
        took = f"{each.duration_ms} ms" if each.duration_ms is not None else "-"
        ends = (each.previous_leader or "-", each.leader or "-")
        kind = "planned" if each.planned else ""
        table.add_row(f"{ago(each.time, now)} ago", each.partition, str(each.epoch), *ends, took, kind)
    return table
