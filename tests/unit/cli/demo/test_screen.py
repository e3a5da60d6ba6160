from __future__ import annotations

import io

import pytest
from rich.console import Console

from muster_cli.demo import screen as screen_module
from muster_cli.demo.screen import DemoFailure, Screen


class Time:
    """Moves only when the screen sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(screen_module, "time", Time())
    return io.StringIO()


def screen_to(output: io.StringIO) -> Screen:
    return Screen(Console(file=output, highlight=False, width=40))


def test_wait_says_every_second_what_it_waits_for(output: io.StringIO) -> None:
    screen = screen_to(output)
    screen.wait(lambda: "a [bracketed] thing", lambda: screen.elapsed_s() > 3.5, timeout_s=10)
    assert output.getvalue().splitlines() == [f"   ... a [bracketed] thing ({each} s)" for each in (1, 2, 3)]


def test_wait_that_takes_too_long_fails_with_what_is_missing(output: io.StringIO) -> None:
    with pytest.raises(DemoFailure, match=r"gave up after 2 s: 3 of 5 partitions"):
        screen_to(output).wait(lambda: "3 of 5 partitions", lambda: False, timeout_s=2)


def test_long_lines_are_not_broken_where_there_is_no_terminal(output: io.StringIO) -> None:
    screen_to(output).note("word " * 60)
    assert len(output.getvalue().splitlines()) == 1


def test_steps_are_numbered(output: io.StringIO) -> None:
    screen = screen_to(output)
    screen.step("First")
    screen.step("Second")
    assert [line[:2] for line in output.getvalue().splitlines() if line] == ["1.", "2."]


def test_work_that_blocks_gives_its_result_or_its_error(output: io.StringIO) -> None:
    screen = screen_to(output)
    assert screen.during("counting", lambda: 42, timeout_s=1e9) == 42
    with pytest.raises(ZeroDivisionError):
        screen.during("dividing", lambda: 1 // 0, timeout_s=1e9)


def test_live_line_is_for_terminals_only(output: io.StringIO) -> None:
    screen_to(output).live("5 ms")
    assert output.getvalue() == ""
    Screen(Console(file=output, highlight=False, width=40, force_terminal=True)).live("6 ms")
    assert "6 ms" in output.getvalue()
