"""What each seed makes fail: a swarm, in which a part of the seeds has more of what one kind of defect needs, and every
tenth one runs real operators. Every fourth one, chosen for itself, has a transaction topic and transactional producers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from tests.simulation.options import Options, draw_options, for_operating

Profile = Mapping[str, int | float | bool | str]

DUEL: Profile = {
    "safety_ms": 4_000,
    "rogue_every_ms": 60,
    "rogue_sets": 0.0,
    "loss": 0.15,
    "duplicates": 0.1,
    "delay_ms_max": 15,
    "long_delay": 0.05,
    "long_delay_ms": 300,
    "disk_ms_max": 10,
    "crash_every_ms": 400,
    "crash_in_effects": 0.002,
    "restart_ms_max": 150,
    "freeze_every_ms": 0,
    "op_every_ms": 8,
    "groups": 3,
    "append_bytes_max": 200,
    "partitions": 1,
    "members": 0,
    "disaster": False,
}
CUTS: Profile = {
    **DUEL,
    "loss": 0.0,
    "delay_ms_max": 3,
    "disk_ms_max": 1,
    "crash_every_ms": 0,
    "rogue_every_ms": 40,
    "partition_every_ms": 150,
    "partition_ms_max": 200,
    "append_bytes_max": 10_000,
    "clients": 16,
    "groups": 8,
}
CUTS_OF_FIVE: Profile = {**CUTS, "replicas": 5, "partition_every_ms": 60, "partition_ms_max": 400}
STALE: Profile = {
    **CUTS,
    "rogue_every_ms": 60,
    "partition_every_ms": 250,
    "partition_ms_max": 900,
    "crash_in_effects": 0.0,
    "long_delay": 0.0,
    "clients": 6,
    "groups": 1,
    "writes": 0.1,
    "all_crash_every_ms": 0,
    "full_every_ms": 0,
    "broken_every_ms": 0,
    "errors_every_ms": 0,
    "slow_every_ms": 0,
    "flip_every_ms": 0,
    "wipe_every_ms": 0,
    "clean_every_ms": 0,
    "outage_every_ms": 0,
}
LOSSES: Profile = {
    **DUEL,
    "flip_every_ms": 150,
    "crash_every_ms": 0,
    "crash_in_effects": 0.0,
    "old_duplicates": 0.1,
}
SETS: Profile = {
    **DUEL,
    "spares": 3,
    "loss": 0.02,
    "delay_ms_max": 4,
    "crash_every_ms": 0,
    "crash_in_effects": 0.0,
    "rogue_every_ms": 40,
    "rogue_sets": 0.7,
    "partition_every_ms": 300,
    "partition_ms_max": 400,
    "remove_every_ms": 1_000,
}
AWAY: Profile = {
    **DUEL,
    "safety_ms": 6_000,
    "loss": 0.02,
    "rogue_every_ms": 500,
    "clean_every_ms": 150,
    "deletes": 0.4,
    "checkpoint_every_ms": 200,
    "segment_bytes": 1_000,
    "away_every_ms": 2_000,
}
LATE: Profile = {
    **DUEL,
    "loss": 0.02,
    "long_delay": 0.3,
    "long_delay_ms": 900,
    "duplicates": 0.4,
    "old_duplicates": 0.4,
    "clean_every_ms": 100,
    "segment_bytes": 600,
    "deletes": 0.4,
    "rogue_every_ms": 500,
    "restart_ms_max": 300,
}
ERRORS: Profile = {
    "safety_ms": 4_000,
    "errors_every_ms": 250,
    "crash_every_ms": 700,
    "clean_every_ms": 300,
    "checkpoint_every_ms": 200,
    "segment_bytes": 1_000,
    "rogue_every_ms": 300,
    "flush_os": False,
}
CACHE: Profile = {
    **DUEL,
    "flush_os": True,
    "power_loss": 1.0,
    "loss": 0.02,
    "crash_every_ms": 300,
    "rogue_every_ms": 300,
}
NEARLY_ALONE: Profile = {
    "safety_ms": 4_000,
    "nomination_ms": 300,
    "outage_every_ms": 500,
    "operator_crash_every_ms": 500,
    "crash_every_ms": 500,
    "rogue_every_ms": 0,
}
LATE_LOSSES: Profile = {
    **CACHE,
    "replicas": 5,
    "long_delay": 0.3,
    "long_delay_ms": 900,
    "duplicates": 0.4,
    "old_duplicates": 0.4,
    "rogue_every_ms": 600,
}
STALLS: Profile = {
    **CUTS,
    "replicas": 3,
    "clients": 24,
    "rogue_every_ms": 15,
    "partition_every_ms": 40,
    "partition_ms_max": 120,
    "slow_every_ms": 60,
    "slow_disk_ms": 400,
    "slow_files": "journal",
}
LATE_COPIES: Profile = {
    **LATE,
    "replicas": 3,
    "spares": 0,
    "safety_ms": 6_000,
    "old_copies": 0.1,
    "append_bytes_max": 100_000,  # a copy in one part
    "clean_every_ms": 50,
    "delay_ms_max": 4,
    "disk_ms_max": 3,
    "flip_every_ms": 400,
    "crash_every_ms": 700,
    "restart_ms_max": 100,
    "crash_in_effects": 0.0,
    "rogue_every_ms": 4_000,
    **dict.fromkeys(("move_every_ms", "resign_every_ms", "change_every_ms", "remove_every_ms"), 0),
    **dict.fromkeys(("all_crash_every_ms", "broken_every_ms", "errors_every_ms", "full_every_ms"), 0),
    "flush_os": False,
}
RESHARDS: Profile = {
    **STALE,
    "writes": 0.7,
    "fence_every_ms": 300,
    "members": 2,
    "clients": 3,
    "rogue_every_ms": 200,
}
MEMBERS: Profile = {**DUEL, "members": 3, "static": 0.5, "rogue_every_ms": 400, "crash_every_ms": 0, "op_every_ms": 25}

PROFILES: Mapping[str, Profile] = {
    "duel": DUEL,
    "cuts": CUTS,
    "cuts of five": CUTS_OF_FIVE,
    "stale": STALE,
    "losses": LOSSES,
    "sets": SETS,
    "away": AWAY,
    "late": LATE,
    "errors": ERRORS,
    "cache": CACHE,
    "late losses": LATE_LOSSES,
    "nearly alone": NEARLY_ALONE,
    "reshards": RESHARDS,
    "members": MEMBERS,
}
"""Nominators that fight, with many short leaderships whose tails differ; the same by short cuts of the network; leaders
that are cut off while another one is elected, and clients that still ask them; one replica after the other loses data;
changes of the set that overlap; replicas that are away while tombstones go; any old message again; calls to the disk
that fail; power losses without an fsync, and the same
while messages of before arrive late; operators that are away; partitions that are closed and opened; consumer
groups."""


RARE: Mapping[str, Profile] = {"stalls": STALLS, "late copies": LATE_COPIES}
"""Cuts while the journal's writes take long; full copies of logs that were damaged, which come again after restarts."""
RARE_SHARE = 1 / 12


