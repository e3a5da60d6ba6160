"""How far a long command is: a bar with Spark's tasks on a terminal, a line for each step anywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pyspark import SparkContext
    from rich.progress import Progress, TaskID

__all__ = ["Steps", "steps"]

_POLL_S = 0.2


class Steps:
    """Called with the name of each step as it begins."""

    def __init__(self, total: int, bars: Progress | None) -> None:
        self._total = total
        self._number = 0
        self._bars = bars
        self._task: TaskID | None = None

    def __call__(self, text: str) -> None:
        self._number += 1
        line = f"[{self._number}/{max(self._total, self._number)}] {text}"
        if self._bars is None:
            click.echo(line, err=True)
            return
        self.finish()
        self._task = self._bars.add_task(line, total=None, tasks="")

    def finish(self) -> None:
        """The step that is under way is done."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, total=1, completed=1, tasks="")

    def tasks(self, done: int, total: int) -> None:
        """Of Spark's stages that run now."""
        if self._bars is not None and self._task is not None and total:
            self._bars.update(self._task, total=total, completed=done, tasks=f"{done}/{total} tasks")


@contextmanager
def steps(total: int, context: SparkContext | None = None) -> Iterator[Steps]:
    """``total``: how many steps there will be. With a ``context`` the bar moves with its tasks. Writes to stderr."""
    if not sys.stderr.isatty():
        yield Steps(total, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.fields[tasks]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bars:
        shown = Steps(total, bars)
        ended = threading.Event()
        poller = threading.Thread(target=_poll, args=(context, shown, ended), daemon=True)
        if context is not None:
            poller.start()
        try:
            yield shown
            shown.finish()
        finally:
            ended.set()
            if context is not None:
                poller.join(timeout=5)


def _poll(context: SparkContext, shown: Steps, ended: threading.Event) -> None:
    tracker: Any = context.statusTracker()
    while not ended.wait(_POLL_S):
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # the session ends under it; the bar is only a courtesy
            return
        running = [each for each in stages if each is not None]
        shown.tasks(sum(each.numCompletedTasks for each in running), sum(each.numTasks for each in running))
