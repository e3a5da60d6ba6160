"""Lag of groups: how many records of the upstream their committed offsets are behind.

It is shown for groups that Muster coordinates and this pod leads, of either kind; Kafka's own tools see those that
Kafka coordinates. Only the upstream knows where partitions end. Rounds ask its brokers in batches with rests between
them; no client waits for what they do. The groups shown are the first by name: so the same ones are shown from round to
round, and the others cost nothing but a look at their names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Protocol

import structlog

from muster_coordinator.pod.mirroring.connection import UpstreamError
from muster_coordinator.pod.mirroring.ends import Ends, in_batches
from muster_coordinator.pod.mirroring.followed import Followed
from muster_coordinator.pod.mirroring.records_of import Place
from muster_coordinator.shard.ports import Clock

logger = structlog.get_logger(__name__)

ROUND_EVERY = 60
"""The number of rests between two rounds: 15 s by default."""
LOOK_EVERY = 4
"""The number of rests until the next look while no group here has an offset. Very many names of Kafka's groups make it
more."""
LONGEST_PAUSE = 1_200
"""The most rests between two rounds, where no broker answers: each round in vain doubles them."""
KEPT_ROUNDS = 4
"""An end of a partition counts for so many rounds: a broker that is started again leaves no gap."""
OFFSETS_MAX = 20_000
"""Committed offsets of all groups that are shown: it bounds the questions of a round."""
SERIES_MAX = 1_000
"""Groups and their topics that are shown: the text of so many series takes 10 ms of the event loop at each scrape."""
AT_ONCE = 2_000
"""Names or offsets that are looked at in one turn of the event loop: about a millisecond."""


class Asks(Protocol):
    async def ask(self, places: list[Place]) -> Ends:
        """Raises UpstreamError."""
        ...


@dataclass(frozen=True)
class Lag:
    """Records that the group is behind in the partitions of a topic for which it has offsets."""

    group: str
    topic: str
    records: int


@dataclass(frozen=True)
class _Counted:
    """`records`: -1: a partition's end is not known. `asked_ms`: when the first of the ends was asked for."""

    followed: Followed
    group: str
    topic: str
    records: int
    asked_ms: int

    @property
    def is_there(self) -> bool:
        """True if the group still is Muster's, and has offsets."""
        machine = self.followed.machine
        return machine.routes.serves(self.group) and self.group in machine.groups.groups_with_offsets


