"""Faults planted in what a group of consumers takes along, each with the seeds within which it is caught."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.simulation.moves.faults import Plant

from muster_coordinator.groups.consumer.member import Current
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.groups.handover import Handover
from muster_coordinator.records.consumer_group import (
    CURRENT_TYPE,
    MEMBER_TYPE,
    METADATA_TYPE,
    REGEX_TYPE,
    TARGET_MEMBER_TYPE,
    ConsumerGroupMetadataValue,
    ConsumerGroupRecord,
)
from muster_coordinator.state_machine import NOTHING, Record


def _with(patch: pytest.MonkeyPatch, more: Any) -> None:
    """The group gets further records when it comes to Muster."""
    records_in = Handover.records_in

    def planted(self: Handover, group_id: str, configs: Mapping[str, int]) -> Iterator[Record]:
        yield from records_in(self, group_id, configs)
        group = self._state.consumers.groups.get(group_id)
        if group is not None:
            yield from more(group)

    patch.setattr(Handover, "records_in", planted)


def forgets_member_epochs(patch: pytest.MonkeyPatch) -> None:
    _with(patch, lambda group: [group.record(CURRENT_TYPE, None, member_id) for member_id in group.current])


def forgets_the_epoch_before(patch: pytest.MonkeyPatch) -> None:
    """A member whose answer was lost comes with that epoch."""

    def more(group: Any) -> Iterator[Record]:
        for member_id, current in group.current.items():
            yield group.record(CURRENT_TYPE, current._replace(previous_epoch=-1).to_value(), member_id)

    _with(patch, more)


def forgets_what_a_member_has_to_give_back(patch: pytest.MonkeyPatch) -> None:
    def more(group: Any) -> Iterator[Record]:
        for member_id, current in group.current.items():
            value = Current(current.epoch, current.previous_epoch, 0, current.assigned).to_value()
            yield group.record(CURRENT_TYPE, value, member_id)

    _with(patch, more)


def forgets_the_target(patch: pytest.MonkeyPatch) -> None:
    _with(patch, lambda group: [group.record(TARGET_MEMBER_TYPE, None, member_id) for member_id in group.targets])


def forgets_subscriptions(patch: pytest.MonkeyPatch) -> None:
    def more(group: Any) -> Iterator[Record]:
        for member_id in group.members:
            value = group.members[member_id]
            kept = type(value)(
                value.instance_id,
                value.rack_id,
                value.client_id,
                value.client_host,
                (),
                "",
                value.rebalance_timeout_ms,
                value.server_assignor,
            )
            yield group.record(MEMBER_TYPE, kept, member_id)

    _with(patch, more)


def forgets_what_expressions_stand_for(patch: pytest.MonkeyPatch) -> None:
    _with(patch, lambda group: [group.record(REGEX_TYPE, None, regex) for regex in group.regexes])


def forgets_the_group_epoch(patch: pytest.MonkeyPatch) -> None:
    """The group counts from the start again."""
    _with(patch, lambda group: [group.record(METADATA_TYPE, ConsumerGroupMetadataValue(1, group.metadata_hash))])


def begins_no_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCoordinator, "begin_sessions", lambda _self, _group_id, _now_ms: NOTHING)


def keeps_kafkas_hash_of_topics(patch: pytest.MonkeyPatch) -> None:
    """The first heartbeat takes its topics for others."""
    patch.setattr(Handover, "_assigns_every_partition", lambda _self, _group: False)


def counts_partitions_that_are_nobodys_as_assigned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Handover, "_assigns_every_partition", lambda _self, _group: True)


def moves_though_the_pod_does_not_know_a_topic(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Handover, "unknown_partition", lambda _self, _group_id: "")


def goes_back_with_its_members(patch: pytest.MonkeyPatch) -> None:
    """They are members of the group that the mirror shows, whatever Kafka says."""
    records_back = Handover.records_back

    def planted(self: Handover, *args: Any) -> Iterator[Record]:
        for record in records_back(self, *args):
            change = record[2]
            is_tombstone = isinstance(change, ConsumerGroupRecord) and change.value is None
            if not is_tombstone:
                yield record

    patch.setattr(Handover, "records_back", planted)


def fences_members_at_kafka(patch: pytest.MonkeyPatch) -> None:
    """Sessions of before the way back end at Muster, and members are removed that Kafka has under the same ids."""
    on_timer = GroupCoordinator.on_timer

    def planted(self: GroupCoordinator, key: Any, now_ms: int) -> Any:
        serves, self._serves = self._serves, lambda _group_id: True
        try:
            return on_timer(self, key, now_ms)
        finally:
            self._serves = serves

    patch.setattr(GroupCoordinator, "on_timer", planted)


HARMLESS = {
    "Kafka and the mirror are not compared": "the mirror has read up to the end that was asked for behind"
    " the fence, and no client goes past it here",
}

FAULTS: dict[str, tuple[Plant, int]] = {
    plant.__name__: (plant, seeds)
    for plant, seeds in (
        (forgets_member_epochs, 5),
        (forgets_the_epoch_before, 60),
        (forgets_what_a_member_has_to_give_back, 30),
        (forgets_the_target, 30),
        (forgets_subscriptions, 10),
        (forgets_what_expressions_stand_for, 20),
        (forgets_the_group_epoch, 20),
        (begins_no_sessions, 20),
        (keeps_kafkas_hash_of_topics, 20),
        (counts_partitions_that_are_nobodys_as_assigned, 60),
        (moves_though_the_pod_does_not_know_a_topic, 60),
        (goes_back_with_its_members, 10),
        (fences_members_at_kafka, 20),
    )
}
