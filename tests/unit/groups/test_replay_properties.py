"""What a log says is the same wherever it is cut, cleaned or reordered by compaction. The logs come from random
requests, transactions and silence included.

`HYPOTHESIS_MAX_EXAMPLES=2000` makes it a longer run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from tests.unit.groups.harness import Harness, LogEntry, Marker, protocols, replay

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import DurableState, GroupCoordinator
from muster_coordinator.requests import groups as m

Log = list[LogEntry | Marker]

CONFIG = GroupConfig(offsets_retention_minutes=30, unpacked_groups=1)
GROUPS = ["g", "h"]
RUNS = settings(
    max_examples=int(os.environ.get("HYPOTHESIS_MAX_EXAMPLES", "100")),
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Written:
    """A log, and what its leader had after each of its entries."""

    log: Log
    states: list[DurableState]


class Leader(Harness):
    """Notes its state behind every entry."""

    def __post_init__(self) -> None:
        self.states: list[DurableState] = []
        super().__post_init__()

    def _append(self, record: Any, transaction: Any) -> None:
        super()._append(record, transaction)
        self.states.append(self.coordinator.durable_state())

    def _append_marker(self, transaction: Any) -> None:
        super()._append_marker(transaction)
        self.states.append(self.coordinator.durable_state())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["commit"] * 4
            + ["simple"] * 3
            + ["transaction"] * 5
            + ["end"] * 3
            + ["rebalance"] * 3
            + ["join", "leave", "delete", "delete-offset", "static", "time", "topics", "reload"]
        ),
        st.sampled_from(GROUPS),
        st.integers(0, 3),
    ),
    min_size=40,
    max_size=80,
)


def written(steps: list[tuple[str, str, int]]) -> Written:
    leader = Leader(CONFIG, check=False)
    for number, (step, group_id, pick) in enumerate(steps):
        take(leader, step, group_id, pick, number)
    event(f"about {len(leader.log) // 20 * 20} entries")
    return Written(leader.log, leader.states)


def take(leader: Leader, step: str, group_id: str, pick: int, number: int) -> None:
    """One step; `number` is the offset that it commits."""
    group = leader.coordinator.group(group_id)
    members = [] if group is None else list(group.members.values())
    topics = (("t" if pick < 2 else "u", ((pick, number, -1, ""),)),)
    if step == "simple":
        leader.commit(group_id, topics=topics)
    elif step == "commit" and group is not None and members:
        member_id = members[pick % len(members)].member_id
        leader.commit(group_id, topics=topics, generation_id=group.generation, member_id=member_id)
    elif step == "transaction":
        # A group with members takes the offsets of a transaction that names none.
        leader.txn_commit(pick % 2 + 1, group_id, topics=topics)
    elif step == "end":
        leader.end_txn(pick % 2 + 1, pick < 2)
    elif step == "join":
        leader.join(group_id, protocols=protocols("range", topics=["u"]), api_version=3)
    elif step == "static":
        leader.join(group_id, group_instance_id="ij"[pick % 2])
    elif step == "rebalance":
        rebalance(leader, group_id)
    elif step == "leave" and members:
        leader.leave(group_id, members[pick % len(members)].member_id)
    elif step == "delete":
        leader.delete(group_id)
    elif step == "delete-offset":
        leader.send(m.OffsetDeleteRequest(group_id, (("u", (2, 3)), ("t", (0,)))))
    elif step == "time":
        leader.advance([4_000, 20_000, 700_000, 2_000_000][pick])
    elif step == "topics":
        leader.topics.missing.add(("u", 3))
        leader.partitions_deleted()
        leader.topics.missing.clear()
    elif step == "reload":
        leader.reload()


def rebalance(leader: Leader, group_id: str) -> None:
    """Everybody that is there, or somebody new, joins and syncs."""
    group = leader.coordinator.group(group_id)
    members = [] if group is None else list(group.members.values())
    for member in members:
        leader.join(group_id, member.member_id, group_instance_id=member.group_instance_id, protocols=member.protocols)
    if not members:
        leader.join(group_id, api_version=3)
    leader.finish_initial_delay(group_id)
    group = leader.coordinator.group(group_id)
    for member in [] if group is None else list(group.members.values()):
        leader.sync(
            group_id,
            leader.group(group_id).generation,
            member.member_id,
            {member.member_id: b"a"},
            group_instance_id=member.group_instance_id,
            protocol_name=None,
            api_version=3,
        )


def state_of(log: Log) -> DurableState:
    coordinator = GroupCoordinator(CONFIG, Harness(check=False).topics, lambda: "x")
    replay(coordinator, log)
    return coordinator.durable_state()


def is_open(log: Log) -> dict[int, int]:
    """Producer id -> offset of the first record of its open transaction."""
    first: dict[int, int] = {}
    for entry in log:
        if isinstance(entry, Marker):
            first.pop(entry.producer_id, None)
        elif entry.producer[0] >= 0:
            first.setdefault(entry.producer[0], entry.offset)
    return first


# -- prefixes ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@RUNS
@given(STEPS)
def test_every_prefix_gives_what_the_leader_had_there(steps: list[tuple[str, str, int]]) -> None:
    run = written(steps)
    follower = GroupCoordinator(CONFIG, Harness(check=False).topics, lambda: "x")
    for end, state in enumerate(run.states, 1):
        replay(follower, run.log[end - 1 : end])
        assert follower.durable_state() == state
        assert state_of(run.log[:end]) == state


# -- compaction --------------------------------------------------------------------------------------------------------


def compacted(log: Log, map_end: int, upto: int, keep_tombstones: bool) -> Log:
    """What a cleaner leaves that has seen the first `map_end` entries and has rewritten the first `upto` of them.

    Of each key the last record stays, an offset of a transaction counts if the transaction was committed; aborted ones
    go. Those of a transaction that is still open stay unless a tombstone removed them; so do all markers.
    """
    seen = log[:map_end]
    still_open = is_open(seen)
    aborted = aborted_records(seen)
    last: dict[bytes, int] = {}
    tombstone: dict[bytes, int] = {}
    for entry in seen:
        if isinstance(entry, LogEntry) and not is_undecided(entry, still_open) and entry.offset not in aborted:
            last[entry.key] = entry.offset
            if entry.value is None:
                tombstone[entry.key] = entry.offset
    cleaned: Log = []
    for entry in log:
        if isinstance(entry, Marker) or entry.offset >= upto:
            cleaned.append(entry)
        elif is_undecided(entry, still_open):
            if tombstone.get(entry.key, -1) < entry.offset:
                cleaned.append(entry)
        elif last.get(entry.key) == entry.offset and (keep_tombstones or entry.value is not None):
            cleaned.append(entry)
    return cleaned


def is_undecided(entry: LogEntry, still_open: dict[int, int]) -> bool:
    return entry.producer[0] >= 0 and entry.offset >= still_open.get(entry.producer[0], entry.offset + 1)


def aborted_records(log: Log) -> set[int]:
    """Offsets of the records of aborted transactions."""
    of_producer: dict[int, list[int]] = defaultdict(list)
    aborted: set[int] = set()
    for entry in log:
        if isinstance(entry, Marker):
            decided = of_producer.pop(entry.producer_id, [])
            if not entry.committed:
                aborted.update(decided)
        elif entry.producer[0] >= 0:
            of_producer[entry.producer[0]].append(entry.offset)
    return aborted


@pytest.mark.long
@pytest.mark.parametrize("keep_tombstones", [True, False])
@RUNS
@given(STEPS)
def test_compaction_changes_nothing_wherever_the_cleaner_is(
    keep_tombstones: bool, steps: list[tuple[str, str, int]]
) -> None:
    """At each position, for a cleaner that knows what comes behind it and for one that does not. What a compacted log
    may lack is in the docstring of DurableState."""
    log = written(steps).log
    whole = state_of(log)
    for upto in range(len(log) + 1):
        for map_end in {upto, len(log)}:
            state = state_of(compacted(log, map_end, upto, keep_tombstones))
            assert (state.groups, state.committed, state.pending) == (whole.groups, whole.committed, whole.pending)
            assert state.implied_groups <= whole.implied_groups
            assert state.producer_epochs.items() <= whole.producer_epochs.items()


# -- order -------------------------------------------------------------------------------------------------------------


def predecessors(log: Log) -> list[set[int]]:
    """Which entries must come before each one. Only these orders hold in every log that says the same: records of one
    key; a marker and the records of its producer; the tombstone of a group and offsets of this group."""
    before: list[set[int]] = [set() for _ in log]
    barrier: dict[Any, int] = {}
    passed: dict[Any, set[int]] = defaultdict(set)  # since the last barrier
    for index, entry in enumerate(log):
        for name, is_barrier in ordered_by(entry):
            if name in barrier:
                before[index].add(barrier[name])
            if is_barrier:
                before[index] |= passed.pop(name, set())
                barrier[name] = index
            else:
                passed[name].add(index)
    return before


def ordered_by(entry: LogEntry | Marker) -> list[tuple[Any, bool]]:
    """What the entry keeps its order with, and whether it does so with everything or with barriers alone."""
    if isinstance(entry, Marker):
        return [(("producer", entry.producer_id), True)]
    names: list[tuple[Any, bool]] = [(("key", entry.key), True)]
    if entry.producer[0] >= 0:
        names.append((("producer", entry.producer[0]), False))
    group = entry.key[2 : 4 + int.from_bytes(entry.key[2:4], "big")]
    if is_group(entry):
        if entry.value is None:
            names.append((("group", group), True))
    elif entry.value is not None:
        names.append((("group", group), False))
    return names


def is_group(entry: LogEntry | Marker) -> bool:
    return isinstance(entry, LogEntry) and entry.key[:2] == b"\x00\x02"


def reordered(log: Log, rank: list[float]) -> Log:
    """The log with whatever may come next in the order of `rank`."""
    before = predecessors(log)
    left = set(range(len(log)))
    order: Log = []
    while left:
        index = min((each for each in left if not before[each] & left), key=rank.__getitem__)
        left.remove(index)
        order.append(log[index])
    return order


def shown_by(log: Log, now_ms: int) -> object:
    """What clients see of a coordinator that has loaded the log, and the timers that it starts."""
    h = Harness(CONFIG, check=False)
    h.now_ms = now_ms
    h.log = log
    h.reload()
    groups = [(h.describe(group_id), h.fetch(group_id, None, require_stable=True)) for group_id in GROUPS]
    return groups, h.timers, h.coordinator.offset_count, sorted(h.group_ids())


@pytest.mark.long
@RUNS
@given(STEPS, st.integers(0, 200), st.booleans(), st.randoms(use_true_random=False))
def test_order_of_different_keys_does_not_matter(
    steps: list[tuple[str, str, int]], upto: int, keep_tombstones: bool, random: Any
) -> None:
    """Groups before their offsets, behind them, and mixed, of a log that is compacted up to some point."""
    run = written(steps)
    assume(run.log)
    log = compacted(run.log, len(run.log), upto, keep_tombstones)
    state, shown = state_of(log), shown_by(log, 0)
    ranks: list[list[float]] = [[random.random() for _ in log] for _ in range(3)]
    ranks.append([not is_group(entry) for entry in log])
    ranks.append([is_group(entry) for entry in log])
    ranks.append([-index for index in range(len(log))])
    for rank in ranks:
        other = reordered(log, rank)
        event(f"order is another one: {other != log}")
        assert state_of(other) == state
        assert shown_by(other, 0) == shown


def test_what_must_keep_its_order_does_and_nothing_else() -> None:
    """A check of the check: an offset behind the tombstone of its group stays there, one of another group moves."""
    h = Harness(CONFIG)
    h.commit("g", 1)
    h.delete("g")
    h.commit("g", 2)
    h.commit("h", 3)
    moved = reordered(h.log, [-index for index in range(len(h.log))])
    assert [entry.offset for entry in moved] == [4, 0, 2, 1, 3]