OPERATED = 10
"""One of so many seeds runs real operators. It takes as long as five others."""


TRANSACTIONAL = 4
"""One of so many of the seeds without real operators has transactional producers."""
CHANGES_IN_TRANSACTIONS: Profile = {
    "safety_ms": 2_500,
    "op_every_ms": 12,
    "groups": 1,
    "clients": 2,
    "members": 0,
    "partitions": 2,
    "long_delay": 0.15,
    "long_delay_ms": 800,
    "loss": 0.05,
    "move_every_ms": 400,
    "resign_every_ms": 0,
    "rogue_every_ms": 0,
    "crash_every_ms": 0,
    "freeze_every_ms": 0,
    "partition_every_ms": 0,
    "operator_crash_every_ms": 0,
    "flip_every_ms": 0,
    "wipe_every_ms": 0,
    "full_every_ms": 0,
    "broken_every_ms": 0,
    "errors_every_ms": 0,
    "slow_every_ms": 0,
    "fence_every_ms": 0,
    "promise_every_ms": 0,
}
"""Of every second one of these: many transactions, while leaders change and what they sent before comes late."""


def draw(seed: int) -> Options:
    return _with_mixed(_with_consumers(_with_rest(_with_transactions(_draw(seed)))))


MISDIRECTED = 8
"""One of so many of the seeds without real operators has writes that land elsewhere."""
PIPELINED = 3
"""One of so many of those with transactional producers, and not with many changes of leaders, has clients that wait for
no answer."""


