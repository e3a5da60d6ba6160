"""The page out of rows made by hand: what it warns of, what it shows, and that a client's names stay texts."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from muster_pipeline.analytics.groups import Thresholds
from muster_pipeline.report.data import (
    Activity,
    Groups,
    Listing,
    Load,
    Quality,
    Rebalances,
    Regressions,
    ReportData,
    Transactions,
)
from muster_pipeline.report.figures import figures
from muster_pipeline.report.findings import BAD, NOTE, WARNING, findings
from muster_pipeline.report.page import render_page, write_report
from muster_pipeline.report.text import amount, duration, instant, name, percent, rate

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
HOSTILE = "<script>alert(1)</script>$x^2$\x1b[2J"


def listing(*rows: dict[str, Any]) -> Listing:
    return Listing(list(rows), len(rows))


def rate_row(group: str, commits: int, **more: Any) -> dict[str, Any]:
    return {
        "group": group,
        "partitions": 1,
        "commits": commits,
        "per_second": commits / 3600,
        "peak_per_second": commits / 1800,
        "repeated_share": 0.5,
        "score": 0.0,
        "outlier": False,
    } | more


def quiet_data() -> ReportData:
    """One hour of one group that is well."""
    return ReportData(
        at_ms=START_MS + HOUR_MS,
        first_ms=START_MS,
        from_ms=START_MS,
        last_ms=START_MS + HOUR_MS,
        run=1,
        logs=2,
        kinds={"offset_commit": 100},
        thresholds=Thresholds(),
        activity=Activity(
            60_000,
            [{"group": "g", "bucket_ms": START_MS + 60_000 * n, "commits": 2} for n in range(50)],
            listing(rate_row("g", 100)),
            [],
        ),
        groups=Groups({"active": 1}, Listing(), Listing(), Listing(), []),
        regressions=Regressions(Listing(), []),
        rebalances=Rebalances(Listing(), Listing()),
        load=Load(
            2,
            [{"offsets_partition": 0, "groups": 1, "commits": 100, "largest_group": "g", "largest_commits": 100}],
            [
                {
                    "partitions": 2,
                    "without_groups": 1,
                    "most_groups": 1,
                    "busiest_commits": 100,
                    "busiest_share": 1.0,
                    "times_mean": 2.0,
                }
            ],
        ),
        transactions=Transactions({}, Listing(), 0),
        quality=Quality(Listing(), 0),
    )


def troubled_data() -> ReportData:
    """Everything that the page can warn of."""
    state = {
        "group": HOSTILE,
        "state": "stalled",
        "members": 2,
        "partitions": 3,
        "lag": 1_234_567,
        "stalled_partitions": 1,
        "quiet_ms": 5,
        "last_advance_ms": START_MS,
        "last_commit_ms": START_MS,
        "expires_ms": None,
    }
    left = state | {"group": "old", "state": "abandoned", "members": 0, "expires_ms": START_MS + 2 * HOUR_MS}
    lag = {
        "group": HOSTILE,
        "topic": "orders",
        "partition": 1,
        "committed_offset": 5,
        "end_offset": 1_234_572,
        "lag": 1_234_567,
        "time_lag_ms": 90_000,
        "at_least": True,
    }
    back = {
        "group": HOSTILE,
        "topic": "orders",
        "partition": 1,
        "timestamp_ms": START_MS + 1,
        "cause": "reset",
        "from_offset": 100,
        "to_offset": 0,
        "reread": 100,
        "gap_ms": 1000,
    }
    rebalance = {
        "group": HOSTILE,
        "timestamp_ms": START_MS + 5,
        "generation": 2,
        "members_after": 1,
        "joined": ["a"],
        "departed": [{"member_id": "b", "how": "timed out"}],
        "assign_ms": 3,
        "pause_ms": 90_000,
    }
    summary = {
        "group": HOSTILE,
        "rebalances": 70,
        "joined": 1,
        "left": 0,
        "timed_out": 1,
        "left_or_timed_out": 0,
        "longest_pause_ms": 90_000,
        "shortest_between_ms": 10,
        "last_ms": START_MS + 5,
    }
    problem = {
        "problem": "bad_crc",
        "file": "00000000000000000000.log",
        "position": 7,
        "problem_bytes": 300,
        "problem_detail": "CRC-32C does not match",
    }
    transaction = {
        "transactional_id": HOSTILE,
        "transaction_state": "Ongoing",
        "producer_id": 9,
        "producer_epoch": 3,
        "transaction_partitions": [{"topic": "__consumer_offsets", "partition": each} for each in range(8)],
        "transaction_start_ms": START_MS,
        "transaction_update_ms": START_MS,
        "transaction_timeout_ms": 60_000,
        "age_ms": HOUR_MS,
        "waiting_ms": HOUR_MS,
        "overdue": True,
    }
    unmarked = transaction | {"transactional_id": "p", "transaction_state": "PrepareCommit", "overdue": False}
    what_if = quiet_data().load.what_if[0] | {"times_mean": 4.0}
    return replace(
        quiet_data(),
        activity=replace(quiet_data().activity, outliers=[rate_row("g", 100, outlier=True, repeated_share=0.95)]),
        groups=Groups(
            {"stalled": 1, "abandoned": 1},
            listing(state, left),
            listing(left),
            listing(lag),
            [{"group": HOSTILE, "lag": 1_234_567, "time_lag_ms": 90_000, "at_least": True}],
        ),
        regressions=Regressions(
            listing(back, back | {"cause": "topic recreated"}),
            [
                {"group": HOSTILE, "cause": "reset", "times": 1, "reread": 100},
                {"group": "r", "cause": "topic recreated", "times": 1, "reread": 9},
            ],
        ),
        rebalances=Rebalances(listing(*[rebalance] * 7), listing(summary)),
        load=replace(quiet_data().load, what_if=[what_if]),
        transactions=Transactions({"Ongoing": 1, "PrepareCommit": 1}, listing(transaction, unmarked), 1),
        quality=Quality(listing(problem), 300),
    )


class Page(HTMLParser):
    """Tags, ids, links and texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def troubled_html() -> str:
    data = troubled_data()
    return render_page(data, figures(data), START_MS)


