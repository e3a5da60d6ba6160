"""Members of both protocols in one group, in the records and at a failover. Names in brackets: tests of Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.groups.consumer.consumer_harness import id_of
from tests.unit.groups.mixed_clients import subscription_of
from tests.unit.groups.two_kinds import CONFIG, TwoKinds

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig, MigrationPolicy, parse_policy
from muster_coordinator.groups.consumer.embedded import (
    Assigned,
    EmbeddedProtocolError,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from muster_coordinator.records.consumer_group import ClassicMemberMetadata

T = id_of("t")


def cooperative(*owned: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", subscription_of(frozenset(owned), 1)),)


def classic_group(h: TwoKinds, *given: tuple[int, ...], **fields: Any) -> list[str]:
    """A Stable classic group, a member for each of `given`, its partitions of `t`; their ids."""
    joins = [h.join_dynamic("g", protocols=cooperative(), **fields) for _ in given]
    h.finish_initial_delay("g")
    ids = [join.response.member_id for join in joins]
    assignments = {
        member_id: write_assignment([("t", partitions)], 0) for member_id, partitions in zip(ids, given, strict=True)
    }
    leader = h.group("g").leader
    for member_id in ids:
        h.sync("g", 1, member_id, assignments if member_id == leader else None)
    assert h.state("g") == "Stable"
    return ids


def kind(h: TwoKinds) -> list[tuple[str, str]]:
    return [(state, group_type) for _, _, state, group_type in h.listed()]


@pytest.fixture
def h() -> TwoKinds:
    return TwoKinds()


# -- upgrade ----------------------------------------------------------------------------------------------------------


def test_classic_member_keeps_what_it_has_when_a_consumer_joins(h: TwoKinds) -> None:
    """[testConsumerGroupHeartbeatToClassicGroupFromExistingStaticMember and its kind]"""
    (member,) = classic_group(h, (0, 1))
    joined = h.join_consumer("a")
    assert (joined.member_epoch, joined.assignment) == (2, ())
    described = {each.member_id: each for each in h.described().members}
    assert described[member].assignment == ((T, "t", (0, 1)),)
    assert (described[member].member_epoch, described[member].member_type) == (1, 0)
    assert h.heartbeat("g", 1, member) == ErrorCode.REBALANCE_IN_PROGRESS


def test_upgrade_is_as_sound_in_the_log_as_in_memory(h: TwoKinds) -> None:
    classic_group(h, (0,), (1,))
    h.join_consumer("a")
    before = h.coordinator.durable_state()
    h.reload()
    assert h.coordinator.durable_state() == before
    assert kind(h) == [("Reconciling", "consumer")]


def test_upgrade_that_did_not_reach_the_log_leaves_the_classic_group(h: TwoKinds) -> None:
    (member,) = classic_group(h, (0, 1))
    before = h.coordinator.durable_state()
    records = len(h.log)
    h.join_consumer("a")
    h.lose_records(len(h.log) - records)
    assert h.coordinator.durable_state() == before
    assert h.heartbeat("g", 1, member) == 0


def test_upgrade_that_does_not_fit_into_one_batch_is_refused() -> None:
    h = TwoKinds(config=GroupConfig(max_record_bytes=900))
    classic_group(h, (0,), (1,))
    joined = h.join_consumer("a")
    assert joined.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert kind(h) == [("Stable", "classic")]
    assert h.log


def test_those_that_wait_for_a_rebalance_join_again(h: TwoKinds) -> None:
    first, _second = classic_group(h, (0,), (1,))
    parked = h.join("g", first, protocols=cooperative(0))
    third = h.join_dynamic("g", protocols=cooperative())
    h.join_consumer("a")
    for join in (parked, third):
        assert join.code == ErrorCode.REBALANCE_IN_PROGRESS
        assert join.response.member_id
    assert {timer[0] for timer in h.timers if timer[1] == "g"} == {"consumer-session"}
    again = h.join("g", third.response.member_id, protocols=cooperative())
    assert again.code == 0


def test_those_that_wait_for_their_assignment_join_again(h: TwoKinds) -> None:
    joins = [h.join_dynamic("g", protocols=cooperative()) for _ in range(2)]
    h.finish_initial_delay("g")
    leader = h.group("g").leader
    (follower,) = [join.response.member_id for join in joins if join.response.member_id != leader]
    parked = h.sync("g", 1, follower)
    h.join_consumer("a")
    assert parked.code == ErrorCode.REBALANCE_IN_PROGRESS


def test_consumer_waits_for_what_a_cooperative_member_is_about_to_give_back(h: TwoKinds) -> None:
    """Its SyncGroup no longer names a partition, but it has not joined again without it."""
    first, second = classic_group(h, (0, 1), ())
    h.join("g", first, protocols=cooperative(0, 1))
    h.join("g", second, protocols=cooperative())
    leader = h.group("g").leader
    given = {first: write_assignment([("t", (0,))], 1), second: write_assignment([], 1)}
    for member_id in (first, second):
        h.sync("g", 2, member_id, given if member_id == leader else None)
    assert h.join_consumer("a").assignment == ()
    h.join("g", second, protocols=cooperative())
    h.join("g", first, protocols=cooperative(0))
    owned = [p for each in h.described().members for _, _, partitions in each.assignment for p in partitions]
    assert len(owned) == len(set(owned))


def test_policy_that_does_not_upgrade() -> None:
    h = TwoKinds(consumer_config=ConsumerGroupConfig(assignment_interval_ms=0, migration_policy="downgrade"))
    classic_group(h, (0, 1))
    joined = h.join_consumer("a")
    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert joined.error_message is not None
    assert joined.error_message.endswith("because online upgrade is disabled.")


def test_group_that_is_larger_than_a_consumer_group_may_be_is_not_upgraded() -> None:
    h = TwoKinds(consumer_config=ConsumerGroupConfig(assignment_interval_ms=0, max_size=1))
    classic_group(h, (0,), (1,))
    joined = h.join_consumer("a")
    assert joined.error_message is not None
    assert joined.error_message.endswith("because the group size exceeds the consumer group maximum size.")


def test_consumer_that_is_refused_does_not_upgrade_the_group(h: TwoKinds) -> None:
    (member,) = classic_group(h, (0, 1))
    refused = h.join_consumer("a", subscribed_topic_names=None, subscribed_topic_regex="(")
    assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert kind(h) == [("Stable", "classic")]
    assert h.heartbeat("g", 1, member) == 0


# -- translation ------------------------------------------------------------------------------------------------------


def mixed(h: TwoKinds) -> str:
    """A consumer `a` and a classic member with one partition each; the id of the latter."""
    (member,) = classic_group(h, (0, 1))
    h.join_consumer("a")
    (kept,) = dict(h.coordinator._state.consumers.groups["g"].targets[member])[T]
    h.join("g", member, protocols=cooperative(0, 1))
    h.join("g", member, protocols=cooperative(kept))
    h.beat("a", 2)
    assert {each.member_epoch for each in h.described().members} == {2}
    return member


def test_classic_member_is_given_its_assignment_in_the_version_of_its_subscription(h: TwoKinds) -> None:
    member = mixed(h)
    synced = h.sync("g", 2, member).response
    assert synced.assignment[:2] == b"\x00\x01"
    ((topic, partitions),) = read_assignment(synced.assignment).partitions
    assert (topic, len(partitions)) == ("t", 1)
    assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert h.heartbeat("g", 2, member) == 0


def test_generations_are_member_epochs(h: TwoKinds) -> None:
    member = mixed(h)
    for generation in (1, 3, -1):
        assert h.heartbeat("g", generation, member) == ErrorCode.ILLEGAL_GENERATION
        assert h.sync("g", generation, member).code == ErrorCode.ILLEGAL_GENERATION
    assert h.commit("g", 5, member_id=member, generation_id=2) == 0
    assert h.commit("g", 5, member_id=member, generation_id=3) == ErrorCode.ILLEGAL_GENERATION
    assert h.fetched(member, 1) == (ErrorCode.ILLEGAL_GENERATION, -1)
    assert h.heartbeat("g", 2, "a") == ErrorCode.UNKNOWN_MEMBER_ID


def test_time_to_join_runs_from_the_first_heartbeat_that_says_so(h: TwoKinds) -> None:
    """[testJoiningConsumerGroupWithNewDynamicMember; the join time-out]"""
    member = mixed(h)
    h.join_consumer("b")
    key = ("consumer-join", "g", member)
    assert h.heartbeat("g", 2, member) == ErrorCode.REBALANCE_IN_PROGRESS
    due_ms = h.timers[key]
    h.advance(5_000)
    assert h.heartbeat("g", 2, member) == ErrorCode.REBALANCE_IN_PROGRESS
    assert h.timers[key] == due_ms
    h.join("g", member, protocols=cooperative())
    assert key not in h.timers


def test_classic_member_that_does_not_join_or_sync_in_time_is_out(h: TwoKinds) -> None:
    member = mixed(h)
    assert ("consumer-sync", "g", member) in h.timers
    h.fire(("consumer-sync", "g", member))
    assert [each.member_id for each in h.described().members] == ["a"]
    assert {timer[2] for timer in h.timers if timer[1] == "g"} == {"a"}


def test_sessions_of_classic_members_are_their_own_also_at_a_new_leader(h: TwoKinds) -> None:
    member = mixed(h)
    h.reload()
    h.advance(9_999)
    assert len(h.described().members) == 2
    h.advance(1)
    assert [each.member_id for each in h.described().members] == ["a"]
    assert h.heartbeat("g", 2, member) == ErrorCode.UNKNOWN_MEMBER_ID


def test_protocol_that_not_all_classic_members_have_is_refused(h: TwoKinds) -> None:
    mixed(h)
    other = h.join("g", protocols=(("sticky", subscription_of(frozenset(), 0)),))
    assert other.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert h.join("g", protocol_type="connect").code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("version", "code"),
    [("4.3", ErrorCode.UNKNOWN_SERVER_ERROR), ("4.4", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)],
)
def test_classic_member_whose_subscription_cannot_be_read_is_refused(version: str, code: ErrorCode) -> None:
    h = TwoKinds(consumer_config=replace(CONFIG, kafka_version=version))
    h.join_consumer("a")
    assert h.join("g", "b", protocols=(("range", subscription_of(frozenset(), 0)[:-1]),)).code == code
    assert [each.member_id for each in h.described().members] == ["a"]


def test_classic_member_whose_record_would_not_fit_is_refused() -> None:
    h = TwoKinds(config=GroupConfig(max_record_bytes=1_000))
    h.join_consumer("a")
    large = (("range", subscription_of(frozenset(), 0) + b"x" * 1_000),)
    assert h.join("g", "b", protocols=large).code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [each.member_id for each in h.described().members] == ["a"]


# -- downgrade --------------------------------------------------------------------------------------------------------


def leave_as_consumer(h: TwoKinds) -> None:
    h.beat("a", -1)


def leave_by_administrator(h: TwoKinds) -> None:
    h.leave("g", "a")


def fall_silent(h: TwoKinds) -> None:
    h.fire(("consumer-session", "g", "a"))


@pytest.mark.parametrize("end", [leave_as_consumer, leave_by_administrator, fall_silent])
def test_group_is_classic_again_once_the_last_consumer_is_gone(h: TwoKinds, end: Any) -> None:
    """[testLastConsumerProtocolMemberLeavingConsumerGroup, ...SessionTimeoutInConsumerGroup]"""
    member = mixed(h)
    end(h)
    assert kind(h) == [("PreparingRebalance", "classic")]
    assert h.heartbeat("g", 2, member) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = h.join("g", member, protocols=cooperative())
    assert (joined.code, joined.response.generation_id, joined.response.leader) == (0, 3, member)
    given = {member: write_assignment([("t", (0, 1))], 1)}
    assert h.sync("g", 3, member, given).code == 0
    assert kind(h) == [("Stable", "classic")]
    assert h.commit("g", 9, member_id=member, generation_id=3) == 0


def test_downgrade_is_as_sound_in_the_log_as_in_memory(h: TwoKinds) -> None:
    """The next leader has the group rebalance too: a member at the group's epoch would not notice."""
    member = mixed(h)
    h.beat("a", -1)
    h.reload()
    assert kind(h) == [("PreparingRebalance", "classic")]
    ((_, partitions),) = read_assignment(h.group("g").members[member].assignment).partitions
    assert len(partitions) == 1
    assert h.heartbeat("g", h.group("g").generation, member) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = h.join("g", member, protocols=cooperative())
    h.sync("g", joined.response.generation_id, member, {member: write_assignment([("t", (0, 1))], 1)})
    h.reload()
    assert kind(h) == [("Stable", "classic")]


