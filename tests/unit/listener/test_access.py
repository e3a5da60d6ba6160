"""Each guard: what is refused, with Kafka's code in Kafka's place, and what the handler still gets (KafkaApis)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast, get_args, get_type_hints

import pytest
from tests.unit.listener.asked import NO_PODS
from tests.unit.listener.asked import Asked as AnswerAlone
from tests.unit.listener.test_handlers import refuse_early

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.table import OPEN, guarded_table
from muster_coordinator.listener.audit import AuditLog
from muster_coordinator.listener.handlers.groups import GroupHandlers
from muster_coordinator.listener.handlers.table import handler_table
from muster_coordinator.pod.cluster_view import ClusterView, topic_id
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import security as s
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.security.acls import Acl, Authorizer, Operation, PatternType, Permission, ResourceType
from muster_coordinator.security.identity import Identity
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.served import KAFKA_4_4

ME = "User:me"
GROUP, TOPIC, CLUSTER, TXN = (
    ResourceType.GROUP,
    ResourceType.TOPIC,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, DESCRIBE, DELETE = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DELETE
YES, NO, UNKNOWN = topic_id("yes"), topic_id("no"), b"nobody knows me!"
ONE = ((0, 5, -1, "m"),)
Right = tuple[ResourceType, str, Operation]


class Connection:
    identity = Identity(ME, "10.0.0.1")


class Asked:
    """In place of an Exchange. `handed`: requests that came to the handler, which answers with `coordinator`."""

    def __init__(self, request: Any, coordinator: Callable[[Any], Any] | Any, version: int) -> None:
        self.request = request
        self.version = version
        self.connection = Connection()
        self.coordinator = coordinator
        self.handed: list[Any] = []
        self.got: list[Any] = []

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self.request, code))


def view() -> ClusterView:
    view = ClusterView()
    brokers = (Broker(0, "a", 1, "pod-0"),)
    view.update(MetadataImage(1, 1, "c", brokers, 50, (), (DeclaredTopic("yes", 2), DeclaredTopic("no", 2))))
    return view


def acls(*rights: Right) -> Authorizer:
    return Authorizer(
        [Acl(kind, PatternType.LITERAL, name, ME, "*", what, Permission.ALLOW) for kind, name, what in rights]
    )


def ask(
    request: Any, *rights: Right, coordinator: Any = None, version: int = 12, audit: AuditLog | None = None
) -> Asked:
    asked = Asked(request, coordinator, version)

    def handler(handed: Any, answer: Any) -> None:
        asked.handed.append(handed)
        if isinstance(coordinator, ErrorCode):
            answer.refuse(coordinator)
        else:
            answer.answer(coordinator(handed) if callable(coordinator) else coordinator)

    table = guarded_table({type(request): handler}, lambda: acls(*rights), view().name_of, audit)
    table[type(request)](request, asked)  # type: ignore[arg-type]
    assert len(asked.got) == 1
    return asked


def asked_of_a_pod(request: Any, *rights: Right, version: int = 12) -> Any:
    """The answer of the real handlers behind their guards."""
    asked = Asked(request, None, version)
    known = view()
    table = guarded_table(handler_table(known, {}, refuse_early, NO_PODS), lambda: acls(*rights), known.name_of)
    table[type(request)](request, asked)  # type: ignore[arg-type]
    (response,) = asked.got
    return response


@pytest.mark.interpreted
def test_every_served_request_has_a_guard_or_needs_no_right() -> None:
    known = view()
    table = guarded_table(handler_table(known, {}, refuse_early, NO_PODS), lambda: acls(), known.name_of)
    plain = handler_table(known, {}, refuse_early, NO_PODS)
    assert set(table) == set(plain)
    for api in KAFKA_4_4.all:
        decoded = get_type_hints(api.decode_request)["return"]
        for request_type in get_args(decoded) or (decoded,):
            assert request_type in table, api.name
    assert {each.__name__ for each in OPEN} == {
        "ApiVersionsRequest",
        "OtherProtocolRequest",
        "SaslAuthenticateRequest",
        "SaslHandshakeRequest",
    }


JOIN = m.JoinGroupRequest("g", 1, 1, "mem", None, "consumer", (), None, "c", "h", 9)


@pytest.mark.parametrize(
    ("request_", "refused"),
    [
        (JOIN, m.JoinGroupResponse(30)),
        (m.SyncGroupRequest("g", 1, "mem", None, "consumer", "range", (), 5), m.SyncGroupResponse(30)),
        (m.HeartbeatRequest("g", 1, "mem", None), m.HeartbeatResponse(30)),
    ],
)
def test_member_needs_to_read_the_group(request_: Any, refused: Any) -> None:
    for rights in ([], [(GROUP, "other", READ)], [(GROUP, "g", DESCRIBE)], [(TOPIC, "g", READ)]):
        asked = ask(request_, *rights)
        assert (asked.got, asked.handed) == ([refused], [])
    asked = ask(request_, (GROUP, "g", READ), coordinator="answer")
    assert (asked.got, asked.handed) == (["answer"], [request_])


def commit(*topics: tuple[str, Any]) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest("g", -1, "", None, -1, topics, 9)


def test_commit_needs_to_read_the_group_and_then_each_topic() -> None:
    request = commit(("no", ONE), ("yes", ONE))
    assert ask(request).got == [m.OffsetCommitResponse((("no", ((0, 30),)), ("yes", ((0, 30),))))]
    asked = ask(request, (GROUP, "g", READ))
    assert asked.got == [m.OffsetCommitResponse((("no", ((0, 29),)), ("yes", ((0, 29),))))]
    assert asked.handed == [], "Kafka does not ask the group either"
    rights: list[Right] = [(GROUP, "g", READ), (TOPIC, "yes", READ)]
    asked = ask(request, *rights, coordinator=m.OffsetCommitResponse((("yes", ((0, 0),)),)))
    assert asked.got == [m.OffsetCommitResponse((("no", ((0, 29),)), ("yes", ((0, 0),))))]
    assert asked.handed == [commit(("yes", ONE))]


def test_errors_of_a_commit_that_kafka_finds_first_come_first() -> None:
    request = commit(("a", ONE), ("missing", ONE), ("no", ONE), ("b", ONE))
    rights: list[Right] = [(GROUP, "g", READ), *((TOPIC, name, READ) for name in ("a", "b", "missing"))]
    found = m.OffsetCommitResponse((("missing", ((0, 3),)), ("a", ((0, 0),)), ("b", ((0, 12),))))
    (answer,) = ask(request, *rights, coordinator=found).got
    assert answer.topics == (("missing", ((0, 3),)), ("no", ((0, 29),)), ("a", ((0, 0),)), ("b", ((0, 12),)))


def test_refusal_by_the_pod_is_that_of_what_was_handed_to_it() -> None:
    rights: list[Right] = [(GROUP, "g", READ), (TOPIC, "yes", READ)]
    (answer,) = ask(commit(("no", ONE), ("yes", ONE)), *rights, coordinator=ErrorCode.NOT_COORDINATOR).got
    assert answer.topics == (("no", ((0, 29),)), ("yes", ((0, 16),)))


def test_commit_by_id_asks_by_the_topics_name() -> None:
    request = m.OffsetCommitByIdRequest("g", -1, "", None, ((YES, ONE), (UNKNOWN, ONE), (NO, ONE)), 10)
    (answer,) = ask(request).got
    assert answer == m.OffsetCommitByIdResponse(tuple((each, ((0, 30),)) for each in (YES, UNKNOWN, NO)))
    found = m.OffsetCommitByIdResponse(((UNKNOWN, ((0, 100),)), (YES, ((0, 0),))))
    asked = ask(request, (GROUP, "g", READ), (TOPIC, "yes", READ), coordinator=found)
    assert asked.handed[0].topics == ((YES, ONE), (UNKNOWN, ONE))
    assert asked.got[0].topics == ((UNKNOWN, ((0, 100),)), (NO, ((0, 29),)), (YES, ((0, 0),)))


def test_transactional_commit_needs_the_transactional_id_then_group_then_topics() -> None:
    request = m.TxnOffsetCommitRequest("tx", "g", 1, 0, -1, "", None, (("yes", ONE), ("no", ONE)), 3)
    codes = []
    for rights in (
        [],
        [(GROUP, "g", READ)],
        [(TXN, "tx", WRITE)],
        [(TXN, "tx", WRITE), (GROUP, "g", READ)],
        [(TXN, "tx", DESCRIBE), (GROUP, "g", READ), (TOPIC, "yes", READ)],
    ):
        (answer,) = ask(request, *rights).got
        codes.append({code for _, partitions in answer.topics for _, code in partitions})
    assert codes == [{53}, {53}, {30}, {29}, {53}]
    rights = [(TXN, "tx", WRITE), (GROUP, "g", READ), (TOPIC, "yes", READ)]
    asked = ask(request, *rights, coordinator=m.TxnOffsetCommitResponse((("yes", ((0, 0),)),)))
    assert asked.got[0].topics == (("no", ((0, 29),)), ("yes", ((0, 0),)))


def test_transactional_commit_by_id_needs_what_one_by_name_needs() -> None:
    topics = ((YES, ONE), (UNKNOWN, ONE), (NO, ONE))
    request = m.TxnOffsetCommitByIdRequest("tx", "g", 1, 0, -1, "", None, topics, 6)
    refused = (
        (53, [(GROUP, "g", READ)]),
        (30, [(TXN, "tx", WRITE)]),
        (53, [(TXN, "tx", DESCRIBE), (GROUP, "g", READ)]),
    )
    for code, rights in refused:
        (answer,) = ask(request, *rights).got
        assert answer == m.TxnOffsetCommitByIdResponse(tuple((each, ((0, code),)) for each in (YES, UNKNOWN, NO)))
    found = m.TxnOffsetCommitByIdResponse(((UNKNOWN, ((0, 100),)), (YES, ((0, 0),))))
    all_rights = [(TXN, "tx", WRITE), (GROUP, "g", READ), (TOPIC, "yes", READ)]
    asked = ask(request, *all_rights, coordinator=found)
    assert asked.handed[0].topics == ((YES, ONE), (UNKNOWN, ONE))
    assert asked.got[0] == m.TxnOffsetCommitByIdResponse(((UNKNOWN, ((0, 100),)), (NO, ((0, 29),)), (YES, ((0, 0),))))


def test_offset_delete_needs_to_delete_the_group_and_read_the_topics() -> None:
    request = m.OffsetDeleteRequest("g", (("yes", (0, 1)), ("no", (0,))))
    assert ask(request, (GROUP, "g", READ)).got == [m.OffsetDeleteResponse(30)]
    rights: list[Right] = [(GROUP, "g", DELETE), (TOPIC, "yes", READ)]
    asked = ask(request, *rights, coordinator=m.OffsetDeleteResponse(0, (("yes", ((0, 0), (1, 0))),)))
    assert asked.got == [m.OffsetDeleteResponse(0, (("no", ((0, 29),)), ("yes", ((0, 0), (1, 0)))))]
    asked = ask(request, *rights, coordinator=m.OffsetDeleteResponse(69))
    assert asked.got == [m.OffsetDeleteResponse(69)], "an error of the group stands alone"


FOUND = ((0, 5, -1, "m", 0),)


def test_fetch_needs_to_describe_the_group_and_each_topic() -> None:
    topics = (("no", (0,)), ("yes", (0,)))
    request = w.OffsetFetchRequests(
        tuple(m.OffsetFetchRequest(group, None, -1, topics, False) for group in ("hidden", "g")), False
    )
    found = w.OffsetFetchResponses((m.OffsetFetchResponse("g", 0, (("yes", FOUND),)),))
    asked = ask(request, (GROUP, "g", READ), (TOPIC, "yes", WRITE), coordinator=found)
    hidden, group = asked.got[0].groups
    assert (hidden.group_id, hidden.error_code) == ("hidden", 30)
    assert group == m.OffsetFetchResponse("g", 0, (("yes", FOUND), ("no", ((0, -1, -1, "", 29),))))
    assert [each.topics for each in asked.handed[0].groups] == [(("yes", (0,)),)]
    failed = w.OffsetFetchResponses((m.OffsetFetchResponse("g", 16),))
    assert ask(request, (GROUP, "g", READ), coordinator=failed).got[0].groups[1] == m.OffsetFetchResponse("g", 16)


def test_fetch_of_all_topics_shows_those_that_may_be_described() -> None:
    request = w.OffsetFetchRequests((m.OffsetFetchRequest("g", None, -1, None, False),), False)
    found = w.OffsetFetchResponses((m.OffsetFetchResponse("g", 0, (("no", FOUND), ("yes", FOUND))),))
    asked = ask(request, (GROUP, "g", DESCRIBE), (TOPIC, "yes", DESCRIBE), coordinator=found)
    assert asked.got[0].groups[0].topics == (("yes", FOUND),)


def test_fetch_by_id() -> None:
    topics = ((NO, (0,)), (UNKNOWN, (0,)), (YES, (0,)))
    request = w.OffsetFetchByIdRequests((m.OffsetFetchByIdRequest("g", None, -1, topics, False),), False)
    unknown = (UNKNOWN, ((0, -1, -1, "", 100),))
    found = w.OffsetFetchByIdResponses((m.OffsetFetchByIdResponse("g", 0, ((YES, FOUND), unknown)),))
    asked = ask(request, (GROUP, "g", DESCRIBE), (TOPIC, "yes", DESCRIBE), coordinator=found)
    assert asked.got[0].groups[0].topics == ((YES, FOUND), (NO, ((0, -1, -1, "", 29),)), unknown)
    assert ask(request, coordinator=w.OffsetFetchByIdResponses(())).got[0].groups[0].error_code == 30


def test_describe_needs_to_describe_and_says_what_else_one_may() -> None:
    groups = tuple(m.DescribeGroupRequest(name, 5) for name in ("g", "hidden"))
    request = w.DescribeGroupsRequest(groups, True)
    found = w.DescribeGroupsResponse((m.DescribedGroup("g", 0, group_state="Empty"),), w.ALL_GROUP_OPERATIONS)
    asked = ask(request, (GROUP, "g", READ), coordinator=found)
    hidden, group = asked.got[0].groups
    assert (hidden.group_id, hidden.error_code) == ("hidden", 30)
    assert (group.group_id, group.authorized_operations) == ("g", 1 << READ | 1 << DESCRIBE)
    encoded = APIS[15].encode_response(5, asked.got[0])
    assert (1 << READ | 1 << DESCRIBE).to_bytes(4, "big") in encoded
    quiet = ask(w.DescribeGroupsRequest(groups), (GROUP, "g", READ), coordinator=w.DescribeGroupsResponse(found.groups))
    assert quiet.got[0].groups[1].authorized_operations is None


def test_list_shows_all_groups_to_who_may_describe_the_cluster_and_else_those_one_may_describe() -> None:
    listed = tuple(m.ListedGroup(name, "consumer", "Stable", "classic") for name in ("g", "hidden"))
    request, found = m.ListGroupsRequest(), m.ListGroupsResponse(0, listed)
    names = [
        [group.group_id for group in ask(request, *rights, coordinator=found).got[0].groups]
        for rights in ([], [(GROUP, "g", READ)], [(CLUSTER, "kafka-cluster", DESCRIBE)])
    ]
    assert names == [[], ["g"], ["g", "hidden"]]
    assert ask(request, coordinator=m.ListGroupsResponse(14)).got == [m.ListGroupsResponse(14)]


def test_delete_needs_to_delete() -> None:
    request = w.DeleteGroupsRequest(("hidden", "g", "hidden"))
    found = w.DeleteGroupsResponse((m.DeleteGroupResponse("g", 0),))
    asked = ask(request, (GROUP, "g", DELETE), (GROUP, "hidden", READ), coordinator=found)
    assert asked.handed == [w.DeleteGroupsRequest(("g",))]
    assert asked.got[0].results == (m.DeleteGroupResponse("g", 0), m.DeleteGroupResponse("hidden", 30))


def test_markers_need_the_cluster() -> None:
    request = w.WriteTxnMarkersRequest((w.TransactionMarker(7, 0, True, 1, (("t", (0, 1)),)),))
    assert ask(request).got[0].markers == ((7, (("t", ((0, 31), (1, 31))),)),)
    for operation in (Operation.ALTER, Operation.CLUSTER_ACTION):
        assert ask(request, (CLUSTER, "kafka-cluster", operation), coordinator="written").got == ["written"]


# -- over the real handlers -------------------------------------------------------------------------------------------


def test_metadata_does_not_tell_whether_a_hidden_topic_exists() -> None:
    wanted = tuple(w.MetadataRequestTopic(name, bytes(16)) for name in ("no", "yes", "missing"))
    response = asked_of_a_pod(w.MetadataRequest(wanted), (TOPIC, "yes", READ))
    assert [(t.name, t.error_code, t.topic_id) for t in response.topics] == [
        ("yes", 0, YES),
        ("no", 29, bytes(16)),
        ("missing", 29, bytes(16)),
    ]
    assert [b.node_id for b in response.brokers] == [0]
    everything = asked_of_a_pod(w.MetadataRequest(None), (TOPIC, "yes", READ))
    assert [t.name for t in everything.topics] == ["yes"]


def test_metadata_by_id_names_no_hidden_topic() -> None:
    wanted = tuple(w.MetadataRequestTopic(None, each) for each in (NO, YES, UNKNOWN))
    response = asked_of_a_pod(w.MetadataRequest(wanted), (TOPIC, "yes", READ))
    assert {(t.name, t.topic_id, t.error_code) for t in response.topics} == {
        ("yes", YES, 0),
        (None, NO, 29),
        (None, UNKNOWN, 100),
    }
    in_vain = asked_of_a_pod(w.MetadataRequest(wanted), (TOPIC, "yes", READ), version=10)
    assert {t.error_code for t in in_vain.topics} == {42}


def test_authorized_operations_are_ones_own() -> None:
    wanted = (w.MetadataRequestTopic("yes", bytes(16)),)
    asks = w.MetadataRequest(wanted, True, True, True)
    response = asked_of_a_pod(asks, (TOPIC, "yes", READ), version=9)
    assert response.topics[0].authorized_operations == 1 << READ | 1 << DESCRIBE
    assert response.cluster_authorized_operations == 0
    describe: Right = (CLUSTER, "kafka-cluster", DESCRIBE)
    assert asked_of_a_pod(asks, describe, version=9).cluster_authorized_operations == 1 << DESCRIBE
    assert asked_of_a_pod(w.DescribeClusterRequest(True)).cluster_authorized_operations == 0
    assert asked_of_a_pod(w.DescribeClusterRequest(True), describe).cluster_authorized_operations == 1 << DESCRIBE
    untold = asked_of_a_pod(w.DescribeClusterRequest(False), describe).cluster_authorized_operations
    assert untold == w.OPERATIONS_NOT_REQUESTED


def test_coordinator_is_named_to_who_may_describe_the_key() -> None:
    for key_type, code, kind in ((w.KEY_TYPE_GROUP, 30, GROUP), (w.KEY_TYPE_TRANSACTION, 53, TXN)):
        request = w.FindCoordinatorRequest(key_type, ("hidden", "g", "hidden too"))
        found = asked_of_a_pod(request, (kind, "g", DESCRIBE)).coordinators
        assert [(each.key, each.error_code) for each in found] == [("hidden", code), ("g", 15), ("hidden too", code)]
        assert (found[0].node_id, found[0].host, found[0].port) == (-1, "", -1)


def test_list_offsets_needs_to_describe_and_fetch_to_read_the_topic() -> None:
    asks = w.ListOffsetsRequest(-1, 0, (("no", ((0, -1, -1),)), ("yes", ((0, -1, -1),))))
    assert asked_of_a_pod(asks, (TOPIC, "yes", DESCRIBE)).topics == (
        ("yes", ((0, 0, -1, 0, 0),)),
        ("no", ((0, 29, -1, -1, -1),)),
    )
    parts = ((0, -1, 7),)
    fetch = w.FetchRequest(0, 1, 0, -1, (w.FetchTopic("no", bytes(16), parts), w.FetchTopic("yes", bytes(16), parts)))
    fetched = asked_of_a_pod(fetch, (TOPIC, "yes", READ), (TOPIC, "no", DESCRIBE)).topics
    assert [(t.name, t.partitions) for t in fetched] == [("yes", ((0, 0, 7),)), ("no", ((0, 29, -1),))]
    by_id = w.FetchRequest(
        60_000,
        1,
        0,
        -1,
        (w.FetchTopic(None, NO, parts), w.FetchTopic(None, UNKNOWN, parts)),
    )
    fetched = asked_of_a_pod(by_id, (TOPIC, "yes", READ)).topics
    assert [(t.topic_id, t.partitions) for t in fetched] == [(UNKNOWN, ((0, 100, -1),)), (NO, ((0, 29, -1),))]


def test_describe_producers_needs_to_read_the_topic() -> None:
    asks = w.DescribePartitionsProducersRequest((("no", (0, 1)), ("yes", (1,))))
    refused = m.DescribeProducersResponse(29)
    assert asked_of_a_pod(asks, (TOPIC, "yes", READ), (TOPIC, "no", DESCRIBE)).topics == (
        ("yes", ((1, m.DescribeProducersResponse(0)),)),
        ("no", ((0, refused), (1, refused))),
    )


def test_fetch_of_hidden_topics_only_is_answered_at_once() -> None:
    hidden = w.FetchRequest(60_000, 1, 0, -1, (w.FetchTopic("no", bytes(16), ((0, -1, 7),)),))
    assert asked_of_a_pod(hidden).topics[0].partitions == ((0, 29, -1),)


def test_produce_needs_to_write_though_it_is_always_refused() -> None:
    response = asked_of_a_pod(w.ProduceRequest(1, (("no", (0,)), ("yes", (0,)))), (TOPIC, "yes", WRITE))
    assert response.topics == (("yes", ((0, 42),)), ("no", ((0, 29),)))


# -- ACLs and credentials ---------------------------------------------------------------------------------------------

ANY_ACL = s.AclFilter(1, None, 1, None, None, 1, 1)
AN_ACL = s.AclBinding(3, "g", 3, ME, "*", 3, 3)


@pytest.mark.parametrize(
    ("request_", "needed"),
    [
        (s.DescribeAclsRequest(ANY_ACL), DESCRIBE),
        (s.DescribeUserScramCredentialsRequest(None), DESCRIBE),
        (s.DescribeClientQuotasRequest(), Operation.DESCRIBE_CONFIGS),
        (f.ListConfigResourcesRequest(), Operation.DESCRIBE_CONFIGS),
        (s.CreateAclsRequest((AN_ACL,)), Operation.ALTER),
        (s.DeleteAclsRequest((ANY_ACL,)), Operation.ALTER),
        (s.AlterUserScramCredentialsRequest(("alice",)), Operation.ALTER),
    ],
)
def test_acls_credentials_and_lists_of_configs_are_of_the_cluster(request_: Any, needed: Operation) -> None:
    for rights in ([], [(ResourceType.CLUSTER, "kafka-cluster", Operation.CREATE)]):
        asked = ask(request_, *rights)
        (answer,) = asked.got
        codes = {each.error_code for each in getattr(answer, "results", ())} | {getattr(answer, "error_code", 31)} - {0}
        assert (codes, asked.handed) == ({31}, [])
    asked = ask(request_, (ResourceType.CLUSTER, "kafka-cluster", needed), coordinator="answer")
    assert asked.got == ["answer"]


def test_handlers_of_groups_take_what_guards_put_in_place_of_an_exchange() -> None:
    def early(partition: int, request: Any, answer: Any) -> None:
        answer.answer(m.OffsetFetchResponse(request.group_id, 0))

    handlers = GroupHandlers(
        cast(Any, SimpleNamespace(partition_of=lambda group_id: 7, when_known=lambda then: None)), {}, early
    )
    groups = tuple(m.OffsetFetchRequest(group_id, None, -1, None, False) for group_id in ("g", "h"))
    request = w.OffsetFetchRequests(groups, False)
    answer = AnswerAlone(request)  # no Exchange
    handlers.offset_fetch(request, answer)
    assert answer.got == [w.OffsetFetchResponses((m.OffsetFetchResponse("g", 0), m.OffsetFetchResponse("h", 0)))]
