"""An object store as a pod of the tests' Kubernetes: versitygw of this machine, on a volume of the pod."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.kube import kubectl
from tests.support.muster_cluster import wait_until

PORT = 7070
BUCKET = "backups"
IMAGE = "docker.io/library/muster:local"
START_S = 180.0
SCRIPT = f"""
mkdir -p /s3/data/{BUCKET} /s3/meta
until [ -x /s3/versitygw ]; do sleep 0.2; done
exec /s3/versitygw --port :{PORT} --quiet posix --sidecar /s3/meta /s3/data
"""
"""The program comes from outside when the pod runs: an image of its own would be one more to build."""


class S3Pod:
    """`endpoint`: its URL, for pods. The bucket is `BUCKET`."""

    def __init__(self, namespace: str, program: Path) -> None:
        """Runs when this returns."""
        self._namespace = namespace
        self._secret = secrets.token_hex(16)
        kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(self._pod()))
        kubectl("-n", namespace, "wait", "pod/s3", "--for=condition=Ready", "--timeout=60s", timeout_s=70)
        address = kubectl("-n", namespace, "get", "pod", "s3", "-o", "jsonpath={.status.podIP}").stdout
        self.endpoint = f"http://{address}:{PORT}"
        send = "cat >/s3/part && chmod +x /s3/part && mv /s3/part /s3/versitygw"
        with program.open("rb") as file:
            command = ["kubectl", "-n", namespace, "exec", "-i", "s3", "--", "sh", "-ec", send]
            subprocess.run(command, stdin=file, check=True, timeout=START_S)
        wait_until(self._serves, "the object store serves", START_S)

    @property
    def keys(self) -> dict[str, str]:
        """The keys of a Secret with credentials."""
        return {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": self._secret}

    def objects(self) -> list[str]:
        """The names of all objects in the bucket."""
        find = ("exec", "s3", "--", "find", f"/s3/data/{BUCKET}", "-type", "f", "-printf", "%P\\n")
        return kubectl("-n", self._namespace, *find).stdout.split()

    def _serves(self) -> bool:
        ask = f"exec 3<>/dev/tcp/127.0.0.1/{PORT}"
        return kubectl("-n", self._namespace, "exec", "s3", "--", "bash", "-c", ask, check=False).returncode == 0

    def _pod(self) -> dict[str, Any]:
        container = {
            "name": "s3",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-ec", SCRIPT],
            "env": [
                {"name": "ROOT_ACCESS_KEY", "value": "tests"},
                {"name": "ROOT_SECRET_KEY", "value": self._secret},
            ],
            "volumeMounts": [{"name": "s3", "mountPath": "/s3"}],
        }
        spec = {
            "containers": [container],
            "volumes": [{"name": "s3", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "securityContext": {"runAsUser": 10001, "fsGroup": 10001},
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "s3"}, "spec": spec}


@contextmanager
def s3_pod(namespace: str, program: Path) -> Iterator[S3Pod]:
    """Runs in a namespace of its own, which what is backed up does not take with it."""
    kubectl("create", "namespace", namespace)
    try:
        yield S3Pod(namespace, program)
    finally:
        print(kubectl("-n", namespace, "logs", "s3", "--tail=50", check=False).stdout)
        kubectl("delete", "namespace", namespace, "--wait=false")