def test_downgrade_that_did_not_reach_the_log_leaves_the_consumer_group(h: TwoKinds) -> None:
    mixed(h)
    before = h.coordinator.durable_state()
    records = len(h.log)
    h.beat("a", -1)
    h.lose_records(len(h.log) - records)
    assert h.coordinator.durable_state() == before
    assert kind(h) == [("Stable", "consumer")]


def test_members_keep_all_their_protocols_at_a_downgrade(h: TwoKinds) -> None:
    protocols = tuple([(name, subscription_of(frozenset(), 0)) for name in ("range", "sticky")])
    h.join_consumer("a")
    first = h.join_dynamic("g", protocols=protocols).response.member_id
    h.beat("a", -1)
    assert h.group("g").members[first].protocols == protocols
    assert h.join("g", protocols=protocols[1:]).code == ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize(
    "config", [GroupConfig(max_size=1), GroupConfig(max_record_bytes=600)], ids=["too many", "too large"]
)
def test_group_that_cannot_be_classic_goes_on_as_it_is(config: GroupConfig) -> None:
    h = TwoKinds(config=config)
    h.join_consumer("a")
    ids = [h.join_dynamic("g", protocols=cooperative()).response.member_id for _ in range(4)]
    h.beat("a", -1)
    assert [each.member_id for each in h.described().members] == ids
    assert h.coordinator.group_counts() == dict.fromkeys(h.coordinator.group_counts(), 0)


