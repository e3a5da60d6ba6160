"""How transactions begin: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn."""

from __future__ import annotations

from typing import Any

from tests.conformance.producers import NOBODY, OFFSETS, OFFSETS_PARTITIONS, TIMEOUT_MS, Producer
from tests.conformance.registry import script
from tests.conformance.session import Session

AREA = "transactions"
INIT = range(6)
ADD_OFFSETS = range(5)
UNKNOWN_PRODUCER = 1 << 62

# -- InitProducerId ---------------------------------------------------------------------------------------------------


@script(versions=INIT)
async def first_producer_of_an_id(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    await p.list()
    await p.describe()


@script(versions=INIT)
async def next_producers_of_an_id(s: Session, version: int) -> None:
    p = Producer(s)
    for timeout in (TIMEOUT_MS, 1000, 900_000):
        await p.init(version, transaction_timeout=timeout)
    await p.add_offsets()
    await p.describe()


@script(versions=INIT)
async def producer_without_a_transactional_id(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version, transactional_id=None)
    await p.init(version, transactional_id=None)
    await p.init(version, transactional_id=None, transaction_timeout=-1)
    await p.list()


@script(versions=INIT)
async def producer_with_an_empty_id(s: Session, version: int) -> None:
    await Producer(s, "").init(version)


@script(
    cases={"0": 0, "minus_1": -1, "1": 1, "15_minutes": 900_000, "more_than_15_minutes": 900_001, "24_days": 2**31 - 1}
)
async def producer_with_a_time_out_of(s: Session, timeout_ms: int) -> None:
    for version in (0, 4, 5):
        await Producer(s).init(version, transaction_timeout=timeout_ms)


@script(versions=range(3, 6))
async def producer_continues_with_its_epoch(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    await p.init(version, p.identity)
    await p.init(version, p.identity)
    await p.list()


@script(versions=range(3, 6))
async def producer_repeats_a_lost_bump(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    first = p.identity
    await p.init(version, first)
    await p.init(version, first)
    await p.init(version, p.identity)
    await p.init(version, first)


@script(versions=range(3, 6))
async def producer_continues_after_another_one_came(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    first = p.identity
    await p.init(version)
    await p.init(version, first)
    await p.init(version, p.identity)


@script(versions=range(3, 6))
async def producer_continues_with_an_epoch_ahead(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    await p.init(version, (p.identity[0], p.identity[1] + 5))


@script(versions=range(3, 6))
async def producer_continues_with_a_foreign_producer_id(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    await p.init(version, (UNKNOWN_PRODUCER, 0))
    await p.list()


@script(versions=range(3, 6))
async def producer_continues_with_an_id_that_nobody_knows(s: Session, version: int) -> None:
    await Producer(s).init(version, (UNKNOWN_PRODUCER, 7))


@script(versions=range(3, 6))
async def half_an_identity(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version, (UNKNOWN_PRODUCER, -1))
    await p.init(version, (-1, 3))
    await p.init(version, (-1, 3), transactional_id=None)
    await p.list()


@script(versions=INIT)
async def next_producer_aborts_an_open_transaction(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    await p.add_offsets()
    await p.init(version)
    await p.rest()
    await p.list()
    await p.init(version)
    await p.end()
    await p.list()


@script(versions=range(3, 6))
async def producer_continues_over_its_open_transaction(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init(version)
    await p.add_group()
    first = p.identity
    await p.init(version, first)
    await p.rest()
    await p.init(version, first)
    await p.list()


@script()
async def producer_of_an_older_epoch_cannot_go_on(s: Session) -> None:
    p = Producer(s)
    await p.init()
    old = p.identity
    await p.init()
    for version in (1, 2, 4):
        await p.add_offsets(version, **p.as_fields(old))
        await p.end(version=version, **p.as_fields(old))
    await p.add_group(**p.as_fields(old))
    await p.end(version=5, **p.as_fields(old))
    await p.list()


# -- AddOffsetsToTxn --------------------------------------------------------------------------------------------------


@script(versions=ADD_OFFSETS)
async def group_is_added(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_offsets(version)
    await p.describe()
    await p.add_offsets(version)
    await p.add_offsets(version, group_id=f"{s.group}-another")
    await p.describe()


@script(versions=ADD_OFFSETS)
async def group_is_added_by_nobody(s: Session, version: int) -> None:
    p = Producer(s)
    await p.add_offsets(version, producer_id=UNKNOWN_PRODUCER, producer_epoch=0)
    await p.init()
    await p.add_offsets(version, **p.as_fields((UNKNOWN_PRODUCER, 0)))
    await p.add_offsets(version, **p.as_fields((p.identity[0], p.identity[1] + 1)))
    await p.add_offsets(version, **p.as_fields((p.identity[0], -1)))
    await p.add_offsets(version, **p.as_fields(NOBODY))
    await p.list()


@script(versions=ADD_OFFSETS)
async def group_is_added_with_an_empty_id(s: Session, version: int) -> None:
    await Producer(s, "").add_offsets(version)


@script(versions=ADD_OFFSETS)
async def group_with_the_empty_id_is_added(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_offsets(version, group_id="")
    await p.describe()


# -- AddPartitionsToTxn, as clients send it ---------------------------------------------------------------------------


@script(versions=range(4))
async def data_partitions_are_added(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add(("t", [0, 1]), ("u", [2]), version=version)
    await p.list()


@script(versions=range(4))
async def partition_that_does_not_exist_is_added(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add(("missing", [0]), version=version)
    await p.list()


@script(versions=range(4))
async def client_adds_a_partition_of_offsets(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add((OFFSETS, [1]), version=version)
    await p.list()


@script(versions=range(4))
async def nothing_is_added(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add(version=version)
    await p.list()


# -- AddPartitionsToTxn, as brokers send it ---------------------------------------------------------------------------


@script(versions=range(4, 6))
async def broker_adds_partitions_of_offsets(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add((OFFSETS, [1, 3]), version=version)
    await p.describe()
    await p.add((OFFSETS, [3]), version=version)
    await p.add((OFFSETS, [4, 4, 0]), version=version)
    await p.describe()


@script(versions=range(4, 6))
async def broker_adds_a_partition_that_does_not_exist(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add((OFFSETS, [1, OFFSETS_PARTITIONS + 4]), ("missing", [0]), version=version)
    await p.list()


@script(versions=range(4, 6))
async def broker_adds_for_nobody(s: Session, version: int) -> None:
    p = Producer(s)
    await p.add_group(version, producer_id=UNKNOWN_PRODUCER, producer_epoch=0)
    await p.init()
    for identity in ((UNKNOWN_PRODUCER, 0), (p.identity[0], p.identity[1] + 1), (p.identity[0], -1), NOBODY):
        await p.add_group(version, **p.as_fields(identity))
    await p.list()


@script(versions=range(4, 6))
async def broker_adds_with_an_empty_id(s: Session, version: int) -> None:
    await Producer(s, "").add_group(version)


@script(versions=range(4, 6))
async def broker_adds_nothing(s: Session, version: int) -> None:
    p = Producer(s)
    await s.ask("add_partitions_to_txn", version, transactions=[])
    await p.init()
    await p.add(version=version)
    await p.list()


@script(versions=range(4, 6))
async def broker_adds_for_several_producers(s: Session, version: int) -> None:
    producers = [Producer(s, f"{s.name}-{number}") for number in range(4)]
    for each in producers[:3]:
        await each.init()
    additions: list[Any] = []
    for number, each in enumerate(producers):
        changes = each.as_fields((UNKNOWN_PRODUCER, 0)) if number == 1 else {}
        additions += each.addition((OFFSETS, [number]), version=version, **changes)["transactions"]
    await s.ask("add_partitions_to_txn", version, transactions=additions)
    await producers[0].list()


@script(versions=range(4, 6))
async def broker_verifies(s: Session, version: int) -> None:
    p = Producer(s)
    await p.add_group(version, verify_only=True, producer_id=UNKNOWN_PRODUCER, producer_epoch=0)
    await p.init()
    await p.add((OFFSETS, [1]), version=version, verify_only=True)
    await p.add((OFFSETS, [1]), version=version)
    await p.add((OFFSETS, [1, 2]), version=version, verify_only=True)
    await p.add((OFFSETS, [1]), version=version, verify_only=True, **p.as_fields((p.identity[0], 9)))
    await p.add((OFFSETS, [1]), version=version, verify_only=True, **p.as_fields((UNKNOWN_PRODUCER, 0)))
    await p.end()
    await p.add((OFFSETS, [1]), version=version, verify_only=True)


@script()
async def partitions_are_added_by_both_ways(s: Session) -> None:
    p = Producer(s)
    await p.init()
    await p.add_offsets()
    await p.add((OFFSETS, [0, 1, 2, 3, 4]), version=5)
    await p.add_offsets(4)
    await p.describe()
    await p.end(version=5)
    await p.list()
