"""`muster allow-data-loss`: a person's word for a partition that has lost a majority of its logs for good. Pure."""

from __future__ import annotations

import re
from functools import partial

from muster_cli.drive.checks import partition_named, somebody_acts
from muster_cli.drive.deed import Change, Deed, Progress, Refused
from muster_cli.oncall.seen import Seen
from muster_cli.oncall.verdict import message_of
from muster_operator.api.conditions import Reason
from muster_operator.api.models import PartitionState

_NUMBER = re.compile(r'"allowDataLoss":([0-9]+)')
"""The number, where the operator has written it into the command of its message."""


def allow_data_loss(seen: Seen, now: float, asked: str) -> Deed:
    """Lead the partition from the best log that is left. Raises Refused unless the operator has found that nothing else
    helps: it knows the logs.
    """
    somebody_acts(seen, now)
    partition = partition_named(seen, asked)
    name, status, message = partition.metadata.name, partition.status, message_of(partition)
    if status.state is PartitionState.LED:
        raise Refused(f"{name} is led by {status.leader}: there is no loss to allow")
    number = _NUMBER.search(message)
    if status.state is not PartitionState.STALLED or number is None:
        helps = "its pods may still come back" if status.reason == Reason.NO_MAJORITY else "another reason holds it"
        raise Refused(f"{name} is {status.state.value} ({status.reason}), and {helps}: {message}")
    epoch = int(number[1])
    said = message[: message.rindex("; ")]
    lost = [each.pod for each in status.replicas if each.pod not in {pod.name for pod in seen.pods if pod.ready}]
    away = f" Not ready: {', '.join(lost)}." if lost else ""
    return Deed(
        f"{name} is led from the best log that is left: {said}.{away} What only the other logs had is lost: offsets"
        f" that were committed, and answered, since these logs fell behind (epoch {epoch}).",
        (Change(partition, {"allowDataLoss": epoch}),) if partition.spec.allow_data_loss != epoch else (),
        partial(_is_led, name),
        question=f"Lose what only the others had of {name}, for good?",
    )


def _is_led(name: str, seen: Seen) -> Progress:
    partition = next((each for each in seen.partitions if each.metadata.name == name), None)
    if partition is None:
        return Progress(0, 1, f"OffsetsPartition {name} is gone")
    status = partition.status
    text = f"{name} is {status.state.value}: {message_of(partition)}"
    return Progress(int(status.state is PartitionState.LED), 1, text)
