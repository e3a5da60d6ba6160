"""Members of groups, as a program that commits until it ends: BOOTSTRAP GROUP MEMBERS."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

TOPIC = "orders"
PAUSE_S = 0.5


async def run(bootstrap: str, group: str, members: int) -> None:
    consumers = [
        AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id=group, client_id=f"client-{number}", enable_auto_commit=False
        )
        for number in range(members)
    ]
    await asyncio.gather(*(each.start() for each in consumers))
    while True:
        for each in consumers:
            offsets = {place: OffsetAndMetadata(42, "") for place in each.assignment()}
            try:
                if offsets:
                    await each.commit(offsets)
            except KafkaError as error:  # a rebalance or a failover: the next one counts
                print(error, flush=True)
        await asyncio.sleep(PAUSE_S)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
