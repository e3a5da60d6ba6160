"""One run: build the world from options, let things fail, then let everything heal and see that it does."""

from __future__ import annotations

import gc
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from tests.simulation.client import Caller, Client
from tests.simulation.cluster import Cluster, Partition
from tests.simulation.consumer import Consumer, histories_of, pending_of
from tests.simulation.consuming.group import Group
from tests.simulation.consuming.machine import Machine
from tests.simulation.consuming.member import ModernConsumer
from tests.simulation.consuming.topics import FIRST_TOPIC, TopicGrowth
from tests.simulation.disaster import Disaster, flip_bit, lose_volume
from tests.simulation.fences import FenceClient
from tests.simulation.history import History
from tests.simulation.injected import Injected
from tests.simulation.mischief import Caller as ElectionCaller
from tests.simulation.mischief import Mischief
from tests.simulation.nominator import Nominator
from tests.simulation.operating.surroundings import Operated
from tests.simulation.options import Options
from tests.simulation.store import Api, Record, Recorded, Store
from tests.simulation.transactions.surroundings import Transactional
from tests.simulation.world import Violation, World

from muster_coordinator.partition_numbers import OFFSETS

__all__ = ["Failure", "Outcome", "simulate"]

LIVENESS_MS = 20_000
ASSIGNED = 3
"""Topic partitions of a consumer group."""


class Served(Protocol):
    """A client. `answered`: how often it got what it asked for."""

    @property
    def name(self) -> str: ...

    @property
    def answered(self) -> int: ...


@dataclass(frozen=True)
class Outcome:
    """What a clean run did."""

    epochs: int  # in which some leader was ACTIVE
    highest_epoch: int
    committed: int
    answered: int
    transactions_committed: int
    transactions_aborted: int
    healed_ms: int  # from the end of the faults until all was well
    trace_hash: str
    injected: Counter[Injected]


class Failure(Exception):
    """A run that broke a promise. ``trace``: the last things that happened; ``check``: function that noticed."""

    def __init__(self, options: Options, reason: str, trace: list[str], check: str) -> None:
        super().__init__(reason)
        self.options = options
        self.reason = reason
        self.trace = trace
        self.check = check


