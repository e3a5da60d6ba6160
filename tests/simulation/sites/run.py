"""One history of some take-overs, drawn from a seed."""

from __future__ import annotations

from random import Random

from tests.simulation.sites.world import LEASE_S, Cluster, Files, Interrupted, Machine, Pod, Store, Violation, World

from muster_cli.backup.take_over import Done, TakeOver
from muster_cli.errors import CliError
from muster_coordinator.sites.claims import Claims

ROUNDS = 3


class History:
    """`kinds`: which take-overs there were."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World(self.random)
        self.files = Files()
        self.store = Store(self.world)
        self.serving = self._cluster("site-1")
        self.waiting: Cluster | None = None
        self.kinds: list[str] = []

    def run(self) -> None:
        """Raises Violation."""
        assert self._take_over(self.serving, "site-1").term == 1
        for number in range(2, ROUNDS + 2):
            self.world.run(self.random.uniform(2, 8))
            self._follow()
            self.world.run(self.random.uniform(0, 5))
            self._round(f"site-{number}")

    def _round(self, name: str) -> None:
        old = self.serving
        self._harm(old)
        self.waiting = self._cluster(name) if self.random.random() < 0.5 else None  # its pods run already
        done = self._carried_out(old, name)
        if done is None:
            return
        new = self.waiting or self._cluster(name)
        if done.backup not in self.store.made:
            raise Violation(f"{name} answers, and begins from no backup")
        _, _, log = self.store.made[done.backup]
        new.log[:0] = log
        self.world.run(LEASE_S)
        lost = [old.log[offset] for offset in old.acked if offset >= len(log)]
        if lost and (done.may_lack_since_ms is None or min(lost) * 1000 < done.may_lack_since_ms):
            raise Violation(f"lost since {min(lost):.3f}, announced {done.may_lack_since_ms}")
        if not new.acked:
            raise Violation(f"{name} does not answer")
        if self.random.random() < 0.5:
            for pod in old.pods:
                pod.ended = True
        self.serving = new

    def _carried_out(self, old: Cluster, name: str) -> Done | None:
        """The take-over, however often it is killed; None: the old site was given its right back."""
        while True:
            try:
                self.store.killed_in_use = self.random.random() < 0.2
                return self._take_over(old, name, interrupted=self.random.random() < 0.3)
            except Interrupted:
                self.kinds.append("interrupted")
                self.world.run(self.random.uniform(0, 2 * LEASE_S))
            except CliError:
                self.kinds.append("another one was faster")
                return None
            if self.random.random() < 0.3 and all(not pod.ended for pod in old.pods):
                try:
                    self._take_over(old, old.name)
                except CliError:
                    continue  # it was killed after its last step: the new site has the right
                self.kinds.append("given back")
                old.reachable = True
                self.world.run(4)
                self._reach(old, True)
                self.world.run(LEASE_S)
                return None

    def _take_over(self, old: Cluster, name: str, *, interrupted: bool = False) -> Done:
        machine = Machine(self.world)

        def sleep(seconds: float) -> None:
            left = machine.true(seconds)
            if interrupted:
                self.world.run(left * self.random.random())
                raise Interrupted
            if self.random.random() < 0.1 and name != old.name:
                self._rival(old, f"{name}-rival")
            self.world.run(left)

        def agree(_since_ms: int, _trouble: str) -> bool:
            self.world.run(self.random.random())
            return True

        return TakeOver(
            Claims(self.files),
            old,
            self.store,
            lease_ms=int(LEASE_S * 1000),
            now_ms=lambda: int(self.world.now * 1000),
            sleep=sleep,
            agree=agree,
            tell=lambda _text: None,
        ).run(name)

    def _rival(self, old: Cluster, name: str) -> None:
        """Somebody else takes over at the same time."""
        self.kinds.append("rival")
        try:
            done = self._take_over(old, name)
        except CliError:
            return
        rival = self._cluster(name)
        rival.log[:0] = self.store.made[done.backup][2]
        self.world.run(LEASE_S / 2)
        self.serving = rival

    def _harm(self, old: Cluster) -> None:
        kind = self.random.choice(("alive", "alive", "dead", "cut off", "cut off", "stands", "stands briefly"))
        self.kinds.append(kind)
        if kind == "dead":
            for pod in old.pods:
                pod.ended = True
        elif kind == "cut off":
            old.reachable = False
            reaches_store = self.random.random() < 0.3
            self.world.after(self.random.uniform(0, 2), lambda: self._reach(old, reaches_store))
        elif kind.startswith("stands"):
            for pod in self.random.sample(old.pods, self.random.randint(1, 3)):
                self._stand(pod, 0.2 if kind == "stands briefly" else 1.0)

    def _reach(self, cluster: Cluster, reaches_store: bool) -> None:
        for pod in cluster.pods:
            pod.reaches_store = reaches_store

    def _stand(self, pod: Pod, part: float) -> None:
        begins, lasts = self.random.uniform(0, LEASE_S), self.random.uniform(0, 5 * LEASE_S) * part

        def stop() -> None:
            pod.stands_until = self.world.now + lasts

        self.world.after(begins, stop)

    def _follow(self) -> None:
        if self.serving.reachable:
            self.store.add(self.serving)

    def _cluster(self, name: str) -> Cluster:
        return Cluster(self.world, name, Claims(self.files), self.store)
