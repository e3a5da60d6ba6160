"""A real Kafka broker (KRaft, one process on loopback) and Kafka's command-line tools, from jars fetched by Maven."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.builds import KAFKA_VERSION, BenchError, MissingTool, kafka_directory, kafka_jars
from tests.support.kafka import KafkaClient, schema
from tests.support.pod import free_ports

from muster_coordinator.security.tls import TlsFiles

START_TIMEOUT_S = 180.0
TOOL_TIMEOUT_S = 120.0
POLL_S = 0.1
HEAP = "-Xmx512m"
# A broker and tools that live for a few minutes: quick to start matters more than the last factor of speed.
JVM_FLAGS = (HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

MECHANISMS = "sasl.enabled.mechanisms"
"""With this setting the broker has a second listener, on which clients log in."""
SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
TOKENS = "org.apache.kafka.common.security.oauthbearer"
TOKEN_KEYS = "sasl.oauthbearer.jwks.endpoint.url"

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
    "auto.create.topics.enable": "false",
    "log.index.size.max.bytes": "1048576",  # preallocated for every partition
}


def why_no_kafka(version: str = KAFKA_VERSION) -> str:
    """The reason why Kafka cannot be run here, with what would help; empty when it can. Fetches the jars first."""
    try:
        kafka_jars(version)
    except (MissingTool, BenchError) as error:
        return str(error)
    return ""


def why_no_kafka_yet(version: str = KAFKA_VERSION) -> str:
    """The same without fetching anything: for tests, which skip where nobody has fetched Kafka."""
    if not shutil.which("java"):
        return "running Kafka needs Java 17: apt-get install openjdk-17-jre-headless"
    if not kafka_directory(version).exists() and version != KAFKA_VERSION:
        return f"no Kafka {version} here: `make conformance KAFKA={version}` fetches it, with Maven"
    if not kafka_directory(version).exists():
        return "no Kafka here: `make test` and `make conformance` fetch it, with Maven: apt-get install maven"
    return ""


def java(*arguments: str, version: str = KAFKA_VERSION) -> list[str]:
    """The command that runs a class of Kafka's with these arguments."""
    return ["java", *JVM_FLAGS, "-cp", f"{kafka_jars(version)}/*", *arguments]


async def run_tool(*arguments: str, timeout_s: float = TOOL_TIMEOUT_S, version: str = KAFKA_VERSION) -> tuple[int, str]:
    """(exit code, standard output and error) of a class of Kafka's, without what its logging says about itself."""
    process = await asyncio.create_subprocess_exec(
        *java(*arguments, version=version),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), timeout_s)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    assert process.returncode is not None
    lines = output.decode(errors="replace").splitlines(keepends=True)
    return process.returncode, "".join(line for line in lines if not line.startswith("SLF4J:"))


