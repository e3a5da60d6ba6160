"""The core's rules one by one; how they hold together under faults is for tests/simulation."""

from __future__ import annotations

import pytest
from tests.unit.replication.harness import Net

from muster_coordinator.calls import CallStatus
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.context import ProtocolViolationError
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.epochs import EPOCH_JUMP_MAX
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Ack, Append, Batch, Message, Question, QuestionAnswer, Seal, Sealed
from muster_coordinator.replication.sets import Sets
from muster_coordinator.replication.settings import ReplicationSettings
from muster_coordinator.tuning.pacing import Urgency

ABC = Sets(("a", "b", "c"))


def led(names: str = "abc") -> Net:
    """Three replicas, "a" leads in epoch 0."""
    net = Net(names)
    net["a"].elect(0, Sets(tuple(names[:3])), bootstrap=True)
    net.deliver()
    assert net["a"].core.is_active
    return net


def test_set_of_one_replica_sends_nothing_and_confirms_reads_at_once() -> None:
    net = Net("a")
    net["a"].elect(0, Sets(("a",)), bootstrap=True)
    net["a"].append(b"x")
    assert net["a"].core.is_active
    assert net["a"].core.commit_point == 2
    assert net["a"].core.confirm_read() == 0
    assert not net.queue


def test_bootstrap_seals_a_majority_and_answers_when_its_record_is_committed() -> None:
    net = led()
    assert [result.status for result in net["a"].results()] == [CallStatus.ACCEPTED]
    assert {node.promise.leader for node in net.nodes.values()} == {"a"}
    assert net["b"].batches == net["a"].batches


def test_append_is_pushed_in_its_turn_as_the_same_bytes_and_committed_by_a_majority() -> None:
    net = led()
    net["c"].down = True
    net["a"].append(b"record")
    sent = [message for message in net.queue if isinstance(message, Append)]
    assert [message.batches[0].data for message in sent] == [b"record", b"record"]
    net.deliver()
    assert net["a"].core.commit_point == 2


def test_follower_acks_only_what_is_durable() -> None:
    net = led()
    net["b"].slow_disk = net["c"].slow_disk = True
    net["a"].append(b"x")
    net.deliver()
    assert net["a"].core.commit_point == 1
    net["b"].slow_disk = False
    net["b"]._durable()
    net.deliver()
    assert net["a"].core.commit_point == 2


def test_read_is_confirmed_by_what_is_sent_after_it() -> None:
    net = led()
    net["a"].seen.clear()
    wanted = [net["a"].core.confirm_read() for _ in range(3)]
    net["a"].do(net["a"].core.end_turn(net.now))
    assert len(net.queue) == 2, "one empty append for all reads that wait"
    net.deliver()
    assert fx.ReadsConfirmed(wanted[0]) in net["a"].seen
    assert len(set(wanted)) == 1


def test_leader_without_majority_steps_down_after_a_second() -> None:
    net = led()
    net["b"].down = net["c"].down = True
    net.advance(900)
    assert net["a"].core.is_active
    net.advance(200)
    assert not net["a"].core.is_active


def test_question_comes_before_the_promise_and_a_live_leader_ends_the_election() -> None:
    net = led()
    net["a"].append(b"x")
    net.deliver()
    net["b"].elect(1, ABC)
    net.deliver()
    assert net["b"].results()[-1].status is CallStatus.LEADER_LIVES
    assert net["b"].promise.epoch == 0
    net["b"].elect(1, ABC, force=True)
    net.deliver()
    assert net["b"].core.is_active
    assert not net["a"].core.is_active
    assert any(isinstance(effect, fx.SteppedDown) for effect in net["a"].seen)


def test_move_takes_what_the_leader_appended_last_though_a_majority_is_sealed_without_it() -> None:
    net = led()
    net["a"].append(b"x")
    net.queue.clear()  # on no other log yet
    net["b"].elect(1, ABC, force=True)
    seals = {message.to: message for message in net.queue}
    net.queue.clear()
    for name in ("c", "a"):
        assert net["b"].core.leading_epoch < 0
        net.queue.append(seals[name])
        net.deliver()
    assert net["b"].core.is_active
    assert [batch.data for batch in net["b"].batches[:2]] == [b"", b"x"]
    assert not any(isinstance(effect, fx.Truncate) for effect in net["a"].seen)


