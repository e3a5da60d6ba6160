"""No key of a certificate is in logs, errors, conditions, events or metrics of the operator, whatever goes wrong."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("cryptography")

from structlog.testing import capture_logs
from tests.unit.kube.test_kube_certificates import KEY, RECORD, Site, asking
from tests.unit.kube.test_manifests import cluster
from tests.unit.operator.storm_kube import NAMESPACE

from muster_operator.certificates.record import ClusterCertificates
from muster_operator.certificates.rotation import LEAF_LIFETIME
from muster_operator.kube.certificates import RECORDS
from muster_operator.kube.workload import KubeWorkload
from muster_operator.metrics import OperatorMetrics


def lines_of(keys: list[bytes]) -> set[str]:
    return {line for key in keys for line in key.decode().splitlines() if "-----" not in line}


@pytest.mark.parametrize("wrong", ["nothing", "refused", "a damaged record", "a Secret of a person without its CA"])
async def test_keys_are_told_nowhere(tmp_path: Path, wrong: str) -> None:
    site, declared = Site(tmp_path), cluster()
    with capture_logs() as logs:
        certificates = site.operator()
        workload = KubeWorkload(site.api.as_client(), "muster:1", certificates=certificates)
        await workload.ensure_pods(declared)
        keys = lines_of([site.secret("a-pod-tls")["tls.key"], site.secret("a-reader-tls")["tls.key"]])
        keys |= lines_of([each.read_bytes() for each in tmp_path.rglob("tls.key")])
        record = msgspec.msgpack.decode(site.secret(RECORDS)["a"], type=ClusterCertificates)
        keys |= lines_of([record.authorities.current.key])
        site.later(LEAF_LIFETIME / 2)
        if wrong == "refused":
            site.api.refused = "a-pod-tls"
        elif wrong == "a damaged record":
            found = site.api.objects.get("secrets", NAMESPACE, RECORDS)
            assert found is not None
            cut = base64.b64encode(base64.b64decode(found["data"]["a"])[:-9]).decode()
            site.api.objects.handle("PUT", RECORD, {}, {**found, "data": {"a": cut}})
            certificates = site.operator()  # one that remembers the record writes it again
            workload = KubeWorkload(site.api.as_client(), "muster:1", certificates=certificates)
        elif wrong != "nothing":
            declared = asking(pod_secret="pods", operator_secret="mine")
            data = {each: base64.b64encode(site.secret("a-pod-tls")[each]).decode() for each in ("tls.crt", "tls.key")}
            body = {"metadata": {"name": "mine"}, "data": data}
            site.api.objects.handle("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", {}, body)
        await workload.ensure_pods(declared)
    state = workload.state(declared)
    assert bool(state.certificates) == (wrong != "nothing")
    metrics = OperatorMetrics()
    metrics.certificates_end.labels(*KEY).set(state.certificates_end)
    told = [repr(logs), repr(state), metrics.render().decode(), repr(certificates.tls(KEY)), repr(record)]
    keys |= {each for raw in site.api.objects.all("secrets") for each in raw["data"].values()}  # as Kubernetes has them
    assert len(keys) > 12
    assert [line for line in keys if any(line in text for text in told)] == []
