"""A gateway with TLS on all sides, in front of an upstream and a Muster pod that ask for logins; and one that asks its
clients itself.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from tests.conformance.token_logins import provider
from tests.support.certificates import Authority
from tests.support.certificates import pod as member
from tests.support.gateway import GatewayProcess
from tests.support.kafka import schema
from tests.support.pod import SoloPod
from tests.support.scram import users_file
from tests.support.secured_kafka import account

OWN_USERS = {"carol": "crayon", "dan": "drawer"}
"""Users of the gateway that asks clients itself; the upstream knows none of them."""


class Upstream(Protocol):
    sasl_port: int


def described(group: str = "m-free-raw") -> Any:
    """A request that a group's coordinator answers."""
    return schema("describe_groups", 5).DescribeGroupsRequest(groups=(group,), include_authorized_operations=False)


class Site:
    """`passing`: a gateway whose clients log in at the broker. `asking`: one that asks them itself."""

    def __init__(self, directory: Path, authority: Authority, kafka: Upstream, pod: SoloPod) -> None:
        self.directory = directory
        self.authority = authority
        self.kafka = kafka
        self.pod = pod
        self.ca = str(directory / "ca.crt")
        Path(self.ca).write_bytes(authority.issued.certificate)
        self.users = directory / "users.json"
        self.write_users(OWN_USERS)
        self.passing = self.gateway("passing", {"muster.act.for.clients": "1"})
        own = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "muster.users.file": str(self.users),
            "muster.act.for.clients": "1",
        }
        self.asking = self.gateway("asking", own)

    def write_users(self, passwords: dict[str, str]) -> None:
        new = self.users.with_suffix(".new")
        new.write_text(users_file(passwords))
        new.replace(self.users)

    def gateway(self, name: str, settings: dict[str, str]) -> GatewayProcess:
        directory = self.directory / name
        directory.mkdir()
        tls = self.authority.write(f"gateway-{name}", member("gateway"))
        outgoing = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.dir": str(account(directory / "account", "gateway")),
            "ssl.truststore.location": self.ca,
        }
        return GatewayProcess(
            directory,
            f"127.0.0.1:{self.kafka.sasl_port}",
            f"127.0.0.1:{self.pod.kafka_port}",
            {
                "muster.groups": "m-",
                "listener.tls.dir": str(tls.certificate.parent),
                **{f"upstream.{key}": value for key, value in outgoing.items()},
                **{f"muster.{key}": value for key, value in outgoing.items()},
                **settings,
            },
        )

    def librdkafka(self, gateway: GatewayProcess, mechanism: str, user: str, password: str) -> dict[str, Any]:
        values: dict[str, Any] = {
            "bootstrap.servers": gateway.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca,
            "sasl.mechanisms": mechanism,
            "log_level": 0,
        }
        if mechanism == "OAUTHBEARER":
            return values | {"oauth_cb": lambda _: (provider().token(user), time.time() + 300)}
        return values | {"sasl.username": user, "sasl.password": password}
