"""The CA of a cluster over time, and what is due. Pure but for the keys that are made.

A CA is exchanged in three steps, each `settle` after the one before, so that everybody has read the files of one step
when the next begins:

    leaves are signed by    trusted         next step
    current                 current         announce: half a CA's life is over, or somebody asks for it
    current                 current, next   switch: the next one signs all leaves
    next                    both            retire: the old one is trusted no longer
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from muster_coordinator.security.roles import Member
from muster_operator.certificates.issuing import Issued, expiry, new_authority, new_leaf, signed_by, valid_from

AUTHORITY_LIFETIME = timedelta(days=730)
LEAF_LIFETIME = timedelta(days=14)
"""A leaf is made again when half of this is over: a week is left to mend what keeps it from that."""

SETTLE = timedelta(minutes=5)
"""A kubelet brings a changed Secret to its pods within two minutes, and they look at it each second."""


class Authorities(msgspec.Struct, frozen=True):
    """`current` signs. `following` is trusted already and will sign, `past` is trusted still; None: there is none.
    `since`: when the last step was taken."""

    current: Issued
    since: datetime
    following: Issued | None = None
    past: bytes | None = None

    def __repr__(self) -> str:
        return f"Authorities(since={self.since}, following={self.following is not None}, past={self.past is not None})"

    @property
    def bundle(self) -> bytes:
        """All that is trusted, as PEM."""
        following = self.following.certificate if self.following is not None else b""
        return self.current.certificate + following + (self.past or b"")


def first_authorities(cluster: str, now: datetime) -> Authorities:
    return Authorities(new_authority(cluster, now, AUTHORITY_LIFETIME), now)


def next_step(authorities: Authorities, cluster: str, now: datetime, *, settle: timedelta = SETTLE) -> Authorities:
    """The authorities after the step that is due now; the same ones if none is."""
    settled = now >= authorities.since + settle
    if authorities.following is not None:
        return switched(authorities, now) if settled else authorities
    if authorities.past is not None:
        return Authorities(authorities.current, now) if settled else authorities
    return announced(authorities, cluster, now) if _half_over(authorities.current.certificate, now) else authorities


def announced(authorities: Authorities, cluster: str, now: datetime) -> Authorities:
    """The authorities with a new CA that is trusted and does not sign yet. Not in the middle of another exchange."""
    assert authorities.following is None
    assert authorities.past is None
    return Authorities(authorities.current, now, following=new_authority(cluster, now, AUTHORITY_LIFETIME))


def switched(authorities: Authorities, now: datetime) -> Authorities:
    """The CA that was announced signs."""
    assert authorities.following is not None
    return Authorities(authorities.following, now, past=authorities.current.certificate)


def leaf_for(
    authorities: Authorities, member: Member, hosts: tuple[str, ...], present: Issued | None, now: datetime
) -> Issued:
    """`present`, or a new leaf if there is none, half of its life is over, or another CA has signed it."""
    if present is not None and usable(present.certificate, authorities, now):
        return present
    return new_leaf(authorities.current, member, hosts, now, LEAF_LIFETIME)


def usable(certificate: bytes, authorities: Authorities, now: datetime) -> bool:
    """True if the leaf can be used on. One that cannot be read has to be made again."""
    try:
        return not _half_over(certificate, now) and signed_by(certificate, authorities.current.certificate)
    except ValueError:
        return False


def _half_over(certificate: bytes, now: datetime) -> bool:
    begin, end = valid_from(certificate), expiry(certificate)
    return now >= begin + (end - begin) / 2
