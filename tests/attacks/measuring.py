"""One attack on one pod or gateway: what its members felt before, during and after it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.attacks.catalogue import Attack
from tests.attacks.children import Child
from tests.attacks.errors import HarnessError
from tests.attacks.members import RECALL, Felt
from tests.attacks.places import PARTITIONS, Place, place

from muster_coordinator.calls import CallStatus

WARM_UP_S, WITHOUT_S, AFTER_S = 0.5, 1.5, 0.5
READY_S = 60.0
ANSWER_S = 45.0
"""Longer than a member waits for an answer."""
CALM_S = 20.0
"""Until the pod has to be as before: no connections but those of members, all partitions active, commits taken."""
LOOK_EVERY_S = 0.05
LEADERSHIPS = ("muster_leaderships_total", "muster_step_downs_total")


@dataclass
class Measured:
    """`grown`: bytes of memory, at the most. `moved`: leaderships begun or ended. `done`: what attackers have done.
    `calm_s`: how long it took after the attack until the pod was as before; None: it was not in CALM_S."""

    without: Felt
    beside: Felt
    after: Felt
    grown: int = 0
    moved: int = 0
    calm_s: float | None = None
    done: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """p99 beside the attack, by that without."""
        return self.beside.p99 / self.without.p99 if self.without.p99 else float("inf")


async def measured(attack: Attack, directory: Path, seconds: float) -> Measured:
    """Raises HarnessError and Skipped. Files are in `directory`."""
    async with place(attack, directory) as attacked:
        text = attacked.target.as_text()
        async with (
            Child("tests.attacks.members", text) as members,
            Child("tests.attacks.attackers", attack.name, text) as attackers,
        ):
            await asyncio.gather(members.line(READY_S), attackers.line(READY_S))
            return await _attacked(attack, attacked, members, attackers, seconds)


async def at_a_neighbour(attack: Attack, directory: Path, seconds: float) -> float:
    """The p99, in ms, of members at a pod or gateway of their own while the attack goes to another one: what the
    machine gives while attackers and attacked are busy. Raises HarnessError and Skipped. Files are in `directory`."""
    directories = [directory / "attacked", directory / "neighbour"]
    for each in directories:
        each.mkdir()
    async with (
        place(attack, directories[0]) as attacked,
        place(attack, directories[1]) as neighbour,
        Child("tests.attacks.members", neighbour.target.as_text()) as members,
        Child("tests.attacks.attackers", attack.name, attacked.target.as_text()) as attackers,
    ):
        await asyncio.gather(members.line(READY_S), attackers.line(READY_S))
        await asyncio.sleep(WARM_UP_S)
        await _felt(members)
        attackers.tell()
        await asyncio.sleep(seconds)
        felt = await _felt(members)
        if not json.loads(await attackers.told(ANSWER_S)):
            raise HarnessError("the control: the attackers did nothing")
        return felt.p99


async def _attacked(attack: Attack, attacked: Place, members: Child, attackers: Child, seconds: float) -> Measured:
    await asyncio.sleep(WARM_UP_S)
    await _felt(members)
    await asyncio.sleep(WITHOUT_S)
    without, moved, memory = await _felt(members), await _moved(attacked), resident(attacked.pid)
    attackers.tell()
    most = await _highest(attacked.pid, seconds)
    beside = await _felt(members)
    done = json.loads(await attackers.told(ANSWER_S))
    most = max(most, resident(attacked.pid))
    begun = time.monotonic()
    if attack.disk:
        await _elected(attacked)
    calm = await _calm(attacked, members)
    calm_s = time.monotonic() - begun if calm else None
    await _felt(members)
    await asyncio.sleep(AFTER_S)
    after = await _felt(members, RECALL)
    return Measured(without, beside, after, max(0, most - memory), await _moved(attacked) - moved, calm_s, done)


async def _elected(attacked: Place) -> None:
    """As an operator does for partitions whose leader could not write. Raises HarnessError."""
    try:
        async with asyncio.timeout(CALM_S):
            while sum(each.status is CallStatus.ACCEPTED for each in await attacked.pod.elect_all()) < PARTITIONS:
                await asyncio.sleep(LOOK_EVERY_S)
    except TimeoutError:
        raise HarnessError(f"no leaders within {CALM_S:g} s") from None


async def _felt(members: Child, word: bytes = b"") -> Felt:
    return Felt(**json.loads(await members.told(ANSWER_S, word)))


async def _moved(attacked: Place) -> int:
    return int(sum([await attacked.pod.metric(name) for name in LEADERSHIPS]))


async def _highest(pid: int, seconds: float) -> int:
    """The most bytes of memory in the next `seconds`."""
    most, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, resident(pid))
        await asyncio.sleep(LOOK_EVERY_S)
    return most


async def _calm(attacked: Place, members: Child) -> bool:
    """Whether members are served again without errors, and partitions active, within CALM_S."""
    end = time.monotonic() + CALM_S
    while time.monotonic() < end:
        await asyncio.sleep(LOOK_EVERY_S * 4)
        felt = await _felt(members)
        active = await attacked.pod.metric("muster_partitions", state="ACTIVE")
        if not felt.errors and felt.requests and active == attacked.pod.partitions:
            return True
    return False


def resident(pid: int) -> int:
    """Bytes of memory of a process. Raises HarnessError when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) << 10
    except (OSError, StopIteration):
        raise HarnessError("the process that is attacked has ended") from None
