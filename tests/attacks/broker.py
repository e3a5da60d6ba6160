"""A stand-in for the broker behind a gateway, in a process of its own: `python -m tests.attacks.broker`.

It says its port, has no topics and no groups, ends the connection of who asks for more, and ends with its input.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.unit.gateway import frames
from tests.unit.gateway.servers import Server

from muster_gateway import apis
from muster_gateway.slots import framed


async def main() -> None:
    async with Server() as server:

        async def answer(key: int, version: int, correlation_id: int, _: bytes) -> bytes | None:
            brokers = [{"node_id": 0, "host": "127.0.0.1", "port": server.port, "rack": None}]
            answers: dict[int, dict[str, Any]] = {
                apis.METADATA: {"brokers": brokers, "cluster_id": "c", "controller_id": 0, "topics": ()},
                apis.LIST_GROUPS: {"throttle_time": 0, "error_code": 0, "groups": ()},
            }
            if key not in answers:
                return None
            return framed(frames.answer(key, version, answers[key], correlation_id))

        server.answering = answer
        print(server.port, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
