"""Rounds of frames against a real pod: several connections at a time, answers checked, the pod watched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from kio.serial import entity_reader
from tests.fuzz.requests import Frame, Requests
from tests.support.kafka import KafkaClient
from tests.support.pod import SoloPod
from tests.unit.wire.kio_oracle import schema

from muster_coordinator.errors import ErrorCode

PARTITIONS = 3
CONNECTIONS, FRAMES = 4, 12
CHECK_EVERY = 20
ANSWER_S, PARKED_S = 30.0, 0.2
GROWTH_BYTES = 64 << 20
CONFIG = (
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=1",
    "socket.request.max.bytes=1048576",
    "muster.max.buffered.bytes=8388608",
    "muster.max.groups=500",
)
PRODUCE, JOIN_GROUP = 0, 11
KNOWN_CODES = {int(code) for code in ErrorCode}


class FrameFuzz:
    """`run_round` raises AssertionError with what is wrong; `failing` then holds the frames that were sent since
    the last check."""

    def __init__(self, pod: SoloPod, seed: int) -> None:
        self.pod = pod
        self.random = Random(seed)
        self.requests = Requests(self.random)
        self.failing: list[list[list[str]]] = []
        self.rounds = 0
        self.frames = 0
        self._resident = 0
        self._commits = 0

    async def run_round(self) -> None:
        mutated = self.random.choice([0.0, 0.3, 0.9])
        scripts = [
            [self.requests.frame(number, mutated) for number in range(self.random.randint(1, FRAMES))]
            for _ in range(CONNECTIONS)
        ]
        self.failing.append([[frame.data.hex() for frame in script] for script in scripts])
        await asyncio.gather(*(self._converse(script) for script in scripts))
        self.rounds += 1
        self.frames += sum(map(len, scripts))
        if self.rounds % CHECK_EVERY == 0:
            await self.check()
            self.failing.clear()

    async def check(self) -> None:
        """The pod lives, serves others, has not failed inside, and has not grown."""
        pod = self.pod
        assert pod.process is not None
        assert pod.process.poll() is None, "the pod ended"
        async with asyncio.timeout(ANSWER_S):
            client = await pod.client()
            self._commits += 1
            assert await client.commit("bystander", self._commits) in (0, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            await client.close()
        log = pod.log()
        assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:3000]
        assert await pod.metric("muster_operation_errors_total") == 0
        assert await pod.metric("muster_partitions", state="ACTIVE") == PARTITIONS
        resident = resident_bytes(pod)
        if self.rounds <= CHECK_EVERY * 3:
            self._resident = resident  # warm: code, pools, the groups that there may be
        assert resident - self._resident < GROWTH_BYTES, f"grew from {self._resident} to {resident} bytes"

    async def settled(self) -> None:
        """Nothing is left of connections that ended."""
        async with asyncio.timeout(ANSWER_S):
            while await self.pod.metric("muster_connections") or await self.pod.metric("muster_connection_bytes"):
                await asyncio.sleep(0.05)

    async def _converse(self, script: Sequence[Frame]) -> None:
        client = await self.pod.client()
        data = b"".join(frame.data for frame in script)
        try:
            for chunk in self._chunks(data):
                client.writer.write(chunk)
                await client.writer.drain()
            in_order = True  # behind a mutated length nothing is known
            for frame in script:
                async with asyncio.timeout(PARKED_S):
                    answer = await read_answer(client)
                in_order = in_order and frame.valid
                if not in_order:
                    continue
                answered = int.from_bytes(answer[:4], "big", signed=True)
                assert answered == frame.correlation_id, (
                    f"{answered} instead of {frame.correlation_id}: {_names(script)}"
                )
                self._check_answer(frame, answer)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # closed, or parked behind a join: the pod's own checks say whether it may be
        finally:
            client.writer.transport.abort()

    def _chunks(self, data: bytes) -> list[bytes]:
        cuts = sorted(self.random.randrange(len(data) + 1) for _ in range(self.random.choice([0, 0, 1, 3])))
        return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _check_answer(self, frame: Frame, answer: bytes) -> None:
        response_class = schema(frame.api.name, frame.version, "response")
        _, size = entity_reader(response_class.__header_schema__)(answer, 0)
        response, used = entity_reader(response_class)(answer, size)
        assert size + used == len(answer), f"{frame.api.name} v{frame.version}: bytes behind the answer"
        unknown = {code for code in error_codes(response) if code not in KNOWN_CODES}
        assert not unknown, f"{frame.api.name} v{frame.version} answered {unknown}"
        if frame.api.key == JOIN_GROUP and response.member_id:
            self.requests.members = [*self.requests.members[-5:], response.member_id]


def _names(script: Sequence[Frame]) -> list[str]:
    return [f"{frame.api.name} v{frame.version}{'' if frame.valid else ' mutated'}" for frame in script]


async def read_answer(client: KafkaClient) -> bytes:
    length = int.from_bytes(await client.reader.readexactly(4), "big")
    return await client.reader.readexactly(length)


def error_codes(response: Any) -> set[int]:
    """Every error code of an answer, however deep."""
    if isinstance(response, tuple):
        return {code for each in response for code in error_codes(each)}
    found: set[int] = set()
    for name in getattr(type(response), "__dataclass_fields__", ()):
        value = getattr(response, name)
        if name == "error_code":
            found.add(int(value))
        elif isinstance(value, tuple) or hasattr(value, "__dataclass_fields__"):
            found |= error_codes(value)
    return found


def resident_bytes(pod: SoloPod) -> int:
    assert pod.process is not None
    return int(Path(f"/proc/{pod.process.pid}/statm").read_text().split()[1]) * 4096


def save(rounds: list[list[list[str]]], path: Path) -> None:
    """Rounds of connections of frames in hex: what `python -m tests.fuzz replay` sends again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounds))


def load(path: Path) -> list[list[list[bytes]]]:
    rounds: list[list[list[str]]] = json.loads(path.read_text())
    return [[[bytes.fromhex(frame) for frame in script] for script in scripts] for scripts in rounds]
