"""Answers that are kept for a moment, so that many open pages ask clusters no more often than one does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from muster_cli.errors import CliError

KEPT_MAX = 500
"""Answers to different questions that are kept at most, such as of single groups."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Told(Generic[_T]):
    """An answer. `value`: None if there never was one. `trouble`: why it is not of now, "" if it is."""

    value: _T | None
    trouble: str = ""


class Kept:
    """Keeps each answer for `age_s` seconds. An error keeps the last answer, which then says why it is old."""

    def __init__(self, age_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._age_s = age_s
        self._clock = clock
        self._answers: dict[str, tuple[float, Told[Any]]] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def get(self, question: str, ask: Callable[[], Awaitable[_T]]) -> Told[_T]:
        """The answer, of now or of the last `age_s` seconds. Where many ask the same at once, one of them does."""
        async with self._asking.setdefault(question, asyncio.Lock()):
            known = self._answers.get(question)
            if known is not None and self._clock() - known[0] < self._age_s:
                return known[1]
            last = known[1].value if known is not None else None
            try:
                told = Told(await ask())
            except CliError as error:
                told = Told(last, error.message)
            self._answers.pop(question, None)
            self._answers[question] = (self._clock(), told)
            self._forget()
            return told

    def _forget(self) -> None:
        """The answers that were given first; a question that is being asked keeps its lock."""
        while len(self._answers) > KEPT_MAX:
            oldest = next(iter(self._answers))
            del self._answers[oldest]
            if not self._asking[oldest].locked():
                del self._asking[oldest]