def test_policy_that_does_not_downgrade() -> None:
    h = TwoKinds(consumer_config=ConsumerGroupConfig(assignment_interval_ms=0, migration_policy="upgrade"))
    mixed(h)
    h.beat("a", -1)
    assert kind(h) == [("Assigning", "consumer")]


def test_static_member_that_comes_back_as_a_classic_one_makes_the_group_classic(h: TwoKinds) -> None:
    """[testDowngradeStaticMember...] Nothing changes for the others: no rebalance."""
    h.join_consumer("a", instance_id="i")
    h.beat("a", -2, instance_id="i")
    joined = h.join("g", group_instance_id="i", protocols=cooperative())
    member = joined.response.member_id
    assert (joined.code, joined.response.generation_id) == (0, 2)
    assert kind(h) == [("Stable", "classic")]
    synced = h.sync("g", 2, member, group_instance_id="i").response
    assert read_assignment(synced.assignment).partitions == (("t", (0, 1)),)
    h.reload()
    assert h.heartbeat("g", 2, member, "i") == 0


def test_static_member_with_another_subscription_makes_the_group_rebalance(h: TwoKinds) -> None:
    h.consumer_topics.change("u", 1)
    h.join_consumer("a", instance_id="i")
    metadata = subscription_of(frozenset(), 0, ("t", "u"))
    assert h.join("g", group_instance_id="i", protocols=(("range", metadata),)).code == 0
    assert kind(h) == [("PreparingRebalance", "classic")]


