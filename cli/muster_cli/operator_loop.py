"""The operator in the process of `muster local up`: the same reconciler as on Kubernetes, over other ports."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import RawIOBase
from pathlib import Path
from typing import TextIO, cast

import structlog

from muster_cli.supervisor import rotate
from muster_coordinator.podapi.client import new_session
from muster_operator.clock import Clock
from muster_operator.metrics import OperatorMetrics
from muster_operator.pods.sessions import PodSessions
from muster_operator.reconcile import Reconciler
from muster_operator.store.port import Store
from muster_operator.store.workload import Workload


@asynccontextmanager
async def operator_running(store: Store, workload: Workload, log_file: Path) -> AsyncIterator[asyncio.Task[None]]:
    """The task of the operator, which ends only by a defect; cancelled on the way out. Its log goes to log_file."""
    rotate(log_file)
    with log_file.open("ab", buffering=0) as log:
        _log_to(_Log(log))
        async with new_session() as http:
            clock = Clock()
            sessions = PodSessions(http, clock)
            reconciler = Reconciler(store, workload, sessions, clock, random.random, OperatorMetrics())
            task = asyncio.create_task(reconciler.run(), name="operator")
            try:
                yield task
            finally:
                task.cancel()
                await asyncio.wait([task])
                await sessions.close()


class _Log:
    """Lines that cannot be written are dropped: a full disk must not end the operator."""

    def __init__(self, file: RawIOBase) -> None:
        self._file = file

    def write(self, line: str) -> None:
        try:
            self._file.write(line.encode())
        except OSError:
            pass

    def flush(self) -> None:
        """Every write goes straight to the file."""


def _log_to(log: _Log) -> None:
    """One JSON object per line, as the pods do."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, log)),
    )
