"""The certificates of the clusters on Kubernetes (ADR 35).

The operator keeps the record of each cluster (CA, leaves) in one Secret of the cluster's namespace, beside the Lease,
written by compare-and-swap: the second writer reads what the first has made. The Secrets of pods and readers follow
from the record, and are kept as they follow from it (`MadeSecrets`). Where a person names Secrets, the operator makes
none, and reads its own.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import structlog

from muster_coordinator.security.roles import Role, only
from muster_coordinator.security.tls import AUTHORITIES, CERTIFICATE, KEY, Tls, TlsError, TlsFiles, client_context
from muster_operator.api.models import CoordinatorCluster, Security
from muster_operator.certificates.folder import now_utc, write_leaf
from muster_operator.certificates.issuing import Issued, expiry
from muster_operator.certificates.record import ClusterCertificates, due, operators_leaf
from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.made_secrets import MadeSecrets
from muster_operator.kube.manifests import metadata_of, pod_secret_name, reader_secret_name
from muster_operator.kube.objects import object_path
from muster_operator.kube.record_secrets import ATTEMPTS, encoded, read_secret, secrets_path, swap_secret
from muster_operator.store.port import ClusterKey, ConflictError, NotFoundError, StoreError, key_of

log = structlog.get_logger(__name__)

RECORDS = "muster-operator-certificates"
"""The Secret with the records of all clusters of a namespace: by name, as msgpack."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The Secrets that the last look found or made."""

    uid: str
    security: Security
    at: float
    trouble: str = ""
    end: float = 0.0
    record: ClusterCertificates | None = None


