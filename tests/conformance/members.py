"""Members of classic groups, for scripts: they remember their id and generation, and sync with plain assignments."""

from __future__ import annotations

import struct
from typing import Any

from tests.conformance.session import CLOSED, NO_ANSWER, Parked, Session

SESSION_MS = 30_000
REBALANCE_MS = 30_000


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """ConsumerProtocolSubscription v0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data


def assignment(name: str, *partitions: int) -> bytes:
    """ConsumerProtocolAssignment v0 of partitions of one topic."""
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hih", 0, 1, len(name)) + name.encode() + numbers + struct.pack(">i", -1)


class Member:
    """`name` is the client id, and so the start of the member id. `version` is JoinGroup's; the other APIs use
    their newest."""

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        version: int = 9,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        topics: tuple[str, ...] = ("t",),
    ) -> None:
        self.session = session
        self.name = name
        self.version = version
        self.instance = instance
        self.protocols = protocols if protocols is not None else (("range", subscription(*topics)),)
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.joined: Any = None

    # -- JoinGroup ----------------------------------------------------------------------------------------------------

    def join_fields(self, **changes: Any) -> dict[str, Any]:
        return {
            "group_id": self.session.group,
            "session_timeout": self.session_ms,
            "rebalance_timeout": self.rebalance_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in self.protocols],
        } | changes

    async def join(self, **changes: Any) -> Any:
        """One JoinGroup, waiting for its answer."""
        answer = await self.session.ask("join_group", self.version, client_id=self.name, **self.join_fields(**changes))
        return self.remember(answer)

    async def park_join(self, **changes: Any) -> Parked:
        return await self.session.park("join_group", self.version, client_id=self.name, **self.join_fields(**changes))

    async def joined_by(self, parked: Parked) -> Any:
        """The answer of a parked join."""
        return self.remember(await parked.answer())

    async def ask_for_id(self) -> None:
        """The first JoinGroup of a dynamic member (v4+), which only gives it its id."""
        if self.instance is None and self.version >= 4 and not self.member_id:
            await self.join()

    def remember(self, answer: Any) -> Any:
        if answer in (NO_ANSWER, CLOSED):
            return answer
        if int(answer.error_code) in (0, 79):
            self.member_id = answer.member_id
        if int(answer.error_code) == 0:
            self.generation = int(answer.generation_id)
            self.joined = answer
        return answer

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader == self.member_id

    # -- the rest -----------------------------------------------------------------------------------------------------

    def assignments(self) -> list[dict[str, Any]]:
        """What this member, as leader, assigns: a plain text to everybody."""
        if not self.is_leader:
            return []
        return [
            {"member_id": each.member_id, "assignment": b"of " + each.member_id.split("-")[0].encode()}
            for each in sorted(self.joined.members, key=lambda each: str(each.member_id))
        ]

    def _identity(self, changes: dict[str, Any]) -> dict[str, Any]:
        return {
            "group_id": self.session.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        } | changes

    def _sync_fields(self, changes: dict[str, Any]) -> dict[str, Any]:
        protocol = self.joined.protocol_name if self.joined is not None else self.protocols[0][0]
        return self._identity(
            {"protocol_type": self.protocol_type, "protocol_name": protocol, "assignments": self.assignments()}
            | changes
        )

    async def sync(self, version: int = 5, **changes: Any) -> Any:
        return await self.session.ask("sync_group", version, client_id=self.name, **self._sync_fields(changes))

    async def park_sync(self, version: int = 5, **changes: Any) -> Parked:
        return await self.session.park("sync_group", version, client_id=self.name, **self._sync_fields(changes))

    async def heartbeat(self, version: int = 4, **changes: Any) -> Any:
        return await self.session.ask("heartbeat", version, client_id=self.name, **self._identity(changes))

    async def leave(self, version: int = 5, **changes: Any) -> Any:
        fields: dict[str, Any] = {"group_id": self.session.group}
        if version < 3:
            fields["member_id"] = self.member_id
        else:
            fields["members"] = [{"member_id": self.member_id, "group_instance_id": self.instance}]
        return await self.session.ask("leave_group", version, client_id=self.name, **(fields | changes))

    async def commit(self, version: int = 9, offset: int = 5, **changes: Any) -> Any:
        identity = {
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "generation_id_or_member_epoch": self.generation,
        }
        return await commit(self.session, version, offset, **(identity | changes))


async def form(*members: Member) -> None:
    """Let the members join, in this order, in one rebalance of an empty group; the first becomes the leader."""
    for member in members:
        await member.ask_for_id()
    parked = [(member, await member.park_join()) for member in members]
    for member, join in parked:
        await member.joined_by(join)


async def sync_all(*members: Member) -> None:
    """Followers first, then the leader."""
    parked = [await member.park_sync() for member in members if not member.is_leader]
    for member in members:
        if member.is_leader:
            await member.sync()
    for sync in parked:
        await sync.answer()


async def stable(*members: Member) -> None:
    """A group in Stable with these members."""
    await form(*members)
    await sync_all(*members)
    await members[0].session.until_state("Stable")


async def commit(session: Session, version: int = 9, offset: int = 5, **changes: Any) -> Any:
    """OffsetCommit of t-0; without more, that of a simple consumer."""
    fields: dict[str, Any] = {
        "group_id": session.group,
        "generation_id_or_member_epoch": -1,
        "topics": [topic("t", (0, offset))],
    }
    return await session.ask("offset_commit", version, **({"retention_time": -1} | fields | changes))


def topic(name: str, *offsets: tuple[int, int] | tuple[int, int, str | None]) -> dict[str, Any]:
    """A topic of OffsetCommit or TxnOffsetCommit: (partition, offset[, metadata]) each."""
    return {
        "name": name,
        "partitions": [
            {"partition_index": each[0], "committed_offset": each[1], "committed_metadata": (*each, "m")[2]}
            for each in offsets
        ],
    }


async def fetch(
    session: Session,
    version: int = 9,
    topics: dict[str, list[int]] | None = None,
    *,
    group: str | None = None,
    require_stable: bool = False,
    **changes: Any,
) -> Any:
    """OffsetFetch of one group; `topics` None: everything (v2+)."""
    wanted = (
        None
        if topics is None
        else [{"name": name, "partition_indexes": partitions} for name, partitions in topics.items()]
    )
    of_group: dict[str, Any] = {"group_id": group if group is not None else session.group, "topics": wanted}
    fields = {"groups": [of_group]} if version >= 8 else of_group
    return await session.ask("offset_fetch", version, **(fields | {"require_stable": require_stable} | changes))


async def describe(session: Session, version: int = 6, **changes: Any) -> Any:
    return await session.ask("describe_groups", version, **({"groups": [session.group]} | changes))