@pytest.mark.parametrize("refuses", [False, True])
def test_move_does_not_wait_long_for_a_leader_that_does_not_answer(refuses: bool) -> None:
    net = led()
    net["b"].elect(1, ABC, force=True)
    if refuses:
        net["a"].do(net["a"].core.resign(1, 2, net.now))
    else:
        net["a"].down = True
    net.deliver()
    assert net["b"].core.is_active == refuses
    net.advance(100)
    assert net["b"].core.is_active


def test_election_without_a_majority_fails_before_anything_is_promised() -> None:
    net = led()
    net["a"].down = net["c"].down = True
    net.advance(1_100)
    net["b"].elect(1, ABC)
    assert {type(message) for message in net.queue} == {Question}
    net.advance(2_100)
    assert net["b"].results()[-1].status is CallStatus.NO_MAJORITY
    assert net["b"].promise.epoch == 0


def test_repeated_election_answers_with_the_state_of_the_first() -> None:
    net = led()
    net["a"].elect(0, ABC)
    assert net["a"].results()[-1].status is CallStatus.ACCEPTED
    net["b"].elect(0, ABC)
    assert net["b"].results()[-1].status is CallStatus.STALE_EPOCH


@pytest.mark.parametrize(
    ("epoch", "sets", "why", "status"),
    [
        (1, Sets(("b", "c")), "", CallStatus.WRONG_REPLICA),
        (1, Sets(("a", "b", "a")), "", CallStatus.INVALID),
        (1, Sets(("a", "b", "c"), ("a", "b", "b")), "", CallStatus.INVALID),
        (1, ABC, "disk full", CallStatus.CANNOT_WRITE),
        (EPOCH_JUMP_MAX + 1, ABC, "", CallStatus.INVALID),
        (0, ABC, "disk full", CallStatus.ACCEPTED),
    ],
)
def test_what_speaks_against_an_election(epoch: int, sets: Sets, why: str, status: CallStatus) -> None:
    net = led()
    net["a"].do(net["a"].core.elect(9, ElectionCall(epoch, sets, force=True), net.now, cannot_write=why))
    assert net["a"].results()[-1].status is status
    assert net["a"].promise.epoch == 0


def test_resignation_promises_to_nobody_and_the_first_seal_fills_the_name() -> None:
    net = led()
    net["a"].do(net["a"].core.resign(7, 1, net.now))
    assert net["a"].promise == fx.Promise(1, "", used=True)
    assert net["a"].results()[-1].ended_epoch == 0
    net["b"].elect(1, ABC, force=True)
    net.deliver()
    assert net["a"].promise == fx.Promise(1, "b", used=True)
    net["a"].do(net["a"].core.receive(Seal("c", "a", 1), net.now))
    assert net["a"].promise == fx.Promise(1, "b", used=True)


def test_change_of_the_set_ends_with_a_set_record_and_a_report() -> None:
    net = led("abcd")
    change = Sets(("a", "b", "d"), ("a", "b", "c"))
    net["a"].elect(1, change, force=True)
    net.deliver()
    assert fx.SetFinal(("a", "b", "d")) in net["a"].seen
    assert net["d"].batches == net["a"].batches
    net["a"].elect(2, Sets(("a", "c"), ("a", "b", "c")), force=True)
    net.deliver()
    result = net["a"].results()[-1]
    assert (result.status, result.replicas, result.previous_replicas) == (CallStatus.SET_CONFLICT, ("a", "b", "d"), ())


