"""The values of `--topic` (NAME:PARTITIONS) and `--config` (NAME=VALUE)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from muster_cli.errors import CliUsageError
from muster_coordinator import settings_by_name
from muster_coordinator.security.scram import HASHES

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MAX_TOPIC_PARTITIONS = 100_000
ALL_GROUPS = "*"


def parse_topics(values: Iterable[str]) -> dict[str, int]:
    """Topic name -> number of partitions. Raises CliUsageError.

    Names follow Kafka's rules. Source: org.apache.kafka.common.internals.Topic.
    """
    topics: dict[str, int] = {}
    for value in values:
        name, separator, count = value.rpartition(":")
        if not separator or not count.isascii() or not count.isdigit():
            raise CliUsageError(f"--topic {value!r}: write NAME:PARTITIONS, for instance orders:6")
        if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
            raise CliUsageError(f"--topic {value!r}: {name!r} is not a topic name that Kafka takes")
        if not 1 <= int(count) <= MAX_TOPIC_PARTITIONS:
            raise CliUsageError(f"--topic {value!r}: partitions must be 1 to {MAX_TOPIC_PARTITIONS}")
        if name in topics:
            raise CliUsageError(f"--topic {name!r} is given twice")
        topics[name] = int(count)
    return topics


def sasl_settings(users_file: Path | None) -> list[str]:
    """The settings that `--sasl` stands for."""
    if users_file is None:
        return []
    return [f"sasl.enabled.mechanisms={','.join(HASHES)}", f"muster.users.file={users_file}"]


def mirror_settings(upstream: str | None, groups: str | None) -> list[str]:
    """The settings that `--upstream` stands for at the pods: they mirror the groups left to Kafka."""
    if upstream is None:
        return []
    served = ALL_GROUPS if groups is None else groups
    return [f"muster.upstream.bootstrap={upstream}", f"muster.upstream.served.groups={served}"]


def parse_settings(values: Iterable[str]) -> dict[str, str]:
    """Coordinator settings by Kafka's names, as texts, checked as each pod would check them.

    Raises CliUsageError; for an unknown name its message has the nearest known one.
    """
    try:
        assignments = settings_by_name.parse_assignments(values)
        settings_by_name.parse_settings(assignments)
    except settings_by_name.SettingsError as error:
        raise CliUsageError(f"--config: {error}") from error
    return assignments
