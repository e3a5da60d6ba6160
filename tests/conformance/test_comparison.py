"""The comparison itself: what is normalised, what counts as a difference, and that explanations are held to be true."""

from __future__ import annotations

from datetime import timedelta
from fnmatch import fnmatchcase

import pytest
from bench.builds import KAFKA_VERSIONS
from kio.schema.errors import ErrorCode
from tests.conformance import differences, scripts
from tests.conformance.__main__ import _conclude
from tests.conformance.answers import Normaliser, compare
from tests.conformance.differences import Explanation
from tests.conformance.registry import SCRIPTS, Script
from tests.conformance.runner import Report
from tests.conformance.session import CLOSED, KAFKA, NO_ANSWER, Server, Step
from tests.support.kafka import entity

UUID_1 = "0123abcd-0123-0123-0123-0123456789ab"
UUID_2 = "ffffabcd-0123-0123-0123-0123456789ab"


def lines(*outcomes: object, names: dict[str, str] | None = None) -> dict[str, str]:
    steps = [Step(f"{number}. heartbeat v4", outcome) for number, outcome in enumerate(outcomes, 1)]
    return Normaliser(Server(KAFKA, 1, 0, names or {}), "script").lines(steps)


def heartbeat(code: int) -> object:
    return entity("heartbeat", 4, "response")(throttle_time=timedelta(0), error_code=ErrorCode(code))


def test_member_ids_are_named_in_the_order_of_their_appearance() -> None:
    assert lines(f"a-{UUID_2}", f"a-{UUID_1}", f"b-{UUID_1}", f"a-{UUID_2}") == {
        "1. heartbeat v4": "'a-<1>'",
        "2. heartbeat v4": "'a-<2>'",
        "3. heartbeat v4": "'b-<1>'",
        "4. heartbeat v4": "'a-<1>'",
    }


def test_addresses_and_ids_of_a_server_get_common_names() -> None:
    assert lines("xyz", 9092, names={"xyz": "<cluster id>", "9092": "<port>"}) == {
        "1. heartbeat v4": "<cluster id>",
        "2. heartbeat v4": "<port>",
    }


def test_every_field_that_differs_is_shown() -> None:
    found = compare(lines(heartbeat(0)), lines(heartbeat(25)))
    assert found == [("1. heartbeat v4: error_code", "NONE (0)", "UNKNOWN_MEMBER_ID (25)")]


def test_field_that_one_side_lacks_is_a_difference() -> None:
    assert compare({"1. x v0: a": "1"}, {}) == [("1. x v0: a", "1", "absent")]


@pytest.mark.parametrize("silence", [NO_ANSWER, CLOSED])
def test_missing_answer_is_one_difference(silence: str) -> None:
    assert compare(lines(silence), lines(heartbeat(25))) == [
        ("1. heartbeat v4", repr(silence), "UNKNOWN_MEMBER_ID (25)")
    ]


def test_explanation_holds_for_its_values_only() -> None:
    entry = Explanation("join_*", "1. join_group v*: members[*].metadata", "absent", "*", "because")
    assert entry.covers("join_x", "1. join_group v9: members[0].metadata", "absent", "b''")
    assert not entry.covers("join_x", "1. join_group v9: members[0].metadata", "b''", "absent")
    assert not entry.covers("sync_x", "1. join_group v9: members[0].metadata", "absent", "b''")
    assert not entry.covers("join_x", "2. join_group v9: members[0].metadata", "absent", "b''")


def test_run_fails_on_what_is_unexplained_and_on_explanations_without_use(capsys: pytest.CaptureFixture[str]) -> None:
    used, unused = (Explanation("a", "b", "c", "d", reason) for reason in ("used", "unused"))
    used.uses = 1
    assert _conclude(Report(), [used], every_script=True) == 0
    assert _conclude(Report(), [used, unused], every_script=True) == 1
    assert "UNUSED explanation" in capsys.readouterr().out
    assert _conclude(Report(), [used, unused], every_script=False) == 0
    assert _conclude(Report(unexplained=[("script", "where", "1", "2")]), [used], every_script=True) == 1
    assert _conclude(Report(broken=[("script", "what")]), [used], every_script=True) == 1


def test_every_difference_that_is_meant_has_a_reason_and_scripts_that_exist() -> None:
    for release in KAFKA_VERSIONS:
        for entry in differences.load(release):
            assert len(entry.reason) > 10, entry
            assert any(fnmatchcase(script.name, entry.scripts) for script in SCRIPTS), entry
            assert set(entry.releases) <= set(KAFKA_VERSIONS), entry


def test_explanation_counts_for_its_releases_only() -> None:
    of_one = [entry for entry in differences.load("4.1.0") if entry.releases == ["4.1.0"]]
    assert of_one
    assert not [entry for entry in differences.load("4.3.1") if entry in of_one]


def test_scripts_are_as_many_and_as_wide_as_promised() -> None:
    assert len(SCRIPTS) >= 1000
    modules = {name: getattr(scripts, name) for name in scripts.__all__}
    assert {s.area for s in SCRIPTS} == {getattr(m, "AREA", name.replace("_", " ")) for name, m in modules.items()}
    assert sum(s.area == "transactions" for s in SCRIPTS) >= 250
    assert all(isinstance(s, Script) for s in SCRIPTS)
