"""A planted fault: some function of the production code is another one while a seed runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Fault"]


@dataclass(frozen=True)
class Fault:
    """`owner.name` is `planted` instead; `also`: so are these. It is caught within `seeds` seeds of
    `make simulate`."""

    seeds: int
    owner: Any
    name: str
    planted: Any
    also: tuple[tuple[Any, str, Any], ...] = ()

    @contextmanager
    def plant(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, planted in ((self.owner, self.name, self.planted), *self.also):
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, planted)
            yield
