"""The handler that carries out each request."""

from __future__ import annotations

from collections.abc import Mapping

from muster_coordinator.listener.handlers.cluster import ClusterHandlers
from muster_coordinator.listener.handlers.configs import ConfigHandlers
from muster_coordinator.listener.handlers.groups import GroupHandlers
from muster_coordinator.listener.handlers.producers import ProducerHandlers
from muster_coordinator.listener.handlers.routes import SubmitEarly
from muster_coordinator.listener.handlers.security import SecurityHandlers
from muster_coordinator.listener.handlers.topic_ids import TopicIdHandlers
from muster_coordinator.listener.handlers.topics import TopicHandlers
from muster_coordinator.listener.handlers.transactions import TransactionHandlers
from muster_coordinator.listener.handlers.txn_offsets import Barrier, TxnOffsetHandlers
from muster_coordinator.listener.state import Handler
from muster_coordinator.pod.cluster_view import ClusterView
from muster_coordinator.pod.pod_connections import PodConnections
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import security as s
from muster_coordinator.requests import transactions as t
from muster_coordinator.shard.shard import Shard
from muster_coordinator.wire.served import KAFKA_4_3, ServedApis

NO_SECURITY = SecurityHandlers()
"""The handlers of a pod without files of ACLs and users."""


def handler_table(
    view: ClusterView,
    shards: Mapping[int, Shard],
    submit_early: SubmitEarly,
    connections: PodConnections,
    listener: str = "",
    barrier: Barrier | None = None,
    security: SecurityHandlers = NO_SECURITY,
    asked_by_pods: bool = False,
    served: ServedApis = KAFKA_4_3,
) -> dict[type, Handler]:
    """Request type -> handler, for a listener or for what other pods ask. Every served API decodes to a type in here,
    which a test checks."""
    cluster = ClusterHandlers(view, listener, served)
    topics = TopicHandlers(view)
    groups = GroupHandlers(view, shards, submit_early)
    transactions = TransactionHandlers(view, shards, submit_early)
    txn_offsets = TxnOffsetHandlers(view, shards, groups, transactions, connections, barrier)
    by_id = TopicIdHandlers(view, groups.route, txn_offsets.txn_offset_commit)
    configs = ConfigHandlers(view, shards, groups.route, None if asked_by_pods else connections)
    return {
        w.ApiVersionsRequest: cluster.api_versions,
        w.SaslHandshakeRequest: cluster.sasl_handshake,
        w.SaslAuthenticateRequest: cluster.sasl_authenticate,
        w.MetadataRequest: cluster.metadata,
        w.DescribeClusterRequest: cluster.describe_cluster,
        w.FindCoordinatorRequest: cluster.find_coordinator,
        w.OtherProtocolRequest: cluster.other_protocol,
        c.ConsumerGroupHeartbeatRequest: groups.route,
        c.ConsumerGroupDescribeRequest: groups.describe_consumer_groups,
        f.DescribeConfigsRequest: configs.describe,
        f.AlterConfigsRequest: configs.alter,
        f.IncrementalAlterConfigsRequest: configs.alter,
        f.ListConfigResourcesRequest: configs.list_resources,
        w.ListOffsetsRequest: topics.list_offsets,
        w.FetchRequest: topics.fetch,
        w.ProduceRequest: topics.produce,
        w.OffsetFetchRequests: groups.offset_fetch,
        w.OffsetFetchByIdRequests: by_id.offset_fetch,
        w.DescribeGroupsRequest: groups.describe_groups,
        w.DeleteGroupsRequest: groups.delete_groups,
        w.WriteTxnMarkersRequest: groups.write_txn_markers,
        w.DescribePartitionsProducersRequest: ProducerHandlers(view, shards).describe_producers,
        s.DescribeAclsRequest: security.describe_acls,
        s.CreateAclsRequest: security.create_acls,
        s.DeleteAclsRequest: security.delete_acls,
        s.DescribeClientQuotasRequest: security.describe_quotas,
        s.DescribeUserScramCredentialsRequest: security.describe_users,
        s.AlterUserScramCredentialsRequest: security.alter_users,
        m.ListGroupsRequest: groups.list_groups,
        m.JoinGroupRequest: groups.route,
        m.SyncGroupRequest: groups.route,
        m.HeartbeatRequest: groups.route,
        m.LeaveGroupRequest: groups.route,
        m.OffsetCommitRequest: groups.route,
        m.OffsetCommitByIdRequest: by_id.offset_commit,
        m.OffsetDeleteRequest: groups.offset_delete,
        m.TxnOffsetCommitRequest: txn_offsets.txn_offset_commit,
        m.TxnOffsetCommitByIdRequest: by_id.txn_offset_commit,
        t.InitProducerIdRequest: transactions.init_producer_id,
        t.AddPartitionsToTxnRequest: transactions.add_partitions,
        t.AddOffsetsToTxnRequest: transactions.route,
        t.EndTxnRequest: transactions.route,
        t.DescribeTransactionsRequest: transactions.describe_transactions,
        t.ListTransactionsRequest: transactions.list_transactions,
    }
