"""Progress of a long command on stderr: bars on a terminal, and a line when a step begins anywhere else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pyspark import SparkContext
    from rich.progress import Progress, TaskID

_POLL_S = 0.2

Amount = Callable[[str, int, int], None]
"""Takes (what, done, total) as a step proceeds, in records, partitions or bytes."""


def quiet(_what: str, _done: int, _total: int) -> None:
    """An Amount that shows nothing."""


@contextmanager
def _bars() -> Iterator[Progress | None]:
    """rich's display with a text field `of` per bar; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(30), TextColumn("{task.fields[of]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bars:
        yield bars


@contextmanager
def amounts() -> Iterator[Amount]:
    """Show one bar, or one line, for each `what` that the yielded function is called with."""
    begun: dict[str, TaskID | None] = {}
    with _bars() as bars:

        def show(what: str, done: int, total: int) -> None:
            if what not in begun:
                begun[what] = bars.add_task(what, of="") if bars is not None else None
                if bars is None:
                    click.echo(f"{what}: {done:,} of {total:,}", err=True)
            task = begun[what]
            if bars is not None and task is not None:
                bars.update(task, completed=done, total=total, of=f"{done:,}/{total:,}")

        yield show


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
        self._task = self._bars.add_task(line, total=None, of="")

    def finish(self) -> None:
        """Mark the present step as done."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, total=1, completed=1, of="")

    def tasks(self, done: int, total: int) -> None:
        """Show how many tasks of Spark's running stages are done."""
        if self._bars is not None and self._task is not None and total:
            self._bars.update(self._task, total=total, completed=done, of=f"{done}/{total} tasks")


@contextmanager
def steps(total: int, context: SparkContext | None = None) -> Iterator[Steps]:
    """Show `total` steps one after the other. With a `context` the bar follows the tasks that Spark runs in it."""
    with _bars() as bars:
        shown = Steps(total, bars)
        with _polled(context if bars is not None else None, shown):
            yield shown
            shown.finish()


@contextmanager
def _polled(context: SparkContext | None, shown: Steps) -> Iterator[None]:
    if context is None:
        yield
        return
    ended = threading.Event()
    poller = threading.Thread(target=_poll, args=(context, shown, ended), daemon=True)
    poller.start()
    try:
        yield
    finally:
        ended.set()
        poller.join(timeout=5)


def _poll(context: SparkContext, shown: Steps, ended: threading.Event) -> None:
    tracker: Any = context.statusTracker()
    while not ended.wait(_POLL_S):
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # the session has ended; the display must not fail the command
            return
        running = [each for each in stages if each is not None]
        shown.tasks(sum(each.numCompletedTasks for each in running), sum(each.numTasks for each in running))
