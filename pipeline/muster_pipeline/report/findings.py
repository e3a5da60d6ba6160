"""Findings that need attention, the worst first: what is wrong, what to do, and where on the page it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from muster_pipeline.analytics.groups import GroupState
from muster_pipeline.analytics.regressions import Cause
from muster_pipeline.analytics.transactions import PREPARED
from muster_pipeline.decode.schema import Problem
from muster_pipeline.report.data import ReportData, Row
from muster_pipeline.report.text import amount, duration, instant, name, percent, plural
from muster_pipeline.source.topics import TRANSACTIONS_TOPIC

BAD, WARNING, NOTE = "bad", "warning", "note"

LONG_PAUSE_MS = 60_000
MANY_REBALANCES = 6
"""The rebalances in an hour that are more than a rollout explains."""
MUCH_REPEATED = 0.9
MUCH_OF_ALL = 0.25
UNMARKED_MS = 60_000
UNEVEN = 3.0
"""Times the mean load."""
_HOUR_MS = 3_600_000
_TAILS = (Problem.ZERO_TAIL, Problem.TORN_BATCH, Problem.JOURNAL_ONLY)
"""Problems that the end of a log also has while it is being written."""


@dataclass(frozen=True)
class Finding:
    """A finding. `section` is the id on the page."""

    severity: str
    title: str
    advice: str
    section: str


def findings(data: ReportData) -> list[Finding]:
    every: list[Callable[[ReportData], Iterable[Finding]]] = [
        _quality,
        _stalled,
        _overdue,
        _unmarked,
        _regressions,
        _expiring,
        _timed_out,
        _often,
        _paused,
        _outliers,
        _uneven,
        _abandoned,
        _unknown_lag,
    ]
    found = [finding for rule in every for finding in rule(data)]
    return sorted(found, key=lambda each: (BAD, WARNING, NOTE).index(each.severity))


def _names(rows: Iterable[Row], limit: int = 3) -> str:
    """Name the first groups of `rows`, each once."""
    names = list(dict.fromkeys(name(row["group"], 40) for row in rows))
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {amount(more)} more" if more > 0 else "")


def _quality(data: ReportData) -> Iterable[Finding]:
    if data.quality.listed.total:
        worst = data.quality.listed.rows[0]
        only_tails = all(row["problem"] in _TAILS for row in data.quality.listed.rows)
        yield Finding(
            NOTE if only_tails else BAD,
            f"{_stretches(data.quality.listed.total)} of the log could not be read "
            f"({plural(data.quality.bad_bytes, 'byte')})",
            f"The largest is {worst['problem']} in {name(worst['file'], 90)} at byte {worst['position']}. "
            "Numbers on this page lack what is in there.",
            "quality",
        )


def _stretches(count: int) -> str:
    return "1 stretch" if count == 1 else f"{amount(count)} stretches"


def _stalled(data: ReportData) -> Iterable[Finding]:
    count = data.groups.states.get(GroupState.STALLED, 0)
    if count:
        rows = [row for row in data.groups.listed.rows if row["state"] == GroupState.STALLED]
        yield Finding(
            BAD,
            f"{plural(count, 'group')} with members and lag made no progress for "
            f"{duration(data.thresholds.stalled_after_ms)}",
            f"{_names(rows)}: look at the consumers' logs; a record that cannot be processed is the usual reason.",
            "groups",
        )


def _overdue(data: ReportData) -> Iterable[Finding]:
    if data.transactions.overdue:
        rows = [row for row in data.transactions.listed.rows if row["overdue"]]
        yield Finding(
            BAD,
            f"{plural(data.transactions.overdue, 'transaction')} open beyond the time-out",
            f"{_ids(rows)}: the coordinator aborts a transaction when its time is over. Look whether the partition of "
            f"{TRANSACTIONS_TOPIC} has a leader. The offsets in it are not stable: groups that read only stable ones "
            "wait.",
            "transactions",
        )


def _unmarked(data: ReportData) -> Iterable[Finding]:
    prepared = [row for row in data.transactions.listed.rows if row["transaction_state"] in PREPARED]
    rows = [row for row in prepared if row["waiting_ms"] >= UNMARKED_MS]
    if rows:
        yield Finding(
            WARNING,
            f"{plural(len(rows), 'transaction')} ended {duration(UNMARKED_MS)} ago or more, and markers are missing",
            f"{_ids(rows)}: look whether the partitions that the transaction wrote to have leaders.",
            "transactions",
        )


def _ids(rows: Iterable[Row]) -> str:
    return _names({"group": row["transactional_id"]} for row in rows)


def _regressions(data: ReportData) -> Iterable[Finding]:
    recreated = [row for row in data.regressions.by_group if row["cause"] == Cause.RECREATED]
    if recreated:
        yield Finding(
            BAD,
            f"Offsets of {plural(len(recreated), 'group')} went back because a topic was made anew or truncated",
            f"{_names(recreated)}: check whether someone deleted the topic, or an unclean leader was elected.",
            "regressions",
        )
    reread = [row for row in data.regressions.by_group if row["reread"] and row["cause"] != Cause.RECREATED]
    if reread:
        worst = reread[0]
        yield Finding(
            WARNING,
            f"{plural(sum(row['times'] for row in reread), 'time')} an offset went back: "
            f"{plural(sum(row['reread'] for row in reread), 'record')} to read again",
            f"Most by {name(worst['group'], 40)}: {amount(worst['reread'])}, likely cause: {worst['cause']}.",
            "regressions",
        )


def _expiring(data: ReportData) -> Iterable[Finding]:
    if data.groups.expiring.total:
        first = data.groups.expiring.rows[0]
        yield Finding(
            WARNING,
            f"{plural(data.groups.expiring.total, 'group')} will lose committed offsets within "
            f"{duration(data.thresholds.expiring_within_ms)}",
            f"The first is {name(first['group'], 40)}, at {instant(first['expires_ms'])}. Start its consumers, or "
            "raise offsets.retention.minutes.",
            "expiring",
        )


def _timed_out(data: ReportData) -> Iterable[Finding]:
    rows = [row for row in data.rebalances.by_group.rows if row["timed_out"]]
    if rows:
        yield Finding(
            WARNING,
            f"{plural(sum(row['timed_out'] for row in rows), 'member')} timed out",
            f"In {_names(rows)}: crashed, cut off, or paused for longer than session.timeout.ms.",
            "rebalances",
        )


def _often(data: ReportData) -> Iterable[Finding]:
    by_hour = Counter((row["group"], row["timestamp_ms"] // _HOUR_MS) for row in data.rebalances.events.rows)
    often = dict.fromkeys(group for (group, _), count in by_hour.most_common() if count > MANY_REBALANCES)
    if often:
        yield Finding(
            WARNING,
            f"{plural(len(often), 'group')} rebalanced more than {MANY_REBALANCES} times in an hour",
            f"{_names({'group': group} for group in often)}: consumers that start and stop, or exceed "
            "max.poll.interval.ms. Static membership (group.instance.id) spares restarts a rebalance.",
            "rebalances",
        )


def _paused(data: ReportData) -> Iterable[Finding]:
    rows = [row for row in data.rebalances.by_group.rows if (row["longest_pause_ms"] or 0) >= LONG_PAUSE_MS]
    if rows:
        worst = max(rows, key=lambda row: row["longest_pause_ms"])
        yield Finding(
            NOTE,
            f"{plural(len(rows), 'group')} committed nothing for {duration(LONG_PAUSE_MS)} or more around a rebalance",
            f"The longest: {name(worst['group'], 40)}, {duration(worst['longest_pause_ms'])}.",
            "rebalances",
        )


def _outliers(data: ReportData) -> Iterable[Finding]:
    total = max(sum(row["commits"] for row in data.load.by_partition), 1)
    known = {row["group"] for row in data.activity.outliers}
    wasteful = [
        row
        for row in data.activity.rates.rows
        if row["group"] not in known
        and row["commits"] / total >= MUCH_OF_ALL
        and (row["repeated_share"] or 0) >= MUCH_REPEATED
    ]
    for row in [*data.activity.outliers, *wasteful][:3]:
        said_again = row["repeated_share"] or 0
        advice = (
            f"{percent(said_again)} of them repeat the offset before: raise auto.commit.interval.ms."
            if said_again >= MUCH_REPEATED
            else "Commit after a batch instead of after each record."
        )
        yield Finding(
            WARNING,
            f"{name(row['group'], 40)} makes {percent(row['commits'] / total)} of all commits",
            f"{plural(row['commits'], 'commit')}. {advice}",
            "commits",
        )


def _uneven(data: ReportData) -> Iterable[Finding]:
    here = next((row for row in data.load.what_if if row["partitions"] == data.load.partitions), None)
    if here is None or here["times_mean"] < UNEVEN:
        return
    busiest = max(data.load.by_partition, key=lambda row: row["commits"])
    largest = busiest["largest_commits"] / max(busiest["commits"], 1)
    advice = (
        f"{percent(largest)} of that is the group {name(busiest['largest_group'], 40)}: no number of partitions "
        "divides a group, only fewer commits help."
        if largest > 0.5
        else "Several groups share it: the what-if below shows other numbers of partitions."
    )
    yield Finding(
        NOTE,
        f"Offsets partition {busiest['offsets_partition']} takes {percent(here['busiest_share'])} of all commits",
        advice,
        "load",
    )


def _abandoned(data: ReportData) -> Iterable[Finding]:
    count = data.groups.states.get(GroupState.ABANDONED, 0)
    if count:
        rows = [row for row in data.groups.listed.rows if row["state"] == GroupState.ABANDONED]
        yield Finding(
            NOTE,
            f"{plural(count, 'group')} without members made no commit for "
            f"{duration(data.thresholds.abandoned_after_ms)}",
            f"{_names(rows)}: delete the groups that are not needed; the others lose their offsets by retention.",
            "groups",
        )


def _unknown_lag(data: ReportData) -> Iterable[Finding]:
    if data.groups.lags is None:
        yield Finding(
            NOTE,
            "Lag is not known",
            "The log of a coordinator does not say where topics end. Give --bootstrap-server or --end-offsets.",
            "lag",
        )
