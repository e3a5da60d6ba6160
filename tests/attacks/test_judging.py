"""The judge of attacks: each bar that is missed is said, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.attacks import report
from tests.attacks.catalogue import ATTACKS
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


def test_median_of_the_runs_is_what_counts() -> None:
    runs = [replace(GOOD, beside=Felt(1000, p99=p99)) for p99 in (40.0, 4.0, 8.0)]
    verdict = Verdict(ATTACK, runs)
    assert verdict.ratio == 4.0
    assert slow(ATTACK, verdict.ratio) == []
    assert slow(ATTACK, runs[0].ratio) == ["p99 20.0 times"]
    assert verdict.middle is runs[2]


def test_neighbour_is_a_column_and_no_bar() -> None:
    names = [each.strip() for each in report.HEAD.strip("|").split("|")]
    rows = [report.row(Verdict(ATTACK, [GOOD], neighbour=each)) for each in (None, 7.3)]
    rows.append(report.row(Verdict(ATTACK, skipped="no root")))
    cells = [[cell.strip() for cell in row[1:-1].split("|")] for row in rows]
    assert [len(each) for each in cells] == [len(names)] * 3
    assert [each[names.index("neighbour")] for each in cells] == ["–", "7.3", ""]
    assert cells[1][-1] == "keeps all"


def test_page_has_a_row_for_each_attack() -> None:
    page = report.PAGE.read_text(encoding="utf-8")
    assert [name for name in ATTACKS if f"| {name} |" not in page] == []


def test_there_are_attacks_enough_on_both() -> None:
    assert len(ATTACKS) >= 40
    assert sum(attack.gateway for attack in ATTACKS.values()) >= 8
