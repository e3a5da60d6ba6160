"""Which pods shall hold a partition: balanced, deterministic, and never changed for a partition that has its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from muster_operator.api.models import OffsetsPartition, Replica

__all__ = ["place"]


def place(
    unplaced: Sequence[OffsetsPartition],
    placed: Iterable[OffsetsPartition],
    pods: Sequence[str],
    replication_factor: int,
) -> Mapping[str, tuple[Replica, ...]]:
    """A place, without log ids yet, for every unplaced partition, by object name.

    A partition that names its replicas or its preferred leader gets those. The others go, by index, to the pods with
    the fewest, the first of `pods` among equals: counts differ by one at most unless partitions name their pods.
    """
    load = Counter(dict.fromkeys(pods, 0))
    for partition in placed:
        load.update(replica.pod for replica in partition.status.replicas)
    named = {each.metadata.name: _named(each, pods)[:replication_factor] for each in unplaced}
    for chosen in named.values():
        load.update(chosen)
    places: dict[str, tuple[Replica, ...]] = {}
    for partition in sorted(unplaced, key=lambda each: each.spec.index):
        chosen = named[partition.metadata.name]
        others = sorted((pod for pod in pods if pod not in chosen), key=lambda pod: load[pod])
        added = others[: replication_factor - len(chosen)]
        load.update(added)
        places[partition.metadata.name] = tuple(Replica(pod) for pod in (*chosen, *added))
    return places


def _named(partition: OffsetsPartition, pods: Sequence[str]) -> tuple[str, ...]:
    """Pods that the partition asks for. A preferred leader that does not exist is only a preference."""
    if partition.spec.replicas:
        return partition.spec.replicas
    preferred = partition.spec.preferred_leader
    return (preferred,) if preferred is not None and preferred in pods else ()
