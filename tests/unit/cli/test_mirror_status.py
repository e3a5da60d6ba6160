"""The report of `muster mirror status`."""

from __future__ import annotations

from muster_cli.mirror.status import MirrorLine, build_report
from muster_coordinator.podapi.mirror import MirrorAnswer, MirroredPartition


def partition(number: int, problem: str = "") -> MirroredPartition:
    return MirroredPartition(number, 7, 10, 3, complete=True, records=7, read_again=1, problem=problem)


def test_each_pod_tells_of_the_partitions_that_it_leads() -> None:
    report = build_report(
        {
            "muster-1": MirrorAnswer("kafka:9092", "it is away", (partition(2, "no leader"), partition(0))),
            "muster-0": MirrorAnswer("kafka:9092", "", (partition(1),)),
        }
    )
    assert report.upstream == "kafka:9092"
    assert report.problems == {"muster-1": "it is away"}
    assert [(line.partition, line.pod, line.problem) for line in report.partitions] == [
        (0, "muster-1", ""),
        (1, "muster-0", ""),
        (2, "muster-1", "no leader"),
    ]
    assert report.partitions[0] == MirrorLine(0, "muster-1", 10, 7, 3, True, 7, 1, "")
