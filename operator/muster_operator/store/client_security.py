"""The security of a cluster's listeners, as settings of its pods, and the Secrets that these name."""

from __future__ import annotations

from collections.abc import Mapping

from muster_operator.api.models import CoordinatorCluster, Listener
from muster_operator.store.outgoing import ROOT, UPSTREAM, outgoing_secrets

USERS, ACLS = "users", "acls"


def mounted_secrets(cluster: CoordinatorCluster) -> Mapping[str, str]:
    """Name of a volume -> Secret: directories of that name under ROOT."""
    access = cluster.spec.access
    found = {_tls_volume(each): each.tls.secret for each in cluster.spec.listeners if each.tls is not None}
    if access.users_secret is not None:
        found[USERS] = access.users_secret
    if access.acls_secret is not None:
        found[ACLS] = access.acls_secret
    upstream = cluster.spec.upstream
    if upstream is not None:
        found |= outgoing_secrets(UPSTREAM, upstream.tls, upstream.sasl)
    return found


def client_security(cluster: CoordinatorCluster) -> Mapping[str, str]:
    """Settings of each pod; none where nothing is asked."""
    spec = cluster.spec
    found: dict[str, str] = {}
    if spec.access.muster_users:
        found["muster.access.from.operator"] = "true"
    if spec.access.users_secret is not None:
        found["muster.users.file"] = f"{ROOT}/{USERS}/users.json"
    if spec.access.acls_secret is not None:
        found["muster.acls.file"] = f"{ROOT}/{ACLS}/acls.json"
    if all(each.tls is None and each.authentication is None for each in spec.listeners):
        return found
    # What the Internal one asks has no prefix, so the others say what they ask even if that is nothing.
    found |= _asked(spec.internal, "")
    for each in spec.external:
        found |= _asked(each, f"listener.name.{each.name}.")
    return found


def _asked(listener: Listener, prefix: str) -> dict[str, str]:
    tls, authentication = listener.tls, listener.authentication
    return {
        f"{prefix}muster.listener.tls.dir": f"{ROOT}/{_tls_volume(listener)}" if tls is not None else "",
        f"{prefix}ssl.client.auth": tls.client_auth if tls is not None else "none",
        f"{prefix}ssl.principal.mapping.rules": tls.principal_mapping_rules if tls is not None else "DEFAULT",
        f"{prefix}sasl.enabled.mechanisms": ",".join(authentication.mechanisms) if authentication is not None else "",
    }


def _tls_volume(listener: Listener) -> str:
    return f"tls-{listener.name}"
