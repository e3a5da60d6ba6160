"""The part of a pod's status that tells if it can follow the upstream."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class MirrorHealth:
    """`problem`: why nothing can be followed; "" if nothing is wrong. `bypassed`: which groups of Muster's have members
    at the upstream itself; "" if none has. The words stay those of its beginning as long as it lasts."""

    problem: str = ""
    bypassed: str = ""
