"""Transactional producers: begin, write offsets of their groups, commit, abort, die, fall silent until their time is
over, and are replaced by a second instance that fences the first one. As Kafka's producer sends its requests, in
transaction version 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from tests.simulation.client import PATIENCE_MS, TOPIC
from tests.simulation.cluster import Cluster, Partition
from tests.simulation.injected import Injected
from tests.simulation.request import Request
from tests.simulation.store import Recorded
from tests.simulation.transactions.model import Model, Transaction
from tests.simulation.transactions.pods import TransactionalPod
from tests.simulation.world import Violation

from muster_coordinator.errors import ErrorCode
from muster_coordinator.partition_numbers import OFFSETS, TRANSACTIONS
from muster_coordinator.records.partitioner import partition_for
from muster_coordinator.requests import groups as m
from muster_coordinator.requests import transactions as t

__all__ = ["Idempotent", "Places", "Producer"]

GROUPS = 2
RETRY_MS = 60
SHORT_PATIENCE_MS = 100
GIVES_UP = 0.3
REPLACED_MS = 200
IDEMPOTENT_MS = 150
AGAIN = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""A producer asks again. With any other error its instance ends here, as with those that are fatal in Kafka."""

OVER = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
"""What a producer is told whose transaction has ended by time."""

Asked = tuple[Any, Partition]
Script = Generator[Asked | int, Any, None]
"""Yields a request and where it goes, or how long (ms) to wait; gets the response, None: there is none."""
Insist = Generator[Asked | int, Any, Any]


class Places:
    """Where ids and groups live, as clients know it by FindCoordinator."""

    def __init__(self, cluster: Cluster, stores: Sequence[Recorded]) -> None:
        self.world = cluster.world
        self._cluster = cluster
        self._by_number = {
            partition.index: (partition, store) for partition, store in zip(cluster.partitions, stores, strict=True)
        }

    def of_group(self, group: str) -> tuple[Partition, Recorded]:
        return self._by_number[OFFSETS.first + partition_for(group, self.world.options.partitions)]

    def of_id(self, transactional_id: str) -> Partition:
        return self.transactions[partition_for(transactional_id, self.world.options.coordinators)]

    @property
    def transactions(self) -> list[Partition]:
        return [one for number, (one, _) in self._by_number.items() if number in TRANSACTIONS.numbers]

    def call(
        self, message: Any, partition: Partition, seen: Callable[[Any], None], then: Callable[[Any], None]
    ) -> None:
        """`seen` gets what a pod answers, `then` what the client gets in time, or None."""
        world = self.world
        by_any = isinstance(message, t.InitProducerIdRequest) and message.transactional_id is None  # partition there

        def answered(response: Any) -> None:
            world.at(world.random.randint(0, world.options.delay_ms_max), lambda: finish(response))

        def finish(response: Any) -> None:
            if not request.cancelled:
                request.cancelled = True
                if not by_any and response is not None and error_of(response) == ErrorCode.NONE:
                    partition.fences.answers(response, closed_from)
                then(response)

        closed_from = partition.fences.closed_from
        request = Request(message, answered)
        replicas = partition.replicas
        leading = [one.pod.name for one in replicas.values() if one.core is not None and one.core.leading_epoch >= 0]
        target = self._by_number[partition.index][1].record.leader
        if leading and world.random.random() < 0.8:
            target = world.random.choice(leading)
        pod = self._cluster.pods[target]
        assert isinstance(pod, TransactionalPod)
        world.at(world.random.randint(0, world.options.delay_ms_max), lambda: pod.ask(request, seen))
        world.at(world.random.choice((SHORT_PATIENCE_MS, PATIENCE_MS)), lambda: finish(None))


def error_of(response: Any) -> int:
    if isinstance(response, m.TxnOffsetCommitResponse):
        ((_, ((_, code),)),) = response.topics
        return code
    return int(response.error_code)


