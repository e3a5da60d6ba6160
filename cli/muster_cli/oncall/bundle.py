"""`muster bundle`: all that somebody needs who helps from afar, in one archive, without secrets.

Secrets are never read, nor objects of other programs. All goes through `redact`. What may not be read, or is gone, is
listed in missing.txt.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Collection, Mapping
from importlib.metadata import version
from pathlib import Path

import msgspec
from rich.console import Console

from muster_cli.errors import CliError
from muster_cli.oncall.doctor import diagnose
from muster_cli.oncall.facts import read_facts
from muster_cli.oncall.kubernetes import KubernetesReader
from muster_cli.oncall.redact import redacted, redacted_text
from muster_cli.oncall.screen import diagnosis, screen
from muster_cli.oncall.seen import Seen, Unreachable
from muster_cli.oncall.status import build_status
from muster_operator.api.durations import format_time
from muster_operator.kube.client import Json, KubeError
from muster_operator.kube.gateway_manifests import GATEWAY_LABEL
from muster_operator.kube.manifests import CLUSTER_LABEL, METRICS_PORT
from muster_operator.kube.objects import API_VERSION
from muster_operator.kube.objects_seen import RESOURCES
from muster_operator.store.port import NotFoundError, StoreError

OBJECTS = (
    *((f"/apis/{API_VERSION}", each.plural) for each in RESOURCES),
    *(("/api/v1", each) for each in ("pods", "services", "persistentvolumeclaims")),
    *(("/apis/apps/v1", each) for each in ("statefulsets", "deployments")),
    ("/apis/policy/v1", "poddisruptionbudgets"),
    ("/apis/networking.k8s.io/v1", "networkpolicies"),
    ("/apis/events.k8s.io/v1", "events"),
)
"""The objects in the namespace of a cluster, the Events last: those are kept that are about one of the others."""
OF_EVERYBODY = ("networkpolicies", "poddisruptionbudgets")
"""Kinds of which those of other programs are kept as well: they act on our pods."""
OF_NO_NAMESPACE = (("/api/v1", "nodes"), ("/apis/storage.k8s.io/v1", "storageclasses"))
OPERATOR = "app.kubernetes.io/name=muster-operator"


class Bundle:
    """Files by their names in the archive, and what is missing."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.missing: list[str] = []

    def put(self, name: str, text: str) -> None:
        self.files[name] = text.encode()

    def put_json(self, name: str, value: object) -> None:
        self.files[name] = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


async def collect(reader: KubernetesReader, now: float, log_lines: int) -> Bundle:
    """`now`: seconds since 1970. `log_lines`: at most, of each container. Raises Unreachable."""
    bundle, clusters = Bundle(), await reader.look()
    try:
        await _collect(bundle, reader, clusters, now, log_lines)
    except StoreError as error:
        raise Unreachable(f"the API server: {error}") from error
    bundle.put("missing.txt", "".join(f"{each}\n" for each in bundle.missing))
    return bundle


async def _collect(
    bundle: Bundle, reader: KubernetesReader, clusters: tuple[Seen, ...], now: float, log_lines: int
) -> None:
    told = build_status(clusters, now)
    bundle.put_json("status.json", redacted(msgspec.to_builtins(told)))
    bundle.put("status.txt", redacted_text(_printed(screen(told, now))))
    server = await reader.client.get("/version")
    images = sorted({pod.image for each in clusters for pod in each.pods if pod.image})
    made = {"muster": version("muster"), "kubernetes": server, "images": images, "time": format_time(now)}
    bundle.put_json("versions.json", made)
    for each in clusters:
        found = diagnose(await read_facts(reader, each), now)
        name = f"doctor/{found.namespace}-{found.cluster}"
        bundle.put_json(f"{name}.json", redacted(msgspec.to_builtins(found)))
        bundle.put(f"{name}.txt", redacted_text(_printed(diagnosis(found, show_all=True))))
    for api, plural in OF_NO_NAMESPACE:
        await _put_objects(bundle, reader, f"{api}/{plural}", f"objects/{plural}", set())
    for namespace in dict.fromkeys(each.cluster.metadata.namespace for each in clusters):
        ours: set[str] = set()
        for api, plural in OBJECTS:
            path = f"{api}/namespaces/{namespace}/{plural}"
            kept = await _put_objects(bundle, reader, path, f"objects/{namespace}/{plural}", ours)
            ours |= {each["metadata"]["name"] for each in kept}
        for label in (CLUSTER_LABEL, GATEWAY_LABEL):
            for pod in await _pods(bundle, reader, namespace, label):
                await _put_logs(bundle, reader, pod, log_lines)
                await _put_metrics(bundle, reader, pod)
    holders = {each.operator.holder.partition("/")[0] for each in clusters if each.operator and each.operator.holder}
    for namespace in sorted(holders):
        for pod in await _pods(bundle, reader, namespace, OPERATOR):
            await _put_logs(bundle, reader, pod, log_lines)