def test_all_that_is_wrong_comes_first_and_the_worst_before_the_rest() -> None:
    found = findings(troubled_data())
    assert [(each.severity, each.section) for each in found] == [
        (BAD, "quality"),
        (BAD, "groups"),
        (BAD, "transactions"),
        (BAD, "regressions"),
        (WARNING, "transactions"),
        (WARNING, "regressions"),
        (WARNING, "expiring"),
        (WARNING, "rebalances"),
        (WARNING, "rebalances"),
        (WARNING, "commits"),
        (NOTE, "rebalances"),
        (NOTE, "load"),
        (NOTE, "groups"),
    ]
    titles = "\n".join(each.title for each in found)
    assert "1 stretch of the log could not be read (300 bytes)" in titles
    assert "1 transaction open beyond the time-out" in titles
    assert "1 transaction ended 1min ago or more, and markers are missing" in titles
    assert "1 time an offset went back: 100 records to read again" in titles


def test_a_group_with_much_of_all_commits_is_named_only_if_they_say_nothing_new() -> None:
    wasteful = replace(quiet_data().activity, rates=listing(rate_row("g", 100, repeated_share=0.95)))
    assert [each.title for each in findings(replace(quiet_data(), activity=wasteful))] == [
        "g makes 100% of all commits"
    ]


def test_an_end_of_a_log_that_may_be_a_write_under_way_is_only_a_note() -> None:
    tail = {"problem": "torn_batch", "file": "f", "position": 7, "problem_bytes": 30, "problem_detail": ""}
    for problems, severity in (([tail], NOTE), ([tail, tail | {"problem": "bad_crc"}], BAD)):
        data = replace(quiet_data(), quality=Quality(listing(*problems), 30))
        assert [each.severity for each in findings(data)] == [severity]


def test_a_group_that_is_well_gives_no_finding_and_unknown_lag_is_said() -> None:
    assert findings(quiet_data()) == []
    unknown = replace(quiet_data(), groups=replace(quiet_data().groups, lags=None, group_lags=None))
    assert [each.title for each in findings(unknown)] == ["Lag is not known"]
    html = render_page(unknown, figures(unknown), START_MS)
    assert "--bootstrap-server" in html
    assert "Nothing stands out" in render_page(quiet_data(), [], START_MS)