class Certificates:
    """`folder`: where the operator keeps keys of its own while it runs; for its eyes only."""

    def __init__(
        self,
        client: KubeClient,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = now_utc,
    ) -> None:
        self._client = client
        self._folder = folder
        self._clock = clock
        self._now = now
        self._known: dict[ClusterKey, _Known] = {}
        self._leaves: dict[ClusterKey, Issued] = {}
        self._tls: dict[ClusterKey, Tls] = {}
        self._secrets: dict[str, tuple[float, Json | None]] = {}
        """The time at which the records of each namespace were read, and what was found or written since."""
        self._made = MadeSecrets(client)
        self._one_at_a_time = asyncio.Lock()

    def tls(self, key: ClusterKey) -> Tls | None:
        """TLS for calls of pods of this cluster; None until its certificates have been looked at."""
        return self._tls.get(key)

    def trouble(self, key: ClusterKey) -> str:
        """The reason why certificates cannot be renewed; "" if all is well."""
        known = self._known.get(key)
        return "" if known is None else known.trouble

    def end(self, key: ClusterKey) -> float:
        """The end of the cluster's first certificate (seconds since 1970); 0: not known."""
        known = self._known.get(key)
        return 0.0 if known is None else known.end

    async def open(self, key: ClusterKey) -> None:
        """Have `tls` of a cluster that has a record already, which an operator that has just started needs first of
        all. What cannot be read now is left to `keep`."""
        try:
            async with self._one_at_a_time:
                record = _decoded(await self._read(key.namespace), key)
                if record is not None:
                    self._use_record(key, record)
        except (StoreError, OSError, ValueError, TlsError) as error:
            log.warning("certificates_not_read", key=str(key), error=str(error))

    async def keep(self, cluster: CoordinatorCluster) -> bool:
        """Make what is missing, renew what is due, unless all was looked at a moment ago; whether there is news.

        A failure is remembered and tried again at the next look: what is in force is good for a week or more.
        """
        key = key_of(cluster)
        known, now = self._known.get(key), self._clock()
        same = known is not None and (known.uid, known.security) == _about(cluster)
        if known is not None and same and now - known.at < LOOK_EVERY_S:
            return False
        before = (self.trouble(key), self.end(key), self.tls(key))
        looked = replace(known, at=now, trouble="") if known is not None and same else _Known(*_about(cluster), now)
        try:
            async with self._one_at_a_time:
                looked = await self._look(cluster, key, looked)
        except (StoreError, OSError, ValueError, TlsError) as error:
            if known is None or known.trouble != str(error):
                log.warning("certificates_not_kept", key=str(key), error=str(error))
            looked = replace(looked, trouble=str(error), end=self._end_of_stored(key) or looked.end)
        self._known[key] = looked
        return before != (self.trouble(key), self.end(key), self.tls(key))

    def _end_of_stored(self, key: ClusterKey) -> float:
        """The end of the first certificate in the record that was read last; 0: there is none, or it is damaged."""
        _, secret = self._secrets.get(key.namespace, (0.0, None))
        try:
            record = _decoded(secret, key)
        except ValueError:
            return 0.0
        return 0.0 if record is None else record.end.timestamp()

    async def drifted(self, is_there: Callable[[ClusterKey], bool]) -> set[ClusterKey]:
        """The clusters, of those that are there, of which somebody has deleted or changed a Secret. Each is told of
        once; the next `keep` looks.
        """
        found = {key for key in await self._made.drifted(is_there) if key in self._known and self._known[key].at > -inf}
        for key in found:
            self._secrets.pop(key.namespace, None)
            self._known[key] = replace(self._known[key], at=-inf)
        return found

    async def _look(self, cluster: CoordinatorCluster, key: ClusterKey, known: _Known) -> _Known:
        given = cluster.spec.security.operator_secret
        if given is not None:
            self._made.forget(key)
            end = await self._take_given(key, given)
            return replace(known, end=end)
        record = await self._kept(key, cluster.spec.security.ca_round)
        for manifest in _secrets(cluster, record):
            await self._made.keep(key, manifest)
        self._use_record(key, record)
        return replace(known, record=record, end=record.end.timestamp())

    # -- the record ---------------------------------------------------------------------------------------------------

    async def _kept(self, key: ClusterKey, wanted_round: int) -> ClusterCertificates:
        """The record, with what is due, once it is stored. One that somebody has deleted or damaged is written as it
        was: a new CA would shut out all pods for a while. Raises StoreError, ValueError.
        """
        known = self._known.get(key)
        remembered = known.record if known is not None else None
        for _ in range(ATTEMPTS):
            secret = await self._read(key.namespace)
            try:
                stored = _decoded(secret, key)
            except ValueError:
                if remembered is None:
                    raise
                stored = None
            record = due(stored or remembered, str(key), wanted_round, self._now())
            if record == stored and secret is not None:
                self._made.note(key, secret)
                return record
            try:
                await self._store(key, record)
            except ConflictError:
                del self._secrets[key.namespace]
                continue
            first = stored is None and remembered is None
            log.info("certificates_renewed", key=str(key), first=first, ends=record.end.isoformat())
            return record
        raise ConflictError(f"Secret {RECORDS} changes all the time")

    async def _read(self, namespace: str) -> Json | None:
        """All clusters of a namespace together read it once in a while."""
        now = self._clock()
        at, secret = self._secrets.get(namespace, (float("-inf"), None))
        if now - at < LOOK_EVERY_S:
            return secret
        secret = await read_secret(self._client, namespace, RECORDS)
        self._secrets[namespace] = now, secret
        return secret

    async def _store(self, key: ClusterKey, record: ClusterCertificates) -> None:
        at, present = self._secrets[key.namespace]
        data = {} if present is None else present.get("data", {})
        if key.name not in data:
            data = await self._without_the_gone(data, key.namespace)
        data = {**data, key.name: encoded(record)}
        stored = await swap_secret(self._client, key.namespace, RECORDS, present, data)
        self._secrets[key.namespace] = at, stored
        self._made.note(key, stored, replaced=present)

    async def _without_the_gone(self, data: Json, namespace: str) -> Json:
        """The records of clusters that there are; looked at when a new one comes."""
        left = dict(data)
        for name in data:
            try:
                await self._client.get(object_path(CoordinatorCluster, namespace, name))
            except NotFoundError:
                del left[name]
        return left

    # -- what follows from it -----------------------------------------------------------------------------------------

    async def _take_given(self, key: ClusterKey, name: str) -> float:
        """Use the operator's certificate that a person has supplied; when it ends. Raises StoreError, ValueError."""
        secret = await self._client.get(f"{secrets_path(key.namespace)}/{name}")
        try:
            data = {file: base64.b64decode(secret["data"][file]) for file in (CERTIFICATE, KEY, AUTHORITIES)}
        except (KeyError, binascii.Error) as error:
            raise ValueError(f"Secret {name}: {CERTIFICATE}, {KEY} and {AUTHORITIES} are needed: {error}") from None
        self._use(key, Issued(data[CERTIFICATE], data[KEY]), data[AUTHORITIES])
        return expiry(data[CERTIFICATE]).timestamp()

    def _use_record(self, key: ClusterKey, record: ClusterCertificates) -> None:
        leaf = self._leaves[key] = operators_leaf(record, str(key), self._leaves.get(key), self._now())
        self._use(key, leaf, record.authorities.bundle)

    def _use(self, key: ClusterKey, leaf: Issued, bundle: bytes) -> None:
        directory = self._folder / key.namespace / key.name
        write_leaf(directory, leaf, bundle)
        if key in self._tls:
            self._tls[key].look()
        else:
            check = only(str(key), (Role.POD,))
            self._tls[key] = Tls(TlsFiles.of(directory), partial(client_context, check=check))


def _secrets(cluster: CoordinatorCluster, record: ClusterCertificates) -> Iterator[Json]:
    """The Secrets with the certificates of pods and readers."""
    bundle = record.authorities.bundle
    for name, leaf in ((pod_secret_name(cluster), record.pods), (reader_secret_name(cluster), record.reader)):
        files = ((CERTIFICATE, leaf.certificate), (KEY, leaf.key), (AUTHORITIES, bundle))
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata_of(cluster, name),
            "type": "kubernetes.io/tls",
            "data": {file: base64.b64encode(content).decode() for file, content in files},
        }


def _about(cluster: CoordinatorCluster) -> tuple[str, Security]:
    return cluster.metadata.uid, cluster.spec.security


def _decoded(secret: Json | None, key: ClusterKey) -> ClusterCertificates | None:
    """Raises ValueError for what cannot be read: a new CA would shut out the pods that have the old one."""
    entry: Any = (secret or {}).get("data", {}).get(key.name)
    if entry is None:
        return None
    try:
        return msgspec.msgpack.decode(base64.b64decode(entry), type=ClusterCertificates)
    except (msgspec.MsgspecError, binascii.Error) as error:
        raise ValueError(
            f"Secret {RECORDS}: {key.name} cannot be read ({error}): restore it, or delete this key of the Secret"
        ) from None
