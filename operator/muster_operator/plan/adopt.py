"""Partitions whose record is lost: their sets are taken from their logs, because status is a cache (ADR 23).

A log names the set that counts. Of the logs that pods show, those sets are taken that a majority of their members
names, or else those of the best log, if a majority of their members is here. Nothing is decided on fewer: a minority
can have missed a change of the set. An election that follows asks a majority of these sets, and goes above every epoch
that a log shows as promised. A pod that knows of newer sets refuses it and names them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from muster_coordinator.podapi.models import ReplicaStatus
from muster_operator.api.conditions import Reason
from muster_operator.api.models import OffsetsPartition, PartitionState, Replica
from muster_operator.plan.decision import Decision, leaderless, stalled
from muster_operator.plan.hints import patch
from muster_operator.plan.observation import Observation, PodView

Pair = tuple[frozenset[str], frozenset[str]]
"""Log ids: (replicas, previous replicas)."""


@dataclass(frozen=True, slots=True)
class Found:
    """The findings in the logs about partitions without a complete record, by index.

    `adopted`: with the sets of their logs. `unclear`: their sets cannot be told (yet), or only a person can. A
    partition in neither has no log that was ever used: it is a new one.
    """

    adopted: Mapping[int, OffsetsPartition]
    unclear: Mapping[int, Decision]


def read_logs(seen: Observation, records: Mapping[int, OffsetsPartition]) -> Found:
    """Look for the logs of the partitions whose record names no log ids."""
    adopted: dict[int, OffsetsPartition] = {}
    unclear: dict[int, Decision] = {}
    for index, record in records.items():
        if record.status.replicas and all(each.log_id for each in record.status.replicas):
            continue
        told = _told(seen, record)
        if isinstance(told, Decision):
            unclear[index] = told
        elif told is not None:
            adopted[index] = told
    return Found(adopted, unclear)


def missing_pods(seen: Observation) -> str:
    """Names the declared pods, and the others that have a volume, that do not answer; "" if all of them do."""
    assert seen.cluster is not None
    if seen.volumes < 0:
        return "the list of its volumes"
    if silent := [pod.name for pod in seen.pods if not pod.is_up]:
        return f"pod {', '.join(silent)}"
    lacking = max(seen.cluster.spec.pods, seen.volumes) - len(seen.pods)
    return f"{lacking} more pods" if lacking > 0 else ""


def _told(seen: Observation, record: OffsetsPartition) -> OffsetsPartition | Decision | None:
    """The sets that the used logs name; None: no log counts.

    spec.replicas says where replicas shall be, which is not yet where they are. Only where the logs do not agree, or
    name no set, it is a person's choice between them.
    """
    missing = missing_pods(seen)
    logs = _logs(seen, record)
    told = _Logs(record, logs, missing).read() if _any_used(logs) else None
    asked = record.spec.replicas
    if isinstance(told, Decision) and told.status.reason in _FOR_A_PERSON and asked:
        logs = [(pod, view) for pod, view in logs if pod.name in asked]
        told = _Logs(record, logs, missing).read() if _any_used(logs) else None
    return told


_FOR_A_PERSON = (Reason.TWO_HISTORIES, Reason.UNKNOWN_LOG)


def _logs(seen: Observation, record: OffsetsPartition) -> Sequence[tuple[PodView, ReplicaStatus]]:
    """The logs that may count. One that was never used says something too: it has stored no change of the set."""
    return [(pod, view) for pod in seen.pods if pod.is_up and (view := pod.replicas.get(record.spec.index)) is not None]


def _any_used(logs: Sequence[tuple[PodView, ReplicaStatus]]) -> bool:
    return any(view.used for _, view in logs)


class _Logs:
    """The logs of one partition on the pods that answer. `missing`: declared pods that do not."""

    def __init__(self, record: OffsetsPartition, logs: Sequence[tuple[PodView, ReplicaStatus]], missing: str) -> None:
        self._record = record
        self._missing = missing
        self._pods = [pod.name for pod, view in logs if view.used]
        self._pod_of = {view.log_id: pod.name for pod, view in logs if _counts(view)}
        self._views = {view.log_id: view for _, view in logs if _counts(view)}
        self._named = {log_id: _pair(view) for log_id, view in self._views.items() if view.replicas}

    def read(self) -> OffsetsPartition | Decision | None:
        """The partition with the sets of its logs, or why they cannot be told. None: a person has named pods whose logs
        name no set, so these are to be used as they are.
        """
        if not self._named:
            if self._missing:
                return self._waiting(f"logs on {', '.join(self._pods)} name no replicas")
            return None if self._record.spec.replicas else self._unnamed()
        best = max(self._named, key=self._rank)
        claimed = sorted({pair for pair in self._named.values() if self._is_claimed(pair)}, key=str)
        pair = claimed[0] if claimed else self._named[best]
        if len(claimed) > 1 or not _is_explained(self._named[best], pair):
            return self._two_histories({*claimed, self._named[best]})
        if not self._has_majority(pair) and self._missing:
            text = f"{self._on(pair)} of the replicas that the log on {self._pod_of[best]} names are here"
            return self._waiting(text)
        if not self._has_majority(pair) and self._record.spec.allow_data_loss != self._views[best].last_epoch:
            return self._no_majority(pair, best)  # a person's word about another history says nothing about this one
        return self._with_sets(pair, best)

    def _rank(self, log_id: str) -> tuple[int, int]:
        view = self._views[log_id]
        return view.last_epoch, view.log_end_offset

    def _is_claimed(self, pair: Pair) -> bool:
        """True if a majority of each of its sets names exactly these sets. At most one pair can be claimed unless
        somebody has accepted a loss, or logs of two clusters are mixed: a change of the set is known to a majority of
        the set before.
        """
        claiming = {log_id for log_id, named in self._named.items() if named == pair}
        return all(_is_majority(each, claiming) for each in pair if each)

    def _has_majority(self, pair: Pair) -> bool:
        return all(_is_majority(each, self._views) for each in pair if each)

    def _on(self, pair: Pair) -> str:
        members = pair[0] | pair[1]
        return f"{len(members & self._views.keys())} of {len(members)}"

    def _with_sets(self, pair: Pair, best: str) -> OffsetsPartition:
        """The record that the logs stand for. The epoch of the last record was led; what was promised above it counts
        when an epoch is issued (`PartitionView.highest_epoch`).
        """
        source = next(view for log_id, view in self._views.items() if self._named.get(log_id) == pair)
        status = self._record.status
        found = replace(
            status,
            leader=None,
            led_epoch=max(status.led_epoch, self._views[best].last_epoch),
            replicas=tuple(Replica(self._pod_of.get(each, ""), each) for each in source.replicas),
            previous_replicas=tuple(Replica(self._pod_of.get(each, ""), each) for each in source.previous_replicas),
            learners=(),
            state=PartitionState.LEADERLESS,
            reason=Reason.ADOPTING,
        )
        return replace(self._record, status=found)

    def _waiting(self, what: str) -> Decision:
        text = f"its record is lost and is taken from its logs: {what}; waits for {self._missing}"
        return leaderless(self._record.status, Reason.ADOPTING, text)

    def _unnamed(self) -> Decision:
        pods = sorted(self._pods)
        command = patch("offsetspartition", self._record.metadata, {"replicas": pods})
        text = f"logs on {', '.join(pods)} name no replicas, and no record says what they are; to use them: {command}"
        return stalled(self._record.status, Reason.UNKNOWN_LOG, text)

    def _two_histories(self, pairs: Collection[Pair]) -> Decision:
        """A person chooses by the pods, because elections of both could succeed. One whose best log names the other is
        what an accepted loss gave up: its pods would refuse to go back to it.
        """
        told = []
        for pair in sorted(pairs, key=str):
            logs = [log_id for log_id, named in self._named.items() if named == pair]
            epoch, end = max(map(self._rank, logs))
            pods = sorted(self._pod_of[each] for each in logs)
            text = f"the one on {', '.join(pods)} ends at offset {end} in epoch {epoch}"
            members = [each for each in self._views if each in pair[0] | pair[1]]
            if self._named.get(max(members, key=self._rank)) == pair:
                text += ": " + patch("offsetspartition", self._record.metadata, {"replicas": pods})
            else:
                text += " and was given up when a loss was accepted"
            told.append(text)
        text = "its logs tell two histories, and its record is lost; choose one: " + "; or ".join(told)
        return stalled(self._record.status, Reason.TWO_HISTORIES, text)

    def _no_majority(self, pair: Pair, best: str) -> Decision:
        """The status names the epoch that a person's word has to name. It names no replicas, so logs that turn up later
        count like those that are here.
        """
        led = self._views[best].last_epoch
        promised = max(view.epoch for view in self._views.values())
        status = replace(self._record.status, epoch=max(self._record.status.epoch, promised), led_epoch=led)
        command = patch("offsetspartition", self._record.metadata, {"allowDataLoss": led})
        text = (
            f"its record is lost, and {self._on(pair)} of the replicas that its best log names are here: bring back the"
            f" other volumes (are there pods above spec.pods?), or lead it from what is left: {command}"
        )
        return stalled(status, Reason.NO_MAJORITY, text)


def _counts(view: ReplicaStatus) -> bool:
    return bool(view.log_id) and not view.rebuilding and not view.is_damaged and view.log_end_offset >= 0


def _pair(view: ReplicaStatus) -> Pair:
    return frozenset(view.replicas), frozenset(view.previous_replicas)


def _is_majority(members: frozenset[str], those: Collection[str]) -> bool:
    return 2 * sum(each in those for each in members) > len(members)


def _is_explained(best: Pair, chosen: Pair) -> bool:
    """True if the sets that the best log names follow from the chosen ones: the same, a change of them that was begun
    and never committed, its way back, or its end.
    """
    replicas, previous = chosen
    if best == chosen or set(best) == set(chosen):
        return True
    if not previous:
        return best[1] == replicas
    return best == (replicas, frozenset())
