"""What one turn of the event loop carries out, for one connection and for all."""

from __future__ import annotations

import asyncio
import struct

from tests.unit.listener.clients import Clients, frame

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.connection import LARGE_BYTES, KafkaConnection
from muster_coordinator.listener.rotation import (
    ANSWER_UNIT_BYTES,
    LIGHT_RESERVE,
    QUANTUM,
    READ_UNIT_BYTES,
    SLICE_UNITS,
    TURN_UNITS,
    UNIT_BYTES,
    Rotation,
)
from muster_coordinator.requests.groups import HeartbeatResponse
from muster_coordinator.security.identity import Identity


async def test_connection_that_sends_much_has_a_few_requests_carried_out_in_a_turn() -> None:
    clients = Clients(1)
    (connection,) = clients.connections
    connection.data_received(frame() * 500)
    assert clients.carried_out[connection] == QUANTUM
    assert not clients.transports[0].reads, "what it sends more stays in its socket"
    for made in await clients.turns():
        assert made[connection] <= QUANTUM
    assert clients.carried_out[connection] == 500
    assert clients.transports[0].reads


async def test_all_connections_together_have_a_bounded_number_carried_out_in_a_turn() -> None:
    clients = Clients(100)
    for connection in clients.connections:
        connection.data_received(frame() * 50)
    assert clients.carried_out.total() <= TURN_UNITS
    for made in await clients.turns():
        assert made.total() <= TURN_UNITS + 1, "and one of somebody who has spent much"
    assert clients.carried_out.total() == 100 * 50


async def test_who_waits_is_next_before_who_had_a_turn() -> None:
    clients = Clients(2)
    much, little = clients.connections
    much.data_received(frame() * 500)
    clients.state.rotation.units = 0  # this turn has no more
    little.data_received(frame())
    assert clients.carried_out[little] == 0
    for _ in range(2):
        await asyncio.sleep(0)
    assert clients.carried_out[little] == 1
    assert clients.carried_out[much] <= 3 * QUANTUM


async def test_a_turn_keeps_room_for_who_asks_for_little() -> None:
    clients = Clients(21)
    light, *heavy = clients.connections
    light.data_received(frame())
    for each in heavy:
        each.data_received(frame() * 200)
    for _ in range(5):
        await asyncio.sleep(0)  # a turn is over, and its units are spent
        before = clients.carried_out[light]
        light.data_received(frame())
        assert clients.carried_out[light] == before + 1, "in the turn in which it comes"
    assert all(each._reader.has_frame() for each in heavy)


async def test_thousands_of_frames_that_come_at_once_are_not_all_cut() -> None:
    clients = Clients(1)
    (connection,) = clients.connections
    connection.data_received(frame() * 600)
    assert connection._reader.held == len(frame()) * (600 - QUANTUM)


async def test_nothing_behind_a_large_request_is_carried_out_before_it_is_answered() -> None:
    clients = Clients(1)
    (connection,) = clients.connections
    clients.holds = True
    connection.data_received(frame("c" * LARGE_BYTES) + frame() * 2)
    for _ in range(5):
        await asyncio.sleep(0)
    assert clients.carried_out[connection] == 1
    clients.held.pop().answer(HeartbeatResponse(ErrorCode.NONE))
    await clients.turns()
    assert clients.carried_out[connection] == 3, "two small ones are under way at a time"


