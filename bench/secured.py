"""The needs of TLS and logins on both sides: a certificate of the server, a user, and the settings that name them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from muster_cli.local.users import set_user
from muster_coordinator.security.roles import Member, Role
from muster_operator.certificates.issuing import new_authority, new_leaf

USER = "bench"
LIFETIME = timedelta(days=1)


@dataclass(frozen=True)
class Secured:
    """Files under `directory`. The load generator logs in by PLAIN, and takes any certificate."""

    directory: Path
    password: str

    @classmethod
    def made(cls, directory: Path) -> Secured:
        """ECDSA P-256, as the operator's certificates."""
        now = datetime.now(UTC)
        authority = new_authority("bench/bench", now, LIFETIME)
        leaf = new_leaf(authority, Member("bench/bench", Role.POD, "bench-0"), ["127.0.0.1"], now, LIFETIME)
        directory.mkdir(parents=True)
        files = {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate}
        for name, content in files.items():
            (directory / name).write_bytes(content)
        (directory / "server.pem").write_bytes(leaf.key + leaf.certificate)
        secured = cls(directory, secrets.token_urlsafe(16))
        set_user(directory / "users.json", USER, secured.password)
        return secured

    @property
    def login(self) -> str:
        """The login of the load generator."""
        return f"{USER}:{self.password}"

    def of_muster(self) -> list[str]:
        return [
            f"muster.listener.tls.dir={self.directory}",
            "sasl.enabled.mechanisms=PLAIN",
            f"muster.users.file={self.directory / 'users.json'}",
        ]

    def of_kafka(self, listeners: str, port: int) -> str:
        """Implements `servers.Listener`: the broker talks to itself at the plain ones."""
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
        return "\n".join(
            (
                f"listeners={listeners},SASL_SSL://127.0.0.1:{port}",
                f"listener.security.protocol.map={protocols}",
                "sasl.enabled.mechanisms=PLAIN",
                f'listener.name.sasl_ssl.plain.sasl.jaas.config={module} user_{USER}="{self.password}";',
                "ssl.keystore.type=PEM",
                f"ssl.keystore.location={self.directory / 'server.pem'}",
                "",
            )
        )
