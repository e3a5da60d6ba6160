"""Spans of the elections that an operator traces: from its call to the leader that answers clients."""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.podapi.models import Election, ReplicaStatus
from muster_coordinator.states import ShardState
from muster_coordinator.tracing.ports import Attribute, Span, Spans

_GOES_ON = (CallStatus.ACCEPTED, CallStatus.LOADING)
_ENDED = (ShardState.ACTIVE, ShardState.FENCED, ShardState.FAILED)


class ElectionSpans:
    """`status_of` tells of a replica here."""

    def __init__(self, spans: Spans, status_of: Callable[[int], ReplicaStatus | None]) -> None:
        self._spans = spans
        self._status_of = status_of
        self._open: dict[int, tuple[int, Span]] = {}

    def called(self, election: Election, trace: str) -> None:
        """`trace`: of the call; "": nobody traces it."""
        self._end(election.partition, "another election was called")
        if trace:
            numbers: dict[str, Attribute] = {"partition": election.partition, "epoch": election.epoch}
            self._open[election.partition] = (
                election.epoch,
                self._spans.begin("onElection", trace, attributes=numbers),
            )

    def answered(self, election: Election, result: CallResult) -> None:
        """A load may still be under way."""
        epoch, _ = self._open.get(election.partition, (-1, None))
        if epoch != election.epoch:
            return
        if result.status not in _GOES_ON:
            self._end(election.partition, result.status.value)
        else:
            self.partition_changed(election.partition)

    def partition_changed(self, partition: int) -> None:
        """Its status may show that its election is over."""
        if partition not in self._open:
            return
        epoch, _ = self._open[partition]
        status = self._status_of(partition)
        if status is None or status.epoch > epoch:
            self._end(partition, "another leader was elected")
        elif status.epoch == epoch and status.state in _ENDED:
            self._end(partition, status.state.value)

    def _end(self, partition: int, outcome: str) -> None:
        _, span = self._open.pop(partition, (-1, None))
        if span is not None:
            span.end(outcome=outcome)
