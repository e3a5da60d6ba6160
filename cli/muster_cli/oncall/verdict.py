"""The verdict on a cluster: what needs a person, what is under way, and what is worth knowing. Pure.

A state that ends by itself needs a person when it lasts longer than `PATIENCE_S` says, as the alerts of
config/monitoring have it. What somebody has asked for is under way for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from muster_cli.oncall.seen import NO_OPERATOR, Seen
from muster_operator.api.conditions import Condition, ConditionType, Reason, find_condition
from muster_operator.api.durations import parse_time
from muster_operator.api.models import OffsetsPartition, OffsetsTopic, PartitionState, Resource
from muster_operator.kube.events import INTENDED

PATIENCE_S = {ConditionType.DEGRADED: 1800.0, ConditionType.MIRRORED: 60.0, ConditionType.READY: 600.0}
"""Seconds for which a condition may say that something is amiss before a person has to look."""
LEADERLESS_PATIENCE_S = 60.0
"""Likewise of a partition without a leader. A failover takes less than one."""

AT_ONCE = (
    ConditionType.STALLED,
    ConditionType.DAMAGED,
    ConditionType.CERTIFICATES_DUE,
    ConditionType.CRD_OUTDATED,
    ConditionType.FENCED,
)
GOOD_TO_KNOW = (ConditionType.UPGRADE_AVAILABLE, ConditionType.CLIENTS_SHARE_USER)
ASKED_FOR = INTENDED - {Reason.CREATING_PODS, Reason.AWAITING_ADDRESSES, Reason.GIVING}
"""Reasons that last as long as somebody wants, or as it takes."""
OPERATOR_PODS = "kubectl get pods -A -l app.kubernetes.io/part-of=muster"
NAMES_SHOWN = 3
"""Objects that share a reason and a message are named in one note, by this many names and a number."""


class Note(msgspec.Struct, frozen=True):
    """One thing to say. `since`: RFC 3339, "" if not known."""

    about: str
    reason: str
    message: str
    since: str = ""


@dataclass(frozen=True)
class Verdict:
    """The findings about a cluster, the most important first in each list."""

    needs_person: tuple[Note, ...]
    under_way: tuple[Note, ...]
    notes: tuple[Note, ...]

    @property
    def word(self) -> str:
        if self.needs_person:
            return "needs a person"
        return "under way" if self.under_way else "healthy"


def judge(seen: Seen, now: float) -> Verdict:
    """The verdict at `now`, in seconds since 1970."""
    lists = _Lists(now)
    _judge_operator(seen, lists)
    for one in seen.unreadable:
        lists.add(Note(one.about, "Unreadable", f"this version of muster cannot read it: {one.problem}"), 0.0)
    objects: tuple[Resource, ...] = (seen.cluster, *seen.topics, *(seen.users or ()))
    unled = [] if seen.cluster.spec.hibernate else [each for each in seen.serving if not _is_led(each)]
    for each in objects:
        _judge_object(each, lists, causes_follow=bool(unled))
    _judge_partitions(unled, lists)
    _judge_led(seen.serving, lists)
    return Verdict(tuple(lists.needs_person), tuple(lists.under_way), tuple(lists.notes))


def age_s(time: str, now: float) -> float:
    """Seconds since an RFC 3339 time; 0 if there is none."""
    return max(now - parse_time(time), 0.0) if time else 0.0


def about(each: Resource) -> str:
    """The name of an object as notes give it."""
    return f"{type(each).__name__} {each.metadata.name}"


@dataclass
class _Lists:
    now: float
    needs_person: list[Note] = field(default_factory=list)
    under_way: list[Note] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def add(self, note: Note, patience_s: float | None) -> None:
        """`patience_s`: for how long it may last; None: for ever. What a topic says after its cluster is left out."""
        urgent = patience_s is not None and age_s(note.since, self.now) >= patience_s
        known = {(each.reason, each.message) for each in (*self.needs_person, *self.under_way)}
        if (note.reason, note.message) not in known:
            (self.needs_person if urgent else self.under_way).append(note)


def _judge_operator(seen: Seen, lists: _Lists) -> None:
    if seen.operator is None:
        lists.notes.append(Note("operator", "NotAsked", "its Lease may not be read, so whether one acts is not known"))
    elif seen.operator == NO_OPERATOR:
        text = f"no operator has acted in this namespace yet: {OPERATOR_PODS} shows whether one runs"
        lists.add(Note("operator", "NoOperator", text, seen.cluster.metadata.creation_timestamp), LEADERLESS_PATIENCE_S)
    elif not seen.operator.acts(lists.now):
        holder = seen.operator.holder
        why = (
            f"{holder} has not renewed the Lease muster-operator"
            if holder
            else "nobody holds the Lease muster-operator"
        )
        text = f"no operator acts: {why}; nothing is elected or mended meanwhile"
        lists.add(Note("operator", "NoOperator", text), 0.0)


def _judge_object(each: Resource, lists: _Lists, *, causes_follow: bool) -> None:
    """`causes_follow`: partitions without a leader have notes of their own."""
    conditions = each.status.conditions
    ready = find_condition(conditions, ConditionType.READY)
    if ready is None or ready.reason == Reason.NOT_SEEN:  # the default of the definition, which has no time
        since = each.metadata.creation_timestamp
        lists.add(Note(about(each), Reason.NOT_SEEN, "no operator has looked at it", since), LEADERLESS_PATIENCE_S)
        return
    for kind in AT_ONCE:
        if (found := find_condition(conditions, kind)) is not None and found.status == "True":
            lists.add(_note(each, found), 0.0)
    if ready.status != "True" and not (causes_follow and ready.reason == Reason.PARTITIONS_LEADERLESS):
        asked = ready.reason in ASKED_FOR
        lists.add(_note(each, ready), None if asked else PATIENCE_S[ConditionType.READY])
    is_topic = isinstance(each, OffsetsTopic)  # its cluster says the same of all topics
    for kind, amiss in () if is_topic else ((ConditionType.DEGRADED, "True"), (ConditionType.MIRRORED, "False")):
        if (found := find_condition(conditions, kind)) is not None and found.status == amiss:
            lists.add(_note(each, found), PATIENCE_S[kind])
    if (found := find_condition(conditions, ConditionType.REBALANCING)) is not None:
        lists.add(_note(each, found), None)
    told = (find_condition(conditions, kind) for kind in GOOD_TO_KNOW)
    lists.notes += [_note(each, found) for found in told if found is not None and found.status == "True"]


def _judge_partitions(unled: Iterable[OffsetsPartition], lists: _Lists) -> None:
    """Those without a leader, one note for each reason and message."""
    alike: dict[tuple[str, str], list[OffsetsPartition]] = {}
    for each in sorted(unled, key=lambda one: one.status.state is not PartitionState.STALLED):
        alike.setdefault((each.status.reason, message_of(each)), []).append(each)
    for (reason, message), partitions in alike.items():
        since = min(each.status.last_transition_time or each.metadata.creation_timestamp for each in partitions)
        stalled = any(each.status.state is PartitionState.STALLED for each in partitions)
        note = Note(_named(partitions), reason or Reason.NOT_SEEN, message, since)
        lists.add(note, 0.0 if stalled else LEADERLESS_PATIENCE_S)


def _judge_led(partitions: Iterable[OffsetsPartition], lists: _Lists) -> None:
    """Damage that no client notices, and sets that change."""
    changing = []
    for each in partitions:
        if (damage := find_condition(each.status.conditions, ConditionType.DAMAGED)) is not None:
            lists.add(_note(each, damage), 0.0)
        if _is_led(each) and (each.status.previous_replicas or each.status.learners):
            changing.append(each)
    if changing:
        since = min(each.status.last_transition_time for each in changing)
        lists.add(Note(_named(changing), Reason.CHANGING_REPLICAS, "their set of replicas changes", since), None)


def message_of(partition: OffsetsPartition) -> str:
    """The state that its Ready condition shows."""
    ready = find_condition(partition.status.conditions, ConditionType.READY)
    return ready.message if ready is not None else ""


def _named(partitions: list[OffsetsPartition]) -> str:
    names = [each.metadata.name for each in partitions]
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"OffsetsPartition {', '.join(names[:NAMES_SHOWN])}{more}"


def _note(each: Resource, condition: Condition) -> Note:
    return Note(about(each), condition.reason, condition.message, condition.last_transition_time)


def _is_led(partition: OffsetsPartition) -> bool:
    return partition.status.state is PartitionState.LED
