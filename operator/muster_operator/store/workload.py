"""Workload: the pods of a cluster as something that is started and found: a StatefulSet, or processes on loopback."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from muster_coordinator.security.tls import Tls
from muster_coordinator.settings_by_name import SettingsError, parse_settings
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import CoordinatorCluster, MusterBackup, MusterUser, Upstream
from muster_operator.plan.access import AccessState
from muster_operator.plan.actions import MakeClaim, MarkClaims, StartRestoreJob
from muster_operator.plan.observation import BackupJob, StrandedVolume
from muster_operator.plan.restore_facts import RestoreFacts
from muster_operator.store.backup_store import site_settings
from muster_operator.store.client_security import client_security
from muster_operator.store.outgoing import UPSTREAM, outgoing_settings
from muster_operator.store.port import ClusterKey, Notify, Unwatch


class PodPhase(StrEnum):
    """Kubernetes' pod phases, Terminating for one that is being deleted, and Gone for one that was deleted by force
    while its process lives on for a moment."""

    PENDING = "Pending"
    RUNNING = "Running"
    TERMINATING = "Terminating"
    GONE = "Gone"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class PodInfo:
    """One pod as Kubernetes, or the supervisor of the embedded mode, sees it.

    `name` is stable over restarts, `uid` is not (another uid is another pod on the same volume). Addresses are
    host:port; "" while there is none. An address is no promise that something listens. `node` and `zone` say where it
    runs ("": not known), `outdated` that it is not of the template that is declared now, `cordoned` that its node is
    about to be emptied, `node_lost` that nothing is heard of its node. `image`: of its container. `trouble`: why its
    container does not run ("": it does, or nothing is known). `tls`: for calls of its API; None: they are plain.
    `endpoints`: the addresses for clients of other listeners than the Internal one, by name.
    """

    name: str
    node_id: int
    uid: str
    api_address: str
    kafka_address: str
    phase: PodPhase
    node: str = ""
    zone: str = ""
    outdated: bool = False
    cordoned: bool = False
    node_lost: bool = False
    image: str = ""
    trouble: str = ""
    tls: Tls | None = field(default=None, compare=False)
    endpoints: Mapping[str, str] = field(default_factory=dict)


MOVABLE = "muster.upstream.movable.groups"
"""The setting of pods with the beginnings of ids that `spec.upstream.movableGroups` declares."""

ARCHIVE_DIRECTORY = "/var/lib/muster-archive"
"""The directory in which the second volume of a pod is mounted."""

UNKNOWN = -1
"""Stands for a number that nobody has asked for yet."""


@dataclass(frozen=True, slots=True)
class GatewayState:
    """`waits`: what is not there yet ("": all is as declared). `trouble`: why it cannot be ("": it can). `bootstrap`:
    for its clients ("": not known yet)."""

    waits: str = ""
    trouble: str = ""
    bootstrap: str = ""


@dataclass(frozen=True, slots=True)
class WorkloadState:
    """The state of a cluster's objects beside the pods, for a plan. `applied`: `PodInfo.outdated` is about this spec of
    the cluster. `conflict`: the object of the cluster's name that belongs to somebody else ("": there is none).
    `refusal`: why the pods' objects are refused ("": they are not). `default_image`: of clusters that name none ("":
    pods have no image). `outdated_definitions`: resource definitions that are not those of this operator ("": all are,
    or nobody knows). `volumes`: of how many pods there are volumes, counted up to the highest, also of pods that do not
    exist (UNKNOWN: nobody has looked yet). `volume_size`, `archive_size`: of the largest ("": nobody knows). `growing`:
    which volumes are smaller than declared, and what they wait for ("": none). `growth_refused`: why a volume does not
    grow ("": it is not refused). `stranded`: volumes of pods that wait for them in vain. `certificates`: why they
    cannot be renewed ("": they can, or there are none). `certificates_end`: when the first of them ends (seconds since
    1970; 0: there is none). `gateway`: of the declared one (None: none is declared).
    """

    applied: bool = True
    conflict: str = ""
    refusal: str = ""
    default_image: str = ""
    outdated_definitions: str = ""
    volumes: int = 0
    volume_size: str = ""
    archive_size: str = ""
    growing: str = ""
    growth_refused: str = ""
    stranded: tuple[StrandedVolume, ...] = ()
    certificates: str = ""
    certificates_end: float = 0.0
    gateway: GatewayState | None = None


class BackupJobs(Protocol):
    """Jobs that make backups of clusters. Errors are StoreError."""

    def jobs(self, key: ClusterKey) -> tuple[BackupJob, ...] | None:
        """Those of a cluster, by name, without asking anybody; None: nobody knows."""

    async def look(self, key: ClusterKey) -> None:
        """Read what Jobs of the cluster have left that have ended."""

    async def start(
        self,
        cluster: CoordinatorCluster,
        pods: Iterable[PodInfo],
        asked: MusterBackup | None,
        slot: str,
        *,
        verify: bool,
    ) -> str:
        """Make a Job, for `asked` or else for the time `slot` of the schedule; one line that says what was done. There
        is one for each, however often this is called. `pods`: all of the cluster."""


class Restores(Protocol):
    """Claims and Jobs by which the volumes of a new cluster are made from a backup. Errors are StoreError."""

    def facts(self, cluster: CoordinatorCluster) -> RestoreFacts | None:
        """The state as the last look found it; asks nobody. None: nobody has looked at this cluster yet."""

    async def look(self, cluster: CoordinatorCluster) -> None:
        """Read claims, Jobs and what Jobs have left."""

    def forget(self, key: ClusterKey) -> None:
        """The restore is over, or the cluster is gone."""

    async def carry_out(self, cluster: CoordinatorCluster, action: StartRestoreJob | MakeClaim | MarkClaims) -> str:
        """Do it; one line that says what was done. What is there already stays as it is."""


class Workload(Protocol):
    """Errors are StoreError."""

    @property
    def backups(self) -> BackupJobs | None:
        """None: nothing here makes backups."""

    @property
    def restores(self) -> Restores | None:
        """None: nothing here makes volumes from a backup."""

    def watch(self, notify: Notify) -> Unwatch:
        """Call `notify` with the key of a cluster when one of its pods appeared, changed or went."""

    async def ensure_pods(self, cluster: CoordinatorCluster, *, keep_template: bool = False) -> str:
        """Make the declared pods exist; return, before they run, one line that says what was done or found.

        `keep_template`: pods that exist keep the settings that they have; without any pods nothing is done.
        """

    def state(self, cluster: CoordinatorCluster) -> WorkloadState:
        """The pods' objects as they are known; asks nobody."""

    async def keep_users(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> str:
        """Have a credential for each user with a password, and forget those of others; one line that says what was
        done, "" if that was nothing. What cannot be done now is in `access`."""

    def access(self, cluster: CoordinatorCluster, users: Sequence[MusterUser]) -> AccessState | None:
        """The access of these users that pods are to have, as far as there are credentials; asks nobody. None: which
        users there are is not known yet.
        """

    async def restart_pod(self, key: ClusterKey, name: str, uid: str) -> None:
        """Have the pod with this uid, and no later one of its name, replaced by one of the declared template."""

    async def replace_volume(self, key: ClusterKey, volume: StrandedVolume) -> bool:
        """Look once more, and if the volume is stranded still, delete its claim and its pod, so that both are made
        anew. Whether that was done."""

    async def pods(self, key: ClusterKey) -> tuple[PodInfo, ...]:
        """The present pods, by node id."""

    def bootstrap(self, cluster: CoordinatorCluster, pods: tuple[PodInfo, ...]) -> str:
        """bootstrap.servers for clients of this cluster."""


def settings_trouble(cluster: CoordinatorCluster) -> str:
    """Says why a coordinator of this version would refuse the settings of the cluster; "" if it takes them."""
    return _settings_trouble(tuple(sorted(pod_settings(cluster).items())))


@lru_cache(maxsize=256)
def _settings_trouble(settings: tuple[tuple[str, str], ...]) -> str:
    try:
        parse_settings(dict(settings))
    except SettingsError as error:
        return str(error)
    return ""


def pod_settings(cluster: CoordinatorCluster) -> dict[str, str]:
    """Settings of each pod: those declared, what the failover block says of pods, and what listeners ask of clients,
    what the upstream is, where the archive is and which site this is, which count before settings of that name."""
    nominate_ms = round(parse_duration(cluster.spec.failover.nominate_after) * 1000)
    return {
        "muster.self.nomination.after.ms": str(nominate_ms),
        **cluster.spec.settings,
        **client_security(cluster),
        **_mirror_settings(cluster.spec.upstream),
        **({"muster.archive.dir": ARCHIVE_DIRECTORY} if cluster.spec.storage.archive is not None else {}),
        **site_settings(cluster),
    }


def _mirror_settings(upstream: Upstream | None) -> dict[str, str]:
    if upstream is None:
        return {}
    return {
        "muster.upstream.bootstrap": upstream.bootstrap_servers,
        "muster.upstream.served.groups": ",".join(upstream.served_groups),
        **({MOVABLE: ",".join(upstream.movable_groups)} if upstream.movable_groups else {}),
        **outgoing_settings("muster.upstream.", UPSTREAM, upstream.tls, upstream.sasl),
    }
