"""Answers of many entries, made a slice at a time: others have their turn between two slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from muster_coordinator.requests.slices import SLICE_ENTRIES

_A = TypeVar("_A")
_B = TypeVar("_B")


def make_each(asked: Sequence[_A], make: Callable[[_A], _B], then: Callable[[tuple[_B, ...]], None]) -> None:
    """Hand `then` what `make` makes of each; at once if a slice has room for all."""
    if len(asked) <= SLICE_ENTRIES:
        then(tuple([make(each) for each in asked]))
        return
    loop, made = asyncio.get_running_loop(), list[_B]()

    def make_slice() -> None:
        start = len(made)
        made.extend([make(each) for each in asked[start : start + SLICE_ENTRIES]])
        if len(made) == len(asked):
            then(tuple(made))
        else:
            loop.call_soon(make_slice)

    make_slice()
