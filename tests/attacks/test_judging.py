"""The judge of attacks: each bar that is missed is said, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.attacks import report
from tests.attacks.catalogue import ATTACKS, Attack
from tests.attacks.judging import MEMORY_MAX, Verdict, missed, slow
from tests.attacks.measuring import Measured
from tests.attacks.members import Felt

QUIET = Felt(requests=1000, p99=2.0)
GOOD = Measured(QUIET, QUIET, QUIET, calm_s=0.2, done={"connections": 1})
ATTACK, DISK = ATTACKS["idle"], ATTACKS["disk-full"]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (GOOD, []),
        (replace(GOOD, beside=Felt(1000, {"16": 3})), ["errors: 3 x 16"]),
        (replace(GOOD, after=Felt(1000, {"timed out": 1})), ["errors afterwards: 1 x timed out"]),
        (replace(GOOD, after=Felt(1000, {}, lost=2)), ["2 members lost"]),
        (replace(GOOD, after=Felt(1000, forgotten=3)), ["acknowledged commits of 3 members forgotten"]),
        (replace(GOOD, moved=1), ["1 leaderships moved"]),
        (replace(GOOD, grown=MEMORY_MAX + 1), ["+256 MiB"]),
        (replace(GOOD, calm_s=None), ["not as before afterwards"]),
        (replace(GOOD, done={}), ["the attackers did nothing"]),
    ],
)
def test_each_bar_is_said_when_it_is_missed(run: Measured, said: list[str]) -> None:
    assert missed(ATTACK, run) == said


def test_commits_that_a_full_disk_refuses_are_no_errors_and_lost_members_are() -> None:
    refused = replace(GOOD, beside=Felt(1000, {"15": 3}), moved=8)
    assert missed(DISK, refused) == []
    assert missed(DISK, replace(refused, beside=Felt(1000, {"25": 1}), after=Felt(1000, {}, lost=1))) == [
        "errors: 1 x 25",
        "1 members lost",
    ]


def beside(*p99: float) -> list[Measured]:
    return [replace(GOOD, beside=Felt(1000, p99=each)) for each in p99]


def test_median_of_the_runs_is_what_counts() -> None:
    verdict = Verdict(ATTACK, beside(40.0, 4.0, 8.0))
    assert verdict.ratio == 4.0
    assert not slow(ATTACK, verdict.ratio)
    assert slow(ATTACK, verdict.runs[0].ratio)
    assert verdict.middle is verdict.runs[2]


@pytest.mark.parametrize(
    ("attack", "p99", "controls", "asked", "said"),
    [
        (ATTACK, 10.0, [], 0, []),
        (ATTACK, 40.0, [8.0], 1, []),
        (ATTACK, 40.0, [7.0, 9.0, 8.0], 3, []),
        (ATTACK, 40.0, [7.0, 5.0, 9.0], 3, ["p99 20.0 times, 5.7 times a neighbour's"]),
        (DISK, 40.0, [], 0, []),
    ],
    ids=["a low ratio", "the machine is slow", "the first control was an exception", "the pod is slow", "a full disk"],
)
def test_a_neighbour_decides_where_p99_is_high(
    attack: Attack, p99: float, controls: list[float], asked: int, said: list[str]
) -> None:
    verdict = Verdict(attack, beside(p99))
    left = iter(controls)
    verdict.judge_p99(lambda: next(left), 3)
    assert verdict.reasons == said
    assert len(verdict.neighbours) == asked


def test_a_row_has_both_ratios() -> None:
    names = [each.strip() for each in report.HEAD.strip("|").split("|")]
    slow_one = beside(40.0)
    verdicts = [Verdict(ATTACK, slow_one, neighbours=each) for each in ([], [8.0, 9.0, 16.0])]
    verdicts += [Verdict(ATTACK, skipped="no root"), Verdict(ATTACK, reasons=["it did not end"])]
    cells = [[cell.strip() for cell in report.row(each)[1:-1].split("|")] for each in verdicts]
    assert [len(each) for each in cells] == [len(names)] * 4
    assert [each[names.index("times")] for each in cells] == ["20.0", "20.0", "", ""]
    assert [each[names.index("neighbour")] for each in cells] == ["–", "9.0", "", ""]
    assert [each[names.index("times that")] for each in cells] == ["–", "4.4", "", ""]
    assert [each[-1] for each in cells] == ["keeps all", "keeps all", "no root", "**misses**: it did not end"]


def test_rows_are_written_again_without_the_others() -> None:
    first, second = ATTACKS["no-readers"], ATTACKS["idle"]
    old = report.page([report.row(Verdict(each, [GOOD])) for each in (first, second)], "in peace")
    new = report.renewed(old, [Verdict(second, [replace(GOOD, moved=1)], ["1 leaderships moved"])], "in haste")
    assert "2 attacks: 2 keep all bars, 0 miss one, 0 were not made." in old
    assert "2 attacks: 1 keep all bars, 1 miss one, 0 were not made." in new
    assert "The last run: in peace; again idle: in haste." in new
    assert report.row(Verdict(first, [GOOD])) in new.splitlines()
    assert report.row(Verdict(second, [GOOD])) not in new.splitlines()


def test_page_has_a_row_for_each_attack() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    assert [name for name in ATTACKS if f"| {name} |" not in page] == []


def test_there_are_attacks_enough_on_both() -> None:
    assert len(ATTACKS) >= 40
    assert sum(attack.gateway for attack in ATTACKS.values()) >= 8