class KafkaBroker:
    """`settings` are broker properties beside those that a single node needs; `topics` are created at the start.
    `tls`: certificates of the listener with logins."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        topics: Mapping[str, int],
        version: str = KAFKA_VERSION,
        tls: TlsFiles | None = None,
    ) -> None:
        self.version = version
        self._tls = tls
        self.directory = directory
        self.data_dir = directory / "kafka"
        self.settings = settings
        self.topics = topics
        self.port, self._controller_port = free_ports(2)
        self.sasl_port = free_ports(1)[0] if MECHANISMS in settings else 0
        self.process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> KafkaBroker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.kill()

    async def start(self) -> None:
        """Start and wait until topics and coordinators are there; raises AssertionError with the log."""
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "kafka.properties"
        if not properties.exists():
            properties.write_text(self._properties(), encoding="utf-8")
            identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            code, output = await run_tool(
                "kafka.tools.StorageTool",
                "format",
                f"--cluster-id={identity}",
                "-c",
                str(properties),
                version=self.version,
            )
            assert code == 0, output
        with (self.directory / "kafka.log").open("ab") as log:
            self.process = subprocess.Popen(
                java(*self._flags(), "kafka.Kafka", str(properties), version=self.version),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            await self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def _properties(self) -> str:
        values = PROPERTIES | {
            "controller.quorum.voters": f"0@127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.data_dir),
        }
        if self.sasl_port:
            values |= self._login_properties(values)
        return "".join(f"{name}={value}\n" for name, value in (values | dict(self.settings)).items())

    def _login_properties(self, values: Mapping[str, str]) -> dict[str, str]:
        protocol = "SASL_PLAINTEXT" if self._tls is None else "SASL_SSL"
        found = {
            "listeners": f"{values['listeners']},{protocol}://127.0.0.1:{self.sasl_port}",
            "listener.security.protocol.map": f"{values['listener.security.protocol.map']},{protocol}:{protocol}",
        }
        for mechanism in self.settings[MECHANISMS].lower().split(","):
            prefix = f"listener.name.{protocol.lower()}.{mechanism}"
            found[f"{prefix}.sasl.jaas.config"] = SCRAM_LOGIN
            if mechanism == "oauthbearer":
                found[f"{prefix}.sasl.jaas.config"] = f"{TOKENS}.OAuthBearerLoginModule required;"
                handler = f"{TOKENS}.OAuthBearerValidatorCallbackHandler"
                found[f"{prefix}.sasl.server.callback.handler.class"] = handler
        if self._tls is not None:
            pair = self.directory / "server.pem"
            pair.write_bytes(self._tls.key.read_bytes() + self._tls.certificate.read_bytes())
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pair)}
        return found

    def _flags(self) -> list[str]:
        """The broker reads keys only from where its command line says."""
        keys = self.settings.get(TOKEN_KEYS)
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"] if keys else []

    async def _wait_until_ready(self) -> None:
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                assert self.process is not None
                assert self.process.poll() is None, f"Kafka ended: {self.log()[-4000:]}"
                try:
                    client = await KafkaClient.connect(self.port)
                except OSError:
                    await asyncio.sleep(POLL_S)
                    continue
                try:
                    if await self._is_ready(client):
                        return
                except (OSError, asyncio.IncompleteReadError):
                    pass
                finally:
                    await client.close()
                await asyncio.sleep(POLL_S)

    async def _is_ready(self, client: KafkaClient) -> bool:
        await self._create_topics(client)
        metadata = schema("metadata", 12)
        wanted = tuple(metadata.MetadataRequestTopic(topic_id=None, name=name) for name in self.topics)
        answer = await client.call(
            metadata.MetadataRequest(
                topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
        )
        if any(t.error_code or any(p.error_code for p in t.partitions) for t in answer.topics):
            return False
        return await self._coordinators_ready(client)

    async def _create_topics(self, client: KafkaClient) -> None:
        m = schema("create_topics", 5)
        topics = tuple(
            m.CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=(), configs=())
            for name, count in self.topics.items()
        )
        await client.call(m.CreateTopicsRequest(topics=topics))

    async def _coordinators_ready(self, client: KafkaClient) -> bool:
        """Both coordinators' topics exist, and every partition of the groups' topic is loaded."""
        m = schema("find_coordinator", 4)
        for key_type in (0, 1):
            answer = await client.call(m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=("x",)))
            if answer.coordinators[0].error_code:
                return False
        describe = schema("describe_groups", 5)
        groups = tuple(f"probe-{number}" for number in range(100))
        described = await client.call(
            describe.DescribeGroupsRequest(groups=groups, include_authorized_operations=False)
        )
        return all(not group.error_code for group in described.groups)

    def log(self) -> str:
        return (self.directory / "kafka.log").read_text(encoding="utf-8", errors="replace")

    def partition_dir(self, partition: int, topic: str = "__consumer_offsets") -> Path:
        return self.data_dir / f"{topic}-{partition}"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM: flush, close the logs, leave the clean shutdown mark."""
        await asyncio.to_thread(self._end, signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            if process.poll() is None:
                os.kill(process.pid, number)
            process.wait(timeout=60)


def group_command(bootstrap: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Arguments of `run_tool` for Kafka's kafka-consumer-groups.sh."""
    return (
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        bootstrap,
        *arguments,
    )
