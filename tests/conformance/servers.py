"""The two servers side by side, with the same settings and the same topics."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.conformance import acls, logins, token_logins
from tests.conformance.session import KAFKA, MUSTER, Server
from tests.support.certificates import unchecked_context
from tests.support.kafka import KafkaClient, schema
from tests.support.kafka_broker import KafkaBroker
from tests.support.pod import SoloPod

from muster_coordinator.security.tls import TlsFiles
from muster_coordinator.security.users import OAUTHBEARER

PARTITIONS = 5
"""Of each of the two internal topics."""
INTERNAL = ("__consumer_offsets", "__transaction_state")
AUTHORIZER = "authorizer.class.name"
TOPICS = {"t": 10, "u": 3, "topic.with-all_1": 1}
MIN_SESSION_MS = 1000
MAX_SIZE = 4
FOLLOWED = {"4.4.0": "4.4"}
"""The releases whose rules Muster follows when it is told so; beside others it follows those of its default."""
START_TIMEOUT_S = 60.0
INITIAL_DELAY_MS = 700
"""Long enough that several members join in it even where the machine stalls for a while."""
SETTINGS = {
    "group.min.session.timeout.ms": str(MIN_SESSION_MS),
    "group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS),
    "group.max.size": str(MAX_SIZE),
}
VERIFICATION = "transaction.partition.verification.enable"
"""false: the groups' coordinators do not ask those of transactions, and Muster has none."""
OF_KAFKA = {
    "group.coordinator.rebalance.protocols",
    AUTHORIZER,
    VERIFICATION,
}
"""Settings that Muster does not have: it always is what they make of a broker."""


@asynccontextmanager
async def both(version: str, directory: Path, more: Mapping[str, str]) -> AsyncIterator[tuple[Server, Server]]:
    """(Kafka of that version, Muster), running and empty; data and logs under `directory`. `more`: further settings."""
    broker_settings = SETTINGS | dict(more)
    coordinates = more.get(VERIFICATION) != "false"
    settings = {name: value for name, value in broker_settings.items() if name not in OF_KAFKA}
    if version in FOLLOWED:
        settings["muster.kafka.version"] = FOLLOWED[version]
    broker_settings |= {
        "offsets.topic.num.partitions": str(PARTITIONS),
        "transaction.state.log.num.partitions": str(PARTITIONS),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",  # Muster has a timer for each
        # Requests are handled in the order in which they were sent, over whatever connections.
        "num.network.threads": "1",
        "num.io.threads": "1",
    }
    if AUTHORIZER in more:
        acl_file = directory / "acls.json"
        directory.mkdir(parents=True, exist_ok=True)
        acls.write_none(acl_file)
        settings["muster.acls.file"] = str(acl_file)
    tls: TlsFiles | None = None
    if more.get(logins.MECHANISMS) == OAUTHBEARER:
        directory.mkdir(parents=True, exist_ok=True)
        tls, keys = token_logins.write(directory)
        broker_settings |= keys | token_logins.BROKER
        settings |= keys | {"muster.listener.tls.dir": str(tls.certificate.parent)}
    elif logins.MECHANISMS in more:
        users = directory / "users.json"
        directory.mkdir(parents=True, exist_ok=True)
        logins.write(users)
        settings["muster.users.file"] = str(users)
    async with (
        KafkaBroker(directory / "kafka", broker_settings, TOPICS, version, tls) as broker,
        SoloPod(
            directory / "muster" / "data",
            PARTITIONS,
            TOPICS,
            [f"{name}={value}" for name, value in settings.items()],
            transaction_partitions=PARTITIONS if coordinates else 0,
        ) as pod,
    ):
        if coordinates:
            await _await_transactions(broker.port)
        if logins.MECHANISMS in more:
            if tls is None:
                await logins.create(broker.port)
            context = unchecked_context(None) if tls is not None else None
            yield Server(KAFKA, broker.sasl_port, 0, tls=context), Server(MUSTER, pod.kafka_port, 0, tls=context)
            return
        kafka, muster = await server_at(KAFKA, broker.port), await server_at(MUSTER, pod.kafka_port)
        if AUTHORIZER in more:
            acls.write(acl_file)
            await acls.create(broker.port)
            for server in (kafka, muster):
                await (acls.wait_until_shown if acls.SUPER_USERS in more else acls.wait_until_in_force)(server.port)
        yield kafka, muster


async def _await_transactions(port: int) -> None:
    """The first producer makes the broker create its topic."""
    client = await KafkaClient.connect(port)
    request = schema("init_producer_id", 4).InitProducerIdRequest(
        transactional_id="first",
        transaction_timeout=datetime.timedelta(minutes=1),
        producer_id=-1,
        producer_epoch=-1,
    )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while int((await client.call(request)).error_code):
                await asyncio.sleep(0.1)
    finally:
        await client.close()


async def server_at(kind: str, port: int) -> Server:
    """With the names of what differs by nature: address, cluster id, topic ids."""
    client = await KafkaClient.connect(port)
    try:
        m = schema("metadata", 12)
        topics = tuple(m.MetadataRequestTopic(topic_id=None, name=n) for n in (*TOPICS, *INTERNAL))
        answer: Any = await client.call(
            m.MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        )
    finally:
        await client.close()
    there = [topic for topic in answer.topics if int(topic.error_code) == 0]
    names = {str(topic.topic_id): f"<id of {topic.name}>" for topic in there}
    names[str(answer.cluster_id)] = "<cluster id>"
    names[str(port)] = "<port>"
    topic_ids = {str(topic.name): topic.topic_id for topic in answer.topics}
    return Server(kind, port, int(answer.brokers[0].node_id), names, topic_ids)
