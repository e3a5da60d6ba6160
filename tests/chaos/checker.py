"""Lost, reverted and invented commits in a history. Pure.

A group's offsets only rise, and it has one commit under way at a time. So a fetch must answer with an offset that is

- not below the last one that was acknowledged before the fetch was sent, nor below an earlier fetch's (reverted; in the
  final fetch: lost, every acknowledged commit above it is gone);
- not above the last one that was sent when the answer came, and from the group's own range (invented).

One exception, which Kafka has too: a commit that the client gave up on can be carried out late, after a newer one, by
the pod that it was sent to, as long as that pod still coordinates the group. Such an answer is counted as late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.chaos.history import OFFSETS_PER_GROUP, Fetch, GroupHistory, History


class Kind(StrEnum):
    LOST = "lost"
    REVERTED = "reverted"
    INVENTED = "invented"
    UNREAD = "unread"  # no final fetch was answered: nothing is known of the group's commits
    LATE = "late"  # no violation


@dataclass(frozen=True)
class Finding:
    """`commits`: how many commits it is about. `at` is when the fetch was answered."""

    kind: Kind
    group: str
    commits: int
    at: float
    text: str


def check(history: History) -> list[Finding]:
    """All findings, of all groups; no violation when all are LATE, or there are none."""
    return [finding for group in history.groups for finding in _check_group(group, history.pods)]


def violations(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind is not Kind.LATE]


def counts(findings: list[Finding]) -> dict[str, int]:
    """Commits of each kind."""
    return {kind.value: sum(each.commits for each in findings if each.kind is kind) for kind in Kind}


def _check_group(group: GroupHistory, pods: list[str]) -> Iterator[Finding]:
    highest_fetched = -1
    for fetch in group.fetches:
        acknowledged = _last_acknowledged(group, fetch.sent)
        least = max(acknowledged, highest_fetched)
        seen = f"fetched {fetch.offset} from {pods[fetch.pod]} at {fetch.answered:.3f}"
        if fetch.offset >= 0 and not _was_sent(group, fetch):
            yield Finding(Kind.INVENTED, group.name, 1, fetch.answered, f"{seen}; last sent: {fetch.last_sent}")
        elif fetch.offset < least:
            missing = len(group.offsets[bisect_left(group.offsets, fetch.offset + 1) :])
            text = f"{seen}; {_acknowledgement(group, pods, least)}"
            if _can_be_late(group, fetch):
                yield Finding(Kind.LATE, group.name, 1, fetch.answered, text)
            elif fetch.final:
                yield Finding(Kind.LOST, group.name, max(missing, 1), fetch.answered, text)
            else:
                yield Finding(Kind.REVERTED, group.name, 1, fetch.answered, text)
        highest_fetched = fetch.offset if fetch.offset < least else max(highest_fetched, fetch.offset)
    if not (group.fetches and group.fetches[-1].final):
        yield Finding(Kind.UNREAD, group.name, len(group.offsets), 0.0, "no final fetch was answered")


def _was_sent(group: GroupHistory, fetch: Fetch) -> bool:
    return group.first_offset <= fetch.offset <= min(fetch.last_sent, group.first_offset + OFFSETS_PER_GROUP - 1)


def _last_acknowledged(group: GroupHistory, moment: float) -> int:
    """The last offset that was acknowledged before the moment; -1: none."""
    index = bisect_left(group.acked, moment)
    return group.offsets[index - 1] if index else -1


def _can_be_late(group: GroupHistory, fetch: Fetch) -> bool:
    """The offset is of a commit that was given up, and its pod coordinated the group afterwards."""
    for given_up in group.abandoned:
        if given_up.offset == fetch.offset:
            if fetch.pod == given_up.pod:
                return True
            later = bisect_left(group.acked, given_up.at)
            return given_up.pod in group.pods[later : bisect_left(group.acked, fetch.answered)]
    return False


def _acknowledgement(group: GroupHistory, pods: list[str], offset: int) -> str:
    index = bisect_left(group.offsets, offset)
    if index < len(group.offsets) and group.offsets[index] == offset:
        return f"{offset} was acknowledged by {pods[group.pods[index]]} at {group.acked[index]:.3f}"
    return f"{offset} was fetched before"
