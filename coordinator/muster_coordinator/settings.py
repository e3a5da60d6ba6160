"""Settings of a coordinator pod under Kafka's names; a setting that Kafka does not have is named `muster.<field>`.

Each group of settings is a frozen dataclass; what a field means, its unit and its range stand under it.
`docs/configuration.md` is rendered from here, and a test holds it true. `settings_by_name.py` reads them from texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster_coordinator.groups.config import GroupConfig
from muster_coordinator.groups.consumer.config import ConsumerGroupConfig
from muster_coordinator.outgoing.settings import (
    OutgoingSettings,
    check_identification,
    check_mechanism,
    check_protocol,
)
from muster_coordinator.security.identity import parse_principals
from muster_coordinator.security.principal_mapping import parse_mapping
from muster_coordinator.security.users import parse_mechanisms
from muster_coordinator.setting_fields import (
    check_client_auth,
    check_key_url,
    check_name,
    flag,
    number,
    parse_addresses,
    parse_names,
    parse_prefixes,
    path,
    ratio,
    text,
)
from muster_coordinator.sites.address import parse_site
from muster_coordinator.tracing.endpoint import check_endpoint
from muster_coordinator.transactions.config import TransactionConfig


@dataclass(frozen=True)
class ListenerSettings:
    """Limits that a client can reach. Reaching one costs that one connection, and is counted."""

    socket_request_max_bytes: int = number(4_194_304, "socket.request.max.bytes", 1024)
    """Largest request in bytes; a larger one closes its connection. Kafka's default is 100 MiB, for Produce. Set it
    above message.max.bytes: what is in a commit, or in the assignments of a group, becomes a record."""

    max_connections: int = number(20_000, "max.connections", 1)
    """Connections at a time; one more is closed at once. Kafka has no limit by default."""

    max_connections_per_ip: int = number(2_147_483_647, "max.connections.per.ip", 1)
    """Connections of one address at a time; one more is closed at once. As in Kafka there is no limit by default: a
    gateway, or the nodes of a network with address translation, are one address."""

    max_connections_per_user: int = number(2_147_483_647, None, 1)
    """Connections of one user (of a login or certificate) at a time; one more is closed at once. A quota of the user
    counts in its place."""

    max_in_flight_per_user: int = number(20_000, None, 1)
    """Requests of all connections of one user (of a login or certificate) that wait for their answers; beyond it
    nothing more is read from the user's connections until there is room. A join of a group waits for its other
    members: leave room for one request of each, as this default has for max.connections."""

    audit_lines_per_second: int = number(20, None, 0, 10_000)
    """Lines of the log per second about what was refused: connections, logins, requests; of one address a quarter of
    them at most. How many were left out is logged. 0: none."""

    connections_max_idle_ms: int = number(600_000, "connections.max.idle.ms", 1000)
    """A connection without a request for this long (ms) is closed."""

    max_in_flight_requests: int = number(128, None, 1, 10_000)
    """Requests of one connection that wait for their answers; beyond it nothing more is read from the connection. A
    Kafka broker takes one request at a time from each connection."""

    max_unread_bytes: int = number(65_536, None, 1024)
    """Bytes of a connection's answers that its client does not read, besides those in the buffers of the kernel; beyond
    it no request of the connection is carried out. What one request is answered may be more."""

    max_buffered_bytes: int = number(134_217_728, None, 1_048_576)
    """Bytes that all connections hold together: requests that are not complete or not answered yet, answers that are
    not sent. Beyond it the connection that holds most is closed. Only connections that hold more than 4 KiB count.
    Set it above socket.request.max.bytes, or a request of that size never gets through."""


@dataclass(frozen=True)
class ShardSettings:
    """The log of an offsets partition and the pod's journal."""

    offsets_topic_segment_bytes: int = number(104_857_600, "offsets.topic.segment.bytes", 1024)
    """Size (bytes) at which a segment is closed and the next one begins."""

    offsets_commit_timeout_ms: int = number(5000, "offsets.commit.timeout.ms", 1)
    """A request whose records are not committed after this long (ms) gets COORDINATOR_NOT_AVAILABLE."""

    journal_bytes: int = number(16_777_216, None, 1_048_576)
    """Size (bytes) of one journal file. Recovery reads all journal files, so a larger value makes it longer."""

    delete_offsets_of_removed_topics: int = number(0, None, 0, 1)
    """1: when a topic is removed from the declared ones, or loses partitions, the offsets that groups committed for
    it are deleted, as a Kafka broker does when a topic is deleted; those with the id of another topic of that name,
    such as a broker's, stay (ADR 24). 0: all stay until they expire, so that an edit that removes too much costs
    nothing."""

    checkpoint_interval_bytes: int = number(524_288, None, 65_536)
    """A checkpoint of a partition's state is taken when its log has grown by this many bytes since the last one, and by
    at least the size of that one. A load reads the checkpoint and the log after it: a larger value makes the start of a
    pod longer, a smaller one costs CPU."""

    segment_flush_interval_ms: int = number(250, None, 1, 60_000)
    """Time (ms) for which records may be in the journal only, before they are written to their segment file too."""

    flush_os: int = number(0, None, 0, 1)
    """0: records are on the disk before they are acknowledged. 1: the operating system decides when, as for a Kafka
    broker. A pod whose machine lost power is rebuilt from the others before it counts again. If a majority of a
    partition lost power at once, it stays without a leader until a person allows data loss. Promises of epochs are
    always synced."""


