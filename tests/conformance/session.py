"""One run of a script against one server: connections, requests, and what came of each."""

from __future__ import annotations

import asyncio
import ssl
import struct
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from kio.serial.errors import SerialError
from tests.conformance.requests import build
from tests.support.kafka import KafkaClient, encode_request, entity

KAFKA = "kafka"
MUSTER = "muster"

ANSWER_TIMEOUT_S = 20.0
SETTLE_S = 0.05
"""How long bytes may need from our socket into the server, before the request behind which the script orders itself."""

UNKNOWN_TOPIC_ID = uuid.UUID(int=77)

NO_ANSWER = "no answer"
CLOSED = "connection closed"
UNREADABLE = "an answer that kio cannot read"


@dataclass(frozen=True)
class Server:
    """`kind`: KAFKA or MUSTER. `names` are texts that differ between servers by nature, and what to call them.
    `topic_ids`: by name. `tls`: its certificates, if it has TLS."""

    kind: str
    port: int
    node_id: int
    names: dict[str, str] = field(default_factory=dict)
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None


@dataclass
class Step:
    """One request of the script; `outcome` is the decoded answer, or NO_ANSWER, CLOSED or a note's value."""

    label: str
    outcome: Any = None


class Parked:
    """A request that was sent and may wait for its answer for long."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    @property
    def is_answered(self) -> bool:
        return self._task.done()

    async def within(self, seconds: float) -> bool:
        """Whether it is answered by then."""
        await asyncio.wait([self._task], timeout=seconds)
        return self.is_answered

    async def answer(self) -> Any:
        return await self._task


class Session:
    """What a script works with. `group` is a group id of its own; everything that it asks is recorded."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.group = name
        self.steps: list[Step] = []
        self._idle: list[KafkaClient] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._clients: list[KafkaClient] = []

    @property
    def is_kafka(self) -> bool:
        return self.server.kind == KAFKA

    async def run(self, script: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        try:
            await script(self)
        finally:
            await self.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()

    # -- requests -----------------------------------------------------------------------------------------------------

    async def ask(
        self, api: str, version: int, *, client_id: str = "test", timeout_s: float = ANSWER_TIMEOUT_S, **fields: Any
    ) -> Any:
        """Send one request on a connection without others and record its answer."""
        step = self._step(api, version)
        step.outcome = await self._exchange(api, version, client_id, timeout_s, fields)
        return step.outcome

    async def park(self, api: str, version: int, *, client_id: str = "test", **fields: Any) -> Parked:
        """Send a request that the server may park, and return when the server has it. Its answer is recorded when it
        is waited for or has come by the end of the script."""
        step = self._step(api, version)
        step.outcome = NO_ANSWER

        async def exchange() -> Any:
            step.outcome = await self._exchange(api, version, client_id, ANSWER_TIMEOUT_S, fields)
            return step.outcome

        task = asyncio.create_task(exchange())
        self._tasks.append(task)
        await self.settle()
        return Parked(task)

    async def settle(self) -> None:
        """Return when the group has handled everything sent before (a request of its own passes the same queue)."""
        await asyncio.sleep(SETTLE_S)
        await self.quietly("heartbeat", 3, group_id=self.group, generation_id=0, member_id="settle")

    async def quietly(self, api: str, version: int, **fields: Any) -> Any:
        """Ask without recording."""
        return await self._exchange(api, version, "test", ANSWER_TIMEOUT_S, fields)

    async def send_raw(self, label: str, frame: bytes) -> None:
        """Send bytes and record what comes: an answer's length, NO_ANSWER or CLOSED."""
        step = Step(f"{len(self.steps) + 1}. {label}")
        self.steps.append(step)
        client = await self._connect()
        client.writer.write(frame)
        try:
            async with asyncio.timeout(2):
                (length,) = struct.unpack(">i", await client.reader.readexactly(4))
                step.outcome = f"answered with {length} bytes"
        except TimeoutError:
            step.outcome = NO_ANSWER
        except (OSError, asyncio.IncompleteReadError):
            step.outcome = CLOSED

    async def ask_and_end(self, api: str, version: int, **fields: Any) -> None:
        """Send a request on a connection of its own, close this side of it, and record what comes, until the end."""
        step = self._step(api, version)
        client = await self._connect()
        client.writer.write(encode_request(build(api, version, fields), 7))
        client.writer.write_eof()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                _, step.outcome = await client.receive(entity(api, version, "response"))
                self.note("then", await client.reader.read() or CLOSED)
        except TimeoutError:
            step.outcome = NO_ANSWER
        except (OSError, asyncio.IncompleteReadError):
            step.outcome = CLOSED

    def note(self, what: str, value: object) -> None:
        """Record a fact that the script found out."""
        self.steps.append(Step(f"{len(self.steps) + 1}. {what}", value))

    def _step(self, api: str, version: int) -> Step:
        step = Step(f"{len(self.steps) + 1}. {api} v{version}")
        self.steps.append(step)
        return step

    async def _connect(self) -> KafkaClient:
        client = await KafkaClient.connect(self.server.port, tls=self.server.tls)
        self._clients.append(client)
        return client

    async def _exchange(self, api: str, version: int, client_id: str, timeout_s: float, fields: dict[str, Any]) -> Any:
        request = build(api, version, self._with_topic_ids(api, fields))
        client = self._idle.pop() if self._idle else await self._connect()
        try:
            async with asyncio.timeout(timeout_s):
                client.writer.write(encode_request(request, 7, client_id))
                _, response = await client.receive(entity(api, version, "response"))
        except TimeoutError:
            return NO_ANSWER
        except (OSError, asyncio.IncompleteReadError):
            return CLOSED
        except SerialError:  # a value that kio has no type for; the whole frame was read
            response = UNREADABLE
        self._idle.append(client)
        return response

    def _with_topic_ids(self, api: str, fields: Any) -> Any:
        """`fields` of a commit or fetch of offsets with the id beside each topic's name: a version has one of them.
        Topics that do not exist have an id, too, which no server knows."""
        if api not in ("offset_commit", "offset_fetch", "txn_offset_commit"):
            return fields
        if isinstance(fields, list | tuple):
            return [self._with_topic_ids(api, each) for each in fields]
        if not isinstance(fields, dict):
            return fields
        fields = {name: self._with_topic_ids(api, value) for name, value in fields.items()}
        if "name" in fields:
            fields.setdefault("topic_id", self.server.topic_ids.get(fields["name"], UNKNOWN_TOPIC_ID))
        return fields

    # -- conditions ---------------------------------------------------------------------------------------------------

    async def until_state(self, *states: str) -> None:
        """Wait, unrecorded, until the group is in one of the states."""
        await self.until(lambda group: str(group.group_state) in states, f"group in {states}")

    async def until_exists(self) -> None:
        """Wait until the group can be described: Kafka may answer the JoinGroup that makes it earlier."""
        await self.until(lambda group: group.group_state != "Dead", "group")

    async def until(self, holds: Callable[[Any], bool], what: str) -> None:
        answer: Any = NO_ANSWER
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while True:
                    answer = await self.quietly(
                        "describe_groups", 5, groups=[self.group], include_authorized_operations=False
                    )
                    if answer not in (NO_ANSWER, CLOSED) and holds(answer.groups[0]):
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            found = answer.groups[0] if answer not in (NO_ANSWER, CLOSED) else answer
            raise AssertionError(f"waited {ANSWER_TIMEOUT_S:.0f} s for {what}, found {found}") from None
