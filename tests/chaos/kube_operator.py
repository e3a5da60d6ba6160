"""An operator of a Kubernetes cluster that runs on this machine instead of in a pod, and dies where it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.dying import OPERATOR
from tests.chaos.errors import HarnessError
from tests.chaos.kill_points import Point
from tests.support.kube import kubectl
from tests.support.pod import free_ports

NAMESPACE = "muster-system"
DEPLOYMENT = ("-n", NAMESPACE, "deployment/muster-operator")
SELECTOR = "app.kubernetes.io/name=muster-operator"
IMAGE = "docker.io/library/muster:local"
DIES_IN_S = 60.0


class OutsideOperator:
    """Every process of it has the same name on the Lease, so that the next one need not wait for the last one's."""

    def __init__(self, directory: Path) -> None:
        self._point = directory / "point"
        self._log = directory / "operator.log"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._point.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "MUSTER_OPERATOR_POD": f"chaos-{os.getpid()}",
            "MUSTER_OPERATOR_NAMESPACE": NAMESPACE,
            "MUSTER_OPERATOR_IMAGE": IMAGE,
            "MUSTER_OPERATOR_HEALTH_PORT": str(free_ports(1)[0]),
        }
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.dying", str(self._point), OPERATOR],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def arm(self, point: Point) -> None:
        assert self._child is not None
        self._point.write_text(str(point))
        self._child.send_signal(signal.SIGUSR1)

    def wait_died(self) -> None:
        """Raises HarnessError when it does not come to its point, or ended otherwise."""
        assert self._child is not None
        try:
            code = self._child.wait(DIES_IN_S)
        except subprocess.TimeoutExpired:
            raise HarnessError(
                f"the operator did not come to its point {self._point.read_text()}: {self.last_words()}"
            ) from None
        if code != -signal.SIGKILL:
            raise HarnessError(f"the operator ended with {code}: {self.last_words()}")

    def stop(self) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8").splitlines()[-10:])


@contextmanager
def outside_operator() -> Iterator[OutsideOperator]:
    """In place of the operator's pods, which come back afterwards. What it says last is in the error that ends it."""
    kubectl("scale", *DEPLOYMENT, "--replicas=0")
    kubectl("wait", "-n", NAMESPACE, "--for=delete", "pod", "-l", SELECTOR, "--timeout=50s")
    try:
        with tempfile.TemporaryDirectory() as directory:
            operator = OutsideOperator(Path(directory))
            operator.start()
            try:
                yield operator
            except HarnessError as error:
                raise HarnessError(f"{error}; the operator: {operator.last_words()}") from None
            finally:
                operator.stop()
    finally:
        kubectl("scale", *DEPLOYMENT, "--replicas=1")
        kubectl("rollout", "status", *DEPLOYMENT, "--timeout=55s")
