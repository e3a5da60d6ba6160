"""Static members (KIP-345, KIP-814): restarts, fencing, and what they change for the others."""

from __future__ import annotations

from tests.conformance.members import Member, describe, form, stable, subscription, sync_all
from tests.conformance.registry import script
from tests.conformance.session import Session


def _restarted(member: Member, version: int | None = None) -> Member:
    """The same instance after a restart: it does not know its member id."""
    return Member(
        member.session,
        member.name,
        version=member.version if version is None else version,
        instance=member.instance,
        protocols=member.protocols,
    )


@script(versions=range(5, 10))
async def static_member_joins_without_a_second_request(s: Session, version: int) -> None:
    a = Member(s, "a", instance="i", version=version)
    await form(a)
    await describe(s)


@script(versions=range(5, 10))
async def static_follower_restarts_without_a_rebalance(s: Session, version: int) -> None:
    a, b = (Member(s, name, instance=f"i-{name}", version=version) for name in "ab")
    await stable(a, b)
    again = _restarted(b)
    await again.join()
    await describe(s)
    await a.heartbeat()
    await again.heartbeat()
    await again.sync(assignments=[])
    await b.heartbeat()
    await b.sync(assignments=[])
    await b.commit()


@script(versions=range(5, 10))
async def static_leader_restarts_without_a_rebalance(s: Session, version: int) -> None:
    a, b = (Member(s, name, instance=f"i-{name}", version=version) for name in "ab")
    await stable(a, b)
    again = _restarted(a)
    await again.join()
    await describe(s)
    await again.sync(assignments=[])
    await b.heartbeat()


@script()
async def only_static_member_restarts(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    for _ in range(3):
        a = _restarted(a)
        await a.join()
        await a.sync()
    await describe(s)


@script()
async def restarted_static_member_gets_another_member_id_each_time(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    ids = {a.member_id}
    for _ in range(3):
        a = _restarted(a)
        await a.join()
        ids.add(a.member_id)
    s.note("different ids", len(ids))


@script()
async def static_member_restarts_with_other_metadata_of_the_same_protocol(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    again = _restarted(b)
    again.protocols = (("range", subscription("u")),)
    await again.join()
    await describe(s)
    await a.heartbeat()


@script()
async def static_member_restarts_with_other_topics(s: Session) -> None:
    a = Member(s, "a", instance="i", topics=("t",))
    await stable(a)
    again = _restarted(a)
    again.protocols = (("range", subscription("u")),)
    await again.join()
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in "tu"]
    await s.ask("offset_delete", 0, group_id=s.group, topics=topics)


@script()
async def static_member_restarts_with_other_protocols(s: Session) -> None:
    both = (("x", b""), ("y", b""))
    a, b = (Member(s, name, instance=f"i-{name}", protocol_type="my", protocols=both) for name in "ab")
    await stable(a, b)
    again = _restarted(b)
    again.protocols = (("y", b""),)
    again.protocol_type = "my"
    joining = await again.park_join()
    await describe(s)
    await a.heartbeat()
    await a.join()
    await again.joined_by(joining)


@script()
async def static_member_restarts_with_protocols_that_nobody_else_has(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    again = _restarted(b)
    again.protocols = (("sticky", b""),)
    await again.join()
    await describe(s)


@script()
async def static_member_restarts_with_other_timeouts(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    again = _restarted(a)
    again.session_ms, again.rebalance_ms = 20_000, 40_000
    await again.join()
    await describe(s)


@script()
async def unchanged_static_follower_rejoins_with_its_id(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    await b.join()
    await describe(s)


@script()
async def static_leader_rejoins_with_its_id_and_starts_a_rebalance(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    joining = await a.park_join()
    await b.heartbeat()
    await b.join()
    await a.joined_by(joining)


@script()
async def static_member_with_a_foreign_member_id_is_fenced(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    await a.join(member_id=b.member_id)
    await a.join(member_id="nobody")
    await a.sync(member_id=b.member_id)
    await a.sync(member_id="nobody")
    await a.heartbeat(member_id=b.member_id)
    await a.heartbeat(member_id="nobody")
    await a.commit(member_id=b.member_id)
    await a.commit(member_id="nobody")
    await a.commit(version=7, member_id="nobody")


@script()
async def unknown_instance_with_a_known_member_id(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await a.join(group_instance_id="other")
    await a.sync(group_instance_id="other")
    await a.heartbeat(group_instance_id="other")
    await a.commit(group_instance_id="other")


@script()
async def static_member_id_without_its_instance(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await a.heartbeat(group_instance_id=None)
    await a.commit(group_instance_id=None)
    await a.sync(group_instance_id=None)
    await describe(s)


@script()
async def fencing_comes_before_the_generation(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await a.heartbeat(member_id="nobody", generation_id=99)
    await a.sync(member_id="nobody", generation_id=99)
    await a.commit(member_id="nobody", generation_id_or_member_epoch=99)


@script()
async def duplicate_of_a_joining_static_member_fences_it(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await stable(a, b)
    joining = await b.park_join(protocols=[{"name": "range", "metadata": subscription("u")}])
    duplicate = _restarted(b)
    again = await duplicate.park_join()
    await joining.answer()
    await a.join()
    await duplicate.joined_by(again)
    await describe(s)


@script()
async def duplicate_of_a_syncing_static_member_fences_it(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await form(a, b)
    waiting = await b.park_sync()
    duplicate = _restarted(b)
    joining = await duplicate.park_join()
    await waiting.answer()
    await describe(s)
    await a.join()
    await duplicate.joined_by(joining)
    await sync_all(a, duplicate)


@script()
async def static_member_restarts_while_the_leader_is_to_assign(s: Session) -> None:
    a, b = (Member(s, name, instance=f"i-{name}") for name in "ab")
    await form(a, b)
    duplicate = _restarted(b)
    joining = await duplicate.park_join()
    await describe(s)
    await a.join()
    await duplicate.joined_by(joining)


@script()
async def static_member_restarts_during_the_initial_delay(s: Session) -> None:
    a = Member(s, "a", instance="i")
    joining = await a.park_join()
    again = _restarted(a)
    second = await again.park_join()
    await joining.answer()
    await again.joined_by(second)
    await describe(s)


@script()
async def static_members_of_an_empty_group_are_new(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    await a.leave()
    await s.until_state("Empty")
    await a.join()
    await stable(_restarted(a))
    await describe(s)


@script()
async def static_member_with_an_unknown_member_id_and_a_new_instance(s: Session) -> None:
    await stable(Member(s, "a", instance="i"))
    b = Member(s, "b", instance="new")
    b.member_id = "unknown"
    await b.join()
    await describe(s)


@script()
async def static_and_dynamic_members_mix(s: Session) -> None:
    a, b = Member(s, "a", instance="i"), Member(s, "b")
    await stable(a, b)
    await describe(s)
    again = _restarted(a)
    await again.join()
    await b.heartbeat()
    await describe(s)


@script()
async def empty_instance_id(s: Session) -> None:
    a = Member(s, "a", instance="")
    await form(a)
    await describe(s)


@script()
async def static_member_moves_to_another_client_id(s: Session) -> None:
    a = Member(s, "a", instance="i")
    await stable(a)
    again = _restarted(a)
    again.name = "other"
    await again.join()
    await describe(s)
