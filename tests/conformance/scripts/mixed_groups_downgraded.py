"""Members of both protocols in one group, where the policy is `downgrade`."""

from __future__ import annotations

from tests.conformance.registry import script
from tests.conformance.scripts import mixed_groups
from tests.conformance.session import Session

SETTINGS = mixed_groups.SETTINGS | {"group.consumer.migration.policy": "downgrade"}


@script()
async def downgrade_alone_and_a_classic_group(s: Session) -> None:
    await mixed_groups.into_a_classic_group(s)


@script()
async def downgrade_alone_and_a_consumer_group(s: Session) -> None:
    await mixed_groups.into_a_consumer_group(s)