def test_reads_that_wait_while_the_set_shrinks_to_one_replica_are_confirmed() -> None:
    net = led()
    net["a"].elect(1, Sets(("a",), ("a", "b", "c")), force=True)
    while net.queue and not net["a"].core.is_active:
        message = net.queue.popleft()
        net[message.to].do(net[message.to].core.receive(message, net.now))
    wanted = net["a"].core.confirm_read()
    net["a"].do(net["a"].core.end_turn(net.now))
    net.deliver()
    confirmed = [effect.round for effect in net["a"].seen if isinstance(effect, fx.ReadsConfirmed)]
    assert wanted == 0 or max(confirmed) >= wanted
    assert net["a"].core.confirm_read() == 0


def reads_of(net: Net, name: str) -> list[Urgency]:
    """How urgent the reads of its log are that `name` wanted since the last call."""
    node = net[name]
    found = [effect.urgency for effect in node.seen if isinstance(effect, fx.ReadLog)]
    node.seen.clear()
    return found


def behind(net: Net, name: str) -> None:
    """`name` lacks five commits."""
    net[name].down = True
    for _ in range(5):
        net["a"].append(b"x")
        net.deliver()
    net.advance(400)
    net[name].down = False


def test_nothing_waits_for_a_replica_that_catches_up_while_its_leader_serves() -> None:
    net = led()
    behind(net, "c")
    reads_of(net, "a")
    net.advance(400)
    assert net["c"].batches == net["a"].batches
    assert reads_of(net, "a") == [Urgency.BACKGROUND]


@pytest.mark.parametrize("candidate", ["b", "c"])
def test_an_election_waits_for_what_its_candidate_or_its_majority_lacks(candidate: str) -> None:
    net = led()
    behind(net, "c")
    net["a"].down = True
    reads_of(net, "b")
    net.now += 2_000
    net[candidate].elect(1, ABC, force=True)
    net.deliver()
    net.advance(400)
    assert net[candidate].core.is_active
    assert net["c"].batches == net["b"].batches
    assert set(reads_of(net, "b")) == {Urgency.ELECTION}


def test_message_for_another_log_id_changes_nothing_and_is_not_answered() -> None:
    net = led()
    net["b"].do(net["b"].core.receive(Seal("c", "the log that was here before", 9), net.now))
    assert net.deliver() == []
    assert net["b"].promise == fx.Promise(0, "a", used=True)


def test_learner_gets_the_log_and_counts_for_nothing() -> None:
    net = led("abcd")
    net["a"].do(net["a"].core.set_learners(("d",), net.now))
    net["b"].down = net["c"].down = True
    net["a"].append(b"x")
    net.deliver()
    net.advance(400)
    assert net["d"].batches == net["a"].batches
    assert net["a"].core.commit_point == 1


def test_rebuilding_replica_counts_again_when_it_reached_the_leaders_end() -> None:
    net = led()
    net["b"].down = True
    net["c"].do(net["c"].core.lost_data(net.now))
    assert net["c"].promise.rebuilding
    assert fx.DiscardCheckpoints() in net["c"].seen
    net["a"].append(b"x")
    net.deliver()
    net.advance(500)
    assert not net["c"].promise.rebuilding
    assert net["a"].core.commit_point == 2


def test_ack_of_before_a_loss_that_comes_late_commits_nothing() -> None:
    net = led()
    net["b"].down = True
    net["a"].append(b"x")
    appends = [message for message in net.queue if message.to == "c"]
    net.queue.clear()
    for message in appends:
        net["c"].do(net["c"].core.receive(message, net.now))
    late = list(net.queue)
    net.queue.clear()
    net["c"].do(net["c"].core.lost_data(net.now))
    net["c"].do(net["c"].core.receive(appends[0], net.now))
    told, committed = list(net.queue), net["a"].core.commit_point
    for message in (*told, *late):
        net["a"].do(net["a"].core.receive(message, net.now))
    assert [(ack.incarnation, ack.rebuilding) for ack in told if isinstance(ack, Ack)] == [(1, True)]
    assert [(ack.incarnation, ack.end) for ack in late if isinstance(ack, Ack)] == [(0, net["a"].core.log.end)]
    assert net["a"].core.commit_point == committed < net["a"].core.log.end


