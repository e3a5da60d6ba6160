"""Keyed timers: replaced and cancelled ones never fire, pushed-back ones fire once and late."""

from hypothesis import given
from hypothesis import strategies as st

from muster_coordinator.shard.timers import Timers


def fired(timers: Timers, now_ms: int) -> list[object]:
    return [key for key, serial in timers.pop_due(now_ms) if timers.claim(key, serial)]


def test_timer_fires_once_at_its_deadline() -> None:
    timers = Timers()
    timers.set("a", 10)
    assert fired(timers, 9) == []
    assert fired(timers, 10) == ["a"]
    assert fired(timers, 100) == []
    assert len(timers) == 0


def test_timer_pushed_back_fires_only_at_the_new_deadline() -> None:
    timers = Timers()
    timers.set("a", 10)
    timers.set("a", 20)
    assert fired(timers, 15) == []
    assert fired(timers, 20) == ["a"]


def test_timer_pulled_forward_fires_once() -> None:
    timers = Timers()
    timers.set("a", 20)
    timers.set("a", 5)
    assert timers.next_deadline_ms() == 5
    assert fired(timers, 6) == ["a"]
    assert fired(timers, 30) == []


def test_due_timer_that_is_cancelled_before_its_claim_does_not_fire() -> None:
    timers = Timers()
    timers.set("a", 1)
    [(key, serial)] = timers.pop_due(1)
    timers.cancel("a")
    assert not timers.claim(key, serial)


def test_due_timer_that_is_replaced_before_its_claim_does_not_fire_for_the_old_setting() -> None:
    timers = Timers()
    timers.set("a", 1)
    [(key, serial)] = timers.pop_due(1)
    timers.set("a", 50)
    assert not timers.claim(key, serial)
    assert fired(timers, 50) == ["a"]


def test_cancelled_timer_leaves_no_deadline_behind() -> None:
    timers = Timers()
    timers.set("a", 1)
    timers.cancel("a")
    assert timers.next_deadline_ms() is None
    timers.set("a", 7)
    assert timers.next_deadline_ms() == 7


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.sampled_from("abc"), st.integers(0, 30)),
            st.tuples(st.just("cancel"), st.sampled_from("abc"), st.just(0)),
            st.tuples(st.just("tick"), st.just(""), st.integers(0, 5)),
        ),
        max_size=60,
    )
)
def test_timers_behave_like_a_plain_dictionary_of_deadlines(steps: list[tuple[str, str, int]]) -> None:
    timers, model, now = Timers(), dict[str, int](), 0
    for kind, key, value in steps:
        if kind == "set":
            timers.set(key, now + value)
            model[key] = now + value
        elif kind == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            now += value
            due = {k for k, deadline in model.items() if deadline <= now}
            assert set(fired(timers, now)) == due
            for k in due:
                del model[k]
        deadline = timers.next_deadline_ms()
        assert (deadline is None) == (not model)
        if deadline is not None:
            assert deadline <= min(model.values()), "an early wake-up is fine, a late one is not"