COPIED = 4
"""One of so many of those with real operators has volumes that are copied."""
COPIES: Profile = {
    "copy_volume_every_ms": 1_500,
    "partitions": 1,
    "loss": 0.0,
    "long_delay": 0.0,
    "disk_ms_max": 3,
    "crash_in_effects": 0.0,
    "disaster": False,
    **dict.fromkeys(("crash_every_ms", "all_crash_every_ms", "freeze_every_ms", "partition_every_ms"), 0),
    **dict.fromkeys(("full_every_ms", "broken_every_ms", "slow_every_ms", "wipe_every_ms"), 0),
    "resign_every_ms": 0,
}
"""The pods run and hear one another meanwhile, and none is drained: when one of two is gone the other is believed.
Operators, their API server and people do as in the others."""


DYING = 40
"""One of so many of those without real operators has followers that lose their logs while what they sent is late."""
DEATHS: Profile = {
    "slow_death_every_ms": 1_500,
    "safety_ms": 8_000,
    "op_every_ms": 12,
    "spares": 0,
    "partitions": 1,
    "coordinators": 0,
    "producers": 0,
    "pipelines": 0,
    "twins_every_ms": 0,
    "append_bytes_max": 1_000,
    "nomination_ms": 0,
    "disaster": False,
    "flush_os": False,
    **dict.fromkeys(("loss", "long_delay", "old_duplicates", "old_copies", "crash_in_effects"), 0.0),
    **dict.fromkeys(("crash_every_ms", "all_crash_every_ms", "freeze_every_ms", "partition_every_ms"), 0),
    **dict.fromkeys(("full_every_ms", "broken_every_ms", "errors_every_ms", "slow_every_ms", "wipe_every_ms"), 0),
    **dict.fromkeys(("flip_every_ms", "promise_every_ms", "misdirect_every_ms", "slow_link_every_ms"), 0),
    **dict.fromkeys(("away_every_ms", "fence_every_ms", "clean_every_ms", "archive_every_ms"), 0),
    **dict.fromkeys(("move_every_ms", "resign_every_ms", "change_every_ms", "remove_every_ms"), 0),
    **dict.fromkeys(("rogue_every_ms", "learn_every_ms"), 0),
}
"""The leader stays, with one of the others: an ack that is on its way is of records that nobody else has acked."""


def _with_rest(options: Options) -> Options:
    """By chance of its own: most seeds are what they were before there was this."""
    random = Random(f"rest {options.seed}")
    misdirected = random.randrange(MISDIRECTED) == 0
    every_ms = random.choice((200, 700))
    # Under flush os nothing may be left that shows it, and a removal that a damaged disk refuses waits for people.
    if misdirected and options.replicas > 1 and not (options.operating or options.flush_os or options.remove_every_ms):
        # What overwrites another log's batches in the journal shows only where there are several.
        partitions = max(options.partitions, random.choice((1, 2, 3)))
        options = replace(options, misdirect_every_ms=every_ms, partitions=partitions)
    if options.operating and options.replicas > 1 and random.randrange(COPIED) == 0:
        options = replace(options, **COPIES)  # type: ignore[arg-type]
    changes = vars(options).items() >= CHANGES_IN_TRANSACTIONS.items()  # what those find, more clients would hide
    if options.coordinators and not changes and random.randrange(PIPELINED) == 0:
        # They go on when the faults have stopped, and a copy must be done before what it has is cleaned at the leader.
        options = replace(options, pipelines=2, append_bytes_max=max(options.append_bytes_max, 1_000))
    if options.replicas > 1 and not options.operating and random.randrange(DYING) == 0:
        options = replace(options, **DEATHS)  # type: ignore[arg-type]
    return options


CONSUMING = 6
"""One of about so many seeds has consumers of the new protocol: see `_with_consumers`."""


def _with_consumers(options: Options) -> Options:
    """In all that have classic members, so that the others are what they were; but not beside transactions, nor where a
    person allows a loss, after which members know more than the log."""
    if options.members == 0 or options.operating or options.coordinators or options.disaster:
        return options
    random = Random(f"consumers {options.seed}")
    return replace(options, consumers=random.choice((2, 3, 4)), grow_every_ms=random.choice((300, 700, 2_000)))


