"""Everything that one run draws before it begins. Printed first, and again when it fails; equal options, equal run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random

__all__ = ["Options", "draw_options", "for_operating"]


@dataclass(frozen=True)
class Options:
    """Probabilities are per event of the kind that the name says; ``*_every_ms``: mean time between two, 0 = never."""

    seed: int
    replicas: int = 3
    spares: int = 0  # pods that hold no replica at first
    partitions: int = 1
    safety_ms: int = 8_000
    groups: int = 3
    clients: int = 4
    op_every_ms: int = 25
    writes: float = 0.7  # of what a writer does; it reads otherwise
    deletes: float = 0.1
    transactions: float = 0.1
    members: int = 2  # of a consumer group in each partition
    delay_ms_max: int = 4
    long_delay: float = 0.01  # of a message; then up to long_delay_ms
    long_delay_ms: int = 800
    loss: float = 0.01
    duplicates: float = 0.02
    disk_ms_max: int = 3
    slow_disk_ms: int = 60
    slow_files: str = "any"  # of a slow disk: the syncs of these, which so come behind what was begun after them
    crash_every_ms: int = 2_500
    crash_in_effects: float = 0.0005  # between two effects
    power_loss: float = 0.3  # of a crash: also what flush os had not synced
    restart_ms_max: int = 1_200
    all_crash_every_ms: int = 0
    freeze_every_ms: int = 4_000
    freeze_ms_max: int = 2_500
    partition_every_ms: int = 3_000
    partition_ms_max: int = 2_000
    flip_every_ms: int = 0  # a bit flips in a log
    wipe_every_ms: int = 0  # a volume is lost
    full_every_ms: int = 0
    broken_every_ms: int = 0  # writes end in an I/O error
    slow_every_ms: int = 6_000
    move_every_ms: int = 2_500  # planned moves
    resign_every_ms: int = 8_000
    change_every_ms: int = 0  # of the set
    rogue_every_ms: int = 3_000  # a call that no operator of ours would make
    rogue_sets: float = 0.3  # of those: with a set that was not recorded
    operator_crash_every_ms: int = 6_000
    operators: int = 2
    clean_every_ms: int = 0
    checkpoint_every_ms: int = 1_500
    nomination_ms: int = 0
    flush_os: bool = False
    append_bytes_max: int = 1_000
    drift: float = 0.05
    jump_every_ms: int = 0  # of a wall clock
    learn_every_ms: int = 0  # a replica outside of the set gets the log
    disaster: bool = False  # one partition loses its majority, and a person allows data loss
    outage_every_ms: int = 0  # of the API server
    lag_every_ms: int = 0  # of an operator's watch
    api_errors: float = 0.03  # 409, 410, 429, time-outs
    operator_crash_in_steps: float = 0.03  # between two actions
    operating: bool = False  # the operators are the real ones; see `for_operating`
    two_leases: bool = False  # real operators act at the same time
    restore_every_ms: int = 0  # etcd, from a backup
    lose_status_every_ms: int = 0  # of an object
    segment_bytes: int = 4_000
    archive_every_ms: int = 0  # pause of the archiver; 0: there is none
    archive_errors: float = 0.0  # of a call to the archive
    errors_every_ms: int = 0  # some calls to some files of one disk fail, or are short
    promise_every_ms: int = 0  # a promise file is damaged
    old_duplicates: float = 0.0  # of a message: some earlier one comes again
    old_copies: float = 0.0  # of a message: some earlier part of a full copy comes again
    corrupt: float = 0.0  # of a message: a bit of it flips
    slow_link_every_ms: int = 0  # one direction between two pods gets slow
    away_every_ms: int = 0  # a pod is away for long
    remove_every_ms: int = 0  # a replica outside of its set is removed
    fence_every_ms: int = 0
    static: float = 0.0  # of the members: they have an instance id
    coordinators: int = 0  # partitions of the transaction topic
    producers: int = 0  # that are transactional
    twins_every_ms: int = 0  # a second instance of a producer
    transaction_timeout_ms: int = 1_000
    misdirect_every_ms: int = 0  # a write lands at another place of its disk
    slow_death_every_ms: int = 0  # a machine gets slow, and then loses a log
    copy_volume_every_ms: int = 0  # a pod starts with a copy of another one's volume
    consumers: int = 0  # of the new protocol, in each partition; then the classic members do more, too
    grow_every_ms: int = 700  # of the topics to which these subscribe
    pipelines: int = 0  # clients that wait for no answer, beside transactional producers
    mixed: int = 0  # machines in each partition whose consumers are of either protocol, in one group
    policy: str = "bidirectional"  # group.consumer.migration.policy

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in asdict(self).items())

    def with_text(self, text: str) -> Options:
        """Changed as by ``name=value name=value``, in the form in which they are printed. Raises ValueError."""
        given = dict(one.split("=", 1) for one in text.split())
        known = asdict(self)
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"there is no option {name}")
            kind = type(known[name])
            known[name] = value == "True" if kind is bool else kind(value)
        options = Options(**known)
        return for_operating(options) if options.operating and not self.operating else options


def for_operating(options: Options) -> Options:
    """With real operators, which need more time. A rogue's sets would be taken over."""
    random = Random(f"operating {options.seed}")
    return replace(
        options,
        operating=True,
        members=0,
        consumers=0,
        mixed=0,
        flush_os=False,
        flip_every_ms=0,
        clean_every_ms=0,
        nomination_ms=0,
        safety_ms=random.choice((4_000, 8_000, 12_000)),
        two_leases=options.operators > 1 and random.random() < 0.4,
        restore_every_ms=random.choice((0, 0, 3_000)),
        lose_status_every_ms=random.choice((0, 0, 2_000)),
        rogue_every_ms=random.choice((0, 0, 700, 2_500)),
        rogue_sets=0.0,
        learn_every_ms=0,
        disaster=options.replicas > 1 and options.partitions == 1 and random.random() < 0.2,
    )


