"""Moves of groups, as a pod that leads their partitions would tell of them: each is over at once."""

from __future__ import annotations

from muster_coordinator.podapi.moves import MoveAnswer, MoveRequest, MovesAnswer, MoveStatus, RoutedGroup


class FakeMoves:
    """`obstacles`: what stands in the way of all groups. `doubts`: why moves are given up."""

    def __init__(self) -> None:
        self.obstacles: tuple[str, ...] = ()
        self.doubts = ""
        self.asked: list[str] = []
        self.routes: dict[str, RoutedGroup] = {}
        self._ended: list[MoveStatus] = []

    def move(self, request: MoveRequest) -> MoveAnswer:
        self.asked.append(request.group)
        if self.obstacles:
            return MoveAnswer(self.obstacles, None)
        if not self.doubts:
            epoch = self.routes[request.group].epoch + 1 if request.group in self.routes else 1
            self.routes[request.group] = RoutedGroup(request.group, 0, epoch, at_muster=not request.back)
        step = "given up" if self.doubts else "moved"
        self._ended.append(MoveStatus(request.group, 0, step, self.doubts, 230, back=request.back))
        return MoveAnswer((), MoveStatus(request.group, 0, "waiting", "", 0, back=request.back))

    def told(self) -> MovesAnswer:
        return MovesAnswer(tuple(self._ended), tuple(self.routes.values()))
