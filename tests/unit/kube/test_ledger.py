"""What was issued is in the ledger before anybody is called, whoever else writes it, and the statuses follow."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from muster_operator.api.models import OffsetsPartition, OffsetsPartitionStatus, PartitionState
from muster_operator.kube import store as store_module
from muster_operator.kube.ledger import KEY
from muster_operator.kube.store import KubeStore
from muster_operator.store.port import ClusterKey, ConflictError, NotFoundError, StoreError

C = ClusterKey("ns", "c")
LEDGER = "/api/v1/namespaces/ns/configmaps/muster-issued-uid-t"


class Objects:
    """An API server: objects by path, compared and swapped by resourceVersion. `before_write` may do something first,
    `lost` loses so many answers to writes that were done."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.writes: list[str] = []
        self.lost = 0

    async def get(self, path: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        if path not in self.objects:
            raise NotFoundError(path)
        return deepcopy(self.objects[path])

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        path = f"{path}/{body['metadata']['name']}"
        if path in self.objects:
            raise ConflictError("it exists")
        return self._write(path, body)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        path = path.removesuffix("/status")
        if path not in self.objects:
            raise NotFoundError(path)
        there = self.objects[path]
        if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise ConflictError("the object has been modified")
        return self._write(path, {**there, **body, "metadata": {**there["metadata"], **body["metadata"]}})

    def _write(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.objects[path] = deepcopy(body)
        self.writes.append(path.rpartition("/")[2])
        if self.lost:
            self.lost -= 1
            raise StoreError("no answer")
        return body

    def issued(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.objects[LEDGER]["data"][KEY])
        return decoded


def partition(index: int, epoch: int = 5, leader: str = "c-0", version: int = 10) -> dict[str, Any]:
    meta = {"name": f"t-{index}", "namespace": "ns", "uid": f"uid-{index}", "resourceVersion": str(version)}
    replicas = [{"pod": f"c-{pod}", "logId": f"log-{pod}"} for pod in range(3)]
    status = {"leader": leader, "epoch": epoch, "ledEpoch": epoch, "state": "Led", "replicas": replicas}
    return {"metadata": meta, "spec": {"topicRef": {"name": "t"}, "index": index}, "status": status}


@pytest.fixture
def api() -> Objects:
    return Objects()


@pytest.fixture
async def store(api: Objects) -> KubeStore:
    return await operator(api)


async def operator(api: Objects) -> KubeStore:
    """One that begins to act, and sees the objects as they are."""
    store = KubeStore(api, lambda: 1)  # type: ignore[arg-type]  # the part that it uses
    topic_meta = {"name": "t", "namespace": "ns", "uid": "uid-t", "resourceVersion": "1"}
    store.deliver("offsetstopics", None, {"metadata": topic_meta, "spec": {"clusterRef": {"name": "c"}}})
    for index in range(3):
        path = f"/apis/muster.dev/v1alpha1/namespaces/ns/offsetspartitions/t-{index}"
        store.deliver("offsetspartitions", None, deepcopy(api.objects.setdefault(path, partition(index))))
    await store.load_ledgers()
    return store


async def seen(store: KubeStore) -> tuple[OffsetsPartition, ...]:
    return (await store.observe(C)).partitions


def electing(status: OffsetsPartitionStatus, pod: str, epoch: int) -> OffsetsPartitionStatus:
    return replace(status, leader=pod, epoch=epoch, state=PartitionState.ELECTING, reason="Electing")


async def issue(store: KubeStore, pod: str = "c-1") -> list[OffsetsPartition | BaseException]:
    return await asyncio.gather(
        *(
            store.record_leadership(each, electing(each.status, pod, each.status.epoch + 1))
            for each in await seen(store)
        ),
        return_exceptions=True,
    )


async def test_epochs_that_are_issued_together_are_one_write(store: KubeStore, api: Objects) -> None:
    told: list[ClusterKey] = []
    store.watch(told.append)
    told.clear()
    after = await issue(store)
    assert api.writes == ["muster-issued-uid-t"]
    assert api.issued() == {"0": [6, "c-1"], "1": [6, "c-1"], "2": [6, "c-1"]}
    assert [*await seen(store)] == after
    assert {(each.status.leader, each.status.epoch, each.status.state) for each in await seen(store)} == {
        ("c-1", 6, PartitionState.ELECTING)
    }
    assert C in told
    owner = api.objects[LEDGER]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("OffsetsTopic", "uid-t")


async def test_success_goes_to_the_status_and_needs_no_ledger(store: KubeStore, api: Objects) -> None:
    await issue(store)
    api.writes.clear()
    first = (await seen(store))[0]
    after = await store.record_leadership(first, replace(first.status, state=PartitionState.LED, led_epoch=6))
    assert api.writes == ["t-0"]
    assert (await seen(store))[0] == after
    assert api.objects["/apis/muster.dev/v1alpha1/namespaces/ns/offsetspartitions/t-0"]["status"]["epoch"] == 6


async def test_two_operators_never_issue_one_epoch_to_two_pods(store: KubeStore, api: Objects) -> None:
    other = await operator(api)
    first, second = await asyncio.gather(issue(store, "c-1"), issue(other, "c-2"))
    won = [len([each for each in results if isinstance(each, OffsetsPartition)]) for results in (first, second)]
    assert sorted(won) == [0, 3]
    winner = "c-1" if won[0] else "c-2"
    assert api.issued() == {str(index): [6, winner] for index in range(3)}
    for each in (store, other):
        assert {(one.status.leader, one.status.epoch) for one in await seen(each)} == {(winner, 6)}
    again = await issue(other if won[0] else store, "c-0")
    assert {each.status.epoch for each in again if isinstance(each, OffsetsPartition)} == {7}


async def test_next_operator_knows_what_was_issued_and_is_not_on_the_statuses(store: KubeStore, api: Objects) -> None:
    await issue(store)
    assert {(one.status.leader, one.status.epoch) for one in await seen(await operator(api))} == {("c-1", 6)}


async def test_write_whose_end_nobody_knows_is_read_before_the_next_one(store: KubeStore, api: Objects) -> None:
    api.lost = 1
    assert {type(each) for each in await issue(store)} == {StoreError}
    results = await issue(store, "c-2")
    assert {type(each) for each in results} == {ConflictError}
    assert {(one.status.leader, one.status.epoch) for one in await seen(store)} == {("c-1", 6)}
    assert {each.status.epoch for each in await issue(store, "c-2") if isinstance(each, OffsetsPartition)} == {7}


async def test_bug_in_a_write_does_not_leave_anybody_waiting(store: KubeStore, api: Objects) -> None:
    api._write = lambda path, body: {}  # type: ignore[method-assign]
    assert {type(each) for each in await asyncio.wait_for(issue(store), 10)} == {KeyError}


async def test_change_of_spec_keeps_the_record_and_a_status_of_somebody_else_ends_it_but_not_its_epoch(
    store: KubeStore,
) -> None:
    await issue(store)
    before = (await seen(store))[0]
    changed = partition(0, version=50)
    changed["spec"]["preferredLeader"] = "c-2"
    store.deliver("offsetspartitions", "MODIFIED", changed)
    after = (await seen(store))[0]
    assert (after.status, after.spec.preferred_leader) == (before.status, "c-2")
    assert after.metadata.resource_version != before.metadata.resource_version
    other = partition(0, version=51)
    other["status"]["highWatermark"] = 99
    store.deliver("offsetspartitions", "MODIFIED", other)
    status = (await seen(store))[0].status
    assert (status.epoch, status.leader, status.state, status.high_watermark) == (6, "c-1", PartitionState.ELECTING, 99)


async def test_record_of_what_is_not_so_any_more_conflicts(store: KubeStore, api: Objects) -> None:
    before = (await seen(store))[0]
    await issue(store)
    api.writes.clear()
    with pytest.raises(ConflictError):
        await store.record_leadership(before, electing(before.status, "c-2", 9))
    with pytest.raises(ConflictError):
        await store.record_leadership(before, replace(before.status, following=3))
    assert api.writes == []


async def test_another_set_is_issued_by_the_ledger_and_recorded_on_the_status(store: KubeStore, api: Objects) -> None:
    first = (await seen(store))[0]
    smaller = replace(electing(first.status, "c-1", 6), replicas=first.status.replicas[:2])
    await store.record_leadership(first, smaller)
    assert api.writes == ["muster-issued-uid-t", "t-0"]
    assert (await seen(store))[0].status == smaller


async def test_epoch_that_was_issued_counts_also_when_the_status_could_not_be_written(
    store: KubeStore, api: Objects
) -> None:
    first = (await seen(store))[0]
    api.objects["/apis/muster.dev/v1alpha1/namespaces/ns/offsetspartitions/t-0"]["metadata"]["resourceVersion"] = "60"
    with pytest.raises(ConflictError):
        await store.record_leadership(
            first, replace(electing(first.status, "c-1", 6), replicas=first.status.replicas[:2])
        )
    status = (await seen(store))[0].status
    assert (status.epoch, status.leader, len(status.replicas)) == (6, "c-1", 3)


async def test_status_that_stays_behind_is_written_after_a_while(
    store: KubeStore, api: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "FOLLOW_AFTER_S", 0.0)
    monkeypatch.setattr(store_module, "FOLLOW_EVERY_S", 0.0)
    await issue(store)
    api.writes.clear()
    following = asyncio.create_task(store.follow_ledgers())
    async with asyncio.timeout(20):
        while len(api.writes) < 3:
            await asyncio.sleep(0)
    following.cancel()
    assert sorted(api.writes) == ["t-0", "t-1", "t-2"]
    statuses = [each["status"] for path, each in api.objects.items() if "offsetspartitions" in path]
    assert {(each["leader"], each["epoch"], each["state"]) for each in statuses} == {("c-1", 6, "Electing")}
    assert all("+" not in each.metadata.resource_version for each in await seen(store))


async def test_ledger_that_nobody_understands_counts_as_none(store: KubeStore, api: Objects) -> None:
    await issue(store)
    api.objects[LEDGER]["data"][KEY] = "{"
    assert {one.status.epoch for one in await seen(await operator(api))} == {5}
