"""How late `kubectl` names a new leader, from made-up histories and lines."""

from __future__ import annotations

from tests.chaos.faults import Fault
from tests.chaos.history import GroupHistory, History
from tests.chaos.named import Named, named_late
from tests.chaos.observed import Place

from muster_coordinator.records.partitioner import partition_for

PLACES = [Place("muster-0", "a:9", "a:1"), Place("muster-1", "b:9", "b:1")]
PARTITIONS = 50
OF_G = partition_for("g", PARTITIONS)
KILL = Fault("SIGKILL", ("a:1",), 10.0, 20.0)


def history(acked: list[float], pods: list[int], first_at: int) -> History:
    group = GroupHistory("g", 0, len(acked), list(range(len(acked))), acked, acked, pods)
    group.coordinators = [(0.0, first_at)]
    return History(["a:1", "b:1"], [group], 0.01)


def late(seen: list[Named], of: History) -> list[float]:
    return named_late(of, [KILL], seen, PLACES, PARTITIONS)


def test_from_the_first_commit_at_the_new_leader_to_the_line_that_names_it() -> None:
    killed = history([9.9, 10.1, 10.2], [0, 1, 1], 0)
    seen = [Named(5.0, OF_G, "muster-1"), Named(10.05, OF_G, "muster-0"), Named(10.4, OF_G, "muster-1")]
    assert late(seen, killed) == [10.4 - 10.1]
    assert late([Named(10.05, OF_G, "muster-1")], killed) == [10.05 - 10.1]


def test_another_partition_and_another_pod_do_not_name_it() -> None:
    killed = history([9.9, 10.1], [0, 1], 0)
    seen = [Named(10.1, (OF_G + 1) % PARTITIONS, "muster-1"), Named(10.2, OF_G, "muster-0")]
    assert late(seen, killed) == [20.0 - 10.1]


def test_group_that_the_fault_spared_counts_for_nothing() -> None:
    assert late([], history([9.9, 10.1], [1, 1], 1)) == []
