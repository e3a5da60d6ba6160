"""The output of the demo, on a terminal or into a pipe. Every wait says what it waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from muster_cli.errors import CliError

PROGRESS_EVERY_S = 1.0
POLL_S = 0.02

T = TypeVar("T")


class DemoFailure(CliError):
    """The cluster did not do what the demo shows."""


class Screen:
    """Prints numbered steps, notes, tables and the progress of waits."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = max(self._console.width, 110)
        self._started = time.monotonic()
        self._steps = 0

    def step(self, title: str) -> None:
        self._steps += 1
        self._console.print(f"\n[bold cyan]{self._steps}. {escape(title)}[/]  [dim]{self.elapsed_s():.1f} s[/]")

    def note(self, text: str) -> None:
        self._console.print(f"   {escape(text)}", soft_wrap=True)

    def good(self, text: str) -> None:
        self._console.print(f"   [green]ok[/]  {escape(text)}", soft_wrap=True)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(escape(str(cell)) for cell in row))
        self._console.print(Padding(table, (0, 0, 0, 3), expand=False))

    def wait(self, what: Callable[[], str], done: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `done` returns True. `what` says what is missing. Raises DemoFailure after `timeout_s` seconds."""
        begin = time.monotonic()
        next_progress = begin + PROGRESS_EVERY_S
        while not done():
            now = time.monotonic()
            if now - begin > timeout_s:
                raise DemoFailure(f"gave up after {timeout_s:.0f} s: {what()}")
            if now >= next_progress:
                next_progress = now + PROGRESS_EVERY_S
                self._console.print(f"   [dim]... {escape(what())} ({now - begin:.0f} s)[/]", soft_wrap=True)
            time.sleep(POLL_S)

    def during(self, what: str, work: Callable[[], T], timeout_s: float) -> T:
        """Run `work`, which blocks, and print `what` if it takes long. Raises its exceptions, and DemoFailure as
        `wait`.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        # A daemon thread, not a pool: work that never ends must not keep the demo from ending.
        threading.Thread(target=run, name=what, daemon=True).start()
        self.wait(lambda: what, done.done, timeout_s)
        return done.result()

    def live(self, text: str) -> None:
        """Print a line that the next output replaces. Only on a terminal."""
        if self._console.is_terminal:
            self._console.print(f"   [bold]{escape(text)}[/]", end="\r", soft_wrap=True)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started
