"""A small Java program that answers a line of JSON with a line of JSON, with the jars of Kafka."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.kafka_broker import java


class JavaLines:
    """One JVM that runs the source `name` of this folder."""

    def __init__(self, name: str) -> None:
        self._source = str(Path(__file__).with_name(name))

    def __enter__(self) -> Self:
        self._jvm = subprocess.Popen(
            java(self._source), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.close()
        self._jvm.stdout.close()
        self._jvm.wait()

    def ask(self, question: Any) -> Any:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps(question) + "\n")
        self._jvm.stdin.flush()
        return json.loads(self._jvm.stdout.readline())
