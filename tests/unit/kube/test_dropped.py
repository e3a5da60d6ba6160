"""An API server with older definitions drops fields of a status. That is no reason to write it again and again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from tests.simulation.operating.objects import Json
from tests.unit.operator.storm_kube import StormApi

from muster_operator.api.models import (
    ClusterRef,
    CoordinatorCluster,
    CoordinatorClusterSpec,
    OffsetsPartition,
    OffsetsPartitionSpec,
    OffsetsTopic,
    OffsetsTopicSpec,
    PartitionState,
    Resource,
    TopicRef,
)
from muster_operator.kube.objects import collection_path
from muster_operator.kube.store import KubeStore

KINDS: dict[type[Resource], tuple[Any, dict[str, Any], str]] = {
    CoordinatorCluster: (CoordinatorClusterSpec(), {"volume_size": "10Gi", "led": 3}, "volumeSize"),
    OffsetsTopic: (OffsetsTopicSpec(ClusterRef("c"), 1, 3), {"partitions": 3, "led": 3}, "led"),
    OffsetsPartition: (
        OffsetsPartitionSpec(TopicRef("t"), 0),
        {"following": 3, "state": PartitionState.LED, "epoch": 1},
        "following",
    ),
}


class Older(StormApi):
    """Drops these fields of every status. `writes`: of statuses."""

    def __init__(self, drops: tuple[str, ...]) -> None:
        super().__init__()
        self.drops = drops
        self.writes = 0

    async def apply(self, path: str, body: Json) -> Json:
        return await super().apply(path, self._without(body))

    async def replace(self, path: str, body: Json) -> Json:
        return self._ask("PUT", path, self._without(body))

    def _without(self, body: Json) -> Json:
        self.writes += 1
        return {**body, "status": {name: each for name, each in body["status"].items() if name not in self.drops}}


async def prepared(kind: type[Resource], drops: tuple[str, ...]) -> tuple[Older, KubeStore]:
    api = Older(drops)
    spec = KINDS[kind][0]
    body = {"metadata": {"name": "c", "namespace": "ns"}, "spec": to_builtins(spec)}
    api.objects.handle("POST", collection_path(kind, "ns"), {}, body)
    store = KubeStore(api.as_client(), lambda _: 1)
    await store.load()
    return api, store


def present(store: KubeStore, kind: type[Resource]) -> Any:
    return store.seen._cache(kind).get(("ns", "c"))  # type: ignore[type-var]  # one of the three kinds


async def write(store: KubeStore, kind: type[Resource], **more: Any) -> None:
    """What a plan asks for as long as the object does not say it."""
    seen = present(store, kind)
    wanted = replace(seen.status, **{**KINDS[kind][1], **more})
    if wanted != seen.status:
        name = {CoordinatorCluster: "cluster", OffsetsTopic: "topic", OffsetsPartition: "partition"}[kind]
        await getattr(store, f"write_{name}_status")(seen, wanted)


@pytest.mark.parametrize("kind", KINDS)
async def test_status_whose_fields_are_dropped_is_written_once(kind: type[Resource]) -> None:
    api, store = await prepared(kind, (KINDS[kind][2],))
    for _ in range(5):
        await write(store, kind)
    assert api.writes == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_written_when_there_is_news_or_somebody_else_has_written(kind: type[Resource]) -> None:
    api, store = await prepared(kind, (KINDS[kind][2],))
    await write(store, kind)
    await write(store, kind, observed_generation=4)
    assert api.writes == 2
    for _ in range(3):
        await write(store, kind, observed_generation=4)
    assert api.writes == 2
    api.objects.lose_status(kind.plural, "ns", "c")
    await store.load()
    await write(store, kind, observed_generation=4)
    assert api.writes == 3


@pytest.mark.parametrize("kind", KINDS)
async def test_definitions_that_are_brought_up_to_date_get_the_field_with_the_next_operator(
    kind: type[Resource],
) -> None:
    api, _ = await prepared(kind, (KINDS[kind][2],))
    api.drops = ()
    store = KubeStore(api.as_client(), lambda _: 2)
    await store.load()
    await write(store, kind)
    seen = present(store, kind)
    assert replace(seen.status, **KINDS[kind][1]) == seen.status
    await write(store, kind)
    assert api.writes == 1