class Simulation:
    def __init__(self, options: Options, worlds: list[World], write: Callable[[str], object]) -> None:
        self.world = World(options, write)
        worlds.append(self.world)
        self._operated: Operated | None = None
        self._transactional: Transactional | None = None
        self.stores: Sequence[Recorded]
        self.operators: Sequence[ElectionCaller]
        if options.operating:
            self._operated = operated = Operated(self.world)
            self.cluster, self.stores, self.operators = operated.cluster, operated.stores, operated.operators
            Mischief(self.cluster, operated.api, self.stores, self.operators)
        else:
            if options.coordinators:
                self._transactional = Transactional(self.world)
            self.cluster = self._transactional.cluster if self._transactional is not None else Cluster(self.world)
            api = Api(self.world)
            self.stores, self.operators = _nominated(self.cluster, api)
            Mischief(self.cluster, api, self.stores, self.operators)
        pairs = list(zip(self.cluster.partitions, self.stores, strict=True))
        self.clients: list[Served] = [
            client
            for partition, store in pairs
            if partition.index in OFFSETS.numbers
            for client in _clients(partition, store)
        ]
        self._groups = [
            Group(f"p{partition.index}n", partition)
            for partition in self.cluster.partitions
            if options.consumers and partition.index in OFFSETS.numbers
        ]
        self.clients += [client for group in self._groups for client in _members(group, self._store_of(group))]
        self._mixed = [
            Group(f"p{partition.index}x", partition)
            for partition in self.cluster.partitions
            if options.mixed and partition.index in OFFSETS.numbers
        ]
        self._machines = [each for group in self._mixed for each in _machines(group, self._store_of(group))]
        self.clients += self._machines
        if self._groups or self._mixed:
            TopicGrowth(self.world)
        if self._transactional is not None:
            self._transactional.begin(self.stores)
            self.clients += self._transactional.clients
        # A real operator opens what is closed by no re-shard that it knows of.
        fenced = options.fence_every_ms and not options.operating
        self.fences = [FenceClient(*pair) for pair in pairs if fenced]
        if options.disaster:
            at_ms = self.world.random.randint(options.safety_ms // 2, options.safety_ms)
            Disaster(*pairs[0], at_ms, lose_volume if options.operating else flip_bit)

    def _classic_of(self, group: Group) -> list[Consumer]:
        """The classic group beside it."""
        partition = group.partition
        return [each for each in self.clients if isinstance(each, Consumer) and each.partition is partition]

    def _store_of(self, group: Group) -> Recorded:
        return self.stores[self.cluster.partitions.index(group.partition)]

    def run(self) -> Outcome:
        options = self.world.options
        self.world.run_until(options.safety_ms)
        self._heal()
        healed_at = self.world.now_ms
        limit_ms = LIVENESS_MS * 2 if options.disaster else LIVENESS_MS  # a person is slow
        self.world.run_until(healed_at + limit_ms, lambda: not self._pending())
        pending = self._pending()
        if pending:
            raise Violation(f"{limit_ms} ms after the faults stopped {pending}: {self._state()}")
        checkers = [partition.checker for partition in self.cluster.partitions]
        for partition in self.cluster.partitions:
            for replica in partition.replicas.values():
                replica.compare_now()
        return Outcome(
            sum(len(checker.active_epochs) for checker in checkers),
            max(max(checker.active_epochs, default=-1) for checker in checkers),
            sum(checker.committed_end for checker in checkers),
            sum(client.answered for client in self.clients),
            self._transactional.model.commits if self._transactional is not None else 0,
            self._transactional.model.aborts if self._transactional is not None else 0,
            self.world.now_ms - healed_at,
            self.world.trace_hash,
            self.world.injected,
        )

    def close(self) -> None:
        """Whatever came of the run."""
        if self._operated is not None:
            self._operated.close()

    # -- liveness: everything is whole again --------------------------------------------------------------------------

    def _heal(self) -> None:
        self.world.log("the faults stop")
        self.world.faults = False
        if self._groups or self._mixed:
            self.world.topics.grow(FIRST_TOPIC)  # whatever was seen before, this must be
        for group in self._mixed:
            next(each for each in self._machines if each in group.members).restart()
        self.world.blocked.clear()
        self.world.slow.clear()
        holder = self.operators[-1].name  # of the lease, with the highest fencing token
        for operator in self.operators:
            if operator.name != holder:  # two at once are a fault too: they may undo for ever what the other one does
                operator.end()
        for pod in self.cluster.pods.values():
            pod.heal()
        self._healed_ms = self.world.now_ms
        self._answered_at_heal = [client.answered for client in self.clients]

    def _pending(self) -> str:
        """What is not well yet: a leader, its set final and recorded, every replica caught up, every client served."""
        for partition, store in zip(self.cluster.partitions, self.stores, strict=True):
            pending = _pending_of(partition, store.record)
            if pending:
                return f"partition {partition.index}: {pending}"
        for fence in self.fences:
            if fence.is_closed:
                return f"partition {fence.partition.index} is closed"
        for client, before in zip(self.clients, self._answered_at_heal, strict=True):
            if client.answered <= before + 2:
                return f"{client.name} is not served"
        for group in self._groups:
            pending = group.pending() or pending_of(self._classic_of(group), ASSIGNED)
            if pending:
                return pending
        for group in self._mixed:
            pending = group.pending()
            if pending:
                return pending
        return self._transactional.pending(self._healed_ms) if self._transactional is not None else ""

    def _state(self) -> str:
        lines = [str(store.record) for store in self.stores]
        for partition in self.cluster.partitions:
            for replica in partition.replicas.values():
                core = replica.core
                if core is not None:
                    lines.append(
                        f"{replica.name} {core.log_id[:4]} promise={core.promise} leads={core.leading_epoch} "
                        f"active={core.is_active} log={core.log.last_epoch},{core.log.end} "
                        f"durable={core.log.durable_end} commit={core.commit_point} waits={core.waiting_for_storage}"
                    )
        return "\n  ".join(lines)


def _nominated(cluster: Cluster, api: Api) -> tuple[list[Store], list[Nominator]]:
    stores = []
    for partition in cluster.partitions:
        leader, sets = cluster.first_sets(partition)
        stores.append(Store(api, Record(-1, leader, sets)))
    pairs = list(zip(cluster.partitions, stores, strict=True))
    return stores, [Nominator(f"op-{i}", *pair) for i in range(cluster.world.options.operators) for pair in pairs]


def _clients(partition: Partition, store: Recorded) -> list[Client | Consumer]:
    """Writers and readers of simple groups, and the members of one consumer group."""
    options, prefix = partition.world.options, f"p{partition.index}"
    histories = [History(f"{prefix}g{i}") for i in range(options.groups)]
    clients: list[Client | Consumer] = [
        Client(f"{prefix}c{i}", Caller(partition, store), histories[i % options.groups], i, writes=i < options.groups)
        for i in range(max(options.clients, options.groups))
    ]
    assigned = histories_of(f"{prefix}m", ASSIGNED)
    clients += [
        Consumer(f"{prefix}m{i}", f"{prefix}m", Caller(partition, store), assigned) for i in range(options.members)
    ]
    partition.histories += histories + assigned
    return clients


def _members(group: Group, store: Recorded) -> list[ModernConsumer]:
    """Every second one is static."""
    partition = group.partition
    names = [f"{group.name}{i}" for i in range(partition.world.options.consumers)]
    members = [
        ModernConsumer(name, group, Caller(partition, store), name if i % 2 else None) for i, name in enumerate(names)
    ]
    group.members += members
    return members


def _machines(group: Group, store: Recorded) -> list[Machine]:
    """Every second one is static. The first one is restarted at the end, and is not."""
    partition = group.partition
    count = partition.world.options.mixed
    machines = [Machine(f"{group.name}{i}", group, Caller(partition, store), static=i % 2 == 1) for i in range(count)]
    group.members += machines
    return machines


def _pending_of(partition: Partition, record: Record) -> str:
    leader = partition.replicas[record.leader]
    core = leader.core
    if core is None or not core.is_active or core.leading_epoch != record.epoch:
        return f"{leader.name} does not lead in epoch {record.epoch}"
    if record.sets.previous_replicas:
        return "the change of the set is not final"
    for log_id in record.sets.replicas:
        replica = partition.replica_of(log_id)
        if replica is None or replica.core is None or replica.core.promise.rebuilding:
            return f"replica {log_id} is not there, or rebuilding"
        if core.commit_point - replica.core.commit_point > 100:
            return f"{replica.name} is behind"
    return ""


def simulate(options: Options, write: Callable[[str], object] = lambda line: None) -> Outcome:
    """Raises Failure. Equal options, equal run. `write` gets each line of the trace."""
    with _failing(options) as trace, _quiet(trace):
        simulation = Simulation(options, trace, write)
        try:
            return simulation.run()
        finally:
            simulation.close()
    raise AssertionError("not reached")


@contextmanager
def _quiet(worlds: list[World]) -> Iterator[None]:
    """What a pod logs is in no trace; the world hears of its errors. A run is short, and nearly all of it lives until
    its end: the garbage collector would only look for nothing.
    """
    before, collects = structlog.get_config(), gc.isenabled()

    def heard(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        worlds[0].heard(event)
        raise structlog.DropEvent

    structlog.configure(processors=[heard], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        structlog.configure(**before)


@contextmanager
def _failing(options: Options) -> Iterator[list[World]]:
    worlds: list[World] = []
    try:
        yield worlds
    except Exception as error:  # a crash of the core is a failure like any other
        trace = worlds[0].trace if worlds else []
        check = traceback.extract_tb(error.__traceback__)[-1].name
        raise Failure(options, f"{type(error).__name__}: {error}", trace, check) from error
