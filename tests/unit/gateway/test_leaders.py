"""What the gateway remembers of groups that clients name."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster_gateway.leaders import REMEMBERED_BYTES, Leaders


@pytest.mark.parametrize(
    "group", ["g%d", "g%d" + "x" * 32_000, "g%d" + "\U0001f600" * 8_000], ids=["short", "long", "wide"]
)
def test_groups_of_any_length_take_no_more_memory_than_is_said(group: str) -> None:
    leaders = Leaders()
    tracemalloc.start()
    try:
        for number in range(150_000 if len(group) < 10 else 3_000):
            leaders.learn(group % number, 1)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert REMEMBERED_BYTES // 2 < held < REMEMBERED_BYTES * 1.2
    assert leaders.bytes <= REMEMBERED_BYTES


def test_group_in_use_stays_whatever_else_is_named() -> None:
    leaders = Leaders(10_000)
    leaders.learn("in-use", 1)
    for number in range(1000):
        leaders.learn(f"other-{number}", 2)
        assert leaders.get("in-use") == 1
    assert leaders.get("other-0") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 2), st.booleans())))
def test_what_is_forgotten_is_not_counted(steps: list[tuple[str, int, bool]]) -> None:
    leaders = Leaders(1_000)
    for group, pod, learnt in steps:
        if learnt:
            leaders.learn(group, pod)
            assert leaders.get(group) == pod
        else:
            before = leaders.get(group)
            leaders.forget(group, pod)
            assert leaders.get(group) == (None if before == pod else before)
    assert leaders.bytes <= 1_000
    for group in "abcdef":
        for pod in range(3):
            leaders.forget(group, pod)
    assert (len(leaders), leaders.bytes) == (0, 0)
