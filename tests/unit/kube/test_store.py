"""The Kubernetes store without an API server: objects that do not decode, keys, and events for people."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from muster_operator.api.conditions import Condition, Reason
from muster_operator.api.models import ObjectMeta
from muster_operator.kube.events import PASSING, PENDING_EVENTS, EventRecorder, is_normal, noteworthy
from muster_operator.kube.store import KubeStore
from muster_operator.store.port import ClusterKey, StoreError


class RecordingClient:
    """Keeps what would be sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, dict[str, Any]]] = []
        self.arrived = asyncio.Event()
        self.failing = False
        self.spec: dict[str, Any] = {}
        """Of what is replaced: the answer has it, the request for its status has not."""

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return {"spec": self.spec, **self._answer("replace", path, body)}

    async def apply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._answer("apply", path, body)

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._answer("create", path, body)

    def _answer(self, verb: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.sent.append((verb, path, body))
        self.arrived.set()
        if self.failing:
            raise StoreError("away")
        return body


def raw(name: str, version: int, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version), "generation": 2}
    return {"metadata": meta, "spec": spec, **more}


@pytest.fixture
def client() -> RecordingClient:
    return RecordingClient()


@pytest.fixture
def store(client: RecordingClient) -> KubeStore:
    return KubeStore(client, lambda _: 1)  # type: ignore[arg-type]  # the part that it uses


async def test_object_that_does_not_decode_is_left_out_and_says_so_itself(
    store: KubeStore, client: RecordingClient
) -> None:
    store.seen.deliver("coordinatorclusters", "ADDED", raw("a", 1, {"pods": 2}))
    store.seen.deliver("coordinatorclusters", "MODIFIED", raw("a", 2, {"pods": -1}))
    assert (await store.observe(ClusterKey("ns", "a"))).cluster is None
    await asyncio.wait_for(client.arrived.wait(), 10)
    ((verb, path, body),) = client.sent
    assert (verb, path.endswith("/coordinatorclusters/a/status")) == ("replace", True)
    ready, stalled = body["status"]["conditions"]
    assert (ready["status"], ready["reason"], ready["observedGeneration"]) == ("False", "InvalidSpec", 2)
    assert (stalled["type"], stalled["status"]) == ("Stalled", "True")
    assert body["status"]["observedGeneration"] == 2, "else tools that follow kstatus go on waiting"
    assert "pods" in ready["message"]
    store.seen.deliver("coordinatorclusters", "MODIFIED", raw("a", 3, {"pods": 1}))
    assert (await store.observe(ClusterKey("ns", "a"))).cluster is not None


async def test_object_that_says_already_that_it_is_invalid_is_not_written_again(
    store: KubeStore, client: RecordingClient
) -> None:
    store.seen.deliver("coordinatorclusters", "ADDED", raw("a", 1, {"pods": -1}))
    await asyncio.wait_for(client.arrived.wait(), 10)
    written = client.sent[0][2]
    client.arrived.clear()
    store.seen.deliver("coordinatorclusters", "MODIFIED", raw("a", 2, {"pods": -1}, status=written["status"]))
    store.seen.deliver("coordinatorclusters", "ADDED", raw("b", 3, {"pods": -1}))
    await asyncio.wait_for(client.arrived.wait(), 10)
    assert [path.split("/")[-2] for _, path, _ in client.sent] == ["a", "b"]


def test_partition_before_its_topic_is_told_under_both_keys(store: KubeStore) -> None:
    told: list[ClusterKey] = []
    store.watch(told.append)
    store.seen.deliver("offsetspartitions", None, raw("t-0", 1, {"topicRef": {"name": "t"}, "index": 0}))
    store.seen.deliver("offsetstopics", None, raw("t", 2, {"clusterRef": {"name": "c"}}))
    assert told == [ClusterKey("ns", ""), ClusterKey("ns", "c"), ClusterKey("ns", "")]


