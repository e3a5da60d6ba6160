"""Each API, asked for without a pause: many requests at once over each of a few connections, by clients that read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.attacks.bodies import BIG, join
from tests.attacks.site import Site, frame
from tests.unit.wire.kio_oracle import folder

from muster_coordinator.wire.apis import APIS

CONNECTIONS, PIPELINED = 16, 500

ANY = [{"name": "t", "partition_indexes": [0], "partitions": [{"partition_index": 0, "committed_metadata": ""}]}]
GROUP = "pipelined"
NAMED: dict[int, tuple[int, dict[str, Any]]] = {
    3: (8, {"topics": None}),
    8: (7, {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": ANY}),
    9: (7, {"group_id": BIG, "topics": None}),
    10: (3, {"key": GROUP}),
    12: (3, {"group_id": GROUP, "member_id": "nobody"}),
    13: (2, {"group_id": GROUP, "member_id": "nobody"}),
    14: (3, {"group_id": GROUP, "member_id": "nobody"}),
    15: (4, {"groups": [BIG]}),
    16: (4, {}),
    28: (3, {"group_id": GROUP, "transactional_id": "x", "topics": ANY}),
    42: (1, {"groups_names": ["nothing"]}),
    47: (0, {"group_id": GROUP, "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}),
}
"""Version and fields of the requests that a name or a version makes heavier; all others are empty, of the last one."""


def of_key(key: int, site: Site) -> bytes:
    if key == 11:
        return join(site.group(GROUP))
    version, fields = NAMED.get(key, (APIS[key].max_version, {}))
    named = {name: site.group(value) if name == "group_id" else value for name, value in fields.items()}
    return frame(folder(APIS[key].name), version, **named)


def encoded(key: int) -> Callable[[Site], Awaitable[None]]:
    """To prepare: the encoder of an API is imported when it is needed first."""

    async def prepare(site: Site) -> None:
        of_key(key, site)

    return prepare


def pipelined(key: int) -> Callable[[Site], Awaitable[None]]:
    async def attack(site: Site) -> None:
        data = of_key(key, site) * PIPELINED

        async def one(_: int) -> None:
            await site.pour_and_read(await site.client(), data)

        await site.at_once(CONNECTIONS, one)

    return attack


async def every_api_at_once(site: Site) -> None:
    """Over each connection another one."""
    keys = sorted(APIS.keys() - {17, 36})  # those two are for logins, and end the connection

    async def one(number: int) -> None:
        await site.pour_and_read(await site.client(), of_key(keys[number], site) * PIPELINED)

    await site.at_once(len(keys), one)
