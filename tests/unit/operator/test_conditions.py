"""Ready says only what holds for the present generation, on every pod and with every declared copy."""

from __future__ import annotations

from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace
from tests.unit.operator.model import Model, Operator

from muster_coordinator.podapi.image import Endpoint
from muster_operator.api.conditions import Condition, condition_status, find_condition
from muster_operator.api.listener_security import ListenerAuthentication, ListenerTls
from muster_operator.api.models import (
    CoordinatorClusterSpec,
    CoordinatorClusterStatus,
    Gateway,
    GatewayToPods,
    Listener,
    OffsetsTopicStatus,
    OutgoingSasl,
    PartitionState,
    Rollout,
    Upstream,
)
from muster_operator.kube.events import noteworthy
from muster_operator.plan.actions import PublishMetadata, RestartPod, WriteClusterStatus, WriteTopicStatus
from muster_operator.plan.observation import Connection, Observation
from muster_operator.plan.planner import plan
from muster_operator.store.workload import settings_trouble


@pytest.fixture
def model() -> Model:
    """Three pods, led and ready; generation 1 of the cluster."""
    made = Model(partitions=3, replication_factor=3)
    made.cluster = replace(made.cluster, metadata=replace(made.cluster.metadata, generation=1))
    Operator(made).settle()
    assert condition_status(made.cluster.status.conditions, "Ready") == "True"
    return made


def changed(model: Model, **spec: object) -> Observation:
    """What an operator sees right after a change of the cluster's spec."""
    meta = replace(model.cluster.metadata, generation=model.cluster.metadata.generation + 1)
    spec_now: CoordinatorClusterSpec = replace(model.cluster.spec, **spec)
    model.cluster = replace(model.cluster, metadata=meta, spec=spec_now)
    return Operator(model, token=2).observe()


def cluster_status(seen: Observation) -> CoordinatorClusterStatus:
    assert seen.cluster is not None
    written = [each.status for each in plan(seen, 1.0) if isinstance(each, WriteClusterStatus)]
    return written[0] if written else seen.cluster.status


def ready(status: CoordinatorClusterStatus | OffsetsTopicStatus) -> Condition:
    found = find_condition(status.conditions, "Ready")
    assert found is not None
    return found


def outdated(seen: Observation, *names: str, **more: object) -> Observation:
    pods = tuple(with_fields(pod, outdated=pod.name in names) for pod in seen.pods)
    return with_fields(seen, pods=pods, **more)


def test_new_generation_is_not_ready_before_its_template_is_applied(model: Model) -> None:
    """The planted fault: Ready computed from what the pods of the old generation do."""
    seen = with_fields(changed(model, settings={"group.max.size": "5"}), applied=False)
    status = cluster_status(seen)
    assert (ready(status).status, ready(status).reason) == ("False", "RollingOut")
    assert (status.observed_generation, status.updated_pods) == (2, 0)
    model.cluster = replace(model.cluster, status=status)
    again = with_fields(Operator(model, token=2).observe(), applied=False)
    assert ready(cluster_status(again)).status == "False"


def test_new_generation_is_not_ready_while_a_pod_runs_the_old_template(model: Model) -> None:
    status = cluster_status(outdated(changed(model, settings={"group.max.size": "5"}), "c-0", "c-1"))
    assert (ready(status).status, ready(status).reason) == ("False", "RollingOut")
    assert ready(status).message == "1 of 3 pods run the declared template"
    assert (status.updated_pods, condition_status(status.conditions, "Reconciling")) == (1, "True")
    assert ready(cluster_status(outdated(Operator(model, token=2).observe()))).status == "True"


def test_operator_that_has_just_started_takes_nothing_back(model: Model) -> None:
    seen = with_fields(Operator(model, token=2).observe(), applied=False)
    assert cluster_status(seen) == model.cluster.status


def test_paused_rollout_replaces_nobody_and_failover_goes_on(model: Model) -> None:
    seen = changed(model, rollout=Rollout(paused=True))
    late = outdated(seen, "c-0", "c-1", "c-2")
    status = cluster_status(late)
    assert (ready(status).status, ready(status).reason) == ("False", "RolloutPaused")
    down = tuple(
        with_fields(pod, connection=Connection.DOWN, replicas={}) if pod.name == "c-2" else pod for pod in late.pods
    )
    for observation in (late, with_fields(late, pods=down)):
        assert not any(isinstance(each, RestartPod) for each in plan(observation, 1.0))
    model.stop("c-0")
    Operator(model, token=3).settle()
    assert {each.status.state for each in model.objects.values()} == {PartitionState.LED}


