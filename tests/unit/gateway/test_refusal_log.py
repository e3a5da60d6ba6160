"""Lines of the log about connections that are closed for a reason."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.unit.gateway.servers import Client, Server, gateway, plain

from muster_gateway.refusal_log import INTERVAL_S, KEYS_MAX, LONGEST_ERROR, RefusalLog


async def echo(key: int, version: int, correlation_id: int, frame: bytes) -> bytes:
    return plain(correlation_id, frame[10:])


async def test_client_that_is_refused_again_and_again_is_told_once_and_then_counted() -> None:
    with capture_logs() as logs:
        async with Server(0, echo) as broker, gateway(broker) as (under_test, port):
            for number in range(50):
                client = await Client.connect(port)
                client.send(999, 0, number)
                assert await client.receive() == b""
            (first,) = [each for each in logs if each["event"] == "connection_closed"]
            assert first["client"].startswith("127.0.0.1:")
            assert under_test.ended[first["reason"]] == 50
    rest = [each for each in logs if each["event"] == "connections_closed"]
    assert {(each["client"], each["reason"]) for each in rest} == {("127.0.0.1", first["reason"])}
    assert (sum(each["count"] for each in rest), len(rest) < 5) == (49, True)


def test_who_goes_on_has_one_line_in_each_interval_and_who_comes_back_one_at_once() -> None:
    log = RefusalLog()
    log.look(0)
    with capture_logs() as logs:
        for interval in range(1, 4):
            for _ in range(100):
                log.tell("10.0.0.1:1", "malformed_request", "x" * 10_000)
            log.look(interval * INTERVAL_S)
        assert [each.get("count") for each in logs] == [None, 99, 100, 100]
        assert max(len(each["error"]) for each in logs) == LONGEST_ERROR
        log.look(4 * INTERVAL_S)
        log.tell("10.0.0.1:2", "malformed_request", "again")
    assert [each["event"] for each in logs[4:]] == ["connection_closed"]


def test_more_clients_than_have_lines_of_their_own_are_told_together() -> None:
    log = RefusalLog()
    with capture_logs() as logs:
        for number in range(10 * KEYS_MAX):
            log.tell(f"10.0.{number}.1:1", "malformed_request", "wrong")
        log.tell_rest()
    assert len(logs) == KEYS_MAX + 1
    assert (logs[-1]["client"], logs[-1]["count"]) == ("others", 9 * KEYS_MAX)


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["one", "two"])), max_size=50),
        max_size=5,
    )
)
def test_each_refusal_is_counted_in_two_lines_of_an_interval_at_most(floods: list[list[tuple[int, str]]]) -> None:
    log, told, refused = RefusalLog(), 0, 0
    log.look(0)
    for number, flood in enumerate(floods, 1):
        with capture_logs() as logs:
            for host, reason in flood:
                log.tell(f"10.0.0.{host}:1", reason, "wrong")
            log.look(number * INTERVAL_S)
        of_each = Counter((each["client"].partition(":")[0], each["reason"]) for each in logs)
        assert not of_each or max(of_each.values()) <= 2
        told += sum(_count(each) for each in logs)
        refused += len(flood)
    assert told == refused


def _count(line: Any) -> int:
    return int(line["count"]) if line["event"] == "connections_closed" else 1