def test_rebuilding_replica_is_no_candidate_unless_a_person_allows_loss() -> None:
    net = led()
    for name in "bc":
        net[name].do(net[name].core.lost_data(net.now))
    net["a"].down = True
    net["b"].elect(1, ABC, force=True)
    assert net["b"].results()[-1].status is CallStatus.DAMAGED
    net["b"].elect(2, ABC, allow_data_loss=True)
    net.advance(3_000)
    assert net["b"].core.is_active
    assert any(isinstance(effect, fx.DataLossAccepted) for effect in net["b"].seen)


def test_election_that_allows_loss_and_fails_leaves_the_replica_rebuilding() -> None:
    """Found by simulation: its flag went with its promise, and the emptied log then voted in an ordinary election."""
    net = led()
    net["b"].do(net["b"].core.lost_data(net.now))
    net["a"].down = net["c"].down = True
    net["b"].elect(2, ABC, allow_data_loss=True)
    net["b"].elect(3, ABC, force=True)
    assert net["b"].results()[-1].status is CallStatus.DAMAGED
    net["b"].elect(4, ABC, allow_data_loss=True)
    assert net["b"].core.promise.rebuilding
    net.advance(2_500)
    assert net["b"].core.leading_epoch == 4
    assert not net["b"].core.promise.rebuilding


def test_election_that_allowed_loss_and_died_after_its_first_record_is_repeated_without_allowing_more() -> None:
    """Its log names the smaller set by then: a majority of that set is enough."""
    net = led()
    net["a"].down = net["c"].down = True
    left = Sets(("b", "c"))
    net["b"].elect(2, left, allow_data_loss=True)
    net.advance(2_500)
    node = net["b"]
    assert (node.core.leading_epoch, node.core.is_active) == (2, False)
    assert node.core.log.sets == Sets(("b", "c"), loss_epoch=2)
    runs = node.core.log.runs(0, node.core.log.end)
    named = [(batch.base_offset, batch.sets) for batch in node.batches if batch.sets is not None]
    node.core = ReplicaCore(
        0, "b", node.promise, LogState(node.core.log.end, runs, named), net.now, ReplicationSettings()
    )
    net["c"].down = False
    node.elect(3, left, force=True)
    net.deliver()
    assert node.core.is_active
    assert net["c"].batches == node.batches


def taker(committed: int) -> ReplicaCore:
    """Replica "c": ten records of epoch 0, of which it knows `committed` to be committed."""
    core = follower_of("a", 10)
    core.receive(append_of("a", 0, 10, 10, commit_point=committed), 0)
    assert core.commit_point == committed
    return core


@pytest.mark.parametrize("loss_epoch", [-1, 0])
def test_cut_below_the_own_commit_point_is_refused(loss_epoch: int) -> None:
    core = taker(7)
    core.receive(append_of("b", 2, 6, 8, record_epoch=2, loss_epoch=loss_epoch), 0)
    with pytest.raises(ProtocolViolationError, match="was to be cut at 6, below the commit point 7"):
        core.storage_done(0)


@pytest.mark.parametrize(("committed", "loss_epoch"), [(6, -1), (7, 1), (7, 2)])
def test_cut_above_the_commit_point_or_after_an_accepted_loss_is_made(committed: int, loss_epoch: int) -> None:
    core = taker(committed)
    core.receive(append_of("b", 2, 6, 8, record_epoch=2, loss_epoch=loss_epoch), 0)
    assert core.storage_done(0) == [fx.Truncate(6)]
    core.storage_done(0)
    assert (core.log.end, core.commit_point) == (8, 6), "the commit point does not name other records"


@pytest.mark.parametrize(("loss_epoch", "end"), [(-1, 10), (1, 6)])
def test_full_copy_below_the_own_commit_point_is_taken_only_after_an_accepted_loss(loss_epoch: int, end: int) -> None:
    core = taker(7)
    core.receive(append_of("b", 2, 0, 6, record_epoch=2, sync=1, loss_epoch=loss_epoch), 0)
    core.storage_done(0)
    assert (fx.SwapCopy() in core.storage_done(0)) == (end == 6)
    if end == 6:
        core.storage_done(0)
    assert (core.log.end, core.commit_point) == (end, 0 if end == 6 else 7), "the copy has other records from 0 on"


