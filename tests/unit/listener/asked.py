"""What stands in the place of an Exchange in tests of handlers."""

from __future__ import annotations

from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.refusals import refusal


class Asked:
    """`got`: its answers, refusals among them."""

    def __init__(self, request: Any) -> None:
        self.request = request
        self.got: list[Any] = []

    def answer(self, response: Any) -> None:
        self.got.append(response)

    def refuse(self, code: ErrorCode) -> None:
        self.got.append(refusal(self.request, code))
