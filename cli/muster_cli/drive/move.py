"""`muster move`: which pod leads a partition. Pure."""

from __future__ import annotations

from functools import partial

from muster_cli.drive.checks import is_led, partition_named, pod_named, somebody_acts
from muster_cli.drive.deed import Change, Deed, Progress, Refused
from muster_cli.errors import CliUsageError
from muster_cli.oncall.seen import Seen
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import PartitionState


def move(seen: Seen, now: float, asked: str, pod: str) -> Deed:
    """Make `pod` the preferred leader. The operator elects it when its replica has caught up. Raises Refused."""
    partition = partition_named(seen, asked)
    name, there = partition.metadata.name, pod_named(seen, pod)
    if partition.status.leader == pod and partition.spec.preferred_leader == pod:
        return Deed(f"{pod} leads {name} already, and is its preferred leader.", (), partial(_led_by, name, pod))
    somebody_acts(seen, now)
    is_led(partition)
    replicas = [each.pod for each in partition.status.replicas]
    if pod not in replicas:
        raise Refused(
            f"{pod} has no replica of {name}; these have one: {', '.join(replicas)}. spec.replicas of the"
            " OffsetsPartition names the pods that shall have one"
        )
    if not there.ready:
        raise Refused(f"{pod} is not ready{f' ({there.trouble})' if there.trouble else ''}: it could not be elected")
    after = seen.cluster.spec.failover.rebalance_after
    if parse_duration(after) == 0:
        raise Refused(
            f"spec.failover.rebalanceAfter of {seen.cluster.metadata.name} is 0s: the operator moves no leader to a"
            " preferred one. Set it to 10s, for instance"
        )
    change = Change(partition, {"preferredLeader": pod})
    return Deed(
        f"{name} moves from {partition.status.leader} to {pod} when that replica has caught up and no pod has come or"
        f" gone for {after}.",
        (change,) if partition.spec.preferred_leader != pod else (),
        partial(_led_by, name, pod),
        undo=f"muster move {name} --undo",
    )


def undo_move(seen: Seen, now: float, asked: str) -> Deed:
    """Take the preferred leader back: it is the first replica then."""
    partition = partition_named(seen, asked)
    name = partition.metadata.name
    if partition.spec.preferred_leader is None:
        return Deed(f"{name} has no preferred leader of its own.", (), _nothing_more)
    somebody_acts(seen, now)
    if not partition.status.replicas:
        raise CliUsageError(f"{name} has no replicas yet")
    first = partition.status.replicas[0].pod
    return Deed(
        f"{name} goes back to its first replica, {first}, in its own time.",
        (Change(partition, {"preferredLeader": None}),),
        _nothing_more,
    )


def _led_by(name: str, pod: str, seen: Seen) -> Progress:
    partition = next((each for each in seen.partitions if each.metadata.name == name), None)
    if partition is None:
        return Progress(0, 1, f"OffsetsPartition {name} is gone")
    status = partition.status
    led = status.state is PartitionState.LED and status.leader == pod
    return Progress(int(led), 1, f"{name} is {status.state.value}, leader {status.leader}, epoch {status.epoch}")


def _nothing_more(seen: Seen) -> Progress:
    return Progress(1, 1)
