"""Share groups and Streams groups, where a broker has the classic protocol only."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.members import describe
from tests.conformance.registry import script
from tests.conformance.session import Session

SETTINGS = {"group.coordinator.rebalance.protocols": "classic"}


def _joining(s: Session) -> dict[str, Any]:
    return {"group_id": s.group, "member_id": str(uuid.UUID(int=5)), "member_epoch": 0}


@script()
async def heartbeat_of_a_streams_group(s: Session) -> None:
    topology = {"epoch": 1, "subtopologies": [{"subtopology_id": "0", "source_topics": ["t"]}]}
    tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    fields = _joining(s) | {"rebalance_timeout": 30_000, "topology": topology, "process_id": "p"} | tasks
    await s.ask("streams_group_heartbeat", 0, **fields)
    await describe(s)


@script()
async def heartbeat_of_a_share_group(s: Session) -> None:
    await s.ask("share_group_heartbeat", 1, **(_joining(s) | {"subscribed_topic_names": ["t"]}))
    await describe(s)


@script()
async def classic_group_beside_them(s: Session) -> None:
    await s.ask("list_groups", 5, types_filter=["consumer"])
    await s.ask("list_groups", 5, types_filter=["share", "streams"])
