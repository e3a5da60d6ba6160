"""Answers of many entries, made a slice at a time: others have their turn between two slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from muster_coordinator.requests.slices import SLICE_ENTRIES

_A = TypeVar("_A")
_B = TypeVar("_B")


def make_each(asked: Sequence[_A], make: Callable[[_A], _B], then: Callable[[tuple[_B, ...]], None]) -> None:
    """Hand `then` what `make` makes of each; at once if a slice has room for all."""
    if len(asked) <= SLICE_ENTRIES:
        then(tuple([make(each) for each in asked]))
    else:
        _Making(asked, make, then).make_slice()


class _Making(Generic[_A, _B]):
    """No closure: one that names itself is a cycle, and keeps all entries until the collector finds it."""

    __slots__ = ("_asked", "_made", "_make", "_then")

    def __init__(self, asked: Sequence[_A], make: Callable[[_A], _B], then: Callable[[tuple[_B, ...]], None]) -> None:
        self._asked, self._make, self._then = asked, make, then
        self._made: list[_B] = []

    def make_slice(self) -> None:
        start, make = len(self._made), self._make
        self._made += [make(each) for each in self._asked[start : start + SLICE_ENTRIES]]
        if len(self._made) == len(self._asked):
            self._then(tuple(self._made))
        else:
            asyncio.get_running_loop().call_soon(self.make_slice)
