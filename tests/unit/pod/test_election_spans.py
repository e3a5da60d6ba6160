"""The span of an election lasts until its leader answers clients, or until something else has become of it."""

from __future__ import annotations

import pytest
from tests.support.spans import KeptSpans, attributes

from muster_coordinator.calls import CallResult, CallStatus
from muster_coordinator.pod.election_spans import ElectionSpans
from muster_coordinator.podapi.models import Election, ReplicaStatus
from muster_coordinator.states import ShardState

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
ELECTION = Election(7, 3, ("log",))


class Replica:
    """What the status of partition 7 says."""

    def __init__(self) -> None:
        self.status: ReplicaStatus | None = ReplicaStatus(7, ShardState.LOADING, epoch=3)
        self.spans = KeptSpans()
        self.elections = ElectionSpans(self.spans, lambda _partition: self.status)

    def becomes(self, state: ShardState, epoch: int = 3) -> None:
        self.status = ReplicaStatus(7, state, epoch=epoch)
        self.elections.partition_changed(7)

    @property
    def outcomes(self) -> list[object]:
        return [attributes(each)["outcome"] for each in self.spans.ended]


def test_span_lasts_to_the_end_of_a_long_load_and_is_in_the_trace_of_the_call() -> None:
    replica = Replica()
    replica.elections.called(ELECTION, TRACE)
    replica.elections.answered(ELECTION, CallResult(7, CallStatus.LOADING))
    replica.elections.partition_changed(7)
    replica.elections.partition_changed(6)
    assert replica.outcomes == []
    replica.becomes(ShardState.ACTIVE)
    replica.becomes(ShardState.ACTIVE)
    assert replica.outcomes == ["ACTIVE"]
    (span,) = replica.spans.ended
    assert attributes(span) == {"partition": 7, "epoch": 3, "outcome": "ACTIVE"}
    assert span.parent is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == ("a" * 32, "b" * 16)


def test_answer_may_come_after_the_leader_is_active() -> None:
    replica = Replica()
    replica.elections.called(ELECTION, TRACE)
    replica.status = ReplicaStatus(7, ShardState.ACTIVE, epoch=3)
    replica.elections.answered(ELECTION, CallResult(7, CallStatus.ACCEPTED))
    assert replica.outcomes == ["ACTIVE"]


@pytest.mark.parametrize("status", [CallStatus.STALE_EPOCH, CallStatus.NO_MAJORITY, CallStatus.CANNOT_WRITE])
def test_election_that_is_refused_says_why(status: CallStatus) -> None:
    replica = Replica()
    replica.elections.called(ELECTION, TRACE)
    replica.elections.answered(ELECTION, CallResult(7, status))
    assert replica.outcomes == [status.value]


def test_load_that_fails_and_leadership_that_is_lost_end_it() -> None:
    replica = Replica()
    replica.elections.called(ELECTION, TRACE)
    replica.becomes(ShardState.FAILED)
    replica.elections.called(ELECTION, TRACE)
    replica.becomes(ShardState.INITIAL, epoch=4)
    replica.elections.called(ELECTION, TRACE)
    replica.elections.called(Election(7, 5, ("log",)), TRACE)
    assert replica.outcomes == ["FAILED", "another leader was elected", "another election was called"]


def test_election_that_nobody_traces_has_no_span() -> None:
    replica = Replica()
    replica.elections.called(ELECTION, "")
    replica.elections.answered(ELECTION, CallResult(7, CallStatus.LOADING))
    replica.becomes(ShardState.ACTIVE)
    assert replica.outcomes == []