def draw_options(seed: int) -> Options:
    """A swarm: each run has its own mixture, so that one fault does not hide another."""
    random = Random(f"options {seed}")
    replicas = random.choice((1, 3, 3, 3, 3, 5, 5))

    def some(*values: int) -> int:
        return random.choice((0, *values))

    options = Options(
        seed=seed,
        replicas=replicas,
        safety_ms=random.choice((2_000, 4_000, 8_000)),
        groups=random.choice((1, 3, 5)),
        clients=random.choice((2, 4, 6)),
        op_every_ms=random.choice((12, 25, 60)),
        deletes=random.choice((0.0, 0.1, 0.4)),
        delay_ms_max=random.choice((2, 4, 15)),
        long_delay=random.choice((0.0, 0.01, 0.05)),
        loss=random.choice((0.0, 0.01, 0.05)),
        duplicates=random.choice((0.0, 0.02, 0.1)),
        disk_ms_max=random.choice((1, 3, 20)),
        crash_every_ms=some(700, 1_500, 3_000),
        power_loss=random.choice((0.3, 0.6)),
        crash_in_effects=random.choice((0.0, 0.0005, 0.002)),
        all_crash_every_ms=some(4_000),
        freeze_every_ms=some(2_000, 4_000),
        partition_every_ms=some(1_000, 2_500),
        flip_every_ms=some(2_500, 5_000) if replicas > 1 else 0,
        full_every_ms=some(3_000),
        broken_every_ms=some(1_500, 4_000),
        slow_every_ms=some(2_000, 6_000),
        move_every_ms=some(800, 2_500),
        resign_every_ms=some(2_000, 6_000),
        rogue_every_ms=some(50, 500, 2_000),
        rogue_sets=random.choice((0.0, 0.0, 0.3)),
        operator_crash_every_ms=some(2_000, 6_000),
        operators=random.choice((1, 2)),
        clean_every_ms=some(700),
        nomination_ms=some(1_500),
        flush_os=random.random() < 0.2,
        append_bytes_max=random.choice((200, 1_000, 10_000)),
        drift=random.choice((0.0, 0.05, 0.2)),
        partitions=random.choice((1, 1, 1, 2, 3)),
        transactions=random.choice((0.0, 0.1, 0.3)),
        members=random.choice((0, 2, 3)),
        jump_every_ms=some(1_500),
        outage_every_ms=some(5_000),
        lag_every_ms=some(2_000),
        api_errors=random.choice((0.0, 0.03, 0.1)),
        operator_crash_in_steps=random.choice((0.0, 0.03, 0.2)),
        disaster=replicas > 1 and random.random() < 0.08,
    )
    if random.random() < 0.5:
        options = replace(
            options,
            spares=random.choice((1, 2)),
            change_every_ms=random.choice((900, 2_000)),
            wipe_every_ms=some(4_000) if replicas > 1 else 0,
            learn_every_ms=some(1_500),
        )
    if options.disk_ms_max > 10:  # a replica that lags is sent one chunk for each of its writes, and must catch up
        options = replace(options, append_bytes_max=max(options.append_bytes_max, 1_000))
    if options.disaster:  # a cleaned log that lost its end is no prefix of any log: see docs/simulation.md
        options = replace(options, clean_every_ms=0)
    if options.partitions > 1:
        options = replace(options, safety_ms=min(options.safety_ms, 3_000), groups=min(options.groups, 3))
    return options