@dataclass(frozen=True)
class CompactionSettings:
    """Compaction of the closed segments of all replicas on this pod. Records go; offsets and epochs stay."""

    log_cleaner_min_cleanable_ratio: float = ratio(0.5, "log.cleaner.min.cleanable.ratio")
    """A log is cleaned when at least this share of the bytes in its closed segments was not cleaned yet."""

    log_cleaner_delete_retention_ms: int = number(86_400_000, "log.cleaner.delete.retention.ms", 0)
    """Time (ms) for which tombstones and transaction markers are kept after they were written."""

    log_cleaner_io_max_bytes_per_second: int = number(4_194_304, "log.cleaner.io.max.bytes.per.second", 1024)
    """Bytes per second that the cleaner reads and writes at most. Kafka has no limit by default; here the cleaner
    shares a processor with the coordinator."""

    archive_dir: str = path()
    """An absolute path: each closed segment is copied there before the cleaner may touch it, as
    `__consumer_offsets-<p>/<log id>/<20 digits>.log`. Empty: nothing is archived. It must not be in a data
    directory."""

    log_cleaner_backoff_ms: int = number(15_000, "log.cleaner.backoff.ms", 1)
    """Pause (ms) between two passes of the cleaner, also when there was no log to clean."""


@dataclass(frozen=True)
class PeerSettings:
    """Replicas in other pods, and what happens when the operator or this pod goes away."""

    self_nomination_after_ms: int = number(10_000, None, 0, 86_400_000)
    """A replica that heard neither the operator nor a leader for this long (ms), or up to twice as long, asks the
    others whether it may lead. A pod that was started again without an operator answers clients after this time from
    the last image that it stored. 0: only the operator elects."""

    drain_timeout_ms: int = number(3000, None, 0, 600_000)
    """A pod that is asked to end continues to lead partitions with several replicas until the operator has moved them.
    It resigns when none was moved for this long (ms), or after 20 s."""

    peer_buffer_bytes: int = number(16_777_216, None, 1_048_576)
    """Size (bytes) of the buffer of messages to one other pod. Messages that do not fit are dropped and sent again
    later. Messages that only help a replica to catch up may fill a quarter of it."""


@dataclass(frozen=True)
class TlsSettings:
    """TLS for Kafka clients, on every listener: 1.2 and 1.3. With `listener.name.<listener>.` before its name a setting
    counts for that listener only, as in Kafka."""

    listener_tls_dir: str = path()
    """An absolute path: a directory with `tls.crt`, `tls.key` and, for those of clients, `ca.crt`, as in a Secret
    of type kubernetes.io/tls. Files that change count for new connections. Empty: there is no TLS."""

    ssl_client_auth: str = text("ssl.client.auth", check_client_auth, "none")
    """The certificate, signed by `ca.crt`, that a client has to show: `none`, `requested`, `required`. Without SASL its
    subject says who the client is."""

    ssl_principal_mapping_rules: str = text("ssl.principal.mapping.rules", parse_mapping, "DEFAULT")
    """The rules (Kafka's) by which the subject of a client's certificate (`CN=billing,OU=teams`) becomes the name of a
    user, between commas, such as `RULE:^CN=(.*?),.*$/$1/L`. A client to which none applies is not let in."""


