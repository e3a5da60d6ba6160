"""What the API server makes of the CustomResourceDefinitions: defaults, printer columns, refused resources."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml
from tests.support.kube import REPOSITORY, custom_resources, kubectl, namespace, shared_namespace
from tests.support.muster_cluster import wait_until

__all__ = ["custom_resources", "namespace", "shared_namespace"]

pytestmark = pytest.mark.kubernetes


def resource(kind: str, namespace: str, name: str, spec: dict[str, object]) -> str:
    metadata = {"name": name, "namespace": namespace}
    return str(yaml.safe_dump({"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}))


def topic_spec(**fields: object) -> dict[str, object]:
    return {"clusterRef": {"name": "a"}, **fields}


def partition_spec(**fields: object) -> dict[str, object]:
    return {"topicRef": {"name": "t"}, "index": 0, **fields}


def user_spec(**fields: object) -> dict[str, object]:
    return {"clusterRef": {"name": "a"}, **fields}


def group_spec(**changes: object) -> dict[str, object]:
    return {"clusterRef": {"name": "a"}, "group": "g", "coordinator": "Muster", **changes}


OFFSETS = [{"topic": "t", "partition": 0, "offset": 7}]
RESET = {"id": "one", "to": "earliest"}


def backup(**store: object) -> dict[str, object]:
    return {"backup": {"store": store}}


def restore_at(moment: str, **source: object) -> dict[str, object]:
    return {"restoreFrom": {"store": {"claim": "backups"}, "at": moment, **source}}


def acl(**fields: object) -> dict[str, object]:
    return {"operations": ["READ"], **fields}


def listener(**fields: object) -> dict[str, object]:
    return {"name": "internal", **fields}


OUTSIDE: dict[str, object] = {"name": "outside0", "port": 9094, "type": "NodePort"}


def window(**changes: object) -> dict[str, object]:
    return {"rollout": {"window": {"start": "22:00", "end": "05:00", "timeZone": "Europe/Berlin", **changes}}}


def archive(size: str, **fields: object) -> dict[str, object]:
    return {"storage": {"archive": {"size": size, **fields}}}


UPSTREAM: dict[str, object] = {"bootstrapServers": "kafka-0:9092,[fd00::1]:9092", "servedGroups": ["billing-"]}
NEEDS_LOGIN = listener(authentication={"mechanisms": ["SCRAM-SHA-512"]})

SCRAM = {"mechanism": "SCRAM-SHA-512", "secret": "s"}
PLAIN = {"mechanism": "PLAIN", "secret": "s"}
SECURED = {
    "upstream": {**UPSTREAM, "tls": {"caSecret": "ca", "certificateSecret": "c"}, "sasl": PLAIN},
    "gateway": {
        "tls": {"secret": "g", "clientAuth": "required"},
        "authentication": {"mechanisms": ["SCRAM-SHA-512", "PLAIN"]},
        "muster": {"tls": {"caSecret": "ca"}, "sasl": SCRAM, "actForClients": True},
    },
    "listeners": [{**NEEDS_LOGIN, "tls": {"secret": "t"}}],
    "access": {"usersSecret": "u"},
}

REFUSED = [
    ("MusterUser", "u", user_spec(quotas={"connections": 0}), "spec.quotas.connections"),
    ("MusterUser", "u", user_spec(quotas={"requestRate": 0}), "spec.quotas.requestRate"),
    ("MusterUser", "u", user_spec(reclaimPolicy="Keep"), "spec.reclaimPolicy"),
    (
        "MusterUser",
        "u",
        user_spec(reclaimPolicy="Retain", authentication={"type": "Password", "secret": "mine"}),
        "reclaimPolicy Retain is for passwords that the operator makes",
    ),
    (
        "MusterUser",
        "u",
        user_spec(reclaimPolicy="Retain", authentication={"type": "External"}),
        "reclaimPolicy Retain is for passwords that the operator makes",
    ),
    (
        "MusterUser",
        "u",
        user_spec(authentication={"type": "External", "secret": "mine"}),
        "secret is of type Password",
    ),
    (
        "MusterUser",
        "u",
        user_spec(acls=[{"operations": ["READ"], "resource": "GROUP"}]),
        "a name is needed, but for the CLUSTER",
    ),
    ("CoordinatorCluster", "a", {"gateway": {}}, "spec.gateway needs spec.upstream"),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": UPSTREAM, "site": {"name": "east", "store": {"claim": "c"}}},
        "spec.site does not go with spec.upstream",
    ),
    ("CoordinatorCluster", "a", {"site": {"name": "East", "store": {"claim": "c"}}}, "spec.site.name"),
    ("CoordinatorCluster", "a", {"site": {"name": "east", "store": {}}}, "store needs one of s3 and claim"),
    ("CoordinatorCluster", "a", {"upstream": {"bootstrapServers": "kafka-0"}}, "spec.upstream.bootstrapServers"),
    ("CoordinatorCluster", "a", {"upstream": {**UPSTREAM, "servedGroups": ["a,b"]}}, "spec.upstream.servedGroups[0]"),
    ("CoordinatorCluster", "a", {"upstream": UPSTREAM, "gateway": {"brokerIds": 257}}, "spec.gateway.brokerIds"),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": UPSTREAM, "gateway": {"type": "LoadBalancer"}},
        "spec.gateway.advertisedHost is needed",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": UPSTREAM, "gateway": {}, "listeners": [NEEDS_LOGIN], "access": {"usersSecret": "u"}},
        "spec.gateway.muster must have tls and sasl",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": UPSTREAM, "gateway": {"muster": {"sasl": SCRAM}}},
        "spec.gateway.muster must have tls and sasl",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": {**UPSTREAM, "sasl": {"mechanism": "GSSAPI", "secret": "s"}}},
        "spec.upstream.sasl.mechanism",
    ),
    ("CoordinatorCluster", "a", {"upstream": {**UPSTREAM, "sasl": PLAIN}}, "spec.upstream.tls is needed"),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": {"bootstrapServers": "k:1"}, "gateway": {"muster": {"sasl": PLAIN}}},
        "spec.gateway.muster.tls is needed",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": UPSTREAM, "gateway": {"tls": {"secret": "s", "clientAuth": "requested"}}},
        "spec.gateway.tls.clientAuth must be none or required",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": UPSTREAM, "gateway": {"authentication": {"mechanisms": ["SCRAM-SHA-512"]}}},
        "spec.access.usersSecret is needed: the gateway",
    ),
    (
        "CoordinatorCluster",
        "a",
        {
            "upstream": UPSTREAM,
            "gateway": {"authentication": {"mechanisms": ["PLAIN"]}},
            "access": {"usersSecret": "u"},
        },
        "PLAIN needs spec.gateway.tls",
    ),
    (
        "CoordinatorCluster",
        "a",
        {
            "upstream": UPSTREAM,
            "gateway": {"authentication": {"mechanisms": ["OAUTHBEARER"]}, "tls": {"secret": "s"}},
            "access": {"usersSecret": "u"},
        },
        "logins by OAUTHBEARER only pass",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": {**UPSTREAM, "tls": {"certificateSecret": "c"}}, "gateway": {}},
        "brokers take all clients for the gateway",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"upstream": UPSTREAM, "gateway": {"muster": {"actForClients": True}}},
        "spec.gateway.muster.actForClients needs",
    ),
    ("OffsetsTopic", "t", topic_spec(partitions=0), "spec.partitions"),
    ("OffsetsTopic", "t", topic_spec(partitions=1001), "spec.partitions"),
    ("OffsetsTopic", "t", topic_spec(partitions="many"), "spec.partitions"),
    ("OffsetsTopic", "t", topic_spec(segmentBytes=-1), "spec.segmentBytes"),
    ("OffsetsTopic", "t", topic_spec(reshard={"partitions": 0}), "spec.reshard.partitions"),
    ("OffsetsTopic", "t", topic_spec(replicationFactor=2), "spec.replicationFactor"),
    ("OffsetsTopic", "t", {}, "spec.clusterRef"),
    ("OffsetsTopic", "t", {"clusterRef": {"name": "No_Such.Name"}}, "spec.clusterRef.name"),
    ("OffsetsTopic", "t.with.dots", topic_spec(), "DNS label"),
    ("OffsetsTopic", "t" * 60, topic_spec(), "DNS label"),
    ("CoordinatorCluster", "a", {"pods": 0}, "spec.pods"),
    ("CoordinatorCluster", "a", {"storage": {"size": "-1Gi"}}, "spec.storage.size"),
    ("CoordinatorCluster", "a", {"storage": {"size": "0"}}, "spec.storage.size"),
    ("CoordinatorCluster", "a", {"storage": {"size": "10 apples"}}, "spec.storage.size"),
    ("CoordinatorCluster", "a", {"listeners": [listener(port=70000)]}, "spec.listeners[0].port"),
    ("CoordinatorCluster", "a", {"listeners": [listener(advertise="Moon")]}, "spec.listeners[0].advertise"),
    ("CoordinatorCluster", "a", {"listeners": [listener(name="No")]}, "spec.listeners[0].name"),
    ("CoordinatorCluster", "a", {"listeners": [listener(), listener()]}, "Duplicate value"),
    ("CoordinatorCluster", "a", {"listeners": []}, "exactly one listener must be of type Internal"),
    ("CoordinatorCluster", "a", {"listeners": [listener(), OUTSIDE | {"port": 9092}]}, "must not have the same port"),
    ("CoordinatorCluster", "a", {"listeners": [listener(port=9640)]}, "ports 9640 to 9643 are the pods' own"),
    ("CoordinatorCluster", "a", {"listeners": [listener(name="pods")]}, "no listener may be called kafka, api, peer"),
    ("CoordinatorCluster", "a", {"listeners": [listener(), OUTSIDE | {"advertise": "PodIP"}]}, "advertise is of a"),
    ("CoordinatorCluster", "a", {"listeners": [listener(firstNodePort=30000)]}, "firstNodePort is of a listener of"),
    ("CoordinatorCluster", "a" * 52, {"listeners": [listener(), OUTSIDE]}, "at most 59 characters together"),
    ("CoordinatorCluster", "a", {"topics": [{"name": "orders", "partitions": 0}]}, "spec.topics[0].partitions"),
    ("CoordinatorCluster", "a", {"topics": [{"name": "a b", "partitions": 1}]}, "spec.topics[0].name"),
    ("CoordinatorCluster", "a", {"topics": [{"name": "o", "partitions": 1}] * 2}, "Duplicate value"),
    (
        "CoordinatorCluster",
        "a",
        {"podTemplate": {"volumes": [{"name": "../etc", "source": {}}]}},
        "spec.podTemplate.volumes[0].name",
    ),
    ("CoordinatorCluster", "a", {"podTemplate": {"volumes": [{"name": "ca"}]}}, "spec.podTemplate.volumes[0].source"),
    ("CoordinatorCluster", "a", {"failover": {"suspectAfter": "-1s"}}, "spec.failover.suspectAfter"),
    ("CoordinatorCluster", "a", {"failover": {"suspectAfter": "100ms"}}, "at least 400ms"),
    ("CoordinatorCluster", "a", {"failover": {"suspectAfter": "20s"}}, "electionTimeout must not be below"),
    ("CoordinatorCluster", "a", {"failover": {"nominateAfter": "1s"}}, "nominateAfter must be 0s"),
    (
        "CoordinatorCluster",
        "a",
        {"failover": {"suspectAfter": "9s", "nominateAfter": "3s"}},
        "nominateAfter must be 0s",
    ),
    ("CoordinatorCluster", "a", {"failover": {"replaceAfter": "5s"}}, "replaceAfter must be 0s"),
    ("CoordinatorCluster", "a", window(start="24:00"), "spec.rollout.window.start"),
    ("CoordinatorCluster", "a", window(days=["Someday"]), "spec.rollout.window.days[0]"),
    ("CoordinatorCluster", "a", window(timeZone="Mars/Olympus"), "timeZone must be the name of an IANA time zone"),
    ("CoordinatorCluster", "a" * 53, {}, "DNS label"),
    ("CoordinatorCluster", "1st", {}, "DNS label"),
    ("CoordinatorCluster", "a", {"clusterId": "a b"}, "spec.clusterId: Invalid value"),
    ("CoordinatorCluster", "a", {"listeners": [NEEDS_LOGIN]}, "spec.access.usersSecret or musterUsers is needed"),
    (
        "CoordinatorCluster",
        "a",
        {"listeners": [listener(authentication={"mechanisms": ["PLAIN"]})], "access": {"usersSecret": "u"}},
        "PLAIN and OAUTHBEARER send passwords and tokens as they are",
    ),
    (
        "CoordinatorCluster",
        "a",
        {"access": {"usersSecret": "u", "musterUsers": True}},
        "musterUsers goes with neither usersSecret nor aclsSecret",
    ),
    ("CoordinatorCluster", "a", {"security": {"podSecret": "p"}}, "podSecret and operatorSecret go together"),
    ("CoordinatorCluster", "a", {"security": {"readerSecret": "r"}}, "readerSecret goes with podSecret"),
    (
        "CoordinatorCluster",
        "a",
        {
            "upstream": {**UPSTREAM, "movableGroups": ["k-"]},
            "gateway": {},
            "security": {"podSecret": "p", "operatorSecret": "o"},
        },
        "spec.upstream.movableGroups with a gateway needs spec.security.readerSecret",
    ),
    ("CoordinatorCluster", "a", backup(), "store needs one of s3 and claim"),
    ("CoordinatorCluster", "a", backup(claim="c", s3={"bucket": "abc"}), "store needs one of s3 and claim"),
    ("CoordinatorCluster", "a", backup(s3={"bucket": "abc"}, directory="d"), "directory is in the volume of claim"),
    ("CoordinatorCluster", "a", {"backup": {"store": {"claim": "c"}, "schedule": "* *"}}, "spec.backup.schedule"),
    ("CoordinatorCluster", "a", {"backup": {"store": {"claim": "c"}, "timeZone": "X"}}, "no IANA time zone has this"),
    (
        "CoordinatorCluster",
        "a",
        {**backup(claim="c"), "security": {"podSecret": "p", "operatorSecret": "o"}},
        "spec.backup needs spec.security.readerSecret",
    ),
    ("CoordinatorCluster", "a", restore_at("2026-11-28 09:30"), "spec.restoreFrom.at"),
    ("CoordinatorCluster", "a", restore_at("2026-11-31T09:30:00Z"), "spec.restoreFrom.at"),
    (
        "CoordinatorCluster",
        "a",
        restore_at("2026-11-28T09:30:00Z", backup="20261128T091702Z-abcdef"),
        "at finds its backups: leave backup out",
    ),
    ("MusterBackup", "b.with.dots", user_spec(), "DNS label"),
    ("MusterUser", "u.with.dots", user_spec(), "DNS label"),
    ("MusterUser", "u", user_spec(authentication={"type": "External", "secret": "s"}), "secret is of type Password"),
    ("MusterUser", "u", user_spec(acls=[acl(resource="GROUP")]), "a name is needed, but for the CLUSTER"),
    ("MusterUser", "u", user_spec(acls=[acl(resource="CLUSTER", pattern="PREFIXED")]), "a LITERAL pattern"),
    ("ConsumerGroup", "g", group_spec(group=""), "spec.group"),
    ("ConsumerGroup", "g", group_spec(coordinator="Redpanda"), "spec.coordinator"),
    ("ConsumerGroup", "g", group_spec(reset={"id": "", "to": "earliest"}), "spec.reset.id"),
    ("ConsumerGroup", "g", group_spec(reset={"id": "a", "to": "sideways"}), "spec.reset.to"),
    ("ConsumerGroup", "g", group_spec(reset={"id": "a", "to": "offset"}), "offset is for to: offset"),
    ("ConsumerGroup", "g", group_spec(reset=RESET | {"shiftBy": 3}), "shiftBy is for to: shiftBy"),
    (
        "ConsumerGroup",
        "g",
        group_spec(reset=RESET | {"datetime": "2026-01-01T00:00:00Z"}),
        "datetime is for to: datetime",
    ),
    ("ConsumerGroup", "g", group_spec(reset={"id": "a", "to": "offsets"}), "offsets is for to: offsets"),
    ("ConsumerGroup", "g", group_spec(reset=RESET | {"members": "Stay"}), "spec.reset.members"),
    (
        "ConsumerGroup",
        "g",
        group_spec(reset={"id": "a", "to": "offsets", "offsets": OFFSETS, "topics": ["t"]}),
        "offsets name their topics",
    ),
    ("OffsetsPartition", "p", partition_spec(index=-1), "spec.index"),
    ("OffsetsPartition", "p", partition_spec(index=1_000_000), "spec.index"),
    ("OffsetsPartition", "p", partition_spec(allowDataLoss=3), "allowDataLoss must not be above"),
    ("OffsetsPartition", "p", {"index": 0}, "spec.topicRef"),
]


@pytest.mark.parametrize(("kind", "name", "spec", "expected"), REFUSED, ids=[f"{r[0]}-{r[3]}" for r in REFUSED])
def test_wrong_resource_is_refused_naming_the_field(
    shared_namespace: str, kind: str, name: str, spec: dict[str, object], expected: str
) -> None:
    answer = kubectl("apply", "-f", "-", stdin=resource(kind, shared_namespace, name, spec), check=False)
    assert answer.returncode != 0
    assert expected in answer.stderr


def test_gateway_with_tls_and_logins_on_all_sides_is_taken(namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=resource("CoordinatorCluster", namespace, "a", SECURED))


RESTORE: dict[str, object] = {"restoreFrom": {"store": {"claim": "backups"}}}

CHANGED = [
    ("OffsetsTopic", topic_spec(partitions=4), topic_spec(partitions=8), "partitions is immutable"),
    ("OffsetsTopic", topic_spec(), {"clusterRef": {"name": "b"}}, "clusterRef is immutable"),
    ("OffsetsTopic", topic_spec(), topic_spec(topic="__transaction_state"), "topic is immutable"),
    ("OffsetsPartition", partition_spec(), partition_spec(index=1), "index is immutable"),
    ("OffsetsPartition", partition_spec(), {"topicRef": {"name": "u"}, "index": 0}, "topicRef is immutable"),
    ("MusterUser", user_spec(), {"clusterRef": {"name": "b"}}, "clusterRef is immutable: make another"),
    ("MusterBackup", user_spec(), user_spec(verify=True), "spec is immutable: make another MusterBackup"),
    ("ConsumerGroup", group_spec(), group_spec(clusterRef={"name": "b"}), "clusterRef is immutable: make another"),
    ("ConsumerGroup", group_spec(), group_spec(group="h"), "group is immutable: make another"),
    (
        "ConsumerGroup",
        group_spec(reset=RESET),
        group_spec(reset=RESET | {"to": "latest"}),
        "a reset counts once for its id",
    ),
    ("CoordinatorCluster", {}, {"storage": {"storageClassName": "x"}}, "storage.storageClassName is immutable"),
    ("CoordinatorCluster", {"clusterId": "one"}, {"clusterId": "two"}, "clusterId is set once"),
    ("CoordinatorCluster", {"clusterId": "one"}, {}, "clusterId is set once"),
    ("CoordinatorCluster", {"upstream": UPSTREAM}, {}, "spec.upstream cannot be taken back"),
    (
        "CoordinatorCluster",
        {"upstream": {**UPSTREAM, "movableGroups": ["k-", "m-"]}},
        {"upstream": {**UPSTREAM, "movableGroups": []}},
        "movableGroups cannot be emptied",
    ),
    (
        "CoordinatorCluster",
        {"upstream": {**UPSTREAM, "movableGroups": ["k-"]}},
        {"upstream": UPSTREAM},
        "movableGroups cannot be emptied",
    ),
    ("CoordinatorCluster", {}, RESTORE, "spec.restoreFrom is set when the cluster is created"),
    ("CoordinatorCluster", RESTORE, {}, "spec.restoreFrom is set when the cluster is created"),
    (
        "CoordinatorCluster",
        RESTORE,
        {"restoreFrom": {"store": {"claim": "other"}}},
        "spec.restoreFrom is set when the cluster is created",
    ),
    ("CoordinatorCluster", {}, {"storage": {"size": "9Gi"}}, "must not fall below status.volumeSize"),
    ("CoordinatorCluster", {}, archive("1Gi"), "storage.archive is set when the cluster is created"),
    ("CoordinatorCluster", archive("1Gi"), {}, "storage.archive is set when the cluster is created"),
    ("CoordinatorCluster", archive("2Gi"), archive("1Gi"), "must not fall below status.archiveSize"),
    (
        "CoordinatorCluster",
        archive("1Gi"),
        archive("1Gi", storageClassName="x"),
        "archive.storageClassName is immutable",
    ),
]
"""Kind, spec before and after, and what is said."""

BY_STATUS = [
    (
        "CoordinatorCluster",
        {},
        {"status": {"clusterId": "one"}},
        {"spec": {"clusterId": "two"}},
        "spec.clusterId must be status.clusterId",
    ),
    ("OffsetsPartition", partition_spec(), {"status": {"epoch": 5}}, {"status": {"epoch": 4}}, "epoch never falls"),
    ("OffsetsPartition", partition_spec(), {"status": {"epoch": 5}}, {"status": {"epoch": None}}, "epoch never falls"),
]
"""Kind, spec, status that an operator has written, the patch, and what is said."""


@pytest.mark.parametrize("row", range(len(CHANGED)), ids=[f"{row[0]}-{row[3]}-{row[2]}" for row in CHANGED])
def test_change_of_an_immutable_field_is_refused_saying_why(shared_namespace: str, row: int) -> None:
    kind, before, after, expected = CHANGED[row]
    kubectl("apply", "-f", "-", stdin=resource(kind, shared_namespace, f"changed-{row}", before))
    answer = kubectl("apply", "-f", "-", stdin=resource(kind, shared_namespace, f"changed-{row}", after), check=False)
    assert answer.returncode != 0
    assert expected in answer.stderr


def test_restore_that_is_over_can_be_taken_out_of_the_spec(namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=resource("CoordinatorCluster", namespace, "x", RESTORE))
    status = json.dumps({"status": {"restore": {"phase": "Completed"}}})
    at = ("-n", namespace, "coordinatorcluster", "x", "--type=merge")
    kubectl("patch", *at, "--subresource=status", "-p", status)
    kubectl("patch", *at, "-p", json.dumps({"spec": {"restoreFrom": None}}))


def test_list_of_movable_groups_can_get_shorter(namespace: str) -> None:
    for movable in (["k-", "m-"], ["m-"], ["x-"]):
        spec = {"upstream": {**UPSTREAM, "movableGroups": movable}}
        kubectl("apply", "-f", "-", stdin=resource("CoordinatorCluster", namespace, "x", spec))


def test_new_objects_are_not_ready_and_have_defaults(namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=resource("CoordinatorCluster", namespace, "a", {}))
    kubectl("apply", "-f", "-", stdin=resource("OffsetsTopic", namespace, "t", topic_spec()))
    cluster, topic = (
        json.loads(kubectl("get", name, "-n", namespace, "-o", "json").stdout)
        for name in ("coordinatorcluster/a", "offsetstopic/t")
    )
    assert cluster["spec"]["pods"] == 3
    assert cluster["spec"]["failover"] == {
        "suspectAfter": "1s",
        "electionTimeout": "10s",
        "nominateAfter": "10s",
        "rebalanceAfter": "10s",
        "replaceAfter": "10m",
    }
    assert topic["spec"]["replicationFactor"] == 3
    assert topic["spec"]["partitions"] == 50
    for each in (cluster, topic):
        (ready,) = each["status"]["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "Unknown", "NotSeen")


def test_kubectl_get_shows_the_columns_that_a_person_looks_for(namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=resource("CoordinatorCluster", namespace, "a", {}))
    kubectl("apply", "-f", "-", stdin=resource("OffsetsTopic", namespace, "t", topic_spec()))
    kubectl("apply", "-f", "-", stdin=resource("OffsetsPartition", namespace, "t-0", partition_spec()))
    status = {"leader": "a-1", "epoch": 7, "state": "Led"}
    patch = json.dumps({"status": status})
    kubectl("patch", "offsetspartition/t-0", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    shown = kubectl("get", "coordinatorclusters,offsetstopics,offsetspartitions", "-n", namespace).stdout
    headers = [line.split() for line in shown.splitlines() if line.startswith("NAME")]
    assert headers == [
        ["NAME", "READY", "PODS", "UPDATED", "PARTITIONS", "LED", "STATE", "AGE"],
        ["NAME", "READY", "CLUSTER", "PARTITIONS", "REPLICATION", "LED", "STATE", "RESHARD", "AGE"],
        ["NAME", "READY", "LEADER", "EPOCH", "STATE", "FOLLOWING", "AGE"],
    ]
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("offsetspartition")]
    assert row[:5] == ["offsetspartition.muster.dev/t-0", "Unknown", "a-1", "7", "Led"]


@pytest.mark.parametrize(("kind", "spec", "status", "change", "expected"), BY_STATUS)
def test_change_that_the_status_rules_out_is_refused_saying_why(
    namespace: str,
    kind: str,
    spec: dict[str, object],
    status: dict[str, object],
    change: dict[str, object],
    expected: str,
) -> None:
    kubectl("apply", "-f", "-", stdin=resource(kind, namespace, "x-0", spec))

    def patch(body: object, *arguments: str) -> subprocess.CompletedProcess[str]:
        name = f"{kind.lower()}/x-0"
        return kubectl("patch", name, "-n", namespace, "--type=merge", "-p", json.dumps(body), *arguments, check=False)

    assert patch(status, "--subresource=status").returncode == 0
    refused = patch(change, *(["--subresource=status"] if "status" in change else []))
    assert refused.returncode != 0
    assert expected in refused.stderr


@pytest.mark.parametrize("overlay", ["development", "three-zones", "in-front-of-kafka"])
def test_clusters_of_the_sample_repository_are_taken(namespace: str, overlay: str) -> None:
    folder = REPOSITORY / "examples" / "gitops" / "clusters" / overlay
    rendered = [*yaml.safe_load_all(kubectl("kustomize", str(folder)).stdout)]
    ours = [each for each in rendered if each["apiVersion"] == "muster.dev/v1alpha1"]
    assert len(ours) >= 2
    for each in ours:
        each["metadata"]["namespace"] = namespace
    kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(ours))


@pytest.mark.parametrize("quantity", ["1", '"0.5"', "1Gi", "1e3", "500m", '"1.5Gi"'])
def test_quantities_are_taken_as_everybody_writes_them(namespace: str, quantity: str) -> None:
    text = f"""
    apiVersion: muster.dev/v1alpha1
    kind: CoordinatorCluster
    metadata: {{name: a, namespace: {namespace}}}
    spec: {{resources: {{requests: {{cpu: {quantity}, memory: {quantity}}}}}}}
    """
    kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)


def test_partitions_are_selected_by_topic_leader_and_state(namespace: str) -> None:
    for index in (0, 1):
        kubectl(
            "apply", "-f", "-", stdin=resource("OffsetsPartition", namespace, f"t-{index}", partition_spec(index=index))
        )
    patch = json.dumps({"status": {"leader": "a-1", "epoch": 7, "state": "Led"}})
    kubectl("patch", "mop/t-1", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    for selector, found in (
        ("status.leader=a-1", ["t-1"]),
        ("status.state=Led", ["t-1"]),
        ("spec.topicRef.name=t", ["t-0", "t-1"]),
    ):
        names = kubectl("get", "mop", "-n", namespace, "-o", "name", "--field-selector", selector).stdout.split()
        assert [name.rpartition("/")[2] for name in names] == found


def test_person_who_may_view_or_edit_a_namespace_may_do_so_with_these_resources(namespace: str) -> None:
    kubectl("apply", "-f", str(REPOSITORY / "config/roles.yaml"))
    for role, verb, expected in (("view", "get", "yes"), ("view", "patch", "no"), ("edit", "patch", "yes")):
        kubectl(
            "create", "rolebinding", f"{role}-{verb}", "-n", namespace, f"--clusterrole={role}", f"--user={role}-{verb}"
        )

        def may(role: str = role, verb: str = verb) -> str:
            question = (verb, "coordinatorclusters.muster.dev", "-n", namespace, "--as", f"{role}-{verb}")
            return kubectl("auth", "can-i", *question, check=False).stdout.strip()

        wait_until(lambda may=may, expected=expected: may() == expected, f"{role} may {verb}: {expected}", 30)
