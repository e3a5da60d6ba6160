"""What is recorded of a topic is compared and swapped before any pod is called, and read anew after a conflict."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import pytest
from msgspec.structs import replace

from muster_operator.api.models import LeadershipRecord, OffsetsTopic, PartitionState, Replica
from muster_operator.kube.store import KubeStore
from muster_operator.plan.record import as_recorded
from muster_operator.store.port import ClusterKey, ConflictError, NotFoundError, StoreError

C = ClusterKey("ns", "c")
PATH = "/apis/muster.dev/v1alpha1/namespaces/ns"
TOPIC = f"{PATH}/offsetstopics/t"
REPLICAS = tuple(Replica(f"c-{pod}", f"log-{pod}") for pod in range(3))


class Objects:
    """An API server: objects by path, compared and swapped by resourceVersion. `lost`: answers to writes that were
    done and do not arrive."""

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

    async def list_all(self, path: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        plural = path.rpartition("/")[2]
        items = [deepcopy(each) for name, each in self.objects.items() if f"/{plural}/" in name]
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        path = path.removesuffix("/status")
        if path not in self.objects:
            raise NotFoundError(path)
        there = self.objects[path]
        if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise ConflictError("the object has been modified")
        self.version += 1
        meta = {**there["metadata"], "resourceVersion": str(self.version)}
        self.objects[path] = {**there, "status": deepcopy(body["status"]), "metadata": meta}
        self.writes.append(path.rpartition("/")[2])
        if self.lost:
            self.lost -= 1
            raise StoreError("no answer")
        return deepcopy(self.objects[path])


def topic() -> dict[str, Any]:
    meta = {"name": "t", "namespace": "ns", "uid": "uid-t", "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"clusterRef": {"name": "c"}}, "status": {"led": 3}}


def partition(index: int) -> dict[str, Any]:
    meta = {"name": f"t-{index}", "namespace": "ns", "uid": f"uid-{index}", "resourceVersion": "10"}
    replicas = [{"pod": each.pod, "logId": each.log_id} for each in REPLICAS]
    status = {"leader": "c-0", "epoch": 5, "ledEpoch": 5, "state": "Led", "replicas": replicas}
    return {"metadata": meta, "spec": {"topicRef": {"name": "t"}, "index": index}, "status": status}


@pytest.fixture
def api() -> Objects:
    return Objects()


@pytest.fixture
def store(api: Objects) -> KubeStore:
    return operator(api)


def operator(api: Objects) -> KubeStore:
    """One that begins to act, and sees the objects as they are."""
    store = KubeStore(api, lambda _: 1)  # type: ignore[arg-type]  # the part that it uses
    store.seen.deliver("offsetstopics", None, deepcopy(api.objects.setdefault(TOPIC, topic())))
    for index in range(3):
        path = f"{PATH}/offsetspartitions/t-{index}"
        store.seen.deliver("offsetspartitions", None, deepcopy(api.objects.setdefault(path, partition(index))))
    return store


async def seen(store: KubeStore) -> OffsetsTopic:
    (found,) = (await store.observe(C)).topics
    return found


async def leaders(store: KubeStore) -> set[tuple[str | None, int, PartitionState]]:
    """As a plan would see them."""
    records = await store.observe(C)
    told = [as_recorded(records.topics[0], each).status for each in records.partitions]
    return {(each.leader, each.epoch, each.state) for each in told}


async def issue(store: KubeStore, pod: str = "c-1") -> OffsetsTopic:
    """Record this pod as the leader of all three partitions, in the next epoch, as a plan would."""
    found = await seen(store)
    before = found.status.leaderships
    first = LeadershipRecord("c-0", 5, 5, REPLICAS).line
    records = [LeadershipRecord.parse(before.get(str(index), first)) for index in range(3)]
    after = {str(index): replace(each, leader=pod, epoch=each.epoch + 1).line for index, each in enumerate(records)}
    return await store.record_leadership(found, after)


async def test_leaders_that_are_recorded_together_are_one_write_and_are_told(store: KubeStore, api: Objects) -> None:
    told: list[ClusterKey] = []
    store.watch(told.append)
    told.clear()
    after = await issue(store)
    assert api.writes == ["t"]
    line = "epoch=6 led=5 leader=c-1 replicas=c-0/log-0,c-1/log-1,c-2/log-2"
    assert api.objects[TOPIC]["status"]["leaderships"] == {"0": line, "1": line, "2": line}
    assert api.objects[TOPIC]["status"]["led"] == 3, "the rest of the status stays"
    assert await seen(store) == after
    assert await leaders(store) == {("c-1", 6, PartitionState.ELECTING)}
    assert C in told


async def test_two_operators_never_issue_one_epoch_to_two_pods(store: KubeStore, api: Objects) -> None:
    other = operator(api)
    first, second = await asyncio.gather(issue(store, "c-1"), issue(other, "c-2"), return_exceptions=True)
    assert {type(first), type(second)} == {OffsetsTopic, ConflictError}
    winner = "c-1" if isinstance(first, OffsetsTopic) else "c-2"
    for each in (store, other):
        assert await leaders(each) == {(winner, 6, PartitionState.ELECTING)}, "the loser has read the record anew"
    await issue(other if winner == "c-1" else store, "c-0")
    lines = api.objects[TOPIC]["status"]["leaderships"].values()
    assert {LeadershipRecord.parse(line).epoch for line in lines} == {7}


async def test_next_operator_knows_what_was_recorded_and_is_not_shown(store: KubeStore, api: Objects) -> None:
    await issue(store)
    assert await leaders(operator(api)) == {("c-1", 6, PartitionState.ELECTING)}


async def test_record_whose_answer_was_lost_is_read_before_the_next_one(store: KubeStore, api: Objects) -> None:
    api.lost = 1
    with pytest.raises(StoreError):
        await issue(store)
    with pytest.raises(ConflictError):
        await issue(store, "c-2")
    assert await leaders(store) == {("c-1", 6, PartitionState.ELECTING)}
    await issue(store, "c-2")
    assert await leaders(store) == {("c-2", 7, PartitionState.ELECTING)}


async def test_record_for_a_topic_that_is_gone_takes_it_out_of_the_cache(store: KubeStore, api: Objects) -> None:
    found = await seen(store)
    del api.objects[TOPIC]
    with pytest.raises(NotFoundError):
        await store.record_leadership(found, {})
    assert (await store.observe(C)).topics == ()


async def test_status_of_a_partition_that_is_known_to_have_changed_is_no_request(
    store: KubeStore, api: Objects
) -> None:
    (before, *_) = (await store.observe(C)).partitions
    await store.write_partition_status(before, replace(before.status, following=3))
    with pytest.raises(ConflictError):
        await store.write_partition_status(before, replace(before.status, following=2))
    assert api.writes == ["t-0"]


async def test_status_that_shows_another_leader_is_an_event_though_the_reason_is_the_same(api: Objects) -> None:
    told: list[str] = []

    class Events:
        def put(self, kind: str, meta: object, condition: Any) -> None:
            told.append(condition.message)

    store = KubeStore(api, lambda _: 1, None, Events())  # type: ignore[arg-type]  # the parts that it uses
    path = f"{PATH}/offsetspartitions/t-0"
    raw = partition(0)
    raw["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "Led", "message": "c-0, 3 follow"}]
    api.objects[path] = raw
    store.seen.deliver("offsetstopics", None, topic())
    store.seen.deliver("offsetspartitions", None, deepcopy(raw))
    for leader, epoch, message in (("c-0", 5, "c-0, 2 follow"), ("c-1", 6, "c-1, 2 follow")):
        (found,) = (await store.observe(C)).partitions
        (ready,) = found.status.conditions
        conditions = (replace(ready, message=message),)
        await store.write_partition_status(
            found, replace(found.status, leader=leader, epoch=epoch, conditions=conditions)
        )
    assert told == ["c-1, 2 follow"]


async def test_operator_goes_on_from_a_store_that_was_restored_while_it_ran(store: KubeStore, api: Objects) -> None:
    """Every object is older than what the operator knows. Without a list it would conflict for ever."""
    backup = deepcopy(api.objects)
    await issue(store, "c-1")
    await issue(store, "c-2")
    api.objects, api.version = backup, api.version + 1_000
    with pytest.raises(ConflictError):
        await issue(store, "c-1")
    assert await leaders(store) == {("c-0", 5, PartitionState.LED)}
    await issue(store, "c-1")
    assert await leaders(store) == {("c-1", 6, PartitionState.ELECTING)}
