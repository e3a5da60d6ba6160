"""Authorisation in front of the handlers, in Kafka's order (KafkaApis; reference, section 4.8).

Join, sync, heartbeat, leave, commit: READ of the group; describe, fetch, find: DESCRIBE; delete: DELETE. Then the
topics: READ to commit and delete offsets, DESCRIBE to see them. A group that is not allowed refuses the request as a
whole, a topic only its own partitions; what lists everything leaves out what may not be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.authorization import CLUSTER_NAME, Authorizer, Operation, Resource
from muster_coordinator.listener.listener import Handler
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import groups as m
from muster_coordinator.shard.answers import refusal

_TOPIC_DENIED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_GROUP_DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)


class _Amended:
    """Stands for an exchange: what the handler answers to a reduced request is completed before it leaves."""

    def __init__(self, exchange: Any, request: Any, amend: Callable[[Any], Any]) -> None:
        self._exchange = exchange
        self._request = request
        self._amend = amend

    @property
    def version(self) -> int:
        return int(self._exchange.version)

    def answer(self, response: Any) -> None:
        self._exchange.answer(self._amend(response))

    def refuse(self, code: ErrorCode) -> None:
        self.answer(refusal(self._request, code))


def authorized(handlers: Mapping[type, Handler], authorizer: Authorizer) -> dict[type, Handler]:
    """The same handlers behind their checks. ApiVersions and DescribeCluster need none."""
    guards = _Guards(handlers, authorizer)
    guarded: dict[type, Handler] = {
        m.JoinGroupRequest: guards.join,
        m.SyncGroupRequest: guards.read_group,
        m.HeartbeatRequest: guards.read_group,
        m.LeaveGroupRequest: guards.read_group,
        m.OffsetCommitRequest: guards.offset_commit,
        m.TxnOffsetCommitRequest: guards.txn_offset_commit,
        m.OffsetDeleteRequest: guards.offset_delete,
        m.ListGroupsRequest: guards.list_groups,
        w.OffsetFetchRequests: guards.offset_fetch,
        w.DescribeGroupsRequest: guards.describe_groups,
        w.DeleteGroupsRequest: guards.delete_groups,
        w.WriteTxnMarkersRequest: guards.write_txn_markers,
        w.FindCoordinatorRequest: guards.find_coordinator,
        w.MetadataRequest: guards.metadata,
        w.ListOffsetsRequest: guards.list_offsets,
        w.FetchRequest: guards.fetch,
    }
    return {**handlers, **guarded}


class _Guards:
    def __init__(self, handlers: Mapping[type, Handler], authorizer: Authorizer) -> None:
        self._handlers = handlers
        self._authorizer = authorizer

    def _allows(self, exchange: Any, operation: Operation, resource: Resource, name: str) -> bool:
        return self._authorizer.allows(exchange.connection.principal, operation, resource, name)

    def _go_on(self, request: Any, exchange: Any, amend: Callable[[Any], Any] | None = None) -> None:
        answer: Any = _Amended(exchange, request, amend) if amend else exchange
        self._handlers[type(request)](request, answer)

    # -- one group ----------------------------------------------------------------------------------------------------

    def join(self, request: m.JoinGroupRequest, exchange: Any) -> None:
        if self._allows(exchange, Operation.READ, Resource.GROUP, request.group_id):
            self._go_on(request, exchange)
        else:
            exchange.answer(m.JoinGroupResponse(_GROUP_DENIED))

    def read_group(self, request: Any, exchange: Any) -> None:
        if self._allows(exchange, Operation.READ, Resource.GROUP, request.group_id):
            self._go_on(request, exchange)
        else:
            exchange.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def offset_commit(self, request: m.OffsetCommitRequest, exchange: Any) -> None:
        if self._allows(exchange, Operation.READ, Resource.GROUP, request.group_id):
            self._topics_to_read(request, exchange)
        else:
            exchange.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def txn_offset_commit(self, request: m.TxnOffsetCommitRequest, exchange: Any) -> None:
        if not self._allows(exchange, Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
            exchange.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif not self._allows(exchange, Operation.READ, Resource.GROUP, request.group_id):
            exchange.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        else:
            self._topics_to_read(request, exchange)

    def offset_delete(self, request: m.OffsetDeleteRequest, exchange: Any) -> None:
        if self._allows(exchange, Operation.DELETE, Resource.GROUP, request.group_id):
            self._topics_to_read(request, exchange)
        else:
            exchange.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def _topics_to_read(self, request: Any, exchange: Any) -> None:
        """Topics that may not be read are answered 29 at their partitions; the others go on."""
        denied = {t for t, _ in request.topics if not self._allows(exchange, Operation.READ, Resource.TOPIC, t)}
        if not denied:
            self._go_on(request, exchange)
            return
        refused = tuple(
            (t, tuple((p if isinstance(p, int) else p[0], _TOPIC_DENIED) for p in partitions))
            for t, partitions in request.topics
            if t in denied
        )
        reduced = replace(request, topics=tuple(t for t in request.topics if t[0] not in denied))

        def amend(response: Any) -> Any:
            return replace(response, topics=(*refused, *response.topics))

        if reduced.topics:
            self._go_on(reduced, exchange, amend)
        else:  # nothing is left to ask the group
            exchange.answer(amend(refusal(reduced, ErrorCode.NONE)))

    # -- several groups -----------------------------------------------------------------------------------------------

    def offset_fetch(self, request: w.OffsetFetchRequests, exchange: Any) -> None:
        allowed = [
            self._visible_topics(group, exchange)
            for group in request.groups
            if self._allows(exchange, Operation.DESCRIBE, Resource.GROUP, group.group_id)
        ]
        denied: dict[str, Any] = {
            group.group_id: refusal(group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            for group in request.groups
            if not self._allows(exchange, Operation.DESCRIBE, Resource.GROUP, group.group_id)
        }

        def amend(response: w.OffsetFetchResponses) -> w.OffsetFetchResponses:
            found = {
                f.group_id: self._amended_fetch(f, g, exchange) for f, g in zip(response.groups, asked, strict=True)
            }
            return w.OffsetFetchResponses(tuple((found | denied)[g.group_id] for g in request.groups))

        asked = [g for g in request.groups if g.group_id not in denied]
        if allowed:
            self._go_on(replace(request, groups=tuple(allowed)), exchange, amend)
        else:
            exchange.answer(amend(w.OffsetFetchResponses(())))

    def _visible_topics(self, group: m.OffsetFetchRequest, exchange: Any) -> m.OffsetFetchRequest:
        if group.topics is None:
            return group
        visible = tuple(t for t in group.topics if self._allows(exchange, Operation.DESCRIBE, Resource.TOPIC, t[0]))
        return replace(group, topics=visible)

    def _amended_fetch(
        self, found: m.OffsetFetchResponse, asked: m.OffsetFetchRequest, exchange: Any
    ) -> m.OffsetFetchResponse:
        """Named topics that may not be seen are answered 29; of "all topics" they are left out."""
        visible = tuple(t for t in found.topics if self._allows(exchange, Operation.DESCRIBE, Resource.TOPIC, t[0]))
        shown = {t for t, _ in visible}
        if found.error_code or asked.topics is None:
            return replace(found, topics=visible)
        hidden = tuple(
            (t, tuple((p, -1, -1, "", _TOPIC_DENIED) for p in partitions))
            for t, partitions in asked.topics
            if t not in shown
        )
        return replace(found, topics=(*visible, *hidden))

    def describe_groups(self, request: w.DescribeGroupsRequest, exchange: Any) -> None:
        def denied(group: m.DescribeGroupRequest) -> m.DescribedGroup:
            return m.DescribedGroup(group.group_id, _GROUP_DENIED)

        self._per_group(request, "groups", Operation.DESCRIBE, lambda g: g.group_id, denied, "groups", exchange)

    def delete_groups(self, request: w.DeleteGroupsRequest, exchange: Any) -> None:
        def denied(group_id: str) -> m.DeleteGroupResponse:
            return m.DeleteGroupResponse(group_id, _GROUP_DENIED)

        self._per_group(request, "group_ids", Operation.DELETE, lambda g: g, denied, "results", exchange)

    def _per_group(
        self,
        request: Any,
        asked_in: str,
        operation: Operation,
        name: Callable[[Any], str],
        denied: Callable[[Any], Any],
        answered_in: str,
        exchange: Any,
    ) -> None:
        """Groups that are not allowed are answered here; the others go on. The answers come first to last as they
        are."""
        groups = getattr(request, asked_in)
        allowed = tuple(g for g in groups if self._allows(exchange, operation, Resource.GROUP, name(g)))
        refused = tuple(denied(g) for g in groups if g not in allowed)

        def amend(response: Any) -> Any:
            return replace(response, **{answered_in: (*refused, *getattr(response, answered_in))})

        self._go_on(replace(request, **{asked_in: allowed}), exchange, amend)

    def list_groups(self, request: m.ListGroupsRequest, exchange: Any) -> None:
        if self._allows(exchange, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            self._go_on(request, exchange)
            return

        def amend(response: m.ListGroupsResponse) -> m.ListGroupsResponse:
            visible = tuple(
                g for g in response.groups if self._allows(exchange, Operation.DESCRIBE, Resource.GROUP, g.group_id)
            )
            return replace(response, groups=visible)

        self._go_on(request, exchange, amend)

    def write_txn_markers(self, request: w.WriteTxnMarkersRequest, exchange: Any) -> None:
        if self._allows(exchange, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            self._go_on(request, exchange)
            return
        code = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        exchange.answer(
            w.WriteTxnMarkersResponse(
                tuple(
                    (marker.producer_id, tuple((t, tuple((p, code) for p in parts)) for t, parts in marker.topics))
                    for marker in request.markers
                )
            )
        )

    def find_coordinator(self, request: w.FindCoordinatorRequest, exchange: Any) -> None:
        group = request.key_type != w.KEY_TYPE_TRANSACTION
        resource = Resource.GROUP if group else Resource.TRANSACTIONAL_ID
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED if group else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        denied = {k for k in request.keys if not self._allows(exchange, Operation.DESCRIBE, resource, k)}

        def amend(response: w.FindCoordinatorResponse) -> w.FindCoordinatorResponse:
            found = {c.key: c for c in response.coordinators}
            return w.FindCoordinatorResponse(
                tuple(found[k] if k in found else w.Coordinator(k, error_code=code) for k in request.keys)
            )

        self._go_on(replace(request, keys=tuple(k for k in request.keys if k not in denied)), exchange, amend)

    # -- topics -------------------------------------------------------------------------------------------------------

    def metadata(self, request: w.MetadataRequest, exchange: Any) -> None:
        """Of all topics those that may not be seen are left out; a named one is answered 29."""

        def visible(topic: w.MetadataTopic) -> bool:
            return not topic.name or self._allows(exchange, Operation.DESCRIBE, Resource.TOPIC, topic.name)

        def amend(response: w.MetadataResponse) -> w.MetadataResponse:
            topics = response.topics
            if request.topics is None:
                return replace(response, topics=tuple(t for t in topics if visible(t)))
            hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return replace(
                response, topics=tuple(t if visible(t) else w.MetadataTopic(t.name, error_code=hidden) for t in topics)
            )

        self._go_on(request, exchange, amend)

    def list_offsets(self, request: w.ListOffsetsRequest, exchange: Any) -> None:
        denied = {t for t, _ in request.topics if not self._allows(exchange, Operation.DESCRIBE, Resource.TOPIC, t)}

        def amend(response: w.ListOffsetsResponse) -> w.ListOffsetsResponse:
            return w.ListOffsetsResponse(
                tuple(
                    (t, tuple((p[0], _TOPIC_DENIED, -1, -1, -1) for p in parts) if t in denied else parts)
                    for t, parts in response.topics
                )
            )

        self._go_on(request, exchange, amend if denied else None)

    def fetch(self, request: w.FetchRequest, exchange: Any) -> None:
        """Topics by name only: what a client knows by id it got from a Metadata answer that was checked."""

        def denied(topic: Any) -> bool:
            return bool(topic.name) and not self._allows(exchange, Operation.READ, Resource.TOPIC, topic.name)

        def amend(response: w.FetchResponse) -> w.FetchResponse:
            topics = tuple(
                replace(t, partitions=tuple((p[0], _TOPIC_DENIED, -1) for p in t.partitions)) if denied(t) else t
                for t in response.topics
            )
            return replace(response, topics=topics)

        self._go_on(request, exchange, amend if any(denied(t) for t in request.topics) else None)
