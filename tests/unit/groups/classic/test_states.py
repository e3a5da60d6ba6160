"""The tables of the state machine: every pair is there, and the handlers answer what the table says.

Origin of the cases: Kafka's ClassicGroupTest (transitions) and the per-state cases of GroupMetadataManagerTest and
OffsetMetadataManagerTest.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.groups.harness import CONSUMER, Harness

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.classic.states import (
    STATE_ERRORS,
    TRANSITIONS,
    GroupApi,
    GroupEvent,
    GroupState,
    IllegalTransitionError,
    next_state,
)
from muster_coordinator.requests import groups as m

# Kafka's own table (reference, section 4.2): state -> states from which it can be reached.
KAFKA_PREDECESSORS = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


def test_tables_hold_every_pair() -> None:
    assert set(TRANSITIONS) == {(state, event) for state in GroupState for event in GroupEvent}
    assert set(STATE_ERRORS) == {(api, state) for api in GroupApi for state in GroupState}


def test_transitions_are_those_of_kafka() -> None:
    predecessors: dict[GroupState, set[GroupState]] = {state: set() for state in GroupState}
    for (state, _), target in TRANSITIONS.items():
        if target is not None:
            predecessors[target].add(state)
    assert predecessors == KAFKA_PREDECESSORS


@pytest.mark.parametrize(("state", "event"), [pair for pair, target in TRANSITIONS.items() if target is None], ids=str)
def test_impossible_pair_is_refused(state: GroupState, event: GroupEvent) -> None:
    with pytest.raises(IllegalTransitionError, match=event.name):
        next_state(state, event)


def empty() -> tuple[Harness, str]:
    h = Harness()
    (member,) = h.stable_group()
    h.leave("g", member)
    assert h.state() == "Empty"
    return h, member


def preparing() -> tuple[Harness, str]:
    h = Harness()
    members = h.stable_group(members=2)
    h.join("g", members[0])
    assert h.state() == "PreparingRebalance"
    return h, members[1]


def completing() -> tuple[Harness, str]:
    h = Harness()
    join = h.join_dynamic()
    h.join_dynamic()
    h.finish_initial_delay()
    assert h.state() == "CompletingRebalance"
    return h, join.response.member_id


def stable() -> tuple[Harness, str]:
    h = Harness()
    return h, h.stable_group(members=2)[1]


def dead() -> tuple[Harness, str]:
    """A group is Dead only between its end and its removal, so no handler meets one; they are guarded all the same."""
    h, member = stable()
    h.group().transition(GroupEvent.REMOVED, h.now_ms)
    h.check = False
    return h, member


STATES: dict[GroupState, Callable[[], tuple[Harness, str]]] = {
    GroupState.EMPTY: empty,
    GroupState.PREPARING_REBALANCE: preparing,
    GroupState.COMPLETING_REBALANCE: completing,
    GroupState.STABLE: stable,
    GroupState.DEAD: dead,
}


def ask(h: Harness, api: GroupApi, member: str, generation: int) -> int:
    """The error that a request of this API gets that is otherwise in order; a parked one counts as none."""
    requests: dict[GroupApi, Callable[[], int]] = {
        GroupApi.JOIN_GROUP_NEW_MEMBER: lambda: join_code(h, "", api_version=3),
        GroupApi.JOIN_GROUP_KNOWN_MEMBER: lambda: join_code(h, member, protocols=CONSUMER),
        GroupApi.SYNC_GROUP: lambda: sync_code(h, generation, member),
        GroupApi.HEARTBEAT: lambda: h.heartbeat("g", generation, member),
        GroupApi.LEAVE_GROUP: lambda: h.leave("g", member).code,
        GroupApi.OFFSET_COMMIT: lambda: commit_code(h, generation, member),
        GroupApi.TXN_OFFSET_COMMIT: lambda: h.txn_commit(1),
        GroupApi.OFFSET_FETCH: lambda: 0 if h.fetch() else -1,
        GroupApi.DESCRIBE_GROUPS: lambda: int(h.describe().error_code),
        GroupApi.DELETE_GROUPS: lambda: h.delete(),
        GroupApi.OFFSET_DELETE: lambda: h.send(m.OffsetDeleteRequest("g", (("t", (0,)),))).code,
    }
    return requests[api]()


def join_code(h: Harness, member: str, **fields: object) -> int:
    pending = h.join("g", member, **fields)
    return 0 if pending.parked else pending.code


def sync_code(h: Harness, generation: int, member: str) -> int:
    pending = h.sync("g", generation, member)
    return 0 if pending.parked else pending.code


def commit_code(h: Harness, generation: int, member: str) -> int:
    code = h.commit(generation_id=generation, member_id=member)
    return h.commit() if code == ErrorCode.UNKNOWN_MEMBER_ID else code  # only an empty group takes the second one


# A "consumer" group answers OffsetDelete per topic, and Dead is answered by OffsetFetch as an unknown group, without
# an error.
EXCEPTIONS = {
    (GroupApi.OFFSET_DELETE, GroupState.PREPARING_REBALANCE): ErrorCode.NONE,
    (GroupApi.OFFSET_DELETE, GroupState.COMPLETING_REBALANCE): ErrorCode.NONE,
    (GroupApi.OFFSET_DELETE, GroupState.STABLE): ErrorCode.NONE,
    (GroupApi.OFFSET_FETCH, GroupState.DEAD): ErrorCode.NONE,
}


@pytest.mark.parametrize("api", GroupApi, ids=lambda api: api.name)
@pytest.mark.parametrize("state", GroupState, ids=lambda state: state.value)
def test_handler_answers_what_the_table_says(state: GroupState, api: GroupApi) -> None:
    h, member = STATES[state]()
    assert h.group().state is state
    assert ask(h, api, member, h.group().generation) == EXCEPTIONS.get((api, state), STATE_ERRORS[api, state])


@pytest.mark.parametrize("api", GroupApi, ids=lambda api: api.name)
@pytest.mark.parametrize("state", [GroupState.EMPTY, GroupState.STABLE], ids=lambda state: state.value)
def test_first_request_after_a_load_is_answered_the_same(state: GroupState, api: GroupApi) -> None:
    """Groups are built from their record when they are first asked for, whichever request that is."""
    h, member = STATES[state]()
    generation = h.group().generation
    h.check = False
    h.reload()
    h.now_ms += 1
    assert ask(h, api, member, generation) == EXCEPTIONS.get((api, state), STATE_ERRORS[api, state])
    h.check = True
    h.advance(0)


def test_dead_group_is_described_and_fetched_as_unknown() -> None:
    h, _ = dead()
    assert h.describe(api_version=5).group_state == "Dead"
    assert h.fetch() == {("t", 0): (-1, 0)}
