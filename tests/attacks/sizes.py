"""The largest that is allowed of everything, and a little more."""

from __future__ import annotations

import struct
from typing import Any

from tests.attacks.bodies import A_MINUTE, NUMBER, array, commit, join, numbers, request, string
from tests.attacks.groups import ever_new
from tests.attacks.site import Site, frame

ELEMENTS = 100_000
"""Of an array: the most that a request may have."""
LONGEST = 32_767
"""Bytes of a string that is not compact."""
METADATA = 4096
"""Characters of an offset's metadata."""


async def _poured(site: Site, data: bytes, connections: int = 2) -> None:
    async def one(_: int) -> None:
        await site.pour_and_read(await site.client(), data)

    await site.at_once(connections, one)


async def largest_metadata(site: Site) -> None:
    """Commits of 200 partitions with 4 KiB each: 0.8 MB of records."""
    partitions = [
        {"partition_index": each, "committed_offset": 1, "committed_metadata": "m" * METADATA} for each in range(200)
    ]
    topics = [{"name": "t", "partitions": partitions}]
    group: dict[str, Any] = {"group_id": site.group("heavy"), "generation_id_or_member_epoch": -1}
    await _poured(site, frame("offset_commit", 7, **group, topics=topics))


async def commits_beyond_a_batch(site: Site) -> None:
    """Of 4 MB, which no batch of the log takes."""
    partitions = array(struct.pack(">iqi", each, 1, -1) + string("m" * METADATA) for each in range(950))
    body = string(site.group("heavy")) + struct.pack(">i", -1) + string("") + struct.pack(">h", -1)
    await _poured(site, request(8, 7, body + array([string("t") + partitions])))


async def commits_of_many_partitions(site: Site) -> None:
    """5,000 offsets in one commit."""
    partitions = array(struct.pack(">iqi", each, 1, -1) + string("") for each in range(5000))
    body = string(site.group("wide")) + struct.pack(">i", -1) + string("") + struct.pack(">h", -1)
    await _poured(site, request(8, 7, body + array([string("t") + partitions])))


async def longest_group_ids(site: Site) -> None:
    """A new one of 32 KB in each commit."""
    start = site.group(f"long-{NUMBER.decode()}-")
    await ever_new(site, commit(start + "g" * (LONGEST - len(start))), 2, 10)


async def largest_subscriptions(site: Site) -> None:
    """Members of one group with 256 KiB each to say."""
    await ever_new(site, join(site.group("wordy"), bytes(256 << 10)), 8, 4)


async def most_protocols(site: Site) -> None:
    """Members with a thousand assignors."""
    protocols = [{"name": f"assignor-{each}", "metadata": bytes(100)} for each in range(1000)]
    fields: dict[str, Any] = {
        "group_id": site.group("choosy"),
        "session_timeout": A_MINUTE,
        "rebalance_timeout": A_MINUTE,
    }
    await ever_new(site, frame("join_group", 3, **fields, protocol_type="consumer", protocols=protocols), 8, 4)


async def longest_names_of_clients(site: Site) -> None:
    await _poured(site, frame("heartbeat", 3, "c" * LONGEST, group_id=site.group("x"), member_id="m" * LONGEST), 8)


async def topics_of_an_offset_fetch(site: Site) -> None:
    body = string(site.group("big")) + array((string(f"topic-{each}") + numbers(1)) for each in range(ELEMENTS))
    await _poured(site, request(9, 1, body))


async def partitions_of_an_offset_fetch(site: Site) -> None:
    await _poured(site, request(9, 1, string(site.group("big")) + array([string("t") + numbers(ELEMENTS)])))


async def topics_of_a_fetch(site: Site) -> None:
    topics = (string(f"{each}") + array([struct.pack(">iqi", 0, 0, 1 << 20)]) for each in range(ELEMENTS))
    await _poured(site, request(1, 4, struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0) + array(topics)))


async def topics_of_a_metadata(site: Site) -> None:
    await _poured(site, request(3, 1, array(string(f"topic-{each}") for each in range(ELEMENTS))))


async def groups_of_a_description(site: Site) -> None:
    await _poured(site, request(15, 0, array(string(site.group(f"group-{each}")) for each in range(ELEMENTS))))


async def groups_of_a_deletion(site: Site) -> None:
    await _poured(site, request(42, 0, array(string(site.group(f"group-{each}")) for each in range(ELEMENTS))))


async def array_beyond_the_limit(site: Site) -> None:
    await _poured(site, request(15, 0, array([string("g")] * (ELEMENTS + 1))), 8)