def test_rollout_that_waits_says_for_what_and_replaces_nobody_that_serves(model: Model) -> None:
    seen = outdated(changed(model, image="muster:2"), "c-0", "c-1", rollout_waits="spec.rollout.window opens never")
    assert not [each for each in plan(seen, 1.0) if isinstance(each, RestartPod)]
    said = ready(cluster_status(seen))
    assert said.reason == "RolloutWaits"
    assert said.message == "spec.rollout.window opens never; until then c-0, c-1 keep an older template"
    down = tuple(with_fields(pod, connection=Connection.DOWN) if pod.name == "c-1" else pod for pod in seen.pods)
    restarted = [each.pod for each in plan(with_fields(seen, pods=down), 1.0) if isinstance(each, RestartPod)]
    assert restarted == ["c-1"], "a pod that serves nobody is replaced at once"


def test_cluster_without_a_topic_is_rolled_out_too() -> None:
    """The planted fault: it says RollingOut for ever."""
    model = Model(partitions=3, replication_factor=3)
    seen = with_fields(Operator(model).observe(), topics=(), partitions=())
    seen = outdated(with_fields(seen, pods=tuple(with_fields(pod, steady_s=60.0) for pod in seen.pods)), "c-0", "c-1")
    actions = plan(seen, 1.0)
    assert [each.pod for each in actions if isinstance(each, RestartPod)] == ["c-1"]
    assert ready(cluster_status(seen)).reason == "RollingOut"


def test_pods_that_hold_partitions_of_no_topic_keep_their_template_and_that_is_told(model: Model) -> None:
    seen = outdated(with_fields(changed(model, image="muster:2"), topics=(), partitions=()), "c-0")
    assert not [each for each in plan(seen, 1.0) if isinstance(each, RestartPod)]
    stalled = find_condition(cluster_status(seen).conditions, "Stalled")
    assert stalled is not None
    assert (stalled.reason, "create it again" in stalled.message) == ("NoTopic", True)


def test_rollout_halts_at_a_pod_that_does_not_run_and_says_how_it_ended(model: Model) -> None:
    seen = outdated(changed(model, image="muster:broken"), "c-0", "c-1")
    broken = {
        "connection": Connection.DOWN,
        "replicas": {},
        "trouble": "CrashLoopBackOff: exit code 2: no such setting",
    }
    pods = tuple(with_fields(pod, **broken) if pod.name == "c-2" else pod for pod in seen.pods)
    status = cluster_status(with_fields(seen, pods=pods))
    stalled = find_condition(status.conditions, "Stalled")
    assert ready(status).status == "False"
    assert stalled is not None
    assert stalled.reason == "RolloutHalted"
    assert "pod c-2 of the declared template does not run, so c-0, c-1 keep the one before" in stalled.message
    assert "exit code 2: no such setting" in stalled.message
    assert not any(isinstance(each, RestartPod) for each in plan(with_fields(seen, pods=pods), 1.0))


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ("ContainerCreating", "RollingOut"),
        ("ContainerCreating: Secret tls not found", "RolloutHalted"),
        ("ErrImagePull", "RolloutHalted"),
    ],
)
def test_pod_that_is_just_starting_does_not_halt_a_rollout(model: Model, trouble: str, reason: str) -> None:
    seen = outdated(changed(model, image="muster:2"), "c-0", "c-1")
    starting = {"connection": Connection.DOWN, "replicas": {}, "trouble": trouble}
    pods = tuple(with_fields(pod, **starting) if pod.name == "c-2" else pod for pod in seen.pods)
    now = with_fields(seen, pods=pods)
    status = cluster_status(now)
    assert reason in {each.reason for each in status.conditions}
    assert f"pod c-2: {trouble}" in ready(status).message or reason == "RolloutHalted"
    assert not any(isinstance(each, RestartPod) for each in plan(now, 1.0)), "no other pod is replaced meanwhile"


