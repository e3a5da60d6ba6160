"""What is answered to a client that may not, API by API and version by version: code, place and order."""

from __future__ import annotations

from typing import Any

from tests.conformance.acls import GROUPS
from tests.conformance.acls import SETTINGS as SETTINGS
from tests.conformance.members import Member, commit, fetch, stable, topic
from tests.conformance.producers import producer_id
from tests.conformance.registry import script
from tests.conformance.session import Session

TOPICS = ("hidden", "u", "t", "topic.with-all_1", "missing", "hidden-and-missing")
OPEN, DESCRIBED = "t", "u"
SESSION = "consumer.session.timeout.ms"


def groups(s: Session) -> list[str]:
    return [f"{kind}-{s.name}" for kind in GROUPS]


def names(version: int) -> tuple[str, ...]:
    """Topics that a commit or fetch is about. Where ids name them, all that do not exist have the same one."""
    return TOPICS if version < 10 else (*TOPICS[1:4], "missing")


def _commits(version: int = 9) -> list[dict[str, Any]]:
    return [topic(name, (0, 5), (77, 6)) for name in names(version)]


@script(versions=range(10))
async def join_without_the_right(s: Session, version: int) -> None:
    for group in groups(s):
        s.group = group
        member = Member(s, "a", version=version)
        answer = await member.join()
        if answer.error_code == 79:
            await member.join(member_id=answer.member_id)


@script(versions=range(6))
async def sync_without_the_right(s: Session, version: int) -> None:
    for group in groups(s):
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        await s.ask("sync_group", version, group_id=group, generation_id=1, member_id="m", assignments=[], **protocol)


@script(versions=range(5))
async def heartbeat_without_the_right(s: Session, version: int) -> None:
    for group in groups(s):
        await s.ask("heartbeat", version, group_id=group, generation_id=1, member_id="m")


@script(versions=range(6))
async def leave_without_the_right(s: Session, version: int) -> None:
    for group in groups(s):
        members = [{"member_id": "m", "group_instance_id": None, "reason": None}]
        await s.ask("leave_group", version, group_id=group, member_id="m", members=members)


@script(versions=(0, 1))
async def consumer_joins_without_the_right(s: Session, version: int) -> None:
    """To the group, or to a topic by whose name it subscribes."""
    joining = {"member_id": "m", "member_epoch": 0, "rebalance_timeout": 30_000, "topic_partitions": ()}
    for group in groups(s):
        for number, subscribed in enumerate((("t",), ("u", "t"), ("hidden",), ("missing", "t"), ("topic.with-all_1",))):
            asked = {"group_id": f"{group}-{number}", "subscribed_topic_names": subscribed} | joining
            await s.ask("consumer_group_heartbeat", version, **asked)
            await s.ask("consumer_group_heartbeat", version, **(asked | {"member_epoch": -1}))


@script(versions=(0, 1))
async def consumers_described_without_the_right(s: Session, version: int) -> None:
    """To the group, or to a topic to which a member subscribes or that it has."""
    joining = {"member_epoch": 0, "rebalance_timeout": 30_000, "topic_partitions": ()}
    for kind, subscribed in (("read", ("t",)), ("open", ("u", "t"))):
        asked = {"group_id": f"{kind}-{s.name}", "member_id": "m", "subscribed_topic_names": subscribed} | joining
        await s.ask("consumer_group_heartbeat", 1, client_id="consumer", **asked)
    for operations in (False, True):
        for group in groups(s):
            asked = {"group_ids": (group,), "include_authorized_operations": operations}
            await s.ask("consumer_group_describe", version, **asked)


@script(versions=range(2, 11))
async def commit_without_the_right(s: Session, version: int) -> None:
    for group in groups(s):
        await commit(s, version, group_id=group, topics=_commits(version))
    await fetch(s, 7, group=f"open-{s.name}")


