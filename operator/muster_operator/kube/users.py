"""Passwords of MusterUsers on Kubernetes (ADR 38).

The operator keeps a record of each user (password, SCRAM credentials) in one Secret of the namespace, beside that of
the certificates, written by compare-and-swap: whoever comes second reads what the first has made. The Secret that the
user's client mounts follows from it: it is applied, and never read. A Secret that a person has named is read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog
from msgspec.structs import replace

from muster_coordinator.security.scram import DEFAULT_ITERATIONS, HASHES, credential_of, write_credential
from muster_operator.api.conditions import Reason
from muster_operator.api.models import CoordinatorCluster, MusterUser
from muster_operator.kube.claims import LOOK_EVERY_S, RESYNC_S
from muster_operator.kube.client import Json, KubeClient
from muster_operator.kube.objects import collection_path, owned_by
from muster_operator.kube.record_secrets import ATTEMPTS, LABELS, encoded, read_secret, secrets_path, swap_secret
from muster_operator.plan.access import AccessState, Credentials, Trouble, access_of
from muster_operator.store.port import ClusterKey, ConflictError, StoreError, key_of

log = structlog.get_logger(__name__)

USERS = "muster-operator-users"
"""The Secret with the records of all users of a namespace: by name of the MusterUser, as msgpack."""


class UserRecord(msgspec.Struct, frozen=True):
    """Of one MusterUser (`uid`). `source`: the Secret that the password was read from, with its version; "": the
    operator has made it. `password` is only kept in that case, and may be `retained` for the next one of this name."""

    uid: str
    source: str
    password: str
    scram: dict[str, str]
    retained: bool = False

    def is_of(self, user: MusterUser) -> bool:
        return self.uid == user.metadata.uid or (self.retained and user.has_own_password)


Records = dict[str, UserRecord]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found or made at the last look at a cluster; `credentials` and `trouble` by name of the MusterUser."""

    uid: str
    users: tuple[MusterUser, ...]
    at: float
    credentials: Mapping[str, Credentials] = field(default_factory=dict)
    trouble: Mapping[str, Trouble] = field(default_factory=dict)


