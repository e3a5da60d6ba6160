"""Many groups of several members, with five clients: a process for each client, and what its members say they see.

A commit does not hold up what its member reads; it has one at a time. Lines that a process prints, each with a member's
place in its command: `0 given 2` and `0 taken 2` partitions, `0 record AT_MS VALUE`, `0 refused WHY`,
`0 committed AT_MS TOOK_MS 3:17` (partition and offset).
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.kafka_broker import java
from tests.support.spoken import speaking

PROGRAM = Path(__file__).with_name("Crowd.java")
CLIENTS = ("eager", "cooperative", "librdkafka", "kafka-python", "aiokafka")
"""The first two: Java, with an assignor of either protocol."""
SAID_LINES = 8


@dataclass
class Member:
    """`given`, `taken`: how often it was given partitions, and how often some were taken. `partitions`: how many it
    has. `records`: (ms of this machine's clock, value) of each that it was given. `commits`: (ms, how many ms it took)
    of each that was acknowledged."""

    given: int = 0
    taken: int = 0
    partitions: int = 0
    records: list[tuple[int, int]] = field(default_factory=list)
    commits: list[tuple[int, int]] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The highest offset of each partition of which a commit was acknowledged."""
    refused: list[str] = field(default_factory=list)

    def hears(self, what: str, text: str) -> bool:
        """False if the line is none of a member's."""
        match [what, *text.split()]:
            case ["given", count]:
                self.given += count != "0"
                self.partitions += int(count)
            case ["taken", count]:
                self.taken += count != "0"
                self.partitions -= int(count)
            case ["record", at_ms, value]:
                self.records.append((int(at_ms), int(value)))
            case ["committed", at_ms, took_ms, *ends]:
                self.commits.append((int(at_ms), int(took_ms)))
                for partition, end in (map(int, each.split(":")) for each in ends):
                    self.acknowledged[partition] = max(end, self.acknowledged.get(partition, 0))
            case ["refused", *_]:
                self.refused.append(text)
            case _:
                return False
        return True


@dataclass(frozen=True)
class Group:
    """`static`: its members have instance ids."""

    name: str
    client: str
    static: bool
    members: Sequence[Member]

    @property
    def values(self) -> list[int]:
        """All that its members were given, sorted."""
        return sorted(value for each in self.members for _, value in each.records)

    @property
    def acknowledged(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for partition, end in itertools.chain.from_iterable(list(each.acknowledged.items()) for each in self.members):
            found[partition] = max(end, found.get(partition, 0))
        return found

    def names(self) -> list[str]:
        """The words of its members in the command of their process."""
        return [f"{self.name}/{number}" if self.static else self.name for number in range(len(self.members))]


def groups(prefix: str, count: int, members: int) -> list[Group]:
    """The clients take turns; of two groups of a client one has static members."""
    clients = [CLIENTS[number % len(CLIENTS)] for number in range(count)]
    return [
        Group(f"{prefix}{number}", client, number // len(CLIENTS) % 2 == 1, [Member() for _ in range(members)])
        for number, client in enumerate(clients)
    ]


class Crowd:
    """The members of groups of one client. Its process starts on entering, and is killed on leaving."""

    def __init__(
        self, client: str, groups: Sequence[Group], bootstrap: str, topic: str, period_ms: int, session_ms: int
    ) -> None:
        self.client = client
        self.said: deque[str] = deque(maxlen=SAID_LINES)
        """The last of what it has printed besides."""
        self._members = [member for group in groups for member in group.members]
        names = [name for group in groups for name in group.names()]
        words = (client, bootstrap, topic, str(period_ms), str(session_ms), *names)
        of_java = client in ("eager", "cooperative")
        self._command = (
            java(str(PROGRAM), *words) if of_java else [sys.executable, "-m", "tests.support.crowd_members", *words]
        )

    def __enter__(self) -> Crowd:
        self._process: subprocess.Popen[str]
        self._process, self._thread = speaking(self._command, self._read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def has_joined(self) -> bool:
        """Each of its members has one partition."""
        return all(each.partitions == 1 for each in self._members)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            number, _, rest = line.partition(" ")
            what, _, text = rest.strip().partition(" ")
            if not number.isdigit() or not self._members[int(number)].hears(what, text):
                self.said.append(line.rstrip())
