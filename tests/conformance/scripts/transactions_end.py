"""How transactions end: EndTxn, time-outs, and what groups have of it."""

from __future__ import annotations

from tests.conformance.members import commit, describe, fetch
from tests.conformance.producers import NOBODY, Producer
from tests.conformance.registry import script
from tests.conformance.session import Session

AREA = "transactions"
END = range(6)
UNKNOWN_PRODUCER = 1 << 62


@script(versions=END)
async def transaction_is_committed(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_group()
    await p.end(version=version)
    await p.list()
    await p.describe()
    await p.add_group()
    await p.describe()


@script(versions=END)
async def transaction_is_aborted(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_offsets()
    await p.end(False, version)
    await p.list()
    await p.add_offsets()
    await p.end(True, version)
    await p.list()


@script(versions=END)
async def nothing_is_committed(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.end(True, version)
    await p.list()


@script(versions=END)
async def nothing_is_aborted(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.end(False, version)
    await p.list()
    await p.end(False, version)
    await p.list()


@script(versions=END)
async def end_is_repeated(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_group()
    first = p.identity
    await p.end(True, version)
    await p.end(True, version, **p.as_fields(first))
    await p.end(True, version, **p.as_fields(first))
    await p.end(False, version, **p.as_fields(first))
    await p.list()


@script(versions=END)
async def abort_is_repeated(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_group()
    first = p.identity
    await p.end(False, version)
    await p.end(False, version, **p.as_fields(first))
    await p.end(True, version, **p.as_fields(first))
    await p.list()


@script(versions=END)
async def next_end_without_a_transaction(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_group()
    await p.end(True, version)
    await p.end(True, version)
    await p.end(False, version)
    await p.list()


@script(versions=END)
async def abort_after_an_abort(s: Session, version: int) -> None:
    p = Producer(s)
    await p.init()
    await p.add_group()
    await p.end(False, version)
    await p.end(False, version)
    await p.end(True, version)
    await p.list()


@script(versions=END)
async def end_by_nobody(s: Session, version: int) -> None:
    p = Producer(s)
    await p.end(True, version, producer_id=UNKNOWN_PRODUCER, producer_epoch=0)
    await p.init()
    await p.add_group()
    ahead, behind = (p.identity[0], p.identity[1] + 1), (p.identity[0], p.identity[1] - 1)
    for identity in ((UNKNOWN_PRODUCER, 0), ahead, behind, NOBODY):
        await p.end(True, version, **p.as_fields(identity))
    await p.list()


@script(versions=END)
async def end_with_an_empty_id(s: Session, version: int) -> None:
    await s.ask("end_txn", version, transactional_id="", producer_id=1, producer_epoch=0, committed=True)


@script()
async def versions_take_turns(s: Session) -> None:
    p = Producer(s)
    await p.init()
    for version in (3, 5, 4, 5, 5, 0):
        await p.add_group()
        await p.end(version % 2 == 1, version)
        await p.list()


@script()
async def epoch_before_the_last_one(s: Session) -> None:
    p = Producer(s)
    await p.init()
    first = p.identity
    for _ in range(3):
        await p.add_group()
        await p.end(True, 5)
    await p.end(True, 5, **p.as_fields(first))
    await p.add_group(**p.as_fields(first))
    await p.add_group(**p.as_fields(p.older()))
    await p.init(4, first)
    await p.init(4, p.identity)
    await p.list()


@script()
async def producer_of_version_1_after_one_of_version_2(s: Session) -> None:
    p = Producer(s)
    await p.init()
    first = p.identity
    await p.add_group()
    await p.end(True, 5)
    await p.add_offsets(**p.as_fields(first))
    await p.end(True, 4, **p.as_fields(first))
    await p.add_offsets()
    await p.end(True, 4)
    await p.list()


# -- what groups have of it -------------------------------------------------------------------------------------------


@script(cases={"commits_v1": (True, 1), "aborts_v1": (False, 1), "commits_v2": (True, 2), "aborts_v2": (False, 2)})
async def coordinated_transaction(s: Session, case: tuple[bool, int]) -> None:
    committed, transaction_version = case
    p = Producer(s)
    await p.init()
    for offset in (5, 6):
        if transaction_version == 1:
            await p.add_offsets()
        await p.commit_offset(3 if transaction_version == 1 else 5, offset)
        await fetch(s, 9, {"t": [0]}, require_stable=True)
        await p.end(committed, 3 if transaction_version == 1 else 5)
        await fetch(s, 9, {"t": [0]}, require_stable=True)
    await describe(s)


@script()
async def coordinated_transaction_of_a_fenced_producer(s: Session) -> None:
    old, new = Producer(s), Producer(s)
    await old.init()
    await old.add_offsets()
    await old.commit_offset()
    await new.init()
    await new.rest()
    await new.init()
    await old.commit_offset(offset=7)
    await old.end()
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await new.add_offsets()
    await new.commit_offset(offset=9)
    await new.end()
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script()
async def commit_in_a_transaction_between_plain_ones(s: Session) -> None:
    p = Producer(s)
    await commit(s, offset=1)
    await p.init()
    await p.commit_offset(5, 2)
    await commit(s, offset=3)
    await p.end(True, 5)
    await fetch(s)
    await p.commit_offset(5, 4)
    await p.end(True, 5)
    await fetch(s)


@script()
async def commit_of_version_5_without_a_producer(s: Session) -> None:
    p = Producer(s)
    await p.commit_offset(5, producer_id=UNKNOWN_PRODUCER, producer_epoch=0)
    await p.init()
    await p.commit_offset(5, **p.as_fields((UNKNOWN_PRODUCER, 0)))
    await p.commit_offset(5, **p.as_fields((p.identity[0], p.identity[1] + 1)))
    await p.commit_offset(5, transactional_id="")
    await fetch(s)
    await p.list()


@script()
async def commits_of_several_groups_in_one_transaction(s: Session) -> None:
    p = Producer(s)
    await p.init()
    for number in range(4):
        await p.commit_offset(5, number, group_id=f"{s.group}-{number}")
    await p.end(True, 5)
    for number in range(4):
        await fetch(s, 7, {"t": [0]}, group_id=f"{s.group}-{number}")
    await p.list()


@script()
async def transaction_that_times_out(s: Session) -> None:
    p = Producer(s)
    await p.init(transaction_timeout=300)
    await p.add_offsets()
    await p.commit_offset()
    await p.until(lambda state: state == "CompleteAbort")
    await p.end()
    await p.add_offsets()
    await p.init(4, p.identity)
    await p.list()
    await p.init()
    await p.add_offsets()
    await p.end()
    await p.list()
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script()
async def transaction_of_version_2_that_times_out(s: Session) -> None:
    p = Producer(s)
    await p.init(transaction_timeout=300)
    await p.commit_offset(5)
    await p.until(lambda state: state == "CompleteAbort")
    await p.end(version=5)
    await p.commit_offset(5)
    await p.init(5, p.identity)
    await p.list()
    await fetch(s, 9, {"t": [0]}, require_stable=True)
