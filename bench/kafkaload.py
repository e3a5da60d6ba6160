"""Kafka's start over the logs of offsets partitions that a pod wrote: it reads the same format.

The log directories are put into a node that has the topic already; it is started once, so that it has its indexes, and
stopped in order. What is measured is the start after that, which is the best that Kafka can do: nothing to recover.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import servers
from builds import BenchError

from muster_cli.demo.bare_client import call, string
from muster_coordinator.records.partitioner import partition_for

FIND_COORDINATOR, DESCRIBE_GROUPS = (10, 0), (15, 0)  # API key and version
DEADLINE_S = 120.0
POLL_S = 0.02
ASK_S = 5.0


def measure(directory: Path, logs: Sequence[Path], topic_partitions: int) -> dict[str, float]:
    """`ms` from the start of the process until every partition's coordinator answers; `load_ms`: of that, since the
    node answered anything. Raises BenchError, MissingTool.
    """
    directory.mkdir(parents=True)
    groups = _group_of_each(len(logs))
    node = servers.KafkaCluster(directory, partitions=len(logs))
    with node.running() as (started,):
        servers.wait_for_kafka(started, node.bootstrap, topic_partitions, node.output)
        _loaded(node, started, groups)
    for log in logs:
        target = node.data[0] / log.name
        for file in [*target.glob("*.log"), *target.glob("*.*index"), *target.glob("*.snapshot")]:
            file.unlink()
        for file in log.glob("*.log"):
            shutil.copy(file, target)
    with node.running() as (started,):
        _loaded(node, started, groups)
    began = time.monotonic()
    with node.running() as (started,):
        answered, loaded = _loaded(node, started, groups)
    return {"ms": round((loaded - began) * 1000, 1), "load_ms": round((loaded - answered) * 1000, 1)}


def _group_of_each(partitions: int) -> list[str]:
    """A group name for each partition."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < partitions:
        names.setdefault(partition_for(f"probe-{number}", partitions), f"probe-{number}")
        number += 1
    return list(names.values())


def _loaded(node: servers.KafkaCluster, started: subprocess.Popen[bytes], groups: Sequence[str]) -> tuple[float, float]:
    """The times at which the node first answered, and answered for all groups. Raises BenchError."""
    deadline = time.monotonic() + DEADLINE_S
    answered = 0.0
    while True:
        error = servers.ended_or_late(started, deadline, node.output)
        if error:
            raise BenchError(error)
        try:
            with socket.create_connection(("127.0.0.1", node.ports[0]), ASK_S) as connection:
                call(connection, FIND_COORDINATOR, string(groups[0]))  # the first one creates the topic
                while True:
                    names = struct.pack(">i", len(groups)) + b"".join(map(string, groups))
                    errors = _errors(call(connection, DESCRIBE_GROUPS, names))
                    now = time.monotonic()
                    answered = answered or now
                    if not any(errors):
                        return answered, now
                    time.sleep(POLL_S)
                    if now > deadline:
                        break
        except OSError:
            time.sleep(POLL_S)


def _errors(described: bytes) -> list[int]:
    """The error codes in a description of groups that have no members."""
    (count,) = struct.unpack_from(">i", described)
    at, errors = 4, []
    for _ in range(count):
        errors.append(struct.unpack_from(">h", described, at)[0])
        at += 2
        for _ in range(4):  # group, state, protocol type, protocol
            at += 2 + max(struct.unpack_from(">h", described, at)[0], 0)
        at += 4
    return errors
