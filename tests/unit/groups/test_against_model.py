"""The coordinator and the reference model, asked the same things in random order: they give the same answers, and
after every step are in the same state and wait for the same deadlines.

`HYPOTHESIS_MAX_EXAMPLES=2000` makes it a longer run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.groups.harness import START_MS, Harness, Pending, protocols, subscription
from tests.unit.groups.reference_model import JoinAnswer, ReferenceModel, SyncAnswer

from muster_coordinator.groups.classic.java_hash_map import java_hash_map_order
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.requests import groups as m

CONFIG = GroupConfig(max_size=4, offsets_retention_minutes=30, offset_metadata_max_size=8)
GROUPS = st.sampled_from(["g"] * 14 + ["h"] * 5 + [""])
INSTANCES = st.sampled_from([None, None, None, "i", "j"])
TYPES = st.sampled_from(["consumer"] * 15 + ["connect"])
VERSIONS = st.sampled_from([3, 8, 9])
SESSIONS = st.sampled_from([10_000] * 15 + [45_000] * 8 + [5_999, 1_800_001])
REBALANCES = st.sampled_from([60_000, 5_000])
PICK = st.integers(0, 5)
TOPICS_OF = {subscription(topics): set(topics) for topics in (["t"], ["u"], ["t", "u"])}
PROTOCOLS = st.sampled_from(
    [
        *[protocols("range")] * 8,
        *[protocols("range", "roundrobin")] * 4,
        *[protocols("roundrobin", "range", topics=["u"])] * 4,
        protocols("roundrobin", topics=["t", "u"]),
        (("range", b""),),
        (),
    ]
)
MISSING = ("t", 9)
PARTITIONS = st.lists(
    st.sampled_from([("t", 0), ("t", 1), ("u", 0), ("v", 0), MISSING]), min_size=1, max_size=3, unique=True
)
METADATA = st.sampled_from(["", "", "", "eight678", "ninechars", None])


def topics_of(partitions: list[tuple[str, int]], *fields: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """As requests have them: each topic once."""
    topics: dict[str, list[Any]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append((index, *fields) if fields else index)
    return tuple((topic, tuple(of_topic)) for topic, of_topic in topics.items())


def codes_of(topics: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]) -> dict[tuple[str, int], int]:
    return {(topic, index): code for topic, partitions in topics for index, code in partitions}


def answer_of(response: Any) -> JoinAnswer | SyncAnswer:
    if isinstance(response, m.SyncGroupResponse):
        return SyncAnswer(response.error_code, response.protocol_name, response.assignment)
    return JoinAnswer(
        response.error_code,
        response.member_id,
        response.generation_id,
        response.protocol_name,
        response.leader,
        response.skip_assignment,
        tuple(member.member_id for member in response.members),
    )


class AgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.h = Harness(CONFIG)
        self.h.topics.missing.add(MISSING)
        self.model = ReferenceModel(
            CONFIG, START_MS, {MISSING}, lambda names: java_hash_map_order(sorted(names))[0], TOPICS_OF.get
        )
        self.sent: list[Pending] = []  # joins and syncs; the index is their number in the model

    # -- what requests are about ---------------------------------------------------------------------------------------

    def member(self, group_id: str, pick: int) -> tuple[str, str | None]:
        """Id and instance of a member, or of a pending one, or of nobody."""
        group = self.model.groups.get(group_id)
        known: list[tuple[str, str | None]] = [("ghost", None), ("", None)]
        if group is not None:
            known = [*((each.member_id, each.instance) for each in group.members.values()), *known]
            known += [(each, None) for each in sorted(group.pending)]
        return known[pick % len(known)]

    def generation(self, group_id: str, drift: int) -> int:
        group = self.model.groups.get(group_id)
        return drift if group is None else group.generation + drift

    def ask(self, request: Any, model: Callable[[int, Any], None]) -> None:
        self.sent.append(self.h.send(request))
        model(len(self.sent) - 1, request)

    def join_request(self, group_id: str, member_id: str, instance: str | None, **fields: Any) -> None:
        request: dict[str, Any] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
            "api_version": 9,
        }
        request.update(fields)
        request.update(reason=None, client_id="client", client_host="/127.0.0.1", group_id=group_id)
        self.ask(
            m.JoinGroupRequest(member_id=member_id, group_instance_id=instance, **request),
            self.model.join,
        )

    # -- the way to a Stable group, which random steps seldom find ----------------------------------------------------

    @initialize(
        instances=st.lists(st.sampled_from([None, None, "i", "j"]), max_size=4),
        offered=st.lists(
            st.sampled_from([protocols("range"), protocols("range", "roundrobin")]), min_size=4, max_size=4
        ),
        settled=st.booleans(),
    )
    def members_at_the_beginning(self, instances: list[str | None], offered: list[Any], settled: bool) -> None:
        for instance, each in zip(instances, offered, strict=False):
            self.join_request(
                "g", "", instance, protocols=each, api_version=3, session_timeout_ms=45_000, rebalance_timeout_ms=5_000
            )
        if settled:
            self.rebalance("g")

    @rule(group_id=GROUPS)
    def rebalance(self, group_id: str) -> None:
        """Everybody joins, the join phase ends, everybody syncs."""
        self.everybody_joins(group_id)
        while (due_ms := self.model.deadlines.get(("join", group_id, ""))) is not None:
            self.time_passes(due_ms - self.h.now_ms)
        self.everybody_syncs(group_id)

    # -- rules ---------------------------------------------------------------------------------------------------------

    @rule(
        group_id=GROUPS,
        instance=INSTANCES,
        session_timeout_ms=SESSIONS,
        rebalance_timeout_ms=REBALANCES,
        protocol_type=TYPES,
        offered=PROTOCOLS,
        api_version=VERSIONS,
    )
    def join_as_new(self, group_id: str, instance: str | None, offered: Any, **fields: Any) -> None:
        self.join_request(group_id, "", instance, protocols=offered, **fields)

    @rule(group_id=GROUPS, pick=PICK, right=st.sampled_from([True, True, True, False]), other=INSTANCES,
          session_timeout_ms=SESSIONS, protocol_type=TYPES, offered=PROTOCOLS, api_version=VERSIONS)  # fmt: skip
    def join_as_known(
        self, group_id: str, pick: int, right: bool, other: str | None, offered: Any, **fields: Any
    ) -> None:
        member_id, instance = self.member(group_id, pick)
        self.join_request(group_id, member_id, instance if right else other, protocols=offered, **fields)

    @rule(group_id=GROUPS)
    def everybody_joins(self, group_id: str) -> None:
        """Members with what they have, pending ones too: the way to a next generation."""
        group = self.model.groups.get(group_id)
        if group is not None:
            for member in list(group.members.values()):
                self.join_request(
                    group_id,
                    member.member_id,
                    member.instance,
                    protocols=member.protocols,
                    protocol_type=group.protocol_type,
                    session_timeout_ms=member.session_ms,
                    rebalance_timeout_ms=member.rebalance_ms,
                )
            for member_id in sorted(group.pending):
                self.join_request(group_id, member_id, None)

    @rule(group_id=GROUPS, instance=st.sampled_from(["i", "j"]), offered=PROTOCOLS, api_version=VERSIONS)
    def static_member_restarts(self, group_id: str, instance: str, **fields: Any) -> None:
        fields["protocols"] = fields.pop("offered")
        self.join_request(group_id, "", instance, session_timeout_ms=45_000, rebalance_timeout_ms=5_000, **fields)

    @rule(group_id=GROUPS, absent=PICK)
    def one_member_stays_away(self, group_id: str, absent: int) -> None:
        """The others wait for it until the join phase ends."""
        group = self.model.groups.get(group_id)
        members = [] if group is None else list(group.members.values())
        for index, member in enumerate(members):
            if index != absent % len(members):
                fields = {"session_timeout_ms": 45_000, "rebalance_timeout_ms": 5_000, "protocols": member.protocols}
                self.join_request(group_id, member.member_id, member.instance, **fields)
        self.time_passes(5_000)

    @rule(group_id=GROUPS, pick=PICK, drift=st.sampled_from([0, 0, 0, 1, -1]), instance=INSTANCES,
          protocol=st.sampled_from([None, None, "range", "other"]), api_version=st.sampled_from([3, 3, 5]))  # fmt: skip
    def sync(
        self, group_id: str, pick: int, drift: int, instance: str | None, protocol: str | None, api_version: int
    ) -> None:
        member_id, own = self.member(group_id, pick)
        instance = own if pick else instance
        self.sync_request(group_id, self.generation(group_id, drift), member_id, instance, protocol, api_version)

    def sync_request(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance: str | None,
        protocol: str | None = None,
        api_version: int = 3,
    ) -> None:
        assignments = ((member_id, b"own"), ("stranger", b"not used"))
        kind = None if protocol is None else "consumer"
        request = m.SyncGroupRequest(
            group_id, generation, member_id, instance, kind, protocol, assignments, api_version
        )
        self.ask(request, self.model.sync)

    @rule(group_id=GROUPS)
    def everybody_syncs(self, group_id: str) -> None:
        group = self.model.groups.get(group_id)
        for member in [] if group is None else list(group.members.values()):
            self.sync_request(group_id, self.generation(group_id, 0), member.member_id, member.instance)

    @rule(group_id=GROUPS, pick=PICK, drift=st.sampled_from([0, 0, 0, 1, -1]), instance=INSTANCES)
    def heartbeat(self, group_id: str, pick: int, drift: int, instance: str | None) -> None:
        member_id, own = self.member(group_id, pick)
        instance = own if pick else instance
        request = m.HeartbeatRequest(group_id, self.generation(group_id, drift), member_id, instance)
        assert self.h.send(request).code == self.model.heartbeat(request)

    @rule(group_id=GROUPS, picks=st.lists(PICK, min_size=1, max_size=2), by_instance=st.booleans())
    def leave(self, group_id: str, picks: list[int], by_instance: bool) -> None:
        members = [self.member(group_id, pick) for pick in picks]
        leaving = tuple(
            m.LeavingMember("" if by_instance and instance else member_id, instance) for member_id, instance in members
        )
        request = m.LeaveGroupRequest(group_id, leaving)
        response = self.h.send(request).response
        codes = tuple(member.error_code for member in response.members)
        assert (response.error_code, codes) == self.model.leave(request)

    @rule(group_id=GROUPS, pick=PICK, drift=st.sampled_from([0, 0, 0, 1, -1]), simple=st.booleans(), instance=INSTANCES,
          partitions=PARTITIONS, offset=st.integers(0, 99), metadata=METADATA,
          retention_ms=st.sampled_from([-1, -1, -1, 700_000]), version=st.sampled_from([8, 9]))  # fmt: skip
    def commit(
        self, group_id: str, pick: int, drift: int, simple: bool, instance: str | None, partitions: Any, offset: int,
        metadata: str | None, retention_ms: int, version: int,
    ) -> None:  # fmt: skip
        member_id, own = ("", None) if simple else self.member(group_id, pick)
        generation = -1 if simple else self.generation(group_id, drift)
        instance = instance if simple and pick == 0 else own
        topics = topics_of(partitions, offset, -1, metadata)
        request = m.OffsetCommitRequest(group_id, generation, member_id, instance, retention_ms, topics, version)
        assert codes_of(self.h.send(request).response.topics) == self.model.commit(request)

    @rule(group_id=GROUPS, producer=st.tuples(st.sampled_from([1, 2]), st.integers(0, 1)), pick=PICK,
          drift=st.sampled_from([0, 0, -1]), simple=st.booleans(), partitions=PARTITIONS, offset=st.integers(100, 199),
          metadata=METADATA)  # fmt: skip
    def commit_in_transaction(
        self, group_id: str, producer: tuple[int, int], pick: int, drift: int, simple: bool, partitions: Any,
        offset: int, metadata: str | None,
    ) -> None:  # fmt: skip
        member_id, instance = ("", None) if simple else self.member(group_id, pick)
        generation = -1 if simple else self.generation(group_id, drift)
        topics = topics_of(partitions, offset, -1, metadata)
        request = m.TxnOffsetCommitRequest(
            f"tx-{producer[0]}", group_id, *producer, generation, member_id, instance, topics, 3
        )
        assert codes_of(self.h.send(request).response.topics) == self.model.commit_in_transaction(request)

    @rule(producer=st.tuples(st.sampled_from([1, 2]), st.integers(0, 1)), committed=st.booleans())
    def end_transaction(self, producer: tuple[int, int], committed: bool) -> None:
        assert self.h.end_txn(producer[0], committed, producer[1]) == self.model.end_transaction(*producer, committed)

    @rule(group_id=GROUPS, partitions=PARTITIONS, stable=st.booleans())
    def fetch(self, group_id: str, partitions: list[tuple[str, int]], stable: bool) -> None:
        fetched = self.h.fetch(group_id, topics_of(partitions), stable)
        assert fetched == self.model.fetch(group_id, partitions, stable)

    @rule(group_id=GROUPS)
    def delete(self, group_id: str) -> None:
        assert self.h.delete(group_id) == self.model.delete(group_id)

    @rule(group_id=GROUPS, partitions=PARTITIONS)
    def delete_offsets(self, group_id: str, partitions: list[tuple[str, int]]) -> None:
        request = m.OffsetDeleteRequest(group_id, topics_of(partitions))
        response = self.h.send(request).response
        assert (response.error_code, codes_of(response.topics)) == self.model.delete_offsets(request)

    @rule(
        delay_ms=st.sampled_from([1, 500, 500, 3_000, 3_000, 7_000, 7_000, 10_000, 30_000, 60_000, 600_000, 1_800_000])
    )
    def time_passes(self, delay_ms: int) -> None:
        """One deadline after the other; where two fall together, the coordinator's order counts."""
        end_ms = self.h.now_ms + delay_ms
        while (due_ms := min(self.h.timers.values())) <= end_ms:
            name = min(self.h.timers, key=self.h.timers.__getitem__)
            assert self.model.deadlines[name] == due_ms
            self.model.now_ms = due_ms
            self.model.time_out(name)
            self.h.now_ms = due_ms
            del self.h.timers[name]
            self.h._apply(self.h.coordinator.on_timer(name, due_ms), None)
            self.same_state()
        self.h.now_ms = self.model.now_ms = end_ms

    @rule(pick=st.integers(0, 2))
    def leader_changes(self, pick: int) -> None:
        if pick:
            return  # not in every other step: it ends whatever was going on
        self.h.reload()
        self.model.change_leader(lambda number: self.sent[number].request.member_id)

    # -- comparison ----------------------------------------------------------------------------------------------------

    @invariant()
    def same_answers(self) -> None:
        for number, pending in enumerate(self.sent):
            real = None if pending.response is None else answer_of(pending.response)
            assert real == self.model.answers.get(number), pending.request

    @invariant()
    def same_state(self) -> None:
        assert set(self.h.group_ids()) == set(self.model.groups)
        for group_id, expected in self.model.groups.items():
            group = self.h.group(group_id)
            assert (group.state.value, group.generation) == (expected.state, expected.generation)
            assert (group.protocol_type, group.protocol) == (expected.protocol_type, expected.protocol)
            assert group.leader == expected.leader
            assert group.pending_members == expected.pending
            assert [
                (each.member_id, each.group_instance_id, each.protocols, each.assignment)
                for each in group.members.values()
            ] == [
                (each.member_id, each.instance, each.protocols, each.assignment) for each in expected.members.values()
            ]
        assert self.h.timers == self.model.deadlines

    @invariant()
    def same_offsets(self) -> None:
        state = self.h.coordinator.durable_state()
        implied = {group_id for group_id, group in self.model.groups.items() if group.logged and group.stored is None}
        assert state.implied_groups == implied
        assert {key: stored.offset for key, (_, stored) in state.committed.items()} == {
            key: commit.offset for key, commit in self.model.committed.items()
        }
        assert {key: stored.offset for key, (_, stored) in state.pending.items()} == {
            (producer_id, *key): commit.offset
            for producer_id, of_producer in self.model.pending.items()
            for key, commit in of_producer.items()
        }


TestAgainstModel: Any = pytest.mark.long(AgainstModel.TestCase)
TestAgainstModel.settings = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_MAX_EXAMPLES", "200")),
    stateful_step_count=60,
    suppress_health_check=list(HealthCheck),
)
