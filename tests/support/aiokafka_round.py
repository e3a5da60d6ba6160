"""A round with aiokafka: it writes records, and reads them again as a member of a group."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def aiokafka_round(topic: str, group: str, values: Set[str], deadline_s: float, **client: Any) -> None:
    """Produce `values` with an idempotent producer, and read until the group has had them all; then commit. `client`:
    settings of both. Raises TimeoutError after `deadline_s` seconds of reading."""
    producer = AIOKafkaProducer(**client, acks="all", enable_idempotence=True)
    await producer.start()
    for value in values:
        await producer.send(topic, value.encode())
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, **client, group_id=group, auto_offset_reset="earliest")
    await consumer.start()
    found: set[str] = set()
    async with asyncio.timeout(deadline_s):
        while not values <= found:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found.update(record.value.decode() for record in records)
    await consumer.commit()
    await consumer.stop()
