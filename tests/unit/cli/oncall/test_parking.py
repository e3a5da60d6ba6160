"""`muster groups reset --park-members`: what pods are asked for, and what becomes of a live group."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from muster_cli.errors import CliError, CliUsageError
from muster_cli.main import cli
from muster_cli.oncall.parking import park_request, reset_by
from muster_cli.oncall.reset import Change, GroupReset
from muster_coordinator.podapi.client import PodRefusedError
from muster_coordinator.podapi.resets import (
    PlanAnswer,
    PlannedOffset,
    PlanRequest,
    ResetAnswer,
    ResetRequest,
    WantedOffset,
)
from muster_coordinator.reset_aims import Aim

OFFSETS = (PlannedOffset("t", 0, 9, 5), PlannedOffset("t", 1, -1, 0))
ASKED = PlanRequest("g", "earliest", park=True)


class Pod:
    """`plan`, `answer`: what it says; a status: it refuses with that."""

    def __init__(self, plan: PlanAnswer | int, answer: ResetAnswer | int = 500) -> None:
        self.plan, self.answer = plan, answer
        self.asked: list[PlanRequest | ResetRequest] = []

    async def plan_reset(self, request: PlanRequest) -> PlanAnswer:
        self.asked.append(request)
        if isinstance(self.plan, int):
            raise PodRefusedError(self.plan, "NotLeader", "another one leads")
        return self.plan

    async def reset(self, request: ResetRequest) -> ResetAnswer:
        self.asked.append(request)
        if isinstance(self.answer, int):
            raise PodRefusedError(self.answer, "NotLeader", "another one leads")
        return self.answer


async def test_leader_plans_and_writes_with_the_members_parked() -> None:
    leader = Pod(PlanAnswer((), OFFSETS), ResetAnswer("Written"))
    found = await reset_by([Pod(409), leader], ASKED, "STABLE")
    assert leader.asked == [ASKED, ResetRequest("g", OFFSETS, park=True)]
    assert found == GroupReset("g", "STABLE", (Change("t", 0, 9, 5), Change("t", 1, None, 0)), "written")


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (Pod(PlanAnswer(("its members assign partitions by stream", "and more"))), "by stream; and more"),
        (Pod(PlanAnswer((), OFFSETS), ResetAnswer("Changed", "t-0 has another offset since")), "another offset"),
        (Pod(PlanAnswer((), OFFSETS), ResetAnswer("Refused", "it rebalances")), "it rebalances"),
    ],
)
async def test_why_it_stays_is_told(pod: Pod, why: str) -> None:
    found = await reset_by([pod], ASKED, "STABLE")
    assert found.outcome == "refused"
    assert why in found.why


async def test_nobody_that_leads_and_a_pod_that_knows_no_such_call_are_errors() -> None:
    with pytest.raises(CliError, match="g: no pod leads its partition now: another one leads; another one leads"):
        await reset_by([Pod(409), Pod(PlanAnswer((), OFFSETS), 409)], ASKED, "STABLE")
    with pytest.raises(CliError, match="another one leads"):
        await reset_by([Pod(400)], ASKED, "STABLE")


def test_words_become_what_a_pod_is_asked_for() -> None:
    topics = [("t", ()), ("u", ())]
    assert park_request("g", Aim("shiftBy", -5), topics, None) == PlanRequest("g", "shiftBy", -5, ("t", "u"), True)
    assert park_request("g", Aim("file"), [], {("t", 1): 7, ("t", 0): 8}) == PlanRequest(
        "g", "offsets", park=True, offsets=(WantedOffset("t", 0, 8), WantedOffset("t", 1, 7))
    )
    with pytest.raises(CliUsageError, match="whole topics"):
        park_request("g", Aim("earliest"), [("t", (0,))], None)
    with pytest.raises(CliUsageError, match="--to-current"):
        park_request("g", Aim("current"), [], None)
    with pytest.raises(CliUsageError, match="more than 1000"):
        park_request("g", Aim("file"), [], {("t", number): 0 for number in range(1_001)})


def test_wrong_usage_is_told(tmp_path: Path) -> None:
    asked = ["groups", "reset", "g", "--all-topics", "--to-earliest", "--park-members"]
    for more, why in ((["--local"], "needs --execute"), (["--execute"], "members: Park")):
        done = CliRunner().invoke(cli, [*asked, *more])
        assert done.exit_code == 2
        assert why in done.output.replace("\n", " ")