def test_every_finding_leads_to_a_section_of_the_page(troubled_html: str) -> None:
    page = Page(troubled_html)
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {str(attributes["href"]) for tag, attributes in page.tags if tag == "a"}
    assert links
    assert {link.removeprefix("#") for link in links} <= ids


def test_names_of_clients_stay_texts(troubled_html: str) -> None:
    page = Page(troubled_html)
    assert "script" not in {tag for tag, _ in page.tags}
    assert "<script>alert(1)</script>$x^2$\\x1b[2J" in page.text
    assert "\x1b" not in troubled_html


def test_open_transactions_are_listed_with_their_partitions(troubled_html: str) -> None:
    text = " ".join(Page(troubled_html).text.split())
    assert "__consumer_offsets-0, " in text
    assert "__consumer_offsets-5 and 2 more" in text
    assert "beyond its time-out" in text
    assert "No log of the transaction topic was read" in render_page(quiet_data(), [], START_MS)


def test_markers_that_are_missing_for_a_moment_are_no_finding() -> None:
    [_, unmarked] = troubled_data().transactions.listed.rows
    for waiting_ms, count in ((59_999, 0), (60_000, 1)):
        listed = listing(unmarked | {"waiting_ms": waiting_ms})
        assert len(findings(replace(quiet_data(), transactions=Transactions({}, listed, 0)))) == count


def test_page_needs_nothing_from_elsewhere(troubled_html: str) -> None:
    assert "default-src 'none'" in troubled_html
    page = Page(troubled_html)
    loading = [(tag, attributes) for tag, attributes in page.tags if {"src", "srcset", "data"} & attributes.keys()]
    assert loading == []
    assert not re.findall(r"@import|url\((?!#)", troubled_html)


def test_plots_come_in_two_widths_in_the_colours_of_the_page(troubled_html: str) -> None:
    slugs = [plot.slug for plot in figures(troubled_data())]
    assert slugs == ["lag", "commits", "regressions", "rebalances", "load", "what-if"]
    for width in ("wide", "narrow"):
        assert troubled_html.count(f'<svg class="{width}"') == len(slugs)
    svgs = "".join(re.findall(r"<svg.*?</svg>", troubled_html, re.S))
    assert "var(--s1)" in svgs
    assert set(re.findall(r": (#[0-9a-f]{6})", svgs)) <= {"#000000"}  # no paper of its own
    ids = re.findall(r' id="([^"]+)"', svgs)
    referred = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", svgs))
    assert all(ids.count(one or other) == 1 for one, other in referred)


def test_report_is_written_with_a_png_of_each_plot_and_over_an_older_one(tmp_path: Path) -> None:
    page = tmp_path / "deep" / "report.html"
    page.parent.mkdir()
    page.write_text("older")
    written = write_report(troubled_data(), page, tmp_path / "plots")
    assert written[0] == page
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html"]
    assert page.read_text().startswith("<!doctype html>")
    assert len(written) == 7
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[1:])


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (amount(0), "0"),
        (amount(9999), "9,999"),
        (amount(12_345), "12.3k"),
        (amount(999_999), "1M"),
        (amount(2_540_000_000), "2.54G"),
        (amount(0.5), "0.5"),
        (amount(None), "–"),
        (duration(0), "0ms"),
        (duration(1500), "1.5s"),
        (duration(65_000), "1min 5s"),
        (duration(59_999), "1min"),
        (duration(90_000_000), "1d 1h"),
        (duration(86_400_000), "1d"),
        (duration(-1500), "-1.5s"),
        (percent(0.004), "<1%"),
        (percent(0.456), "46%"),
        (rate(12.5), "12.5/s"),
        (rate(0.5), "30/min"),
        (rate(0.001), "3.6/h"),
        (instant(START_MS), "2023-11-14 22:13:20"),
        (instant(-1), "–"),
        (name("a\u202eb"), "a\\u202eb"),
        (name(" "), "' '"),
        (name("x" * 99, 11), "xxxxx…xxxxx"),
    ],
)
def test_numbers_and_names_are_for_people(shown: str, expected: str) -> None:
    assert shown == expected