@dataclass(frozen=True)
class SaslSettings:
    """The way in which clients say who they are, on every listener. Without `sasl.enabled.mechanisms` nobody asks them.
    With `listener.name.<listener>.` before its name a setting counts for that listener only, but for
    `muster.users.file`."""

    sasl_enabled_mechanisms: str = text("sasl.enabled.mechanisms", parse_mechanisms)
    """SASL mechanisms between commas: `SCRAM-SHA-256`, `SCRAM-SHA-512`, `PLAIN`, `OAUTHBEARER`. The last two need
    TLS."""

    users_file: str = path()
    """An absolute path: the users, as [access.md](access.md) describes them, read again when the file changes. A user
    that is not in it any more is out within two seconds. A pod that cannot read it does not start."""

    gateway_users: str = text(None, parse_principals)
    """Users that may log in on behalf of others, whom SASL's authorization id names (`User:gateway`): those of gateways
    with `muster.act.for.clients`. ACLs are asked about the other user then, who needs no account here; a client that
    knows the password of such a user can be any user. By PLAIN and SCRAM."""

    connections_max_reauth_ms: int = number(0, "connections.max.reauth.ms", 0)
    """Time (ms) for which a login counts. A client that knows of this says again who it is before (KIP-368); another
    one's connection is closed at its next request. 0: as long as the connection."""

    sasl_server_max_receive_size: int = number(524_288, "sasl.server.max.receive.size", 1024)
    """Largest request in bytes before the client is known; a larger one closes its connection."""

    connection_failed_authentication_delay_ms: int = number(
        100, "connection.failed.authentication.delay.ms", 0, 300_000
    )
    """Time (ms) that a failed login waits for its answer. Each further one of the address waits twice as long as the
    one before, up to half of muster.login.timeout.ms, and the first again after six times that without one."""

    max_logins_per_address: int = number(500, None, 1)
    """Connections of one address at a time whose client has not said yet who it is; one more is closed at once."""

    login_timeout_ms: int = number(10_000, None, 1000, 600_000)
    """Longest login (ms); the connection of a longer one is closed."""


@dataclass(frozen=True)
class TokenSettings:
    """Tokens of OAUTHBEARER: JSON Web Tokens of an identity provider."""

    sasl_oauthbearer_jwks_endpoint_url: str = text("sasl.oauthbearer.jwks.endpoint.url", check_key_url)
    """The address of the keys that sign tokens, a JSON Web Key Set: `https://...`, or `file:///...`, which is read
    again when it changes. OAUTHBEARER needs it."""

    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = number(
        3_600_000, "sasl.oauthbearer.jwks.endpoint.refresh.ms", 1000
    )
    """Age (ms) that keys from `https://...` reach before they are read again. While that fails the old ones count."""

    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = number(
        10_000, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 100, 600_000
    )
    """Pause (ms) between two attempts to read the keys, when one failed or a token names an unknown key; also how long
    an attempt takes at most."""

    sasl_oauthbearer_expected_audience: str = text("sasl.oauthbearer.expected.audience", parse_names)
    """Audiences between commas: a token must name one of them (`aud`). Empty: only tokens without any are taken."""

    sasl_oauthbearer_expected_issuer: str = text("sasl.oauthbearer.expected.issuer", str)
    """The issuer that a token must name (`iss`). Empty: any."""

    sasl_oauthbearer_clock_skew_seconds: int = number(30, "sasl.oauthbearer.clock.skew.seconds", 0, 3600)
    """Seconds by which the provider's clock may be off."""

    sasl_oauthbearer_sub_claim_name: str = text("sasl.oauthbearer.sub.claim.name", check_name, "sub")
    """The claim of a token that has the name of the user."""