def test_pod_that_restarts_while_the_rollout_is_halted_keeps_the_template_that_runs(model: Model) -> None:
    """The planted fault: an image that does not run took a second pod, and with it the majority."""
    seen = outdated(changed(model, image="muster:broken"), "c-0", "c-1")
    down = {"connection": Connection.DOWN, "replicas": {}}

    def with_states(trouble: str) -> Observation:
        states = {"c-1": down, "c-2": {**down, "trouble": trouble}}
        return with_fields(seen, pods=tuple(with_fields(pod, **states.get(pod.name, {})) for pod in seen.pods))

    assert [each for each in plan(with_states("ErrImagePull"), 1.0) if isinstance(each, RestartPod)] == []
    assert [each.pod for each in plan(with_states(""), 1.0) if isinstance(each, RestartPod)] == ["c-1"]


def test_fixed_template_replaces_the_pod_that_does_not_run_first(model: Model) -> None:
    model.stop("c-2")
    Operator(model, token=2).settle()
    seen = outdated(Operator(model, token=2).observe(), "c-0", "c-1", "c-2")
    assert [each.pod for each in plan(seen, 1.0) if isinstance(each, RestartPod)] == ["c-2"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"group.max.sise": "5"}, "did you mean group.max.size?"), ({"group.max.size": "many"}, "whole number")],
)
def test_settings_that_a_pod_would_refuse_are_told_and_reach_no_template(
    model: Model, settings: dict[str, str], why: str
) -> None:
    seen = changed(model, settings=settings)
    trouble = settings_trouble(model.cluster)
    assert why in trouble
    status = cluster_status(with_fields(seen, invalid_settings=trouble))
    stalled = find_condition(status.conditions, "Stalled")
    assert stalled is not None
    assert stalled.reason == "InvalidSettings"
    assert why in stalled.message
    assert settings_trouble(replace(model.cluster, spec=replace(model.cluster.spec, settings={}))) == ""


def test_site_with_an_upstream_is_refused_before_a_pod_is_made(model: Model) -> None:
    changed(model, upstream=Upstream("kafka:9092"), settings={"muster.site": "east@/mnt/backups"})
    assert "muster.site: not together with muster.upstream.bootstrap" in settings_trouble(model.cluster)


def test_newer_operator_names_its_image_and_leaves_the_one_of_the_cluster(model: Model) -> None:
    seen = with_fields(Operator(model, token=2).observe(), default_image="muster:2")
    unnamed = replace(model.cluster, spec=replace(model.cluster.spec, image=None))
    for cluster, pods in (
        (replace(unnamed, status=replace(unnamed.status, image="muster:1")), seen.pods),
        (replace(unnamed, status=replace(unnamed.status, image="")), seen.pods[:0]),
    ):
        if not pods:  # the status is lost: the pods say it
            pods = tuple(with_fields(pod, container_image="muster:1") for pod in seen.pods)
        status = cluster_status(with_fields(seen, cluster=cluster, pods=pods))
        assert status.image == "muster:1"
        upgrade = find_condition(status.conditions, "UpgradeAvailable")
        assert upgrade is not None
        assert """patch coordinatorcluster c --type merge -p '{"spec":{"image":"muster:2"}}'""" in upgrade.message
        assert ready(status).status == "True"
    named = cluster_status(seen)
    assert named.image == "muster:test"
    assert find_condition(named.conditions, "UpgradeAvailable") is None


def test_new_cluster_gets_the_image_that_the_operator_brings() -> None:
    model = Model(partitions=1)
    model.cluster = replace(model.cluster, spec=replace(model.cluster.spec, image=None))
    seen = with_fields(Operator(model).observe(), default_image="muster:2", pods=())
    assert cluster_status(seen).image == "muster:2"


def test_topic_is_not_ready_with_fewer_copies_than_declared(model: Model) -> None:
    one = Model(pods=3, partitions=3, replication_factor=1)
    Operator(one).settle()
    one.topic = replace(one.topic, spec=replace(one.topic.spec, replication_factor=3))
    operator = Operator(one, token=2)
    (told,) = [each.status for each in operator.replan() if isinstance(each, WriteClusterStatus)]
    assert (ready(told).status, ready(told).reason) == ("False", "UnderReplicated")
    assert "t-0 has 1 of 3" in ready(told).message
    assert condition_status(told.conditions, "FullyReplicated") == "False"
    operator.settle(60)
    for status in (one.topic.status, one.cluster.status):
        assert ready(status).status == "True"
        assert condition_status(status.conditions, "FullyReplicated") == "True"


