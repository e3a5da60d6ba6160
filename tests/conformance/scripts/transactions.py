"""Offsets of transactions as a group coordinator alone has them: TxnOffsetCommit and the markers that end them.

Kafka verifies with its transaction coordinator that a partition is part of the transaction; the broker here runs with
`transaction.partition.verification.enable=false`, and Muster without transactions of its own, so that both servers get
the very same requests, markers included. `producer` scripts drive Kafka's transaction coordinator as a producer does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.conformance.members import Member, commit, describe, fetch, form, stable, topic
from tests.conformance.producers import producer_id
from tests.conformance.registry import script
from tests.conformance.servers import PARTITIONS, VERIFICATION
from tests.conformance.session import Session

from muster_coordinator.records.partitioner import partition_for

SETTINGS = {VERIFICATION: "false"}


async def _txn_commit(s: Session, version: int = 3, offset: int = 5, number: int = 0, **changes: Any) -> None:
    fields: dict[str, Any] = {
        "transactional_id": s.name,
        "group_id": s.group,
        "producer_id": producer_id(s, number),
        "producer_epoch": 0,
        "generation_id": -1,
        "topics": [topic("t", (0, offset))],
    }
    await s.ask("txn_offset_commit", version, **(fields | changes))


async def _end(s: Session, *, committed: bool, number: int = 0, version: int = 1, **changes: Any) -> None:
    partitions = [partition_for(s.group, PARTITIONS)]
    marker = {
        "producer_id": producer_id(s, number),
        "producer_epoch": 0,
        "transaction_result": committed,
        "topics": [{"name": "__consumer_offsets", "partition_indexes": partitions}],
        "coordinator_epoch": 0,
    }
    # The answer names producer ids; they are the same on both sides.
    await s.ask("write_txn_markers", version, markers=[marker | changes])


@script(versions=range(5))
async def committed_transaction(s: Session, version: int) -> None:
    await _txn_commit(s, version)
    await fetch(s, 9, {"t": [0]})
    await fetch(s, 9, {"t": [0, 1]}, require_stable=True)
    await _end(s, committed=True)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await describe(s)


@script(versions=range(5))
async def aborted_transaction(s: Session, version: int) -> None:
    await _txn_commit(s, version)
    await _end(s, committed=False)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await fetch(s)
    await describe(s)


@script(versions=(7, 8, 9, 10))
async def open_transaction_is_not_stable(s: Session, version: int) -> None:
    await commit(s, topics=[topic("u", (0, 3))])
    await _txn_commit(s)
    await fetch(s, version, {"t": [0, 1], "u": [0]}, require_stable=True)
    await fetch(s, version, require_stable=True)
    await fetch(s, version)


@script()
async def open_transaction_over_a_committed_offset(s: Session) -> None:
    await commit(s, offset=3)
    await _txn_commit(s, offset=9)
    await fetch(s)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await fetch(s, 9, require_stable=True)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def later_plain_commit_wins_over_the_transaction(s: Session) -> None:
    await _txn_commit(s, offset=5)
    await commit(s, offset=9)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def later_transactional_commit_wins_over_the_plain_one(s: Session) -> None:
    await commit(s, offset=9)
    await _txn_commit(s, offset=5)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def last_commit_of_a_transaction_counts(s: Session) -> None:
    await _txn_commit(s, offset=5)
    await _txn_commit(s, offset=7)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def two_producers_with_one_group(s: Session) -> None:
    await _txn_commit(s, offset=5, number=0)
    await _txn_commit(s, offset=7, number=1)
    await _end(s, committed=True, number=1)
    await fetch(s)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _end(s, committed=True, number=0)
    await fetch(s)


@script()
async def two_producers_of_which_one_aborts(s: Session) -> None:
    await _txn_commit(s, offset=5, number=0)
    await _txn_commit(s, offset=7, number=1)
    await _end(s, committed=False, number=1)
    await _end(s, committed=True, number=0)
    await fetch(s)


@script()
async def one_producer_with_several_partitions(s: Session) -> None:
    await _txn_commit(s, topics=[topic("t", (0, 1), (5, 2)), topic("u", (1, 3, None))])
    await _end(s, committed=True)
    await fetch(s)


@script()
async def marker_without_a_transaction(s: Session) -> None:
    await commit(s)
    await _end(s, committed=True)
    await _end(s, committed=False, number=1)
    await fetch(s)


@script()
async def second_marker_changes_nothing(s: Session) -> None:
    await _txn_commit(s)
    await _end(s, committed=True)
    await _end(s, committed=False)
    await fetch(s)


@script()
async def next_transaction_of_the_sameproducer_id(s: Session) -> None:
    await _txn_commit(s, offset=5)
    await _end(s, committed=True)
    await _txn_commit(s, offset=6)
    await _end(s, committed=False)
    await _txn_commit(s, offset=7)
    await fetch(s)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def commit_of_an_old_producer_epoch(s: Session) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _txn_commit(s, producer_epoch=4, offset=9)
    await _end(s, committed=True, producer_epoch=5)
    await _txn_commit(s, producer_epoch=4, offset=9)
    await fetch(s)


@script()
async def marker_of_an_old_producer_epoch(s: Session) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _end(s, committed=True, producer_epoch=4)
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script()
async def marker_of_a_newer_producer_epoch_aborts(s: Session) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _end(s, committed=False, producer_epoch=6)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _txn_commit(s, producer_epoch=5)
    await _txn_commit(s, producer_epoch=6, offset=8)
    await _end(s, committed=True, producer_epoch=6)
    await fetch(s)


# -- transactions with an epoch each (KIP-890, KIP-1228) --------------------------------------------------------------

OWN_EPOCH: dict[str, Any] = {"version": 2, "transaction_version": 2}


@script(cases={"commits": True, "aborts": False})
async def marker_with_the_next_epoch(s: Session, committed: bool) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _end(s, committed=committed, producer_epoch=6, **OWN_EPOCH)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _txn_commit(s, producer_epoch=5, offset=7)
    await _txn_commit(s, producer_epoch=6, offset=8)
    await _end(s, committed=committed, producer_epoch=7, **OWN_EPOCH)
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script(cases={"equal": 5, "lower": 4, "much_higher": 9})
async def marker_for_a_transaction_of_epoch_5_with_an_epoch(s: Session, epoch: int) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _end(s, committed=True, producer_epoch=epoch, **OWN_EPOCH)
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script()
async def marker_with_the_next_epoch_is_repeated(s: Session) -> None:
    await _txn_commit(s, producer_epoch=5)
    for _ in range(3):
        await _end(s, committed=True, producer_epoch=6, **OWN_EPOCH)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _end(s, committed=True, producer_epoch=5, **OWN_EPOCH)


@script()
async def late_marker_of_the_transaction_before(s: Session) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _end(s, committed=True, producer_epoch=6, **OWN_EPOCH)
    await _txn_commit(s, producer_epoch=6, offset=9)
    await _end(s, committed=False, producer_epoch=6, **OWN_EPOCH)
    await _end(s, committed=True, producer_epoch=6, **OWN_EPOCH)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _end(s, committed=True, producer_epoch=7, **OWN_EPOCH)
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script()
async def marker_of_an_unknown_producer_with_its_own_epoch(s: Session) -> None:
    await commit(s)
    await _end(s, committed=True, producer_epoch=0, **OWN_EPOCH)
    await _end(s, committed=True, producer_epoch=0, **OWN_EPOCH)
    await fetch(s)


@script(cases={"0": 0, "1": 1, "3": 3, "unknown": -1})
async def marker_of_version_2_for_transaction_version(s: Session, transaction_version: int) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _end(s, committed=True, producer_epoch=5, version=2, transaction_version=transaction_version)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _end(s, committed=True, producer_epoch=5, version=2, transaction_version=transaction_version)


@script()
async def marker_with_the_next_epoch_of_an_old_coordinator(s: Session) -> None:
    await _txn_commit(s, producer_epoch=5)
    await _end(s, committed=True, producer_epoch=6, coordinator_epoch=5, **OWN_EPOCH)
    await _txn_commit(s, producer_epoch=6, offset=8)
    await _end(s, committed=True, producer_epoch=7, coordinator_epoch=4, **OWN_EPOCH)
    await fetch(s, 9, {"t": [0]})


@script()
async def markers_of_both_kinds_in_one_request(s: Session) -> None:
    await _txn_commit(s, producer_epoch=5, number=0, offset=1)
    await _txn_commit(s, producer_epoch=5, number=1, topics=[topic("u", (0, 2))])
    places = [{"name": "__consumer_offsets", "partition_indexes": [partition_for(s.group, PARTITIONS)]}]
    markers = [
        {"producer_id": producer_id(s, n), "producer_epoch": 5 + n, "transaction_result": True, "topics": places}
        | {"transaction_version": 1 + n}
        for n in range(2)
    ]
    await s.ask("write_txn_markers", 2, markers=markers)
    await fetch(s, 9, {"t": [0], "u": [0]}, require_stable=True)


@script()
async def marker_of_an_old_coordinator_epoch(s: Session) -> None:
    await _txn_commit(s)
    await _end(s, committed=True, coordinator_epoch=5)
    await _txn_commit(s, offset=8)
    await _end(s, committed=True, coordinator_epoch=4)
    await fetch(s, 9, {"t": [0]})


@script(versions=range(5))
async def transaction_with_the_empty_group_id(s: Session, version: int) -> None:
    await _txn_commit(s, version, group_id="")


@script(versions=range(5))
async def transaction_with_unknown_partitions(s: Session, version: int) -> None:
    await _txn_commit(s, version, topics=[topic("t", (0, 5), (99, 1)), topic("missing", (0, 1))])
    await _txn_commit(s, version, topics=[topic("missing", (0, 1))])


@script(versions=(0, 3, 4))
async def transaction_with_metadata_that_is_too_large(s: Session, version: int) -> None:
    await _txn_commit(s, version, topics=[topic("t", (0, 5, "x" * 4097), (1, 6))])
    await _end(s, committed=True)
    await fetch(s)


@script(versions=range(3, 5))
async def transaction_of_a_member(s: Session, version: int) -> None:
    a = Member(s, "a")
    await stable(a)
    await _txn_commit(s, version, generation_id=1, member_id=a.member_id)
    await _txn_commit(s, version, generation_id=0, member_id=a.member_id)
    await _txn_commit(s, version, generation_id=9, member_id=a.member_id)
    await _txn_commit(s, version, generation_id=1, member_id="nobody")
    await _txn_commit(s, version, generation_id=-1, member_id="")
    await _txn_commit(s, version, generation_id=-1, member_id=a.member_id)
    await _txn_commit(s, version, generation_id=1, member_id=a.member_id, group_instance_id="i")
    await _end(s, committed=True)
    await fetch(s)


@script()
async def transaction_of_a_fenced_static_member(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await _txn_commit(s, generation_id=1, member_id="nobody", group_instance_id="i")
    await _txn_commit(s, generation_id=1, member_id=a.member_id, group_instance_id="i")


@script(versions=range(3, 5))
async def transaction_with_a_generation_and_an_unknown_group(s: Session, version: int) -> None:
    await _txn_commit(s, version, generation_id=1, member_id="x")
    await describe(s)


@script()
async def transaction_while_the_leader_is_to_assign(s: Session) -> None:
    a = Member(s, "a")
    await form(a)
    await _txn_commit(s, generation_id=1, member_id=a.member_id)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def transaction_while_members_join(s: Session) -> None:
    a, b = Member(s, "a"), Member(s, "b")
    await stable(a)
    await b.ask_for_id()
    await b.park_join()
    await _txn_commit(s, generation_id=1, member_id=a.member_id)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def group_with_an_open_transaction_is_deleted(s: Session) -> None:
    await _txn_commit(s)
    await s.ask("delete_groups", 2, groups_names=[s.group])
    await _end(s, committed=True)
    await fetch(s)
    await describe(s)


@script()
async def offset_of_an_open_transaction_is_deleted(s: Session) -> None:
    await commit(s, offset=3)
    await _txn_commit(s, offset=9)
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    await s.ask("offset_delete", 0, group_id=s.group, topics=topics)
    await fetch(s)
    await _end(s, committed=True)
    await fetch(s)


@script()
async def markers_of_other_topics(s: Session) -> None:
    topics = [{"name": "missing", "partition_indexes": [0, 1]}]
    await _end(s, committed=True, topics=topics)


@script()
async def marker_of_an_offsets_partition_that_does_not_exist(s: Session) -> None:
    topics = [{"name": "__consumer_offsets", "partition_indexes": [PARTITIONS + 5]}]
    await _end(s, committed=True, topics=topics)


@script()
async def no_markers(s: Session) -> None:
    await s.ask("write_txn_markers", 1, markers=[])


@script()
async def group_list_of_a_group_that_only_a_transaction_made(s: Session) -> None:
    await _txn_commit(s)
    await describe(s)
    await s.ask("list_groups", 5)


# -- as a producer does it --------------------------------------------------------------------------------------------


async def _begin(s: Session, *, add_offsets: bool = True) -> tuple[int, int]:
    """(producer id, epoch), with the group added to the transaction where there is a transaction coordinator;
    TxnOffsetCommit v5 adds it itself (KIP-890)."""
    if not s.is_kafka:
        return producer_id(s), 0
    while True:
        answer = await s.quietly("init_producer_id", 4, transactional_id=s.name, transaction_timeout=60_000)
        if int(answer.error_code) == 0:
            break
        await asyncio.sleep(0.05)
    producer = int(answer.producer_id), int(answer.producer_epoch)
    if not add_offsets:
        return producer
    await s.quietly(
        "add_offsets_to_txn",
        3,
        transactional_id=s.name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=s.group,
    )
    return producer


async def _finish(s: Session, producer: tuple[int, int], *, committed: bool, version: int = 3) -> None:
    if not s.is_kafka:
        marker = {
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "transaction_result": committed,
            "topics": [
                {"name": "__consumer_offsets", "partition_indexes": [partition_for(s.group, PARTITIONS)]},
            ],
        }
        await s.quietly("write_txn_markers", 1, markers=[marker])
        return
    await s.quietly(
        "end_txn",
        version,
        transactional_id=s.name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )
    async with asyncio.timeout(15):
        while True:
            topics = [{"name": "t", "partition_indexes": [0]}]
            answer = await s.quietly("offset_fetch", 7, group_id=s.group, topics=topics, require_stable=True)
            if int(answer.topics[0].partitions[0].error_code) == 0:
                return
            await asyncio.sleep(0.05)


@script(cases={"commits": True, "aborts": False})
async def producer(s: Session, committed: bool) -> None:
    producer_id, epoch = await _begin(s)
    await _txn_commit(s, producer_id=producer_id, producer_epoch=epoch)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _finish(s, (producer_id, epoch), committed=committed)
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script(cases={"commits": True, "aborts": False})
async def producer_of_transactions_v2(s: Session, committed: bool) -> None:
    producer_id, epoch = await _begin(s, add_offsets=False)
    await _txn_commit(s, 5, producer_id=producer_id, producer_epoch=epoch)
    await fetch(s, 9, {"t": [0]}, require_stable=True)
    await _finish(s, (producer_id, epoch), committed=committed, version=5)
    await fetch(s, 9, {"t": [0]}, require_stable=True)


@script()
async def consume_transform_produce(s: Session) -> None:
    a = Member(s, "a")
    await stable(a)
    producer_id, epoch = await _begin(s)
    await _txn_commit(s, producer_id=producer_id, producer_epoch=epoch, generation_id=1, member_id=a.member_id)
    await _finish(s, (producer_id, epoch), committed=True)
    await a.commit(topics=[topic("t", (1, 7))])
    await fetch(s)
    await describe(s)
