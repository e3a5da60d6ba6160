"""`muster bundle`: what is in the archive, and what is not."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.recorded_clusters import NAMESPACE, RecordedServer, recorded

from muster_cli.errors import CliError
from muster_cli.oncall.bundle import Bundle, collect, write
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_operator.kube.client import Json

PASSWORD = "hunter2"
LOG, METRICS = "/api/v1/namespaces/shop/pods/orders-0/log", "/api/v1/namespaces/shop/pods/orders-0:9643/proxy/metrics"


def event(about: str) -> Json:
    regarding = {"kind": "OffsetsPartition", "name": about}
    return {"metadata": {"name": f"of-{about}", "namespace": NAMESPACE}, "regarding": regarding, "note": "Led"}


def pod(name: str, namespace: str, **labels: str) -> Json:
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": labels}
    container = {"name": "main", "env": [{"name": "DB_PASSWORD", "value": PASSWORD}]}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def server(refused: tuple[str, ...] = ()) -> RecordedServer:
    objects = recorded("pod_lost")
    objects["secrets"] = [
        {"kind": "Secret", "metadata": {"name": "s", "namespace": NAMESPACE}, "data": {"x": PASSWORD}}
    ]
    objects["events"] = [event("orders-3"), event("of-somebody-else")]
    objects["pods"][0]["status"]["containerStatuses"] = [{"name": "coordinator", "restartCount": 2}]
    objects["pods"][0]["spec"]["containers"][0]["env"].append({"name": "API_TOKEN", "value": PASSWORD})
    objects["pods"].append(pod("somebody-else", NAMESPACE, app="shop"))
    objects["pods"].append(pod("operator", "muster-system", **{"app.kubernetes.io/name": "muster-operator"}))
    made = RecordedServer(objects, refused)
    made.texts[LOG] = f'{{"event": "login", "password": "{PASSWORD}"}}\n'
    made.texts[METRICS] = "muster_partitions 4\n"
    made.texts["/api/v1/namespaces/muster-system/pods/operator/log"] = "leading\n"
    return made


async def made(source: RecordedServer) -> Bundle:
    return await collect(KubernetesReader(source.client, NAMESPACE), source.objects["now"], 100)


def read(bundle: Bundle, name: str) -> Any:
    return json.loads(bundle.files[name])


async def test_objects_conditions_events_logs_metrics_and_versions_are_there() -> None:
    bundle = await made(server())
    names = set(bundle.files)
    assert {"status.json", "status.txt", "doctor/shop-orders.json", "versions.json", "missing.txt"} <= names
    assert len(read(bundle, "objects/shop/offsetspartitions.json")) == 4
    (cluster,) = read(bundle, "objects/shop/coordinatorclusters.json")
    assert cluster["status"]["conditions"][0]["type"] == "Ready"
    assert [each["regarding"]["name"] for each in read(bundle, "objects/shop/events.json")] == ["orders-3"]
    assert bundle.files["metrics/shop/orders-0.txt"] == b"muster_partitions 4\n"
    assert "logs/shop/orders-0/coordinator.previous.log" in names, "it has restarted"
    assert "logs/muster-system/operator/main.log" in names, "where the Lease says that the operator is"
    assert read(bundle, "versions.json")["kubernetes"] == {"gitVersion": "v1.34.1"}


async def test_secrets_are_never_asked_for_and_nothing_has_what_they_hide() -> None:
    source = server()
    bundle = await made(source)
    assert not [plural for plural, _ in source.asked if "secret" in plural]
    assert [name for name, content in bundle.files.items() if PASSWORD.encode() in content] == []
    assert b"login" in bundle.files["logs/shop/orders-0/coordinator.log"]
    assert {each["metadata"]["name"] for each in read(bundle, "objects/shop/pods.json")} == {
        *("orders-0", "orders-1", "orders-2")
    }


async def test_what_may_not_be_read_is_listed_and_the_rest_is_there() -> None:
    bundle = await made(server(("nodes", "events", "pods/log", "pods/proxy")))
    assert "/api/v1/nodes: may not be read, or there is no such kind" in bundle.missing
    assert any(each.startswith("logs/shop/orders-0/coordinator.log: ") for each in bundle.missing)
    assert any(each.startswith("metrics/shop/orders-0.txt: ") for each in bundle.missing)
    assert bundle.files["missing.txt"].decode().splitlines() == bundle.missing
    assert "objects/shop/pods.json" in bundle.files


async def test_archive_has_one_folder_and_is_its_owners_alone(tmp_path: Path) -> None:
    bundle = await made(server())
    file = tmp_path / "b.tar.gz"
    file.write_text("there was one")
    write(bundle.files, file, 1_000_000.0)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as archive:
        assert sorted(archive.getnames()) == sorted(f"b/{name}" for name in bundle.files)
        content = archive.extractfile("b/status.json")
        assert content is not None
        assert json.load(content)["clusters"][0]["name"] == "orders"
    with pytest.raises(CliError, match="cannot write"):
        write(bundle.files, tmp_path / "none" / "b.tar.gz", 0.0)