@script(versions=range(2, 11))
async def commit_to_topics_of_others_only(s: Session, version: int) -> None:
    await commit(s, version, topics=[topic("hidden", (0, 5)), topic("u", (0, 1), (1, 2))])
    await commit(s, version, generation_id_or_member_epoch=7, member_id="x", topics=_commits(version))


@script(versions=range(1, 11))
async def fetch_without_the_right(s: Session, version: int) -> None:
    for group in groups(s):
        await commit(s, group_id=group, topics=[topic("t", (0, 5))])
        await fetch(s, version, {name: [0, 77] for name in names(version)}, group=group)
        if version >= 2:
            await fetch(s, version, group=group)


@script(versions=range(8, 11))
async def fetch_of_several_groups_of_which_some_are_hidden(s: Session, version: int) -> None:
    asked = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": None} for group in groups(s)]
    await s.ask("offset_fetch", version, groups=asked)


@script(versions=range(7))
async def find_coordinator_without_the_right(s: Session, version: int) -> None:
    names = groups(s)
    assert names[0].startswith("hidden")
    for key_type in (0, 1) if version >= 1 else (0,):
        if version >= 4:
            keys = names if key_type == 0 else names[:1]  # of the transactional ids that which is hidden
            await s.ask("find_coordinator", version, key_type=key_type, coordinator_keys=keys)
        else:
            for name in names if key_type == 0 else names[:1]:
                await s.ask("find_coordinator", version, key_type=key_type, key=name)


@script(versions=range(7))
async def describe_without_the_right(s: Session, version: int) -> None:
    s.group = f"read-{s.name}"
    await stable(Member(s, "a"))
    await commit(s, group_id=f"open-{s.name}")
    for include in (False, True) if version >= 3 else (False,):
        await s.ask("describe_groups", version, groups=groups(s), include_authorized_operations=include)


@script(versions=range(6))
async def list_without_the_right(s: Session, version: int) -> None:
    for group in groups(s):
        await commit(s, group_id=group, topics=[topic("t", (0, 5))])
    await s.ask("list_groups", version)


@script(versions=range(4))
async def delete_without_the_right(s: Session, version: int) -> None:
    for group in ("read", "open"):
        await commit(s, group_id=f"{group}-{s.name}", topics=[topic("t", (0, 5))])
    await s.ask("delete_groups", version, groups_names=[*groups(s), f"hidden-{s.name}"])


@script()
async def delete_offsets_without_the_right(s: Session) -> None:
    for group in ("read", "open"):
        await commit(s, group_id=f"{group}-{s.name}", topics=[topic("t", (0, 5))])
    topics = [{"name": name, "partitions": [{"partition_index": index} for index in (0, 77)]} for name in TOPICS]
    for group in groups(s):
        await s.ask("offset_delete", 0, group_id=group, topics=topics)
    await s.ask("offset_delete", 0, group_id=f"open-{s.name}", topics=topics[:2])


@script(versions=range(7))
async def commit_in_a_transaction_without_the_right(s: Session, version: int) -> None:
    for transactional_id in (f"hidden-{s.name}", f"described-{s.name}"):
        for group in (f"hidden-{s.name}", f"open-{s.name}"):
            fields = {"transactional_id": transactional_id, "group_id": group, "producer_epoch": 0}
            fields |= {"producer_id": producer_id(s)}
            more = {"generation_id": -1, "member_id": "", "group_instance_id": None}
            await s.ask("txn_offset_commit", version, **fields, **more, topics=_commits())
    fields |= {"transactional_id": f"open-{s.name}", "group_id": f"hidden-{s.name}"}
    await s.ask("txn_offset_commit", version, **fields, **more, topics=_commits())
    fields |= {"group_id": f"open-{s.name}"}
    of_others = [topic("hidden", (0, 5)), topic("u", (0, 1), (1, 2))]
    await s.ask("txn_offset_commit", version, **fields, **more, topics=of_others)