MIXED = 3
"""One of so many of the seeds with neither real operators nor transactions nor consumers of another group has a group
of both protocols."""
MIGRATIONS: Profile = {
    "safety_ms": 8_000,
    "op_every_ms": 60,
    "groups": 1,
    "clients": 2,
    "partitions": 1,
    "disk_ms_max": 3,
    "delay_ms_max": 4,
    "move_every_ms": 1_500,
    **dict.fromkeys(("rogue_every_ms", "freeze_every_ms", "partition_every_ms", "all_crash_every_ms"), 0),
    **dict.fromkeys(("flip_every_ms", "full_every_ms", "broken_every_ms", "errors_every_ms", "slow_every_ms"), 0),
    **dict.fromkeys(("promise_every_ms", "misdirect_every_ms", "wipe_every_ms", "slow_death_every_ms"), 0),
}
"""Two of three of these have it: leaders that change now and then, and time between for members of both protocols."""
POLICIES = ("bidirectional", "bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")


def _with_mixed(options: Options) -> Options:
    """By chance of its own, and not where a person allows a loss: see `_with_consumers`."""
    random = Random(f"mixed {options.seed}")
    taken = options.members or options.operating or options.coordinators or options.disaster
    if taken or random.randrange(MIXED):
        return options
    if random.random() < 2 / 3:
        options = replace(options, **MIGRATIONS)  # type: ignore[arg-type]
    return replace(
        options,
        mixed=random.choice((2, 3, 4)),
        policy=random.choice(POLICIES),
        grow_every_ms=random.choice((300, 700, 2_000)),
    )


def _with_transactions(options: Options) -> Options:
    """By chance of its own, so that all others are what they were. A loss that a person allows may take producer ids
    and decisions with it, so there is none."""
    random = Random(f"transactions {options.seed}")
    if options.operating or random.randrange(TRANSACTIONAL):
        return options
    if random.random() < 0.5:
        options = replace(options, **CHANGES_IN_TRANSACTIONS)  # type: ignore[arg-type]
    return replace(
        options,
        coordinators=random.choice((1, 1, 2)),
        producers=random.choice((2, 3, 4)),
        twins_every_ms=random.choice((0, 300, 1_000)),
        transaction_timeout_ms=random.choice((300, 1_000, 3_000)),
        disaster=False,
    )


def _draw(seed: int) -> Options:
    """Two of three seeds without real operators are of a profile, and one of twelve of each rare one."""
    if seed % OPERATED == OPERATED - 1:
        return for_operating(draw_options(seed))
    random = Random(f"profile {seed}")

    def some(*values: int) -> int:
        return random.choice((0, *values))

    options = draw_options(seed)
    options = replace(
        options,
        segment_bytes=random.choice((600, 1_000, 4_000)),
        checkpoint_every_ms=random.choice((0, 200, 1_500)),
        archive_every_ms=some(0, 0, 100) if options.clean_every_ms else 0,
        archive_errors=random.choice((0.0, 0.1)),
        errors_every_ms=some(0, 600, 2_000),
        promise_every_ms=some(5_000) if options.spares else 0,
        old_duplicates=random.choice((0.0, 0.0, 0.02, 0.1)),
        corrupt=random.choice((0.0, 0.0, 0.01)),
        slow_link_every_ms=some(0, 1_000),
        away_every_ms=some(0, 0, 4_000),
        remove_every_ms=some(1_500) if options.spares else 0,
        fence_every_ms=some(0, 0, 1_000),
        static=random.choice((0.0, 0.5)),
    )
    kind = random.random()
    if kind < 2 / 3:
        options = replace(options, **PROFILES[random.choice(list(PROFILES))])  # type: ignore[arg-type]
    for number, profile in enumerate(RARE.values(), 1):
        if 1 - number * RARE_SHARE <= kind < 1 - (number - 1) * RARE_SHARE:
            options = replace(options, **profile)  # type: ignore[arg-type]
    if options.remove_every_ms:  # a removal that a disk refuses is gone on with by the next process only
        quiet = dict.fromkeys(("flip_every_ms", "full_every_ms", "broken_every_ms", "errors_every_ms"), 0)
        options = replace(options, **quiet, promise_every_ms=0, crash_in_effects=0.0)  # type: ignore[arg-type]
    return options
