"""Random requests, silence and reloads. After every step the harness compares leader and follower and checks each
group; here it is also checked that every request is answered in the end, and that commits are what was last
acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.groups.harness import Harness, Pending, protocols

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.requests import groups as m

GROUPS = st.sampled_from(["g", "h"])
INSTANCES = st.sampled_from([None, None, "i", "j"])
PROTOCOLS = st.sampled_from(
    [
        protocols("range"),
        protocols("range", "roundrobin"),
        protocols("roundrobin", "range", topics=["u"]),
        protocols("roundrobin"),
        (("range", b""),),
    ]
)
PICK = st.integers(0, 5)


class RandomSequences(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = Harness(
            GroupConfig(
                max_size=4, max_pending_members=3, offsets_retention_minutes=30, expiry_slice=2, unpacked_groups=1
            )
        )
        self.sent: list[Pending] = []
        self.committed: dict[str, int] = {}

    def member(self, group_id: str, pick: int) -> str:
        """One of the ids that the group knows, or one that it does not."""
        group = self.h.coordinator.group(group_id)
        known = ["ghost"] if group is None else [*group.members, *sorted(group.pending_members), "ghost"]
        return known[pick % len(known)]

    def generation(self, group_id: str, pick: int) -> int:
        group = self.h.coordinator.group(group_id)
        return 0 if group is None else group.generation - (pick == 0)

    @rule(group_id=GROUPS, instance=INSTANCES, offered=PROTOCOLS, version=st.sampled_from([3, 8, 9]))
    def join_as_new(self, group_id: str, instance: str | None, offered: Any, version: int) -> None:
        self.sent.append(self.h.join(group_id, group_instance_id=instance, protocols=offered, api_version=version))

    @rule(group_id=GROUPS, pick=PICK, instance=INSTANCES, offered=PROTOCOLS)
    def join_as_known(self, group_id: str, pick: int, instance: str | None, offered: Any) -> None:
        member_id = self.member(group_id, pick)
        self.sent.append(self.h.join(group_id, member_id, group_instance_id=instance, protocols=offered))

    @rule(group_id=GROUPS)
    def everybody_joins(self, group_id: str) -> None:
        group = self.h.coordinator.group(group_id)
        for member in [] if group is None else [*group.members.values()]:
            self.sent.append(
                self.h.join(
                    group_id, member.member_id, group_instance_id=member.group_instance_id, protocols=member.protocols
                )
            )

    @rule(group_id=GROUPS, pick=PICK)
    def sync(self, group_id: str, pick: int) -> None:
        member_id = self.member(group_id, pick)
        self.sent.append(
            self.h.sync(
                group_id,
                self.generation(group_id, pick),
                member_id,
                {member_id: b"x"},
                protocol_type=None,
                protocol_name=None,
                api_version=3,
            )
        )

    @rule(group_id=GROUPS)
    def everybody_syncs(self, group_id: str) -> None:
        group = self.h.coordinator.group(group_id)
        for member_id in [] if group is None else list(group.members):
            self.sent.append(
                self.h.sync(
                    group_id,
                    self.generation(group_id, 1),
                    member_id,
                    {member_id: b"y"},
                    protocol_type=None,
                    protocol_name=None,
                    api_version=3,
                )
            )

    @rule(group_id=GROUPS, pick=PICK)
    def heartbeat(self, group_id: str, pick: int) -> None:
        self.h.heartbeat(group_id, self.generation(group_id, pick), self.member(group_id, pick))

    @rule(group_id=GROUPS, pick=PICK, instance=INSTANCES)
    def leave(self, group_id: str, pick: int, instance: str | None) -> None:
        self.h.leave(group_id, ("" if instance else self.member(group_id, pick), instance))

    @rule(group_id=GROUPS, pick=PICK, offset=st.integers(0, 1000))
    def commit_as_member(self, group_id: str, pick: int, offset: int) -> None:
        code = self.h.commit(
            group_id, offset, generation_id=self.generation(group_id, pick), member_id=self.member(group_id, pick)
        )
        if code == 0:
            self.committed[group_id] = offset

    @rule(group_id=GROUPS, offset=st.integers(0, 1000))
    def commit_as_simple(self, group_id: str, offset: int) -> None:
        if self.h.commit(group_id, offset) == 0:
            self.committed[group_id] = offset

    @rule(group_id=GROUPS, producer_id=st.sampled_from([1, 2]))
    def commit_in_a_transaction(self, group_id: str, producer_id: int) -> None:
        self.h.txn_commit(producer_id, group_id, topics=(("tx", ((0, 1, -1, ""),)),))

    @rule(producer_id=st.sampled_from([1, 2]), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.h.end_txn(producer_id, committed)

    @rule(group_id=GROUPS)
    def delete(self, group_id: str) -> None:
        if self.h.delete(group_id) == 0:
            self.committed.pop(group_id, None)

    @rule(group_id=GROUPS)
    def delete_offsets(self, group_id: str) -> None:
        self.h.send(m.OffsetDeleteRequest(group_id, (("tx", (0,)),)))

    @rule(delay_ms=st.sampled_from([1, 500, 3_000, 7_000, 30_000, 60_000, 400_000]))
    def time_passes(self, delay_ms: int) -> None:
        self.h.advance(delay_ms)
        for group_id in list(self.committed):
            if self.h.coordinator.group(group_id) is None or self.h.offset(group_id) == -1:
                del self.committed[group_id]  # expired

    @rule()
    def leader_changes(self) -> None:
        durable = self.h.coordinator.durable_state()
        self.h.reload()
        assert self.h.coordinator.durable_state() == durable
        assert not any(pending.parked for pending in self.sent)

    @invariant()
    def acknowledged_commits_are_read_back(self) -> None:
        for group_id, offset in self.committed.items():
            assert self.h.offset(group_id) == offset

    @invariant()
    def snapshot_of_the_state_that_serves_is_that_of_its_log(self) -> None:
        """Parked joins, members without a record and timers are no part of it: a checkpoint may be made of it."""
        assert self.h.restored().durable_state() == self.h.follower.durable_state()

    def teardown(self) -> None:
        # Nothing is parked for ever: with nobody sending anything, every timer runs out.
        self.h.advance(1_200_000)
        assert not any(pending.parked for pending in self.sent)


TestRandomSequences: Callable[..., Any] = pytest.mark.long(RandomSequences.TestCase)
TestRandomSequences.settings = settings(
    max_examples=60, stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
