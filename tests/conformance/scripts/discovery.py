"""ApiVersions, FindCoordinator, Metadata, DescribeCluster: what a client asks before it knows its coordinator."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from tests.conformance.registry import script
from tests.conformance.session import CLOSED, NO_ANSWER, Session

# The APIs whose versions are Kafka's. Fetch, ListOffsets and Metadata serve what consumers need.
GROUP_APIS = {8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 27, 28, 42, 47, 60, 68, 76, 88, 3, 2, 1}


async def _versions(s: Session, version: int, **fields: Any) -> None:
    answer = await s.quietly("api_versions", version, **fields)
    if answer in (NO_ANSWER, CLOSED):
        s.note("api_versions", answer)
        return
    s.note("error_code", answer.error_code)
    for entry in sorted(answer.api_keys, key=lambda each: int(each.api_key)):
        if int(entry.api_key) in GROUP_APIS:
            s.note(f"api {entry.api_key}", f"{entry.min_version} to {entry.max_version}")


@script(versions=range(5))
async def api_versions(s: Session, version: int) -> None:
    await _versions(s, version, client_software_name="test", client_software_version="1.0")


@script(cases={"name": ("", "1.0"), "version": ("test", ""), "odd_name": ("-x-", "1.0"), "odd_version": ("x", "1 0")})
async def api_versions_of_a_client_with_a_bad(s: Session, case: tuple[str, str]) -> None:
    await _versions(s, 3, client_software_name=case[0], client_software_version=case[1])


def _frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    header = struct.pack(">hhi", api_key, version, 1) + struct.pack(">h", 1) + b"x"
    return struct.pack(">i", len(header + body)) + header + body


@script(
    cases={
        "join_group_10": _frame(11, 10),
        "offset_commit_1": _frame(8, 1),
        "offset_commit_11": _frame(8, 11),
        "offset_fetch_11": _frame(9, 11),
        "write_txn_markers_0": _frame(27, 0),
        "write_txn_markers_3": _frame(27, 3),
        "list_offsets_12": _frame(2, 12),
        "offset_fetch_0": _frame(9, 0),
        "negative": _frame(12, -1),
        "heartbeat_5": _frame(12, 5),
        "unknown_api": _frame(1000, 0),
        "leave_group_6": _frame(13, 6),
        "list_groups_6": _frame(16, 6),
        "offset_delete_1": _frame(47, 1),
        "delete_groups_3": _frame(42, 3),
        "delete_groups_4": _frame(42, 4),
        "txn_offset_commit_7": _frame(28, 7),
        "api_versions_6": _frame(18, 6, b"\x00"),
    }
)
async def version_that_is_not_served(s: Session, frame: bytes) -> None:
    await s.send_raw("unsupported", frame)


@script(
    cases={
        "heartbeat": _frame(12, 3, b"\x00\x01g"),
        "join_group": _frame(11, 5, b"\x00\xff"),
        "negative_array": _frame(15, 0, struct.pack(">i", -5)),
        "huge_array": _frame(15, 0, struct.pack(">i", 2**31 - 1)),
    }
)
async def request_that_ends_too_early(s: Session, frame: bytes) -> None:
    await s.send_raw("truncated", frame)


@script()
async def length_prefix_that_is_negative(s: Session) -> None:
    await s.send_raw("frame", struct.pack(">i", -1))


@script()
async def length_prefix_above_the_limit(s: Session) -> None:
    await s.send_raw("frame", struct.pack(">i", 2**31 - 1))


# -- FindCoordinator --------------------------------------------------------------------------------------------------


async def _find(s: Session, version: int, *keys: str, key_type: int = 0) -> None:
    if version < 4:
        await s.ask("find_coordinator", version, key=keys[0], key_type=key_type)
    else:
        await s.ask("find_coordinator", version, coordinator_keys=keys, key_type=key_type)


@script(versions=range(7))
async def find_coordinator_of_a_group(s: Session, version: int) -> None:
    await _find(s, version, s.group)


@script(versions=range(4, 7))
async def find_coordinator_of_several_groups(s: Session, version: int) -> None:
    await _find(s, version, "a", "b", "a", "grp-é")


@script(versions=range(4, 7))
async def find_coordinator_of_nothing(s: Session, version: int) -> None:
    await _find(s, version)


@script(versions=range(7))
async def find_coordinator_of_the_empty_group(s: Session, version: int) -> None:
    await _find(s, version, "")


@script(versions=range(1, 7))
async def find_coordinator_of_an_unknown_key_type(s: Session, version: int) -> None:
    await _find(s, version, "x", key_type=9)


@script(versions=range(1, 7))
async def find_coordinator_of_a_transaction(s: Session, version: int) -> None:
    await _find(s, version, "x", key_type=1)


@script(versions=range(1, 7))
async def find_coordinator_of_a_share_key(s: Session, version: int) -> None:
    await _find(s, version, "group:AAAAAAAAAAAAAAAAAAAAAA:0", key_type=2)


# -- Metadata, DescribeCluster ----------------------------------------------------------------------------------------


async def _metadata(s: Session, version: int, topics: Any, **fields: Any) -> None:
    await s.ask("metadata", version, topics=topics, allow_auto_topic_creation=False, **fields)


@script(versions=range(14))
async def metadata_of_all_topics(s: Session, version: int) -> None:
    """Internal ones included: Kafka's tools look for transactions that hang in them."""
    await _metadata(s, version, None if version else [])


