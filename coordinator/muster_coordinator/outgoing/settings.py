"""The security that a server asks of its clients, as settings of a client."""

from __future__ import annotations

from dataclasses import dataclass

from muster_coordinator.security.users import MECHANISMS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's `security.protocol`."""


@dataclass(frozen=True)
class OutgoingSettings:
    """`protocol`: one of PROTOCOLS. `mechanism`: of SASL. `account_dir`: a directory with the files `username` and
    `password`, for OAUTHBEARER `token`. `authorities`: a file of CA certificates, "": those of the system.
    `certificate_dir`: a directory with `tls.crt` and `tls.key`, "": none is shown. `check_host`: whether the server's
    certificate has to name the host that is dialled."""

    protocol: str = PROTOCOLS[0]
    mechanism: str = ""
    account_dir: str = ""
    authorities: str = ""
    certificate_dir: str = ""
    check_host: bool = True

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def trouble(self, prefix: str) -> str:
        """Says what does not fit together, with the names of the settings after `prefix`; "" if all does."""
        if self.sasl and not (self.mechanism and self.account_dir):
            return f"{prefix}security.protocol={self.protocol} needs {prefix}sasl.mechanism and {prefix}sasl.dir"
        if not self.sasl and (self.mechanism or self.account_dir):
            return f"{prefix}sasl.mechanism and {prefix}sasl.dir need {prefix}security.protocol=SASL_SSL"
        if not self.tls and (self.authorities or self.certificate_dir):
            return f"{prefix}ssl.truststore.location and {prefix}tls.dir need {prefix}security.protocol=SSL or SASL_SSL"
        if self.sasl and not self.tls and not self.mechanism.startswith("SCRAM"):
            return f"{prefix}sasl.mechanism={self.mechanism} sends secrets as they are, and there is no TLS"
        return ""


def check_protocol(text: str) -> None:
    """Raises ValueError."""
    if text not in PROTOCOLS:
        raise ValueError(f"{', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]} is needed")


def check_mechanism(text: str) -> None:
    """Raises ValueError."""
    if text and text not in MECHANISMS:
        raise ValueError(f"{text!r} is none of {', '.join(MECHANISMS)}")


def check_identification(text: str) -> None:
    """Kafka's `ssl.endpoint.identification.algorithm`. Raises ValueError."""
    if text not in ("", "https"):
        raise ValueError("https is needed, or nothing")
