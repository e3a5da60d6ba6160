"""Planted faults, which default seeds must catch, each within a number of seeds that it states: `FAULTS`, by name.

`HARMLESS`: what is not in there, and why it cannot bite. docs/planted-faults.md shows both (`table`).
"""

from __future__ import annotations

from tests.simulation.faults.consumers import CONSUMER_FAULTS
from tests.simulation.faults.host import HOST_FAULTS
from tests.simulation.faults.mixed import MIXED_FAULTS
from tests.simulation.faults.operators import OPERATOR_FAULTS
from tests.simulation.faults.protocol import RULE_FAULTS
from tests.simulation.faults.transactions import TRANSACTION_FAULTS
from tests.simulation.moves import consumer_faults
from tests.simulation.moves import faults as moves

__all__ = [
    "CONSUMER_FAULTS",
    "FAULTS",
    "HARMLESS",
    "HOST_FAULTS",
    "MIXED_FAULTS",
    "OPERATOR_FAULTS",
    "RULE_FAULTS",
    "TRANSACTION_FAULTS",
    "table",
]

FAULTS = RULE_FAULTS | HOST_FAULTS | OPERATOR_FAULTS | TRANSACTION_FAULTS | CONSUMER_FAULTS | MIXED_FAULTS

HARMLESS = {
    "promised leader ignored": "the promise file refuses a second leader of an epoch by itself",
    "reads of before a re-election are not held": "the seals of the higher epoch came after them, and the leader is the"
    " same replica",
    "a shard that is elected again goes on": "the core refuses what is appended between two epochs, and the shard fails"
    " with all that waits",
    "a standby is kept through a cut, or every standby fits": "each of the two catches what the other one misses; both"
    " together are planted as one fault",
    "loss keeps the checkpoints": "a checkpoint holds what is committed, and is loaded only where the log has its epoch"
    " at its offset",
    "timers stay when a fence ends the live state": "a timer of the same name takes the place of each of them before it"
    " matters, and on groups and members that are gone they do nothing",
    "round of a rebuilding replica confirms reads": "no seal of it counts, so a majority of the others has not sealed a"
    " higher epoch either",
    "range is fetched without its previous epoch": "the source is sealed, and its log does not change meanwhile",
    "leader-change record before what was fetched is durable": "one journal takes them in this order",
    "sets of the last epoch only are read at the start": "the first record of each epoch names the sets",
}


def table() -> str:
    """In Markdown, with those in moves of a group (`tests/simulation/moves`)."""
    in_moves = {_words(plant): seeds for plant, (_, seeds) in moves.FAULTS.items()}
    of_consumers = {_words(plant): seeds for plant, (_, seeds) in consumer_faults.FAULTS.items()}
    return "\n".join(
        [
            *_rows({name: fault.seeds for name, fault in FAULTS.items()}, HARMLESS),
            "## Moves of a group",
            "",
            "`tests/simulation/moves` has seeds of its own, of one group that moves between Kafka and Muster.",
            "",
            *_rows(in_moves, moves.HARMLESS),
            "The same for what a group of the consumer protocol takes along, between two whole group coordinators.",
            "",
            *_rows(of_consumers, consumer_faults.HARMLESS),
        ]
    )


def _words(plant: str) -> str:
    return plant.replace("_", " ").replace("kafka", "Kafka")


def _rows(planted: dict[str, int], harmless: dict[str, str]) -> list[str]:
    return [
        "| planted fault | caught within so many seeds |",
        "|---|---|",
        *(f"| {name} | {seeds} |" for name, seeds in planted.items()),
        "",
        "| not planted | because |",
        "|---|---|",
        *(f"| {name} | {why} |" for name, why in harmless.items()),
        "",
    ]