@pytest.mark.parametrize(("loss_epoch", "is_taken"), [(-1, False), (1, True)])
def test_full_copy_that_differs_below_the_own_commit_point_is_a_violation(loss_epoch: int, is_taken: bool) -> None:
    core = taker(7)
    core.receive(append_of("b", 2, 0, 12, record_epoch=2, sync=1, loss_epoch=loss_epoch), 0)
    core.storage_done(0)
    if is_taken:
        assert fx.SwapCopy() in core.storage_done(0)
        core.storage_done(0)
        assert (core.log.end, core.commit_point) == (12, 0), "other records than the copy has were committed"
    else:
        with pytest.raises(ProtocolViolationError, match="was to be cut at 0, below the commit point 7"):
            core.storage_done(0)


def test_later_leaders_and_their_followers_know_of_an_accepted_loss() -> None:
    net = led()
    net["c"].down = True
    for _ in range(3):
        net["a"].append(b"x")
        net.deliver()
    net["a"].down = net["b"].down = True
    net["c"].down = False
    net["c"].elect(2, Sets(("c",)), allow_data_loss=True)
    assert net["c"].core.is_active
    net["a"].down = False
    assert net["a"].core.commit_point == 4
    net["c"].elect(3, Sets(("c", "a"), ("c",)), force=True)
    net.deliver()
    net["a"].elect(4, Sets(("c", "a")), force=True)
    net.deliver()
    assert net["a"].core.is_active
    assert net["a"].batches == net["c"].batches
    assert [net[name].core.log.loss_epoch for name in "ac"] == [2, 2]
    net["a"].do(net["a"].core.set_learners(("b",), net.now))
    net["b"].down = False
    net.advance(400)
    assert net["b"].batches == net["a"].batches


def test_replicas_nominate_themselves_when_neither_leader_nor_operator_is_heard() -> None:
    net = Net("abc", nominate_ms=dict.fromkeys("abc", (3_000,)))
    net["a"].elect(0, ABC, bootstrap=True)
    net.deliver()
    net["a"].down = True
    net.advance(2_000)
    net["c"].core.operator_heard(net.now)
    net.advance(3_000)
    assert net["b"].core.is_active
    assert net["b"].core.leading_epoch == 1


@pytest.mark.parametrize(("heard", "nominates"), [(5 + EPOCH_JUMP_MAX - 1, True), (5 + EPOCH_JUMP_MAX, False)])
def test_replica_does_not_nominate_itself_in_an_epoch_too_far_ahead(heard: int, nominates: bool) -> None:
    """Some replica took a call with a wrong epoch, one step after the other; the promise file would refuse it."""
    log = LogState(1, [(0, 0)], [(0, ABC)])
    core = ReplicaCore(0, "c", fx.Promise(5, "a", used=True), log, 0, ReplicationSettings(), lambda: 300)
    questions = [message for message in sent(core.tick(400)) if isinstance(message, Question)]
    answer = QuestionAnswer("b", "c", heard, questions[0].ticket, live_leader="", better=False, counts=True)
    effects = core.receive(answer, 400)
    assert [effect.promise.epoch for effect in effects if isinstance(effect, fx.StorePromise)] == [
        heard + 1
    ] * nominates
    assert core.is_candidate == nominates


def test_replicas_that_nominated_themselves_at_the_same_time_do_not_so_again() -> None:
    """Each waits anew from the end of its election, which may last longer than that wait."""
    net = Net("abc", nominate_ms={"b": [300, 300], "c": [300, 500]})
    net["a"].elect(0, ABC, bootstrap=True)
    net.deliver()
    net["a"].down = True
    net.advance(2_000)
    promises = [net[name].core.promise for name in "bc"]
    assert [(promise.epoch, promise.leader) for promise in promises] == [(1, "b"), (1, "c")], "each has its own vote"
    net.advance(2_000)
    assert net["b"].core.is_active
    assert net["c"].core.live_leader == "b"


