"""Bytes of requests that are made many at a time, or larger than an encoder makes them in good time."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import timedelta

from tests.attacks.site import Site, frame, framed, header
from tests.support.kafka import KafkaClient, commit_request, encode_request

NUMBER = b"#######"
"""In a template: where a number of seven digits goes."""
BIG, BIG_PARTITIONS = "big", 5000
"""A group with an offset for each partition of the topic."""
A_MINUTE = timedelta(minutes=1)


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(elements: Iterable[bytes], count: int | None = None) -> bytes:
    """`count`: claimed in place of the true one."""
    all_elements = list(elements)
    return struct.pack(">i", len(all_elements) if count is None else count) + b"".join(all_elements)


def numbers(count: int = 1) -> bytes:
    return array(struct.pack(">i", each) for each in range(count))


def request(key: int, version: int, body: bytes) -> bytes:
    """Of a version that is not flexible."""
    return framed(header(key, version) + body)


def numbered(template: bytes, first: int, count: int) -> bytes:
    return b"".join(template.replace(NUMBER, b"%07d" % each) for each in range(first, first + count))


def commit(group: str, metadata: str = "") -> bytes:
    body = string(group) + struct.pack(">i", -1) + string("") + struct.pack(">h", -1)
    partition = struct.pack(">iqi", 0, 1, -1) + string(metadata)
    return request(8, 7, body + array([string("t") + array([partition])]))


def join(group: str, metadata: bytes = b"", version: int = 3) -> bytes:
    """Of a new member. From version 4 on it is told its id, and has to come again."""
    return frame(
        "join_group",
        version,
        group_id=group,
        session_timeout=A_MINUTE,
        rebalance_timeout=A_MINUTE,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": metadata}],
    )


async def answers(client: KafkaClient, count: int) -> None:
    """Read as many."""
    for _ in range(count):
        (length,) = struct.unpack(">i", await client.reader.readexactly(4))
        await client.reader.readexactly(length)


async def fill_big_group(site: Site) -> None:
    client = await site.client("alice")
    for start in range(0, BIG_PARTITIONS, 500):
        offsets = [("t", each, each) for each in range(start, start + 500)]
        await site.send(client, encode_request(commit_request(site.group(BIG), offsets), 1))
        await answers(client, 1)
    await client.close()


async def make_groups(site: Site, count: int = 5000) -> None:
    client = await site.client("alice")
    template = commit(site.group("many-" + NUMBER.decode()))
    for first in range(0, count, 100):
        await site.send(client, numbered(template, first, 100))
        await answers(client, 100)
    await client.close()
