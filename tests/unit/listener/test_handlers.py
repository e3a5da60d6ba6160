"""Every served API has a handler, and the answers that need no shard are what clients rely on."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from tests.unit.listener.asked import NO_PODS

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.handlers import routes
from muster_coordinator.listener.handlers.groups import GroupHandlers
from muster_coordinator.listener.handlers.table import handler_table
from muster_coordinator.pod.cluster_view import ClusterView, topic_id
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import security as s
from muster_coordinator.requests.slices import SLICE_ENTRIES
from muster_coordinator.shard.ports import Answer
from muster_coordinator.wire.served import KAFKA_4_3, KAFKA_4_4, ServedApis


class Asked:
    """In place of an Exchange."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.got: list[Any] = []

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: ErrorCode) -> None:
        self.got.append(code)


class Refusals:
    """An answer that is a refusal."""

    def __init__(self) -> None:
        self.got: list[ErrorCode] = []
        self.done = asyncio.Event()

    def refuse(self, code: ErrorCode) -> None:
        self.got.append(code)
        self.done.set()


HEARTBEAT = m.HeartbeatRequest("g", 1, "m", None)
FETCH = m.OffsetFetchRequest("g", None, -1, None, False)


def refuse_early(partition: int, request: Any, answer: Answer) -> None:
    """No replica here is being elected."""
    answer.refuse(ErrorCode.NOT_COORDINATOR)


def image(*, version: int = 1, leaders: tuple[PartitionLeader, ...] = ()) -> MetadataImage:
    return MetadataImage(
        token=1,
        version=version,
        cluster_id="c",
        brokers=(Broker(0, "a", 1, "pod-0"), Broker(1, "b", 2, "pod-1")),
        offsets_partitions=50,
        leaders=leaders,
        topics=(DeclaredTopic("orders", 3),),
    )


def ask(view: ClusterView, request: Any, version: int = 12) -> Any:
    asked = Asked(version)
    handler_table(view, {}, refuse_early, NO_PODS)[type(request)](request, asked)  # type: ignore[arg-type]
    (response,) = asked.got
    return response