def test_late_duplicate_of_a_full_copy_does_not_replace_a_longer_log() -> None:
    """The replica was started again in the epoch in which it had swapped the copy in, and has acked more since."""
    records = tuple(Batch(offset, offset + 1, 0, b"") for offset in range(10))
    log = LogState(10, [(0, 0)], [(0, ABC)])
    core = ReplicaCore(0, "c", fx.Promise(0, "a", used=True), log, 0, ReplicationSettings())
    copy = Append("a", "c", 0, 0, 6, -1, ((0, 0),), records[:6], 6, 6, 3, 1, 0, sync=1)
    effects = core.receive(copy, 0)
    assert effects == [fx.StartCopy()]
    effects = core.storage_done(0)
    assert fx.SwapCopy() not in effects
    assert (core.log.end, core.log.last_epoch) == (10, 0)
    [ack] = [each.message for each in effects if isinstance(each, fx.Send)]
    assert (ack.sync, ack.swapped) == (0, 1), "the sender goes on with ordinary appends"
    append = Append("a", "c", 0, 10, 11, 0, ((0, 10),), (Batch(10, 11, 0, b""),), 11, 11, 3, 2, 0)
    core.receive(append, 0)
    assert (core.log.end, core.commit_point) == (11, 11)


def test_full_copy_replaces_a_log_whose_last_epoch_is_older_though_it_is_longer() -> None:
    log = LogState(10, [(0, 0)], [(0, ABC)])
    core = ReplicaCore(0, "c", fx.Promise(1, "a", used=True), log, 0, ReplicationSettings())
    runs = ((0, 0), (1, 5))
    records = (*(Batch(offset, offset + 1, 0, b"") for offset in range(5)), Batch(5, 6, 1, b""))
    core.receive(Append("a", "c", 1, 0, 6, -1, runs, records, 6, 6, 3, 1, 0, sync=1), 0)
    assert fx.SwapCopy() in core.storage_done(0)
    core.storage_done(0)
    assert (core.log.end, core.log.last_epoch) == (6, 1)


def follower_of(leader: str, end: int) -> ReplicaCore:
    """Replica "c", which promised epoch 0 to `leader` and holds `end` records of it, all durable."""
    return ReplicaCore(
        0, "c", fx.Promise(0, leader, used=True), LogState(end, [(0, 0)], [(0, ABC)]), 0, ReplicationSettings()
    )


def append_of(
    leader: str, epoch: int, start: int, end: int, *, record_epoch: int = 0, of_incarnation: int = 0, **more: int
) -> Append:
    """Records [start, end) of `record_epoch` after one of epoch 0; `more`: `leader_end`, `commit_point`, `horizon`,
    `sync`, `loss_epoch`."""
    records = tuple(Batch(offset, offset + 1, record_epoch, b"") for offset in range(start, end))
    return Append(
        leader,
        "c",
        epoch,
        start,
        end,
        0 if start else -1,
        ((record_epoch, start),) if records else (),
        records,
        more.get("commit_point", 0),
        more.get("leader_end", end),
        more.get("horizon", 0),
        1,
        of_incarnation,
        sync=more.get("sync", 0),
        loss_epoch=more.get("loss_epoch", -1),
    )


def sent(effects: list[fx.Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, fx.Send)]


@pytest.mark.parametrize("message", [Seal("b", "c", 1), append_of("b", 1, 5, 5)])
def test_nothing_is_answered_before_its_promise_is_durable(message: Message) -> None:
    core = follower_of("a", 5)
    assert core.receive(message, 0) == [fx.StorePromise(fx.Promise(1, "b", used=True))]
    assert core.promise == fx.Promise(0, "a", used=True)
    assert core.tick(500) == []
    [answer] = sent(core.storage_done(1_000))
    assert (type(answer), answer.epoch) == (Sealed if isinstance(message, Seal) else Ack, 1)


