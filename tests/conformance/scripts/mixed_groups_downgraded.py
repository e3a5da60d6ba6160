"""Members of both protocols in one group, where the policy is `downgrade`."""

from __future__ import annotations

from tests.conformance.members import describe
from tests.conformance.registry import script
from tests.conformance.scripts import mixed_groups
from tests.conformance.scripts.consumer_groups import A, beat, enter, show
from tests.conformance.scripts.mixed_groups import again, classic, settled
from tests.conformance.session import Session

SETTINGS = mixed_groups.SETTINGS | {"group.consumer.migration.policy": "downgrade"}


@script()
async def downgrade_alone_and_a_classic_group(s: Session) -> None:
    member = classic(s)
    await settled(s, member, 0, 1, 2)
    await enter(s, A, "u")
    await show(s)
    await member.heartbeat()
    await again(member)
    await beat(s, A, -1)
    await show(s)
    await describe(s, 5)
    await member.heartbeat()


@script()
async def downgrade_alone_and_a_consumer_group(s: Session) -> None:
    await enter(s, A, "u", instance_id="i")
    member = classic(s)
    await member.ask_for_id()
    await again(member)
    await show(s)
    static = classic(s, "back", instance="i")
    await static.join()
    await show(s)
    await describe(s, 5)
    await static.leave()
    await describe(s, 5)
