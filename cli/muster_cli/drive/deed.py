"""The change that a command makes, and how it is seen that it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from muster_cli.errors import CliError
from muster_cli.oncall.seen import Seen
from muster_operator.api.models import Resource


class Refused(CliError):
    """It would be unsafe, or would never be done. The message says why, and what to do instead."""


@dataclass(frozen=True)
class Change:
    """A merge patch of the spec of one object."""

    of: Resource
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class Progress:
    """The progress of a command. `text`: what it waits for."""

    done: int
    total: int
    text: str = ""

    @property
    def is_done(self) -> bool:
        return self.done >= self.total


@dataclass(frozen=True)
class Deed:
    """`told`: one sentence of what happens. `changes`: none if it is declared already. `progress` looks at the cluster
    as it is later. `undo`: the command that takes it back, "" if nothing does. `question`: what has to be said yes to
    before, "" if nothing.
    """

    told: str
    changes: tuple[Change, ...]
    progress: Callable[[Seen], Progress]
    undo: str = ""
    question: str = ""
