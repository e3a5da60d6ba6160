"""Facts about a cluster's restore: the claims of its pods' volumes, and the Jobs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from muster_operator.api.models import RestorePlan
from muster_operator.api.restore_result import RestoreResult

OWN, OTHERS = "own", "others"
READS = -1
"""Stands for a pod in the Job that only chooses and reads the backup."""


class Made(StrEnum):
    """The progress noted on a claim that was made for a restore, beside its plan."""

    NOT_YET = ""
    VOLUME = "Volume"
    """Its volume is made. Others may not be."""
    ALL = "All"
    """All volumes are made: the restore is over."""


@dataclass(frozen=True, slots=True)
class RestoreClaim:
    """The claim of the volume of pod number `pod`. `plan`: what it was made for; None: it was not made by a restore.
    `going`: it is being deleted, or will be because a StatefulSet or pod that owns it is gone."""

    name: str
    pod: int
    uid: str
    plan: RestorePlan | None = None
    made: Made = Made.NOT_YET
    going: bool = False


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """`pod`: whose volume it makes (READS: none). `claim`: uid of that. `finished`: "" while it runs, or as long as its
    result could not be read. `trouble`: why it failed, or why its pod does not run."""

    name: str
    pod: int
    claim: str = ""
    finished: str = ""
    result: RestoreResult | None = None
    trouble: str = ""

    @property
    def error(self) -> str:
        """The reason why it has failed; "" if it has not, or not yet."""
        if not self.finished or (self.result is not None and self.result.backup and not self.result.error):
            return ""
        told = self.result.error if self.result is not None else ""
        return told or self.trouble or "the Job has left no result: its pod is gone"


@dataclass(frozen=True, slots=True)
class RestoreFacts:
    """`claims`: all that have the name of a volume of a pod, by its number. `stateful_set`: this cluster's (OWN), or
    that of an earlier cluster of its name (OTHERS); "": there is none. `refusal`: why the API server takes no claim or
    Job ("": it does)."""

    claims: tuple[RestoreClaim, ...] = ()
    jobs: tuple[RestoreJob, ...] = ()
    stateful_set: str = ""
    refusal: str = ""
