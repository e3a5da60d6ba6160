"""The logs that pods serve (`GET /v1/segments`): what is committed, what only the journal has included."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from muster_pipeline.decode.errors import SegmentReadError
from muster_pipeline.source.http_ranges import RETRY_EVERY_S, UNREACHABLE_FOR_S, get
from muster_pipeline.source.topics import partition_name

MAX_LIST_BYTES = 64 << 20
_SEGMENTS = "/v1/segments"


@dataclass(frozen=True)
class PodLog:
    """A log that a pod serves. Its segments are at `home/<base offset>`; `log_id` names the replica. `epochs` has
    (leader epoch, its first offset) for the committed part.
    """

    home: str
    partition: int
    base_offsets: tuple[int, ...]
    log_id: str
    epochs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PodLogs:
    """The logs that a pod serves. `unserved` are partitions whose commit point the pod does not know yet, because it
    has just started or has no leader.
    """

    logs: tuple[PodLog, ...]
    unserved: frozenset[int]


def root_of(home: str) -> str:
    """Return the URL at which the pod lists its logs, given the `home` of one of them."""
    return home.rpartition("/")[0]


def served_logs(addresses: Sequence[str], *, wait: bool) -> list[PodLog]:
    """Return one log for each partition, from the first of the pods that serves it.

    With `wait` it asks again until every partition that a pod has is served by one of them. Raises SegmentReadError
    if a pod does not answer, or if a partition is still not served after `UNREACHABLE_FOR_S`.
    """
    deadline = time.monotonic() + UNREACHABLE_FOR_S
    while True:
        found: dict[int, PodLog] = {}
        unserved: dict[int, str] = {}
        for address in addresses:
            listed = list_logs(address)
            unserved |= dict.fromkeys(listed.unserved, address)
            for log in listed.logs:
                found.setdefault(log.partition, log)
        missing = sorted(unserved.keys() - found.keys())
        if not missing or not wait:
            return list(found.values())
        if time.monotonic() > deadline:
            names = ", ".join(map(partition_name, missing))
            raise SegmentReadError(
                unserved[missing[0]],
                0,
                f"{names} are here, but not served: their logs are damaged, still being opened, or"
                " have no leader. See the pod's log, or name further pods",
            )
        time.sleep(RETRY_EVERY_S)


def list_logs(address: str) -> PodLogs:
    """Return the logs that the pod at `address` serves. Raises SegmentReadError."""
    root = address.rstrip("/").removesuffix(_SEGMENTS) + _SEGMENTS
    _, body = get(root, "", MAX_LIST_BYTES)
    try:
        listed = json.loads(body)
        return PodLogs(
            tuple(_pod_log(root, each) for each in listed["partitions"]), frozenset(listed.get("unserved", ()))
        )
    except (ValueError, TypeError, KeyError) as exc:
        raise SegmentReadError(root, 0, f"no list of segments: {exc}") from exc


def _pod_log(root: str, listed: dict[str, Any]) -> PodLog:
    """Decode one entry of the list. Raises ValueError, TypeError, KeyError."""
    return PodLog(
        f"{root}/{listed['partition']}",
        listed["partition"],
        tuple(segment["baseOffset"] for segment in listed["segments"]),
        listed.get("logId", ""),
        tuple((epoch, offset) for epoch, offset in listed.get("epochs", ())),
    )
