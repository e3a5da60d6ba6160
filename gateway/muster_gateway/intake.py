"""The requests of one client, taken in its turns: `listener.rotation` is how a pod does it, too."""

from __future__ import annotations

from collections.abc import Callable

from muster_coordinator.listener.rotation import LIGHT_UNITS, QUANTUM, UNIT_BYTES, Rotation, Taking
from muster_gateway.requests import RequestCutter, RequestSink


class Intake:
    """`has_room`: whether the client may have another request in flight. `connection` is told when its turn has come,
    and calls `take` then."""

    def __init__(
        self, connection: Taking, sink: RequestSink, rotation: Rotation, limit: int, has_room: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._cutter = RequestCutter(sink, limit, self._may_begin)
        self._rotation = rotation
        self._has_room = has_room
        self._most = QUANTUM  # requests that may still be taken in this turn
        self._spent_units = LIGHT_UNITS + 1  # in its last turn; who is new is not known to be light

    @property
    def held(self) -> int:
        """Bytes that have come and are not taken."""
        return self._cutter.held

    @property
    def waits(self) -> bool:
        """True if there are requests that could not be taken in a turn."""
        return self._cutter.stopped

    def take(self, data: bytes | None) -> None:
        """Take requests from `data`, or from what has come before, as many as a turn has room for. Raises
        ClientError."""
        units, self._most = self._rotation.units, QUANTUM
        if data is not None:
            self._cutter.feed(data)
        elif self._cutter.stopped and self._has_room():
            self._cutter.resume()
        if self._most < QUANTUM:
            self._spent_units = units - self._rotation.units
        self.wait()

    def wait(self) -> None:
        """Asks for another turn, if there are requests and there is room for them."""
        if self._cutter.stopped and self._has_room():
            self._rotation.wait(self._connection, self._most < QUANTUM or self._spent_units > LIGHT_UNITS)

    def was_read(self, size: int) -> None:
        """A request of so many bytes was taken as a whole."""
        self._rotation.units -= size // UNIT_BYTES

    def close(self) -> None:
        """The connection has ended."""
        self._rotation.forget(self._connection)

    def _may_begin(self) -> bool:
        if self._most <= 0 or self._rotation.units <= 0 or not self._has_room():
            return False
        self._most -= 1
        self._rotation.units -= 1
        return True