def test_copy_that_does_not_follow_is_degraded_and_the_topic_is_ready_on(model: Model) -> None:
    model.stop("c-2")
    Operator(model, token=2).settle()
    status = model.topic.status
    assert ready(status).status == "True"
    assert condition_status(status.conditions, "FullyReplicated") == "False"
    assert condition_status(status.conditions, "Degraded") == "True"
    assert ready(model.cluster.status).reason == "PodsNotReady"
    assert ready(model.cluster.status).message == "2 of 3 pods are ready; not ready: c-2"
    model.restart("c-2")
    Operator(model, token=3).settle()
    assert find_condition(model.topic.status.conditions, "Degraded") is None
    assert not any(isinstance(each, WriteTopicStatus) for each in Operator(model, token=4).replan())


def test_lost_node_is_named_with_its_pods_where_copies_do_not_follow(model: Model) -> None:
    model.stop("c-2")
    operator = Operator(model, token=2)
    operator.settle()
    seen = operator.observe()
    pods = [with_fields(pod, node=f"node-{pod.name}", node_lost=pod.name == "c-2") for pod in seen.pods]
    status = cluster_status(with_fields(seen, pods=tuple(pods)))
    missing = "not ready: c-2 (nothing is heard of its node node-c-2)"
    assert ready(status).message == f"2 of 3 pods are ready; {missing}"
    degraded = find_condition(status.conditions, "Degraded")
    assert degraded is not None
    assert degraded.message.endswith(f"partitions follow their leaders; {missing}")


@pytest.mark.parametrize(
    ("field", "reason"), [("conflict", "NameConflict"), ("refusal", "PodsRefused")], ids=["conflict", "refusal"]
)
def test_what_keeps_the_pods_objects_from_being_applied_is_told(model: Model, field: str, reason: str) -> None:
    seen = with_fields(Operator(model, token=2).observe(), **{field: "Service c-bootstrap is not ours"})
    stalled = find_condition(cluster_status(seen).conditions, "Stalled")
    assert stalled is not None
    assert (stalled.reason, stalled.message) == (reason, "Service c-bootstrap is not ours")


def test_definitions_of_another_version_are_told_and_take_nothing_away(model: Model) -> None:
    seen = Operator(model, token=2).observe()
    status = cluster_status(with_fields(seen, outdated_definitions="CustomResourceDefinition offsetstopics.muster.dev"))
    told = find_condition(status.conditions, "CrdOutdated")
    assert told is not None
    assert told.reason == "CrdOutdated"
    assert "kubectl apply --server-side -k crds" in told.message
    assert ready(status).status == "True"
    assert find_condition(cluster_status(seen).conditions, "CrdOutdated") is None


def test_certificates_that_cannot_be_renewed_are_told_and_take_nothing_away(model: Model) -> None:
    seen = Operator(model, token=2).observe()
    status = cluster_status(with_fields(seen, certificates="PUT /api/v1/...: 403 forbidden"))
    told = find_condition(status.conditions, "CertificatesDue")
    assert told is not None
    assert (told.status, told.reason) == ("True", "CertificatesNotKept")
    assert "403 forbidden" in told.message
    assert ready(status).status == "True", "those in force are good until they end"
    before = cluster_status(seen).conditions
    assert find_condition(before, "CertificatesDue") is None
    assert noteworthy(before, status.conditions) == (told,), "an event says so"
    assert noteworthy(status.conditions, status.conditions) == ()


def test_cluster_is_not_ready_while_its_volumes_grow_and_pods_serve_on(model: Model) -> None:
    seen = with_fields(changed(model), growing="1 of 3 volumes have 20Gi", volume_size="20Gi")
    status = cluster_status(seen)
    assert (ready(status).status, ready(status).reason) == ("False", "GrowingVolumes")
    assert (condition_status(status.conditions, "Reconciling"), status.volume_size) == ("True", "20Gi")
    model.cluster = replace(model.cluster, status=status)
    after = cluster_status(Operator(model, token=2).observe())
    assert (ready(after).status, after.volume_size) == ("True", "20Gi"), "an operator that starts keeps the size"


