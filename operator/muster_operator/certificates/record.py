"""The certificates of a cluster on Kubernetes, as one record: the Secrets of its pods and readers follow from it.

Pods share a Secret, because the pods of a StatefulSet have one template; so their leaf is for every pod of the cluster.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from muster_coordinator.security.roles import ANY_POD, Member, Role
from muster_operator.certificates.issuing import Issued, expiry
from muster_operator.certificates.rotation import Authorities, announced, first_authorities, leaf_for, next_step


class ClusterCertificates(msgspec.Struct, frozen=True):
    """`round`: how often a person has asked for another CA (spec.security.caRound)."""

    authorities: Authorities
    pods: Issued
    reader: Issued
    round: int = 0

    def __repr__(self) -> str:
        return f"ClusterCertificates({self.authorities!r})"

    @property
    def end(self) -> datetime:
        """The end of the first of these certificates."""
        return min(map(expiry, (self.authorities.current.certificate, self.pods.certificate, self.reader.certificate)))


def due(present: ClusterCertificates | None, cluster: str, wanted_round: int, now: datetime) -> ClusterCertificates:
    """The record that is to be in force now: `present` if nothing is due. `cluster`: `<namespace>/<name>`.

    An exchange of the CA that was asked for begins when the one before is over.
    """
    if present is None:
        authorities, done = first_authorities(cluster, now), wanted_round
    else:
        authorities, done = next_step(present.authorities, cluster, now), present.round
        rests = authorities is present.authorities and authorities.following is None and authorities.past is None
        if rests and wanted_round > done:
            authorities, done = announced(authorities, cluster, now), done + 1
    pods, reader = (None, None) if present is None else (present.pods, present.reader)
    pods = leaf_for(authorities, Member(cluster, Role.POD, ANY_POD), (), pods, now)
    reader = leaf_for(authorities, Member(cluster, Role.READER), (), reader, now)
    return ClusterCertificates(authorities, pods, reader, done)


def operators_leaf(record: ClusterCertificates, cluster: str, present: Issued | None, now: datetime) -> Issued:
    """The operator's own leaf: it is never stored, because the CA can make another one."""
    return leaf_for(record.authorities, Member(cluster, Role.OPERATOR), (), present, now)
