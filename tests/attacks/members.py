"""Well-behaved members of groups, in a process of their own: `python -m tests.attacks.members TARGET`.

TARGET is a Target as JSON. 64 members, eight to a group, each over a connection of its own, commit every 100 ms and
heartbeat every 500 ms. The process says `ready` when all are in, then answers each line of its input with one line of
JSON: what was felt since the line before (Felt). After the line `recall` it also says whose acknowledged commits are
not there any more. It ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import uvloop
from tests.attacks.errors import HarnessError
from tests.attacks.site import OWNER, Site, Target
from tests.support.kafka import encode_request, schema

MEMBERS, MEMBERS_OF_GROUP = 64, 8
COMMIT_EVERY_S = 0.1
COMMITS_TO_A_HEARTBEAT = 5
SESSION = REBALANCE = timedelta(seconds=3)
REQUEST_TIMEOUT_S = 30.0
JOIN_TIMEOUT_S = 30.0
RECONNECT_S = 0.1
TOPIC = "t"
RECALL = b"recall"
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27
OUT = {ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS}
"""Codes that say that the member is not, or soon no more, in its group: nobody joins or leaves of their own accord."""


@dataclass
class Felt:
    """What members felt. Times in ms; a request without an answer yet counts with what it has waited. `errors`: by
    error code, or by how a connection ended."""

    requests: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    """Members that are not in their group any more."""
    forgotten: int = 0
    """Members whose last acknowledged commit is not there; only when it is asked for."""
    p50: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


class Frames:
    """A request that is sent again and again: only its correlation id and, in a commit, its offset change."""

    def __init__(self, request: Any, other: Any) -> None:
        self._bytes = bytearray(encode_request(request, 0))
        both = zip(self._bytes, encode_request(other, 0), strict=True)
        self._offset = next((index for index, (one, another) in enumerate(both) if one != another), 0)

    def next(self, correlation_id: int, offset: int = 0) -> bytes:
        struct.pack_into(">i", self._bytes, 8, correlation_id)
        if self._offset:
            struct.pack_into(">q", self._bytes, self._offset, offset)
        return bytes(self._bytes)


class Member:
    """One, with what it felt since `take`."""

    def __init__(self, site: Site, number: int) -> None:
        self._site = site
        self._number = number
        self.group = site.group(f"well-{number // MEMBERS_OF_GROUP}")
        self.took: list[float] = []
        self.errors: Counter[str] = Counter()
        self.lost = False
        self.waits_since: float | None = None
        self._sent = 0
        self._acknowledged = 0

    async def connect(self) -> None:
        """A login may take longer than a group waits for members."""
        self._client = await self._site.client(OWNER)

    async def join(self) -> None:
        """Raises HarnessError."""
        join, sync = schema("join_group", 3), schema("sync_group", 3)
        joined = await self._client.call(
            join.JoinGroupRequest(
                group_id=self.group,
                session_timeout=SESSION,
                rebalance_timeout=REBALANCE,
                member_id="",
                protocol_type="consumer",
                protocols=(join.JoinGroupRequestProtocol(name="range", metadata=b"\0"),),
            )
        )
        leads = joined.leader == joined.member_id
        if joined.error_code or (leads and len(joined.members) != MEMBERS_OF_GROUP):
            raise HarnessError(f"join of {self.group}: error {joined.error_code}, {len(joined.members)} members")
        self._id, self._generation = joined.member_id, joined.generation_id
        assigned = tuple(
            sync.SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"\0") for each in joined.members
        )
        synced = await self._client.call(
            sync.SyncGroupRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._id,
                group_instance_id=None,
                assignments=assigned,
            )
        )
        if synced.error_code:
            raise HarnessError(f"sync of {self.group}: error {synced.error_code}")
        beat = schema("heartbeat", 3).HeartbeatRequest(
            group_id=self.group, generation_id=self._generation, member_id=self._id, group_instance_id=None
        )
        self._heartbeat = Frames(beat, beat)
        self._commit = Frames(self._commit_request(0), self._commit_request(-1))

    def _commit_request(self, offset: int) -> Any:
        m = schema("offset_commit", 7)
        partition = m.OffsetCommitRequestPartition(
            partition_index=self._number % MEMBERS_OF_GROUP, committed_offset=offset, committed_metadata=""
        )
        return m.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            group_instance_id=None,
            topics=(m.OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
        )

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.sleep(COMMIT_EVERY_S * self._number / MEMBERS)
        while True:
            begun = time.monotonic()
            try:
                self._sent += 1
                if await self._ask(self._commit.next(self._sent, self._sent)) == 0:
                    self._acknowledged = self._sent
                if self._sent % COMMITS_TO_A_HEARTBEAT == 0:
                    await self._ask(self._heartbeat.next(self._sent))
            except (OSError, asyncio.IncompleteReadError) as error:
                self.errors["timed out" if isinstance(error, TimeoutError) else type(error).__name__] += 1
                await self._reconnect()
            await asyncio.sleep(max(0.0, begun + COMMIT_EVERY_S - time.monotonic()))

    async def has_forgotten(self) -> bool:
        """Whether the coordinator has an older offset than the last one that it has acknowledged, or one that was never
        sent. Raises OSError, IncompleteReadError."""
        at_least = self._acknowledged
        client = await self._site.client(OWNER)
        try:
            m = schema("offset_fetch", 5)
            topic = m.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(self._number % MEMBERS_OF_GROUP,))
            answer = await client.call(m.OffsetFetchRequest(group_id=self.group, topics=(topic,)))
        finally:
            client.writer.transport.abort()
        found = answer.topics[0].partitions[0].committed_offset
        return answer.error_code != 0 or not at_least <= found <= self._sent

    async def _ask(self, request: bytes) -> int:
        """Returns the error code."""
        self.waits_since = begun = time.monotonic()
        try:
            self._client.writer.write(request)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                (length,) = struct.unpack(">i", await self._client.reader.readexactly(4))
                answer = await self._client.reader.readexactly(length)
        finally:
            self.waits_since = None
            self.took.append(time.monotonic() - begun)
        code: int = struct.unpack(">h", answer[-2:])[0]  # of both requests: the last field
        if code:
            self.errors[str(code)] += 1
            self.lost = self.lost or code in OUT
        return code

    async def _reconnect(self) -> None:
        self._client.writer.transport.abort()
        while True:
            try:
                self._client = await self._site.client(OWNER)
                return
            except (OSError, asyncio.IncompleteReadError):
                self.errors["no connection"] += 1
                await asyncio.sleep(RECONNECT_S)


def take(members: list[Member]) -> Felt:
    """What all felt since the last time."""
    now = time.monotonic()
    took = [each for member in members for each in member.took]
    took += [now - member.waits_since for member in members if member.waits_since is not None]
    took.sort()
    errors: Counter[str] = Counter()
    for member in members:
        errors.update(member.errors)
        member.took, member.errors = [], Counter()

    def at(share: float) -> float:
        return round(1000 * took[min(len(took) - 1, int(share * len(took)))], 2) if took else 0.0

    lost = sum(member.lost for member in members)
    return Felt(len(took), dict(errors), lost, p50=at(0.5), p99=at(0.99), longest=at(1.0))


async def main(target: Target) -> None:
    site = Site(target)
    members = [Member(site, number) for number in range(MEMBERS)]
    async with asyncio.timeout(JOIN_TIMEOUT_S):
        await asyncio.gather(*(member.connect() for member in members))
        await asyncio.gather(*(member.join() for member in members))
    running = [asyncio.create_task(member.run()) for member in members]
    print("ready", flush=True)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        for task in running:
            if task.done():
                task.result()
        felt = take(members)
        if line.strip() == RECALL:
            felt.forgotten = sum(await asyncio.gather(*(member.has_forgotten() for member in members)))
        print(json.dumps(asdict(felt)), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Target.of_text(sys.argv[1])))