def test_cluster_is_not_ready_before_its_gateway_and_says_where_clients_begin(model: Model) -> None:
    seen = with_fields(changed(model), gateway_bootstrap="c-gateway.ns.svc:9092")
    waiting = cluster_status(with_fields(seen, gateway_waits="1 of 2 gateway pods are ready"))
    assert (ready(waiting).status, ready(waiting).reason) == ("False", "GatewayNotReady")
    assert ready(waiting).message == "1 of 2 gateway pods are ready"
    assert condition_status(waiting.conditions, "Reconciling") == "True"
    there = cluster_status(seen)
    assert (ready(there).status, there.gateway) == ("True", "c-gateway.ns.svc:9092")
    refused = cluster_status(with_fields(seen, gateway_trouble="Deployment c-gateway exists"))
    assert (ready(refused).reason, ready(refused).message) == ("GatewayRefused", "Deployment c-gateway exists")
    assert condition_status(refused.conditions, "Stalled") == "True"


def test_partitions_without_a_leader_are_told_before_a_gateway(model: Model) -> None:
    for name in [*model.running]:
        model.stop(name)
    status = cluster_status(with_fields(changed(model), gateway_waits="0 of 2 gateway pods are ready"))
    assert ready(status).reason != "GatewayNotReady"


def test_volume_that_is_not_let_grow_is_for_a_person(model: Model) -> None:
    status = cluster_status(with_fields(changed(model), growth_refused="data-c-0 stays at 10Gi"))
    stalled = find_condition(status.conditions, "Stalled")
    assert stalled is not None
    assert (stalled.reason, stalled.message) == ("GrowthRefused", "data-c-0 stays at 10Gi")


def test_listener_without_addresses_is_not_ready_and_the_image_has_those_that_are_known(model: Model) -> None:
    outside = Listener("outside", 9094, "NodePort")
    seen = changed(model, listeners=(*model.cluster.spec.listeners, outside))

    def known(*names: str) -> Observation:
        pods = (
            with_fields(pod, endpoints={"outside": f"n:{30000 + pod.node_id}"} if pod.name in names else {})
            for pod in seen.pods
        )
        return with_fields(seen, pods=tuple(pods))

    status = cluster_status(known("c-0"))
    assert (ready(status).status, ready(status).reason) == ("False", "AwaitingAddresses")
    assert ready(status).message == "listener outside (NodePort) has no address yet for c-1, c-2"
    assert [(each.name, each.bootstrap) for each in status.listeners] == [("outside", "n:30000")]
    assert ready(cluster_status(known("c-0", "c-1", "c-2"))).status == "True"
    (image,) = [each.image for each in plan(known("c-1"), 1.0) if isinstance(each, PublishMetadata)]
    assert [each.endpoints for each in image.brokers] == [(), (Endpoint("outside", "n", 30001),), ()]


def with_upstream(model: Model, problem: str, **spec: object) -> Observation:
    """Pod c-1 has this problem with the upstream."""
    seen = changed(model, upstream=Upstream("kafka:9092"), **spec)
    told = (with_fields(pod, mirror_problem=problem if pod.name == "c-1" else "") for pod in seen.pods)
    return with_fields(seen, pods=tuple(told))


def test_pods_of_a_site_that_another_has_taken_over_from_are_told(model: Model) -> None:
    seen = changed(model)
    fenced = (with_fields(pod, site_problem="site west has taken over") for pod in seen.pods if pod.name == "c-1")
    others = [pod for pod in seen.pods if pod.name != "c-1"]
    status = cluster_status(with_fields(seen, pods=(*others, *fenced)))
    told = find_condition(status.conditions, "Fenced")
    assert told is not None
    assert (told.status, told.reason) == ("True", "OtherSite")
    assert told.message == "pod c-1 answers no client: site west has taken over"
    model.cluster = replace(model.cluster, status=status)
    assert find_condition(cluster_status(changed(model)).conditions, "Fenced") is None


