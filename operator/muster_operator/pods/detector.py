"""The failure detector of one pod, as a table: from what happens to its watch stream to what a plan may believe.

The end of a stream alone says nothing: the pod may have closed it. The reconnect, which follows at once, decides: a
refused connection means that nothing listens there any more, so the pod is dead. A silent stream, or a host that does
not answer, makes the pod SUSPECT. A wrong suspicion costs an election, never safety.
"""

from __future__ import annotations

from enum import Enum

from muster_operator.plan.observation import Connection


class Event(Enum):
    """An event of a stream, or of the attempt to open one."""

    STATUS = "status"  # its first line came
    ENDED = "ended"  # the stream ended or broke
    REFUSED = "refused"  # nothing listens at the address
    UNREACHABLE = "unreachable"  # no connection in time, or it broke before the first line
    SILENT = "silent"  # nothing came for longer than suspectAfter
    STRANGER = "stranger"  # another pod, or no pod at all, answers there


TRANSITIONS: dict[tuple[Connection, Event], Connection] = {
    (Connection.UP, Event.STATUS): Connection.UP,
    (Connection.UP, Event.ENDED): Connection.UNSURE,
    (Connection.UP, Event.SILENT): Connection.SUSPECT,
    # The operator opens no second stream while one is up, so these three cannot come. They would prove no death.
    (Connection.UP, Event.REFUSED): Connection.UP,
    (Connection.UP, Event.UNREACHABLE): Connection.UP,
    (Connection.UP, Event.STRANGER): Connection.UP,
    (Connection.UNSURE, Event.STATUS): Connection.UP,
    (Connection.UNSURE, Event.ENDED): Connection.SUSPECT,
    (Connection.UNSURE, Event.REFUSED): Connection.DOWN,
    (Connection.UNSURE, Event.UNREACHABLE): Connection.SUSPECT,
    (Connection.UNSURE, Event.SILENT): Connection.SUSPECT,
    (Connection.UNSURE, Event.STRANGER): Connection.DOWN,
    # Silence can be a fault of the network as well as of the pod: the plan asks the other pods.
    (Connection.SUSPECT, Event.STATUS): Connection.UP,
    (Connection.SUSPECT, Event.ENDED): Connection.SUSPECT,
    (Connection.SUSPECT, Event.REFUSED): Connection.DOWN,
    (Connection.SUSPECT, Event.UNREACHABLE): Connection.SUSPECT,
    (Connection.SUSPECT, Event.SILENT): Connection.SUSPECT,
    (Connection.SUSPECT, Event.STRANGER): Connection.DOWN,
    (Connection.DOWN, Event.STATUS): Connection.UP,
    (Connection.DOWN, Event.ENDED): Connection.DOWN,
    (Connection.DOWN, Event.REFUSED): Connection.DOWN,
    (Connection.DOWN, Event.UNREACHABLE): Connection.DOWN,
    (Connection.DOWN, Event.SILENT): Connection.DOWN,
    (Connection.DOWN, Event.STRANGER): Connection.DOWN,
}

DETAILS: dict[Event, str] = {
    Event.STATUS: "",
    Event.ENDED: "its stream ended",
    Event.REFUSED: "connection refused",
    Event.UNREACHABLE: "it cannot be reached",
    Event.SILENT: "it is silent",
    Event.STRANGER: "another process answers at its address",
}
"""The reason why a pod is down, for people. It holds no numbers, so a status that shows it does not change all the
time.
"""
