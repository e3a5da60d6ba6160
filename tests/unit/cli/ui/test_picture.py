"""Where things stand in the pictures of `muster ui`, and how long its answers are kept."""

from __future__ import annotations

import asyncio

from muster_cli.errors import CliError
from muster_cli.oncall.status import ClusterReport, PartitionLine, PodLine
from muster_cli.ui.looks import KEPT_MAX, Kept, Told
from muster_cli.ui.picture import LINE_LEFT, LINE_WIDTH, time_line, zones_of
from muster_operator.api.durations import format_time
from muster_operator.api.models import FailoverRecord


def pod(name: str, node: str) -> PodLine:
    return PodLine(name, "Running", True, node, 0, "", "", 0, 0)


def report(partitions: int, *pods: PodLine) -> ClusterReport:
    lines = tuple(
        PartitionLine(f"orders-{n}", n, "Led", pods[n % len(pods)].name, n, tuple(each.name for each in pods), 0)
        for n in range(partitions)
    )
    return ClusterReport("shop", "orders", "healthy", "", "", "", len(pods), pods, lines, partitions, 0, (), (), (), ())


def test_partition_has_the_same_place_in_the_grids_of_all_pods() -> None:
    for partitions in (1, 7, 50, 121, 1000):
        (zone,) = zones_of(report(partitions, pod("a", ""), pod("b", ""), pod("c", "")), {})
        places = [[(cell.x, cell.y) for cell in each.cells] for each in zone.pods]
        assert places[0] == places[1] == places[2]
        assert len(set(places[0])) == partitions
        assert all(x < zone.pods[0].width and y < zone.pods[0].height for x, y in places[0])
        assert zone.pods[0].width <= 288, "it fits on a telephone"
        leaders = [[cell.role for cell in each.cells].count("leader") for each in zone.pods]
        assert sum(leaders) == partitions


def test_cluster_without_pods_or_partitions_has_a_picture() -> None:
    (zone,) = zones_of(report(0, pod("a", "")), {})
    assert zone.pods[0].cells == ()
    empty = ClusterReport("shop", "orders", "healthy", "", "", "", 0, (), (), 0, 0, (), (), (), ())
    assert zones_of(empty, {}) == ()


def test_zones_are_in_order_and_pods_without_one_are_last() -> None:
    told = zones_of(report(1, pod("a", "n3"), pod("b", "n1"), pod("c", "n0"), pod("d", "n1")), {"n3": "z2", "n1": "z1"})
    assert [(each.name, [one.pod.name for one in each.pods]) for each in told] == [
        *(("z1", ["b", "d"]), ("z2", ["a"]), ("", ["c"]))
    ]


def failover(at: float, leader: str, *, planned: bool = False) -> FailoverRecord:
    return FailoverRecord("orders-1", 3, format_time(at), "x", leader, planned=planned, duration_ms=28)


def test_failovers_stand_in_the_lane_of_the_pod_that_leads_since_by_their_times() -> None:
    line = time_line([failover(1000, "b"), failover(500, "gone", planned=True), failover(0, "a")], ["a", "b"])
    assert line is not None
    heights = dict(line.lanes)
    assert list(heights) == ["a", "b", "gone"], "a pod that is not there any more has a lane as well"
    marks = {each.y: each for each in line.marks}
    xs = [marks[heights[name]].x for name in ("a", "gone", "b")]
    assert LINE_LEFT < xs[0] < xs[1] < xs[2] < LINE_WIDTH
    assert round(xs[1] - xs[0], 1) == round(xs[2] - xs[1], 1)
    assert [marks[heights[name]].planned for name in ("a", "gone", "b")] == [False, True, False]
    assert "went over from x to b in 28 ms" in marks[heights["b"]].told


def test_failovers_at_one_time_share_a_mark_that_tells_of_all() -> None:
    line = time_line([failover(9, "a"), failover(9, "a"), failover(9, "b", planned=True)], ["a", "b"])
    assert line is not None
    assert [(each.count, each.planned, each.told.count("orders-1")) for each in line.marks] == [
        (2, False, 2),
        (1, True, 1),
    ]
    assert time_line([], ["a"]) is None


async def test_answer_is_kept_for_a_while_and_the_last_one_when_there_is_none() -> None:
    now, asked, problem = [0.0], [0], [""]

    async def ask() -> int:
        asked[0] += 1
        await asyncio.sleep(0)
        if problem[0]:
            raise CliError(problem[0])
        return asked[0]

    kept = Kept(2.0, lambda: now[0])
    assert await asyncio.gather(*(kept.get("x", ask) for _ in range(5))) == [Told(1)] * 5, "one asks for all"
    now[0] = 2.0
    assert await kept.get("x", ask) == Told(2)
    problem[0], now[0] = "gone", 4.0
    assert await kept.get("x", ask) == Told(2, "gone")
    assert await kept.get("x", ask) == Told(2, "gone"), "an error is kept for as long"
    assert asked == [3]
    assert await kept.get("y", ask) == Told(None, "gone")


async def test_answers_to_many_questions_are_forgotten() -> None:
    async def ask() -> int:
        return 1

    kept = Kept(1e9)
    for number in range(KEPT_MAX + 10):
        await kept.get(str(number), ask)
    assert len(kept._answers) == len(kept._asking) == KEPT_MAX
