"""The `muster` command with one side of the pod API of a later version: it sends fields and events that nobody knows.

python -m tests.support.later_version {operator|pods} ARGUMENT...    the arguments are those of `muster`
python -m tests.support.later_version pod OPTION...                  a pod; the options of `muster-coordinator`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from muster_cli.local import up, workload
from muster_cli.local.data_dir import DataDir, RunningPod
from muster_cli.main import main as muster
from muster_coordinator.podapi import client, server
from muster_coordinator.podapi.models import StatusEvent
from muster_coordinator.process.main import main as coordinator

ADDED = {"addedLater": {"by": "a later version"}}
NEW_EVENT = b'{"type":"addedLater","partition":7}\n'


def with_more(message: object) -> object:
    """The message with a field that nobody knows in each of its objects."""
    if isinstance(message, dict):
        return {**{name: with_more(each) for name, each in message.items()}, **ADDED}
    return [*map(with_more, message)] if isinstance(message, list) else message


def encode(message: object) -> bytes:
    return msgspec.json.encode(with_more(msgspec.to_builtins(message)))


def encode_events_too(message: object) -> bytes:
    return (NEW_EVENT if isinstance(message, StatusEvent) else b"") + encode(message)


class LaterClient(client.PodClient):
    async def _call(self, method: str, path: str, answer: type[Any], request: Any, timeout_s: float) -> Any:
        body = encode(request) if request is not None else None
        return await self._answer(method, path, answer, body, timeout_s)


def later_pod(pod: RunningPod, uid: str, data: DataDir, settings: Mapping[str, str]) -> list[str]:
    options = workload.coordinator_command(pod, uid, data, settings)[3:]
    return [sys.executable, "-m", __spec__.name, "pod", *options]


def main(who: str, arguments: list[str]) -> None:
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    if who == "pod":
        vars(server)["_encode"] = encode_events_too
        sys.exit(coordinator(arguments))
    if who == "pods":
        vars(up)["LocalWorkload"] = partial(workload.LocalWorkload, command=later_pod)
    else:
        from muster_operator.pods import session

        assert session.PodClient is client.PodClient
        vars(session)["PodClient"] = LaterClient
    sys.argv = ["muster", *arguments]
    muster()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
