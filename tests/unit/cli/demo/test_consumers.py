"""What a client of the demo does when its coordinator moves while it asks."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from muster_cli.demo import consumers

ERRORS = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TRANSPORT]


class Answers:
    """A consumer whose requests for offsets fail with each of these errors in turn, and then succeed."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.closed = False

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return [TopicPartition(each.topic, each.partition, 7 if each.partition else -1001) for each in partitions]

    def close(self) -> None:
        self.closed = True


def asked(monkeypatch: pytest.MonkeyPatch, consumer: Answers, timeout_s: float) -> dict[int, int]:
    monkeypatch.setattr(consumers, "client", lambda *_: consumer)
    return consumers.committed_offsets("127.0.0.1:1", "billing", "orders", 2, timeout_s)


def test_asks_again_while_the_coordinator_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Answers(*ERRORS)
    assert asked(monkeypatch, consumer, 20.0) == {1: 7}
    assert consumer.closed


@pytest.mark.parametrize(("error", "timeout_s"), [(KafkaError.GROUP_AUTHORIZATION_FAILED, 20.0), (ERRORS[0], -1.0)])
def test_gives_up_where_no_retry_helps_or_time_is_over(
    monkeypatch: pytest.MonkeyPatch, error: int, timeout_s: float
) -> None:
    consumer = Answers(error)
    with pytest.raises(KafkaException):
        asked(monkeypatch, consumer, timeout_s)
    assert consumer.closed
