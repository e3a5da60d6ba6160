"""A Kubernetes for the tests: what this machine lacks for one, and a running cluster with our image on its node.

kind is used where Docker and kind are, hack/localkube otherwise. Tests learn of the cluster by the environment
variables in `running_cluster`, and reach pods by their addresses.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LOCALKUBE = REPOSITORY / "hack" / "localkube" / "cluster"
IMAGE = REPOSITORY / "hack" / "image"
HELM = REPOSITORY / "hack" / "helm"
OPERATOR_VERIFY = REPOSITORY / "hack" / "operator-verify"
KIND_NAME = "muster-test"
MUSTER_IMAGE = "docker.io/library/muster:local"
PIPELINE_IMAGE = "docker.io/library/muster-pipeline:local"
KAFKA_IMAGE = "docker.io/library/muster-kafka:local"
LATER_IMAGE = "docker.io/library/muster-later:local"
OLM_IMAGE = "docker.io/library/muster-olm:local"
IMAGES = {
    "": MUSTER_IMAGE,
    "pipeline": PIPELINE_IMAGE,
    "kafka": KAFKA_IMAGE,
    "later": LATER_IMAGE,
    "olm": OLM_IMAGE,
}
"""The images, by the name that hack/image knows."""
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/local/go/bin:/usr/sbin:/sbin"

# What localkube and the image build call, and the Debian package that has it.
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "nft": "nftables",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "pgrep": "procps",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
}


class ClusterError(Exception):
    """The cluster or the image could not be made; the tool's own output, already printed, says why."""


def missing() -> list[str]:
    """Instructions, one for each thing that this machine lacks to run a Kubernetes; empty when it can."""
    return [] if has_kind() else localkube_missing()


def localkube_missing() -> list[str]:
    """The same for hack/localkube, which alone has nodes that can be lost."""
    lacks = []
    if sys.platform != "linux" or os.geteuid() != 0:
        lacks.append("a Kubernetes of our own needs root on Linux (or Docker with kind)")
    if not has("go") and not localkube_is_built():
        lacks.append("Go is not here to compile Kubernetes: install it from https://go.dev/dl")
    packages = [package for tool, package in PACKAGES.items() if not has(tool)]
    if not Path("/usr/lib/cni/bridge").exists():
        packages.append("containernetworking-plugins")
    if packages:
        lacks.append("missing programs: apt-get install " + " ".join(packages))
    return lacks


def client_tools() -> dict[str, str]:
    """helm, operator-verify and kubectl for tests without a cluster, as far as they can be had. Raises ClusterError."""
    if has("go"):
        call(HELM)
        call(OPERATOR_VERIFY)
    if has("kubectl") or missing():
        return {}
    call(LOCALKUBE, "build")
    return our_kubectl()


@contextmanager
def running_cluster(
    pipeline: bool = False, kafka: bool = False, later: bool = False, olm: bool = False
) -> Iterator[dict[str, str]]:
    """A cluster with the image muster:local on its node, and on demand those of the pipeline, of a Kafka broker, of a
    later Muster and of the Operator Lifecycle Manager: the environment for tests.

    MUSTER_TEST_KUBECONFIG says where it is (tests never touch the cluster of KUBECONFIG), and PATH has a kubectl. A
    cluster that was up before stays up; one that we started is stopped. Raises ClusterError.
    """
    provider = kind_cluster if has_kind() else localkube_cluster
    asked = {"pipeline": pipeline, "kafka": kafka, "later": later, "olm": olm}
    more = [name for name, wanted in asked.items() if wanted]
    with provider(["", *more]) as environment:
        yield environment | {f"MUSTER_TEST_{name.upper()}_IMAGE": IMAGES[name] for name in more}


@contextmanager
def cluster_of_nodes(nodes: int) -> Iterator[dict[str, str]]:
    """A cluster with as many nodes, beside the one of `running_cluster`. Raises ClusterError."""
    with localkube_cluster([""], NAME=localkube_setting("NAME") + "-n", NODES=str(nodes)) as environment:
        yield environment


