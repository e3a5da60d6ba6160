"""Searches through all groups of a partition, a slice at a time: for offsets that have expired, and for those of
partitions that do not exist any more."""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.groups.classic.group import ClassicGroup
from muster_coordinator.groups.classic.tables import GroupTables
from muster_coordinator.groups.consumer.group import ConsumerGroup
from muster_coordinator.groups.effects import DELETE_PARTITIONS_TIMER, EXPIRE_OFFSETS_TIMER, Effects
from muster_coordinator.groups.offsets.deletion import delete_partitions, expire_group
from muster_coordinator.requests.groups import TopicsDeleted
from muster_coordinator.state_machine import Result


class OffsetSearches:
    """`serves`: whether a group is coordinated here; nothing of others expires."""

    def __init__(self, state: GroupTables, serves: Callable[[str], bool]) -> None:
        self._state = state
        self._serves = serves
        self._to_expire: list[str] = []
        self._to_delete: list[str] = []
        self._deleted = TopicsDeleted(state.topics.has, state.topics.id_of)

    def stop(self) -> None:
        """Forget the searches that are under way."""
        self._to_expire.clear()
        self._to_delete.clear()

    def expire(self, now_ms: int) -> Result:
        """Remove what has expired in one slice of the groups. A timer continues the search at once, or starts a new one
        after the interval."""
        config = self._state.config
        if not self._to_expire:
            self._to_expire = [*self._state.groups, *self._state.consumers.groups]
        effects = Effects()
        looked_at = 0
        while self._to_expire and looked_at < config.expiry_slice:
            group_id = self._to_expire.pop()
            group: ClassicGroup | ConsumerGroup | None = self._state.consumers.groups.get(group_id)
            if group is None:
                group = self._state.look_at(group_id)
            if group is not None and self._serves(group.group_id):
                looked_at += 1 + expire_group(self._state, group, effects, now_ms)
            if isinstance(group, ClassicGroup):
                self._state.pack_if_settled(group)
        effects.set_timer(EXPIRE_OFFSETS_TIMER, 0 if self._to_expire else config.offsets_retention_check_interval_ms)
        return effects.result()

    def delete_all(self, deleted: TopicsDeleted) -> Result:
        """Append tombstones for the offsets of partitions that do not exist; a search that is under way begins anew."""
        known = {**self._state.offsets.committed, **self._state.offsets.open_transactions}
        self._to_delete = [group_id for group_id in known if self._serves(group_id)]
        self._deleted = deleted
        return self.delete_slice()

    def delete_slice(self) -> Result:
        """Search one slice of the groups; a timer continues at once."""
        effects = Effects()
        looked_at = 0
        while self._to_delete and looked_at < self._state.config.expiry_slice:
            group_id = self._to_delete.pop()
            looked_at += 1
            if self._serves(group_id):
                looked_at += delete_partitions(self._state, group_id, self._deleted, effects)
        if self._to_delete:
            effects.set_timer(DELETE_PARTITIONS_TIMER, 0)
        return effects.result()