class KubeUsers:
    """`new_password` makes one."""

    def __init__(
        self,
        client: KubeClient,
        clock: Callable[[], float] = time.monotonic,
        new_password: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        self._client = client
        self._clock = clock
        self._new_password = new_password
        self._known: dict[ClusterKey, _Known] = {}
        self._states: dict[ClusterKey, tuple[_Known, tuple[MusterUser, ...], AccessState]] = {}
        self._applied: dict[ClusterKey, dict[str, tuple[UserRecord, float]]] = {}
        """By name of the MusterUser: what its Secret was made of, and when."""
        self._one_at_a_time = asyncio.Lock()

    def access(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> AccessState | None:
        """See the port."""
        key, present = key_of(cluster), tuple(users)
        known = self._known.get(key)
        if known is None or known.uid != cluster.metadata.uid:
            return None
        made = self._states.get(key)
        if made is None or made[0] is not known or made[1] != present:
            made = self._states[key] = known, present, access_of(present, known.credentials, known.trouble)
        return made[2]

    async def keep(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> bool:
        """See the port; whether there is news. A failure is remembered and tried again at the next look."""
        key, present, now = key_of(cluster), tuple(users), self._clock()
        known = self._known.get(key)
        same = known is not None and (known.uid, known.users) == (cluster.metadata.uid, present)
        if known is not None and same and now - known.at < LOOK_EVERY_S:
            return False
        found: tuple[Mapping[str, Credentials], Mapping[str, Trouble]]
        try:
            async with self._one_at_a_time:
                found = await self._look(key, present)
        except (StoreError, ValueError) as error:
            log.warning("users_not_kept", key=str(key), error=str(error))
            if known is None:
                return False  # nothing is known, so nothing is given
            trouble = {each.metadata.name: (Reason.PASSWORD_NOT_KEPT, str(error)) for each in present}
            found = known.credentials, trouble
        self._known[key] = _Known(cluster.metadata.uid, present, now, *found)
        before = (known.credentials, known.trouble) if known is not None else None
        return before != found

    async def _look(
        self, key: ClusterKey, users: tuple[MusterUser, ...]
    ) -> tuple[dict[str, Credentials], dict[str, Trouble]]:
        """(credentials, trouble). Raises StoreError, ValueError."""
        trouble: dict[str, Trouble] = {}
        mine = [each for each in users if each.has_password]
        records = await self._recorded(key.namespace, mine, trouble)
        for user in mine:
            record = records.get(user.metadata.name)
            if record is not None and not record.source:
                await self._apply(user, record, self._applied.setdefault(key, {}), trouble)
        names = {each.metadata.name for each in mine}
        self._applied[key] = {name: each for name, each in self._applied.get(key, {}).items() if name in names}
        return {name: record.scram for name, record in records.items()}, trouble

    # -- the record ---------------------------------------------------------------------------------------------------

    async def _recorded(self, namespace: str, users: Iterable[MusterUser], trouble: dict[str, Trouble]) -> Records:
        """Those of `users` as they are stored. Raises StoreError, ValueError."""
        for _ in range(ATTEMPTS):
            secret = await read_secret(self._client, namespace, USERS)
            stored = _decoded(secret)
            wanted: Records = {}
            for user in users:
                name, record = user.metadata.name, stored.get(user.metadata.name)
                present = record if record is not None and record.is_of(user) else None
                made = await self._due(user, present, trouble)
                if made is not None:
                    wanted[name] = made
            changed = {name for name, each in wanted.items() if stored.get(name) != each}
            if not changed:
                return wanted
            try:
                data = {**await self._without_the_gone(stored, namespace), **wanted}
                texts = {name: encoded(each) for name, each in data.items()}
                await swap_secret(self._client, namespace, USERS, secret, texts)
            except ConflictError:
                continue
            log.info("passwords_recorded", namespace=namespace, users=sorted(changed))
            return wanted
        raise ConflictError(f"Secret {USERS} changes all the time")

    async def _due(
        self, user: MusterUser, present: UserRecord | None, trouble: dict[str, Trouble]
    ) -> UserRecord | None:
        """The record that the user is to have; None: there is none, and `trouble` says why."""
        named = user.spec.authentication.secret
        if named is None:
            if present is not None and not present.source:
                return replace(present, uid=user.metadata.uid, retained=user.is_retained)
            made = self._new_password()
            return UserRecord(user.metadata.uid, "", made, await _credentials(made.encode()), user.is_retained)
        before = present if present is not None and present.source.partition("@")[0] == named else None
        try:
            secret = await self._client.get(f"{secrets_path(user.metadata.namespace)}/{named}")
            source = f"{named}@{secret['metadata']['uid']}/{secret['metadata']['resourceVersion']}"
            if before is not None and before.source == source:
                return before
            password = _password_of(secret)
        except (StoreError, ValueError) as error:
            # An API server that does not answer is no reason to shut a client out; neither is one that is told so.
            trouble[user.metadata.name] = Reason.PASSWORD_NOT_KEPT, f"Secret {named}: {error}"
            return before
        return UserRecord(user.metadata.uid, source, "", await _credentials(password))

    async def _without_the_gone(self, records: Records, namespace: str) -> Records:
        """The records of users that there are, of whatever cluster, and of those that were retained; looked at when one
        changes."""
        listed = await self._client.list_all(collection_path(MusterUser, namespace))
        there = {each["metadata"]["name"] for each in listed["items"]}
        return {name: each for name, each in records.items() if name in there or each.retained}

    # -- what follows from it -----------------------------------------------------------------------------------------

    async def _apply(
        self,
        user: MusterUser,
        record: UserRecord,
        applied: dict[str, tuple[UserRecord, float]],
        trouble: dict[str, Trouble],
    ) -> None:
        """The Secret for the user's client; deleted with the MusterUser, unless it is retained."""
        meta, now = user.metadata, self._clock()
        known = applied.get(meta.name)
        if known is not None and known[0] == record and now - known[1] < RESYNC_S:
            return
        data = {"username": user.username, "password": record.password}
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": user.secret,
                "namespace": meta.namespace,
                "labels": LABELS,
                "ownerReferences": [] if record.retained else [owned_by(user)],
            },
            "type": "Opaque",
            "data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()},
        }
        try:
            await self._client.apply(f"{secrets_path(meta.namespace)}/{user.secret}", body)
        except StoreError as error:
            trouble[meta.name] = Reason.PASSWORD_NOT_KEPT, f"Secret {user.secret} cannot be written: {error}"
        else:
            applied[meta.name] = record, now


async def _credentials(password: bytes) -> dict[str, str]:
    """By SCRAM mechanism. In a thread: it takes some ten milliseconds of a processor."""

    def derive() -> dict[str, str]:
        return {
            mechanism: write_credential(credential_of(password, name, secrets.token_bytes(24), DEFAULT_ITERATIONS))
            for mechanism, name in HASHES.items()
        }

    return await asyncio.to_thread(derive)


def _password_of(secret: Json) -> bytes:
    """Raises ValueError, which repeats nothing of it."""
    try:
        password = base64.b64decode(secret["data"]["password"])
    except (KeyError, TypeError, binascii.Error):
        raise ValueError("it has no key password") from None
    if not password:
        raise ValueError("the password is empty")
    return password


def _decoded(secret: Json | None) -> Records:
    """Raises ValueError for what cannot be read: new passwords would shut clients out that have the old ones."""
    found: Records = {}
    for name, entry in ((secret or {}).get("data") or {}).items():
        try:
            found[name] = msgspec.msgpack.decode(base64.b64decode(entry), type=UserRecord)
        except (msgspec.MsgspecError, binascii.Error):
            text = f"Secret {USERS}: {name} cannot be read: restore it, or delete this key of the Secret"
            raise ValueError(text) from None
    return found
