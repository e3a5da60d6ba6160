"""The requests of one client that wait for their answers, in their order."""

from __future__ import annotations

from collections.abc import Callable

from muster_gateway.requests import RequestHead


class Slot:
    """One request. `edit` takes an answer (without its length) that must be read, and sees to it that the slot is
    answered; None: a broker's answer passes. `answer`: with its length, when it is there and waits for its turn.
    `held`: bytes of request or answer that are kept."""

    __slots__ = ("answer", "edit", "head", "held")

    def __init__(self, head: RequestHead, edit: Callable[[Slot, bytes], None] | None = None, held: int = 0) -> None:
        self.head = head
        self.edit = edit
        self.answer: bytes | None = None
        self.held = held

    def __repr__(self) -> str:
        return f"<Slot {self.head.rule.name} {self.head.correlation_id} answered={self.answer is not None}>"


def framed(frame: bytes) -> bytes:
    """The frame with its length."""
    return len(frame).to_bytes(4, "big") + frame
