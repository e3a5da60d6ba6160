"""Groups without end, members without end, and requests about all of them."""

from __future__ import annotations

import asyncio
import itertools

from tests.attacks.bodies import A_MINUTE, BIG, NUMBER, answers, array, commit, join, numbered, request, string
from tests.attacks.site import Site, frame
from tests.conformance.requests import build
from tests.support.kafka import KafkaClient

CHUNK = 500
NAMES = 1000


async def ever_new(site: Site, template: bytes, many: int, chunk: int = CHUNK) -> None:
    """Requests whose number is ever another one, from `many` connections, `chunk` of them in one write."""
    first = itertools.count(0, chunk)

    async def one(_: int) -> None:
        client = await site.client()
        reading = asyncio.create_task(site.read_all(client))
        try:
            while not reading.done():
                await site.send(client, numbered(template, next(first), chunk))
            reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    await site.at_once(many, one)


async def new_groups(site: Site) -> None:
    await ever_new(site, commit(site.group(f"new-{NUMBER.decode()}")), 8)


async def members_of_one_group(site: Site) -> None:
    await ever_new(site, join(site.group("crowd")), 64)


async def members_that_do_not_come_back(site: Site) -> None:
    """Each is given an id, of which it makes nothing."""
    await ever_new(site, join(site.group("pending"), version=4), 16)


async def groups_of_one_member(site: Site) -> None:
    await ever_new(site, join(site.group(f"lone-{NUMBER.decode()}")), 64)


async def coordinators_of_new_groups(site: Site) -> None:
    await ever_new(site, request(10, 0, string(site.group(f"looked-for-{NUMBER.decode()}"))), 8)


async def rebalances(site: Site) -> None:
    """64 members of one group, each of which joins again, with something else to say, as soon as it is in."""

    async def one(number: int) -> None:
        client = await site.client()
        member = ""
        for turn in itertools.count():
            joined = await client.call(
                build(
                    "join_group",
                    3,
                    {
                        "group_id": site.group("storm"),
                        "session_timeout": A_MINUTE,
                        "rebalance_timeout": A_MINUTE,
                        "member_id": member,
                        "protocol_type": "consumer",
                        "protocols": [{"name": "range", "metadata": b"%d %d" % (number, turn)}],
                    },
                )
            )
            member = joined.member_id
            site.counts["joins"] += 1

    await site.at_once(64, one)


async def come_and_leave(site: Site) -> None:
    """Members of a few groups that leave as soon as they are in."""

    async def one(number: int) -> None:
        client = await site.client()
        group = site.group(f"churn-{number % 8}")
        fields = {"group_id": group, "session_timeout": A_MINUTE, "rebalance_timeout": A_MINUTE}
        protocols = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
        while True:
            joined = await client.call(build("join_group", 3, {**fields, **protocols}))
            await client.call(build("leave_group", 2, {"group_id": group, "member_id": joined.member_id}))
            site.counts["joins"] += 1

    await site.at_once(64, one)


async def _asked(site: Site, data: bytes, connections: int = 8, pipelined: int = 20) -> None:
    async def one(_: int) -> None:
        await site.pour_and_read(await site.client(), data * pipelined)

    await site.at_once(connections, one)


async def lists_of_many_groups(site: Site) -> None:
    await _asked(site, frame("list_groups", 4))


async def crowd(site: Site) -> None:
    """To prepare: 1,000 members of one group, each with 1 KiB to say. They stay after their connections have gone."""

    async def some(client: KafkaClient) -> None:
        await site.send(client, join(site.group("crowd"), bytes(1024)) * 100)
        await answers(client, 100)

    clients = [await site.client("alice") for _ in range(10)]
    await asyncio.gather(*(some(client) for client in clients))
    for client in clients:
        await client.close()


async def descriptions_of_a_crowd(site: Site) -> None:
    await _asked(site, frame("describe_groups", 4, groups=[site.group("crowd")]))


async def one_group_described_a_thousand_times(site: Site) -> None:
    await _asked(site, request(15, 0, array([string(site.group("crowd"))] * NAMES)), 2)


async def one_group_fetched_a_thousand_times(site: Site) -> None:
    await _asked(site, frame("offset_fetch", 8, groups=[{"group_id": site.group(BIG), "topics": None}] * NAMES), 2, 2)


async def many_groups_fetched(site: Site) -> None:
    groups = [{"group_id": site.group(f"many-{each:07d}"), "topics": None} for each in range(NAMES)]
    await _asked(site, frame("offset_fetch", 8, groups=groups), 4, 4)


async def deletions(site: Site) -> None:
    """Of groups that are there, once, and are not there, ever after."""
    await _asked(site, request(42, 0, array(string(site.group(f"many-{each:07d}")) for each in range(NAMES))), 4, 4)


async def many_keys_looked_for(site: Site) -> None:
    await _asked(site, frame("find_coordinator", 4, coordinator_keys=[site.group(str(each)) for each in range(NAMES)]))
