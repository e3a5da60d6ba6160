"""What listeners ask of clients, as pods of Kubernetes get it: settings, and Secrets as directories."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster_coordinator.process.options import ProcessOptions, parse_options
from muster_operator.api.models import CoordinatorCluster
from muster_operator.kube.manifests import stateful_set
from muster_operator.store.workload import settings_trouble

TLS = {"secret": "outside-tls"}
OUTSIDE = {"name": "outside", "port": 9094, "type": "LoadBalancer"}
SCRAM = {"mechanisms": ["SCRAM-SHA-512", "PLAIN"]}


def cluster(*listeners: dict[str, Any], **spec: Any) -> CoordinatorCluster:
    metadata = {"name": "a", "namespace": "ns", "uid": "u-1"}
    return msgspec.convert({"metadata": metadata, "spec": {"listeners": listeners, **spec}}, CoordinatorCluster)


def pod_spec(subject: CoordinatorCluster) -> dict[str, Any]:
    return dict(stateful_set(subject, "image")["spec"]["template"]["spec"])


def options(subject: CoordinatorCluster, monkeypatch: pytest.MonkeyPatch) -> ProcessOptions:
    """As the pod reads them."""
    for each in pod_spec(subject)["containers"][0]["env"]:
        monkeypatch.setenv(each["name"], each.get("value", "a-1").replace("$(POD_IP)", "10.0.0.1"))
    assert settings_trouble(subject) == ""
    return parse_options([])


def test_plain_listener_inside_and_tls_with_logins_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = cluster(
        {"name": "internal"},
        OUTSIDE | {"tls": TLS, "authentication": SCRAM},
        access={"usersSecret": "people", "aclsSecret": "rights"},
    )
    settings = options(subject, monkeypatch).settings
    inside, outside = settings.of_listener(""), settings.of_listener("outside")
    assert (inside.tls.listener_tls_dir, inside.sasl.sasl_enabled_mechanisms) == ("", "")
    assert outside.tls.listener_tls_dir == "/etc/muster/tls-outside"
    assert outside.sasl.sasl_enabled_mechanisms == "SCRAM-SHA-512,PLAIN"
    assert settings.sasl.users_file == "/etc/muster/users/users.json"
    assert settings.access.acls_file == "/etc/muster/acls/acls.json"
    spec = pod_spec(subject)
    secrets = {each["name"]: each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each}
    assert secrets == {"tls-outside": "outside-tls", "users": "people", "acls": "rights"}
    mounts = {each["name"]: each for each in spec["containers"][0]["volumeMounts"]}
    for name in secrets:
        assert (mounts[name]["mountPath"], mounts[name]["readOnly"]) == (f"/etc/muster/{name}", True)
    group = {each["secret"]["defaultMode"] for each in spec["volumes"] if "secret" in each}
    assert group == {0o440}, "the files are for the pod's group"


def test_what_the_internal_listener_asks_no_other_one_inherits(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = {"secret": "inside-tls", "clientAuth": "required", "principalMappingRules": "RULE:^CN=(.*?)$/$1/"}
    subject = cluster({"name": "internal", "tls": tls, "authentication": {"mechanisms": ["OAUTHBEARER"]}}, OUTSIDE)
    settings = options(subject, monkeypatch).settings
    inside, outside = settings.of_listener(""), settings.of_listener("outside")
    assert (inside.tls.listener_tls_dir, inside.tls.ssl_client_auth) == ("/etc/muster/tls-internal", "required")
    assert inside.tls.ssl_principal_mapping_rules == "RULE:^CN=(.*?)$/$1/"
    assert inside.sasl.sasl_enabled_mechanisms == "OAUTHBEARER"
    assert (outside.tls.listener_tls_dir, outside.tls.ssl_client_auth) == ("", "none")
    assert outside.sasl.sasl_enabled_mechanisms == ""


def test_setting_by_hand_opens_no_listener_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = cluster(
        {"name": "internal", "authentication": {"mechanisms": ["SCRAM-SHA-512"]}},
        access={"usersSecret": "people"},
        settings={"sasl.enabled.mechanisms": "", "connections.max.reauth.ms": "9"},
    )
    sasl = options(subject, monkeypatch).settings.of_listener("").sasl
    assert (sasl.sasl_enabled_mechanisms, sasl.connections_max_reauth_ms) == ("SCRAM-SHA-512", 9)


def test_bad_mapping_rule_is_told_before_a_pod_fails_by_it() -> None:
    bad = {"secret": "s", "principalMappingRules": "RULE:x"}
    assert "no rule at" in settings_trouble(cluster({"name": "internal", "tls": bad}))


def test_pods_of_a_cluster_that_asks_nothing_are_as_before_and_another_secret_is_another_template() -> None:
    def made_of(subject: CoordinatorCluster) -> str:
        return str(stateful_set(subject, "image")["metadata"]["annotations"]["muster.dev/declared"])

    plain = cluster({"name": "internal"})
    assert made_of(plain) == "c956a0c41af03e4c"
    names = {each["name"] for each in pod_spec(plain).get("volumes", [])}
    assert names & {"users", "acls", "tls-internal"} == set()
    one, other = (cluster({"name": "internal", "tls": {"secret": name}}) for name in ("one", "other"))
    assert len({made_of(plain), made_of(one), made_of(other)}) == 3
