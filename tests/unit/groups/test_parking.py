"""Members are put out and kept out for a while: none of them commits over what was written meanwhile, whatever it has
under way."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.groups.harness import protocols
from tests.unit.groups.mixed_clients import TOPIC, Classic, Consumer
from tests.unit.groups.test_mixed_groups import classic_group
from tests.unit.groups.two_kinds import TwoKinds

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups import parking
from muster_coordinator.groups.effects import Effects
from muster_coordinator.requests import groups as m
from muster_coordinator.requests.parking import ParkGroupRequest, ParkGroupResponse

FOR_MS = 5_000
PARTITIONS = 4
SEEDS = 100


def park(h: TwoKinds, for_ms: int = FOR_MS) -> str:
    """Why the group is not parked; "" if it is."""
    response = h.send(ParkGroupRequest("g", for_ms)).response
    assert isinstance(response, ParkGroupResponse)
    assert not response.error_code
    return response.reason


@pytest.fixture
def h() -> TwoKinds:
    return TwoKinds()


# -- examples ---------------------------------------------------------------------------------------------------------


def test_members_of_a_classic_group_are_out_and_their_commits_refused(h: TwoKinds) -> None:
    first, second = h.stable_group(members=2)
    assert park(h) == ""
    assert h.state() == "Empty"
    assert h.group().generation == 2
    assert h.heartbeat("g", 1, first) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(h, second, 1, 0, 7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(h, "", -1, 0, 7) == 0, "the reset itself"


def test_members_of_a_consumer_group_are_out_and_their_commits_refused(h: TwoKinds) -> None:
    epoch = h.join_consumer("a").member_epoch
    assert park(h) == ""
    assert h.described().group_state == "Empty"
    assert h.beat("a", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(h, "a", epoch, 0, 7) == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.join_consumer("a").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("end", ["time", "let in", "another leader"])
def test_nobody_joins_before_the_end(h: TwoKinds, end: str) -> None:
    (member,) = h.stable_group()
    park(h)
    h.advance(FOR_MS - 1)
    for member_id in (member, ""):
        assert h.join("g", member_id).code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if end == "time":
        h.advance(1)
    elif end == "let in":
        park(h, 0)
    else:
        h.reload()
    assert h.join("g", member).code == ErrorCode.UNKNOWN_MEMBER_ID
    assert h.join("g").code == ErrorCode.MEMBER_ID_REQUIRED
    assert not [key for key in h.timers if key[0] == "parked"]


def test_member_that_was_about_to_join_first_is_out(h: TwoKinds) -> None:
    pending = h.join("g")
    assert pending.code == ErrorCode.MEMBER_ID_REQUIRED
    assert park(h) == ""
    park(h, 0)
    assert h.join("g", pending.response.member_id).code == ErrorCode.UNKNOWN_MEMBER_ID


def test_group_that_is_not_there_is_kept_empty_too(h: TwoKinds) -> None:
    assert park(h) == ""
    assert h.log == []
    assert h.join("g").code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_records_alone_put_the_members_out(h: TwoKinds) -> None:
    h.stable_group(members=3)
    park(h)
    before = h.coordinator.durable_state()
    h.reload()
    assert h.coordinator.durable_state() == before
    assert h.state() == "Empty"


def test_group_that_rebalances_stays_as_it_is(h: TwoKinds) -> None:
    first, _ = h.stable_group(members=2)
    joining = h.join("g", first)
    assert park(h) == "it rebalances: try again"
    assert joining.parked
    assert h.state() == "PreparingRebalance"


@pytest.mark.parametrize("name", ["cooperative-sticky", "stream", "mine"])
def test_members_that_may_keep_partitions_stay_and_the_reason_says_what_to_do(h: TwoKinds, name: str) -> None:
    (member,) = h.stable_group(protocols=protocols(name))
    reason = park(h)
    assert name in reason
    assert "stop its consumers" in reason
    assert h.heartbeat("g", 1, member) == 0


def test_members_of_both_protocols_stay(h: TwoKinds) -> None:
    classic_group(h, (0, 1))
    h.join_consumer("a")
    assert "both protocols" in park(h)
    assert len(h.described().members) == 2


# -- any order of events ----------------------------------------------------------------------------------------------


def commit(h: TwoKinds, member_id: str, generation: int, partition: int, offset: int) -> int:
    topics = ((TOPIC, ((partition, offset, -1, ""),)),)
    answer = h.send(m.OffsetCommitRequest("g", generation, member_id, None, -1, topics, 9)).response
    return int(answer.topics[0][1][0][1])


class CooperativeOfJava(Classic):
    """Keeps what it has if its JoinGroup is refused: it has prepared for the rebalance before."""

    def _joined(self, answer: Any) -> None:
        kept = self.owned
        super()._joined(answer)
        if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.owned = kept


class Positions:
    """What one client reads. `at`: the next offset of each partition that it has, and the reset that it began after.
    `late`: commits that it has sent, and that arrive later."""

    def __init__(self, client: Classic | Consumer) -> None:
        self.client = client
        self.at: dict[int, tuple[int, int]] = {}
        self.late: list[tuple[str, int, int, int, int]] = []


class World:
    """`truth`: the committed offset of each partition, and the reset that it goes back to."""

    def __init__(self, seed: int, make: Callable[[TwoKinds, str], Classic | Consumer]) -> None:
        self.random = random.Random(seed)
        self.h = TwoKinds(check=False)
        self.h.consumer_topics.change(TOPIC, PARTITIONS)
        self.members = [Positions(make(self.h, f"m-{number}")) for number in range(3)]
        self.truth = dict.fromkeys(range(PARTITIONS), (0, 0))
        self.resets = self.commits = 0

    def step(self) -> None:
        member = self.random.choice(self.members)
        kind = self.random.random()
        if kind < 0.55:
            self._poll(member)
        elif kind < 0.75:
            self._consume(member)
        elif kind < 0.92:
            self._arrive(member)
        elif kind < 0.985:
            self.h.advance(self.random.choice((100, 1_000, 3_000)))
        else:
            self._reset()

    def _poll(self, member: Positions) -> None:
        """It begins at the committed offset in what is given to it."""
        before = member.client.owned
        member.client.poll()
        for gone in before - member.client.owned:
            del member.at[gone]
        for new in member.client.owned - before:
            member.at[new] = self.truth[new]
        if not before:
            member.at = {each: self.truth[each] for each in member.client.owned}

    def _consume(self, member: Positions) -> None:
        client = member.client
        generation = client.epoch if isinstance(client, Consumer) else client.generation
        for partition, (offset, reset) in member.at.items():
            member.at[partition] = (offset + self.random.randrange(1, 9), reset)
            if generation > 0:
                member.late.append((client.member_id, generation, partition, *member.at[partition]))

    def _arrive(self, member: Positions) -> None:
        sent, member.late = member.late, []
        for member_id, generation, partition, offset, reset in sent:
            if commit(self.h, member_id, generation, partition, offset) == 0:
                assert reset == self.truth[partition][1], f"a commit of before reset {self.resets} is over it"
                self.truth[partition] = (offset, reset)
                self.commits += 1

    def _reset(self) -> None:
        if park(self.h):
            return
        for _ in range(self.random.randrange(4)):  # as long as the plan takes
            member = self.random.choice(self.members)
            self.random.choice((self._poll, self._arrive))(member)
        self.resets += 1
        for partition in range(PARTITIONS):
            if commit(self.h, "", -1, partition, 3) == 0:
                self.truth[partition] = (3, self.resets)
        park(self.h, 0)


def eager(h: TwoKinds, name: str) -> Classic:
    return Classic(h, name, cooperative=False)


def cooperative(h: TwoKinds, name: str) -> Classic:
    return CooperativeOfJava(h, name, cooperative=True)


def run(make: Callable[[TwoKinds, str], Classic | Consumer]) -> tuple[int, int]:
    """(how many resets, how many commits of members)."""
    resets = commits = 0
    for seed in range(SEEDS):
        world = World(seed, make)
        for _ in range(400):
            world.step()
        resets, commits = resets + world.resets, commits + world.commits
    return resets, commits


@pytest.mark.parametrize("make", [eager, Consumer])
def test_no_commit_of_before_a_reset_is_written_over_it(make: Callable[[TwoKinds, str], Classic | Consumer]) -> None:
    resets, commits = run(make)
    assert resets > SEEDS
    assert commits > 10 * SEEDS


@pytest.mark.skipif(
    "MUSTER_TEST_COMPILED" in os.environ, reason="compiled code finds functions of its own module at once, not by name"
)
def test_members_that_stay_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: members go on in their epoch, and the reset comes in spite of them."""

    def put_nobody_out(*_: object) -> str:
        return ""

    monkeypatch.setattr(parking, "_put_out_consumers", put_nobody_out)
    monkeypatch.setattr(World, "_reset", _reset_of_a_live_group)
    with pytest.raises(AssertionError, match="a commit of before reset"):
        run(Consumer)


def _reset_of_a_live_group(world: World) -> None:
    """Written in the name of a member: as nobody's it would be refused."""
    park(world.h)
    group = world.h.coordinator._state.consumers.groups.get("g")
    member_id = next(iter(group.members), None) if group is not None else None
    if group is not None and member_id is not None:
        world.resets += 1
        for partition in range(PARTITIONS):
            if commit(world.h, member_id, group.current_of(member_id).epoch, partition, 3) == 0:
                world.truth[partition] = (3, world.resets)
    park(world.h, 0)


def test_cooperative_members_that_are_put_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: they are put out like eager ones, and those that were about to join keep their positions."""
    monkeypatch.setattr(parking, "_put_out_members", _put_out_whoever_is_there)
    with pytest.raises(AssertionError, match="a commit of before reset"):
        run(cooperative)


def _put_out_whoever_is_there(state: Any, group: Any, effects: Effects, now_ms: int) -> str:
    for member in tuple(group.members.values()):
        parking.remove_member(group, member, effects)
    if group.state.value == "Stable":
        parking.prepare_rebalance(state, group, effects, now_ms)
    return ""