class GroupLag:
    """`most`: groups that are shown; 0: nothing is asked. `new_round`: who is asked in one round. `partitions_of`: how
    many a topic has, as far as is known. `current`: the partitions that this pod leads and follows now. `rest_s`: the
    pause between two batches of a round."""

    def __init__(
        self,
        most: int,
        new_round: Callable[[], Asks],
        partitions_of: Callable[[str], int],
        current: Callable[[], Mapping[int, Followed]],
        clock: Clock,
        rest_s: float,
    ) -> None:
        self._most = most
        self._new_round = new_round
        self._partitions_of = partitions_of
        self._current = current
        self._clock = clock
        self._rest_s = rest_s
        self._ends: dict[Place, tuple[int, int]] = {}  # and when it was asked for
        self._counted: list[_Counted] = []
        self._beyond = 0
        self._names = 0
        self._in_vain = 0
        self._problem = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._most:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # -- what is shown -------------------------------------------------------------------------------------------------

    def shown(self) -> list[Lag]:
        known = [each for each in self._led() if self._is_known(each)]
        return [Lag(each.group, each.topic, each.records) for each in known]

    @property
    def left_out(self) -> Mapping[str, int]:
        """Groups that are not shown, or not with all of their topics, by reason."""
        unknown = {each.group for each in self._led() if not self._is_known(each)}
        return {"limit": self._beyond, "unknown": len(unknown)}

    def _led(self) -> Iterable[_Counted]:
        current = self._current() if self._counted else {}
        return (
            each for each in self._counted if current.get(each.followed.partition) is each.followed and each.is_there
        )

    @property
    def _kept_ms(self) -> float:
        return KEPT_ROUNDS * ROUND_EVERY * self._rest_s * 1000

    def _is_known(self, counted: _Counted) -> bool:
        return counted.records >= 0 and self._clock.monotonic_ms() - counted.asked_ms <= self._kept_ms

    # -- rounds --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        rests = LOOK_EVERY
        while True:
            await asyncio.sleep(rests * self._rest_s)
            try:
                asked = await self.round()
            except Exception as error:
                logger.exception("group_lag_failed")
                self._note(f"{type(error).__name__}: {error}", in_vain=True)
                asked = True
            if asked:
                rests = min(ROUND_EVERY * 2**self._in_vain, LONGEST_PAUSE)
            else:
                rests = min(LOOK_EVERY + self._names // AT_ONCE, ROUND_EVERY)

    async def round(self) -> bool:
        """Ask for all ends, and count anew. Returns whether there was anything to ask."""
        committed = await self._committed()
        wanted = {(topic, number) for _, _, topic, offsets in committed for number in offsets}
        gone, found, problem = await self._ask(wanted)
        self._ends = {place: end for place, end in self._ends.items() if place in wanted and place not in gone}
        counted = []
        for done, (followed, group, topic, offsets) in enumerate(committed):
            there = {number: offset for number, offset in offsets.items() if (topic, number) not in gone}
            if there:
                counted.append(_Counted(followed, group, topic, *self._behind(topic, there)))
            if done % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        self._counted = counted
        self._note(problem, in_vain=bool(wanted) and not found and not gone)
        return bool(wanted)

    async def _ask(self, places: Iterable[Place]) -> tuple[set[Place], int, str]:
        """The partitions that do not exist, how many ends were found, and what is wrong."""
        asking, gone, found, problem = self._new_round(), set[Place](), 0, ""
        for number, batch in enumerate(in_batches(places, self._partitions_of)):
            if number:
                await asyncio.sleep(self._rest_s)
            try:
                answer = await asking.ask(batch)
            except UpstreamError as error:
                return gone, found, str(error)
            now_ms = self._clock.monotonic_ms()
            self._ends.update({place: (end, now_ms) for place, end in answer.found.items()})
            gone |= answer.gone
            found += len(answer.found)
            problem = answer.problem or problem
        return gone, found, problem

    def _behind(self, topic: str, offsets: Mapping[int, int]) -> tuple[int, int]:
        """Records, and when the first of the ends was asked for."""
        ends = [(self._ends.get((topic, number)), offset) for number, offset in offsets.items()]
        known = [(end[0] - offset, end[1]) for end, offset in ends if end is not None]
        if len(known) < len(ends):
            return -1, 0
        return sum(max(records, 0) for records, _ in known), min(asked_ms for _, asked_ms in known)

    def _note(self, problem: str, *, in_vain: bool) -> None:
        self._in_vain = min(self._in_vain + 1, 10) if in_vain else 0
        if problem and not self._problem:
            logger.warning("group_lag_unknown", problem=problem)
        elif self._problem and not problem:
            logger.info("group_lag_known")
        self._problem = problem

    # -- groups --------------------------------------------------------------------------------------------------------

    async def _committed(self) -> list[tuple[Followed, str, str, dict[int, int]]]:
        """The committed offsets by partition, for each group and topic."""
        names, number_of_groups = await self._first_names()
        found: list[tuple[Followed, str, str, dict[int, int]]] = []
        count = shown = in_turn = 0
        for group, followed in names:
            topics = followed.machine.groups.committed_offsets(group)
            size = sum(len(of_topic) for of_topic in topics.values())
            if count + size <= OFFSETS_MAX and len(found) + len(topics) <= SERIES_MAX:
                shown += 1
                count += size
                for topic, stored in topics.items():
                    found.append((followed, group, topic, {number: each[1].offset for number, each in stored.items()}))
            in_turn += size
            if in_turn >= AT_ONCE:
                in_turn = 0
                await asyncio.sleep(0)
        self._beyond = number_of_groups - shown
        return found

    async def _first_names(self) -> tuple[list[tuple[str, Followed]], int]:
        """The first groups by name, each with the partition that has it, and how many groups there are."""
        first: list[tuple[str, int]] = []
        count = self._names = 0
        current = self._current()
        for partition, followed in current.items():
            names, serves = list(followed.machine.groups.groups_with_offsets), followed.machine.routes.serves
            self._names += len(names)
            for start in range(0, len(names), AT_ONCE):
                served = [(name, partition) for name in names[start : start + AT_ONCE] if serves(name)]
                count += len(served)
                if len(first) == self._most:
                    served = [each for each in served if each < first[-1]]
                if served:
                    first = nsmallest(self._most, first + served)
                await asyncio.sleep(0)
        return [(name, current[partition]) for name, partition in first], count
