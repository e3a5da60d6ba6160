"""Answers made comparable: what a server chooses freely gets the same name on both sides, and a tree becomes lines."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.conformance.session import CLOSED, NO_ANSWER, Server, Step

_RANDOM = re.compile(
    r"(-([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[A-Za-z0-9_-]{22})|^[A-Za-z0-9_-]{22})$"
)

# Lists in an order that a server is free to choose (hash maps in Kafka), by API.
_UNORDERED = {
    "offset_fetch": ("topics", "groups"),
    "list_groups": ("groups",),
    "delete_groups": ("results",),
    "metadata": ("topics",),
    "list_offsets": ("topics",),
    "fetch": ("responses",),
    "describe_groups": ("groups",),
    "consumer_group_heartbeat": ("topic_partitions",),
    "consumer_group_describe": ("topic_partitions", "subscribed_topic_names"),
    "write_txn_markers": ("markers",),
    "list_transactions": ("transaction_states", "unknown_state_filters"),
    "add_partitions_to_txn": ("results_by_transaction", "topic_results", "results_by_topic_v3_and_below"),
    "describe_transactions": ("topics",),
    "describe_configs": ("configs",),
}


# Their answers have producer ids that the server chose.
_PRODUCERS = ("init_producer_id", "end_txn", "describe_transactions", "list_transactions")


def _prefix(member_id: str) -> str:
    return _RANDOM.sub("", member_id)


class Normaliser:
    """Names of one session's random texts, numbered in the order in which they appear in its answers."""

    def __init__(self, server: Server, script: str) -> None:
        self._server = server
        self._script = script
        self._numbers: dict[str, int] = {}
        self._producers: dict[int, int] = {}

    def lines(self, steps: Sequence[Step]) -> dict[str, str]:
        """One line for each leaf of each answer: "step: path" -> value."""
        return {
            f"{step.label}: {path}" if path else step.label: value
            for step in steps
            for path, value in self._leaves("", step.outcome, step.label.split()[1])
        }

    def _leaves(self, path: str, value: Any, api: str) -> Iterator[tuple[str, str]]:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                item = getattr(value, field.name)
                yield from self._leaves(f"{path}.{field.name}" if path else field.name, item, api)
        elif isinstance(value, tuple):
            items = self._sorted(path.rsplit(".", 1)[-1], value, api)
            if not items:
                yield path, "()"
            for index, item in enumerate(items):
                yield from self._leaves(f"{path}[{index}]", item, api)
        elif path.endswith("producer_id") and api in _PRODUCERS and value >= 0:
            yield path, f"<producer {self._producers.setdefault(value, len(self._producers) + 1)}>"
        elif path.endswith("transaction_start_time"):
            yield path, "<a time>"
        else:
            yield path, self._text(value)

    def _sorted(self, name: str, items: tuple[Any, ...], api: str) -> list[Any]:
        if api == "list_transactions" and name == "transaction_states":
            items = tuple(t for t in items if t.transactional_id.startswith(self._script))
        if api == "list_groups" and name == "groups":
            return sorted((g for g in items if g.group_id.startswith(self._script)), key=lambda g: str(g.group_id))
        if api == "list_config_resources" and name == "config_resources":
            of_others = {r for r in items if r.resource_type == 32 and not r.resource_name.startswith(self._script)}
            return sorted(set(items) - of_others, key=lambda r: (int(r.resource_type), str(r.resource_name)))
        if name == "members" and items and dataclasses.is_dataclass(items[0]):
            return sorted(items, key=self._member_key)
        if name in _UNORDERED.get(api, ()):
            return sorted(items, key=self._sorting_text)
        if api in ("metadata", "offset_fetch", "write_txn_markers") and name == "partitions":
            return sorted(items, key=lambda item: int(item.partition_index))
        if name.startswith("results_by_partition"):
            return sorted(items, key=lambda item: int(item.partition_index))
        if api == "describe_transactions" and name == "partitions":
            return sorted(items)
        return list(items)

    def _sorting_text(self, item: Any) -> str:
        text = _first_text(item)
        return self._server.names.get(text, text)

    def _member_key(self, member: Any) -> tuple[str, str, int]:
        member_id = str(member.member_id)
        known = self._numbers.get(member_id, len(self._numbers) + 1)
        return _prefix(member_id), str(getattr(member, "group_instance_id", "")), known

    def _text(self, value: Any) -> str:
        if isinstance(value, enum.Enum):
            return f"{value.name.upper()} ({value.value})"
        if isinstance(value, str):
            named = self._server.names.get(value)
            if named is not None:
                return named
            if match := _RANDOM.search(value):
                number = self._numbers.setdefault(
                    value, 1 + sum(_prefix(known) == _prefix(value) for known in self._numbers)
                )
                return repr(f"{value[: match.start()]}-<{number}>")
            return repr(value)
        named = self._server.names.get(str(value))
        if named is not None and not isinstance(value, bool):
            return named
        return repr(value)


def _first_text(item: Any) -> str:
    for name in ("name", "topic", "group_id", "topic_id", "transactional_id"):
        text = getattr(item, name, None)
        if text is not None:
            return str(text)
    return str(item)


def compare(kafka: dict[str, str], muster: dict[str, str]) -> list[tuple[str, str, str]]:
    """(where, Kafka's value, Muster's value) of every line that differs; "absent" for a line that one side lacks.

    An answer that the other server did not give at all is one line: its error codes."""
    kafka, muster = _without_details_of(muster, kafka), _without_details_of(kafka, muster)
    where = list(dict.fromkeys([*kafka, *muster]))
    pairs = [(line, kafka.get(line, "absent"), muster.get(line, "absent")) for line in where]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _without_details_of(other: dict[str, str], lines: dict[str, str]) -> dict[str, str]:
    """`lines` with one line for each step that got no answer from the other server."""
    silent = {where for where, value in other.items() if value in (repr(NO_ANSWER), repr(CLOSED))}
    short: dict[str, str] = {}
    for where, value in lines.items():
        step, _, path = where.partition(": ")
        if not path or step not in silent:
            short[where] = value
        elif path.endswith("error_code"):
            short[step] = f"{short[step]}, {value}" if step in short else value
    return short
