"""Requests about configs, which are DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources: of
groups, by the pod that leads each, whichever pod is asked.

Administrators ask any broker. What another pod leads is asked of that pod, which does not pass it on once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.gather import Gather
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.requests import configs as f
from muster_coordinator.requests.refusals import refusal
from muster_coordinator.shard.ports import Answer
from muster_coordinator.shard.shard import Shard
from muster_coordinator.wire import k32_describe_configs as k32
from muster_coordinator.wire import k33_alter_configs as k33
from muster_coordinator.wire import k44_incremental_alter_configs as k44
from muster_coordinator.wire import k74_list_config_resources as k74

_NOT_KEPT = "Muster keeps the configs of groups alone."
_GROUP = f.ConfigResourceType.GROUP
_TYPES = frozenset(f.ConfigResourceType)
_NO_NEWS = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.NETWORK_EXCEPTION})


class ConfigHandlers:
    def __init__(
        self,
        view: ClusterView,
        shards: Mapping[int, Shard],
        route: Callable[[Any, Answer], None],
        connections: PodConnections | None,
    ) -> None:
        """`connections`: None for what other pods ask."""
        self._view = view
        self._shards = shards
        self._route = route
        self._connections = connections

    def describe(self, request: f.DescribeConfigsRequest, answer: Answer) -> None:
        def combine(parts: Sequence[f.DescribedResource]) -> None:
            answer.answer(f.DescribeConfigsResponse(tuple(parts)))

        gather = Gather(len(request.resources), combine)
        gather.spread(lambda index: self._describe_one(request, request.resources[index], gather, index))

    def _describe_one(
        self, request: f.DescribeConfigsRequest, resource: f.ConfigResource, gather: Gather, index: int
    ) -> None:
        code = int(ErrorCode.INVALID_REQUEST)
        if resource.resource_type != _GROUP:
            gather.complete(index, f.DescribedResource(resource.resource_type, resource.name, code, _NOT_KEPT))
            return
        synonyms, documentation = request.include_synonyms, request.include_documentation
        one = f.DescribeGroupConfigsRequest(resource.name, resource.keys, synonyms, documentation)
        there = partial(f.DescribeConfigsRequest, (resource,), synonyms, documentation)
        self._ask(one, lambda: k32.encode_request(k32.API.max_version, there()), k32, gather, index)

    def alter(self, request: f.AlterConfigsRequest | f.IncrementalAlterConfigsRequest, answer: Answer) -> None:
        replaces = isinstance(request, f.AlterConfigsRequest)
        module: Any = k33 if replaces else k44
        wrong = errors_of(request)

        def combine(parts: Sequence[f.AlteredResource]) -> None:
            answer.answer(f.AlterConfigsResponse(tuple(parts)))

        gather = Gather(len(request.resources), combine)

        def ask(index: int) -> None:
            error, resource = wrong[index], request.resources[index]
            if error is not None:
                gather.complete(index, error)
                return
            one = f.AlterGroupConfigsRequest(resource.name, resource.changes, request.validate_only, replaces)
            there = partial(type(request), (resource,), request.validate_only)
            self._ask(one, lambda: module.encode_request(module.API.max_version, there()), module, gather, index)

        gather.spread(ask)

    def list_resources(self, request: f.ListConfigResourcesRequest, answer: Answer) -> None:
        """All groups with configs of their own, or an error: a part of them would look like all. A partition that gets
        another leader meanwhile may be left out, as a broker of Kafka lists what it has heard of so far."""
        types = request.resource_types
        if not _TYPES.issuperset(types):
            answer.answer(f.ListConfigResourcesResponse(int(ErrorCode.UNSUPPORTED_VERSION)))
            return
        if types and _GROUP not in types:
            answer.answer(f.ListConfigResourcesResponse())
            return
        asked = self._who_lists()
        if asked is None:
            answer.answer(f.ListConfigResourcesResponse(int(ErrorCode.COORDINATOR_NOT_AVAILABLE)))
            return
        one = f.ListConfigResourcesRequest((_GROUP,))

        def combine(parts: Sequence[f.ListConfigResourcesResponse]) -> None:
            code = next((each.error_code for each in parts if each.error_code), 0)
            resources = () if code else tuple([listed for each in parts for listed in each.resources])
            answer.answer(f.ListConfigResourcesResponse(_for_clients(code), resources))

        gather = Gather(len(asked), combine)
        gather.spread(lambda index: self._list_one(one, asked[index], gather, index))

    def _who_lists(self) -> list[Shard | str] | None:
        """The shards here, and the names of the pods that lead the other partitions; None: nobody leads one of them."""
        shards: list[Shard | str] = []
        pods: dict[str, None] = {}
        for number in self._view.offsets_partitions:
            leader = self._view.leader_of(number)
            if number in self._shards:
                shards.append(self._shards[number])
            elif leader is None or leader.pod == self._view.pod:
                return None
            elif self._connections is not None:
                pods[leader.pod] = None
        return [*shards, *pods] if self._view.offsets_partitions else None

    def _list_one(self, one: f.ListConfigResourcesRequest, asked: Shard | str, gather: Gather, index: int) -> None:
        if not isinstance(asked, str):
            asked.submit(one, gather.part(index, one))
            return

        def told(response: f.ListConfigResourcesResponse | None) -> None:
            lost = f.ListConfigResourcesResponse(int(ErrorCode.NETWORK_EXCEPTION))
            gather.complete(index, lost if response is None else response)

        api, connections = k74.API, self._connections
        assert connections is not None  # `_who_lists` names no pod without them
        body = k74.encode_request(api.max_version, one)
        connections.ask(asked, api, api.max_version, body, k74.decode_response, told)

    def _ask(self, one: Any, body: Callable[[], bytes], module: Any, gather: Gather, index: int) -> None:
        """The shard here, or the pod that leads the group: `module` has the API that it is asked by."""
        number = self._view.partition_of(one.group_id)
        leader = self._view.leader_of(number) if number is not None else None
        here = number in self._shards or leader is None or leader.pod == self._view.pod
        if self._connections is None or here or leader is None:
            self._route(one, _Part(gather, index, one))
            return

        def told(response: f.DescribeConfigsResponse | f.AlterConfigsResponse | None) -> None:
            if response is None or len(response.results) != 1:
                _Part(gather, index, one).refuse(ErrorCode.NETWORK_EXCEPTION)
            else:
                _Part(gather, index, one).answer(response.results[0])

        api = module.API
        self._connections.ask(leader.pod, api, api.max_version, body(), module.decode_response, told)


class _Part:
    """`shard.ports.Answer` of one group."""

    __slots__ = ("_gather", "_index", "_request")

    def __init__(self, gather: Gather, index: int, request: Any) -> None:
        self._gather, self._index, self._request = gather, index, request

    def answer(self, response: f.DescribedResource | f.AlteredResource) -> None:
        code = _for_clients(response.error_code)
        kept = code == response.error_code
        self._gather.complete(self._index, response if kept else refusal(self._request, ErrorCode(code)))

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self._request, code))  # type: ignore[arg-type]


def _for_clients(code: int) -> int:
    """The code as a client gets it: of the codes in `_NO_NEWS` one after which it asks again."""
    return int(ErrorCode.COORDINATOR_NOT_AVAILABLE) if code in _NO_NEWS else code


def errors_of(request: f.AlterConfigsRequest | f.IncrementalAlterConfigsRequest) -> list[f.AlteredResource | None]:
    """The errors of each resource, whatever a client may do (Kafka: ConfigAdminManager#preprocess)."""
    count = Counter((each.resource_type, each.name) for each in request.resources)
    return [_error_of(each, count[each.resource_type, each.name] > 1) for each in request.resources]


def _error_of(resource: f.ResourceChanges, twice: bool) -> f.AlteredResource | None:
    names = [change.name for change in resource.changes]
    empty = [c.name for c in resource.changes if c.operation != f.AlterOperation.DELETE and c.value is None]
    message = None
    if twice:
        message = "Each resource must appear at most once."
    elif len(set(names)) < len(names):
        message = "Error due to duplicate config keys"
    elif empty:
        message = f"Null value not supported for : {', '.join(empty)}"
    elif resource.resource_type != _GROUP:
        message = _NOT_KEPT
    if message is None:
        return None
    return f.AlteredResource(resource.resource_type, resource.name, int(ErrorCode.INVALID_REQUEST), message)
