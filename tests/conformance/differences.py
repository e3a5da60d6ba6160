"""The differences that are meant, each with its reason: `differences.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

FILE = Path(__file__).with_name("differences.toml")


@dataclass
class Explanation:
    """Covers a difference when script, place and both values match; `*` stands for any text in each of them. It
    belongs to the named `releases` of Kafka, or to all."""

    scripts: str
    where: str
    kafka: str
    muster: str
    reason: str
    releases: Sequence[str] = ()
    uses: int = field(default=0, compare=False)

    def covers(self, script: str, where: str, kafka: str, muster: str) -> bool:
        return (
            fnmatchcase(script, self.scripts)
            and _matches(where, self.where)
            and _matches(kafka, self.kafka)
            and _matches(muster, self.muster)
        )


def _matches(text: str, pattern: str) -> bool:
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def load(release: str) -> list[Explanation]:
    """Those of this release of Kafka. Raises ValueError for an entry without a reason."""
    with FILE.open("rb") as file:
        entries = [Explanation(**entry) for entry in tomllib.load(file)["difference"]]
    for entry in entries:
        if not entry.reason.strip():
            raise ValueError(f"{FILE.name}: the difference at {entry.where!r} has no reason")
    return [entry for entry in entries if not entry.releases or release in entry.releases]
