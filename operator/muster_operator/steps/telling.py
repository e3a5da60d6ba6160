"""The code that all steps share which tell how far objects are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from muster_operator.steps.context import Context
from muster_operator.store.port import ConflictError, NotFoundError

T = TypeVar("T")


async def write_each(context: Context, step: str, todo: Sequence[T], write: Callable[[T], Awaitable[None]]) -> bool:
    """Write the status of each object, if there are any and `step` may write now; returns whether it may."""
    if not todo or not context.has_time_to_tell(step):
        return False
    for each in todo:
        try:
            await write(each)
        except (ConflictError, NotFoundError):
            continue  # changed or deleted meanwhile: what is there now is planned for anew
    return True
