"""The logins and TLS of pods and gateways as clients of other servers, as settings, and the Secrets that these name."""

from __future__ import annotations

from collections.abc import Mapping

from muster_operator.api.models import OutgoingSasl, OutgoingTls

ROOT = "/etc/muster"
"""The directory in which Secrets are mounted."""
UPSTREAM, MUSTER = "upstream", "muster"
"""Names of the servers: the brokers of Kafka, and the pods as a gateway sees them."""


def outgoing_secrets(name: str, tls: OutgoingTls | None, sasl: OutgoingSasl | None) -> Mapping[str, str]:
    """Name of a volume -> Secret: directories of that name under ROOT. `name`: of the servers."""
    found = {
        f"{name}-ca": tls.ca_secret if tls is not None else None,
        f"{name}-tls": tls.certificate_secret if tls is not None else None,
        f"{name}-sasl": sasl.secret if sasl is not None else None,
    }
    return {volume: secret for volume, secret in found.items() if secret is not None}


def outgoing_settings(prefix: str, name: str, tls: OutgoingTls | None, sasl: OutgoingSasl | None) -> Mapping[str, str]:
    """Settings after `prefix`; none where the servers ask nothing."""
    if tls is None and sasl is None:
        return {}
    protocol = ("SASL_" if sasl is not None else "") + ("SSL" if tls is not None else "PLAINTEXT")
    found = {"security.protocol": protocol}
    if sasl is not None:
        found |= {"sasl.mechanism": sasl.mechanism, "sasl.dir": f"{ROOT}/{name}-sasl"}
    if tls is not None:
        found["ssl.endpoint.identification.algorithm"] = "https" if tls.verify_host else ""
        if tls.ca_secret is not None:
            found["ssl.truststore.location"] = f"{ROOT}/{name}-ca/ca.crt"
        if tls.certificate_secret is not None:
            found["tls.dir"] = f"{ROOT}/{name}-tls"
    return {f"{prefix}{key}": value for key, value in found.items()}
