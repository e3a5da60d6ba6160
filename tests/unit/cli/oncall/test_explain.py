"""`muster explain`: what a name stands for, and what is said of it."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.support.recorded_clusters import NAMESPACE, RecordedServer, recorded

from muster_cli.oncall.explain import NEXT_BY_STATE, Explanation, Kind, explain, find
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.screen import explanation
from muster_cli.oncall.seen import Unreachable
from muster_coordinator.partition_numbers import TRANSACTIONS
from muster_operator.api.durations import format_time
from muster_operator.api.models import PartitionState
from muster_operator.kube.client import Json


async def told_all(objects: Json, asked: str, kind: Kind = "auto", later_s: float = 0.0) -> list[Explanation]:
    now = objects["now"] + later_s
    if objects["leases"]:
        objects["leases"][0]["spec"]["renewTime"] = format_time(now)
    seen = await KubernetesReader(RecordedServer(objects).client, NAMESPACE).look()
    return [explain(each, asked, now) for each in find(seen, asked, kind)]


async def told(objects: Json, asked: str, kind: Kind = "auto", later_s: float = 0.0) -> Explanation:
    (only,) = await told_all(objects, asked, kind, later_s)
    return only


def with_transactions(objects: Json) -> Json:
    """A topic of four transaction partitions beside that of the groups."""
    topic = objects["offsetstopics"][0]
    meta = {**topic["metadata"], "name": "tx"}
    objects["offsetstopics"].append({**topic, "metadata": meta, "spec": {**topic["spec"], "topic": TRANSACTIONS.name}})
    for index, each in enumerate(objects["offsetspartitions"][:4]):
        spec = {**each["spec"], "topicRef": {"name": "tx"}, "index": TRANSACTIONS.first + index}
        meta = {**each["metadata"], "name": f"tx-{TRANSACTIONS.first + index}"}
        objects["offsetspartitions"].append({**each, "metadata": meta, "spec": spec})
    return objects


@pytest.mark.parametrize(
    ("asked", "kind", "partition", "kafka_name"),
    [
        ("orders-3", "auto", "orders-3", "__consumer_offsets-3"),
        ("3", "auto", "orders-3", "__consumer_offsets-3"),
        ("__consumer_offsets-3", "auto", "orders-3", "__consumer_offsets-3"),
        ("t2", "auto", "tx-500002", "__transaction_state-2"),
        ("__transaction_state-2", "auto", "tx-500002", "__transaction_state-2"),
        ("billing", "auto", "orders-1", "__consumer_offsets-1"),
        ("3", "group", "orders-3", "__consumer_offsets-3"),
        ("billing", "transactional-id", "tx-500001", "__transaction_state-1"),
    ],
)
async def test_names_numbers_groups_and_transactional_ids_are_found(
    asked: str, kind: Kind, partition: str, kafka_name: str
) -> None:
    found = await told(with_transactions(recorded("healthy")), asked, kind)
    assert (found.partition, found.kafka_name) == (partition, kafka_name)
    is_named = kind == "auto" and asked != "billing"
    assert ("hashes to number" in found.where[0]) is not is_named


async def test_number_that_clients_know_is_that_of_the_partition_that_a_reshard_has_made() -> None:
    objects = recorded("healthy")
    objects["offsetstopics"][0]["status"]["layout"] = {"base": 2, "partitions": 2}
    assert (await told(objects, "1")).partition == "orders-3"
    assert (await told(objects, "billing")).partition == "orders-3"
    with pytest.raises(Unreachable, match="no cluster there has a partition for t9"):
        await told_all({**objects, "offsetstopics": []}, "t9")


async def test_partition_that_went_over_says_when_from_whom_and_to_whom_it_goes_back() -> None:
    objects = recorded("pod_lost")
    found = await told(objects, "0")
    assert (found.leader, found.epoch, found.needs_person) == ("orders-1", 1, False)
    assert any("went over from orders-0 to orders-1, which took 28 ms" in each for each in found.why)
    assert found.next == ("orders-0 shall lead it, and gets it when no pod has come or gone for 10s.",)
    assert [(each.pod, each.role) for each in found.replicas] == [
        *(("orders-0", "replica"), ("orders-1", "leader"), ("orders-2", "replica"))
    ]


async def test_replicas_of_a_pod_that_is_not_ready_are_replaced_where_there_is_another_pod() -> None:
    objects = recorded("pod_lost")
    objects["pods"][0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert not any("replaced" in each for each in (await told(objects, "2")).next), "three pods, three replicas"
    objects["coordinatorclusters"][0]["spec"]["pods"] = 4
    found = await told(objects, "2")
    assert found.next == ("Replicas on orders-0 are replaced on another pod when they have been away for 10m.",)
    assert "Pods of its replicas that are not ready: orders-0." in found.why


async def test_partition_without_a_majority_says_what_it_needs_and_needs_a_person_after_a_minute() -> None:
    found = await told(recorded("majority_lost"), "0")
    assert (found.leader, found.needs_person, found.state) == (None, False, "Leaderless")
    assert found.why[0].startswith("NoMajority: 1 of 3 replicas can be counted")
    assert "An election needs 2 of its 3 replicas." in found.why
    assert "as soon as most" in found.next[0]
    assert (await told(recorded("majority_lost"), "0", later_s=61)).needs_person


@pytest.mark.parametrize(
    ("spec", "expected"), [({"suspend": True}, "spec.suspend"), ({"hibernate": True}, "spec.hibernate")]
)
async def test_what_keeps_the_operator_from_acting_comes_first(spec: Json, expected: str) -> None:
    objects = recorded("majority_lost")
    objects["coordinatorclusters"][0]["spec"] |= spec
    (only,) = (await told(objects, "0")).next
    assert expected in only


async def test_without_an_operator_nothing_is_decided_but_by_the_replicas() -> None:
    objects = recorded("majority_lost")
    objects["leases"][0]["spec"]["holderIdentity"] = ""
    (only,) = (await told(objects, "0")).next
    assert "No operator acts" in only
    assert "10s" in only
    objects["coordinatorclusters"][0]["spec"]["failover"] = {"nominateAfter": "0s"}
    (only,) = (await told(objects, "0")).next
    assert "elect one of themselves" not in only


async def test_set_that_changes_tells_of_learners_and_of_what_is_deleted() -> None:
    objects = recorded("healthy")
    status = objects["offsetspartitions"][0]["status"]
    status["learners"] = [{"pod": "orders-3", "logId": "log-99"}]
    status["left"] = [{"pod": "orders-4", "logId": "log-98"}]
    status["previousReplicas"] = [*status["replicas"][:2], {"pod": "orders-5", "logId": "log-97"}]
    found = await told(objects, "0")
    assert [each.role for each in found.replicas] == [
        *("leader", "replica", "replica", "before the change", "learner", "leaving")
    ]
    assert "orders-3 gets the log, and is in the next set when it has it." in found.next
    assert "The log on orders-4 is deleted." in found.next


def test_every_state_has_a_next() -> None:
    assert set(NEXT_BY_STATE) == set(PartitionState)


async def test_text_has_all_of_it() -> None:
    objects = recorded("pod_lost")
    found = await told(objects, "billing")
    to = Console(width=140)
    with to.capture() as captured:
        to.print(explanation(found, objects["now"]))
    text = captured.get()
    for part in (
        "shop/orders-1  Led",
        "__consumer_offsets-1 to clients",
        "The group billing hashes to number 1 of 4",
        "log-6",
    ):
        assert part in text
