"""The faults that Muster is compared by, on Kafka."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from tests.chaos.faults import Bounds
from tests.chaos.kafka_cluster import KafkaCluster
from tests.chaos.run import Run
from tests.chaos.scenarios import NONE


@dataclass(frozen=True)
class KafkaScenario:
    name: str
    what: str
    bounds: Bounds
    body: Callable[[Run, KafkaCluster], None]


def _end(number: signal.Signals) -> Callable[[Run, KafkaCluster], None]:
    def body(run: Run, cluster: KafkaCluster) -> None:
        for victim in run.rounds(cluster):
            with run.fault(cluster, f"{number.name} of {victim}", victim):
                cluster.end(victim, number)
                cluster.wait_led(without=[victim])
            cluster.start(victim)

    return body


KAFKA = (
    KafkaScenario("kafka-kill", "Kafka: SIGKILL of the node that leads most", NONE, _end(signal.SIGKILL)),
    KafkaScenario("kafka-terminate", "Kafka: controlled shutdown of that node", NONE, _end(signal.SIGTERM)),
)
