"""A thin client over the API client of `kubernetes.aio`: JSON objects in and out, and the errors of the store port.

The generated API classes of the library build a model object for each answer. The operator decodes only what it needs,
with msgspec, so that a write of 50 statuses costs the API server's time and little of its own.

Errors (see `store.port`): KubeError is a StoreError with the HTTP status. The API server's 409 to a write with a
resourceVersion is a ConflictError, its 404 a NotFoundError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from muster_operator.kube.connections import ApiServerConnections
from muster_operator.store.port import ConflictError, NotFoundError, StoreError

FIELD_MANAGER = "muster-operator"
"""The one field manager of everything that the operator applies."""

REQUEST_TIMEOUT_S = 10.0
"""The longest wait for one answer, in seconds, if the caller names no other."""

Json = dict[str, Any]

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class KubeError(StoreError):
    """The API server answered with an error, or did not answer (status 0)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_refused(error: StoreError) -> bool:
    """True if the API server answered that the object does not exist, or may not be read."""
    return isinstance(error, NotFoundError) or (isinstance(error, KubeError) and error.status == 403)


def _nothing(verb: str, resource: str) -> None:
    """Nobody counts."""


async def connect(kubeconfig: str = "", context: str = "", wrote: Callable[[str, str], None] = _nothing) -> KubeClient:
    """A client by the service account of this pod, or else by KUBECONFIG. If a file or a context of one is named, by
    that. `wrote`: see KubeClient.
    """
    configuration = Configuration()
    try:
        await _load_config(configuration, kubeconfig, context)
    except config.ConfigException as error:
        raise KubeError(0, f"no way to a Kubernetes API server: run in a pod, or set KUBECONFIG ({error})") from error
    api = ApiClient(configuration)
    api.rest_client = ApiServerConnections(configuration)
    return KubeClient(api, wrote=wrote)


def uses_service_account(kubeconfig: str = "", context: str = "") -> bool:
    """True if `connect` takes the service account of this pod."""
    return not kubeconfig and not context and "KUBERNETES_SERVICE_HOST" in os.environ


def context_namespace(kubeconfig: str = "", context: str = "") -> str:
    """The namespace that a context of a kubeconfig names, by default the current one; "": it names none."""
    loaders: Any = config
    try:
        contexts, current = loaders.list_kube_config_contexts(config_file=_kubeconfig(kubeconfig))
    except config.ConfigException:
        return ""
    chosen = next((each for each in contexts if each["name"] == context), None) if context else current
    return str((chosen or {}).get("context", {}).get("namespace") or "")


async def _load_config(configuration: Configuration, kubeconfig: str, context: str) -> None:
    loaders: Any = config  # the library's loaders carry no types
    if uses_service_account(kubeconfig, context):
        loaders.load_incluster_config(client_configuration=configuration)
    else:
        file = _kubeconfig(kubeconfig)
        await loaders.load_kube_config(config_file=file, context=context or None, client_configuration=configuration)


def _kubeconfig(named: str) -> str:
    """The library reads KUBECONFIG once, when it is imported."""
    loaders: Any = config
    return named or os.environ.get("KUBECONFIG") or os.path.expanduser(loaders.KUBE_CONFIG_DEFAULT_LOCATION)


