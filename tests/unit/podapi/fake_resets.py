"""Offsets of groups, and resets of them, as a pod that leads their partitions would have them."""

from __future__ import annotations

from muster_coordinator.podapi.resets import PlanAnswer, PlannedOffset, PlanRequest, ResetAnswer, ResetRequest


class FakeResets:
    """Every group has one partition, t-0; resets are shifts. `obstacle`: what stands in the way of all groups.
    `writes`: how often an offset was written. `deaf`: whether answers to what was carried out get lost."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}
        self.obstacle = ""
        self.writes = 0
        self.deaf = False
        self.planned: list[PlanRequest] = []

    def plan(self, request: PlanRequest) -> PlanAnswer:
        self.planned.append(request)
        if self.obstacle:
            return PlanAnswer((self.obstacle,))
        now = self.offsets[request.group]
        return PlanAnswer((), (PlannedOffset("t", 0, now, now + request.number),))

    def reset(self, request: ResetRequest) -> ResetAnswer | None:
        """None: the answer gets lost."""
        if self.obstacle:
            return ResetAnswer("Refused", self.obstacle)
        (asked,), now = request.offsets, self.offsets[request.group]
        if now not in (asked.before, asked.after):
            return ResetAnswer("Changed")
        if now != asked.after:
            self.offsets[request.group] = asked.after
            self.writes += 1
        return None if self.deaf else ResetAnswer("Written")
