"""Steps of a long command: lines in a pipe, bars with Spark's tasks on a terminal."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest

from muster_cli.progress import steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Context:
    """A SparkContext of which one stage runs, until it was asked twice; then its session is gone."""

    def __init__(self) -> None:
        self.asked = 0
        self.asked_enough = threading.Event()
        self.numTasks, self.numCompletedTasks = 8, 3

    def statusTracker(self) -> Any:
        return self

    def getActiveStageIds(self) -> list[int]:
        self.asked += 1
        if self.asked > 2:
            self.asked_enough.set()
            raise RuntimeError("the session ended")
        return [1, 2]

    def getStageInfo(self, stage: int) -> Any:
        return self if stage == 1 else None  # a stage may end between the two questions


def test_each_step_is_a_numbered_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with steps(2) as say:
        say("one")
        say("two")
        say("one more than was said")
    assert capsys.readouterr().err.splitlines() == ["[1/2] one", "[2/2] two", "[3/3] one more than was said"]


def test_terminal_shows_tasks_and_survives_the_end_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, context = Terminal(), Context()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with steps(1, context) as say:  # type: ignore[arg-type]  # what of it is used
        say("commits")
        assert context.asked_enough.wait(60)
    shown = terminal.getvalue()
    assert "[1/1] commits" in shown
    assert "3/8 tasks" in shown
