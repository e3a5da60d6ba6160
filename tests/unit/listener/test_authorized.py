"""Authorisation in Kafka's order: what is denied never reaches a handler, and the rest of a request still does."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.listener.test_handlers import image, refuse_early

from muster_coordinator.listener.authorization import CLUSTER_NAME, Operation, Resource
from muster_coordinator.listener.handlers.authorized import authorized
from muster_coordinator.listener.handlers.table import handler_table
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.answers import refusal

Right = tuple[Operation, Resource, str]

READ_G = (Operation.READ, Resource.GROUP, "g")
READ_T = (Operation.READ, Resource.TOPIC, "t")
DESCRIBE_G = (Operation.DESCRIBE, Resource.GROUP, "g")
DELETE_G = (Operation.DELETE, Resource.GROUP, "g")
SEE_T = (Operation.DESCRIBE, Resource.TOPIC, "t")
TXN = (Operation.WRITE, Resource.TRANSACTIONAL_ID, "x")


class Rights:
    """Allows what it was given, and notes what it was asked."""

    def __init__(self, *rights: Right) -> None:
        self.rights = set(rights)
        self.asked: list[Right] = []

    def allows(self, principal: str, operation: Operation, resource: Resource, name: str) -> bool:
        assert principal == "User:someone"
        self.asked.append((operation, resource, name))
        return (operation, resource, name) in self.rights


class Connection:
    principal = "User:someone"


class Asked:
    version = 12

    def __init__(self, request: Any) -> None:
        self.connection = Connection()
        self.request = request
        self.got: list[Any] = []

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: int) -> None:
        self.answer(refusal(self.request, code))  # type: ignore[arg-type]


OFFSETS = (("t", ((0, 5, -1, ""),)), ("u", ((1, 6, -1, ""),)))


def commit() -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest("g", -1, "", None, -1, OFFSETS, 8)


def ask(request: Any, answer: Any, *rights: Right) -> tuple[Any, list[Any], Rights]:
    """(answer, requests that reached the handler, rights): the handler answers ``answer(request)``."""
    reached: list[Any] = []

    def handler(got: Any, exchange: Any) -> None:
        reached.append(got)
        exchange.answer(answer(got))

    who = Rights(*rights)
    asked = Asked(request)
    authorized({type(request): handler}, who)[type(request)](request, asked)  # type: ignore[arg-type]
    (response,) = asked.got
    return response, reached, who


def committed(request: Any) -> Any:
    return m.OffsetCommitResponse(tuple((t, tuple((p[0], 0) for p in parts)) for t, parts in request.topics))


@pytest.mark.parametrize(
    "request_",
    [
        m.SyncGroupRequest("g", 1, "m", None, None, None, (), 5),
        m.HeartbeatRequest("g", 1, "m", None),
        m.LeaveGroupRequest("g", ()),
        m.JoinGroupRequest("g", 1, 1, "m", None, "consumer", (), None, "c", "/h", 9),
    ],
    ids=lambda request: type(request).__name__,
)
def test_members_need_to_read_their_group(request_: Any) -> None:
    response, reached, who = ask(request_, lambda r: "done")
    assert (response.error_code, reached, who.asked) == (30, [], [READ_G])
    assert ask(request_, lambda r: "done", READ_G)[0] == "done"


def test_commit_asks_for_the_group_before_the_topics() -> None:
    response, reached, who = ask(commit(), committed)
    assert response.topics == (("t", ((0, 30),)), ("u", ((1, 30),)))
    assert reached == []
    assert who.asked == [READ_G], "topics are not asked for when the group is denied"


def test_commit_refuses_the_topics_that_may_not_be_read_and_commits_the_others() -> None:
    response, (reached,), _ = ask(commit(), committed, READ_G, READ_T)
    assert [t for t, _ in reached.topics] == ["t"]
    assert dict(response.topics) == {"t": ((0, 0),), "u": ((1, 29),)}


def test_commit_of_nothing_that_may_be_read_never_reaches_the_group() -> None:
    response, reached, _ = ask(commit(), committed, READ_G)
    assert reached == []
    assert dict(response.topics) == {"t": ((0, 29),), "u": ((1, 29),)}


@pytest.mark.parametrize(("rights", "code"), [((), 53), ((TXN,), 30), ((TXN, READ_G), 29), ((TXN, READ_G, READ_T), 0)])
def test_transactional_commit_asks_for_the_transaction_the_group_and_the_topics(
    rights: tuple[Right, ...], code: int
) -> None:
    request = m.TxnOffsetCommitRequest("x", "g", 1, 0, -1, "", None, OFFSETS[:1], 3)
    response, _, _ = ask(request, lambda r: m.TxnOffsetCommitResponse((("t", ((0, 0),)),)), *rights)
    assert response.topics == (("t", ((0, code),)),)


def test_offset_deletion_needs_to_delete_the_group_and_read_the_topics() -> None:
    request = m.OffsetDeleteRequest("g", (("t", (0,)), ("u", (1,))))

    def deleted(r: Any) -> Any:
        return m.OffsetDeleteResponse(0, tuple((t, tuple((p, 0) for p in parts)) for t, parts in r.topics))

    assert ask(request, deleted)[0].error_code == 30
    response, _, _ = ask(request, deleted, DELETE_G, READ_T)
    assert response.error_code == 0
    assert dict(response.topics) == {"t": ((0, 0),), "u": ((1, 29),)}


def fetched(request: w.OffsetFetchRequests) -> w.OffsetFetchResponses:
    every = (("t", (0,)), ("u", (1,)))
    return w.OffsetFetchResponses(
        tuple(
            m.OffsetFetchResponse(
                g.group_id,
                0,
                tuple(
                    (t, tuple((p, 7, -1, "", 0) for p in parts))
                    for t, parts in (every if g.topics is None else g.topics)
                ),
            )
            for g in request.groups
        )
    )


def test_fetch_answers_each_group_in_the_order_of_the_request() -> None:
    groups = tuple(m.OffsetFetchRequest(g, None, -1, (("t", (0,)),), False) for g in ("h", "g"))
    response, (reached,), _ = ask(w.OffsetFetchRequests(groups), fetched, DESCRIBE_G, SEE_T)
    assert [g.group_id for g in reached.groups] == ["g"]
    assert [(g.group_id, g.error_code) for g in response.groups] == [("h", 30), ("g", 0)]


def test_fetch_of_named_topics_says_which_may_not_be_seen_and_of_all_leaves_them_out() -> None:
    named = m.OffsetFetchRequest("g", None, -1, (("t", (0,)), ("u", (1,))), False)
    response, _, _ = ask(w.OffsetFetchRequests((named,)), fetched, DESCRIBE_G, SEE_T)
    assert dict(response.groups[0].topics) == {"t": ((0, 7, -1, "", 0),), "u": ((1, -1, -1, "", 29),)}
    everything = m.OffsetFetchRequest("g", None, -1, None, False)
    response, _, _ = ask(w.OffsetFetchRequests((everything,)), fetched, DESCRIBE_G, SEE_T)
    assert [t for t, _ in response.groups[0].topics] == ["t"]


def test_list_shows_all_groups_to_who_may_describe_the_cluster_and_its_own_to_others() -> None:
    def listed(r: Any) -> Any:
        return m.ListGroupsResponse(0, tuple(m.ListedGroup(g, "", "Empty", "classic") for g in ("g", "h")))

    cluster = (Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    assert len(ask(m.ListGroupsRequest(), listed, cluster)[0].groups) == 2
    assert [g.group_id for g in ask(m.ListGroupsRequest(), listed, DESCRIBE_G)[0].groups] == ["g"]


def test_describe_and_delete_refuse_each_group_for_itself() -> None:
    described = w.DescribeGroupsRequest(tuple(m.DescribeGroupRequest(g, 6) for g in ("g", "h")))
    response, (reached,), _ = ask(
        described,
        lambda r: w.DescribeGroupsResponse(tuple(m.DescribedGroup(g.group_id, 0) for g in r.groups)),
        DESCRIBE_G,
    )
    assert [g.group_id for g in reached.groups] == ["g"]
    assert {g.group_id: g.error_code for g in response.groups} == {"g": 0, "h": 30}
    response, _, _ = ask(
        w.DeleteGroupsRequest(("g", "h")),
        lambda r: w.DeleteGroupsResponse(tuple(m.DeleteGroupResponse(g, 0) for g in r.group_ids)),
        DELETE_G,
    )
    assert {r.group_id: r.error_code for r in response.results} == {"g": 0, "h": 30}


def test_coordinator_of_a_group_is_told_to_who_may_describe_it() -> None:
    request = w.FindCoordinatorRequest(w.KEY_TYPE_GROUP, ("h", "g"))
    response, _, _ = ask(
        request, lambda r: w.FindCoordinatorResponse(tuple(w.Coordinator(k, 1, "a", 2) for k in r.keys)), DESCRIBE_G
    )
    assert [(c.key, c.error_code, c.node_id) for c in response.coordinators] == [("h", 30, -1), ("g", 0, 1)]
    transaction = w.FindCoordinatorRequest(w.KEY_TYPE_TRANSACTION, ("x",))
    response, _, _ = ask(transaction, lambda r: w.FindCoordinatorResponse(()))
    assert response.coordinators[0].error_code == 53


def test_markers_need_a_cluster_action() -> None:
    marker = w.TransactionMarker(1, 0, True, 0, (("__consumer_offsets", (3,)),))
    response, reached, _ = ask(w.WriteTxnMarkersRequest((marker,)), lambda r: None)
    assert response.markers == ((1, (("__consumer_offsets", ((3, 31),)),)),)
    assert reached == []


def test_topics_are_hidden_from_metadata_offsets_and_fetch() -> None:
    view = ClusterView()
    view.update(image())
    table = handler_table(view, {}, refuse_early, Rights())

    def answer(request: Any) -> Any:
        asked = Asked(request)
        table[type(request)](request, asked)  # type: ignore[arg-type]
        return asked.got[0]

    assert answer(w.MetadataRequest(None)).topics == ()
    named = w.MetadataRequest((w.MetadataRequestTopic("orders", bytes(16)),))
    assert answer(named).topics[0].error_code == 29
    assert answer(named).topics[0].partitions == ()
    offsets = answer(w.ListOffsetsRequest(-1, 0, (("orders", ((0, -1, -1),)),)))
    assert offsets.topics == (("orders", ((0, 29, -1, -1, -1),)),)
    fetch = answer(w.FetchRequest(0, 1, 0, -1, (w.FetchTopic("orders", bytes(16), ((0, -1, 5),)),)))
    assert fetch.topics[0].partitions == ((0, 29, -1),)
