"""Step: give pods the metadata image that they tell Kafka clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from muster_coordinator.podapi.image import MetadataImage
from muster_operator.plan.actions import Action, PublishMetadata
from muster_operator.plan.metadata import has_other_content
from muster_operator.plan.observation import CallKind
from muster_operator.pods.session import PodSession
from muster_operator.steps.context import PAUSE_S, Context, Outcome
from muster_operator.steps.pod_calls import call_pod


async def publish_metadata(context: Context, actions: Sequence[Action]) -> Outcome | None:
    """Give the image to pods that do not have it: after leadership, so that clients are sent to recorded leaders.

    A pod refuses an older image, and the same one again changes nothing.
    """
    todo = next((each for each in actions if isinstance(each, PublishMetadata)), None)
    if todo is None:
        return None
    if _only_leaders_are_new(context.memory.image, todo.image) and not context.has_turn("publish", PAUSE_S):
        return None
    context.memory.image = image = todo.image
    for pod in todo.pods:
        call_pod(context, CallKind.PUBLISH, pod, partial(_put, image), failed="metadata_not_taken")
    return Outcome("Published", f"metadata image {image.token}.{image.version} to {', '.join(todo.pods)}")


def _only_leaders_are_new(last: MetadataImage | None, image: MetadataImage) -> bool:
    if last is None or not has_other_content(image, last):
        return False
    return not has_other_content(replace(image, leaders=last.leaders), last)


async def _put(image: MetadataImage, session: PodSession) -> bool:
    run = session.runs
    session.learn_image(run, await session.client.update_metadata(image))
    return True
