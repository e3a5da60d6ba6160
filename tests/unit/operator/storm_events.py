"""What can happen in the GitOps storm, and how often."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.unit.operator.storm_kube import BROKEN

from muster_operator.api.models import Rollout, Storage

__all__ = ["MOST_PODS", "PARTITIONS", "draw", "draw_of_nodes"]

MOST_PODS = 5
PARTITIONS = 6
SERVICES = ("services", "c-bootstrap"), ("services", "c-pods")
OBJECTS = (*SERVICES, ("statefulsets", "c"), ("poddisruptionbudgets", "c"))


def draw(random: Random) -> tuple[str, Any]:
    """One event."""
    kind = random.choices([*_EVENTS], [*_EVENTS.values()])[0]
    match kind:
        case "plan" | "act" | "finish" | "crash":
            return kind, random.choice([0, 0, 1])
        case "restart" | "stop" | "drain" | "seal" | "slow" | "fast" | "commit" | "lose":
            return kind, f"c-{random.randrange(MOST_PODS)}"
        case "scale":
            return "declare", {"pods": random.choice([1, 2, 3, 3, 4, 5, 5])}
        case "suspend" | "hibernate":
            return "declare", {kind: random.random() < 0.4}
        case "pause":
            return "declare", {"rollout": Rollout(random.random() < 0.4)}
        case "rebalance":
            return "declare", {"rebalance": random.choice(["Auto", "Manual"])}
        case "image":
            return "declare", {"image": random.choice([None, "muster:1", "muster:2", "muster:2", BROKEN])}
        case "settings":
            wrong = {"group.max.sise": "5"}
            return "declare", {"settings": random.choice([{}, {"group.max.size": "5"}, wrong])}
        case "factor":
            return kind, random.choice([1, 3, 3, 5])
        case "recreate":
            return kind, random.choice(["all", "cluster", "topic", "partitions"])
        case "prune" | "prefer" | "place":
            return kind, random.randrange(PARTITIONS)
        case "edit_set":
            return kind, random.randint(0, MOST_PODS)
        case "kubectl":
            verb = random.choice(["delete", "relabel", "put_stranger"])
            return kind, (verb, *random.choice(SERVICES if verb == "put_stranger" else OBJECTS))
    return kind, None


def draw_of_nodes(random: Random) -> tuple[str, Any]:
    """One event of nodes and their volumes."""
    kind = random.choice(["lose_node", "lose_node", "lose_node", "stop", "node_back", "give_up"])
    if kind == "give_up":
        return "declare", {"storage": Storage(give_up_after=random.choice(["0s", "1s", "1s"]))}
    return kind, f"c-{random.randrange(MOST_PODS)}"


_EVENTS = {
    "plan": 30,
    "act": 30,
    "finish": 30,
    "control": 20,
    "commit": 15,
    "crash": 3,
    "restart": 6,
    "stop": 4,
    "drain": 2,
    "seal": 2,
    "slow": 3,
    "fast": 5,
    "lose": 3,
    "scale": 6,
    "factor": 3,
    "recreate": 3,
    "rename": 1,
    "prune": 3,
    "prefer": 2,
    "place": 2,
    "suspend": 3,
    "hibernate": 2,
    "pause": 3,
    "rebalance": 4,
    "image": 5,
    "settings": 3,
    "forget_status": 2,
    "back_up": 3,
    "restore": 2,
    "edit_set": 1,
    "kubectl": 4,
}
