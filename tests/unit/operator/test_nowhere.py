"""A replica of which the record says no pod: taken from another log while its own pod was silent, and lost since."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_operator.api.models import PartitionState


def with_unknown_pod(*lost: str) -> Model:
    """Partition 0 is of c-0, c-1, c-2; the record does not know where the log of c-1 is. These volumes are lost."""
    model = Model(pods=3, partitions=1, replication_factor=3)
    Operator(model).settle()
    status = model.objects["t-0"].status
    forgotten = tuple(replace(each, pod="" if each.pod == "c-1" else each.pod) for each in status.replicas)
    model.loss_allowed = True
    for name in lost:
        model.lose_volume(name)
    for name in [*model.running]:
        model.restart(name)
    model.put("t-0", replace(status, replicas=forgotten))
    return model


def test_lost_majority_is_for_a_person_also_if_nobody_knows_where_a_log_was() -> None:
    """The planted fault: the partition waits for ever for a pod that it cannot name."""
    model = with_unknown_pod("c-0", "c-1")
    Operator(model, token=2).settle()
    status = model.objects["t-0"].status
    assert (status.state, status.reason) == (PartitionState.STALLED, "NoMajority")
    message = next(each.message for each in status.conditions if each.type == "Ready")
    assert "is on no pod any more" in message
    assert "allowDataLoss" in message


def test_while_a_pod_is_away_the_log_may_be_there() -> None:
    model = with_unknown_pod("c-0")
    model.stop("c-1")
    Operator(model, token=2).settle()
    assert model.objects["t-0"].status.state is PartitionState.LEADERLESS
    model.restart("c-1")
    Operator(model, token=3).settle()
    assert model.all_led


def test_only_replica_of_a_partition_is_found_where_its_log_is() -> None:
    """No other pod may stand in for a recorded one; but the record names none."""
    model = Model(pods=2, partitions=1, replication_factor=1)
    Operator(model).settle()
    status = model.objects["t-0"].status
    (replica,) = status.replicas
    model.restart(replica.pod)
    model.stop(replica.pod)
    model.put("t-0", replace(status, replicas=(replace(replica, pod=""),)))
    Operator(model, token=2).settle()
    status = model.objects["t-0"].status
    assert status.state is PartitionState.LEADERLESS
    message = next(each.message for each in status.conditions if each.type == "Ready")
    assert message == f"its log {replica.log_id} is on no pod that answers"
    model.restart(replica.pod)
    Operator(model, token=3).settle()
    assert model.all_led
    assert model.objects["t-0"].status.replicas == (replica,)
