"""The guard of each request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from muster_coordinator.listener.access import cluster, configs, consumer_groups, groups, offsets, topics, transactions
from muster_coordinator.listener.access.asked import Guard, Rights
from muster_coordinator.listener.access.offsets import NameOf, OffsetsById
from muster_coordinator.listener.access.security import GUARDS
from muster_coordinator.listener.audit import AuditLog
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import transactions as t
from muster_coordinator.security.acls import Authorizer, Operation

OPEN = frozenset(
    {
        w.ApiVersionsRequest,
        w.OtherProtocolRequest,
        w.SaslHandshakeRequest,
        w.SaslAuthenticateRequest,
    }
)
"""Requests that need no right: what every client may ask, and what no client may."""


def guarded_table(
    handlers: Mapping[type, Handler],
    authorizer: Callable[[], Authorizer],
    name_of: NameOf,
    audit: AuditLog | None = None,
) -> dict[type, Handler]:
    """The same handlers, each behind its guard. `authorizer` gives the present one; `name_of`: names of topic ids;
    `audit` is told of refusals.

    Raises KeyError for a request that has neither a guard nor a place in OPEN.
    """
    guards = _guards(name_of)
    return {
        request: handler if request in OPEN else _guarded(guards[request], handler, authorizer, audit)
        for request, handler in handlers.items()
    }


def _guarded(guard: Guard, handler: Handler, authorizer: Callable[[], Authorizer], audit: AuditLog | None) -> Handler:
    def guarded(request: Any, exchange: ClientAnswer) -> None:
        guard(request, exchange, Rights(authorizer(), exchange.connection.identity, audit, request), handler)

    return guarded


def _guards(name_of: NameOf) -> dict[type, Guard]:
    by_id = OffsetsById(name_of)
    reads_group = groups.one_group(Operation.READ)
    return {
        w.MetadataRequest: cluster.MetadataGuard(name_of),
        w.DescribeClusterRequest: cluster.describe_cluster,
        w.FindCoordinatorRequest: cluster.find_coordinator,
        w.WriteTxnMarkersRequest: cluster.write_txn_markers,
        w.ListOffsetsRequest: topics.list_offsets,
        w.DescribePartitionsProducersRequest: topics.describe_producers,
        w.FetchRequest: topics.FetchGuard(name_of),
        w.ProduceRequest: topics.produce,
        w.OffsetFetchRequests: offsets.offset_fetch,
        w.OffsetFetchByIdRequests: by_id.fetch,
        m.OffsetCommitRequest: offsets.offset_commit,
        m.OffsetCommitByIdRequest: by_id.commit,
        m.OffsetDeleteRequest: offsets.offset_delete,
        m.TxnOffsetCommitRequest: offsets.txn_offset_commit,
        m.TxnOffsetCommitByIdRequest: by_id.commit_in_transaction,
        w.DescribeGroupsRequest: groups.describe_groups,
        w.DeleteGroupsRequest: groups.delete_groups,
        m.ListGroupsRequest: groups.list_groups,
        c.ConsumerGroupHeartbeatRequest: consumer_groups.heartbeat,
        c.ConsumerGroupDescribeRequest: consumer_groups.describe,
        f.DescribeConfigsRequest: configs.describe,
        f.AlterConfigsRequest: configs.alter,
        f.IncrementalAlterConfigsRequest: configs.alter,
        f.ListConfigResourcesRequest: configs.list_resources,
        **GUARDS,
        m.JoinGroupRequest: groups.one_group(Operation.READ, groups.no_member),
        m.SyncGroupRequest: reads_group,
        m.HeartbeatRequest: reads_group,
        m.LeaveGroupRequest: reads_group,
        t.InitProducerIdRequest: transactions.init_producer_id,
        t.AddPartitionsToTxnRequest: transactions.add_partitions,
        t.AddOffsetsToTxnRequest: transactions.add_offsets,
        t.EndTxnRequest: transactions.own_transaction,
        t.DescribeTransactionsRequest: transactions.describe_transactions,
        t.ListTransactionsRequest: transactions.list_transactions,
    }
