"""Settings of the gateway. What a field means, its unit and its range stand under it; values come as text.

`docs/gateway.md` is rendered from here, and a test holds it true.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from muster_coordinator.outgoing.settings import (
    OutgoingSettings,
    check_identification,
    check_mechanism,
    check_protocol,
)
from muster_coordinator.security.principal_mapping import parse_mapping
from muster_coordinator.security.users import OAUTHBEARER, PLAIN, parse_mechanisms

PORT_MAX = 65_535
INT32_MAX = 2**31 - 1


class SettingsError(ValueError):
    """The message names the setting, and says what is wrong with its value."""


def _text(name: str, default: str, check: Callable[[str], object] = str) -> str:
    value: str = field(default=default, metadata={"name": name, "check": check})
    return value


def _number(name: str, default: int, minimum: int, maximum: int = INT32_MAX) -> int:
    value: int = field(default=default, metadata={"name": name, "minimum": minimum, "maximum": maximum})
    return value


def _path(name: str) -> str:
    return _text(name, "", _check_path)


def _check_path(text: str) -> None:
    if text and not text.startswith("/"):
        raise ValueError("an absolute path is needed")


def check_client_auth(text: str) -> None:
    """Raises ValueError."""
    if text not in ("none", "required"):
        raise ValueError("none or required is needed")


def check_own_mechanisms(text: str) -> None:
    """Raises ValueError."""
    if OAUTHBEARER in parse_mechanisms(text):
        raise ValueError("the gateway checks no tokens: leave logins by OAUTHBEARER to the brokers")


def addresses(text: str) -> tuple[tuple[str, int], ...]:
    """HOST:PORT, separated by commas. Raises ValueError."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
            raise ValueError(f"{part!r} is not of the form HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


@dataclass(frozen=True)
class GatewaySettings:
    """All that a gateway is told."""

    upstream: str = _text("upstream.bootstrap.servers", "", addresses)
    """Some brokers of the Kafka cluster, HOST:PORT, separated by commas. The others are found from there."""

    muster: str = _text("muster.bootstrap.servers", "", addresses)
    """Some pods of the Muster cluster in the same form; may be empty while `muster.groups` is."""

    groups: str = _text("muster.groups", "")
    """Prefixes of the ids of groups that Muster serves, separated by commas; `*`: all groups. Kafka serves the
    others."""

    movable: str = _text("muster.movable.groups", "")
    """Prefixes of the ids of groups that Kafka serves until they are moved to Muster, in the same form, and the same as
    the pods' `muster.upstream.movable.groups`. Their requests wait while no pod says which side serves them. Groups
    that pods let move beyond these are taken over from the pods. Needs `muster.api.servers` or `muster.api.port`, and
    `muster.transactions=1`."""

    api: str = _text("muster.api.servers", "", addresses)
    """The addresses of the pods' APIs, HOST:PORT, separated by commas. A name with several addresses, as of a headless
    Service, stands for all of them. With it, or `muster.api.port`, the gateway asks pods which groups can move and
    which have, also without `muster.movable.groups`: give it to every gateway of a cluster with groups that move."""

    api_port: int = _number("muster.api.port", 0, 0, PORT_MAX)
    """The APIs of the pods are at this port of the hosts that Muster's pods have, as they are told to clients. 0: they
    are where `muster.api.servers` says."""

    api_tls_dir: str = _path("muster.api.tls.dir")
    """An absolute path, a directory with `tls.crt`, `tls.key` and `ca.crt`: for the APIs of pods that have TLS. The
    certificate is one of the cluster's `reader`. Empty: they are plain."""

    api_cluster: str = _text("muster.api.cluster", "")
    """With `muster.api.tls.dir`: whose pods these are, `NAMESPACE/NAME` as their certificates say."""

    transactions: int = _number("muster.transactions", 0, 0, 1)
    """1: producers may commit offsets of groups at Muster in transactions. Only where Muster mirrors this Kafka cluster
    (its `muster.upstream.bootstrap`): Kafka writes the end of each transaction to its own log, and without a mirror
    these offsets would be pending for ever. 0: such commits are answered UNSUPPORTED_VERSION."""

    upstream_security_protocol: str = _text("upstream.security.protocol", "PLAINTEXT", check_protocol)
    """The protocol of the brokers' listener, as Kafka's security.protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` (for
    SCRAM only), `SASL_SSL`."""

    upstream_sasl_mechanism: str = _text("upstream.sasl.mechanism", "", check_mechanism)
    """With SASL: how the gateway itself logs in there. `SCRAM-SHA-512`, `SCRAM-SHA-256`, `PLAIN` or `OAUTHBEARER`."""

    upstream_sasl_dir: str = _path("upstream.sasl.dir")
    """With SASL: an absolute path, a directory with the files `username` and `password` (as in a Secret of type
    kubernetes.io/basic-auth), for OAUTHBEARER `token`, which somebody renews. A changed file counts for the next
    connection. The account needs no right, unless the gateway asks clients who they are: then it is what all clients
    may do."""

    upstream_truststore: str = _path("upstream.ssl.truststore.location")
    """With TLS: an absolute path, a file with the CA certificates (PEM) that sign those of the brokers; read again when
    it changes. Empty: those that the system knows."""

    upstream_tls_dir: str = _path("upstream.tls.dir")
    """With TLS: an absolute path, a directory with `tls.crt` and `tls.key`, which the brokers are shown that ask for a
    certificate; read again when they change. Only where the gateway asks clients who they are."""

    upstream_endpoint_check: str = _text(
        "upstream.ssl.endpoint.identification.algorithm", "https", check_identification
    )
    """`https`: the certificate of a broker has to name the host that is dialled. Empty: any of the CA will do."""

    muster_security_protocol: str = _text("muster.security.protocol", "PLAINTEXT", check_protocol)
    """The protocol of the listener of Muster's pods, in the same words."""

    muster_sasl_mechanism: str = _text("muster.sasl.mechanism", "", check_mechanism)
    """With SASL: how the gateway itself logs in there. `SCRAM-SHA-512`, `SCRAM-SHA-256`, `PLAIN` or `OAUTHBEARER`."""

    muster_sasl_dir: str = _path("muster.sasl.dir")
    """With SASL: an absolute path, a directory with the files `username` and `password` (as in a Secret of type
    kubernetes.io/basic-auth), for OAUTHBEARER `token`, which somebody renews. A changed file counts for the next
    connection. Without `muster.act.for.clients` it is what all clients may do with
    groups at Muster."""

    muster_truststore: str = _path("muster.ssl.truststore.location")
    """With TLS: an absolute path, a file with the CA certificates (PEM) that sign those of the pods; read again when it
    changes. Empty: those that the system knows."""

    muster_tls_dir: str = _path("muster.tls.dir")
    """With TLS: an absolute path, a directory with `tls.crt` and `tls.key`, which pods are shown that ask for a
    certificate; read again when they change. Without SASL it says who the gateway is."""

    muster_endpoint_check: str = _text("muster.ssl.endpoint.identification.algorithm", "https", check_identification)
    """`https`: the certificate of a pod has to name the host that is dialled. Empty: any of the CA will do."""

    muster_act_for_clients: int = _number("muster.act.for.clients", 0, 0, 1)
    """1: groups at Muster are asked for on behalf of the client's user, so that ACLs of Muster are about clients:
    Muster needs the gateway's user in its `muster.gateway.users`. A client whose name the gateway cannot know (a login
    by GSSAPI or a delegation token that passes) is `User:ANONYMOUS` then. 0: as the gateway's own
    user, which all clients share; the gateway says so at its start (`clients_share_user`)."""

    sub_claim_name: str = _text("sasl.oauthbearer.sub.claim.name", "sub")
    """The claim that has the user's name, in a token of OAUTHBEARER that brokers have taken; as at the brokers."""

    listener_tls_dir: str = _path("listener.tls.dir")
    """An absolute path: a directory with `tls.crt`, `tls.key` and, for certificates of clients, `ca.crt`, as in a
    Secret of type kubernetes.io/tls: TLS (1.2 and 1.3) at every port for clients. Files that change count for new
    connections. Empty: there is no TLS."""

    ssl_client_auth: str = _text("ssl.client.auth", "none", check_client_auth)
    """`required`: a client shows a certificate that `ca.crt` has signed, and the gateway logs in at brokers in its
    place. `none`: it is asked for none."""

    ssl_principal_mapping_rules: str = _text("ssl.principal.mapping.rules", "DEFAULT", parse_mapping)
    """The rules by which the subject of a client's certificate becomes the name of a user, as at [a
    pod](configuration.md#tls).
    """

    sasl_enabled_mechanisms: str = _text("sasl.enabled.mechanisms", "", check_own_mechanisms)
    """SASL mechanisms with which clients log in at the gateway, between commas: `SCRAM-SHA-256`, `SCRAM-SHA-512`,
    `PLAIN` (needs TLS). The gateway logs in at brokers in their place, as `upstream.sasl.dir` says. Empty: logins pass
    to the brokers."""

    users_file: str = _path("muster.users.file")
    """With `sasl.enabled.mechanisms` an absolute path: the users, as [access.md](access.md) describes them, read again
    when the file changes. A user that is not in it any more is out within two seconds."""

    listen_host: str = _text("listen.host", "0.0.0.0")
    """The address of this machine on which the gateway listens."""

    advertised_host: str = _text("advertised.host", "127.0.0.1")
    """The host that clients are told for every node."""

    bootstrap_port: int = _number("bootstrap.port", 9092, 0, PORT_MAX)
    """The port for `bootstrap.servers` of clients; 0: a free one."""

    broker_port_base: int = _number("broker.port.base", 9100, 0, PORT_MAX)
    """Broker n is reached at this port plus n (less `broker.first.id`); 0: at any free port, which changes at each
    start."""

    broker_first_id: int = _number("broker.first.id", 0, 0)
    """The lowest node id of the brokers."""

    broker_ids: int = _number("broker.ids", 0, 0, PORT_MAX)
    """Number of node ids from there on that have a port. Clients are not told of a broker beyond, which is logged as
    `node_without_port`. 0: as many as there are ports."""

    pod_port_base: int = _number("pod.port.base", 9500, 0, PORT_MAX)
    """Muster's pod with node id n is reached at this port plus n; 0: at any free port."""

    pod_node_id_base: int = _number("pod.node.id.base", 1_000_000, 1, INT32_MAX // 2)
    """Clients know Muster's pod with node id n as the node with this id plus n, which no broker may have."""

    ready_port: int = _number("ready.port", 0, 0, PORT_MAX)
    """A port that is open from when the brokers were found, and Muster's pods as far as they are there: for readiness
    probes. 0: none."""

    metrics_port: int = _number("metrics.port", 0, 0, PORT_MAX)
    """A port with `GET /metrics` for Prometheus ([metrics.md](metrics.md#metrics-of-a-gateway)), without TLS: no
    client, group or topic is named there. 0: none."""

    park_ms: int = _number("park.ms", 15_000, 0, 600_000)
    """Time (ms) that a group's request waits in the gateway while its partition at Muster has no leader, or no pod is
    known yet. Then it is answered as by Kafka: COORDINATOR_NOT_AVAILABLE. Keep it below the time-out of clients."""

    max_in_flight: int = _number("max.in.flight.requests", 64, 1, 10_000)
    """Requests of one connection that wait for their answers; beyond it nothing more is read from the connection."""

    max_read_bytes: int = _number("max.read.bytes", 16_777_216, 65_536)
    """Largest request or answer (bytes) that the gateway reads, such as JoinGroup or Metadata; a larger one closes its
    connection. What passes unread, such as Produce and Fetch, has no limit here."""

    max_held_bytes: int = _number("max.held.bytes", 268_435_456, 1_048_576)
    """Bytes that all connections hold together in requests and answers that are read. Beyond it the connection that
    holds most is closed."""

    max_connections: int = _number("max.connections", 20_000, 1)
    """Connections of clients at a time; one more is closed at once."""

    connections_max_idle_ms: int = _number("connections.max.idle.ms", 600_000, 1000)
    """A connection on which nothing came for this long (ms) and nothing waits is closed."""

    @property
    def asks_leases(self) -> bool:
        """True if the gateway asks the pods' APIs which side serves a group."""
        return bool(self.movable or self.api or self.api_port)

    @property
    def asks_clients(self) -> bool:
        """True if the gateway itself checks clients' logins, and has one account at brokers."""
        return bool(self.sasl_enabled_mechanisms) or self.ssl_client_auth == "required"

    @property
    def logins_pass(self) -> bool:
        """True if clients' logins pass to brokers, which check them."""
        return self.to_brokers.sasl and not self.asks_clients

    @property
    def clients_share_user(self) -> bool:
        """True if clients that log in are all the gateway's user at Muster."""
        return bool(self.groups) and (self.asks_clients or self.logins_pass) and not self.muster_act_for_clients

    @property
    def to_brokers(self) -> OutgoingSettings:
        return OutgoingSettings(
            self.upstream_security_protocol,
            self.upstream_sasl_mechanism,
            self.upstream_sasl_dir,
            self.upstream_truststore,
            self.upstream_tls_dir,
            bool(self.upstream_endpoint_check),
        )

    @property
    def to_pods(self) -> OutgoingSettings:
        return OutgoingSettings(
            self.muster_security_protocol,
            self.muster_sasl_mechanism,
            self.muster_sasl_dir,
            self.muster_truststore,
            self.muster_tls_dir,
            bool(self.muster_endpoint_check),
        )


@dataclass(frozen=True)
class Setting:
    """One setting: `attribute` of GatewaySettings, and the `name` that people use."""

    attribute: str
    name: str
    default: int | str
    minimum: int = 0
    maximum: int = 0
    check: Callable[[str], object] = str

    def parse(self, text: str) -> int | str:
        """Raises SettingsError."""
        if isinstance(self.default, str):
            try:
                self.check(text)
            except ValueError as error:
                raise SettingsError(f"{self.name}: {error}") from None
            return text
        try:
            value = int(text)
        except ValueError:
            raise SettingsError(f"{self.name}={text!r} is not a number") from None
        if not self.minimum <= value <= self.maximum:
            raise SettingsError(f"{self.name}={value} is not between {self.minimum} and {self.maximum}")
        return value


def _default(setting: dataclasses.Field[object]) -> int | str:
    value = setting.default
    assert isinstance(value, int | str)
    return value


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(each.name, default=_default(each), **each.metadata) for each in dataclasses.fields(GatewaySettings)
)


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """NAME=VALUE each. Raises SettingsError."""
    values: dict[str, str] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise SettingsError(f"{assignment!r} is not of the form NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def parse_settings(values: Mapping[str, str]) -> GatewaySettings:
    """Raises SettingsError, which for an unknown name has the nearest known one."""
    known = {setting.name: setting for setting in SETTINGS}
    parsed: dict[str, int | str] = {}
    for name, text in values.items():
        setting = known.get(name)
        if setting is None:
            near = difflib.get_close_matches(name, known, 1)
            raise SettingsError(f"unknown setting {name}" + (f"; did you mean {near[0]}?" if near else ""))
        parsed[setting.attribute] = setting.parse(text)
    settings = dataclasses.replace(GatewaySettings(), **parsed)  # type: ignore[arg-type]
    if not addresses(settings.upstream):
        raise SettingsError("upstream.bootstrap.servers is needed: HOST:PORT of brokers")
    if settings.groups and not addresses(settings.muster):
        raise SettingsError("muster.bootstrap.servers is needed where muster.groups names groups")
    trouble = _trouble_of_moves(settings) or _trouble(settings)
    if trouble:
        raise SettingsError(trouble)
    return settings


def _trouble_of_moves(settings: GatewaySettings) -> str:
    """The settings that movable groups need and that are missing, as a message; "" if none is."""
    if not settings.asks_leases:
        return ""
    name = "muster.movable.groups" if settings.movable else "muster.api.servers" if settings.api else "muster.api.port"
    if not addresses(settings.muster) or not (addresses(settings.api) or settings.api_port):
        return f"{name} needs muster.bootstrap.servers, and muster.api.servers or muster.api.port"
    if bool(settings.api_tls_dir) != bool(settings.api_cluster):
        return "muster.api.tls.dir and muster.api.cluster need each other"
    if not settings.transactions:
        return f"{name} needs muster.transactions=1: a group that has moved has its producers still"
    return ""


def _trouble(settings: GatewaySettings) -> str:
    """The first settings of security that do not fit together, as a message; "" if all do."""
    outgoing = settings.to_brokers.trouble("upstream.") or settings.to_pods.trouble("muster.")
    if outgoing:
        return outgoing
    if settings.ssl_client_auth == "required" and not settings.listener_tls_dir:
        return "ssl.client.auth=required needs listener.tls.dir"
    mechanisms = parse_mechanisms(settings.sasl_enabled_mechanisms)
    if mechanisms and not settings.users_file:
        return "sasl.enabled.mechanisms needs muster.users.file"
    if PLAIN in mechanisms and not settings.listener_tls_dir:
        return f"sasl.enabled.mechanisms: {PLAIN} sends passwords as they are, and there is no TLS"
    if settings.upstream_tls_dir and not settings.asks_clients:
        # Brokers would take every client for the gateway.
        return "upstream.tls.dir needs sasl.enabled.mechanisms or ssl.client.auth=required"
    if settings.muster_act_for_clients:
        if settings.muster_sasl_mechanism in ("", OAUTHBEARER):
            return "muster.act.for.clients needs muster.sasl.mechanism to be PLAIN or SCRAM"
        if not (settings.asks_clients or settings.logins_pass):
            return "muster.act.for.clients: nobody asks clients who they are"
    return ""