@dataclass(frozen=True)
class AccessSettings:
    """The rights of users. Without `muster.acls.file` and `muster.access.from.operator` everybody may do everything."""

    acls_file: str = path()
    """An absolute path: the ACLs, as [access.md](access.md) describes them, read again when the file changes. A pod
    that cannot read it does not start; a change that cannot be read is logged, and the ACLs before it stay."""

    access_from_operator: bool = flag(False, None)
    """Take users and ACLs from the operator (MusterUsers) in place of files: then there are none until it
    has given them. The data directory keeps them for the next start."""

    super_users: str = text("super.users", parse_principals)
    """Principals that may do everything whatever the ACLs say: `User:admin;User:operator`."""

    allow_everyone_if_no_acl_found: bool = flag(False, "allow.everyone.if.no.acl.found")
    """Let everybody do everything with a group, topic or cluster for which there is no ACL at all."""


@dataclass(frozen=True)
class UpstreamSettings:
    """The Kafka cluster that this one mirrors ([adopt.md](adopt.md))."""

    upstream_bootstrap: str = text(None, parse_addresses)
    """Addresses of its brokers (`HOST:PORT`, between commas). The offsets topic has to have as many partitions as its
    `__consumer_offsets`. Empty: nothing is mirrored."""

    upstream_served_groups: str = text(None, parse_prefixes)
    """The groups that Muster coordinates although there is an upstream: the beginnings of their ids, between commas;
    `*`: all. All others are Kafka's, and are only shown. A group that Kafka has already must not be among them. Give a
    gateway's `muster.groups` the same."""

    upstream_movable_groups: str = text(None, parse_prefixes)
    """The groups of Kafka's that may move to Muster while they run: the beginnings of their ids, between commas; `*`:
    all; empty: none. Their clients come by gateways, and every gateway has the same in `muster.movable.groups`, or
    learns it from the pods. With it, a gateway sends requests of these groups to Kafka only while Muster tells it to.
    """

    upstream_lease_ms: int = number(3_000, None, 500, 60_000)
    """The time (ms) for which a gateway may send requests of movable groups to Kafka after a pod has told it to.
    Without a leader of their partition for longer they wait; a gateway that is cut off makes a move wait for as long.
    """

    upstream_write_back_interval_ms: int = number(5_000, None, 0, 3_600_000)
    """Interval (ms) at which offsets of groups that have moved to Muster, and have changed, are written to Kafka: what
    a cluster without Muster would not know, were all pods lost. The account needs READ on these groups and on the
    topics of their offsets, and WRITE on transactional ids that begin with `muster-`. 0: nothing is written."""

    upstream_group_lag_max_groups: int = number(0, None, 0, 1_000)
    """Groups of which `muster_group_lag` says how many records they are behind: of those that Muster coordinates and
    the pod leads, the first by name, with 1,000 series and 20,000 committed offsets together at most. The pod asks the
    brokers where partitions end, 500 at a time, every 60 times `muster.upstream.fetch.wait.ms`, which is 15 s; the
    account needs DESCRIBE on the topics. 0: nobody is asked. Needs `muster.upstream.bootstrap`."""

    upstream_fetch_wait_ms: int = number(250, None, 10, 10_000)
    """Time (ms) for which a broker holds back an answer for lack of news (Kafka's consumers: fetch.max.wait.ms). The
    mirror rests as long after a failure, and finds a partition that its pod begins to lead within that time."""

    upstream_delete_retention_ms: int = number(86_400_000, None, 1000)
    """`delete.retention.ms` (ms) of its `__consumer_offsets`. A mirror that was away for longer, and finds that records
    were compacted away meanwhile, reads the partition again."""

    upstream_security_protocol: str = text(None, check_protocol, "PLAINTEXT")
    """The protocol of its brokers' listener, as Kafka's security.protocol: `PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` (for
    SCRAM only), `SASL_SSL`."""

    upstream_sasl_mechanism: str = text(None, check_mechanism)
    """With SASL: `SCRAM-SHA-512`, `SCRAM-SHA-256`, `PLAIN` or `OAUTHBEARER`."""

    upstream_sasl_dir: str = path()
    """With SASL: an absolute path, a directory with the files `username` and `password` (as in a Secret of type
    kubernetes.io/basic-auth), for OAUTHBEARER `token`, which somebody renews. A changed file counts for the next
    connection. The account needs READ and DESCRIBE on the topic `__consumer_offsets`, and DESCRIBE on topics of groups
    of the consumer protocol at Muster."""

    upstream_ssl_truststore_location: str = path()
    """With TLS: an absolute path, a file with the CA certificates (PEM) that sign those of the brokers; read again
    when it changes. Empty: those that the system knows."""

    upstream_tls_dir: str = path()
    """With TLS: an absolute path, a directory with `tls.crt` and `tls.key`, which brokers are shown that ask for a
    certificate; read again when they change. Empty: none is shown."""

    upstream_ssl_endpoint_identification_algorithm: str = text(None, check_identification, "https")
    """`https`: a broker's certificate has to name the host that is dialled. Empty: any of the CA will do."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        trouble = self.outgoing.trouble("muster.upstream.")
        if trouble:
            raise ValueError(trouble)
        if self.upstream_group_lag_max_groups and not self.upstream_bootstrap:
            raise ValueError(
                "muster.upstream.group.lag.max.groups needs muster.upstream.bootstrap: Kafka's brokers alone know "
                "where partitions end"
            )

    @property
    def outgoing(self) -> OutgoingSettings:
        return OutgoingSettings(
            self.upstream_security_protocol,
            self.upstream_sasl_mechanism,
            self.upstream_sasl_dir,
            self.upstream_ssl_truststore_location,
            self.upstream_tls_dir,
            bool(self.upstream_ssl_endpoint_identification_algorithm),
        )


@dataclass(frozen=True)
class SiteSettings:
    """One of several sites, of which one answers clients ([backup.md](backup.md#a-second-site))."""

    site: str = text(None, parse_site)
    """NAME@STORE, such as `east@s3://backups/shop`: the name of this site, which no other one has had, and the store of
    the backups that it shares with others. The pod answers clients only while the newest claim in the store names the
    site: it reads the claims some times in each lease, and closes its clients' connections when the lease ends. S3
    needs the extra `backup`, which the image has. Not together with an upstream. Empty: nobody is asked."""


@dataclass(frozen=True)
class TracingSettings:
    """Logs and traces of slow work, for people who look for its cause (docs/traces.md). They cost nothing while off."""

    slow_request_ms: int = number(0, None, 0, 600_000)
    """Requests that took at least so long (ms), from their turn on the connection to their answer, are told by
    `slow_request` in the log, with client, connection and place in the logs of the replicas. Those that wait for other
    members or for records by themselves (JoinGroup, SyncGroup, Fetch) are not. 0: none."""

    tracing_endpoint: str = text(None, check_endpoint)
    """URL of a collector that takes OpenTelemetry's spans by HTTP (http://HOST:4318): elections that the operator
    traces, and slow requests. Needs the extra `tracing`, which the image has. Empty: none."""


@dataclass(frozen=True)
class ListenerSecuritySettings:
    """The settings that each listener can have by itself."""

    tls: TlsSettings
    sasl: SaslSettings


@dataclass(frozen=True)
class CoordinatorSettings:
    """Everything that can be set on a pod."""

    listener: ListenerSettings = field(default_factory=ListenerSettings)
    shard: ShardSettings = field(default_factory=ShardSettings)
    cleaner: CompactionSettings = field(default_factory=CompactionSettings)
    peers: PeerSettings = field(default_factory=PeerSettings)
    groups: GroupConfig = field(default_factory=GroupConfig)
    consumers: ConsumerGroupConfig = field(default_factory=ConsumerGroupConfig)
    tls: TlsSettings = field(default_factory=TlsSettings)
    sasl: SaslSettings = field(default_factory=SaslSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    upstream: UpstreamSettings = field(default_factory=UpstreamSettings)
    site: SiteSettings = field(default_factory=SiteSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    by_listener: Mapping[str, ListenerSecuritySettings] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if self.site.site and self.upstream.upstream_bootstrap:
            raise ValueError("muster.site: not together with muster.upstream.bootstrap, where a pod writes, too")

    def of_listener(self, name: str) -> ListenerSecuritySettings:
        """Those of a listener. `name`: "" is the first."""
        return self.by_listener.get(name) or ListenerSecuritySettings(self.tls, self.sasl)
