"""Members of groups with six clients, each a process that can be killed and frozen, and producers with them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from pathlib import Path

from tests.support.go_programs import compiled
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import java
from tests.support.spoken import speaking

HERE = Path(__file__).parent
ASSIGNORS = {
    "java": ("cooperative-sticky", "range", "roundrobin", "sticky"),
    "librdkafka": ("cooperative-sticky", "range", "roundrobin"),
    "franz": ("sticky", "cooperative-sticky", "range", "roundrobin"),
    "sarama": ("roundrobin", "range", "sticky"),
    "kafka-python": ("sticky", "range", "roundrobin"),
    "aiokafka": ("roundrobin", "range", "sticky"),
}
"""The assignors that each client brings; the first ones are not all the same. Members of kafka-python 3.0 with its
cooperative one never come to share, also with their group at Kafka."""
PRODUCE_S = 60.0
SESSION_MS, STATIC_SESSION_MS = 10_000, 60_000
"""A static member that was killed has its session's time to start again: a JVM on a busy machine needs more than ten
seconds."""
SAID_LINES = 8


def _command(client: str, *words: str) -> list[str]:
    if client in ("franz", "sarama"):
        program = compiled(HERE / "go_members")
        assert program is not None
        return [program, client, *words]
    if client == "java":
        return java(str(HERE / "Member.java"), *words)
    return [sys.executable, "-m", "tests.support.python_member", client, *words]


async def produce(client: str, bootstrap: str, topic: str, numbers: range) -> None:
    words = ("produce", bootstrap, topic, str(numbers.start), str(len(numbers)))
    process = await asyncio.create_subprocess_exec(
        *_command(client, *words), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), PRODUCE_S)
    assert process.returncode == 0, f"{client}: {output.decode(errors='replace')[-2000:]}"


class Member:
    """Starts on construction. `instance`: of a static member."""

    def __init__(
        self, client: str, bootstrap: str, topic: str, group: str, assignor: str, instance: str | None = None
    ) -> None:
        self.numbers: list[int] = []
        """The numbers in the order in which they came, before they were committed."""
        self.rebalances = 0
        """Number of times that it was given partitions, or more of them."""
        self.said: deque[str] = deque(maxlen=SAID_LINES)
        """The last of what it has printed besides."""
        session = (str(STATIC_SESSION_MS), instance) if instance else (str(SESSION_MS),)
        self._process, self._thread = speaking(
            _command(client, "consume", bootstrap, topic, group, assignor, *session), self._read
        )
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, text = line.strip().partition(" ")
            if kind == "record":
                self.numbers.append(int(text))
            elif kind == "assigned":
                self.rebalances += 1
            else:
                self.said.append(line.rstrip())

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def end(self, number: signal.Signals) -> None:
        if self.alive:
            self._process.send_signal(number)
        self._process.wait(30)
        self._thread.join()


async def assignments(port: int, group: str) -> list[int]:
    """The numbers of partitions of the members, the fewest first; empty while the group is not stable."""
    client = await KafkaClient.connect(port)
    try:
        request = schema("describe_groups", 5).DescribeGroupsRequest(
            groups=(group,), include_authorized_operations=False
        )
        (found,) = (await client.call(request)).groups
    finally:
        await client.close()
    return (
        sorted(_partitions(each.member_assignment) for each in found.members) if found.group_state == "Stable" else []
    )


def _partitions(assignment: bytes) -> int:
    """The number of partitions of the one topic in a ConsumerProtocolAssignment: version, topics with name and
    partitions, user data."""
    if not int.from_bytes(assignment[2:6], "big"):
        return 0
    name_bytes = int.from_bytes(assignment[6:8], "big")
    return int.from_bytes(assignment[8 + name_bytes : 12 + name_bytes], "big")