def test_first_ack_of_a_record_waits_until_it_is_durable_that_the_log_was_used() -> None:
    """A power loss may take all of the log, and then nothing else tells that something was acked."""
    core = ReplicaCore(0, "c", fx.Promise(0, "a"), LogState(), 0, ReplicationSettings())
    [empty] = sent(core.receive(append_of("a", 0, 0, 0), 0))
    assert isinstance(empty, Ack)
    assert (empty.end, core.promise.used) == (0, False)
    core.receive(append_of("a", 0, 0, 3), 0)
    assert core.log_durable(3, 0) == [fx.StorePromise(fx.Promise(0, "a", used=True))]
    assert core.receive(append_of("a", 0, 0, 3), 0) == []
    ends = [ack.end for ack in sent(core.storage_done(0)) if isinstance(ack, Ack)]
    assert ends
    assert set(ends) == {3}
    core.receive(append_of("a", 0, 3, 4), 0)
    [ack] = sent(core.log_durable(4, 0))
    assert isinstance(ack, Ack)
    assert ack.end == 4


def test_candidate_marks_its_log_as_used_before_it_loads() -> None:
    alone = Sets(("c",))
    core = ReplicaCore(0, "c", fx.Promise(), LogState(), 0, ReplicationSettings())
    assert core.elect(1, ElectionCall(0, alone, bootstrap=True), 0) == [fx.StorePromise(fx.Promise(0, "c"))]
    assert core.storage_done(0) == [fx.StorePromise(fx.Promise(0, "c", used=True))]
    assert core.storage_done(0) == [fx.Load(0)]
    core = ReplicaCore(0, "c", core.promise, LogState(), 0, ReplicationSettings())
    core.elect(1, ElectionCall(1, alone, bootstrap=True), 0)
    assert core.storage_done(0) == [fx.Load(1)], "the mark stays"


def test_what_was_verified_against_one_leader_says_nothing_to_the_next() -> None:
    """The new leader has other records at 5 to 10 than this replica, which acked its own to the leader of before."""
    core = follower_of("a", 8)
    core.receive(append_of("a", 0, 8, 10), 0)
    [ack] = sent(core.log_durable(10, 0))
    assert isinstance(ack, Ack)
    assert ack.end == 10
    core.receive(append_of("b", 1, 5, 5, leader_end=10, commit_point=10), 0)
    [ack] = sent(core.storage_done(0))
    assert isinstance(ack, Ack)
    assert (ack.epoch, ack.end, core.commit_point) == (1, 5, 5)


def test_rebuilding_replica_takes_its_target_only_from_what_was_sent_after_the_loss() -> None:
    """A late append of before names an end below what was acked here since; only incarnation 1 knows of the loss."""
    core = ReplicaCore(0, "c", fx.Promise(0, "a", used=True), LogState(), 0, ReplicationSettings())
    core.lost_data(0)
    core.storage_done(0)
    core.receive(append_of("a", 0, 0, 3), 0)
    [ack] = sent(core.log_durable(3, 0))
    assert isinstance(ack, Ack)
    assert (ack.end, ack.rebuilding, core.promise.rebuilding) == (3, True, True)
    core.receive(append_of("a", 0, 3, 5, of_incarnation=1, leader_end=9), 0)
    core.log_durable(5, 0)
    core.receive(append_of("a", 0, 5, 9, of_incarnation=1, leader_end=12), 0)
    assert core.log_durable(9, 0) == [fx.StorePromise(fx.Promise(0, "a", 1, False, True))], "the end as of the first"
    [ack] = sent(core.storage_done(0))
    assert isinstance(ack, Ack)
    assert (ack.end, ack.rebuilding) == (9, False)