def test_list_that_shows_an_older_object_than_is_known_is_asked_for_again(client: RecordingClient) -> None:
    """As after a restore under a running operator: nothing else would tell, if it has nothing to write."""
    asked: list[str] = []
    subject = KubeStore(client, lambda _: 1, list_again=lambda: asked.append("again"))  # type: ignore[arg-type]
    subject.seen.deliver("offsetstopics", None, raw("t", 5, {"clusterRef": {"name": "c"}}))
    subject.seen.deliver("offsetstopics", "MODIFIED", raw("t", 9, {"clusterRef": {"name": "c"}}))
    subject.seen.deliver("offsetstopics", "MODIFIED", raw("t", 8, {"clusterRef": {"name": "c"}}))
    subject.seen.deliver("offsetstopics", None, raw("t", 9, {"clusterRef": {"name": "c"}}))
    assert asked == []
    subject.seen.deliver("offsetstopics", None, raw("t", 7, {"clusterRef": {"name": "c"}}))
    assert asked == ["again"]


async def test_objects_being_deleted_are_not_observed(store: KubeStore) -> None:
    going = raw("c", 1, {})
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    store.seen.deliver("coordinatorclusters", None, going)
    assert (await store.observe(ClusterKey("ns", "c"))).cluster is None


def ready(status: str, reason: str, message: str = "") -> tuple[Condition, ...]:
    return (Condition("Ready", status, reason, message),)  # type: ignore[arg-type]  # a literal by construction


