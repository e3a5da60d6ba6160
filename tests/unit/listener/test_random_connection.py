"""A connection whose client and pod do anything in any order: every request is carried out once, in its order, and
answered in its order, and nothing stays behind."""

from __future__ import annotations

import asyncio
import random
import struct

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.listener.clients import Clients, frame

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.connection import LARGE_BYTES, nobody
from muster_coordinator.listener.rotation import TURN_UNITS
from muster_coordinator.requests.groups import HeartbeatResponse
from muster_coordinator.security.identity import Identity

SIZES = [0, 1, 50, 3_000, LARGE_BYTES - 100, LARGE_BYTES, 30_000]


def numbered(number: int, size: int) -> bytes:
    data = bytearray(frame("c" * size))
    data[8:12] = struct.pack(">i", number)
    return bytes(data)


def numbers_of(answers: bytes) -> list[int]:
    found = []
    while answers:
        length, number = struct.unpack_from(">ii", answers)
        found.append(number)
        answers = answers[4 + length :]
    return found


@given(seed=st.integers(0, 2**32), in_flight=st.sampled_from([1, 2, 5, 100]), user=st.booleans(), ends=st.booleans())
@settings(deadline=None, max_examples=100)
def test_every_request_is_answered_once_and_in_order(seed: int, in_flight: int, user: bool, ends: bool) -> None:
    asyncio.run(_converse(random.Random(seed), in_flight, user, ends))


async def _converse(chance: random.Random, in_flight: int, user: bool, ends: bool) -> None:
    settings_of = {"max_in_flight_requests": in_flight}
    if user:
        settings_of["max_in_flight_per_user"] = chance.choice([1, 2, 3])
    count = chance.choice([1, 2, 3])
    who = (lambda _transport: Identity("User:a", "h")) if user else nobody
    clients = Clients(count, who, **settings_of)
    clients.holds = True
    sent = [chance.randint(0, 40) for _ in range(count)]
    left = [b"".join(numbered(n, chance.choice(SIZES)) for n in range(each)) for each in sent]
    ended = [False] * count
    paused = [False] * count
    pauses = chance.choice([True, False])  # each wakes the connection: what should have does not show
    for _ in range(20_000):
        number = chance.randrange(count)
        connection, transport = clients.connections[number], clients.transports[number]
        action = chance.randrange(9)
        if action < 3 and transport.reads:
            size = chance.choice([1, 100, 5_000, 300_000])
            if left[number]:
                data, left[number] = left[number][:size], left[number][size:]
                connection.data_received(data)
            elif ends and not ended[number]:
                ended[number] = True
                transport.reads = connection.eof_received() and False
        elif action < 5 and clients.held:
            held = clients.held.pop(chance.randrange(len(clients.held)))
            held.answer(HeartbeatResponse(ErrorCode.NONE))
        elif action == 5 and pauses:
            paused[number] = not paused[number]
            if transport.is_closed:
                pass
            elif paused[number]:
                connection.pause_writing()
            else:
                connection.resume_writing()
        elif action == 6:
            clients.state.rotation.units = chance.randint(0, TURN_UNITS)
        else:
            await asyncio.sleep(0)
        if _is_done(clients, left, sent):
            break
    for _ in range(20):
        await asyncio.sleep(0)
    for number, transport in enumerate(clients.transports):
        assert numbers_of(bytes(transport.written)) == list(range(sent[number])), number
        connection = clients.connections[number]
        assert not connection._reader.held
        assert not connection.answers.pending
        assert connection.answers.request_bytes == connection.answers.ready_bytes == 0
        assert transport.is_closed is ended[number] or paused[number]
        connection.connection_lost(None)
    assert clients.state.held_bytes == 0


def _is_done(clients: Clients, left: list[bytes], sent: list[int]) -> bool:
    return (
        not any(left)
        and all(clients.carried_out[c] == n for c, n in zip(clients.connections, sent, strict=True))
        and not clients.held
    )