async def test_large_requests_cost_more_of_a_turn() -> None:
    clients = Clients(1)
    (connection,) = clients.connections
    large = frame("c" * 3_000)
    connection.data_received(large * 10)
    left = TURN_UNITS - LIGHT_RESERVE - 10 * len(large) // READ_UNIT_BYTES
    assert clients.carried_out[connection] == -(-left // (1 + 3_000 // UNIT_BYTES))


async def test_large_request_is_read_in_turns() -> None:
    """A loop gives megabytes of what one connection has sent, as long as that is read from."""
    clients = Clients(2)
    (much, little), transports = clients.connections, clients.transports
    much.data_received(struct.pack(">i", 4_000_000) + bytes((TURN_UNITS + 1) * READ_UNIT_BYTES))
    assert not transports[0].reads
    little.data_received(frame())
    assert clients.carried_out[little] == 0, "the turn is over"
    await asyncio.sleep(0)
    assert transports[0].reads, "in its own turn"
    await asyncio.sleep(0)
    assert clients.carried_out[little] == 1


async def test_connections_that_clients_end_are_closed_in_turns() -> None:
    clients = Clients(5 * TURN_UNITS)
    for connection in clients.connections:
        assert connection.eof_received(), "half open until its turn"
    closed = [0]
    while closed[-1] < len(clients.transports):
        await asyncio.sleep(0)
        closed.append(sum(transport.is_closed for transport in clients.transports))
        assert closed[-1] - closed[-2] <= TURN_UNITS


async def test_who_is_new_waits_behind_who_is_known_to_ask_for_little() -> None:
    clients = Clients(2)
    new, known = clients.connections
    known.data_received(frame())
    clients.state.rotation.units = 0
    new.data_received(frame() * 8)
    known.data_received(frame())
    clients.state.rotation.units = 0
    order: list[KafkaConnection] = []
    for each in (new, known):
        each.take_turn = lambda each=each: order.append(each)  # type: ignore[method-assign, misc]
    await asyncio.sleep(0)
    assert order == [known, new]


async def test_large_answers_cost_as_much_of_a_turn_as_their_bytes_in_slices() -> None:
    clients = Clients(1)
    (connection,) = clients.connections
    clients.holds = True
    connection.data_received(frame())
    before = clients.state.rotation.units
    connection.answers.complete(clients.held[0], bytes(SLICE_UNITS * ANSWER_UNIT_BYTES))
    assert before - clients.state.rotation.units == SLICE_UNITS


async def test_nothing_is_carried_out_while_answers_are_not_read() -> None:
    clients = Clients(1)
    (connection,) = clients.connections
    connection.pause_writing()
    connection.data_received(frame() * 3)
    await clients_rest()
    assert clients.carried_out[connection] == 0
    connection.resume_writing()
    await clients_rest()
    assert clients.carried_out[connection] == 3


async def test_closed_connection_has_no_turn() -> None:
    clients = Clients(1)
    (connection,) = clients.connections
    connection.data_received(frame() * 100)
    connection.close()
    await clients_rest()
    assert clients.carried_out[connection] == QUANTUM


async def clients_rest() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_rotation_takes_each_once_however_often_it_waits() -> None:
    rotation, taken = Rotation(), list[object]()

    class Taking:
        def take_turn(self) -> None:
            taken.append(self)

        def abort(self) -> None:
            raise AssertionError

    first, second = Taking(), Taking()
    for each in (first, second, first, first):
        rotation.wait(each, False)
    await asyncio.sleep(0)
    assert taken == [first, second]


async def test_defect_costs_its_own_connection_and_others_have_their_turn() -> None:
    rotation, taken, aborted = Rotation(), list[str](), list[str]()

    class Taking:
        def __init__(self, name: str) -> None:
            self.name = name

        def take_turn(self) -> None:
            if self.name == "broken":
                raise RuntimeError("a defect")
            taken.append(self.name)

        def abort(self) -> None:
            aborted.append(self.name)

    for name in ("a", "broken", "b"):
        rotation.wait(Taking(name), False)
    await asyncio.sleep(0)
    assert (taken, aborted) == (["a", "b"], ["broken"])


async def test_connection_is_read_again_although_its_user_has_no_room() -> None:
    """Nobody would tell it of the room that another connection of the user makes."""
    clients = Clients(1, max_in_flight_requests=1, max_in_flight_per_user=1)
    (connection,), held = clients.connections, clients.held
    clients.holds = True
    load = clients.state.known(connection, Identity("User:u", "127.0.0.1"))
    assert load is not None
    connection._load = load
    connection.answers.count_for(load)
    connection.data_received(frame())
    assert not clients.transports[0].reads
    load.in_flight += 1  # by another connection
    held.pop().answer(HeartbeatResponse(ErrorCode.NONE))
    assert load.is_full()
    assert clients.transports[0].reads


async def test_who_has_spent_much_waits_behind_who_has_not_and_is_served_in_each_turn() -> None:
    rotation, taken = Rotation(), list[str]()

    class Taking:
        def __init__(self, name: str, is_heavy: bool) -> None:
            self.name, self.is_heavy = name, is_heavy

        def take_turn(self) -> None:
            taken.append(self.name)
            rotation.units -= TURN_UNITS
            rotation.wait(self, self.is_heavy)

        def abort(self) -> None:
            raise AssertionError

    for name, is_heavy in (("heavy", True), ("other heavy", True), ("light", False)):
        rotation.wait(Taking(name, is_heavy), is_heavy)
    for _ in range(2):
        await asyncio.sleep(0)
    assert taken == ["light", "heavy", "light", "other heavy"]
