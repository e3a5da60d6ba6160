"""A member of a group of the consumer protocol: what it said, and what it has (Kafka: ConsumerGroupMember)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from muster_coordinator.records.consumer_group import (
    ConsumerGroupCurrentValue,
    ConsumerGroupMemberValue,
    OwnedPartitions,
)

STABLE = 0
"""The member has all of its target assignment, as far as it is at the epoch of that."""

UNREVOKED_PARTITIONS = 1
"""It was told to give partitions back, and has not said yet that it did."""

UNRELEASED_PARTITIONS = 2
"""It waits for partitions that another member still has."""

_STATES = frozenset({STABLE, UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS})

Owned: TypeAlias = dict[bytes, dict[int, int]]
"""Topic id -> partition -> the epoch at which the member got it (KIP-1251). Never changed once it is made."""

Subscription: TypeAlias = tuple[tuple[str, ...], str]
"""Names of topics, and a regular expression or ""."""

NOTHING_OWNED: Owned = {}
NO_PARTITIONS: dict[int, int] = {}


class Current(NamedTuple):
    """The current assignment of a member. `epoch` is its member epoch; LEAVING_STATIC_EPOCH: it has left, to come
    back. `state`: one of this module's, or a number that a later release made up."""

    epoch: int = 0
    previous_epoch: int = -1
    state: int = STABLE
    assigned: Owned = NOTHING_OWNED
    pending_revocation: Owned = NOTHING_OWNED

    @property
    def is_known_state(self) -> bool:
        return self.state in _STATES

    def is_at(self, target_epoch: int) -> bool:
        """True if nothing is left to do to reach the target of this epoch (Kafka: isReconciledTo)."""
        return self.state == STABLE and self.epoch == target_epoch

    def to_value(self) -> ConsumerGroupCurrentValue:
        return ConsumerGroupCurrentValue(
            self.epoch, self.previous_epoch, self.state, _written(self.assigned), _written(self.pending_revocation)
        )


NEW_MEMBER = Current()

NO_MEMBER_VALUE = ConsumerGroupMemberValue(None, None, "", "", (), "", -1, None)
"""A member before it said anything."""


class Member(NamedTuple):
    member_id: str
    value: ConsumerGroupMemberValue
    current: Current


def subscription_of(value: ConsumerGroupMemberValue) -> Subscription:
    return value.subscribed_topic_names, value.subscribed_topic_regex or ""


def current_of(value: ConsumerGroupCurrentValue) -> Current:
    """The state of a member that a record shows. A broker before 4.3 wrote no epochs of partitions: they are then those
    of the member."""
    least = max(value.member_epoch, 0)
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        value.state,
        _read(value.assigned, least),
        _read(value.pending_revocation, least),
    )


def _read(topics: tuple[OwnedPartitions, ...], epoch: int) -> Owned:
    return {
        each.topic_id: dict.fromkeys(each.partitions, epoch)
        if each.assignment_epochs is None
        else dict(zip(each.partitions, each.assignment_epochs, strict=True))
        for each in topics
    }


def _written(owned: Owned) -> tuple[OwnedPartitions, ...]:
    return tuple(
        [OwnedPartitions(topic_id, tuple(epochs), tuple(epochs.values())) for topic_id, epochs in owned.items()]
    )
