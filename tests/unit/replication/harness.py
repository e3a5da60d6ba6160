"""Cores joined in memory: effects are carried out at once, messages delivered in order, nothing fails by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from muster_coordinator.calls import CallResult
from muster_coordinator.replication import effects as fx
from muster_coordinator.replication.core import ReplicaCore
from muster_coordinator.replication.election import ElectionCall
from muster_coordinator.replication.log_state import LogState
from muster_coordinator.replication.messages import Batch, Message, decode_message, encode_message
from muster_coordinator.replication.sets import Sets
from muster_coordinator.replication.settings import ReplicationSettings


class Node:
    """One replica. `seen`: every effect but the messages; `down`: it takes no message. `read_max`: batches that a read
    of the log finds; `read`: called when one was read.
    """

    def __init__(self, net: Net, name: str, nominate_ms: Sequence[int] = ()) -> None:
        self.net = net
        self.name = name
        self.seen: list[fx.Effect] = []
        self.batches: list[Batch] = []
        self.copied: list[Batch] = []
        self.down = False
        self.slow_disk = False  # nothing of the log becomes durable
        self.read_max = 1_000
        self.read: Callable[[], None] = lambda: None
        self.promise = fx.Promise()
        delays = cycle(nominate_ms)
        delay: Callable[[], int] | None = (lambda: next(delays)) if nominate_ms else None
        self.core = ReplicaCore(0, name, self.promise, LogState(), 0, ReplicationSettings(), delay)

    def do(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            self._one(effect)

    def _one(self, effect: fx.Effect) -> None:
        now = self.net.now
        match effect:
            case fx.Send(message=message):
                self.net.queue.append(decode_message(encode_message(message)))
                return
            case fx.StorePromise(promise=promise):
                self.promise = promise
                self.do(self.core.storage_done(now))
            case fx.Truncate(end_offset=end):
                self.batches = [batch for batch in self.batches if batch.end_offset <= end]
                self.do(self.core.storage_done(now))
            case fx.StartCopy():
                self.copied = []
                self.do(self.core.storage_done(now))
            case fx.SwapCopy():
                self.batches = self.copied
                self.do(self.core.storage_done(now))
            case fx.AppendRange(batches=batches, to_copy=True):
                self.copied.extend(batches)
            case fx.AppendRange(batches=batches):
                self.batches.extend(batches)
                self._durable()
            case fx.ReadLog(ticket=ticket, start=start):
                found = [batch for batch in self.batches if batch.base_offset >= start][: self.read_max]
                self.read()
                self.do(self.core.log_read(ticket, found[-1].end_offset if found else self.core.log.end, found, now))
            case fx.Load(epoch=epoch):
                self.do(self.core.loaded(epoch, now))
            case fx.AppendLeaderChange(sets=sets):
                self.append(sets=sets)
            case fx.AppendReplicaSet(replicas=replicas):
                self.append(sets=Sets(replicas))
            case _:
                pass
        self.seen.append(effect)

    def _durable(self) -> None:
        if not self.slow_disk:
            self.do(self.core.log_durable(self.core.log.end, self.net.now))

    def append(self, data: bytes = b"", sets: Sets | None = None) -> None:
        base = self.core.log.end
        batch = Batch(base, base + 1, self.core.leading_epoch, data, sets)
        self.batches.append(batch)
        self.core.appended(batch)
        self.do(self.core.end_turn(self.net.now))
        self._durable()

    def elect(self, epoch: int, sets: Sets, **flags: bool) -> None:
        self.do(self.core.elect(epoch, ElectionCall(epoch, sets, **flags), self.net.now))

    def results(self) -> list[CallResult]:
        return [effect.result for effect in self.seen if isinstance(effect, fx.CallEnded)]


class Net:
    """`nominate_ms`: for whom nominates itself, how long it waits before that, again and again."""

    def __init__(self, names: str, nominate_ms: Mapping[str, Sequence[int]] | None = None) -> None:
        self.now = 0
        self.queue: deque[Message] = deque()
        self.nodes = {name: Node(self, name, (nominate_ms or {}).get(name, ())) for name in names}

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def deliver(self) -> list[Message]:
        """Until nothing is under way; what was delivered."""
        delivered = []
        while self.queue:
            message = self.queue.popleft()
            node = self.nodes[message.to]
            if not node.down and not self.nodes[message.sender].down:
                delivered.append(message)
                node.do(node.core.receive(message, self.now))
        return delivered

    def advance(self, ms: int) -> None:
        """Ticks every 50 ms."""
        end = self.now + ms
        while self.now < end:
            self.now += 50
            for node in self.nodes.values():
                if not node.down:
                    node.do(node.core.tick(self.now))
            self.deliver()
