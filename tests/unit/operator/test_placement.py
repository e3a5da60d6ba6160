"""Placement: balanced, stable, and as a partition asks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster_operator.api.models import ObjectMeta, OffsetsPartition, OffsetsPartitionSpec, Replica, TopicRef
from muster_operator.plan.placement import place


def partition(index: int, *, replicas: tuple[str, ...] = (), preferred: str | None = None) -> OffsetsPartition:
    spec = OffsetsPartitionSpec(TopicRef("t"), index, replicas, preferred)
    return OffsetsPartition(ObjectMeta(f"t-{index}", "ns"), spec)


def placed(index: int, pod: str) -> OffsetsPartition:
    base = partition(index)
    return replace(base, status=replace(base.status, replicas=(Replica(pod, f"log-{index}"),)))


@given(st.integers(1, 7), st.integers(0, 60))
def test_counts_differ_by_one_at_most(pods: int, partitions: int) -> None:
    names = [f"c-{n}" for n in range(pods)]
    places = place([partition(index) for index in range(partitions)], (), names, 1)
    counts = Counter(places[f"t-{index}"][0].pod for index in range(partitions))
    assert max(counts[name] for name in names) - min(counts[name] for name in names) <= 1


def test_new_partitions_fill_up_pods_that_hold_fewer() -> None:
    before = [placed(0, "c-0"), placed(1, "c-0"), placed(2, "c-1")]
    places = place([partition(3), partition(4), partition(5)], before, ["c-0", "c-1", "c-2"], 1)
    assert [places[f"t-{n}"] for n in (3, 4, 5)] == [(Replica("c-2"),), (Replica("c-1"),), (Replica("c-2"),)]


def test_partition_that_names_its_replicas_gets_them() -> None:
    places = place([partition(0, replicas=("c-2",)), partition(1)], (), ["c-0", "c-1", "c-2"], 1)
    assert places == {"t-0": (Replica("c-2"),), "t-1": (Replica("c-0"),)}


def test_preferred_leader_holds_the_partition_if_it_exists() -> None:
    places = place([partition(0, preferred="c-1"), partition(1, preferred="gone")], (), ["c-0", "c-1"], 1)
    assert places == {"t-0": (Replica("c-1"),), "t-1": (Replica("c-0"),)}


def test_replicas_of_one_partition_are_on_different_pods() -> None:
    places = place([partition(index) for index in range(10)], (), ["c-0", "c-1", "c-2", "c-3"], 3)
    assert all(len({replica.pod for replica in places[f"t-{index}"]}) == 3 for index in range(10))
