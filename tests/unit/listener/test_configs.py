"""Configs of groups are asked of any pod, and answered by the one that leads the group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.unit.listener.asked import NO_PODS, Asked
from tests.unit.listener.test_access import GROUP, Right, ask
from tests.unit.listener.test_handlers import refuse_early
from tests.unit.shard.fake_world import World

from muster_coordinator.errors import ErrorCode
from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.coordinator import GroupCoordinator
from muster_coordinator.listener.handlers.configs import ConfigHandlers
from muster_coordinator.listener.handlers.groups import GroupHandlers
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.podapi.image import Broker, MetadataImage, PartitionLeader
from muster_coordinator.requests import configs as f
from muster_coordinator.security.acls import Operation
from muster_coordinator.wire.api import Api, RequestHeader
from muster_coordinator.wire.codec import Reader

IMAGE = MetadataImage(
    token=1,
    version=1,
    cluster_id="c",
    brokers=(Broker(0, "127.0.0.1", 1, "pod-0"), Broker(1, "127.0.0.1", 2, "pod-1")),
    offsets_partitions=1,
    leaders=(PartitionLeader(0, 0, 1),),
    topics=(),
)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


class Pod:
    """`leads`: partition 0. `image`: that both pods know."""

    def __init__(self, name: str, leads: bool, connections: Any, image: MetadataImage = IMAGE) -> None:
        view = ClusterView(name)
        view.update(image)
        self.world = World(GroupCoordinator(GroupConfig(), view, lambda: "x"))
        shards = self.shards = {0: self.world.shard} if leads else {}
        route = GroupHandlers(view, shards, refuse_early).route
        self.handlers = ConfigHandlers(view, shards, route, connections)
        if leads:
            self.world.activate()
            self.turn()

    def turn(self) -> None:
        self.world.turn()
        self.world.commit()


class Connections:
    """In place of `PodConnections`: the other pod decodes the bytes, and its answer comes back as bytes."""

    def __init__(self, other: Pod) -> None:
        self.other = other
        self.asked: list[str] = []
        self.is_cut = False

    def ask(
        self, pod: str, api: Api, version: int, body: bytes, decode: Callable[[Reader], Any], told: Callable[..., None]
    ) -> None:
        self.asked.append(pod)
        if self.is_cut:
            told(None)
            return
        request: Any = api.decode_request(RequestHeader(api, version, 1, "pod", 0), body, "")
        there = Asked(request)
        handlers = self.other.handlers
        {32: handlers.describe, 33: handlers.alter, 44: handlers.alter, 74: handlers.list_resources}[api.key](
            request, there
        )
        self.other.turn()
        told(decode(Reader(api.encode_response(version, there.got[0]), 0, api.flexible(version))))


def altered(*changes: f.ConfigChange, kind: int = 32, name: str = "g") -> f.IncrementalAlterConfigsRequest:
    return f.IncrementalAlterConfigsRequest((f.ResourceChanges(kind, name, changes),))


RAISE = f.ConfigChange(SESSION, 0, "50000")


@pytest.mark.parametrize("through", ["pod-0", "pod-1"])
def test_any_pod_answers_for_every_group(through: str) -> None:
    async def body() -> None:
        leader = Pod("pod-0", True, None)
        connections = Connections(leader)
        pod = leader if through == "pod-0" else Pod("pod-1", False, connections)
        asked = Asked(altered(RAISE))
        pod.handlers.alter(asked.request, asked)
        leader.turn()
        assert asked.got == [f.AlterConfigsResponse((f.AlteredResource(32, "g"),))]
        shown = Asked(f.DescribeConfigsRequest((f.ConfigResource(32, "g", (SESSION,)), f.ConfigResource(2, "t", None))))
        pod.handlers.describe(shown.request, shown)
        leader.turn()
        (group, topic) = shown.got[0].results
        assert [(each.name, each.value, each.source) for each in group.configs] == [(SESSION, "50000", 8)]
        assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "t")
        assert connections.asked == ([] if through == "pod-0" else ["pod-0"] * 2)

    asyncio.run(body())


@pytest.mark.parametrize("through", ["pod-0", "pod-1"])
def test_any_pod_replaces_the_configs_of_every_group(through: str) -> None:
    async def body() -> None:
        leader = Pod("pod-0", True, None)
        configure(leader, "g")
        pod = leader if through == "pod-0" else Pod("pod-1", False, Connections(leader))
        for validate_only in (True, False):
            for name, value in ((HEARTBEAT, "6000"), (HEARTBEAT, "1"), (SESSION, None)):
                changes = f.ResourceChanges(32, "g", (f.ConfigChange(name, 0, value),))
                asked = Asked(f.AlterConfigsRequest((changes, f.ResourceChanges(2, "t", ())), validate_only))
                pod.handlers.alter(asked.request, asked)
                leader.turn()
                (response,) = asked.got
                assert isinstance(response, f.AlterConfigsResponse)
                code = {"6000": 0, "1": ErrorCode.INVALID_CONFIG, None: ErrorCode.INVALID_REQUEST}[value]
                assert [each.error_code for each in response.results] == [code, ErrorCode.INVALID_REQUEST]
            own = leader.world.machine.durable_state().own_configs
            assert own == {"g": {SESSION: 50_000} if validate_only else {HEARTBEAT: 6_000}}

    asyncio.run(body())


def test_pod_that_does_not_answer_may_be_asked_again() -> None:
    async def body() -> None:
        connections = Connections(Pod("pod-0", True, None))
        connections.is_cut = True
        asked = Asked(altered(RAISE))
        Pod("pod-1", False, connections).handlers.alter(asked.request, asked)
        assert asked.got[0].results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(body())


def test_what_another_pod_asks_is_not_passed_on() -> None:
    async def body() -> None:
        asked = Asked(altered(RAISE))
        Pod("pod-1", False, None).handlers.alter(asked.request, asked)
        assert asked.got[0].results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(body())


def test_no_pod_is_asked_where_this_one_leads() -> None:
    async def body() -> None:
        pod = Pod("pod-0", True, NO_PODS)
        asked = Asked(altered(RAISE))
        pod.handlers.alter(asked.request, asked)
        pod.turn()
        assert asked.got[0].results[0].error_code == 0

    asyncio.run(body())


@pytest.mark.parametrize("asked", [f.AlterConfigsRequest, f.IncrementalAlterConfigsRequest])
@pytest.mark.parametrize(
    ("rights", "codes"),
    [
        ((), [30, 42, 42]),
        (((GROUP, "g", Operation.ALTER_CONFIGS),), [0, 42, 42]),
    ],
)
def test_rows_of_a_change_are_in_the_order_of_the_request(
    asked: Any, rights: tuple[Right, ...], codes: list[int]
) -> None:
    resources = (
        f.ResourceChanges(32, "g", (RAISE,)),
        f.ResourceChanges(2, "t", (RAISE,)),
        f.ResourceChanges(32, "h", (RAISE, RAISE)),
    )

    def coordinator(request: Any) -> f.AlterConfigsResponse:
        return f.AlterConfigsResponse(
            tuple([f.AlteredResource(each.resource_type, each.name) for each in request.resources])
        )

    (answer,) = ask(asked(resources), *rights, coordinator=coordinator).got
    assert [each.error_code for each in answer.results] == codes


def test_refused_resources_are_described_last() -> None:
    resources = (f.ConfigResource(32, "no", None), f.ConfigResource(32, "g", None))

    def coordinator(request: f.DescribeConfigsRequest) -> f.DescribeConfigsResponse:
        return f.DescribeConfigsResponse(tuple([f.DescribedResource(32, each.name) for each in request.resources]))

    right = (GROUP, "g", Operation.DESCRIBE_CONFIGS)
    (answer,) = ask(f.DescribeConfigsRequest(resources), right, coordinator=coordinator).got
    assert [(each.name, each.error_code) for each in answer.results] == [("g", 0), ("no", 30)]


# -- ListConfigResources ----------------------------------------------------------------------------------------------

TWO = msgspec.structs.replace(IMAGE, offsets_partitions=2, leaders=(PartitionLeader(0, 0, 1), PartitionLeader(1, 1, 1)))


def two_pods() -> tuple[Pod, Pod, Connections]:
    """The first leads partition 0, the second one partition 1, where it calls its only shard 1 as well."""
    second = Pod("pod-1", True, None, TWO)
    second.shards[1] = second.shards.pop(0)
    connections = Connections(second)
    return Pod("pod-0", True, connections, TWO), second, connections


def configure(pod: Pod, group: str) -> None:
    asked = Asked(f.AlterGroupConfigsRequest(group, (RAISE,)))
    pod.world.shard.submit(asked.request, asked)
    pod.turn()
    assert asked.got[0].error_code == 0


def listed(pod: Pod, *types: int) -> f.ListConfigResourcesResponse:
    asked = Asked(f.ListConfigResourcesRequest(types))
    pod.handlers.list_resources(asked.request, asked)
    pod.turn()
    (response,) = asked.got
    assert isinstance(response, f.ListConfigResourcesResponse)
    return response


GROUPS = (f.ListedResource(32, "here"), f.ListedResource(32, "there"))


def test_groups_of_all_pods_are_listed() -> None:
    async def body() -> None:
        first, second, _ = two_pods()
        configure(first, "here")
        configure(second, "there")
        assert listed(first) == listed(first, 2, 32) == f.ListConfigResourcesResponse(0, GROUPS)
        assert listed(second).resources == GROUPS[1:], "what another pod asks is not passed on"

    asyncio.run(body())


@pytest.mark.parametrize(("types", "code"), [((2, 4, 8, 16), 0), ((99,), 35), ((32, 0), 35)])
def test_nothing_else_is_listed(types: tuple[int, ...], code: int) -> None:
    async def body() -> None:
        first, _, connections = two_pods()
        configure(first, "here")
        assert listed(first, *types) == f.ListConfigResourcesResponse(code)
        assert connections.asked == []

    asyncio.run(body())


def test_a_part_of_the_groups_is_not_listed_as_all() -> None:
    async def body() -> None:
        unavailable = f.ListConfigResourcesResponse(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        first, second, connections = two_pods()
        configure(first, "here")
        connections.is_cut = True
        assert listed(first) == unavailable
        connections.is_cut = False
        second.shards.clear()  # it is about to lead, and does not yet
        assert listed(first) == listed(second) == unavailable
        nobody = msgspec.structs.replace(TWO, leaders=TWO.leaders[:1])
        assert listed(Pod("pod-0", True, connections, nobody)) == unavailable
        assert (
            listed(Pod("pod-0", False, connections, msgspec.structs.replace(IMAGE, offsets_partitions=0)))
            == unavailable
        )

    asyncio.run(body())
