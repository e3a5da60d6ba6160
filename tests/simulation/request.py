"""A client's request on its way to whoever may lead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Request"]


@dataclass(eq=False)
class Request:
    """`answer` gets the response, or None: no leader is here, or the connection was closed.

    `cancelled`: the client closed its connection and would not see an answer.
    """

    message: Any
    answer: Callable[[Any], None]
    cancelled: bool = False