def test_static_member_that_makes_the_group_classic_gets_nothing_that_another_one_has(h: TwoKinds) -> None:
    """The other one was not told yet to give it back. It says what it has when it joins the rebalance."""
    (other,) = classic_group(h, (0, 1))
    h.join_consumer("a", instance_id="i")
    h.beat("a", -2, instance_id="i")
    joined = h.join("g", group_instance_id="i", protocols=cooperative()).response
    assert kind(h) == [("PreparingRebalance", "classic")]
    synced = h.sync("g", joined.generation_id, joined.member_id, group_instance_id="i")
    assert (synced.code, synced.response.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"")
    assert h.heartbeat("g", 1, other) in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)


# -- settings and bytes -----------------------------------------------------------------------------------------------


def test_policies_are_read_without_regard_to_case() -> None:
    assert parse_policy("Upgrade") is MigrationPolicy.UPGRADE
    assert CONFIG.policy is MigrationPolicy.BIDIRECTIONAL
    with pytest.raises(ValueError, match="'both' is not one of bidirectional, upgrade, downgrade, disabled"):
        parse_policy("both")


def test_embedded_protocol_is_read_in_all_versions() -> None:
    assert read_subscription(subscription_of(frozenset(), 0)) == Subscription(("t",))
    second = subscription_of(frozenset({1, 2}), 1)
    assert read_subscription(second) == Subscription(("t",), (("t", (1, 2)),))
    third = b"\x00\x03" + second[2:] + b"\x00\x00\x00\x07" + b"\x00\x01r"
    assert read_subscription(third) == Subscription(("t",), (("t", (1, 2)),), "r")
    assert read_subscription(b"\x00\x63" + third[2:]) == read_subscription(third)
    assert read_assignment(write_assignment([("t", (2, 0))], 3)) == Assigned((("t", (0, 2)),))
    assert read_assignment(b"") == Assigned()
    with_data = write_assignment([("t", (0,))], 0)[:-4] + b"\x00\x00\x00\x01x"
    assert read_assignment(with_data).has_user_data


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\xff\xff" + subscription_of(frozenset(), 0)[2:], b"\x00\x00\x00\x00\x00\x09"]
)
def test_bytes_that_are_no_subscription(data: bytes) -> None:
    with pytest.raises(EmbeddedProtocolError):
        read_subscription(data)


def test_classic_metadata_is_in_the_member_record(h: TwoKinds) -> None:
    (member,) = classic_group(h, (0, 1))
    h.join_consumer("a")
    value = h.coordinator._state.consumers.groups["g"].members[member]
    assert value.classic == ClassicMemberMetadata(10_000, cooperative())
    assert (value.subscribed_topic_names, value.rebalance_timeout_ms) == (("t",), 60_000)
