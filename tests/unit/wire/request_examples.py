"""Requests of every API: a strategy per API for what our decoder gives, and its description for kio.

`REQUESTS[key](version)` draws only what that version can say, so that decoding what kio wrote must give it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from muster_coordinator.requests import cluster as w
from muster_coordinator.requests import configs as f
from muster_coordinator.requests import consumer_groups as c
from muster_coordinator.requests import groups as g
from muster_coordinator.requests import security as s

CLIENT_ID, CLIENT_HOST = "rdkafka-ü", "/127.0.0.1"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
MAYBE_TEXT = st.none() | TEXT
BLOB = st.binary(max_size=300)
I8 = st.integers(-(2**7), 2**7 - 1)
I16 = st.integers(-(2**15), 2**15 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
UUID = st.binary(min_size=16, max_size=16)
DURATION = st.integers(-(2**31), 2**31 - 1)
LONG_DURATION = st.integers(-(2**40), 2**40)


def some(element: st.SearchStrategy[Any], max_size: int = 3) -> st.SearchStrategy[Any]:
    return st.lists(element, max_size=max_size).map(tuple)


def since(condition: bool, strategy: st.SearchStrategy[Any], otherwise: Any) -> st.SearchStrategy[Any]:
    return strategy if condition else st.just(otherwise)


def topics(partition: st.SearchStrategy[Any], key: st.SearchStrategy[Any] = TEXT) -> st.SearchStrategy[Any]:
    # Now and then more than 127 elements, a few over and over: a compact length of two bytes.
    many = st.lists(partition, min_size=2, max_size=3).map(lambda few: tuple(few * 65))
    return some(st.tuples(key, some(partition) | many), 2)


def key_of(topic: Any) -> dict[str, Any]:
    """How a version names a topic: an id of 16 bytes or a name."""
    return {"topic_id" if isinstance(topic, bytes) else "name": topic}


def offset_commit(v: int) -> st.SearchStrategy[Any]:
    partition = st.tuples(I32, I64, since(v >= 6, I32, -1), MAYBE_TEXT)
    if v >= 10:
        return st.builds(
            g.OffsetCommitByIdRequest,
            group_id=TEXT,
            generation_id=I32,
            member_id=TEXT,
            group_instance_id=MAYBE_TEXT,
            topics=topics(partition, UUID),
            api_version=st.just(v),
        )
    return st.builds(
        g.OffsetCommitRequest,
        group_id=TEXT,
        generation_id=I32,
        member_id=TEXT,
        group_instance_id=since(v >= 7, MAYBE_TEXT, None),
        retention_time_ms=since(v <= 4, LONG_DURATION, -1),
        topics=topics(partition),
        api_version=st.just(v),
    )


def describe_offset_commit(r: Any) -> dict[str, Any]:
    return {
        "group_id": r.group_id,
        "generation_id_or_member_epoch": r.generation_id,
        "generation_id": r.generation_id,
        "member_id": r.member_id,
        "group_instance_id": r.group_instance_id,
        "retention_time": getattr(r, "retention_time_ms", -1),
        "topics": [
            {
                **key_of(topic),
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_leader_epoch": epoch,
                        "committed_metadata": metadata,
                    }
                    for index, offset, epoch, metadata in partitions
                ],
            }
            for topic, partitions in r.topics
        ],
    }


def txn_offset_commit(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        g.TxnOffsetCommitRequest,
        transactional_id=TEXT,
        group_id=TEXT,
        producer_id=I64,
        producer_epoch=I16,
        generation_id=since(v >= 3, I32, -1),
        member_id=since(v >= 3, TEXT, ""),
        group_instance_id=since(v >= 3, MAYBE_TEXT, None),
        topics=topics(st.tuples(I32, I64, since(v >= 2, I32, -1), MAYBE_TEXT)),
        api_version=st.just(v),
    )


def describe_txn_offset_commit(r: Any) -> dict[str, Any]:
    return {
        "transactional_id": r.transactional_id,
        "group_id": r.group_id,
        "producer_id": r.producer_id,
        "producer_epoch": r.producer_epoch,
        "generation_id": r.generation_id,
        "member_id": r.member_id,
        "group_instance_id": r.group_instance_id,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_leader_epoch": epoch,
                        "committed_metadata": metadata,
                    }
                    for index, offset, epoch, metadata in partitions
                ],
            }
            for name, partitions in r.topics
        ],
    }


def offset_fetch(v: int) -> st.SearchStrategy[Any]:
    def request(require_stable: bool) -> st.SearchStrategy[Any]:
        wanted = topics(I32, UUID if v >= 10 else TEXT)
        group = st.builds(
            g.OffsetFetchByIdRequest if v >= 10 else g.OffsetFetchRequest,
            group_id=TEXT,
            member_id=since(v >= 9, MAYBE_TEXT, None),
            member_epoch=since(v >= 9, I32, -1),
            topics=(st.none() | wanted) if v >= 2 else wanted,
            require_stable=st.just(require_stable),
        )
        groups = some(group) if v >= 8 else st.tuples(group)
        requests = w.OffsetFetchByIdRequests if v >= 10 else w.OffsetFetchRequests
        return st.builds(requests, groups=groups, require_stable=st.just(require_stable))

    return since(v >= 7, st.booleans(), False).flatmap(request)


def describe_offset_fetch(r: Any) -> dict[str, Any]:
    def group(each: Any) -> dict[str, Any]:
        wanted = each.topics and [{**key_of(topic), "partition_indexes": indexes} for topic, indexes in each.topics]
        return {
            "group_id": each.group_id,
            "member_id": each.member_id,
            "member_epoch": each.member_epoch,
            "topics": wanted,
        }

    groups = [group(each) for each in r.groups]
    return {**(groups[0] if groups else {}), "groups": groups, "require_stable": r.require_stable}


def find_coordinator(v: int) -> st.SearchStrategy[Any]:
    keys = some(TEXT) if v >= 4 else st.tuples(TEXT)
    return st.builds(w.FindCoordinatorRequest, key_type=since(v >= 1, I8, 0), keys=keys)


def describe_find_coordinator(r: Any) -> dict[str, Any]:
    return {"key": r.keys[0] if r.keys else "", "key_type": r.key_type, "coordinator_keys": r.keys}


def join_group(v: int) -> st.SearchStrategy[Any]:
    def request(session_timeout_ms: int) -> st.SearchStrategy[Any]:
        return st.builds(
            g.JoinGroupRequest,
            group_id=TEXT,
            session_timeout_ms=st.just(session_timeout_ms),
            rebalance_timeout_ms=since(v >= 1, DURATION, session_timeout_ms),
            member_id=TEXT,
            group_instance_id=since(v >= 5, MAYBE_TEXT, None),
            protocol_type=TEXT,
            protocols=some(st.tuples(TEXT, BLOB)),
            reason=since(v >= 8, MAYBE_TEXT, None),
            client_id=st.just(CLIENT_ID),
            client_host=st.just(CLIENT_HOST),
            api_version=st.just(v),
        )

    return DURATION.flatmap(request)


def describe_join_group(r: Any) -> dict[str, Any]:
    return {
        "group_id": r.group_id,
        "session_timeout": r.session_timeout_ms,
        "rebalance_timeout": r.rebalance_timeout_ms,
        "member_id": r.member_id,
        "group_instance_id": r.group_instance_id,
        "protocol_type": r.protocol_type,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in r.protocols],
        "reason": r.reason,
    }


def sync_group(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        g.SyncGroupRequest,
        group_id=TEXT,
        generation_id=I32,
        member_id=TEXT,
        group_instance_id=since(v >= 3, MAYBE_TEXT, None),
        protocol_type=since(v >= 5, MAYBE_TEXT, None),
        protocol_name=since(v >= 5, MAYBE_TEXT, None),
        assignments=some(st.tuples(TEXT, BLOB)),
        api_version=st.just(v),
    )


def describe_sync_group(r: Any) -> dict[str, Any]:
    return {
        "group_id": r.group_id,
        "generation_id": r.generation_id,
        "member_id": r.member_id,
        "group_instance_id": r.group_instance_id,
        "protocol_type": r.protocol_type,
        "protocol_name": r.protocol_name,
        "assignments": [{"member_id": member, "assignment": assignment} for member, assignment in r.assignments],
    }


def heartbeat(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        g.HeartbeatRequest,
        group_id=TEXT,
        generation_id=I32,
        member_id=TEXT,
        group_instance_id=since(v >= 3, MAYBE_TEXT, None),
    )


def describe_heartbeat(r: Any) -> dict[str, Any]:
    return {
        "group_id": r.group_id,
        "generation_id": r.generation_id,
        "member_id": r.member_id,
        "group_instance_id": r.group_instance_id,
    }


def leave_group(v: int) -> st.SearchStrategy[Any]:
    member = st.builds(
        g.LeavingMember,
        member_id=TEXT,
        group_instance_id=since(v >= 3, MAYBE_TEXT, None),
        reason=since(v >= 5, MAYBE_TEXT, None),
    )
    return st.builds(g.LeaveGroupRequest, group_id=TEXT, members=some(member) if v >= 3 else st.tuples(member))


def describe_leave_group(r: Any) -> dict[str, Any]:
    members = [
        {"member_id": m.member_id, "group_instance_id": m.group_instance_id, "reason": m.reason} for m in r.members
    ]
    return {"group_id": r.group_id, "member_id": members[0]["member_id"] if members else "", "members": members}


def api_versions(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        w.ApiVersionsRequest,
        client_software_name=since(v >= 3, TEXT, None),
        client_software_version=since(v >= 3, TEXT, None),
    )


def describe_api_versions(r: Any) -> dict[str, Any]:
    return {"client_software_name": r.client_software_name, "client_software_version": r.client_software_version}


def metadata(v: int) -> st.SearchStrategy[Any]:
    topic = st.builds(
        w.MetadataRequestTopic,
        name=MAYBE_TEXT if v >= 10 else TEXT,
        topic_id=since(v >= 10, UUID, bytes(16)),
    )
    wanted = st.none() | (some(topic) if v >= 1 else some(topic).filter(bool))
    if v >= 12:  # ids alone, or names alone
        by_id = st.builds(w.MetadataRequestTopic, name=st.none(), topic_id=UUID.filter(any))
        by_name = st.builds(w.MetadataRequestTopic, name=MAYBE_TEXT, topic_id=st.just(bytes(16)))
        wanted = st.none() | some(by_id) | some(by_name)
    return st.builds(
        w.MetadataRequest,
        topics=wanted,
        allow_auto_topic_creation=since(v >= 4, st.booleans(), True),
        include_cluster_authorized_operations=since(8 <= v <= 10, st.booleans(), False),
        include_topic_authorized_operations=since(v >= 8, st.booleans(), False),
    )


def describe_metadata(r: Any, v: int) -> dict[str, Any]:
    wanted = None if r.topics is None else [{"name": t.name, "topic_id": t.topic_id} for t in r.topics]
    return {
        "topics": (wanted or []) if v == 0 else wanted,
        "allow_auto_topic_creation": r.allow_auto_topic_creation,
        "include_cluster_authorized_operations": r.include_cluster_authorized_operations,
        "include_topic_authorized_operations": r.include_topic_authorized_operations,
    }


def list_groups(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        g.ListGroupsRequest,
        states_filter=since(v >= 4, some(TEXT), ()),
        types_filter=since(v >= 5, some(TEXT), ()),
    )


def describe_list_groups(r: Any) -> dict[str, Any]:
    return {"states_filter": r.states_filter, "types_filter": r.types_filter}


def describe_groups(v: int) -> st.SearchStrategy[Any]:
    group = st.builds(g.DescribeGroupRequest, group_id=TEXT, api_version=st.just(v))
    return st.builds(
        w.DescribeGroupsRequest,
        groups=some(group),
        include_authorized_operations=since(v >= 3, st.booleans(), False),
    )


def describe_describe_groups(r: Any) -> dict[str, Any]:
    return {
        "groups": tuple(each.group_id for each in r.groups),
        "include_authorized_operations": r.include_authorized_operations,
    }


def list_offsets(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        w.ListOffsetsRequest,
        replica_id=I32,
        isolation_level=since(v >= 2, I8, 0),
        topics=topics(st.tuples(I32, since(v >= 4, I32, -1), I64)),
    )


def describe_list_offsets(r: Any) -> dict[str, Any]:
    return {
        "replica_id": r.replica_id,
        "isolation_level": r.isolation_level,
        "timeout": 1234,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
                    for index, epoch, timestamp in partitions
                ],
            }
            for name, partitions in r.topics
        ],
    }


def fetch(v: int) -> st.SearchStrategy[Any]:
    topic = st.builds(
        w.FetchTopic,
        name=TEXT if v <= 12 else st.none(),
        topic_id=since(v >= 13, UUID, bytes(16)),
        partitions=some(st.tuples(I32, since(v >= 9, I32, -1), I64)),
    )
    return st.builds(
        w.FetchRequest,
        max_wait_ms=DURATION,
        min_bytes=I32,
        session_id=since(v >= 7, I32, 0),
        session_epoch=since(v >= 7, I32, -1),
        topics=some(topic),
    )


def describe_fetch(r: Any) -> dict[str, Any]:
    return {
        "cluster_id": "some-cluster",  # a tagged field, to be skipped
        "replica_id": -1,
        "max_wait": r.max_wait_ms,
        "min_bytes": r.min_bytes,
        "isolation_level": 1,
        "session_id": r.session_id,
        "session_epoch": r.session_epoch,
        "rack_id": "rack-1",
        "forgotten_topics_data": [{"topic": "gone", "topic_id": b"0123456789abcdef", "partitions": (1, 2)}],
        "topics": [
            {
                "topic": t.name,
                "topic_id": t.topic_id,
                "partitions": [
                    {
                        "partition": index,
                        "current_leader_epoch": epoch,
                        "fetch_offset": offset,
                        "last_fetched_epoch": 3,
                        "log_start_offset": 4,
                        "partition_max_bytes": 5,
                    }
                    for index, epoch, offset in t.partitions
                ],
            }
            for t in r.topics
        ],
    }


def describe_cluster(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        w.DescribeClusterRequest,
        include_cluster_authorized_operations=st.booleans(),
        endpoint_type=since(v >= 1, I8, 1),
        include_fenced_brokers=since(v >= 2, st.booleans(), False),
    )


def describe_describe_cluster(r: Any) -> dict[str, Any]:
    return {
        "include_cluster_authorized_operations": r.include_cluster_authorized_operations,
        "endpoint_type": r.endpoint_type,
        "include_fenced_brokers": r.include_fenced_brokers,
    }


def delete_groups(v: int) -> st.SearchStrategy[Any]:
    return st.builds(w.DeleteGroupsRequest, group_ids=some(TEXT))


def describe_delete_groups(r: Any) -> dict[str, Any]:
    return {"groups_names": r.group_ids}


def offset_delete(v: int) -> st.SearchStrategy[Any]:
    return st.builds(g.OffsetDeleteRequest, group_id=TEXT, topics=topics(I32))


def describe_offset_delete(r: Any) -> dict[str, Any]:
    return {
        "group_id": r.group_id,
        "topics": [
            {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
            for name, indexes in r.topics
        ],
    }


def write_txn_markers(v: int) -> st.SearchStrategy[Any]:
    marker = st.builds(
        w.TransactionMarker,
        producer_id=I64,
        producer_epoch=I16,
        committed=st.booleans(),
        coordinator_epoch=I32,
        topics=topics(I32),
        transaction_version=since(v >= 2, I8, 0),
    )
    return st.builds(w.WriteTxnMarkersRequest, markers=some(marker))


def describe_write_txn_markers(r: Any) -> dict[str, Any]:
    return {
        "markers": [
            {
                "producer_id": m.producer_id,
                "producer_epoch": m.producer_epoch,
                "transaction_result": m.committed,
                "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in m.topics],
                "coordinator_epoch": m.coordinator_epoch,
                "transaction_version": m.transaction_version,
            }
            for m in r.markers
        ]
    }


def produce(v: int) -> st.SearchStrategy[Any]:
    return st.builds(w.ProduceRequest, acks=I16, topics=topics(I32))


def describe_produce(r: Any) -> dict[str, Any]:
    records = [None, b"", b"not a record batch"]
    return {
        "transactional_id": "transaction",
        "acks": r.acks,
        "timeout": 30_000,
        "topic_data": [
            {
                "name": name,
                "partition_data": [{"index": index, "records": records[index % 3]} for index in indexes],
            }
            for name, indexes in r.topics
        ],
    }


ASSIGNMENT = some(st.tuples(UUID, some(I32)))


def consumer_heartbeat(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        c.ConsumerGroupHeartbeatRequest,
        group_id=TEXT,
        member_id=TEXT,
        member_epoch=I32,
        instance_id=MAYBE_TEXT,
        rack_id=MAYBE_TEXT,
        rebalance_timeout_ms=DURATION,
        subscribed_topic_names=st.none() | some(TEXT),
        subscribed_topic_regex=since(v >= 1, MAYBE_TEXT, None),
        server_assignor=MAYBE_TEXT,
        topic_partitions=st.none() | ASSIGNMENT,
        client_id=st.just(CLIENT_ID),
        client_host=st.just(CLIENT_HOST),
        api_version=st.just(v),
    )


def by_id(assignment: Any) -> list[dict[str, Any]]:
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in assignment]


def describe_consumer_heartbeat(r: Any) -> dict[str, Any]:
    fields = ("instance_id", "rack_id", "subscribed_topic_names", "subscribed_topic_regex", "server_assignor")
    return {name: getattr(r, name) for name in ("group_id", "member_id", "member_epoch", *fields)} | {
        "rebalance_timeout": r.rebalance_timeout_ms,
        "topic_partitions": None if r.topic_partitions is None else by_id(r.topic_partitions),
    }


def consumer_describe(v: int) -> st.SearchStrategy[Any]:
    return st.builds(
        c.ConsumerGroupDescribeRequest,
        groups=some(st.builds(c.DescribeConsumerGroupRequest, group_id=TEXT)),
        include_authorized_operations=st.booleans(),
    )


def describe_consumer_describe(r: Any) -> dict[str, Any]:
    return {
        "group_ids": tuple(each.group_id for each in r.groups),
        "include_authorized_operations": r.include_authorized_operations,
    }


def other_protocol(v: int) -> st.SearchStrategy[Any]:
    return st.builds(w.OtherProtocolRequest, group_id=TEXT, member_id=TEXT)


def describe_other_protocol(r: Any) -> dict[str, Any]:
    """Every field with something in it: all of them are to be skipped."""
    task_ids = [{"subtopology_id": "0", "partitions": (1, 2)}]
    offsets = [{"subtopology_id": "0", "partition": 1, "offset": 2**40}]
    pairs = [{"key": "k", "value": "v"}]
    topic = {"name": "t", "partitions": 3, "replication_factor": 1, "topic_configs": pairs}
    copartitions = {"source_topics": (1,), "source_topic_regex": (2, 3), "repartition_source_topics": ()}
    subtopology = {
        "subtopology_id": "0",
        "source_topics": ("t", "u"),
        "source_topic_regex": ("t.*",),
        "state_changelog_topics": [topic],
        "repartition_sink_topics": ("v",),
        "repartition_source_topics": [topic, topic],
        "copartition_groups": [copartitions],
    }
    full = len(r.group_id) % 2 == 0
    return {
        "group_id": r.group_id,
        "member_id": r.member_id,
        "member_epoch": 7,
        "endpoint_information_epoch": 8,
        "rack_id": None,
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ("t", "u") if full else None,
        "topology": {"epoch": 3, "subtopologies": [subtopology]} if full else None,
        "active_tasks": task_ids if full else None,
        "standby_tasks": [],
        "warmup_tasks": None,
        "process_id": "p",
        "user_endpoint": {"host": "h", "port": 60_000} if full else None,
        "client_tags": pairs if full else None,
        "task_offsets": offsets,
        "task_end_offsets": None,
        "shutdown_application": True,
    }


ACL_CODES = (st.integers(1, 7), st.integers(1, 4), st.integers(1, 14), st.integers(1, 3))  # as far as kio knows them


def acl_fields(kind: Any, text: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    resource, pattern, operation, permission = ACL_CODES
    return st.builds(
        kind,
        resource_type=resource,
        name=text,
        pattern=pattern,
        principal=text,
        host=text,
        operation=operation,
        permission=permission,
    )


def describe_filter(r: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": r.resource_type,
        "resource_name_filter": r.name,
        "pattern_type_filter": r.pattern,
        "principal_filter": r.principal,
        "host_filter": r.host,
        "operation": r.operation,
        "permission_type": r.permission,
    }


def describe_creation(r: Any) -> dict[str, Any]:
    return {
        "resource_type": r.resource_type,
        "resource_name": r.name,
        "resource_pattern_type": r.pattern,
        "principal": r.principal,
        "host": r.host,
        "operation": r.operation,
        "permission_type": r.permission,
    }


def describe_alter_users(r: Any) -> dict[str, Any]:
    """The decoder takes names only, deletions first."""
    half = len(r.users) // 2
    credential = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"secret"}
    return {
        "deletions": [{"name": name, "mechanism": 2} for name in r.users[:half]],
        "upsertions": [{"name": name, **credential} for name in r.users[half:]],
    }


REQUESTS: dict[int, tuple[Callable[[int], st.SearchStrategy[Any]], Callable[..., dict[str, Any]]]] = {
    0: (produce, describe_produce),
    1: (fetch, describe_fetch),
    2: (list_offsets, describe_list_offsets),
    3: (metadata, describe_metadata),
    8: (offset_commit, describe_offset_commit),
    9: (offset_fetch, describe_offset_fetch),
    10: (find_coordinator, describe_find_coordinator),
    11: (join_group, describe_join_group),
    12: (heartbeat, describe_heartbeat),
    13: (leave_group, describe_leave_group),
    14: (sync_group, describe_sync_group),
    15: (describe_groups, describe_describe_groups),
    16: (list_groups, describe_list_groups),
    17: (
        lambda v: st.builds(w.SaslHandshakeRequest, mechanism=TEXT),
        lambda r: {"mechanism": r.mechanism},
    ),
    18: (api_versions, describe_api_versions),
    27: (write_txn_markers, describe_write_txn_markers),
    28: (txn_offset_commit, describe_txn_offset_commit),
    29: (
        lambda v: st.builds(s.DescribeAclsRequest, filter=acl_fields(s.AclFilter, MAYBE_TEXT)),
        lambda r: describe_filter(r.filter),
    ),
    30: (
        lambda v: st.builds(s.CreateAclsRequest, creations=some(acl_fields(s.AclBinding, TEXT))),
        lambda r: {"creations": [describe_creation(each) for each in r.creations]},
    ),
    31: (
        lambda v: st.builds(s.DeleteAclsRequest, filters=some(acl_fields(s.AclFilter, MAYBE_TEXT))),
        lambda r: {"filters": [describe_filter(each) for each in r.filters]},
    ),
    32: (
        lambda v: st.builds(
            f.DescribeConfigsRequest,
            resources=some(
                st.builds(f.ConfigResource, resource_type=I8, name=TEXT, keys=st.none() | some(TEXT)),
            ),
            include_synonyms=st.booleans(),
            include_documentation=since(v >= 3, st.booleans(), False),
        ),
        lambda r: {
            "resources": [
                {"resource_type": each.resource_type, "resource_name": each.name, "configuration_keys": each.keys}
                for each in r.resources
            ],
            "include_synonyms": r.include_synonyms,
            "include_documentation": r.include_documentation,
        },
    ),
    33: (
        lambda v: st.builds(
            f.AlterConfigsRequest,
            resources=some(
                st.builds(
                    f.ResourceChanges,
                    resource_type=I8,
                    name=TEXT,
                    changes=some(st.builds(f.ConfigChange, name=TEXT, operation=st.just(0), value=MAYBE_TEXT)),
                )
            ),
            validate_only=st.booleans(),
        ),
        lambda r: {
            "resources": [
                {
                    "resource_type": each.resource_type,
                    "resource_name": each.name,
                    "configs": [{"name": one.name, "value": one.value} for one in each.changes],
                }
                for each in r.resources
            ],
            "validate_only": r.validate_only,
        },
    ),
    36: (
        lambda v: st.builds(w.SaslAuthenticateRequest, auth_bytes=st.binary(max_size=200)),
        lambda r: {"auth_bytes": r.auth_bytes},
    ),
    42: (delete_groups, describe_delete_groups),
    44: (
        lambda v: st.builds(
            f.IncrementalAlterConfigsRequest,
            resources=some(
                st.builds(
                    f.ResourceChanges,
                    resource_type=I8,
                    name=TEXT,
                    changes=some(st.builds(f.ConfigChange, name=TEXT, operation=I8, value=MAYBE_TEXT)),
                )
            ),
            validate_only=st.booleans(),
        ),
        lambda r: {
            "resources": [
                {
                    "resource_type": each.resource_type,
                    "resource_name": each.name,
                    "configs": [
                        {"name": one.name, "config_operation": one.operation, "value": one.value}
                        for one in each.changes
                    ],
                }
                for each in r.resources
            ],
            "validate_only": r.validate_only,
        },
    ),
    47: (offset_delete, describe_offset_delete),
    48: (
        lambda v: st.just(s.DescribeClientQuotasRequest()),
        lambda r: {
            "components": [
                {"entity_type": "user", "match_type": 0, "match": "a"},
                {"entity_type": "ip", "match_type": 2, "match": None},
            ],
            "strict": True,
        },
    ),
    50: (
        lambda v: st.builds(s.DescribeUserScramCredentialsRequest, users=st.none() | some(TEXT)),
        lambda r: {"users": None if r.users is None else [{"name": name} for name in r.users]},
    ),
    51: (
        lambda v: st.builds(
            s.AlterUserScramCredentialsRequest, users=st.lists(TEXT, max_size=4, unique=True).map(tuple)
        ),
        describe_alter_users,
    ),
    60: (describe_cluster, describe_describe_cluster),
    68: (consumer_heartbeat, describe_consumer_heartbeat),
    69: (consumer_describe, describe_consumer_describe),
    74: (
        lambda v: st.builds(f.ListConfigResourcesRequest, resource_types=since(v >= 1, some(I8), (16,))),
        lambda r: {"resource_types": r.resource_types},
    ),
    76: (other_protocol, describe_other_protocol),
    88: (other_protocol, describe_other_protocol),
}
"""API key -> (version -> strategy of requests, request -> description for kio)."""


def describe(key: int, version: int, request: Any) -> dict[str, Any]:
    function = REQUESTS[key][1]
    return function(request, version) if key == 3 else function(request)
