"""`muster ui` in a cluster: with the rights of a viewer it shows clusters to whoever has a login, and only reads."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kube import REPOSITORY, kubectl
from tests.support.muster_cluster import MusterCluster, wait_until

from muster_cli.ui.login import password_line, token_line

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

IMAGE = "docker.io/library/muster:local"
CHART = REPOSITORY / "charts" / "muster"
BUILT_HELM = REPOSITORY / ".cache" / "bin" / "helm"
HELM = str(BUILT_HELM) if BUILT_HELM.exists() else shutil.which("helm")
BASIC = "Basic " + base64.b64encode(b"anna:secret").decode()
BEARER = "Bearer probe-token"


def make_door(namespace: str, folder: Path) -> None:
    """The Secret with the logins and a certificate."""
    (folder / "logins").write_text(f"{password_line('anna', 'secret')}\n{token_line('probe', 'probe-token')}\n")
    made = ("-newkey", "rsa:2048", "-nodes", "-keyout", "tls.key", "-out", "tls.crt", "-days", "2", "-subj", "/CN=ui")
    subprocess.run(["openssl", "req", "-x509", *made], cwd=folder, check=True, capture_output=True)
    files = (f"--from-file={folder / name}" for name in ("logins", "tls.crt", "tls.key"))
    kubectl("-n", namespace, "create", "secret", "generic", "muster-ui", *files)


@pytest.fixture
def ui(muster_cluster: MusterCluster, tmp_path: Path) -> Iterator[str]:
    """Its address, in the namespace of the sample, as config/ui has it but for the image."""
    namespace = muster_cluster.namespace
    make_door(namespace, tmp_path)
    text = (REPOSITORY / "config" / "ui" / "ui.yaml").read_text(encoding="utf-8")
    text = text.replace("image: muster-pipeline", f"image: {IMAGE}").replace(
        "namespace: default", f"namespace: {namespace}"
    )
    kubectl("-n", namespace, "apply", "-f", "-", stdin=text)
    try:
        kubectl("-n", namespace, "rollout", "status", "deployment/muster-ui", "--timeout=120s", timeout_s=130)
        (pod,) = muster_cluster.objects("pods", "-l", "app.kubernetes.io/name=muster-ui")
        yield f"https://{pod['status']['podIP']}:9650"
    finally:
        print(kubectl("-n", namespace, "logs", "deployment/muster-ui", "--tail=40", check=False).stdout)
        kubectl("-n", namespace, "delete", "--wait=false", "-f", "-", stdin=text)
        kubectl("-n", namespace, "delete", "secret", "muster-ui")


def answered(url: str, login: str = "", method: str = "GET") -> tuple[int, str]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": login} if login else {}
    try:
        asked = urllib.request.Request(url, headers=headers, method=method)
        with urllib.request.urlopen(asked, timeout=30, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_pages_are_for_those_with_a_login_and_change_nothing(ui: str, muster_cluster: MusterCluster) -> None:
    name, namespace = muster_cluster.name, muster_cluster.namespace
    for login in ("", "Basic " + base64.b64encode(b"anna:wrong").decode(), "Bearer another"):
        code, page = answered(ui, login)
        assert (code, name in page) == (401, False)
    for login in (BASIC, BEARER):
        code, page = answered(ui, login)
        assert (code, name in page) == (200, True)
    overview = f"{ui}/cluster/{namespace}/{name}"
    wait_until(lambda: f"{name}-2" in answered(overview, BASIC)[1], "the overview has the pods")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert answered(overview, BASIC, method)[0] in (404, 405)
    who = f"--as=system:serviceaccount:{namespace}:muster-ui"
    for right in ("patch coordinatorclusters", "delete pods", "update offsetspartitions/status", "get secrets"):
        said = kubectl("-n", namespace, "auth", "can-i", *right.split(), who, check=False).stdout
        assert said.strip() == "no", right


@pytest.mark.skipif(HELM is None, reason="needs helm: make helm")
@pytest.mark.parametrize("more", [(), ("--set", "operator.watchNamespace=muster-end-to-end")], ids=["all", "one"])
def test_the_api_server_takes_what_the_chart_has_for_it(muster_cluster: MusterCluster, more: tuple[str, ...]) -> None:
    asked = ("template", "muster", str(CHART), "-n", muster_cluster.namespace, "-s", "templates/ui.yaml")
    done = subprocess.run([str(HELM), *asked, "--set", "ui.enabled=true", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", stdin=done.stdout).stdout
    kinds = {each["kind"] for each in json.loads(said)["items"]}
    binding = "RoleBinding" if more else "ClusterRoleBinding"
    assert kinds == {"ServiceAccount", binding, "Service", "Deployment", "NetworkPolicy"}
