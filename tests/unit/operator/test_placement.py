"""Placement: balanced, stable, and as a partition asks."""

from __future__ import annotations

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster_operator.api.models import ObjectMeta, OffsetsPartition, OffsetsPartitionSpec, Replica, TopicRef
from muster_operator.plan.observation import Connection, PodView
from muster_operator.plan.placement import place


def up(*names: str, node: dict[str, str] | None = None, zone: dict[str, str] | None = None) -> list[PodView]:
    return [
        PodView(name, number, Connection.UP, node=(node or {}).get(name, ""), zone=(zone or {}).get(name, ""))
        for number, name in enumerate(names)
    ]


def partition(index: int, *, replicas: tuple[str, ...] = (), preferred: str | None = None) -> OffsetsPartition:
    spec = OffsetsPartitionSpec(TopicRef("t"), index, replicas, preferred)
    return OffsetsPartition(ObjectMeta(f"t-{index}", "ns"), spec)


def placed(index: int, pod: str) -> OffsetsPartition:
    base = partition(index)
    return replace(base, status=replace(base.status, replicas=(Replica(pod, f"log-{index}"),)))


@given(st.integers(1, 7), st.integers(0, 60))
def test_counts_differ_by_one_at_most(pods: int, partitions: int) -> None:
    names = [f"c-{n}" for n in range(pods)]
    places = place([partition(index) for index in range(partitions)], (), up(*names), 1)
    counts = Counter(places[f"t-{index}"][0].pod for index in range(partitions))
    assert max(counts[name] for name in names) - min(counts[name] for name in names) <= 1


def test_new_partitions_fill_up_pods_that_hold_fewer() -> None:
    before = [placed(0, "c-0"), placed(1, "c-0"), placed(2, "c-1")]
    places = place([partition(3), partition(4), partition(5)], before, up("c-0", "c-1", "c-2"), 1)
    assert [places[f"t-{n}"] for n in (3, 4, 5)] == [(Replica("c-2"),), (Replica("c-1"),), (Replica("c-2"),)]


def test_partition_that_names_its_replicas_gets_them() -> None:
    places = place([partition(0, replicas=("c-2",)), partition(1)], (), up("c-0", "c-1", "c-2"), 1)
    assert places == {"t-0": (Replica("c-2"),), "t-1": (Replica("c-0"),)}


def test_preferred_leader_holds_the_partition_if_it_exists() -> None:
    places = place([partition(0, preferred="c-1"), partition(1, preferred="gone")], (), up("c-0", "c-1"), 1)
    assert places == {"t-0": (Replica("c-1"),), "t-1": (Replica("c-0"),)}


def test_replicas_of_one_partition_are_on_different_pods() -> None:
    places = place([partition(index) for index in range(10)], (), up("c-0", "c-1", "c-2", "c-3"), 3)
    assert all(len({replica.pod for replica in places[f"t-{index}"]}) == 3 for index in range(10))


@given(st.integers(3, 9), st.integers(1, 60), st.sampled_from([3, 5]))
def test_replicas_and_leaders_of_larger_sets_are_balanced(count: int, partitions: int, factor: int) -> None:
    assume(factor <= count)
    names = [f"c-{n}" for n in range(count)]
    places = place([partition(index) for index in range(partitions)], (), up(*names), factor)
    held = Counter(replica.pod for chosen in places.values() for replica in chosen)
    led = Counter(chosen[0].pod for chosen in places.values())
    assert max(held[name] for name in names) - min(held[name] for name in names) <= 1
    assert max(led[name] for name in names) - min(led[name] for name in names) <= 2


@given(st.integers(0, 30))
def test_replicas_of_one_partition_are_in_different_zones_and_on_different_nodes(partitions: int) -> None:
    names = [f"c-{n}" for n in range(6)]
    zone = {name: "abc"[n % 3] for n, name in enumerate(names)}
    places = place([partition(index) for index in range(partitions)], (), up(*names, node=zone, zone=zone), 3)
    assert all({zone[replica.pod] for replica in chosen} == set("abc") for chosen in places.values())
    one_zone = dict.fromkeys(names, "a")
    places = place([partition(index) for index in range(partitions)], (), up(*names, node=zone, zone=one_zone), 3)
    assert all({zone[replica.pod] for replica in chosen} == set("abc") for chosen in places.values())
