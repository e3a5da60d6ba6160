"""Then beside now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from rich.console import Console

from muster_cli.oncall import undoing
from muster_cli.oncall.undo import Change, Committed, GroupUndo, Undo, compared, to_write, undo_screen

THEN = {("t", 0): Committed(5), ("t", 1): Committed(6, "m", 3)}


def test_only_what_had_another_offset_is_written() -> None:
    found = compared("g", "EMPTY", THEN, {("t", 0): 5, ("t", 1): 9, ("t", 2): 1})
    assert found.changes == (Change("t", 1, 6, 9), Change("t", 2, None, 1))
    assert (found.outcome, to_write(found, THEN)) == ("to write", {("t", 1): THEN["t", 1]})
    assert compared("g", "DEAD", THEN, {}).outcome == "to write", "it was deleted"
    assert compared("g", "STABLE", THEN, {}).outcome == "members"
    assert compared("g", "STABLE", THEN, {("t", 0): 5, ("t", 1): 6}).outcome == "same"


def test_screen_says_what_becomes_of_each_group_and_takes_no_name_for_markup() -> None:
    groups = (
        compared("[red]g", "EMPTY", THEN, {("t", 1): 9, ("t", 2): 1}),
        compared("live", "STABLE", THEN, {}),
        GroupUndo("r", "EMPTY", (), "refused", "no right"),
    )
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(undo_screen(Undo("m", 3, groups)))
    shown = capture.get()
    for told in (
        "[red]g: 2 offsets to write; 1 partitions had no offset then, and keep theirs",
        "live is STABLE: stop its members, then run this again",
        "r: refused: no right",
        "3 records of that time are gone",
        "-3",
    ):
        assert told in shown, shown


class Written:
    """In place of brokers, and of their groups."""

    def __init__(self) -> None:
        self.offsets = {("t", 0): 5, ("t", 1): 9}

    def client(self) -> Written:
        return self

    def states(self, groups: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(groups, "EMPTY")

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        return self.offsets.copy()

    def commit(self, group: str, offsets: Mapping[tuple[str, int], Committed]) -> None:
        self.offsets |= {place: each.offset for place, each in offsets.items()}


def test_table_is_shown_once_and_the_outcome_after_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(undoing, "look_back", lambda asked: ("m", {"g": THEN}, 0))
    asked = undoing.Asked("store", "", "", ())
    assert undoing.run_undo(cast(Any, Written()), asked, yes=True, dry_run=False, as_json=False) == 0
    shown = capsys.readouterr().out
    assert shown.count("moves by") == 1
    assert shown.endswith("g: 1 offsets written\n")
