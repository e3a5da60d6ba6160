"""Kafka's Java consumers, each a process that can be killed, and what they say they own."""

from __future__ import annotations

import signal
import time
from collections import deque
from pathlib import Path

from tests.support.kafka_broker import java
from tests.support.owners import Owned, owned_now
from tests.support.spoken import speaking

PROGRAM = Path(__file__).with_name("Consuming.java")
SAID_LINES = 8


class JavaConsumer:
    """Starts on construction. `topic`: a name, or a regular expression that begins with ^. `instance`: of a static
    member. `protocol`: consumer or classic, as `group.protocol` has them."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, instance: str | None = None, protocol: str = "consumer"
    ) -> None:
        self.group = group
        self.events: list[tuple[int, str, Owned]] = []
        """(time in ms of this machine's clock, "given", "taken" or "lost", what)."""
        self.values: list[str] = []
        """The values of records in the order in which they came, committed or not."""
        self.said: deque[str] = deque(maxlen=SAID_LINES)
        """The last of what it has printed besides."""
        self.gone_ms: int | None = None
        words = (bootstrap, topic, group, protocol, *([] if instance is None else [instance]))
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
        return owned_now(self.events) if self.alive else set()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kills it with SIGKILL: it says nothing to its group."""
        self._process.kill()
        self._process.wait()
        self.gone_ms = time.time_ns() // 1_000_000
        self._thread.join()

    def stop(self) -> None:
        """It leaves its group; a static member says that it will be back."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait()
        self._thread.join()
