"""Kafka's Java consumers of the new protocol, each a process that can be killed, and what they say they own."""

from __future__ import annotations

import signal
import time
from collections import deque
from pathlib import Path

from tests.support.kafka_broker import java
from tests.support.spoken import speaking

PROGRAM = Path(__file__).with_name("Consuming.java")
SAID_LINES = 8
Owned = tuple[str, int]
"""Topic and partition."""


class JavaConsumer:
    """Starts on construction. `topic`: a name, or a regular expression that begins with ^. `instance`: of a static
    member."""

    def __init__(self, bootstrap: str, topic: str, group: str, instance: str | None = None) -> None:
        self.events: list[tuple[int, str, Owned]] = []
        """(time in ms of this machine's clock, "given", "taken" or "lost", what)."""
        self.values: list[str] = []
        """The values of records in the order in which they came, committed or not."""
        self.said: deque[str] = deque(maxlen=SAID_LINES)
        """The last of what it has printed besides."""
        self.killed_ms: int | None = None
        words = (bootstrap, topic, group) if instance is None else (bootstrap, topic, group, instance)
        self._process, self._thread = speaking(java(str(PROGRAM), *words), self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case ["record", value]:
                    self.values.append(value)
                case ["given" | "taken" | "lost" as what, at_ms, topic, partition]:
                    self.events.append((int(at_ms), what, (topic, int(partition))))
                case _:
                    self.said.append(line.rstrip())

    @property
    def owns(self) -> set[Owned]:
        owned: set[Owned] = set()
        for _, what, partition in tuple(self.events):
            (owned.add if what == "given" else owned.discard)(partition)
        return owned if self.alive else set()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kills it with SIGKILL: it says nothing to its group."""
        self._process.kill()
        self._process.wait()
        self.killed_ms = time.time_ns() // 1_000_000
        self._thread.join()

    def stop(self) -> None:
        """It leaves its group; a static member says that it will be back."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._thread.join()


def owned_twice(members: list[JavaConsumer]) -> list[str]:
    """The cases in which a partition was given to a member of a group before another one had given it back, was
    fenced, or was killed."""
    ends_first = {"taken": 0, "lost": 0, "given": 1}
    events = sorted(
        [
            (at_ms, ends_first[what], what, partition, index)
            for index, member in enumerate(members)
            for at_ms, what, partition in member.events
        ]
        + [
            (member.killed_ms, 0, "taken", partition, index)
            for index, member in enumerate(members)
            if member.killed_ms is not None
            for partition in {partition for _, _, partition in member.events}
        ]
    )
    owners: dict[Owned, int] = {}
    wrong = []
    for at_ms, _, what, partition, index in events:
        if what != "given":
            if owners.get(partition) == index:
                del owners[partition]
        elif owners.setdefault(partition, index) != index:
            wrong.append(f"{partition} was given to member {index} at {at_ms}, and member {owners[partition]} has it")
    return wrong