async def _put_objects(
    bundle: Bundle, reader: KubernetesReader, path: str, name: str, ours: Collection[str]
) -> list[Json]:
    """Those that are ours, which are returned. `ours`: names of those that are there already."""
    found = await reader.listed_if_allowed(path)
    if found is None:
        bundle.missing.append(f"{path}: may not be read, or there is no such kind")
        return []
    kept = [each for each in found if "/namespaces/" not in path or _is_ours(path, each, ours)]
    bundle.put_json(f"{name}.json", [redacted(each) for each in kept])
    return kept


def _is_ours(path: str, raw: Json, ours: Collection[str]) -> bool:
    plural, labels = path.rpartition("/")[2], raw["metadata"].get("labels") or {}
    if plural == "events":
        return raw.get("regarding", {}).get("name") in ours
    return API_VERSION in path or plural in OF_EVERYBODY or CLUSTER_LABEL in labels or GATEWAY_LABEL in labels


async def _pods(bundle: Bundle, reader: KubernetesReader, namespace: str, label: str) -> list[Json]:
    found = await reader.listed_if_allowed(f"/api/v1/namespaces/{namespace}/pods", label)
    if found is None:
        bundle.missing.append(f"pods of namespace {namespace} with {label}: may not be read")
    return found or []


async def _put_logs(bundle: Bundle, reader: KubernetesReader, pod: Json, lines: int) -> None:
    """The logs of each container, and of its run before this one if it has restarted."""
    meta = pod["metadata"]
    restarted = {each.get("name") for each in pod.get("status", {}).get("containerStatuses", ()) if _restarts(each)}
    for container in pod["spec"]["containers"]:
        name = container["name"]
        for previous in (False, True) if name in restarted else (False,):
            query = [("container", name), ("tailLines", str(lines)), ("timestamps", "true")]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/log"
            file = f"logs/{meta['namespace']}/{meta['name']}/{name}{'.previous' if previous else ''}.log"
            await _put_text(bundle, reader, path, [*query, ("previous", "true")] if previous else query, file)


async def _put_metrics(bundle: Bundle, reader: KubernetesReader, pod: Json) -> None:
    """Asks through the API server; it takes the right to get pods/proxy, and a NetworkPolicy may stand in the way."""
    meta = pod["metadata"]
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}:{METRICS_PORT}/proxy/metrics"
    await _put_text(bundle, reader, path, [], f"metrics/{meta['namespace']}/{meta['name']}.txt")


async def _put_text(
    bundle: Bundle, reader: KubernetesReader, path: str, query: list[tuple[str, str]], name: str
) -> None:
    try:
        bundle.put(name, redacted_text(await reader.client.get_text(path, query)))
    except (KubeError, NotFoundError) as error:
        bundle.missing.append(redacted_text(f"{name}: {error}"))


def _restarts(container: Json) -> int:
    return int(container.get("restartCount", 0))


def _printed(what: object) -> str:
    to = Console(width=140, file=io.StringIO(), highlight=False)
    with to.capture() as captured:
        to.print(what, soft_wrap=True)
    return captured.get()


def write(files: Mapping[str, bytes], output: Path, now: float) -> None:
    """Writes a tar.gz with one folder, named as the file. Only its owner may read it. Raises CliError."""
    folder = output.name.removesuffix(".tar.gz").removesuffix(".tgz")
    try:
        output.touch(mode=0o600)
        output.chmod(0o600)  # also if it was there
        with tarfile.open(output, "w:gz") as archive:
            for name, content in sorted(files.items()):
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), int(now), 0o600
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise CliError(f"cannot write {output}: {error.strerror}") from error