def test_copy_has_the_tombstone_horizon_of_its_source_and_keeps_it() -> None:
    core = follower_of("a", 2)
    core.receive(append_of("a", 0, 0, 4, sync=1, leader_end=9, horizon=6), 0)
    [copied, _] = core.storage_done(0)
    assert isinstance(copied, fx.AppendRange)
    assert (copied.to_copy, copied.horizon) == (True, 6)
    core.receive(append_of("a", 0, 4, 9, sync=1, leader_end=9, horizon=7), 0)
    core.storage_done(0)
    assert (core.log.end, core.log.horizon) == (9, 7)
    core.receive(append_of("a", 0, 9, 10, horizon=8), 0)
    assert core.log.horizon == 7, "what lies above it came with all of its tombstones"


def test_candidate_that_fetches_a_full_copy_has_the_horizon_of_its_source() -> None:
    net = led()
    net["c"].down = True
    for _ in range(5):
        net["a"].append(b"x")
        net.deliver()
    net["b"].core.log.horizon = 4
    net["a"].down, net["c"].down = True, False
    net["c"].elect(1, ABC, force=True)
    net.advance(200)
    assert fx.SwapCopy() in net["c"].seen
    assert net["c"].core.is_active
    assert net["c"].core.log.horizon == 4


@pytest.mark.parametrize(
    ("is_candidate", "cleaned_after", "copies"), [(True, 0, 1), (True, 1, 2), (False, 0, 1), (False, 1, 2)]
)
def test_full_copy_begins_anew_when_its_source_is_cleaned_between_two_ranges_of_it(
    is_candidate: bool, cleaned_after: int, copies: int
) -> None:
    """Else it has a value of before and lacks the tombstone that was dropped with it: what was deleted comes back."""
    net = led()
    source = net["b" if is_candidate else "a"]
    net["c"].down = True
    for _ in range(6):
        net["a"].append(b"x")
        net.deliver()
    source.core.log.cleaned(5)  # the horizon is set, the segments follow
    source.read_max = 2
    reads = iter(range(100))

    def segments_are_replaced() -> None:
        if next(reads) == cleaned_after:
            source.core.log.cleaned(5)

    source.read = segments_are_replaced
    net["c"].down = False
    if is_candidate:
        net["a"].down = True
        net["c"].elect(1, ABC, force=True)
    net.advance(1_000)
    assert net["c"].seen.count(fx.StartCopy()) == copies
    assert net["c"].seen.count(fx.SwapCopy()) == 1
    assert net["c"].batches[:7] == source.batches[:7]


def test_follower_is_behind_for_as_long_as_it_has_lacked_something() -> None:
    net = led()
    leader = net["a"].core
    net.advance(60_000)  # nothing is written, and heartbeats are acked
    assert leader.longest_behind_ms(net.now) == 0
    net["c"].down = True
    net["a"].append(b"record")
    net.deliver()
    last_heard = net.now
    net.advance(2_000)
    heartbeat_ms = ReplicationSettings().heartbeat_ms
    assert 2_000 <= leader.longest_behind_ms(net.now) <= net.now - last_heard + heartbeat_ms
    net["c"].down = False
    net.advance(1_000)
    assert leader.longest_behind_ms(net.now) == 0
    assert net["b"].core.longest_behind_ms(net.now) == 0


def test_follower_that_keeps_up_under_load_is_behind_by_one_exchange_only() -> None:
    net = led()
    leader = net["a"].core
    for _ in range(40):  # each ack comes when the next records are there
        net["a"].append(b"record")
        acks, net.queue = net.queue, type(net.queue)()
        net["a"].append(b"record")
        net.queue, later = acks, net.queue
        net.now += 50
        net.deliver()
        net.queue.extend(later)
    assert 0 < leader.longest_behind_ms(net.now) <= 150
    net["b"].down = True
    for _ in range(10):
        net.now += 50
        net["a"].append(b"record")
        net.deliver()
    assert leader.longest_behind_ms(net.now) >= 500


def test_follower_that_never_acked_is_behind_since_the_leadership_began() -> None:
    net = Net("abc")
    net["c"].down = True
    net["a"].elect(0, ABC, bootstrap=True)
    net.deliver()
    net.advance(3_000)
    assert net["a"].core.longest_behind_ms(net.now) == 3_000
