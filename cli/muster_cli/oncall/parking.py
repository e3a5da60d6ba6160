"""Resets a live group of an instance of this machine: its pod parks the members, plans, and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from muster_cli.errors import CliError, CliUsageError
from muster_cli.local.data_dir import DataDir
from muster_cli.local.live_pods import live_pods
from muster_cli.oncall.groups import Place
from muster_cli.oncall.reset import Change, GroupReset, Outcome
from muster_coordinator.podapi.client import PodApiError, PodRefusedError
from muster_coordinator.podapi.resets import (
    PLACES_MAX,
    PlanAnswer,
    PlanRequest,
    ResetAnswer,
    ResetRequest,
    WantedOffset,
)
from muster_coordinator.reset_aims import Aim


class Pod(Protocol):
    """`podapi.client.PodClient`, as far as it is needed."""

    async def plan_reset(self, request: PlanRequest) -> PlanAnswer: ...

    async def reset(self, request: ResetRequest) -> ResetAnswer: ...


def park_request(
    group: str, aim: Aim, scope: Sequence[tuple[str, tuple[int, ...]]], planned: Mapping[Place, int] | None
) -> PlanRequest:
    """`scope`: topics with their partitions, none for all. `planned`: of a file. Raises CliUsageError."""
    if planned is not None:
        if len(planned) > PLACES_MAX:
            raise CliUsageError(f"--park-members: the file has more than {PLACES_MAX} partitions of {group}")
        offsets = tuple([WantedOffset(*place, offset) for place, offset in sorted(planned.items())])
        return PlanRequest(group, "offsets", park=True, offsets=offsets)
    if any(partitions for _, partitions in scope):
        raise CliUsageError("--park-members: name whole topics, or partitions in --from-file")
    kind = aim.kind
    if kind == "current" or kind == "file":
        raise CliUsageError("--park-members: --to-current leaves everything as it is")
    return PlanRequest(group, kind, aim.number, tuple([topic for topic, _ in scope]), park=True)


def reset_parked(data: DataDir, request: PlanRequest, state: str) -> GroupReset:
    """`state`: of the group, before. Raises CliError."""

    async def run() -> GroupReset:
        async with live_pods(data) as pods:
            return await reset_by(pods, request, state)

    return asyncio.run(run())


async def reset_by(pods: Sequence[Pod], request: PlanRequest, state: str) -> GroupReset:
    """The pod that leads the group's partition does it. Raises CliError."""
    said: list[str] = []
    for pod in pods:
        try:
            plan = await pod.plan_reset(request)
            if plan.obstacles:
                return GroupReset(request.group, state, (), "refused", "; ".join(plan.obstacles))
            answer = await pod.reset(ResetRequest(request.group, plan.offsets, request.park))
        except PodRefusedError as error:
            if error.status != 409:
                raise CliError(str(error)) from None
            said.append(error.message)
        except PodApiError as error:
            said.append(str(error))
        else:
            changes = [
                Change(each.topic, each.partition, None if each.before < 0 else each.before, each.after)
                for each in plan.offsets
            ]
            outcome: Outcome = "written" if answer.outcome == "Written" else "refused"
            return GroupReset(request.group, state, tuple(changes), outcome, answer.why)
    raise CliError(f"{request.group}: no pod leads its partition now: {'; '.join(said)}")
