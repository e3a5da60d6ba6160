"""The table of attacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from tests.attacks import floods, groups, malformed, pace, pipelining, sizes, surroundings
from tests.attacks.bodies import fill_big_group, make_groups
from tests.attacks.site import Site

from muster_coordinator.wire.apis import APIS

Doing = Callable[[Site], Awaitable[None]]
LOGIN_APIS = {17, 36}
ADMINISTRATION = {27, 29, 30, 31, 48, 50, 51, 60, 68, 76, 88}
"""APIs that are answered with a refusal or a line: they are pipelined all at once, in `every-api`."""


@dataclass(frozen=True)
class Attack:
    """`run` goes on until it is cancelled; `prepare` comes before anything is measured, `undo` after the attack.

    `tls`, `logins`: of the listener that is attacked. `config`: of the pod. `clock`: the pod's can be stepped. `disk`:
    the pod has a file system of its own, and commits cannot succeed meanwhile: they may be refused, in a way that
    clients try again, and nothing else.
    """

    name: str
    what: str
    run: Doing
    prepare: Doing | None = None
    undo: Doing | None = None
    gateway: bool = False
    tls: bool = False
    logins: bool = False
    config: tuple[str, ...] = ()
    clock: bool = False
    disk: bool = False


def _pipelined() -> list[Attack]:
    found = []
    for key, api in sorted(APIS.items()):
        if key in ADMINISTRATION:
            continue
        prepare = {9: fill_big_group, 15: fill_big_group, 16: make_groups}.get(key, pipelining.encoded(key))
        what = f"{api.name} without a pause: 16 connections, 500 requests at once"
        found.append(
            Attack(f"pipelined-{api.name}", what, pipelining.pipelined(key), prepare, logins=key in LOGIN_APIS)
        )
    return found


PACE = [
    Attack(
        "no-readers", "16 ask for 5,000 offsets, again and again, and read nothing", pace.no_readers, fill_big_group
    ),
    Attack("slow-readers", "64 do, and read 10 KB a second", pace.slow_readers, fill_big_group),
    Attack("narrow-windows", "16 do, and have room for 2 KiB at a time", pace.narrow_windows, fill_big_group),
    Attack("slow-writers", "500 send ten bytes a second", pace.slow_writers),
    Attack("bytes-one-by-one", "64 send each byte in a packet of its own", pace.bytes_one_by_one),
    Attack("half-lengths", "2,000 send half the length of a request", pace.half_lengths),
    Attack("half-frames", "2,000 send half a commit", pace.half_frames),
    Attack("half-frames-4-MiB", "128 send 4 MiB without the last byte", pace.half_frames_of_the_largest_size),
]
FLOODS = [
    Attack("idle", "5,000 connections that say nothing", floods.idle),
    Attack("beyond-the-limit", "the same where 200 are allowed", floods.idle, config=("max.connections=200",)),
    Attack("come-and-go", "64 connect and close without end", floods.come_and_go),
    Attack("reset", "64 send 20 commits and reset the connection", floods.reset_after_a_request),
    Attack("one-request-each", "64 make a connection for each request", floods.one_request_each),
    Attack("half-handshakes", "1,000 send half of a TLS handshake's first flight", floods.half_handshakes, tls=True),
    Attack("handshakes-without-end", "1,000 send all of it, and no more", floods.handshakes_without_an_end, tls=True),
    Attack("handshakes", "64 shake hands and close without end", floods.entrances, tls=True),
    Attack("no-handshakes", "64 send requests without TLS to a port with TLS", floods.no_handshakes, tls=True),
    Attack("half-logins", "1,000 begin a login by SCRAM", floods.half_logins, logins=True),
    Attack("largest-logins", "400 send half of a login of 512 KiB", floods.logins_of_the_largest_size, logins=True),
    Attack("logins", "64 log in and close without end", floods.entrances, logins=True),
    Attack("tls-logins", "64 do so over TLS", floods.entrances, tls=True, logins=True),
    Attack("wrong-passwords", "64 guess a password, by SCRAM", floods.wrong_passwords, logins=True),
    Attack("plain-passwords", "64 guess a password, by PLAIN", floods.wrong_passwords_by_plain, tls=True, logins=True),
    Attack("unknown-users", "64 guess the name, too", floods.unknown_users, tls=True, logins=True),
    Attack(
        "before-the-login", "64 pipeline ApiVersions and log in never", floods.requests_before_the_login, logins=True
    ),
]
GROUPS = [
    Attack("new-groups", "8 commit for a new group each time", groups.new_groups),
    Attack("crowd", "64 send new members into one group", groups.members_of_one_group),
    Attack("pending-members", "16 ask for ids of members, and do not come back", groups.members_that_do_not_come_back),
    Attack("lone-members", "64 join a new group each time", groups.groups_of_one_member),
    Attack("new-coordinators", "8 ask for the coordinator of a new group each time", groups.coordinators_of_new_groups),
    Attack("many-coordinators", "8 ask for 1,000 coordinators at once", groups.many_keys_looked_for),
    Attack("rebalances", "a group of 64 rebalances without end", groups.rebalances),
    Attack("come-and-leave", "64 join and leave without end", groups.come_and_leave),
    Attack("lists", "8 ask for the list of 5,000 groups", groups.lists_of_many_groups, make_groups),
    Attack("descriptions", "8 ask for a group of 1,000 members", groups.descriptions_of_a_crowd, groups.crowd),
    Attack(
        "described-1000-times",
        "2 name a group of 1,000 members 1,000 times in a request",
        groups.one_group_described_a_thousand_times,
        groups.crowd,
    ),
    Attack(
        "fetched-1000-times",
        "2 name a group of 5,000 offsets 1,000 times in a request",
        groups.one_group_fetched_a_thousand_times,
        fill_big_group,
    ),
    Attack("many-fetched", "4 ask for the offsets of 1,000 groups at once", groups.many_groups_fetched, make_groups),
    Attack("deletions", "4 delete 1,000 groups at once", groups.deletions, make_groups),
]
SIZES = [
    Attack("largest-metadata", "commits with 0.8 MB of metadata", sizes.largest_metadata),
    Attack("commits-too-large", "commits of 4 MB, beyond what the log takes", sizes.commits_beyond_a_batch),
    Attack("wide-commits", "commits of 5,000 partitions", sizes.commits_of_many_partitions),
    Attack("longest-group-ids", "commits for new groups with ids of 32 KB", sizes.longest_group_ids),
    Attack("largest-subscriptions", "members with 256 KiB of subscription", sizes.largest_subscriptions),
    Attack("most-protocols", "members with 1,000 assignors", sizes.most_protocols),
    Attack("longest-names", "client and member ids of 32 KB", sizes.longest_names_of_clients),
    Attack("offset-fetch-topics", "OffsetFetch of 100,000 topics", sizes.topics_of_an_offset_fetch, fill_big_group),
    Attack(
        "offset-fetch-partitions",
        "OffsetFetch of 100,000 partitions of a topic",
        sizes.partitions_of_an_offset_fetch,
        fill_big_group,
    ),
    Attack("fetch-topics", "Fetch of 100,000 topics", sizes.topics_of_a_fetch),
    Attack("metadata-topics", "Metadata of 100,000 topics", sizes.topics_of_a_metadata),
    Attack("describe-groups", "DescribeGroups of 100,000 groups", sizes.groups_of_a_description),
    Attack("delete-groups", "DeleteGroups of 100,000 groups", sizes.groups_of_a_deletion),
    Attack("array-too-long", "arrays of one more than is allowed", sizes.array_beyond_the_limit),
]
MALFORMED = [
    Attack("garbage", "random bytes", malformed.garbage),
    Attack("zeros", "frames without a byte", malformed.zeros),
    Attack("web-requests", "HTTP", malformed.web_requests),
    Attack("negative-lengths", "a length of -1", malformed.negative_lengths),
    Attack("huge-lengths", "a length of 2 GiB", malformed.huge_lengths),
    Attack("huge-counts", "an array that claims two billion elements", malformed.huge_counts),
    Attack("huge-compact-counts", "the same as a varint", malformed.huge_compact_counts),
    Attack("unknown-apis", "an API that nobody has", malformed.unknown_apis),
    Attack("wrong-versions", "a version that nobody has", malformed.wrong_versions),
    Attack("mutated", "requests of all kinds, half of them damaged", malformed.mutated),
]
SURROUNDINGS = [
    Attack("clock-forward", "the clock goes an hour forward", surroundings.clock_forward, clock=True),
    Attack("clock-back", "the clock goes an hour back", surroundings.clock_back, clock=True),
    Attack("clock-to-and-fro", "an hour forward and back, twice a second", surroundings.clock_to_and_fro, clock=True),
    Attack("disk-full", "somebody else fills the file system", surroundings.full, undo=surroundings.free, disk=True),
    Attack(
        "read-only",
        "the file system is read-only for files not yet open, and segments are of 1 KiB",
        surroundings.read_only,
        undo=surroundings.writable,
        config=("offsets.topic.segment.bytes=1024",),
        disk=True,
    ),
    Attack("idle-peers", "2,000 idle connections to the port for pods", surroundings.idle_at_the_pods_port),
    Attack("garbage-for-peers", "random bytes to the port for pods", surroundings.garbage_at_the_pods_port),
    Attack("idle-at-the-api", "2,000 idle connections to the pod API", surroundings.idle_at_the_api),
    Attack("api-questions", "16 pipeline GET /metrics at the pod API", surroundings.questions_to_the_api),
]
EVERY_API = Attack("every-api", "every API at once, without a pause", pipelining.every_api_at_once, fill_big_group)
OF_A_STRANGER = ("no-readers", "idle", "new-groups", "crowd", "fetched-1000-times", "every-api")
"""Attacks that are made again by a user who has logged in and may do nothing."""
AT_GATEWAYS = (
    *("no-readers", "slow-writers", "half-lengths", "half-frames", "idle", "come-and-go", "handshakes", "new-groups"),
    *("lists", "fetched-1000-times", "pipelined-Heartbeat", "pipelined-Metadata", "garbage", "huge-lengths"),
)
"""Attacks that are made on a gateway, too."""


def _all() -> dict[str, Attack]:
    pods = [*PACE, *_pipelined(), EVERY_API, *FLOODS, *GROUPS, *SIZES, *MALFORMED, *SURROUNDINGS]
    named = {each.name: each for each in pods}
    strangers = [replace(named[name], name=f"stranger-{name}", logins=True) for name in OF_A_STRANGER]
    gateways = [replace(named[name], name=f"gateway-{name}", gateway=True) for name in AT_GATEWAYS]
    return named | {each.name: each for each in (*strangers, *gateways)}


ATTACKS = _all()
