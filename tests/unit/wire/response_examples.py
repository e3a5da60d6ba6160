"""Responses of every API: a strategy for what our encoder is given, and its description for kio in a version."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from tests.unit.wire.request_examples import (
    ASSIGNMENT,
    BLOB,
    I8,
    I16,
    I32,
    I64,
    MAYBE_TEXT,
    TEXT,
    UUID,
    acl_fields,
    by_id,
    key_of,
    some,
    topics,
)

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as g
from muster_coordinator.requests import security as s

ERROR = st.sampled_from([int(code) for code in ErrorCode])
RESULTS = topics(st.tuples(I32, ERROR))
RESULTS_BY_ID = topics(st.tuples(I32, ERROR), UUID)
BROKER = st.builds(w.MetadataBroker, node_id=I32, host=TEXT, port=I32, rack=MAYBE_TEXT, is_fenced=st.booleans())

Description = dict[str, Any]


def results(value: Any) -> list[Description]:
    return [
        {**key_of(topic), "partitions": [{"partition_index": index, "error_code": code} for index, code in partitions]}
        for topic, partitions in value
    ]


def offset_fetch(v: int) -> st.SearchStrategy[Any]:
    group = st.builds(
        g.OffsetFetchByIdResponse if v >= 10 else g.OffsetFetchResponse,
        group_id=TEXT,
        error_code=st.just(0) | ERROR,
        topics=topics(st.tuples(I32, I64, I32, TEXT, ERROR), UUID if v >= 10 else TEXT),
    )
    responses = w.OffsetFetchByIdResponses if v >= 10 else w.OffsetFetchResponses
    return st.builds(responses, groups=some(group) if v >= 8 else st.tuples(group))


def describe_offset_fetch(r: Any, v: int) -> Description:
    def group(each: Any) -> Description:
        shown = each.topics if v == 1 or each.error_code == 0 else ()
        return {
            "group_id": each.group_id,
            "error_code": each.error_code,
            "topics": [
                {
                    **key_of(topic),
                    "partitions": [
                        {
                            "partition_index": index,
                            "committed_offset": offset,
                            "committed_leader_epoch": epoch,
                            "metadata": metadata,
                            "error_code": each.error_code if each.error_code else code,
                        }
                        for index, offset, epoch, metadata, code in partitions
                    ],
                }
                for topic, partitions in shown
            ],
        }

    groups = [group(each) for each in r.groups]
    return {**(groups[0] if v < 8 else {}), "groups": groups}


def find_coordinator(v: int) -> st.SearchStrategy[Any]:
    coordinator = st.builds(
        w.Coordinator, key=TEXT, node_id=I32, host=TEXT, port=I32, error_code=ERROR, error_message=TEXT
    )
    return st.builds(w.FindCoordinatorResponse, coordinators=some(coordinator) if v >= 4 else st.tuples(coordinator))


def describe_find_coordinator(r: Any, v: int) -> Description:
    coordinators = [
        {
            "key": c.key,
            "node_id": c.node_id,
            "host": c.host,
            "port": c.port,
            "error_code": c.error_code,
            "error_message": c.error_message,
        }
        for c in r.coordinators
    ]
    return {**(coordinators[0] if v < 4 else {}), "coordinators": coordinators}


def join_group(v: int) -> st.SearchStrategy[Any]:
    member = st.builds(g.JoinGroupMember, member_id=TEXT, group_instance_id=MAYBE_TEXT, metadata=BLOB)
    return st.builds(
        g.JoinGroupResponse,
        error_code=ERROR,
        generation_id=I32,
        protocol_type=MAYBE_TEXT,
        protocol_name=MAYBE_TEXT,
        leader=TEXT,
        skip_assignment=st.booleans(),
        member_id=TEXT,
        members=some(member),
    )


def describe_join_group(r: Any, v: int) -> Description:
    return {
        "error_code": r.error_code,
        "generation_id": r.generation_id,
        "protocol_type": r.protocol_type,
        "protocol_name": (r.protocol_name or "") if v < 7 else (r.protocol_name or None),
        "leader": r.leader,
        "skip_assignment": r.skip_assignment,
        "member_id": r.member_id,
        "members": [
            {"member_id": m.member_id, "group_instance_id": m.group_instance_id, "metadata": m.metadata}
            for m in r.members
        ],
    }


def leave_group(v: int) -> st.SearchStrategy[Any]:
    member = st.builds(g.LeftMember, member_id=TEXT, group_instance_id=MAYBE_TEXT, error_code=ERROR)
    return st.builds(
        g.LeaveGroupResponse,
        error_code=st.just(0) | ERROR,
        members=some(member) if v >= 3 else some(member, 1),
    )


def describe_leave_group(r: Any, v: int) -> Description:
    error_code = r.error_code
    if v < 3 and error_code == 0 and r.members:
        error_code = r.members[0].error_code
    return {
        "error_code": error_code,
        "members": [
            {"member_id": m.member_id, "group_instance_id": m.group_instance_id, "error_code": m.error_code}
            for m in r.members
        ],
    }


def sync_group(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        g.SyncGroupResponse, error_code=ERROR, protocol_type=MAYBE_TEXT, protocol_name=MAYBE_TEXT, assignment=BLOB
    )


def describe_sync_group(r: Any, v: int) -> Description:
    return {
        "error_code": r.error_code,
        "protocol_type": r.protocol_type,
        "protocol_name": r.protocol_name,
        "assignment": r.assignment,
    }


def metadata(v: int) -> st.SearchStrategy[Any]:
    nodes = some(I32) | st.just(tuple(range(200)))
    partition = st.builds(
        w.MetadataPartition,
        partition=I32,
        leader_id=I32,
        error_code=ERROR,
        leader_epoch=I32,
        replicas=nodes,
        isr=nodes,
        offline_replicas=nodes,
    )
    topic = st.builds(
        w.MetadataTopic,
        name=MAYBE_TEXT,
        topic_id=UUID,
        error_code=ERROR,
        is_internal=st.booleans(),
        partitions=some(partition),
        authorized_operations=I32,
    )
    return st.builds(
        w.MetadataResponse,
        brokers=some(BROKER),
        cluster_id=MAYBE_TEXT,
        controller_id=I32,
        topics=some(topic, 2),
        cluster_authorized_operations=I32,
        error_code=ERROR,
    )


def describe_metadata(r: Any, v: int) -> Description:
    return {
        "brokers": [{"node_id": b.node_id, "host": b.host, "port": b.port, "rack": b.rack} for b in r.brokers],
        "cluster_id": r.cluster_id,
        "controller_id": r.controller_id,
        "cluster_authorized_operations": r.cluster_authorized_operations,
        "error_code": r.error_code,
        "topics": [
            {
                "error_code": t.error_code,
                "name": t.name if v >= 12 else (t.name or ""),
                "topic_id": t.topic_id,
                "is_internal": t.is_internal,
                "topic_authorized_operations": t.authorized_operations,
                "partitions": [
                    {
                        "error_code": p.error_code,
                        "partition_index": p.partition,
                        "leader_id": p.leader_id,
                        "leader_epoch": p.leader_epoch,
                        "replica_nodes": p.replicas,
                        "isr_nodes": p.isr,
                        "offline_replicas": p.offline_replicas,
                    }
                    for p in t.partitions
                ],
            }
            for t in r.topics
        ],
    }


def list_groups(v: int) -> st.SearchStrategy[Any]:
    group = st.builds(g.ListedGroup, group_id=TEXT, protocol_type=TEXT, group_state=TEXT, group_type=TEXT)
    return st.builds(g.ListGroupsResponse, error_code=ERROR, groups=some(group))


def describe_list_groups(r: Any, v: int) -> Description:
    return {
        "error_code": r.error_code,
        "groups": [
            {
                "group_id": each.group_id,
                "protocol_type": each.protocol_type,
                "group_state": each.group_state,
                "group_type": each.group_type,
            }
            for each in r.groups
        ],
    }


def describe_groups(v: int) -> st.SearchStrategy[Any]:
    member = st.builds(
        g.DescribedMember,
        member_id=TEXT,
        group_instance_id=MAYBE_TEXT,
        client_id=TEXT,
        client_host=TEXT,
        metadata=BLOB,
        assignment=BLOB,
    )
    group = st.builds(
        g.DescribedGroup,
        group_id=TEXT,
        error_code=ERROR,
        error_message=MAYBE_TEXT,
        group_state=TEXT,
        protocol_type=TEXT,
        protocol_data=TEXT,
        members=some(member),
    )
    return st.builds(w.DescribeGroupsResponse, groups=some(group))


def describe_describe_groups(r: Any, v: int) -> Description:
    return {
        "groups": [
            {
                "error_code": each.error_code,
                "error_message": each.error_message,
                "group_id": each.group_id,
                "group_state": each.group_state,
                "protocol_type": each.protocol_type,
                "protocol_data": each.protocol_data,
                "members": [
                    {
                        "member_id": m.member_id,
                        "group_instance_id": m.group_instance_id,
                        "client_id": m.client_id,
                        "client_host": m.client_host,
                        "member_metadata": m.metadata,
                        "member_assignment": m.assignment,
                    }
                    for m in each.members
                ],
            }
            for each in r.groups
        ],
    }


def list_offsets(v: int) -> st.SearchStrategy[Any]:
    return st.builds(w.ListOffsetsResponse, topics=topics(st.tuples(I32, ERROR, I64, I64, I32)))


def describe_list_offsets(r: Any, v: int) -> Description:
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": code,
                        "timestamp": timestamp,
                        "offset": offset,
                        "leader_epoch": epoch,
                    }
                    for index, code, timestamp, offset, epoch in partitions
                ],
            }
            for name, partitions in r.topics
        ]
    }


def fetch(v: int) -> st.SearchStrategy[Any]:
    topic = st.builds(w.FetchedTopic, name=TEXT, topic_id=UUID, partitions=some(st.tuples(I32, ERROR, I64)))
    return st.builds(w.FetchResponse, error_code=ERROR, session_id=I32, topics=some(topic))


def describe_fetch(r: Any, v: int) -> Description:
    return {
        "error_code": r.error_code,
        "session_id": r.session_id,
        "responses": [
            {
                "topic": t.name,
                "topic_id": t.topic_id,
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": code,
                        "high_watermark": high_watermark,
                        "last_stable_offset": high_watermark,
                        "log_start_offset": -1 if code else 0,
                        "aborted_transactions": [] if code else None,
                        "records": b"",
                    }
                    for index, code, high_watermark in t.partitions
                ],
            }
            for t in r.topics
        ],
    }


def describe_cluster(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        w.DescribeClusterResponse,
        error_code=ERROR,
        cluster_id=TEXT,
        controller_id=I32,
        brokers=some(BROKER),
        error_message=MAYBE_TEXT,
        endpoint_type=st.integers(1, 2),
        cluster_authorized_operations=I32,
    )


def describe_describe_cluster(r: Any, v: int) -> Description:
    return {
        "error_code": r.error_code,
        "error_message": r.error_message,
        "endpoint_type": r.endpoint_type,
        "cluster_id": r.cluster_id,
        "controller_id": r.controller_id,
        "brokers": [
            {"broker_id": b.node_id, "host": b.host, "port": b.port, "rack": b.rack, "is_fenced": b.is_fenced}
            for b in r.brokers
        ],
        "cluster_authorized_operations": r.cluster_authorized_operations,
    }


def describe_txn_offset_commit(r: Any, v: int) -> Description:
    rewritten = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: int(ErrorCode.COORDINATOR_NOT_AVAILABLE)} if v < 2 else {}
    return {
        "topics": results(
            [
                (name, [(index, rewritten.get(code, code)) for index, code in partitions])
                for name, partitions in r.topics
            ]
        )
    }


def describe_produce(r: Any, v: int) -> Description:
    def partition(index: int, error_code: int) -> Description:
        return {
            "index": index,
            "error_code": error_code,
            "base_offset": -1,
            "log_append_time": None,
            "record_errors": (),
            "error_message": r.error_message,
        }

    return {
        "responses": [
            {"name": name, "partition_responses": [partition(*each) for each in partitions]}
            for name, partitions in r.topics
        ]
    }


def consumer_heartbeat(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        c.ConsumerGroupHeartbeatResponse,
        error_code=ERROR,
        error_message=MAYBE_TEXT,
        member_id=MAYBE_TEXT,
        member_epoch=I32,
        heartbeat_interval_ms=I32,
        assignment=st.none() | ASSIGNMENT,
    )


def describe_consumer_heartbeat(r: Any, v: int) -> Description:
    return {
        "error_code": r.error_code,
        "error_message": r.error_message,
        "member_id": r.member_id,
        "member_epoch": r.member_epoch,
        "heartbeat_interval": r.heartbeat_interval_ms,
        "assignment": None if r.assignment is None else {"topic_partitions": by_id(r.assignment)},
    }


NAMED = some(st.tuples(UUID, TEXT, some(I32)))
CONSUMER_MEMBER = st.builds(
    c.DescribedConsumerMember,
    member_id=TEXT,
    instance_id=MAYBE_TEXT,
    rack_id=MAYBE_TEXT,
    member_epoch=I32,
    client_id=TEXT,
    client_host=TEXT,
    subscribed_topic_names=some(TEXT),
    subscribed_topic_regex=MAYBE_TEXT,
    assignment=NAMED,
    target_assignment=NAMED,
    member_type=I8,
)
CONSUMER_GROUP = st.builds(
    c.DescribedConsumerGroup,
    group_id=TEXT,
    error_code=ERROR,
    error_message=MAYBE_TEXT,
    group_state=TEXT,
    group_epoch=I32,
    assignment_epoch=I32,
    assignor_name=TEXT,
    members=some(CONSUMER_MEMBER, 2),
    authorized_operations=st.none() | I32,
)


def _assignment(value: Any) -> Description:
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": name, "partitions": partitions} for topic_id, name, partitions in value
        ]
    }


def _fields(value: Any) -> Description:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _described_group(each: Any, operations: int) -> Description:
    own = each.authorized_operations
    return _fields(each) | {
        "members": [
            _fields(member)
            | {"assignment": _assignment(member.assignment), "target_assignment": _assignment(member.target_assignment)}
            for member in each.members
        ],
        "authorized_operations": operations if own is None else own,
    }


def consumer_describe(v: int) -> st.SearchStrategy[Any]:
    return st.builds(c.ConsumerGroupDescribeResponse, groups=some(CONSUMER_GROUP), authorized_operations=I32)


def describe_consumer_describe(r: Any, v: int) -> Description:
    return {"groups": [_described_group(each, r.authorized_operations) for each in r.groups]}


def other_protocol(v: int) -> st.SearchStrategy[Any]:
    return st.builds(w.OtherProtocolResponse, error_code=ERROR, error_message=MAYBE_TEXT)


def describe_other_protocol(member_id: str | None) -> Callable[[Any, int], Description]:
    """Beside the error everything is at its default."""
    return lambda r, v: {
        "error_code": r.error_code,
        "error_message": r.error_message,
        "member_id": member_id,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
        "acceptable_recovery_lag": 0,
        "task_offset_interval": 0,
        "status": [],
        "active_tasks": None,
        "standby_tasks": None,
        "warmup_tasks": None,
        "endpoint_information_epoch": 0,
        "partitions_by_user_endpoint": None,
    }


ACL_CHANGE = st.builds(s.AclChange, error_code=ERROR, error_message=MAYBE_TEXT)


def user_credentials(credentials: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(s.UserCredentials, user=TEXT, error_code=ERROR, error_message=MAYBE_TEXT, credentials=credentials)


def describe_acls(v: int) -> st.SearchStrategy[Any]:
    """As the handler gives them: those of a resource together."""
    acls = some(acl_fields(s.AclBinding, st.sampled_from(["a", "b", "ü"])), 6)
    return st.builds(
        s.DescribeAclsResponse,
        error_code=ERROR,
        error_message=MAYBE_TEXT,
        acls=acls.map(lambda found: tuple(sorted(found, key=_resource))),
    )


def _resource(acl: Any) -> tuple[int, str, int]:
    return acl.resource_type, acl.name, acl.pattern


def describe_describe_acls(r: Any, v: int) -> Description:
    return {
        "error_code": r.error_code,
        "error_message": r.error_message,
        "resources": [
            {
                "resource_type": resource_type,
                "resource_name": name,
                "pattern_type": pattern,
                "acls": [
                    {
                        "principal": e.principal,
                        "host": e.host,
                        "operation": e.operation,
                        "permission_type": e.permission,
                    }
                    for e in acls
                ],
            }
            for (resource_type, name, pattern), acls in itertools.groupby(r.acls, _resource)
        ],
    }


CONFIG = st.builds(
    f.DescribedConfig,
    name=TEXT,
    value=MAYBE_TEXT,
    source=I8,
    read_only=st.booleans(),
    sensitive=st.booleans(),
    synonyms=some(st.builds(f.ConfigSynonym, name=TEXT, value=MAYBE_TEXT, source=I8)),
    config_type=I8,
    documentation=MAYBE_TEXT,
)


def _fields(value: Any, *but: str) -> Description:
    return {name: getattr(value, name) for name in value.__struct_fields__ if name not in but}


def config_resource(each: Any) -> Description:
    return _fields(each, "configs", "name") | {"resource_name": each.name}


def described_config(each: Any) -> Description:
    return _fields(each) | {
        "config_source": each.source,
        "is_sensitive": each.sensitive,
        "synonyms": [_fields(one) for one in each.synonyms],
    }


CONFIG_RESOURCE = {"resource_type": I8, "name": TEXT, "error_code": ERROR, "error_message": MAYBE_TEXT}


def altered_configs(version: int) -> st.SearchStrategy[f.AlterConfigsResponse]:
    return st.builds(f.AlterConfigsResponse, results=some(st.builds(f.AlteredResource, **CONFIG_RESOURCE)))  # type: ignore[arg-type]


def describe_altered_configs(response: Any, version: int) -> Description:
    return {"responses": [config_resource(each) for each in response.results]}


RESPONSES: dict[int, tuple[Callable[[int], st.SearchStrategy[Any]], Callable[[Any, int], Description]]] = {
    0: (lambda v: st.builds(w.ProduceResponse, topics=RESULTS, error_message=MAYBE_TEXT), describe_produce),
    1: (fetch, describe_fetch),
    2: (list_offsets, describe_list_offsets),
    3: (metadata, describe_metadata),
    8: (
        lambda v: (
            st.builds(g.OffsetCommitByIdResponse, topics=RESULTS_BY_ID)
            if v >= 10
            else st.builds(g.OffsetCommitResponse, topics=RESULTS)
        ),
        lambda r, v: {"topics": results(r.topics)},
    ),
    9: (offset_fetch, describe_offset_fetch),
    10: (find_coordinator, describe_find_coordinator),
    11: (join_group, describe_join_group),
    12: (lambda v: st.builds(g.HeartbeatResponse, error_code=ERROR), lambda r, v: {"error_code": r.error_code}),
    13: (leave_group, describe_leave_group),
    14: (sync_group, describe_sync_group),
    15: (describe_groups, describe_describe_groups),
    16: (list_groups, describe_list_groups),
    17: (
        lambda v: st.builds(w.SaslHandshakeResponse, error_code=ERROR, mechanisms=some(TEXT)),
        lambda r, v: {"error_code": r.error_code, "mechanisms": r.mechanisms},
    ),
    18: (
        lambda v: st.builds(w.ApiVersionsResponse, error_code=ERROR, api_keys=some(st.tuples(I16, I16, I16))),
        lambda r, v: {
            "error_code": r.error_code,
            "api_keys": [{"api_key": k, "min_version": low, "max_version": high} for k, low, high in r.api_keys],
        },
    ),
    27: (
        lambda v: st.builds(w.WriteTxnMarkersResponse, markers=some(st.tuples(I64, RESULTS))),
        lambda r, v: {"markers": [{"producer_id": p, "topics": results(topics_)} for p, topics_ in r.markers]},
    ),
    28: (lambda v: st.builds(g.TxnOffsetCommitResponse, topics=RESULTS), describe_txn_offset_commit),
    29: (describe_acls, describe_describe_acls),
    30: (
        lambda v: st.builds(s.CreateAclsResponse, results=some(ACL_CHANGE)),
        lambda r, v: {"results": [{"error_code": e.error_code, "error_message": e.error_message} for e in r.results]},
    ),
    31: (
        lambda v: st.builds(s.DeleteAclsResponse, results=some(ACL_CHANGE)),
        lambda r, v: {
            "filter_results": [
                {"error_code": e.error_code, "error_message": e.error_message, "matching_acls": []} for e in r.results
            ]
        },
    ),
    32: (
        lambda v: st.builds(
            f.DescribeConfigsResponse,
            results=some(st.builds(f.DescribedResource, configs=some(CONFIG, 2), **CONFIG_RESOURCE)),  # type: ignore[arg-type]
        ),
        lambda r, v: {
            "results": [
                config_resource(each) | {"configs": [described_config(one) for one in each.configs]}
                for each in r.results
            ]
        },
    ),
    33: (altered_configs, describe_altered_configs),
    36: (
        lambda v: st.builds(
            w.SaslAuthenticateResponse,
            error_code=ERROR,
            error_message=MAYBE_TEXT,
            auth_bytes=st.binary(max_size=200),
            session_lifetime_ms=st.integers(0, 1 << 53) if v >= 1 else st.just(0),  # kio has a timedelta
        ),
        lambda r, v: {
            "error_code": r.error_code,
            "error_message": r.error_message,
            "auth_bytes": r.auth_bytes,
            "session_lifetime": r.session_lifetime_ms,
        },
    ),
    42: (
        lambda v: st.builds(
            w.DeleteGroupsResponse, results=some(st.builds(g.DeleteGroupResponse, group_id=TEXT, error_code=ERROR))
        ),
        lambda r, v: {"results": [{"group_id": e.group_id, "error_code": e.error_code} for e in r.results]},
    ),
    44: (altered_configs, describe_altered_configs),
    47: (
        lambda v: st.builds(g.OffsetDeleteResponse, error_code=ERROR, topics=RESULTS),
        lambda r, v: {"error_code": r.error_code, "topics": results(r.topics)},
    ),
    48: (
        lambda v: st.builds(s.DescribeClientQuotasResponse, error_code=ERROR, error_message=MAYBE_TEXT),
        lambda r, v: {
            "error_code": r.error_code,
            "error_message": r.error_message,
            "entries": None if r.error_code else [],
        },
    ),
    50: (
        lambda v: st.builds(
            s.DescribeUserScramCredentialsResponse,
            error_code=ERROR,
            error_message=MAYBE_TEXT,
            results=some(user_credentials(some(st.tuples(st.integers(1, 2), I32)))),
        ),
        lambda r, v: {
            "error_code": r.error_code,
            "error_message": r.error_message,
            "results": [
                {
                    "user": e.user,
                    "error_code": e.error_code,
                    "error_message": e.error_message,
                    "credential_infos": [{"mechanism": m, "iterations": i} for m, i in e.credentials],
                }
                for e in r.results
            ],
        },
    ),
    51: (
        lambda v: st.builds(s.AlterUserScramCredentialsResponse, results=some(user_credentials(st.just(())))),
        lambda r, v: {
            "results": [
                {"user": e.user, "error_code": e.error_code, "error_message": e.error_message} for e in r.results
            ]
        },
    ),
    60: (describe_cluster, describe_describe_cluster),
    68: (consumer_heartbeat, describe_consumer_heartbeat),
    69: (consumer_describe, describe_consumer_describe),
    74: (
        lambda v: st.builds(
            f.ListConfigResourcesResponse,
            error_code=ERROR,
            resources=some(st.builds(f.ListedResource, resource_type=I8, name=TEXT)),
        ),
        lambda r, v: {
            "error_code": r.error_code,
            "config_resources": [{"resource_name": e.name, "resource_type": e.resource_type} for e in r.resources],
        },
    ),
    76: (other_protocol, describe_other_protocol(None)),
    88: (other_protocol, describe_other_protocol("")),
}
"""API key -> (version -> strategy of responses, (response, version) -> description for kio)."""
