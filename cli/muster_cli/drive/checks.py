"""The reasons why a cluster, a pod or a partition is not to be touched now."""

from __future__ import annotations

from muster_cli.drive.deed import Refused
from muster_cli.errors import CliUsageError
from muster_cli.oncall.explain import named_partition
from muster_cli.oncall.seen import PodSeen, Seen
from muster_cli.oncall.verdict import message_of
from muster_operator.api.models import OffsetsPartition, PartitionState


def somebody_acts(seen: Seen, now: float) -> None:
    """Raises Refused if what is declared would be carried out by nobody. `now`: in seconds since 1970."""
    name, spec = seen.cluster.metadata.name, seen.cluster.spec
    if spec.suspend:
        raise Refused(f"spec.suspend of {name} is set: the operator changes nothing. Take it back first")
    if spec.hibernate:
        raise Refused(f"spec.hibernate of {name} is set: no pod runs. Take it back first")
    if seen.operator is not None and not seen.operator.acts(now):
        raise Refused(
            f"no operator acts for {name} (Lease muster-operator of namespace {seen.cluster.metadata.namespace}):"
            " nobody would carry it out"
        )


def pod_named(seen: Seen, name: str) -> PodSeen:
    """The pod. Raises CliUsageError."""
    found = next((each for each in seen.pods if each.name == name), None)
    if found is None:
        names = ", ".join(each.name for each in seen.pods) or "none"
        raise CliUsageError(f"cluster {seen.cluster.metadata.name} has no pod {name}; its pods: {names}")
    return found


def partition_named(seen: Seen, asked: str) -> OffsetsPartition:
    """The partition by its object's name, Kafka's name or its number. Raises CliUsageError."""
    found = named_partition(seen, asked)
    if found is None or found.partition.status.state is PartitionState.RETIRED:
        text = f"cluster {seen.cluster.metadata.name} has no partition {asked} that serves"
        raise CliUsageError(f"{text}: give the name of an OffsetsPartition, or a number (t3: of transactions)")
    return found.partition


def is_led(partition: OffsetsPartition) -> None:
    """Raises Refused."""
    if partition.status.state is not PartitionState.LED:
        raise Refused(
            f"{partition.metadata.name} is {partition.status.state.value}: {message_of(partition)}."
            f" `muster explain {partition.metadata.name}` says what happens next"
        )
