"""One operator: a process that runs `kube.run.operate`, is killed, frozen or stopped, and starts again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

import aiohttp
from tests.simulation.injected import Injected
from tests.simulation.operating.client import FakeApiClient, FakeWatch
from tests.simulation.operating.loop import WiredLoop
from tests.simulation.operating.machine import NAMESPACE
from tests.simulation.operating.person import Person
from tests.simulation.operating.server import WALL_START_S, ApiServer
from tests.simulation.operating.wire import Wire, WireConnector
from tests.simulation.world import Violation, World

from muster_operator.clock import Clock
from muster_operator.kube.client import KubeClient
from muster_operator.kube.elector import ElectorSettings
from muster_operator.kube.run import KubeOptions, Surroundings, operate
from muster_operator.metrics import OperatorMetrics
from muster_operator.process import run_operator
from muster_operator.store.port import Store
from muster_operator.store.workload import Workload

__all__ = ["RealOperator"]

ELECTOR = ElectorSettings(lease_duration=1, renew_deadline=0.8, retry_period=0.2)
"""Of a run that lasts seconds."""


class RealOperator:
    """`name`: of its pod, and its identity on the Lease. `lease`: the name of that Lease; operators with another one
    act at the same time. A `mischief.Caller`.
    """

    def __init__(self, name: str, lease: str, server: ApiServer, wire: Wire, person: Person) -> None:
        self.name = name
        self.world = server.world
        self.server = server
        self.wire = wire
        self.lease = lease
        self.random = Random(f"operator {name} {self.world.options.seed}")
        self.frozen_until = -1
        self.wall_offset_s = 0.0
        self.clock_rate = 1 + self.random.uniform(-1, 1) * self.world.options.drift
        self._person = person
        self._run: OperatorRun | None = None
        self._is_over = False
        self._past: list[OperatorRun] = []  # collecting them would run their `finally` blocks
        self.start()

    @property
    def wants(self) -> str:
        return ""

    @wants.setter
    def wants(self, what: str) -> None:
        """Not the operator wants it: a person does."""
        self._person.wants(what)

    def start(self) -> None:
        if self._is_over or (self._run is not None and self._run.is_alive):
            return
        self._run = OperatorRun(self, len(self._past))
        self._past.append(self._run)
        self._run.start()

    def crash(self) -> None:
        """Killed, or stopped in order, or frozen for a while, or its clock jumps."""
        random, world = self.random, self.world
        fate = random.choice(("kill", "kill", "stop", "freeze", "jump"))
        if self._run is None or not self._run.is_alive:
            return
        if fate == "freeze":
            self.frozen_until = world.now_ms + random.randint(1, world.options.freeze_ms_max)
            world.log(f"{self.name} freezes until {self.frozen_until}")
        elif fate == "jump":
            world.injected[Injected.CLOCK_JUMP] += 1
            self.wall_offset_s = random.choice((-1, 1)) * random.uniform(0, 3_600)
        elif fate == "stop":
            self._run.stop()
        else:
            self.kill()

    def kill(self) -> None:
        if self._run is not None and self._run.is_alive:
            self.world.log(f"{self.name} is killed")
            self._run.die()
            self.restart_later()

    def restart_later(self) -> None:
        self.world.at(self.random.randint(1, 1_500), self.start)

    def end(self) -> None:
        """For good."""
        self._is_over = True
        if self._run is not None and self._run.is_alive:
            self._run.die()


class OperatorRun:
    """One process. Implements `process.Process`."""

    def __init__(self, owner: RealOperator, number: int) -> None:
        self.name = owner.name
        self.is_alive = True
        self._owner = owner
        self._world: World = owner.world
        self._random = Random(f"operator {owner.name} {number} {owner.world.options.seed}")
        self._started_ms = owner.world.now_ms
        self.loop = WiredLoop(
            self._at, self._now_s, lambda: 0.001, self._failed, owner.wire, self, f"10.1.0.{owner.name}"
        )
        self._main: asyncio.Task[None] | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._world.log(f"{self.name} starts")
        self.deliver(self._begin)

    def _begin(self) -> None:
        self._main = self.loop.create_task(self._run())
        self._main.add_done_callback(self._ended)

    async def _run(self) -> None:
        owner = self._owner
        clock = Clock(self._now_s, lambda: WALL_START_S + self._world.now_ms / 1000 + owner.wall_offset_s)
        new_watch = cast(Any, partial(FakeWatch, owner.server, self, self._later))
        options = KubeOptions(self.name, "operators", watch_namespace=NAMESPACE, image="muster:1")
        metrics = OperatorMetrics()

        async def reconcile(store: Store, workload: Workload, namespace: str) -> None:
            await run_operator(store, workload, metrics, namespace, None, clock, self._random.random, self._new_http)

        await operate(
            options,
            KubeClient(cast(Any, FakeApiClient(owner.server, self))),
            asyncio.Event(),
            reconcile,
            Surroundings(clock, self._random.random, new_watch, ELECTOR, owner.lease),
        )

    def _new_http(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=WireConnector(self._owner.wire, self))

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            raise Violation(f"{self.name} ends: {task.exception()!r}") from task.exception()
        self._world.log(f"{self.name} has stopped")
        self.die()
        self._owner.restart_later()

    def stop(self) -> None:
        """As SIGTERM does."""
        if self._main is not None:
            self._world.log(f"{self.name} is stopped")
            self.deliver(lambda: self._main is not None and self._main.cancel())

    def die(self) -> None:
        self.is_alive = False
        self._owner.wire.ended(self)

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _now_s(self) -> float:
        return (self._world.now_ms - self._started_ms) / 1000 * self._owner.clock_rate

    def _at(self, delay_s: float, callback: Callable[[], None]) -> None:
        delay_ms = math.ceil(delay_s * 1000 / self._owner.clock_rate) + 1 if delay_s > 0 else 0
        self._world.at(delay_ms, lambda: self._when_thawed(callback))

    def _later(self, delay_s: float, do: Callable[[], None]) -> None:
        self._at(delay_s, lambda: self.loop.enter(do))

    def deliver(self, do: Callable[[], None]) -> None:
        self._when_thawed(lambda: self.loop.enter(do))

    def _when_thawed(self, do: Callable[[], None]) -> None:
        """It may be killed before any of its callbacks, so at each `await`."""
        world, owner = self._world, self._owner
        if not self.is_alive:
            return
        if world.now_ms < owner.frozen_until:
            world.injected[Injected.FREEZE] += 1
            world.at(owner.frozen_until - world.now_ms, lambda: self._when_thawed(do))
            return
        if world.faults and self._random.random() < world.options.operator_crash_in_steps / KILLED_IN:
            world.injected[Injected.OPERATOR_CRASH_IN_STEPS] += 1
            owner.kill()
            return
        do()

    def _failed(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None or not self.is_alive:
            return
        if isinstance(error, Violation):
            raise error
        raise Violation(f"{self.name}: {context.get('message')}: {error!r}")


KILLED_IN = 500
"""Callbacks, for an `operator_crash_in_steps` of 1."""