@contextmanager
def cluster_of_version(version: str) -> Iterator[dict[str, str]]:
    """A cluster of another version of Kubernetes than that of `running_cluster`, beside it. Raises ClusterError."""
    with localkube_cluster([""], KUBERNETES_VERSION=version) as environment:
        yield environment


@contextmanager
def localkube_cluster(images: list[str], **settings: str) -> Iterator[dict[str, str]]:
    call(LOCALKUBE, "build", **settings)
    for image in images:
        call(IMAGE, "build", image)
    status = subprocess.run([LOCALKUBE, "status"], env=os.environ | settings, capture_output=True, check=False)
    try:
        call(LOCALKUBE, "up", **settings)
        for image in images:
            with image_archive(image) as archive:
                call(LOCALKUBE, "load", archive, **settings)
        yield {
            "MUSTER_TEST_KUBECONFIG": localkube_setting("KUBECONFIG", **settings),
            "MUSTER_TEST_AUDIT": localkube_setting("AUDIT", **settings),
            "MUSTER_TEST_LOCALKUBE": localkube_setting("NAME", **settings),
        } | our_kubectl(**settings)
    finally:
        if status.returncode != 0:
            call(LOCALKUBE, "down", **settings)


@contextmanager
def kind_cluster(images: list[str]) -> Iterator[dict[str, str]]:
    for image in images:
        call(IMAGE, "build", image, BUILDER="docker")
    created = KIND_NAME not in output("kind", "get", "clusters").split()
    if created:
        call("kind", "create", "cluster", "--name", KIND_NAME, "--wait", "120s")
    try:
        for image in images:
            call("kind", "load", "docker-image", IMAGES[image], "--name", KIND_NAME)
        route_to_kind_pods()
        with tempfile.TemporaryDirectory() as directory:
            kubeconfig = Path(directory) / "kubeconfig"
            kubeconfig.write_text(output("kind", "get", "kubeconfig", "--name", KIND_NAME))
            yield {"MUSTER_TEST_KUBECONFIG": str(kubeconfig)}
    finally:
        if created:
            call("kind", "delete", "cluster", "--name", KIND_NAME)


def route_to_kind_pods() -> None:
    """kind's pods live behind the node's container: the tests' clients need a route to them."""
    node = f"{KIND_NAME}-control-plane"
    address = output("docker", "inspect", "-f", "{{.NetworkSettings.Networks.kind.IPAddress}}", node).strip()
    call("ip", "route", "replace", "10.244.0.0/16", "via", address)


@contextmanager
def image_archive(image: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "image.tar"
        call(IMAGE, "save", archive, image)
        yield archive


def has(tool: str) -> bool:
    return shutil.which(tool, path=SEARCH_PATH) is not None


def has_kind() -> bool:
    """kind with a Docker that answers, and root for the route to its pods."""
    if not (has("kind") and has("docker") and has("kubectl") and os.geteuid() == 0):
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def our_kubectl(**settings: str) -> dict[str, str]:
    """PATH with the kubectl that localkube compiled, of the version of its API server."""
    directory = Path(localkube_setting("KUBE", **settings)).parent / "bin"
    return {"PATH": f"{directory}:{os.environ.get('PATH', '')}"}


def localkube_setting(name: str, **settings: str) -> str:
    """One of the shell assignments that `cluster env` prints."""
    return dict(line.split("=", 1) for line in shlex.split(output(LOCALKUBE, "env", **settings)))[name]


def localkube_is_built() -> bool:
    return Path(localkube_setting("KUBE")).exists()


def output(*command: str | Path, **environment: str) -> str:
    return subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def call(*command: str | Path, **environment: str) -> None:
    """Run a tool with its output on ours. Raises ClusterError."""
    sys.stdout.flush()
    code = subprocess.run(command, env=os.environ | environment, stdin=subprocess.DEVNULL, check=False).returncode
    if code != 0:
        raise ClusterError(f"`{shlex.join(map(str, command))}` ended with exit code {code}")
