"""Property: what was reported durable is there after any crash, and what is there stays there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.log.harness import Pod

PARTITIONS = st.integers(0, 2)
APPEND = st.tuples(st.just("append"), PARTITIONS, st.sampled_from([0, 100, 300, 900]), st.integers(1, 4))
COMMIT = st.tuples(st.just("commit"), PARTITIONS, st.sampled_from([0, 100, 300, 900]), st.integers(1, 4))
RARE: st.SearchStrategy[tuple[object, ...]] = st.one_of(
    st.just(("flush",)),
    st.just(("flush",)),
    st.just(("give_files_back",)),
    st.just(("new_epoch",)),
    st.tuples(st.just("truncate"), PARTITIONS, st.integers(0, 20)),
    st.just(("restart",)),
    st.tuples(st.just("reboot"), st.integers(0, 2**32)),
)
STEPS = st.lists(st.tuples(st.lists(st.one_of(COMMIT, APPEND), min_size=1, max_size=12), RARE), min_size=4, max_size=12)


def check(pod: Pod) -> None:
    """After a start. What was recovered counts from here on: it was shown."""
    for p, log in pod.logs.items():
        content = pod.content(p)
        assert content == pod.written[p][: len(content)]
        assert log.end_offset >= pod.acknowledged[p]
        assert log.epochs.last_epoch <= pod.epoch
        pod.written[p] = content
        pod.acknowledged[p] = log.end_offset


def act(pod: Pod, step: tuple[object, ...]) -> None:
    name, *arguments = step
    if name == "new_epoch":
        pod.epoch += 1
        return
    if name == "truncate":
        partition, back = arguments
        assert isinstance(partition, int)
        assert isinstance(back, int)
        arguments = [partition, max(0, pod.logs[partition].end_offset - back)]
    method: Callable[..., object] = getattr(pod, str(name))
    method(*arguments)
    if name in ("restart", "reboot"):
        check(pod)


@pytest.mark.long
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.integers(0, 2**32))
def test_acknowledged_batches_survive_any_sequence_of_crashes(
    steps: list[tuple[list[tuple[object, ...]], tuple[object, ...]]], seed: int
) -> None:
    pod = Pod(partitions=3, segment_bytes=1500, journal_bytes=4096, buffer_bytes=1000)
    for appends, rare in steps:
        for step in (*appends, rare):
            act(pod, step)
    pod.reboot(seed)
    check(pod)
    pod.restart()
    check(pod)
