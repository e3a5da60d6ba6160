"""A cut with pods that are silent: only if no other pod can have led a partition after the leader that was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import aiohttp
import pytest
from msgspec.structs import replace

from muster_cli.backup import cut
from muster_cli.backup.cut import Cut, read_ends, read_sites, take_cut
from muster_cli.errors import CliError
from muster_coordinator.podapi.client import PodTimeoutError
from muster_coordinator.podapi.cuts import MarkerHoldAnswer
from muster_coordinator.podapi.models import FenceStatus, PodStatus, ReplicaStatus, SiteStatus
from muster_coordinator.podapi.segments import PartitionEntry, SegmentsAnswer
from muster_coordinator.states import ShardState

SET = ("log-a", "log-b", "log-c")
TRANSACTIONS = 500_000
LEADERS = {0: "a", TRANSACTIONS: "b"}
EPOCH = 7


@dataclass
class World:
    """Three pods with a replica of each of two partitions."""

    replicas: dict[tuple[str, int], ReplicaStatus] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    tls: None = None

    def __post_init__(self) -> None:
        for pod in "abc":
            for partition, leader in LEADERS.items():
                self.replicas[pod, partition] = ReplicaStatus(
                    partition,
                    ShardState.ACTIVE if pod == leader else ShardState.INITIAL,
                    epoch=EPOCH,
                    leader_epoch=EPOCH if pod == leader else -1,
                    log_id=f"log-{pod}",
                    log_end_offset=5,
                    replicas=SET,
                )

    async def pods(self) -> dict[str, str]:
        return {pod: f"{pod}:1" for pod in "abc"}

    def change(self, pod: str, **fields: Any) -> None:
        for partition in LEADERS:
            self.replicas[pod, partition] = replace(self.replicas[pod, partition], **fields)

    async def cut(self) -> Cut:
        return await take_cut(self, cast("aiohttp.ClientSession", None))


class FakePod:
    """Answers as a `PodClient` would."""

    def __init__(self, world: World, _http: object, pod: str, _address: str, _tls: object) -> None:
        self.pod = pod
        self._world = world

    def _asked(self) -> None:
        if self.pod in self._world.silent:
            raise PodTimeoutError(f"no answer from {self.pod}")

    def _replicas(self) -> Mapping[int, ReplicaStatus]:
        return {number: each for (pod, number), each in self._world.replicas.items() if pod == self.pod}

    async def status(self) -> PodStatus:
        self._asked()
        return PodStatus(
            *(self.pod, 1, "uid", "boot", "1", f"{self.pod}:2", True),
            partitions=tuple(self._replicas().values()),
            cluster_id="k",
            offsets_partitions=1,
            transaction_base=TRANSACTIONS,
            transaction_partitions=1,
            site=SiteStatus("east", held=True),
        )

    async def segments(self) -> SegmentsAnswer:
        self._asked()
        found = self._replicas().items()
        return SegmentsAnswer(
            tuple(PartitionEntry(number, each.log_id, 5, ((1, 0),), (), each.leader_epoch) for number, each in found)
        )

    async def hold_markers(self, _name: str, _for_ms: int) -> MarkerHoldAnswer:
        self._asked()
        self._world.held.add(self.pod)
        return MarkerHoldAnswer(held=True)

    async def let_markers_go(self, _name: str) -> MarkerHoldAnswer:
        self._asked()
        return MarkerHoldAnswer(held=True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(cut, "PodClient", partial(FakePod, world))
    monkeypatch.setattr(cut, "TRY_FOR_S", 0.0)
    monkeypatch.setattr(cut, "ENDS_FOR_S", 0.0)
    return world


async def test_silent_pod_that_can_lead_nothing_is_left_out(world: World) -> None:
    assert (await world.cut()).pods == 3
    world.silent, world.held = {"c"}, set()
    found = await world.cut()
    assert ({log.pod.pod for log in found.logs}, found.pods, world.held) == ({"a", "b"}, 3, {"a", "b"})
    assert len((await read_ends(world, cast("aiohttp.ClientSession", None))).logs) == 2
    sites, silent = await read_sites(world, cast("aiohttp.ClientSession", None))
    assert (sorted(sites), silent) == (["a", "b"], ["c"])


async def test_partition_of_a_silent_leader_is_missed_and_the_pod_is_named(world: World) -> None:
    world.silent = {"a"}
    with pytest.raises(CliError, match=r"no pod leads __consumer_offsets-0 \(a silent\)"):
        await world.cut()
    with pytest.raises(CliError, match=r"no pod leads __consumer_offsets-0 \(a silent\)"):
        await read_ends(world, cast("aiohttp.ClientSession", None))


async def test_site_of_which_no_pod_answers_is_none(world: World) -> None:
    world.silent = {"a", "b", "c"}
    with pytest.raises(CliError, match="no answer from a"):
        await read_sites(world, cast("aiohttp.ClientSession", None))


@pytest.mark.parametrize(
    ("pod", "fields", "told"),
    [
        ("b", {"epoch": EPOCH + 1}, "has promised it to a later leader"),
        ("b", {"rebuilding": True}, "of its 3 replicas only 1 answer"),
        ("b", {"log_end_offset": -1}, "of its 3 replicas only 1 answer"),
        ("b", {"log_id": "of a learner"}, "of its 3 replicas only 1 answer"),
        ("a", {"previous_replicas": ("log-a", "log-d", "log-e")}, "of its 3 replicas only 1 answer"),
        ("a", {"replicas": ("log-a", "log-c")}, "of its 2 replicas only 1 answer"),
        ("a", {"replicas": ()}, "its leader has changed meanwhile"),
        ("a", {"fence": FenceStatus(1, closed=True)}, "a re-shard runs"),
    ],
)
async def test_leader_that_another_may_have_followed_is_none_while_a_pod_is_silent(
    world: World, pod: str, fields: dict[str, Any], told: str
) -> None:
    world.silent = {"c"}
    number = 0
    world.replicas[pod, number] = replace(world.replicas[pod, number], **fields)
    with pytest.raises(CliError, match=told):
        await world.cut()


async def test_open_re_shard_disturbs_no_cut_of_pods_that_all_answer(world: World) -> None:
    world.change("a", fence=FenceStatus(1, closed=True))
    assert len((await world.cut()).logs) == 2
    world.change("a", fence=FenceStatus(1, closed=False, imported=3, complete=True))
    world.silent = {"c"}
    assert len((await world.cut()).logs) == 2
