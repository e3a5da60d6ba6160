"""How long partitions were without a leader, as the operator's plans show it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster_operator.api.conditions import Reason
from muster_operator.api.models import (
    ObjectMeta,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsPartitionStatus,
    PartitionState,
    TopicRef,
)
from muster_operator.failovers import Failovers
from muster_operator.metrics import OperatorMetrics
from muster_operator.plan.actions import WritePartitionStatus

LED = OffsetsPartitionStatus(leader="c-0", epoch=1, led_epoch=1, state=PartitionState.LED, reason=Reason.LED)
ELECTING = replace(LED, leader="c-1", epoch=2, state=PartitionState.ELECTING, reason=Reason.ELECTING)
LED_AGAIN = replace(ELECTING, led_epoch=2, state=PartitionState.LED, reason=Reason.LED)


def shown(status: OffsetsPartitionStatus) -> OffsetsPartition:
    return OffsetsPartition(ObjectMeta("t-0", "ns"), OffsetsPartitionSpec(TopicRef("t"), 0), status)


class Followed:
    def __init__(self) -> None:
        self.failovers = Failovers(OperatorMetrics())

    def plan(self, now: float, before: OffsetsPartitionStatus, after: OffsetsPartitionStatus | None = None) -> None:
        """`after`: what the plan decided, if it differs."""
        partition = shown(before)
        actions = [] if after is None else [WritePartitionStatus(partition, after)]
        self.failovers.follow([partition], actions, now, 1_700_000_000.0)

    @property
    def records(self) -> list[tuple[Any, ...]]:
        return [
            (each.previous_leader, each.leader, each.epoch, each.planned, each.duration_ms)
            for each in self.failovers.records
        ]


def test_failover_lasts_from_the_first_plan_without_a_leader_to_the_first_with_one() -> None:
    followed = Followed()
    followed.plan(10.0, LED, replace(LED, state=PartitionState.LEADERLESS, reason=Reason.POD_DOWN))
    followed.plan(10.1, LED, ELECTING)
    followed.plan(10.2, ELECTING)
    followed.plan(10.3, ELECTING, LED_AGAIN)
    assert followed.records == [("c-0", "c-1", 2, False, 300)]


def test_failover_counts_once_also_while_its_end_is_not_shown_yet() -> None:
    followed = Followed()
    followed.plan(10.0, LED, ELECTING)
    followed.plan(10.1, LED, LED_AGAIN)
    followed.plan(10.2, LED, LED_AGAIN)
    followed.plan(10.3, ELECTING, LED_AGAIN)
    assert followed.records == [("c-0", "c-1", 2, False, 100)]


def test_move_is_a_planned_failover() -> None:
    followed = Followed()
    followed.plan(10.0, LED, replace(ELECTING, reason=Reason.MOVING))
    followed.plan(10.05, LED, LED_AGAIN)
    assert followed.records == [("c-0", "c-1", 2, True, 50)]


def test_loss_that_was_over_before_it_was_shown_is_no_part_of_the_next_one() -> None:
    followed = Followed()
    followed.plan(10.0, LED, replace(LED, state=PartitionState.LEADERLESS, reason=Reason.POD_DOWN))
    followed.plan(11.0, LED)
    followed.plan(20.0, LED, ELECTING)
    followed.plan(20.5, ELECTING, LED_AGAIN)
    assert followed.records == [("c-0", "c-1", 2, False, 500)]


def test_first_election_and_the_same_leader_in_its_epoch_are_no_failovers() -> None:
    followed = Followed()
    followed.plan(1.0, replace(ELECTING, led_epoch=-1), LED_AGAIN)
    followed.plan(2.0, LED, replace(LED, state=PartitionState.LEADERLESS))
    followed.plan(3.0, replace(LED, state=PartitionState.LEADERLESS), LED)
    assert followed.records == []