def told(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> Condition | None:
    """The one that is told of, if any."""
    found = noteworthy(before, after)
    assert len(found) <= 1
    return found[0] if found else None


def test_event_is_for_a_new_reason_that_lasts() -> None:
    led = ready("True", "Led")
    assert told(ready("False", "Electing"), led) == led[0]
    assert told((), led) == led[0]
    assert told(led, led) is None
    assert told(led, ready("False", "Electing")) is None
    assert told(led, ready("True", "Moving")) is None
    assert told(ready("True", "Moving"), led) == led[0]
    assert told(led, ready("False", "PodDown")) is not None
    accepted = ready("False", "DataLossAllowed", "what only the others had is lost")
    assert told(ready("False", "NoMajority"), accepted) == accepted[0]


def test_event_is_for_damage_that_was_not_known() -> None:
    def damaged(message: str) -> tuple[Condition, ...]:
        return (*ready("True", "Led"), Condition("Damaged", "True", "LogDamaged", message))

    once, again = damaged("pod c-1: at byte 7"), damaged("pod c-1: at byte 7; pod c-2: at byte 9")
    assert told(ready("True", "Led"), once) == once[1]
    assert told(once, again) == again[1]
    assert told(again, again) is None
    assert told(once, ready("True", "Led")) is None
    assert told(once, (*ready("False", "PodDown"), once[1])) == ready("False", "PodDown")[0]
    both = noteworthy(ready("True", "Led"), (*ready("False", "PodDown"), once[1]))
    assert both == (once[1], ready("False", "PodDown")[0]), "neither hides the other"


def test_progress_that_somebody_has_asked_for_is_normal_and_trouble_is_a_warning() -> None:
    normal = {each for each in Reason if is_normal(ready("False", each)[0])}
    assert {"CreatingPods", "ScalingDown", "ChangingReplicas", "RollingOut", "RebalanceDeferred"} <= normal
    warnings = {"RolloutHalted", "PodsNotReady", "PartitionsLeaderless", "PodDown", "NoTopic", "UnderReplicated"}
    assert not warnings & normal
    assert is_normal(ready("True", "AllPartitionsLed")[0])
    assert not is_normal(Condition("Damaged", "True", "LogDamaged"))
    assert not normal & PASSING, "those are no events"


def test_what_was_said_last_is_not_said_again_and_a_deferral_once_whatever_it_waits_for(
    client: RecordingClient,
) -> None:
    recorder = EventRecorder(client, "operator-0")  # type: ignore[arg-type]  # the part that it uses

    def put(condition: Condition, uid: str = "u") -> bool:
        """Whether it is news."""
        pending = recorder.pending
        recorder.put("CoordinatorCluster", ObjectMeta("c", "ns", uid), condition)
        return recorder.pending > pending

    def waits(why: str) -> Condition:
        return Condition("Rebalancing", "True", "RebalanceDeferred", why)

    led = ready("True", "AllPartitionsLed", "all led")[0]
    assert put(led)
    assert not put(led), "an election was in between, which is no event"
    assert put(led, "another object")
    assert put(waits("a rollout"))
    assert not put(waits("a re-shard")), "told once"
    assert not put(led)
    assert put(Condition("Ready", "True", "Rebalanced", "all even"))
    assert put(waits("a rollout")), "the next one is told again"
    assert put(ready("False", "PodDown", "c-1")[0])
    assert put(ready("False", "PodDown", "c-2")[0])
    assert put(led)


async def test_events_are_posted_in_order_and_a_failure_does_not_end_the_posting(
    store: KubeStore, client: RecordingClient
) -> None:
    recorder = EventRecorder(client, "operator-0")  # type: ignore[arg-type]  # the part that it uses
    subject = KubeStore(client, lambda _: 1, None, recorder)  # type: ignore[arg-type]
    subject.seen.deliver("coordinatorclusters", None, raw("c", 1, {}))
    cluster = (await subject.observe(ClusterKey("ns", "c"))).cluster
    assert cluster is not None
    client.failing = True
    recorder.put("CoordinatorCluster", cluster.metadata, ready("False", "NoTopic", "nothing to lead")[0])
    recorder.put("CoordinatorCluster", cluster.metadata, ready("True", "AllPartitionsLed")[0])
    recorder.put("CoordinatorCluster", cluster.metadata, Condition("Damaged", "True", "LogDamaged"))
    posting = asyncio.create_task(recorder.run())
    async with asyncio.timeout(10):
        while len(client.sent) < 3:
            client.arrived.clear()
            await client.arrived.wait()
    posting.cancel()
    first, second, third = (body for _, _, body in client.sent)
    assert (first["type"], first["reason"], first["note"]) == ("Warning", "NoTopic", "nothing to lead")
    assert (second["type"], second["regarding"]["uid"]) == ("Normal", "uid-c")
    assert (third["type"], third["reason"]) == ("Warning", "LogDamaged")


async def test_events_beyond_the_limit_are_dropped(client: RecordingClient, store: KubeStore) -> None:
    recorder = EventRecorder(client, "operator-0")  # type: ignore[arg-type]  # the part that it uses
    store.seen.deliver("coordinatorclusters", None, raw("c", 1, {}))
    cluster = (await store.observe(ClusterKey("ns", "c"))).cluster
    assert cluster is not None
    for number in range(PENDING_EVENTS + 5):
        recorder.put("CoordinatorCluster", cluster.metadata, ready("True", "Led", f"in epoch {number}")[0])
    assert recorder.pending == PENDING_EVENTS


async def test_event_tells_of_a_log_that_left_its_set_and_is_deleted(client: RecordingClient) -> None:
    recorder = EventRecorder(client, "operator-0")  # type: ignore[arg-type]  # the part that it uses
    store = KubeStore(client, lambda _: 1, None, recorder)  # type: ignore[arg-type]
    store.seen.deliver("offsetstopics", None, raw("t", 1, {"clusterRef": {"name": "c"}}))
    left = [{"pod": "c-1", "logId": "gone"}, {"pod": "c-2", "logId": "used-again"}, {"pod": "c-3", "logId": "waits"}]
    spec = {"topicRef": {"name": "t"}, "index": 0}
    store.seen.deliver("offsetspartitions", None, raw("t-0", 1, spec, status={"left": left}))
    (seen,) = (await store.observe(ClusterKey("ns", "c"))).partitions
    now = replace(seen.status, left=seen.status.left[2:], learners=seen.status.left[1:2])
    client.spec = spec
    await store.write_partition_status(seen, now)
    assert recorder.pending == 1
    posting = asyncio.create_task(recorder.run())
    async with asyncio.timeout(10):
        while client.sent[-1][0] != "create":
            client.arrived.clear()
            await client.arrived.wait()
    posting.cancel()
    event = client.sent[-1][2]
    assert (event["reason"], event["type"], event["regarding"]["name"]) == ("ReplicaRemoved", "Normal", "t-0")
    assert event["note"] == "log gone on pod c-1, which left the set, is deleted"
