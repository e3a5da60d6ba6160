"""A re-shard of the groups' topic waits until no transaction is open: what counts as a proof of that (ADR 28)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.operator.test_two_topics import FIRST, of_kind, other, resharded, seen

from muster_coordinator.podapi.models import FenceStatus, OpenTransactions, ReplicaStatus
from muster_coordinator.states import ReplicaRole, ShardState
from muster_operator.api.models import OffsetsTopic, ReshardPhase
from muster_operator.plan.actions import PublishMetadata
from muster_operator.plan.metadata import number_of
from muster_operator.plan.observation import Connection, Observation, PodView
from muster_operator.plan.planner import plan
from muster_operator.plan.reshard import next_phase

NEW = range(2, 6)
TRANSACTIONS = (FIRST, FIRST + 1)


def leader(index: int, **changes: Any) -> ReplicaStatus:
    status = ReplicaStatus(
        index, ShardState.ACTIVE, ReplicaRole.LEADER, epoch=4, leader_epoch=4, log_id=f"log-{index}", used=True
    )
    return replace(status, **changes)


def closed(index: int) -> ReplicaStatus:
    return leader(index, state=ShardState.FENCED, fence=FenceStatus(2, closed=True, imported=0))


class World:
    """A re-shard whose new partitions are closed; pods that have the operator's image, and what leaders tell by it."""

    def __init__(self, *, prepared: bool = True) -> None:
        self.groups = resharded(ReshardPhase.PREPARING)
        first = other()
        used = {str(index): f"epoch=4 led=4 uid=u{index}" for index in TRANSACTIONS}
        self.transactions = replace(first, status=replace(first.status, leaderships=used))
        self.open: dict[int, OpenTransactions | None] = {}
        self.prepared = prepared
        self.more: dict[int, ReplicaStatus] = {}  # replicas of another pod
        self.image: Any = None
        self.behind = False
        published = self.published()
        self.image = published
        number = number_of(published)
        self.open = {index: OpenTransactions(*number, 0) for index in TRANSACTIONS}

    @property
    def topics(self) -> tuple[OffsetsTopic, ...]:
        return (self.groups, self.transactions)

    def observed(self) -> Observation:
        before = seen(*self.topics)
        led = {index: closed(index) for index in NEW[: None if self.prepared else -1]}
        led |= {index: leader(index, open_transactions=self.open.get(index)) for index in TRANSACTIONS}
        number = number_of(self.image)
        pods = tuple(
            PodView(
                pod.name,
                pod.node_id,
                Connection.UP,
                pod.kafka_address,
                ready=True,
                steady_s=99.0,
                image=(number[0], number[1] - (self.behind and pod.node_id == 2)),
                replicas=(led, self.more, {})[pod.node_id],
            )
            for pod in before.pods
        )
        return Observation("ns", "c", before.cluster, self.topics, (), pods, fencing_token=1, image=self.image)

    def published(self) -> Any:
        (published,) = of_kind(plan(self.observed(), 0), PublishMetadata)
        return published.image

    def next(self) -> tuple[str, str]:
        """(phase, message)."""
        status = next_phase(self.observed(), self.groups, self.topics, "")
        assert status is not None
        assert status.reshard is not None
        return status.reshard.phase, status.reshard.message


def test_image_holds_transactions_as_soon_as_all_else_is_prepared() -> None:
    assert World().image.holds_transactions
    assert not World(prepared=False).image.holds_transactions, "groups and transactions may go on for long"


@pytest.mark.parametrize(
    ("phase", "holds"),
    [
        (ReshardPhase.FENCING, True),
        (ReshardPhase.COPYING, True),
        (ReshardPhase.OPENING, False),
        (ReshardPhase.ABORTING, False),
    ],
)
def test_image_holds_transactions_until_it_has_the_new_layout_or_the_reshard_is_taken_back(
    phase: ReshardPhase, holds: bool
) -> None:
    world = World()
    world.groups = resharded(phase)
    world.image = None
    assert world.published().holds_transactions == holds


def test_reshard_of_the_transactions_holds_none() -> None:
    world = World()
    reshard = replace(resharded(ReshardPhase.COPYING).status, leaderships=world.transactions.status.leaderships)
    assert reshard.reshard is not None
    moved = replace(reshard, reshard=replace(reshard.reshard, base=FIRST + 2))
    world.groups = replace(world.groups, status=replace(world.groups.status, reshard=None))
    world.transactions = replace(world.transactions, status=moved)
    world.image = None
    assert not world.published().holds_transactions


def test_partitions_close_when_no_transaction_is_open() -> None:
    assert World().next()[0] == ReshardPhase.FENCING


def test_open_transactions_are_named() -> None:
    world = World()
    number = number_of(world.image)
    world.open[FIRST] = OpenTransactions(*number, 5, ("tx-1", "tx-2", "tx-3"))
    world.open[FIRST + 1] = OpenTransactions(*number, 1, ("tx-9",))
    phase, message = world.next()
    assert phase == ReshardPhase.PREPARING
    assert "waits for open transactions: 'tx-1', 'tx-2', 'tx-3', 'tx-9' and 2 more" in message


def test_pod_with_another_image_may_let_one_begin() -> None:
    world = World()
    world.behind = True
    assert world.next()[0] == ReshardPhase.PREPARING


@pytest.mark.parametrize("earlier", [True, False])
def test_count_of_another_image_or_none_proves_nothing(earlier: bool) -> None:
    world = World()
    token, version = number_of(world.image)
    world.open[FIRST] = OpenTransactions(token, version - 1, 0) if earlier else None
    phase, message = world.next()
    assert phase == ReshardPhase.PREPARING
    assert "waits for what 1 leaders of __transaction_state have open" in message


def test_leader_that_another_one_has_followed_proves_nothing() -> None:
    """One that nobody has heard of yet may have let a transaction begin before its pod had the image."""
    world = World()
    world.more = {FIRST: replace(leader(FIRST), state=ShardState.INITIAL, role=ReplicaRole.NONE, epoch=5)}
    assert world.next()[0] == ReshardPhase.PREPARING


def test_image_that_lets_transactions_begin_proves_nothing() -> None:
    world = World()
    world.image = replace(world.image, holds_transactions=False)
    assert world.next()[0] == ReshardPhase.PREPARING


def test_topic_without_transactions_waits_for_none() -> None:
    world = World()
    alone = world.observed()
    status = next_phase(alone, world.groups, (world.groups,), "")
    assert status is not None
    assert status.reshard is not None
    assert status.reshard.phase == ReshardPhase.FENCING
