"""The meter speaks the protocol by hand: here with a pod that decodes and encodes with the coordinator's own codecs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from muster_cli.demo.meter import Meter
from muster_coordinator.errors import ErrorCode
from muster_coordinator.requests.cluster import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from muster_coordinator.requests.groups import OffsetCommitRequest, OffsetCommitResponse
from muster_coordinator.wire.apis import APIS
from muster_coordinator.wire.framing import FrameReader, encode_response_frame, read_header


class FakePod:
    """Answers one connection at a time. `errors` are given to the first commits, `drops` connections end unanswered."""

    def __init__(self) -> None:
        self.requests: list[FindCoordinatorRequest | OffsetCommitRequest] = []
        self.find_errors: list[int] = []
        self.commit_errors: list[int] = []
        self.drops = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader(limit=10_000)
        while data := connection.recv(4096):
            for frame in reader.feed(data):
                if self.drops:
                    self.drops -= 1
                    return
                header = read_header(frame)
                api = APIS[header.api_key]
                request = api.decode_request(header, frame, "")
                self.requests.append(request)
                body = api.encode_response(header.api_version, self._answer(request))
                connection.sendall(encode_response_frame(api, header.api_version, header.correlation_id, body))

    def _answer(self, request: object) -> FindCoordinatorResponse | OffsetCommitResponse:
        if isinstance(request, FindCoordinatorRequest):
            error = self.find_errors.pop() if self.find_errors else 0
            return FindCoordinatorResponse((Coordinator("", 0, "127.0.0.1", self.port, error),))
        assert isinstance(request, OffsetCommitRequest)
        error = self.commit_errors.pop() if self.commit_errors else 0
        return OffsetCommitResponse((("orders", ((0, error),)),))


@pytest.fixture
def pod() -> Iterator[FakePod]:
    pod = FakePod()
    yield pod
    pod.close()


def run_until(pod: FakePod, done: Callable[[Meter], bool]) -> Meter:
    meter = Meter(f"127.0.0.1:{pod.port}", "some-group", "orders")
    meter.start()
    try:
        while meter.is_alive() and not done(meter):
            meter.join(0.005)
    finally:
        meter.stop()
    assert meter.error is None
    return meter


def commits(pod: FakePod) -> list[OffsetCommitRequest]:
    return [request for request in pod.requests if isinstance(request, OffsetCommitRequest)]


def test_meter_finds_the_coordinator_and_commits_rising_offsets_outside_of_a_generation(pod: FakePod) -> None:
    run_until(pod, lambda meter: meter.count >= 3)
    first = pod.requests[0]
    assert isinstance(first, FindCoordinatorRequest)
    assert first.keys == ("some-group",)
    for expected, commit in enumerate(commits(pod)[:3], start=1):
        assert (commit.group_id, commit.generation_id, commit.member_id) == ("some-group", -1, "")
        assert commit.topics == (("orders", ((0, expected, -1, ""),)),)


def test_refused_commit_is_not_counted_and_is_tried_again(pod: FakePod) -> None:
    pod.commit_errors = [ErrorCode.NOT_COORDINATOR]
    run_until(pod, lambda meter: meter.count >= 1)
    assert [commit.topics[0][1][0][1] for commit in commits(pod)[:2]] == [1, 1]


def test_coordinator_that_is_not_available_yet_is_looked_for_again(pod: FakePod) -> None:
    pod.find_errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    run_until(pod, lambda meter: meter.count >= 1)
    assert sum(isinstance(request, FindCoordinatorRequest) for request in pod.requests) >= 4


def test_connection_that_ends_is_opened_again(pod: FakePod) -> None:
    pod.drops = 2
    assert run_until(pod, lambda meter: meter.count >= 1).count >= 1


def test_longest_gap_counts_only_what_ends_after_the_moment() -> None:
    meter = Meter("127.0.0.1:1", "g", "t")
    meter._acknowledged = [0.0, 5.0, 6.0, 8.0, 8.5]
    assert meter.longest_gap_s(since=5.5) == 2.0
    assert meter.longest_gap_s(since=4.0) == 5.0
    assert meter.longest_gap_s(since=9.0) == 0.0
    assert meter.count_after(5.5) == 3
