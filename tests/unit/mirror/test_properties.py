"""Whatever happens to the upstream and to leaders of the mirror: at the end, the mirror has what Kafka has."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.mirror.harness import DAY_MS, MemoryWriter, MirrorShard, Upstream

GROUPS = st.sampled_from(["a", "b"])
PRODUCERS = st.tuples(st.integers(1, 2), st.just(0))

WRITES = st.one_of(
    st.tuples(st.just("commit"), st.just("a"), st.integers(0, 99)),
    st.tuples(st.just("commit"), GROUPS, st.integers(0, 99), st.integers(0, 1)),
    st.tuples(st.just("commit"), GROUPS, st.integers(0, 99), st.integers(0, 1), PRODUCERS),
    st.tuples(st.just("remove"), GROUPS, st.integers(0, 1)),
    st.tuples(st.just("generation"), GROUPS, st.integers(1, 9), st.sampled_from(["x", "y"])),
    st.tuples(st.just("generation"), GROUPS, st.integers(1, 9)),
    st.tuples(st.just("remove_group"), GROUPS),
)
MISHAPS = st.one_of(
    *[st.tuples(st.just("follow"), st.integers(1, 2000))] * 4,
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("new_leader"), st.integers(0, 4)),
    st.tuples(st.just("compact")),
    *[st.tuples(st.just("compact_later"), st.just("a"), st.just(0))] * 2,
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("create_again")),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.one_of(WRITES, MISHAPS), min_size=6, max_size=40))
def test_the_mirror_has_what_the_upstream_has(steps: list[tuple[object, ...]]) -> None:
    upstream, writer, topics = Upstream(), MemoryWriter(), 0
    mirror = MirrorShard(writer)
    for name, *arguments in steps:
        if name == "follow":
            mirror.follow(upstream, *arguments)  # type: ignore[arg-type]
        elif name == "end":
            upstream.end_transaction(arguments[0], commit=bool(arguments[1]))  # type: ignore[arg-type]
        elif name == "new_leader":
            lost = int(arguments[0])  # type: ignore[call-overload]
            writer.batches = writer.batches[: len(writer.batches) - lost]
            mirror = MirrorShard(writer, mirror.shard.epoch + 1)
        elif name == "compact":
            upstream.compact(drop_tombstones=False)
        elif name == "compact_later":
            upstream.remove(*arguments)  # type: ignore[arg-type]
            upstream.commit("last", 1)
            upstream.now_ms += DAY_MS
            upstream.compact(drop_tombstones=True)
        elif name == "cut":
            upstream.cut(max(0, upstream.end - int(arguments[0])))  # type: ignore[call-overload]
        elif name == "create_again":
            topics += 1
            now_ms, upstream = upstream.now_ms, Upstream(f"topic {topics:10}".encode())
            upstream.now_ms = now_ms
        else:
            getattr(upstream, str(name))(*arguments)
        upstream.now_ms += 1
    mirror.follow_to_end(upstream, 400)
    assert mirror.state() == upstream.state()
    assert MirrorShard(writer, 99).state() == upstream.state()