class Producer:
    """Of one transactional id. `answered` counts transactions whose end it was told of, be it by time."""

    def __init__(self, name: str, places: Places, model: Model) -> None:
        self.name = name
        self.answered = 0
        self.places = places
        self.world = places.world
        self.model = model
        self.groups = [f"{name}g{index}" for index in range(GROUPS)]
        self.id = model.new_id(name, self.groups)
        self._instances = 0
        self._was_silent = False  # since the faults stopped
        self._start()
        self.world.every(self.world.options.twins_every_ms, self._twin)

    def _start(self) -> None:
        self._instances += 1
        _Instance(self, self._instances)

    def _twin(self) -> None:
        """Another one, while the present one goes on."""
        self.world.injected[Injected.PRODUCER_TWIN] += 1
        self._start()

    def may_be_silent(self) -> bool:
        """Once when the faults have stopped: often in turn would leave no time in which it is served."""
        if self.world.faults:
            return True
        first, self._was_silent = not self._was_silent, True
        return first

    def over(self, instance: _Instance) -> None:
        if instance.number == self._instances:
            self.world.at(self.world.random.randint(1, REPLACED_MS), self._start)


class _Instance:
    """`number`: of the instances of its producer."""

    def __init__(self, producer: Producer, number: int) -> None:
        self.number = number
        self._producer = producer
        self._world = producer.world
        self._id = producer.id
        self._name = producer.name
        self._version = 2 if self._world.random.random() < 0.5 else 1
        self._producer_id = self._epoch = -1
        self._present: Transaction | None = None
        self._was_silent = False
        self._script = self._live()
        self._resume()

    def __repr__(self) -> str:
        return f"instance {self.number} of {self._name}"

    # -- one step after the other -------------------------------------------------------------------------------------

    def _resume(self, response: Any = None) -> None:
        try:
            step = self._script.send(response)
        except StopIteration:
            self._world.log(f"{self!r} ends")
            self._producer.over(self)
            return
        if isinstance(step, int):
            self._world.at(step, self._resume)
            return
        message, partition = step
        newest, transaction = self._id.newest, self._present

        def seen(answer: Any) -> None:
            if error_of(answer) == ErrorCode.NONE:
                self._done(message, answer, newest, transaction)

        self._producer.places.call(message, partition, seen, self._resume)

    def _done(self, message: Any, answer: Any, newest: tuple[int, int], transaction: Transaction | None) -> None:
        """A pod did what this instance asked for in `transaction`, when `newest` was the highest epoch that an instance
        had been initialised with, and that instance's number."""
        model = self._producer.model
        with self._world.noting():
            if 0 <= message.producer_epoch < newest[0] and newest[1] != self.number:
                raise Violation(f"{message} of {self!r} is done, {newest} was initialised before")
            if isinstance(answer, t.InitProducerIdResponse) or (
                isinstance(answer, t.EndTxnResponse) and self._version == 2
            ):
                producer = answer.producer_id, answer.producer_epoch
                model.issues(self._name, self, producer)
            match message:
                case m.TxnOffsetCommitRequest():
                    assert transaction is not None
                    model.does(self._id, transaction)
                case t.EndTxnRequest():
                    assert transaction is not None
                    model.ends(self._id, transaction, message.committed)
                case _:
                    pass

    def _insist(self, message: Any, partition: Partition, gives_up: float = 0.0) -> Insist:
        """Until there is an answer that means something. None: it has given up."""
        while True:
            response = yield message, partition
            if response is not None and error_of(response) not in AGAIN:
                return response
            if gives_up and self._world.random.random() < gives_up:
                return None
            yield self._world.random.randint(1, RETRY_MS)

    # -- what it does -------------------------------------------------------------------------------------------------

    @property
    def _coordinator(self) -> Partition:
        return self._producer.places.of_id(self._name)

    def _initialise(self, producer_id: int = -1, epoch: int = -1) -> Insist:
        timeout_ms = self._world.options.transaction_timeout_ms
        request = t.InitProducerIdRequest(self._name, timeout_ms, producer_id, epoch)
        response = yield from self._insist(request, self._coordinator)
        if response.error_code == ErrorCode.NONE:
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            self._id.newest = max(self._id.newest, (self._epoch, self.number))
        return response.error_code

    def _live(self) -> Script:
        random = self._world.random
        code = yield from self._initialise()
        if code != ErrorCode.NONE:
            raise Violation(f"{self!r} is not initialised: {ErrorCode(code).name}")
        while code == ErrorCode.NONE and random.random() > 0.03:
            yield 1 + int(random.expovariate(1 / self._world.options.op_every_ms))
            if random.random() < 0.05:  # as after an error that it can recover from (KIP-360)
                code = yield from self._initialise(self._producer_id, self._epoch)
            else:
                code = yield from self._transaction()

    def _transaction(self) -> Insist:
        """Returns the error that ended this instance."""
        self._was_silent = False
        transaction = self._present = self._id.begin(self)
        code = yield from self._go_through(transaction)
        self._producer.answered += self._was_silent and code in OVER
        return code

    def _go_through(self, transaction: Transaction) -> Insist:
        random = self._world.random
        code = ErrorCode.NONE
        for group in random.sample(self._producer.groups, random.randint(1, GROUPS)):
            code = yield from self._write(transaction, group)
            if code is None:  # as a producer that has waited for too long
                transaction.asked = False
                return (yield from self._end(transaction, False))
            if code != ErrorCode.NONE:
                return code
            if random.random() < 0.05 and self._producer.may_be_silent():
                self._was_silent = True
                yield self._world.options.transaction_timeout_ms * 2
        how = random.random()
        if how < 0.03:
            self._world.injected[Injected.PRODUCER_GONE] += 1
            return ErrorCode.UNKNOWN_SERVER_ERROR
        commits = random.random() < 0.75
        transaction.asked = commits
        return (yield from self._end(transaction, commits))

    def _write(self, transaction: Transaction, group: str) -> Insist:
        producer = self._producer_id, self._epoch
        place = self._producer.places.of_group(group)[0]
        if self._version == 1:
            add = t.AddOffsetsToTxnRequest(self._name, *producer, group)
            response = yield from self._insist(add, self._coordinator)
            if response.error_code != ErrorCode.NONE:
                return response.error_code
        transaction.groups.add(group)
        topics = ((TOPIC, ((0, transaction.number, -1, None),)),)
        api_version = 5 if self._version == 2 else 4
        request = m.TxnOffsetCommitRequest(self._name, group, *producer, -1, "", None, topics, api_version)
        response = yield from self._insist(request, place, GIVES_UP)
        if response is None:
            return None
        code = error_of(response)
        if code == ErrorCode.NONE:
            transaction.acknowledged.add(group)
        return code

    def _end(self, transaction: Transaction, commits: bool) -> Insist:
        api_version = 5 if self._version == 2 else 4
        assert transaction is self._present
        request = t.EndTxnRequest(self._name, self._producer_id, self._epoch, commits, api_version)
        response = yield from self._insist(request, self._coordinator)
        if response.error_code == ErrorCode.NONE:
            self._producer.answered += 1
            if commits:
                self._producer.model.committed_for(transaction)
            if self._version == 2:
                self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        return response.error_code


class Idempotent:
    """Producers without a transactional id: each asks once for a producer id of its own."""

    def __init__(self, places: Places, model: Model) -> None:
        self.name = "idempotent producers"
        self.answered = 0
        self._places = places
        self._model = model
        self._next()

    def _next(self) -> None:
        self._places.world.at(self._places.world.random.randint(1, 2 * IDEMPOTENT_MS), self._ask)

    def _ask(self) -> None:
        owner = object()

        def seen(answer: t.InitProducerIdResponse) -> None:
            if answer.error_code == ErrorCode.NONE:
                self._model.issues(owner, owner, (answer.producer_id, answer.producer_epoch))

        def then(answer: t.InitProducerIdResponse | None) -> None:
            self.answered += answer is not None and answer.error_code == ErrorCode.NONE
            self._next()

        partition = self._places.world.random.choice(self._places.transactions)
        self._places.call(t.InitProducerIdRequest(None, 1), partition, seen, then)
