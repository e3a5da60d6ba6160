"""The simulation runs the production code: what it puts in place of something is a list of ports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
PORTS = {
    "clock": {"pods/clock.py"},
    "disk": {"pods/disk.py", "pods/astray.py", "pods/archive.py"},
    "network": {"pods/network.py", "operating/wire.py"},
    "event loop, with its threads": {"loop.py", "operating/loop.py"},
    "store": {"store.py", "operating/server.py", "operating/objects.py", "operating/client.py"},
    "process start": {
        "pods/process.py",
        "operating/pods.py",
        "operating/operator.py",
        "operating/process.py",
        "operating/machine.py",
        "transactions/pods.py",
    },
}
"""What is not the production code's own, and where the simulation has it. Chance is a `Random` that is passed in."""
CALLERS = {
    *("client.py", "consumer.py", "request.py", "fences.py", "nominator.py", "disaster.py", "mischief.py"),
    "transactions/reader.py",
    *("consuming/member.py", "consuming/classic.py", "consuming/assigning.py", "consuming/machine.py"),
    "consuming/late.py",
    "consuming/topics.py",
    "moves/gateways.py",
    "operating/volumes.py",
    *("operating/person.py", "operating/mischief.py", "transactions/producer.py", "transactions/pipeline.py"),
}
"""Who calls pods and operators, and what fails."""
CHECKS = {
    *("checker.py", "members.py", "history.py", "machine.py", "disk_log.py", "written.py"),
    *("pods/mirror.py", "pods/replica.py", "pods/groups.py", "pods/statements.py", "operating/record.py"),
    "transactions/model.py",
    *("consuming/log.py", "consuming/live.py", "consuming/group.py"),
}
HARNESS = {
    *("world.py", "simulator.py", "cluster.py", "options.py", "profiles.py", "injected.py", "minimise.py"),
    "kept.py",
    *("transactions/__init__.py", "transactions/surroundings.py"),
    "consuming/__init__.py",
    *("moves/__init__.py", "moves/world.py", "moves/run.py", "moves/two_sides.py", "moves/consumers.py"),
    *("sites/__init__.py", "sites/world.py", "sites/run.py"),
    *("__main__.py", "conftest.py", "operating/surroundings.py", "pods/__init__.py", "operating/__init__.py"),
}
PLANTED = ("moves/faults.py", "moves/consumer_faults.py", "sites/faults.py")
WATCHED = {("_WatchedPod", "control.Pod"), ("_LossyNetwork", "PeerNetwork")}
"""The real ones, with a look at each call, and a network that loses more than connections do."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(FOLDER.rglob("*.py")):
        name = path.relative_to(FOLDER).as_posix()
        if not path.name.startswith("test_") and name not in PLANTED and not name.startswith("faults/"):
            yield name, ast.parse(path.read_text())


def test_each_module_is_a_port_a_caller_a_check_or_part_of_the_harness() -> None:
    of_ports = set().union(*PORTS.values())
    assert {name for name, _ in _modules()} == of_ports | CALLERS | CHECKS | HARNESS


def test_nothing_takes_the_place_of_a_part_of_the_production_code() -> None:
    """Neither as a class of its kind, nor as an attribute that is set: planted faults alone do that."""
    derived = set()
    for name, tree in _modules():
        ours = {
            each.asname or each.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("muster_")
            for each in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                derived |= {
                    (node.name, ast.unparse(base)) for base in node.bases if ast.unparse(base).split(".")[0] in ours
                }
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                set_on = ast.unparse(target.value) if isinstance(target, ast.Attribute) else ""
                assert set_on.split(".")[0] not in ours, (name, node.lineno)
            called = isinstance(node, ast.Call) and ast.unparse(node.func)
            assert called != "setattr", (name, ast.unparse(node))
    assert derived == WATCHED