@script(versions=range(14))
async def metadata_without_the_right(s: Session, version: int) -> None:
    asked = [{"name": name} for name in TOPICS]
    operations = {"include_topic_authorized_operations": True} if version >= 8 else {}
    if 8 <= version <= 10:
        operations["include_cluster_authorized_operations"] = True
    await s.ask("metadata", version, topics=asked, **operations)
    await s.ask("metadata", version, topics=[{"name": name} for name in ("hidden", "topic.with-all_1")])


@script(versions=(12, 13))
async def metadata_by_id_without_the_right(s: Session, version: int) -> None:
    ids = [{"name": None, "topic_id": s.server.topic_ids[name]} for name in ("t", "topic.with-all_1")]
    await s.ask("metadata", version, topics=ids)
    await s.ask("metadata", version, topics=[{"name": "t", "topic_id": s.server.topic_ids["topic.with-all_1"]}])


@script(versions=range(3))
async def describe_cluster_without_the_right(s: Session, version: int) -> None:
    await s.ask("describe_cluster", version, include_cluster_authorized_operations=True)


@script(versions=range(1, 12))
async def list_offsets_without_the_right(s: Session, version: int) -> None:
    parts = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    topics = [{"name": name, "partitions": parts} for name in TOPICS]
    await s.ask("list_offsets", version, replica_id=-1, isolation_level=0, topics=topics)


@script(versions=range(4, 13))
async def fetch_of_records_without_the_right(s: Session, version: int) -> None:
    parts = [{"partition": 0, "partition_max_bytes": 1000, "last_fetched_epoch": -1, "current_leader_epoch": -1}]
    topics = [{"topic": name, "partitions": parts} for name in ("hidden", "u", "t")]
    fields = {"replica_id": -1, "max_wait": 100, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1}
    await s.ask("fetch", version, **fields, topics=topics)
    await s.ask("fetch", version, **fields, topics=topics[:2])


@script(cases={"handshake": ("sasl_handshake", 1), "handshake_0": ("sasl_handshake", 0)})
async def sasl_on_a_listener_without_it(s: Session, case: tuple[str, int]) -> None:
    await s.ask(*case, mechanism="PLAIN")


@script(versions=range(3))
async def sasl_authenticate_on_a_listener_without_it(s: Session, version: int) -> None:
    await s.ask("sasl_authenticate", version, auth_bytes=b"\0alice\0pencil")


@script(versions=(1, 2, 3, 4))
async def configs_of_a_group_shown_without_the_right(s: Session, version: int) -> None:
    names = [*groups(s), f"configured-{s.name}", f"config-shown-{s.name}"]
    asked = [{"resource_type": 32, "resource_name": name, "configuration_keys": [SESSION]} for name in names]
    await s.ask("describe_configs", version, resources=asked)


@script(versions=(0, 1))
async def configs_of_a_group_changed_without_the_right(s: Session, version: int) -> None:
    names = [*groups(s), f"configured-{s.name}", f"config-shown-{s.name}"]
    right = [{"name": SESSION, "config_operation": 0, "value": "50000"}]
    wrong = [{"name": SESSION, "config_operation": 0, "value": "1"}]
    for changes in (right, wrong, right * 2):
        resources = [{"resource_type": 32, "resource_name": name, "configs": changes} for name in names]
        await s.ask("incremental_alter_configs", version, resources=resources, validate_only=True)


@script(versions=(0, 1, 2))
async def configs_of_a_group_replaced_without_the_right(s: Session, version: int) -> None:
    names = [*groups(s), f"configured-{s.name}", f"config-shown-{s.name}"]
    right, wrong = [{"name": SESSION, "value": "50000"}], [{"name": SESSION, "value": "1"}]
    for configs in (right, wrong, right * 2):
        resources = [{"resource_type": 32, "resource_name": name, "configs": configs} for name in names]
        await s.ask("alter_configs", version, resources=resources, validate_only=True)


@script(versions=(0, 1))
async def resources_with_configs_listed_without_the_right(s: Session, version: int) -> None:
    await s.ask("list_config_resources", version)