@script(versions=range(14))
async def metadata_of_one_topic(s: Session, version: int) -> None:
    await _metadata(s, version, [{"name": "u"}])


@script(versions=range(14))
async def metadata_of_a_topic_that_does_not_exist(s: Session, version: int) -> None:
    await _metadata(s, version, [{"name": "missing"}])


@script(versions=range(14))
async def metadata_of_no_topic(s: Session, version: int) -> None:
    if version > 0:  # in version 0 this means all topics
        await _metadata(s, version, [])


@script(versions=(4, 12, 13))
async def metadata_of_a_name_that_no_topic_can_have(s: Session, version: int) -> None:
    await _metadata(s, version, [{"name": "a b"}])
    await _metadata(s, version, [{"name": ".."}])
    await _metadata(s, version, [{"name": ""}])
    await _metadata(s, version, [{"name": "x" * 250}])


@script(versions=(12, 13))
async def metadata_of_an_unknown_topic_id(s: Session, version: int) -> None:
    await _metadata(s, version, [{"topic_id": uuid.UUID(int=77), "name": None}])


@script(versions=(10, 11))
async def metadata_by_topic_id_before_version_12(s: Session, version: int) -> None:
    await _metadata(s, version, [{"topic_id": uuid.UUID(int=77), "name": None}])


@script(versions=(12, 13))
async def metadata_by_topic_id(s: Session, version: int) -> None:
    known = await s.quietly("metadata", 12, topics=[{"name": "u"}])
    await _metadata(s, version, [{"topic_id": known.topics[0].topic_id, "name": None}])


@script(versions=(12, 13))
async def metadata_by_topic_id_and_name(s: Session, version: int) -> None:
    t, u = s.server.topic_ids["t"], s.server.topic_ids["u"]
    await _metadata(s, version, [{"topic_id": u, "name": ""}])  # as Java's consumers of regular expressions
    await _metadata(s, version, [{"topic_id": u, "name": "t"}])
    await _metadata(s, version, [{"topic_id": uuid.UUID(int=77), "name": "t"}])
    await _metadata(s, version, [{"topic_id": u, "name": None}, {"name": "t"}])
    await _metadata(s, version, [{"topic_id": t, "name": ""}, {"topic_id": u, "name": ""}, {"topic_id": u, "name": ""}])


@script(versions=(8, 9, 10))
async def metadata_with_authorized_operations_of_the_cluster(s: Session, version: int) -> None:
    await _metadata(s, version, [], include_cluster_authorized_operations=True)


@script(versions=(8, 12))
async def metadata_with_authorized_operations_of_a_topic(s: Session, version: int) -> None:
    await _metadata(s, version, [{"name": "u"}], include_topic_authorized_operations=True)


@script(versions=range(3))
async def describe_cluster(s: Session, version: int) -> None:
    await s.ask("describe_cluster", version)


@script(versions=range(3))
async def describe_cluster_with_authorized_operations(s: Session, version: int) -> None:
    await s.ask("describe_cluster", version, include_cluster_authorized_operations=True)


@script(cases={"controllers": 2, "an_unknown_type": 9})
async def describe_cluster_of_endpoints_of(s: Session, endpoint_type: int) -> None:
    await s.ask("describe_cluster", 1, endpoint_type=endpoint_type)