@pytest.mark.interpreted
def test_every_served_api_decodes_to_a_request_that_has_a_handler() -> None:
    handlers = handler_table(ClusterView(), {}, refuse_early, NO_PODS)
    for api in KAFKA_4_4.all:
        decoded = get_type_hints(api.decode_request)["return"]
        for request_type in get_args(decoded) or (decoded,):
            assert request_type in handlers, api.name


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, ErrorCode.NONE),
        ("c", 1, ErrorCode.NONE),
        ("c", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("d", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("c", -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_client_that_looks_for_another_server_is_told_so(cluster_id: str | None, node_id: int, code: ErrorCode) -> None:
    """KIP-1242: Kafka takes both, or neither. Nothing is held against a client while the pod does not know its own."""
    request = w.ApiVersionsRequest("java", "4.4.0", cluster_id, node_id)
    view = ClusterView("pod-1")
    assert ask(view, request, 5).error_code == (code if code == ErrorCode.INVALID_REQUEST else ErrorCode.NONE)
    view.update(image())
    response = ask(view, request, 5)
    assert response.error_code == code
    assert bool(response.api_keys) is (code == ErrorCode.NONE)


@pytest.mark.parametrize("served", [KAFKA_4_3, KAFKA_4_4])
@pytest.mark.parametrize("transactions", [0, 2])
def test_versions_that_are_announced_are_those_that_are_read(served: ServedApis, transactions: int) -> None:
    view = ClusterView()
    view.update(msgspec.structs.replace(image(), transaction_partitions=transactions))
    asked = Asked(3)
    handlers = handler_table(view, {}, refuse_early, NO_PODS, served=served)
    handlers[w.ApiVersionsRequest](w.ApiVersionsRequest(), asked)  # type: ignore[arg-type]
    announced = asked.got[0].api_keys
    expected = served.all if transactions else served.without_transactions
    assert announced == tuple((api.key, api.min_version, api.max_version) for api in expected)
    for key, low, high in announced:
        assert [key << 16 | version in served.versions for version in (low, high, high + 1)] == [True, True, False]


def test_coordinator_is_not_available_before_the_first_image_and_without_a_leader() -> None:
    view = ClusterView()
    request = w.FindCoordinatorRequest(w.KEY_TYPE_GROUP, ("test",))
    assert ask(view, request).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    view.update(image())
    assert ask(view, request).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    view.update(image(version=2, leaders=(PartitionLeader(48, 1, 7),)))  # "test" is in partition 48 of 50
    found = ask(view, request).coordinators[0]
    assert (found.node_id, found.host, found.port, found.error_code) == (1, "b", 2, 0)


def test_older_image_is_refused_and_the_same_one_taken_again() -> None:
    view = ClusterView()
    assert view.update(image(version=2))
    assert not view.update(image(version=1))
    assert view.update(image(version=2))


@pytest.mark.parametrize(
    ("key_type", "code", "text"),
    [(w.KEY_TYPE_TRANSACTION, 15, True), (w.KEY_TYPE_SHARE, 42, False), (9, 42, True)],
)
def test_other_coordinators_are_refused(key_type: int, code: int, text: bool) -> None:
    view = ClusterView()
    view.update(image())
    found = ask(view, w.FindCoordinatorRequest(key_type, ("x",))).coordinators[0]
    assert found.error_code == code
    assert bool(found.error_message) is text


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_topic_id_is_refused_in_versions_that_have_only_the_field(version: int) -> None:
    view = ClusterView()
    view.update(image())
    asked = w.MetadataRequest((w.MetadataRequestTopic(None, topic_id("orders")),))
    response = ask(view, asked, version)
    assert [t.error_code for t in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert (response.brokers, response.controller_id) == ((), -1)


@pytest.mark.parametrize(("endpoint_type", "code"), [(1, 0), (2, 114), (9, 115)])
def test_describe_cluster_serves_the_brokers_endpoints_only(endpoint_type: int, code: int) -> None:
    view = ClusterView()
    view.update(image())
    assert ask(view, w.DescribeClusterRequest(False, endpoint_type)).error_code == code


def test_authorized_operations_are_all_when_asked_for() -> None:
    view = ClusterView()
    view.update(image())
    asked = w.MetadataRequest((w.MetadataRequestTopic("orders", bytes(16)),), True, True, True)
    response = ask(view, asked)
    assert response.cluster_authorized_operations == 8096
    assert response.topics[0].authorized_operations == 3576
    assert ask(view, w.DescribeClusterRequest(True)).cluster_authorized_operations == 8096
    assert ask(view, w.DescribeClusterRequest(False)).cluster_authorized_operations == w.OPERATIONS_NOT_REQUESTED


def test_declared_topics_are_spread_over_the_pods_and_unknown_ones_named() -> None:
    view = ClusterView()
    view.update(image())
    everything = ask(view, w.MetadataRequest(None))
    assert [(t.name, t.is_internal) for t in everything.topics] == [("orders", False), ("__consumer_offsets", True)]
    assert everything.topics[0].partitions == w.SpreadPartitions(3, (0, 1))
    asked = tuple(w.MetadataRequestTopic(name, bytes(16)) for name in ("nothing", "not legal!"))
    assert [t.error_code for t in ask(view, w.MetadataRequest(asked)).topics] == [3, 17]
    by_id = ask(view, w.MetadataRequest((w.MetadataRequestTopic(None, topic_id("orders")),)))
    assert by_id.topics[0].name == "orders"


def test_topics_that_are_not_declared_have_no_id() -> None:
    view = ClusterView()
    view.update(msgspec.structs.replace(image(), any_topic=True))
    asked = tuple(w.MetadataRequestTopic(name, bytes(16)) for name in ("orders", "anything"))
    assert [t.topic_id for t in ask(view, w.MetadataRequest(asked)).topics] == [topic_id("orders"), bytes(16)]
    unknown = ask(view, w.MetadataRequest((w.MetadataRequestTopic(None, topic_id("anything")),)))
    assert [t.error_code for t in unknown.topics] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_list_offsets_finds_empty_logs_and_no_unknown_topics() -> None:
    view = ClusterView()
    view.update(image())
    response = ask(view, w.ListOffsetsRequest(-1, 0, (("orders", ((0, -1, -1), (9, -1, -1))),)))
    assert response.topics == (("orders", ((0, 0, -1, 0, 0), (9, 3, -1, -1, -1))),)


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-1, 0), (-2, 0), (-3, -1), (-4, 0), (-5, -1), (1_700_000_000_000, -1)]
)
def test_list_offsets_of_an_empty_log(timestamp: int, offset: int) -> None:
    view = ClusterView()
    view.update(image())
    response = ask(view, w.ListOffsetsRequest(-1, 0, (("orders", ((0, -1, timestamp),)),)))
    assert response.topics == (("orders", ((0, 0, -1, offset, offset),)),)


@pytest.mark.parametrize(
    ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, None), (-(2**63), None)]
)
def test_list_offsets_refuses_a_timestamp_that_the_version_does_not_have(timestamp: int, since: int | None) -> None:
    view = ClusterView()
    view.update(image())
    for version in range(1, 12):
        response = ask(view, w.ListOffsetsRequest(-1, 0, (("orders", ((0, -1, timestamp),)),)), version)
        ((_, ((_, code, *_),)),) = response.topics
        assert code == (0 if since is not None and version >= since else ErrorCode.UNSUPPORTED_VERSION)


def test_list_offsets_refuses_a_partition_that_is_named_twice() -> None:
    view = ClusterView()
    view.update(image())
    response = ask(view, w.ListOffsetsRequest(-1, 0, (("orders", ((0, -1, -1), (0, -1, -2), (1, -1, -1))),)))
    assert response.topics == (("orders", ((0, 42, -1, -1, -1), (1, 0, -1, 0, 0))),)