def test_upstream_that_a_pod_cannot_follow_is_told_and_takes_no_readiness(model: Model) -> None:
    status = cluster_status(with_upstream(model, "no broker answers"))
    told = find_condition(status.conditions, "Mirrored")
    assert told is not None
    assert (told.status, told.reason) == ("False", "UpstreamNotFollowed")
    assert told.message == "pod c-1: no broker answers"
    assert ready(status).status == "True"
    model.cluster = replace(model.cluster, status=status)
    after = find_condition(cluster_status(with_upstream(model, "")).conditions, "Mirrored")
    assert after is not None
    assert (after.status, after.reason) == ("True", "UpstreamFollowed")
    assert find_condition(cluster_status(changed(model, upstream=None)).conditions, "Mirrored") is None


SASL = OutgoingSasl("PLAIN", "account")
ASKS = ListenerAuthentication(("SCRAM-SHA-512",))


@pytest.mark.parametrize(
    ("upstream", "gateway", "shared"),
    [
        (Upstream("kafka:9092", ("m-",), sasl=SASL), Gateway(), True),
        (Upstream("kafka:9092", ("m-",)), Gateway(authentication=ASKS), True),
        (Upstream("kafka:9092", ("m-",)), Gateway(tls=ListenerTls("tls", "required")), True),
        (Upstream("kafka:9092", ("m-",)), Gateway(tls=ListenerTls("tls")), False),
        (Upstream("kafka:9092", ("m-",)), Gateway(), False),
        (Upstream("kafka:9092", sasl=SASL), Gateway(), False),
        (Upstream("kafka:9092", ("m-",), sasl=SASL), Gateway(muster=GatewayToPods(act_for_clients=True)), False),
        (Upstream("kafka:9092", ("m-",), sasl=SASL), None, False),
        (None, None, False),
    ],
)
def test_gateway_whose_clients_are_one_user_here_is_told_and_takes_no_readiness(
    model: Model, upstream: Upstream | None, gateway: Gateway | None, shared: bool
) -> None:
    status = cluster_status(changed(model, upstream=upstream, gateway=gateway))
    told = find_condition(status.conditions, "ClientsShareUser")
    assert (told is not None) == shared
    if told is not None:
        assert (told.status, told.reason) == ("True", "ClientsShareUser")
        assert told.message.endswith("""'{"spec":{"gateway":{"muster":{"actForClients":true}}}}'""")
    assert ready(status).status == "True"
    model.cluster = replace(model.cluster, status=status)
    assert find_condition(cluster_status(changed(model, gateway=None)).conditions, "ClientsShareUser") is None


def test_clients_that_bypass_the_cluster_are_told_by_an_event_and_take_no_readiness(model: Model) -> None:
    seen = with_upstream(model, "")
    told = [with_fields(pod, mirror_bypassed="m-1 by app@10.0.0.1" * (pod.name == "c-1")) for pod in seen.pods]
    before = cluster_status(seen)
    status = cluster_status(with_fields(seen, pods=tuple(told)))
    condition = find_condition(status.conditions, "Bypassed")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "UsedAtUpstream")
    assert condition.message == "used at the upstream itself: m-1 by app@10.0.0.1"
    assert ready(status).status == "True"
    assert noteworthy(before.conditions, status.conditions) == (condition,)
    assert noteworthy(status.conditions, status.conditions) == ()
    model.cluster = replace(model.cluster, status=status)
    assert find_condition(cluster_status(with_upstream(model, "")).conditions, "Bypassed") is None
    away = tuple(with_fields(pod, connection=Connection.DOWN) for pod in told)
    nobody = with_fields(with_upstream(model, ""), pods=away)
    assert find_condition(cluster_status(nobody).conditions, "Bypassed") == condition
    assert find_condition(cluster_status(changed(model, upstream=None)).conditions, "Bypassed") is None


def test_what_was_said_of_the_upstream_stays_while_no_pod_is_there(model: Model) -> None:
    model.cluster = replace(model.cluster, status=cluster_status(with_upstream(model, "no broker answers")))
    away = tuple(with_fields(pod, connection=Connection.DOWN) for pod in with_upstream(model, "").pods)
    told = find_condition(cluster_status(with_fields(with_upstream(model, ""), pods=away)).conditions, "Mirrored")
    assert told is not None
    assert told.status == "False"
