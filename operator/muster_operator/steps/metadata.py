"""Step: give pods the metadata image that they tell Kafka clients."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from muster_coordinator.podapi.client import PodApiError
from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader, Peer, ReplicaPlace
from muster_operator.plan.actions import Action, PublishMetadata
from muster_operator.plan.observation import PUBLISH
from muster_operator.steps.context import Context, Outcome

__all__ = ["publish_metadata"]

log = structlog.get_logger(__name__)


async def publish_metadata(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """After leadership, so that clients are sent to leaders that are recorded. A pod refuses an older image, and the
    same one again changes nothing."""
    todo = next((each for each in actions if isinstance(each, PublishMetadata)), None)
    if todo is None:
        return None
    context.memory.image, context.memory.image_number = todo.image, todo.number
    image = _encoded(todo)
    for pod in todo.pods:
        context.memory.busy.add((PUBLISH, pod))
        context.spawn(_put(context, pod, image))
    return Outcome("Published", f"metadata image {todo.number[0]}.{todo.number[1]} to {', '.join(todo.pods)}")


async def _put(context: Context, pod: str, image: MetadataImage) -> None:
    try:
        session = context.pods.get(context.key, pod)
        if session is not None:
            run = session.runs
            session.learn_image(run, await session.client.update_metadata(image))
    except PodApiError as error:
        log.info("metadata not taken", pod=pod, error=str(error))
    finally:
        context.memory.busy.discard((PUBLISH, pod))


def _encoded(todo: PublishMetadata) -> MetadataImage:
    token, version = todo.number
    image = todo.image
    return MetadataImage(
        token=token,
        version=version,
        cluster_id=image.cluster_id,
        brokers=tuple(Broker(each.node_id, each.host, each.port, each.pod) for each in image.brokers),
        offsets_partitions=len(image.leaders),
        leaders=tuple(
            PartitionLeader(index, node, epoch)
            for index, (node, epoch) in enumerate(image.leaders, start=image.offsets_base)
        ),
        topics=tuple(DeclaredTopic(name, partitions) for name, partitions in image.topics),
        any_topic=image.any_topic,
        peers=tuple(_peer(pod, address) for pod, address in image.peers),
        places=tuple(ReplicaPlace(index, log_id, pod) for index, log_id, pod in image.places),
        offsets_base=image.offsets_base,
    )


def _peer(pod: str, address: str) -> Peer:
    host, _, port = address.rpartition(":")
    return Peer(pod, host.strip("[]"), int(port))