class KubeClient:
    """Requests by path, such as /api/v1/namespaces/default/pods.

    `wrote` is told each request that could change something, also one that fails: verb and resource as rules of RBAC
    have them, such as `update` of `offsetstopics/status`. A dry run changes nothing.
    """

    def __init__(
        self, api: ApiClient, timeout: float = REQUEST_TIMEOUT_S, wrote: Callable[[str, str], None] = _nothing
    ) -> None:
        self._api: Any = api  # close() and read() carry no types
        self._timeout = timeout
        self._wrote = wrote

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def get(self, path: str, timeout: float | None = None) -> Json:
        """One object."""
        return await self._request("GET", path, timeout=timeout)

    async def get_text(self, path: str, query: Sequence[tuple[str, str]] = ()) -> str:
        """Reads text that is no object: a log, or the answer of a pod."""
        accepted = {"Accept": "text/plain, */*"}
        return (await self._send("GET", path, list(query), headers=accepted)).decode(errors="replace")

    async def list_all(self, path: str, *, label_selector: str = "") -> Json:
        """All objects as a List: `items`, and the resourceVersion in `metadata`."""
        query = [("labelSelector", label_selector)] if label_selector else []
        return await self._request("GET", path, query)

    async def look(self, path: str, *, metadata_only: bool = False) -> Json:
        """One object, by the right to patch it: a merge patch of nothing, as a dry run, which changes nothing. An
        account that may not patch it is not shown it. NotFoundError if there is none.
        """
        form = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1" if metadata_only else ""
        headers = {"Content-Type": "application/merge-patch+json", "Accept": f"application/json{form}"}
        return await self._request("PATCH", path, [("dryRun", "All"), ("fieldManager", FIELD_MANAGER)], {}, headers)

    async def create(self, path: str, body: Json, timeout: float | None = None) -> Json:
        """Create; ConflictError if there is one of that name."""
        return await self._request("POST", path, [("fieldManager", FIELD_MANAGER)], body, timeout=timeout)

    async def replace(self, path: str, body: Json, timeout: float | None = None) -> Json:
        """Replace if the object still has the resourceVersion of `body` (compare-and-swap); else ConflictError."""
        return await self._request("PUT", path, [("fieldManager", FIELD_MANAGER)], body, timeout=timeout)

    async def apply(self, path: str, body: Json) -> Json:
        """Server-side apply as the one field manager; takes over fields that others have set."""
        query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
        return await self._request("PATCH", path, query, body, {"Content-Type": "application/apply-patch+yaml"})

    async def merge(self, path: str, body: Json, *, manager: str, dry_run: bool = False) -> Json:
        """Merge patch in the name of `manager`: fields that `body` has are set, null takes one away.
        `dry_run`: the API server checks it all and stores nothing.
        """
        query = [("fieldManager", manager), *([("dryRun", "All")] if dry_run else [])]
        return await self._request("PATCH", path, query, body, {"Content-Type": "application/merge-patch+json"})

    async def delete(self, path: str, uid: str) -> None:
        """Delete the object with this uid. Does nothing if it is gone, also if another object has its name."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._request("DELETE", path, body=body)
        except (ConflictError, NotFoundError):
            pass

    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Json:
        return msgspec.json.decode(await self._send(method, path, query, body, headers, timeout), type=Json)

    async def _send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]] | None = None,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """The body of the answer."""
        if method in _VERBS and ("dryRun", "All") not in (query or []):
            self._wrote(_VERBS[method], resource_of(path))
        sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        try:
            serialized = await self._api.param_serialize(
                method, path, query_params=query, header_params=sent, body=body, auth_settings=["BearerToken"]
            )
            answer = await self._api.call_api(*serialized, _request_timeout=timeout or self._timeout)
            data = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise KubeError(0, f"{method} {path}: the API server does not answer: {error!r}") from error
        if 200 <= answer.status < 300:
            return bytes(data)
        raise _error(method, path, answer.status, data)


def resource_of(path: str) -> str:
    """The plural of what a path names, and its subresource: `pods`, `offsetstopics/status`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]  # without the version, and the group
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    return "/".join((parts[0], *parts[2:3]))


def _error(method: str, path: str, status: int, data: bytes) -> StoreError:
    try:
        message = str(msgspec.json.decode(data, type=Json).get("message"))
    except msgspec.MsgspecError:
        message = data[:200].decode(errors="replace")
    text = f"{method} {path}: {status} {message}"
    if status == 409:
        return ConflictError(text)
    if status == 404:
        return NotFoundError(text)
    return KubeError(status, text)
