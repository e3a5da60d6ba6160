"""Step: give pods the metadata image that they tell Kafka clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from muster_coordinator.podapi.image import Broker, DeclaredTopic, MetadataImage, PartitionLeader, Peer, ReplicaPlace
from muster_operator.plan.actions import Action, PublishMetadata
from muster_operator.plan.observation import CallKind, Image
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import Context, Outcome
from muster_operator.steps.pod_calls import call_pod

__all__ = ["publish_metadata"]

LEADERS_EVERY_S = 0.1
"""An image in which only leaders are new follows the last one after this time, in seconds: partitions that move one
after the other share an image. Pods with a log of a partition learn of its leader from the leader itself.
"""


async def publish_metadata(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Give the image to pods that do not have it: after leadership, so that clients are sent to recorded leaders.

    A pod refuses an older image, and the same one again changes nothing.
    """
    todo = next((each for each in actions if isinstance(each, PublishMetadata)), None)
    if todo is None:
        return None
    if _only_leaders_are_new(context.memory.image, todo.image) and not context.has_turn("publish", LEADERS_EVERY_S):
        return None
    context.memory.image, context.memory.image_number = todo.image, todo.number
    image = _encoded(todo)
    for pod in todo.pods:
        call_pod(context, CallKind.PUBLISH, pod, partial(_put, image), failed="metadata_not_taken")
    return Outcome("Published", f"metadata image {todo.number[0]}.{todo.number[1]} to {', '.join(todo.pods)}")


def _only_leaders_are_new(last: Image | None, image: Image) -> bool:
    return last is not None and image != last and replace(last, leaders=image.leaders) == image


async def _put(image: MetadataImage, session: PodSession) -> bool:
    run = session.runs
    session.learn_image(run, await session.client.update_metadata(image))
    return True


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
