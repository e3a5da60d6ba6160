"""The operator in the process of `muster local up`: the same reconciler as in Kubernetes, with another store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from io import RawIOBase
from pathlib import Path
from typing import TextIO, cast

from muster_cli.errors import CliError
from muster_cli.local.supervisor import rotate
from muster_coordinator.tracing.opening import TracingError, open_spans
from muster_operator.metrics import OperatorMetrics
from muster_operator.process import configure_logging, run_operator
from muster_operator.store.port import Store
from muster_operator.store.workload import Workload


@asynccontextmanager
async def operator_running(
    store: Store, workload: Workload, log_file: Path, collector: str = ""
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the operator in a task, and cancel it on the way out. The task ends by itself only because of a bug.

    The operator logs to `log_file`. `collector`: URL of one that takes spans; "": none. Raises CliError.
    """
    try:
        spans = open_spans(collector, "muster-operator", "local", version("muster"))
    except TracingError as error:
        raise CliError(f"muster.tracing.endpoint: {error}") from None
    rotate(log_file)
    with log_file.open("ab", buffering=0) as log:
        configure_logging(cast(TextIO, _Log(log)))
        task = asyncio.create_task(run_operator(store, workload, OperatorMetrics(), spans=spans), name="operator")
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
            if spans is not None:
                await asyncio.to_thread(spans.close)


class _Log:
    """A log file that drops the lines that cannot be written: a full disk must not end the operator."""

    def __init__(self, file: RawIOBase) -> None:
        self._file = file

    def write(self, line: str) -> None:
        try:
            self._file.write(line.encode())
        except OSError:
            pass

    def flush(self) -> None:
        """Do nothing: every write goes straight to the file."""
