"""The state that changes hands with a group that another coordinator has served until now, or serves from now on (ADR
48)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_coordinator.groups.classic.states import GroupState
from muster_coordinator.groups.classic.tables import GroupTables, group_record
from muster_coordinator.groups.consumer.config import OWN_CONFIGS, with_own_configs
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.consumer.subscriptions import metadata_hash, names_of
from muster_coordinator.groups.consumer.tables import configs_record
from muster_coordinator.records.consumer_group import (
    METADATA_TYPE,
    TARGET_METADATA_TYPE,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetMetadataValue,
)
from muster_coordinator.records.group_metadata import GroupMetadataValue
from muster_coordinator.requests.consumer_groups import DescribedConsumerGroup
from muster_coordinator.requests.groups import DescribedGroup
from muster_coordinator.state_machine import Record


class Handover:
    def __init__(self, state: GroupTables) -> None:
        self._state = state

    # -- questions -----------------------------------------------------------------------------------------------------

    def is_of_consumers(self, group_id: str) -> bool:
        """True if it is a group of the consumer protocol, with members or not."""
        return group_id in self._state.consumers.groups

    def session_timeouts_ms(self, group_id: str) -> tuple[int, ...] | None:
        """The session time-out of each member, as the log has it; None: there is no such group."""
        consumers = self._state.consumers.groups.get(group_id)
        if consumers is not None:
            of_consumers = self._state.consumers.config_of(group_id).session_timeout_ms
            classic = [value.classic for value in consumers.members.values()]
            return tuple([of_consumers if each is None else each.session_timeout_ms for each in classic])
        group = self._state.look_at(group_id)
        if group is None:
            return None
        return () if group.durable is None else tuple([each.session_timeout_ms for each in group.durable.members])

    def size_limit(self, group_id: str) -> tuple[int, str]:
        """The most members that such a group may have here, and the setting that says so."""
        if self.is_of_consumers(group_id):
            return self._state.consumers.config.max_size, "group.consumer.max.size"
        return self._state.config.max_size, "group.max.size"

    def rebalances(self, group_id: str) -> bool:
        """True if a classic group has requests that wait for others, or may have soon."""
        group = self._state.look_at(group_id)
        return group is not None and group.state not in (GroupState.STABLE, GroupState.EMPTY)

    def unknown_partition(self, group_id: str) -> str:
        """A partition that a consumer has, or is meant to have, and that is not known here; "": there is none. The
        member would have to give it back."""
        group = self._state.consumers.groups.get(group_id)
        if group is None:
            return ""
        for member_id in group.members:
            current = group.current_of(member_id)
            for parts in (group.target_of(member_id), current.assigned, current.pending_revocation):
                for topic_id, partitions in parts.items():
                    topic, count = self._topic(topic_id)
                    beyond = [each for each in partitions if each >= count]
                    if beyond:
                        return f"{topic}-{min(beyond)}"
        return ""

    def _topic(self, topic_id: bytes) -> tuple[str, int]:
        """Its name, and how many partitions it has."""
        topics = self._state.consumers.topics
        name = topics.name_of(topic_id)
        found = None if name is None else topics.find(name)
        return (f"topic id {topic_id.hex()}", 0) if name is None or found is None else (name, found[1])

    def config_out_of_bounds(self, configs: Mapping[str, int]) -> str:
        """The name of one of a group's configs that would count as another value here; "": there is none."""
        meant = with_own_configs(self._state.consumers.config, configs)
        for name, setting in OWN_CONFIGS.items():
            if name in configs and configs[name] != getattr(meant, setting):
                return name
        return ""

    # -- records -------------------------------------------------------------------------------------------------------

    def records_in(self, group_id: str, configs: Mapping[str, int]) -> Iterator[Record]:
        """The records that the group needs here besides those of another coordinator. `configs`: all that
        administrators have set for it there."""
        consumers = self._state.consumers
        group = consumers.groups.get(group_id)
        if group is None:
            return
        consumers.forget_live_of(group_id)
        if dict(configs) != consumers.own_configs.get(group_id, {}):
            yield configs_record(group_id, dict(configs))
        new_hash = metadata_hash(group, consumers.topics)
        if new_hash != group.metadata_hash and self._assigns_every_partition(group):
            yield group.record(METADATA_TYPE, ConsumerGroupMetadataValue(group.epoch, new_hash))

    def _assigns_every_partition(self, group: ConsumerGroup) -> bool:
        """True if the target assignment is about the topics as they are known here. Kafka has another hash of them,
        which tells nothing: a group with that would be assigned anew by its first heartbeat here. So it is, if
        partitions have come that are nobody's."""
        topics, members = self._state.consumers.topics, group.members
        names = {name for each in group.subscriptions for name in names_of(each, group.regexes)}
        found = [each for name in names if (each := topics.find(name)) is not None]
        there_are = {(topic_id, index) for topic_id, count in found for index in range(count)}
        targets = [group.target_of(member_id).items() for member_id in members]
        return there_are == {(topic_id, index) for each in targets for topic_id, part in each for index in part}

    def records_back(
        self, group_id: str, described: DescribedGroup | DescribedConsumerGroup, now_ms: int
    ) -> Iterator[Record]:
        """The group without members, of the kind that it has at Kafka, which has `described` it so. It has no configs:
        those that count are Kafka's."""
        consumers = self._state.consumers.groups.get(group_id)
        classic = self._state.look_at(group_id)
        if group_id in self._state.consumers.own_configs:
            yield configs_record(group_id, {})
        if consumers is not None:
            yield from consumers.tombstones()
        if isinstance(described, DescribedConsumerGroup):
            after = ConsumerGroup(group_id)
            if classic is not None:
                yield group_record(group_id, None)
            yield after.record(METADATA_TYPE, ConsumerGroupMetadataValue(described.group_epoch))
            target = ConsumerGroupTargetMetadataValue(described.assignment_epoch)
            yield after.record(TARGET_METADATA_TYPE, target)
        elif described.group_state == "Dead":
            yield group_record(group_id, None)
        else:
            generation = 0 if classic is None else classic.generation
            value = GroupMetadataValue(described.protocol_type, generation, None, None, now_ms, ())
            yield group_record(group_id, value)
