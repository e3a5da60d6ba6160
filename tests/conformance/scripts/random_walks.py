"""Random requests of two members, an administrator and a simple consumer, the same ones to both servers.

Two members, because with more Kafka chooses a new leader by the order of a hash map of random member ids. What
`defects` shows is left out.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.conformance.members import Member, commit, describe, fetch, subscription, topic
from tests.conformance.producers import producer_id
from tests.conformance.registry import script
from tests.conformance.servers import INITIAL_DELAY_MS
from tests.conformance.session import CLOSED, NO_ANSWER, Parked, Session

STEPS = 30
PROTOCOLS = (
    (("range", subscription("t")),),
    (("range", subscription("t", "u")), ("sticky", subscription("t"))),
    (("sticky", subscription("u")), ("range", subscription("t"))),
)
_AFTER_THE_DELAY_S = INITIAL_DELAY_MS / 1000 * 2 + 0.3


class Walk:
    def __init__(self, session: Session, seed: int) -> None:
        self.session = session
        self.random = random.Random(seed)
        self.members = [Member(session, "a"), Member(session, "c", instance="i")]
        self.parked: dict[Member, tuple[str, Parked]] = {}

    async def run(self) -> None:
        moves: list[tuple[int, Callable[[Member], Awaitable[Any]]]] = [
            (8, self.join),
            (6, self.sync),
            (3, self.heartbeat),
            (3, self.commit),
            (2, self.leave),
            (1, self.restart),
            (1, self.simple_commit),
            (1, self.transaction),
            (1, self.delete_group),
            (1, self.delete_offsets),
        ]
        for _ in range(STEPS):
            (move,) = self.random.choices([m for _, m in moves], [weight for weight, _ in moves])
            await move(self.random.choice(self.members))
            await self.collect()
            await describe(self.session, 5)
        await fetch(self.session)

    async def collect(self) -> None:
        """What answers to parked requests have come."""
        await self.session.settle()
        for member, (kind, parked) in list(self.parked.items()):
            if parked.is_answered:
                del self.parked[member]
                answer = await parked.answer()
                if kind == "join":
                    member.remember(answer)
                    if answer not in (NO_ANSWER, CLOSED) and int(answer.error_code) in (24, 25, 81, 82):
                        member.member_id = ""

    async def join(self, member: Member) -> None:
        if member in self.parked:
            return
        member.protocols = self.random.choice(PROTOCOLS)
        parked = await member.park_join()
        await parked.within(_AFTER_THE_DELAY_S)
        self.parked[member] = ("join", parked)

    async def sync(self, member: Member) -> None:
        if member in self.parked or member.joined is None:
            return
        self.parked[member] = ("sync", await member.park_sync())

    async def heartbeat(self, member: Member) -> None:
        await member.heartbeat(generation_id=member.generation + self.random.choice((0, 0, 0, 1, -1)))

    async def commit(self, member: Member) -> None:
        generation = member.generation + self.random.choice((0, 0, 0, 1, -1))
        await member.commit(generation_id_or_member_epoch=generation, topics=[self.offsets()])

    async def leave(self, member: Member) -> None:
        if member not in self.parked:
            await member.leave()

    async def restart(self, member: Member) -> None:
        """It forgets its id."""
        if member not in self.parked:
            member.member_id = ""
            await self.join(member)

    async def simple_commit(self, _: Member) -> None:
        await commit(self.session, topics=[self.offsets()])

    async def transaction(self, member: Member) -> None:
        await self.session.ask(
            "txn_offset_commit",
            3,
            transactional_id="x",
            group_id=self.session.group,
            producer_id=producer_id(self.session),
            generation_id=self.random.choice((-1, member.generation)),
            member_id=self.random.choice(("", member.member_id)),
            topics=[self.offsets()],
        )

    async def delete_group(self, _: Member) -> None:
        await self.session.ask("delete_groups", 2, groups_names=[self.session.group])

    async def delete_offsets(self, _: Member) -> None:
        topics = [{"name": self.random.choice("tu"), "partitions": [{"partition_index": self.random.randrange(3)}]}]
        await self.session.ask("offset_delete", 0, group_id=self.session.group, topics=topics)

    def offsets(self) -> dict[str, Any]:
        return topic(self.random.choice("tu"), (self.random.randrange(3), self.random.randrange(1000)))


@script(cases={str(seed): seed for seed in range(24)})
async def random_walk(s: Session, seed: int) -> None:
    await Walk(s, seed).run()
