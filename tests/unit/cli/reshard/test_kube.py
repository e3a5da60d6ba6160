"""What `muster reshard` asks of Kubernetes, without an API server."""

from __future__ import annotations

from typing import Any

import pytest

from muster_cli.errors import CliError
from muster_cli.reshard import kube as reshard_kube
from muster_cli.reshard.kube import KubernetesSite
from muster_operator.store.port import ConflictError

API = "/apis/muster.dev/v1alpha1/namespaces/ns"


def topic(name: str, created: str, cluster: str = "c", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "creationTimestamp": created, "resourceVersion": "7"}
    return {"metadata": meta, "spec": {"clusterRef": {"name": cluster}, "partitions": 4, **spec}}


def partition(name: str, topic: str, state: str) -> dict[str, Any]:
    spec = {"topicRef": {"name": topic}, "index": 0}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec, "status": {"state": state}}


class Client:
    """The lists of an API server, and what is written to it."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self._lists = lists
        self.replaced: list[tuple[str, dict[str, Any]]] = []
        self.deleted: list[tuple[str, str]] = []
        self.conflicts = 0

    async def list_all(self, path: str, *, label_selector: str = "") -> dict[str, Any]:
        return {"items": self._lists[path.rpartition("/")[2]] if label_selector in ("", "muster.dev/cluster=c") else []}

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.conflicts:
            self.conflicts -= 1
            raise ConflictError("changed meanwhile")
        self.replaced.append((path, body))
        return body

    async def delete(self, path: str, uid: str) -> None:
        self.deleted.append((path, uid))


def site(client: Client, internal_topic: str = "__consumer_offsets") -> KubernetesSite:
    return KubernetesSite(client, "ns", "c", internal_topic)  # type: ignore[arg-type]  # the part that it uses


TOPICS = [topic("other", "2026-01-01", "d"), topic("new", "2026-01-03"), topic("old", "2026-01-02", reshard=None)]


async def test_oldest_topic_of_the_cluster_is_asked_and_nothing_else_of_it_changes() -> None:
    client = Client(offsetstopics=TOPICS)
    assert (await site(client).topic()).metadata.name == "old"
    await site(client).ask(12)
    await site(client).ask(None)
    (path, asked), (_, taken_back) = client.replaced
    assert path == f"{API}/offsetstopics/old"
    assert (asked["kind"], asked["metadata"]["resourceVersion"]) == ("OffsetsTopic", "7")
    assert asked["spec"] == {"clusterRef": {"name": "c"}, "partitions": 4, "reshard": {"partitions": 12}}
    assert "reshard" not in taken_back["spec"]


async def test_call_that_fails_is_repeated_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(offsetstopics=TOPICS)
    monkeypatch.setattr(reshard_kube, "RETRY_S", 0.0)
    client.conflicts = 2
    await site(client).ask(12)
    assert len(client.replaced) == 1
    monkeypatch.setattr(reshard_kube, "UNREACHABLE_FOR_S", -1.0)
    client.conflicts = 1
    with pytest.raises(CliError, match="changed meanwhile"):
        await site(client).ask(12)


async def test_cluster_without_a_topic_is_an_error() -> None:
    with pytest.raises(CliError, match="no OffsetsTopic of __consumer_offsets of CoordinatorCluster c"):
        await site(Client(offsetstopics=TOPICS[:1])).topic()


async def test_topic_of_transactions_is_asked_where_it_is_meant() -> None:
    transactions = topic("tx", "2026-01-01", topic="__transaction_state")
    client = Client(offsetstopics=[*TOPICS, transactions])
    await site(client, "__transaction_state").ask(3)
    ((path, asked),) = client.replaced
    assert path == f"{API}/offsetstopics/tx"
    assert asked["spec"]["reshard"] == {"partitions": 3}


async def test_retired_partitions_of_the_topic_are_deleted() -> None:
    found = [partition("a", "old", "Retired"), partition("b", "old", "Led"), partition("c", "new", "Retired")]
    client = Client(offsetstopics=TOPICS, offsetspartitions=found)
    assert await site(client).drop_retired() == 1
    assert client.deleted == [(f"{API}/offsetspartitions/a", "uid-a")]


async def test_pods_are_those_that_have_an_address() -> None:
    pods = [
        {"metadata": {"name": "c-0"}, "status": {"podIP": "10.0.0.1"}},
        {"metadata": {"name": "c-1"}, "status": {}},
    ]
    assert await site(Client(pods=pods)).pods() == {"c-0": "10.0.0.1:9640"}
