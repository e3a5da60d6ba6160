"""Where groups are put by `muster groups reset`, what is read and written as CSV, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from muster_cli.main import cli
from muster_cli.oncall.reset import (
    Change,
    GroupReset,
    Reset,
    changes,
    csv_lines,
    is_without_data,
    parse_duration,
    parse_topic,
    read_csv,
    reset_manifest,
    reset_screen,
)
from muster_coordinator.reset_aims import Aim, AimKind, Edges, Impossible
from muster_operator.api.consumer_group import GroupReset as DeclaredReset

PLACES = [("t", 0), ("t", 1)]
EDGES = {("t", 0): Edges(10, 50), ("t", 1): Edges(0, 5)}


def went(
    aim: Aim, now: dict[tuple[str, int], int], found: dict[tuple[str, int], int | None] | None = None
) -> list[int]:
    return [each.to for each in changes(aim, PLACES, now, EDGES, found or {})]


@pytest.mark.parametrize(
    ("kind", "number", "wanted"),
    [
        ("earliest", 0, [10, 0]),
        ("latest", 0, [50, 5]),
        ("current", 0, [20, 5]),
        ("offset", 20, [20, 5]),
        ("offset", 3, [10, 3]),
        ("offset", 51, [50, 5]),
        ("offset", 9, [10, 5]),
        ("offset", -1, [10, 0]),
        ("offset", 1 << 70, [50, 5]),
    ],
)
def test_each_kind_stays_within_the_log(kind: AimKind, number: int, wanted: list[int]) -> None:
    assert went(Aim(kind, number), {("t", 0): 20}) == wanted


def test_current_offset_is_taken_as_it_is_though_the_log_has_it_no_more() -> None:
    assert went(Aim("current"), {("t", 0): 3, ("t", 1): 9}) == [3, 9]


def test_time_behind_all_records_is_the_end() -> None:
    found = changes(Aim("datetime", 5), PLACES, {}, EDGES, {("t", 0): 33, ("t", 1): None})
    assert [(each.to, bool(each.note)) for each in found] == [(33, False), (5, True)]


def test_shift_needs_an_offset_and_stays_within_the_log() -> None:
    now = {("t", 0): 12, ("t", 1): 3}
    assert went(Aim("shiftBy", -5), now) == [10, 0]
    assert went(Aim("shiftBy", 1), now) == [13, 4]
    assert went(Aim("shiftBy", 40), now) == [50, 5]
    with pytest.raises(Impossible, match="nothing is committed for t-1"):
        went(Aim("shiftBy", 1), {("t", 0): 12})


def test_offsets_of_a_file_stay_within_the_log() -> None:
    assert went(Aim("file"), {}, {("t", 0): 7, ("t", 1): 4}) == [10, 4]


def test_partitions_without_a_record_are_told_from_those_whose_records_are_gone() -> None:
    assert is_without_data({("t", 0): Edges(0, 0), ("t", 1): Edges(0, 0)})
    assert not is_without_data({("t", 0): Edges(0, 0), ("t", 1): Edges(7, 7)})
    assert not is_without_data({})


def test_csv_is_what_kafkas_tool_takes() -> None:
    offsets = {("t", 0): 5, ("t", 1): 6}
    assert list(csv_lines({"g": offsets}, with_group=False)) == ["t,0,5", "t,1,6"]
    lines = list(csv_lines({"g": offsets, 'a,"b': {("t", 0): 1}}, with_group=True))
    assert lines == ['"a,""b",t,0,1', "g,t,0,5", "g,t,1,6"]
    assert read_csv(lines, ["g", 'a,"b']) == {"g": offsets, 'a,"b': {("t", 0): 1}}
    assert read_csv(lines, ["g"]) == {"g": offsets}, "lines of other groups are not this one's"
    assert read_csv(["t,0,5", "", "t,1,6"], ["g"]) == {"g": offsets}


@pytest.mark.parametrize("line", ["t,0", "t,0,5", "g,t,x,5", "g,t,0,5x", "g,t,-1,5", f"g,t,0,{1 << 63}", "g,t,0,5,1"])
def test_line_that_is_wrong_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"^line 2: "):
        read_csv(["g,t,0,1", line], ["g", "h"])


def test_offsets_are_printed_as_the_reset_of_a_consumer_group() -> None:
    offsets = {("t", 1): 9, ("a.b", 0): 7, ("true", 0): 1}
    (declared,) = yaml.safe_load(reset_manifest("2026-11-29", offsets)).values()
    found = msgspec.convert(declared, DeclaredReset)
    assert (found.id, found.to) == ("2026-11-29", "offsets")
    assert {(each.topic, each.partition): each.offset for each in found.offsets or ()} == offsets


def test_reset_of_a_consumer_group_that_would_be_refused_is_not_printed() -> None:
    with pytest.raises(ValueError, match="use `muster groups undo`"):
        reset_manifest("one", {("t", number): 0 for number in range(1_001)})
    for wrong in ("", "a b", "-a", "a" * 64):
        with pytest.raises(ValueError, match="an id has"):
            reset_manifest(wrong, {("t", 0): 0})


def test_durations_are_those_of_iso_8601() -> None:
    assert parse_duration("P1DT2H3M4.5S") == 86_400 + 7_200 + 180 + 4.5
    assert (parse_duration("PT1H"), parse_duration("p7d")) == (3_600, 7 * 86_400)
    for wrong in ("", "P", "PT", "1h", "P1H", "PT1D", "P1DT"):
        with pytest.raises(ValueError, match="no duration"):
            parse_duration(wrong)


def test_topic_has_partitions_behind_a_colon() -> None:
    assert (parse_topic("t"), parse_topic("t:0,12")) == (("t", ()), ("t", (0, 12)))
    for wrong in ("", ":1", "t:", "t:a", "t:1,", "t:-1"):
        with pytest.raises(ValueError, match="not TOPIC"):
            parse_topic(wrong)


def test_screen_says_what_becomes_of_each_group_and_takes_no_name_for_markup() -> None:
    change = Change("t", 0, 9, 6, "3 is before the start")
    groups = (
        GroupReset("[red]g", "EMPTY", (change, Change("t", 1, None, 4)), "to write"),
        GroupReset("live", "STABLE", (), "members"),
        GroupReset("r", "EMPTY", (), "refused", "no right"),
    )
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(reset_screen(Reset(executed=False, groups=groups)))
    shown = capture.get()
    for told in (
        "[red]g: 2 offsets to write; --execute writes them",
        "live is STABLE: stop its members, then run this again",
        "r: refused: no right",
        "-3",
        "3 is before the start",
    ):
        assert told in shown, shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--all-topics"], "give one of --to-earliest"),
        (["--all-topics", "--to-earliest", "--shift-by", "-1"], "give one of --to-earliest"),
        (["--to-earliest"], "give one of --topic and --all-topics"),
        (["--to-earliest", "--all-topics", "--topic", "t"], "give one of --topic and --all-topics"),
        (["--to-earliest", "--topic", "t:x"], "--topic t:x: not TOPIC"),
        (["--to-datetime", "yesterday", "--all-topics"], "--to-datetime yesterday: no time"),
        (["--by-duration", "1h", "--all-topics"], "--by-duration 1h: no duration"),
        (["--to-earliest", "--all-topics", "--dry-run", "--execute"], "give one of --dry-run and --execute"),
        (["--to-earliest", "--all-topics", "--json", "--export"], "give one of --export and --json"),
    ],
)
def test_words_that_contradict_each_other_are_wrong_usage(words: list[str], told: str) -> None:
    done = CliRunner().invoke(cli, ["groups", "reset", "g", "--bootstrap-server", "127.0.0.1:1", *words])
    assert (done.exit_code, told in done.output) == (2, True), done.output


def test_file_that_is_wrong_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,1\nt;1;2\n")
    done = CliRunner().invoke(
        cli, ["groups", "reset", "g", "--bootstrap-server", "127.0.0.1:1", "--from-file", str(file)]
    )
    assert (done.exit_code, f"{file}: line 2: not topic,partition,offset" in done.output) == (1, True), done.output
