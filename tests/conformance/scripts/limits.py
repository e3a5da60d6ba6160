"""group.max.size, and requests that are large."""

from __future__ import annotations

from tests.conformance.members import Member, commit, describe, fetch, form, stable, subscription, topic
from tests.conformance.producers import producer_id
from tests.conformance.registry import script
from tests.conformance.servers import MAX_SIZE
from tests.conformance.session import Session


def _full(s: Session, *, static: bool = False) -> list[Member]:
    return [Member(s, f"m{i}", instance=f"i{i}" if static else None) for i in range(MAX_SIZE)]


@script(versions=range(10))
async def one_member_too_many(s: Session, version: int) -> None:
    await stable(*_full(s))
    await Member(s, "extra", version=version).join()
    await describe(s)


@script(versions=range(5, 10))
async def one_static_member_too_many(s: Session, version: int) -> None:
    await stable(*_full(s, static=True))
    await Member(s, "extra", version=version, instance="extra").join()
    await describe(s)


@script()
async def member_of_a_full_group_may_rejoin(s: Session) -> None:
    members = _full(s)
    await stable(*members)
    await members[1].join()
    await members[1].heartbeat()


@script()
async def static_member_of_a_full_group_that_restarts(s: Session) -> None:
    members = _full(s, static=True)
    await stable(*members)
    again = Member(s, "m1", instance="i1")
    await again.join()
    await describe(s)


@script()
async def members_of_a_full_group_rejoin_in_a_rebalance(s: Session) -> None:
    members = _full(s)
    await stable(*members)
    parked = [(m, await m.park_join()) for m in members[:-1]]
    await members[-1].join()
    for member, join in parked:
        await member.joined_by(join)
    await describe(s)


@script()
async def member_too_many_while_members_rejoin(s: Session) -> None:
    members = _full(s)
    await stable(*members)
    parked = [(m, await m.park_join()) for m in members[:-1]]
    extra = Member(s, "extra")
    await extra.join()
    extra_join = await extra.park_join()
    late = await members[-1].park_join()
    s.note("extra was answered", extra_join.is_answered)
    s.note("late was answered", late.is_answered)
    await describe(s)
    s.note("members joined", sum(join.is_answered for _, join in parked))


@script()
async def member_too_many_in_the_first_rebalance(s: Session) -> None:
    members = [Member(s, f"m{i}") for i in range(MAX_SIZE + 1)]
    for member in members:
        await member.ask_for_id()
    parked = [(member, await member.park_join()) for member in members]
    for member, join in parked:
        await member.joined_by(join)
    await describe(s)


@script()
async def member_too_many_while_the_leader_is_to_assign(s: Session) -> None:
    await form(*_full(s))
    await Member(s, "extra").join()
    await describe(s)


@script()
async def place_is_free_after_a_member_left(s: Session) -> None:
    members = _full(s)
    await stable(*members)
    await members[-1].leave()
    extra = Member(s, "extra")
    await extra.join()
    await describe(s)


@script()
async def commit_of_a_thousand_partitions_of_which_ten_exist(s: Session) -> None:
    await commit(s, topics=[topic("t", *((i, i) for i in range(1000)))])
    await fetch(s)


@script()
async def commit_that_no_batch_can_hold(s: Session) -> None:
    await commit(s, topics=[topic("t", *((i % 10, i, "x" * 4096) for i in range(300)), (99, 1))])
    await fetch(s)


@script()
async def transactional_commit_that_no_batch_can_hold(s: Session) -> None:
    await s.ask(
        "txn_offset_commit",
        3,
        transactional_id="x",
        group_id=s.group,
        producer_id=producer_id(s),
        generation_id=-1,
        topics=[topic("t", *((i % 10, i, "x" * 4096) for i in range(300)))],
    )
    await fetch(s, 7, {"t": [0]}, require_stable=True)


@script()
async def large_subscription_and_assignment(s: Session) -> None:
    a = Member(s, "a", protocols=(("range", subscription("t", user_data=b"x" * 200_000)),))
    await form(a)
    await a.sync(assignments=[{"member_id": a.member_id, "assignment": b"y" * 200_000}])
    await describe(s)


@script()
async def assignment_that_no_record_can_hold(s: Session) -> None:
    a = Member(s, "a", rebalance_ms=2000)
    await form(a)
    await a.sync(assignments=[{"member_id": a.member_id, "assignment": b"y" * 1_100_000}])
    await describe(s)


@script()
async def group_id_of_the_largest_length(s: Session) -> None:
    s.group = (s.name + "x" * 32_767)[:30_000]
    await commit(s)
    await fetch(s)
    await describe(s)


@script()
async def many_protocols(s: Session) -> None:
    a = Member(s, "a", protocols=tuple((f"p{i}", subscription("t")) for i in range(300)))
    await stable(a)
    await describe(s)