def test_fetch_never_puts_a_committed_offset_out_of_range() -> None:
    view = ClusterView()
    view.update(image())
    topic = w.FetchTopic("orders", bytes(16), ((0, -1, 1234),))
    response = ask(view, w.FetchRequest(0, 1, 0, -1, (topic,)))
    assert response.topics[0].partitions == ((0, 0, 1234),)
    assert ask(view, w.FetchRequest(0, 1, 55, 1, (topic,))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_groups_are_refused_where_the_pod_does_not_lead_them() -> None:
    view = ClusterView()
    view.update(image())
    asked = Refusals()
    handler_table(view, {}, refuse_early, NO_PODS)[m.HeartbeatRequest](HEARTBEAT, asked)  # type: ignore[arg-type]
    assert asked.got == [ErrorCode.NOT_COORDINATOR]


async def test_large_offset_delete_is_asked_for_in_parts() -> None:
    view, parts = ClusterView(), list[Any]()
    view.update(image())
    handlers = handler_table(view, {}, lambda _partition, request, _answer: parts.append(request), NO_PODS)
    topics = tuple((f"topic-{number}", (0,)) for number in range(SLICE_ENTRIES))
    for request, whole in ((m.OffsetDeleteRequest("g", topics), False), (m.OffsetDeleteRequest("g", topics[:9]), True)):
        handlers[m.OffsetDeleteRequest](request, Asked(0))  # type: ignore[arg-type]
        assert (parts.pop() == request) is whole
        assert not parts


@pytest.mark.parametrize(
    "request_",
    [
        s.DescribeUserScramCredentialsRequest(tuple(f"user-{number}" for number in range(3 * SLICE_ENTRIES))),
        s.AlterUserScramCredentialsRequest(tuple(f"user-{number}" for number in range(3 * SLICE_ENTRIES))),
        s.DeleteAclsRequest((s.AclFilter(2, "t", 3, None, None, 1, 1),) * 3 * SLICE_ENTRIES),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_what_names_many_is_answered_in_steps(request_: Any) -> None:
    asked = Asked(4)
    handler_table(ClusterView(), {}, refuse_early, NO_PODS)[type(request_)](request_, asked)  # type: ignore[arg-type]
    assert not asked.got
    async with asyncio.timeout(30):
        while not asked.got:
            await asyncio.sleep(0)
    (response,) = asked.got
    assert (
        len(response.coordinators if isinstance(response, w.FindCoordinatorResponse) else response.results)
        == 3 * SLICE_ENTRIES
    )


async def test_fetch_before_the_first_image_is_routed_when_it_comes_and_a_write_is_refused() -> None:
    view, asked, written = ClusterView(), Refusals(), Refusals()
    groups = GroupHandlers(view, {}, refuse_early)
    groups.route(FETCH, asked)  # type: ignore[arg-type]
    groups.route(HEARTBEAT, written)  # type: ignore[arg-type]
    assert (asked.got, written.got) == ([], [ErrorCode.COORDINATOR_NOT_AVAILABLE])
    view.update(image())
    assert asked.got == [ErrorCode.NOT_COORDINATOR]


async def test_fetch_before_the_first_image_is_refused_when_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PATIENCE_MS", 10)
    view, asked = ClusterView(), Refusals()
    GroupHandlers(view, {}, refuse_early).route(FETCH, asked)  # type: ignore[arg-type]
    await asyncio.wait_for(asked.done.wait(), 10)
    assert asked.got == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    view.update(image())
    assert len(asked.got) == 1


@pytest.mark.parametrize(
    "request_",
    [
        s.AlterUserScramCredentialsRequest(tuple(f"user-{number}" for number in range(3 * SLICE_ENTRIES))),
        w.DescribeGroupsRequest(tuple(m.DescribeGroupRequest(f"group-{number}", 5) for number in range(100))),
        c.ConsumerGroupDescribeRequest(tuple(c.DescribeConsumerGroupRequest(f"group-{at}") for at in range(100))),
        w.DeleteGroupsRequest(tuple(f"group-{number}" for number in range(100))),
        m.OffsetDeleteRequest("g", tuple((f"topic-{number}", (0,)) for number in range(3 * SLICE_ENTRIES))),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_what_an_answer_was_made_of_is_freed_with_it(request_: Any) -> None:
    """Without the collector of cycles: a pod freezes those that live long (`tuning.interpreter`), and frees them
    never."""
    view = ClusterView()
    view.update(image())
    handlers, asked = handler_table(view, {}, refuse_early, NO_PODS), Asked(4)
    gone = weakref.ref(asked)
    collects = gc.isenabled()
    gc.disable()
    try:
        handlers[type(request_)](request_, asked)  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            while not asked.got:
                await asyncio.sleep(0)
        del asked
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        if collects:
            gc.enable()
