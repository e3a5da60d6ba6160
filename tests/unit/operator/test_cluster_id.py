"""spec.clusterId: the Kafka cluster id that a person has chosen, or knows from before."""

from __future__ import annotations

from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_operator.api.conditions import find_condition
from muster_operator.api.models import CoordinatorClusterStatus


def declaring(model: Model, cluster_id: str) -> Model:
    """The cluster, created again with this id."""
    spec = replace(model.cluster.spec, cluster_id=cluster_id)
    model.cluster = replace(model.cluster, spec=spec, status=CoordinatorClusterStatus())
    return model


def test_new_cluster_has_the_declared_id() -> None:
    model = declaring(Model(partitions=2, replication_factor=3), "chosen")
    Operator(model).settle()
    assert model.cluster.status.cluster_id == "chosen"
    assert {pod.images[-1].cluster_id for pod in model.running.values()} == {"chosen"}


def test_declared_id_that_the_volumes_remember_goes_on() -> None:
    model = declaring(Model(partitions=2, replication_factor=3), "chosen")
    Operator(model).settle()
    declaring(model, "chosen")
    model.stop("c-2")
    Operator(model, token=2).settle()
    assert model.cluster.status.cluster_id == "chosen"
    assert model.all_led


def test_volumes_of_another_kafka_cluster_are_told_and_not_touched() -> None:
    model = declaring(Model(partitions=2, replication_factor=3), "first")
    Operator(model).settle()
    images = {name: len(pod.images) for name, pod in model.running.items()}
    declaring(model, "second")
    Operator(model, token=2).settle()
    stalled = find_condition(model.cluster.status.conditions, "Stalled")
    assert stalled is not None
    assert stalled.reason == "ForeignCluster"
    assert stalled.message == "this is Kafka cluster second, and most volumes are of Kafka cluster first"
    assert {name: len(pod.images) for name, pod in model.running.items()} == images


def test_empty_volume_has_no_voice_in_what_the_others_remember() -> None:
    """Created again while a node is lost for good: the pod there never answers, and an added one knows nothing."""
    model = declaring(Model(pods=4, partitions=2, replication_factor=3), "chosen")
    Operator(model).settle()
    model.cluster = replace(
        model.cluster, spec=replace(model.cluster.spec, cluster_id=None), status=CoordinatorClusterStatus()
    )
    model.lose_volume("c-3")
    model.stop("c-2")
    Operator(model, token=2).replan()
    operator = Operator(model, token=3)
    operator.replan()
    while operator.todo:
        operator.act()
    assert model.cluster.status.cluster_id == "chosen"
    model.stop("c-1")
    model.cluster = replace(model.cluster, status=CoordinatorClusterStatus())
    operator.replan()
    while operator.todo:
        operator.act()
    assert model.cluster.status.cluster_id == "", "of the three that can remember one, two are away"
