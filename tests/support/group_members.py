"""Members of groups with six clients, each a process that can be killed and frozen, and producers with them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

from tests.support.go_programs import compiled
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import java
from tests.support.owners import Event, Owned, owned_now
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
POLL_MS = 300_000
CONSUMER = "consumer"
"""In place of an assignor: the new protocol (KIP-848), for the first three clients. They say what they own."""
PAUSE_SLACK_MS = 1_000
"""The time between two polls counts from before the last one."""
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
    """Starts on construction. `instance`: of a static member. `poll_ms`: the time that it has between two polls, or to
    give partitions back."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        topic: str,
        group: str,
        assignor: str,
        instance: str | None = None,
        poll_ms: int = POLL_MS,
    ) -> None:
        self.numbers: list[int] = []
        """The numbers in the order in which they came, before they were committed."""
        self.rebalances = 0
        """Number of times that it was given partitions, or more of them."""
        self.events: list[Event] = []
        self.gone_ms: int | None = None
        self.answers: list[str] = []
        """Its answers: "committed", or "refused" and why."""
        self.said: deque[str] = deque(maxlen=SAID_LINES)
        """The last of what it has printed besides."""
        self._poll_ms = poll_ms
        session_ms = STATIC_SESSION_MS if instance else SESSION_MS
        words = (bootstrap, topic, group, assignor, str(session_ms), str(poll_ms), *((instance,) if instance else ()))
        self._process, self._thread = speaking(_command(client, "consume", *words), self._read, stdin=subprocess.PIPE)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, _, text = line.strip().partition(" ")
            if kind == "record":
                self.numbers.append(int(text))
            elif kind == "assigned":
                self.rebalances += 1
            elif kind in ("given", "taken", "lost"):
                at_ms, topic, partition = text.split()
                self.events.append((int(at_ms), kind, (topic, int(partition))))
            elif kind == "paused":
                self.gone_ms = int(text) + self._poll_ms - PAUSE_SLACK_MS
            elif kind in ("committed", "refused"):
                self.answers.append(line.strip())
            else:
                self.said.append(line.rstrip())

    @property
    def owns(self) -> set[Owned]:
        return owned_now(self.events) if self.alive else set()

    def ask(self, what: str) -> None:
        """`commit OFFSET` or `pause MS`; it answers when it has committed. A member of franz-go commits after a pause
        when it is asked to give something back meanwhile."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()

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
        if number is signal.SIGKILL:
            self.gone_ms = time.time_ns() // 1_000_000
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
