"""What fails of machines, disks and links of real pods, beyond `mischief.Mischief`."""

from __future__ import annotations

from typing import Any

from tests.simulation.injected import Injected
from tests.simulation.mischief import Mischief
from tests.simulation.pods.disk import draw_broken

from muster_coordinator.calls import CallResult, CallStatus

__all__ = ["PodMischief"]

AWAY_MS = (1_500, 4_000)
CLEARED_MS = (400, 1_500)


class PodMischief(Mischief):
    def _plan(self) -> None:
        super()._plan()
        options, every = self._world.options, self._world.every
        every(options.errors_every_ms, self._fail_calls)
        every(options.promise_every_ms, self._damage_promise)
        every(options.slow_link_every_ms, self._slow_link)
        every(options.away_every_ms, self._send_away)
        every(options.remove_every_ms, self._remove)
        every(options.flip_every_ms, self._flip_checkpoint)
        self._world.at(CLEARED_MS[1], self._look_after)

    def _any_pod(self) -> Any:
        return super()._any_pod()

    def _clean(self) -> None:
        """A pod does this by itself."""

    def _publish_checkpoints(self) -> None:
        """A pod does this by itself."""

    # -- machines -----------------------------------------------------------------------------------------------------

    def _crash_one(self) -> None:
        pod = self._any_pod()
        pod.crash(power=pod.may_lose_power and self._random.random() < self._world.options.power_loss)
        pod.start_later()

    def _send_away(self) -> None:
        """Longer than what the others delete meanwhile keeps its tombstones."""
        pod = self._any_pod()
        pod.crash(power=pod.may_lose_power and self._random.random() < self._world.options.power_loss)
        self._world.at(self._random.randint(*AWAY_MS), pod.start)

    def _jump_clock(self) -> None:
        pod = self._any_pod()
        self._world.injected[Injected.CLOCK_JUMP] += 1
        pod.machine_clock.wall_offset_ms = self._random.choice((-1, 1)) * self._random.randint(0, 3_600_000)

    def _slow_link(self) -> None:
        """In one direction."""
        one, other = self._random.sample(list(self._cluster.pods), 2) if len(self._cluster.pods) > 1 else ("", "")
        until_ms = self._world.now_ms + self._random.randint(200, 2_000)
        self._world.slow[one, other] = until_ms, self._random.choice((50, 300, 900))

    # -- disks --------------------------------------------------------------------------------------------------------

    def _fill_disk(self) -> None:
        pod = self._any_pod()
        pod.faults.full = True
        self._world.log(f"{pod.name} has a full disk")

        def room() -> None:
            pod.faults.full = False

        self._world.at(self._random.randint(200, 1_500), room)

    def _break_disk(self) -> None:
        self._fail_calls()

    def _fail_calls(self) -> None:
        pod = self._any_pod()
        pod.faults.broken = broken = draw_broken(self._random, self._world.now_ms)
        self._world.log(f"{pod.name}: {broken}")

    def _slow_disk(self) -> None:
        pod = self._any_pod()
        pod.faults.slow_until = self._world.now_ms + self._random.randint(100, 2_000)

    def _flip_checkpoint(self) -> None:
        pod = self._any_pod()
        replica = self._random.choice(pod.replicas)
        pod.crash()
        if replica.flip_checkpoint():
            self._world.injected[Injected.CHECKPOINT_DAMAGED] += 1
        pod.start_later(300)

    def _damage_promise(self) -> None:
        """Nobody knows any more what that replica promised: it is gone with its log, and a person clears its place."""
        pod = self._any_pod()
        replica = self._random.choice(pod.replicas)
        if replica.host is not None and replica.partition.may_lose(replica):
            pod.crash()
            replica.partition.checker.lost_ids.add(replica.storage.log_id)
            replica.damage_promise()
            self._world.injected[Injected.PROMISE_DAMAGED] += 1
            self._world.log(f"{replica.name} has a damaged promise file")
            pod.start_later(300)

            def clear() -> None:
                pod.crash()
                replica.delete()
                pod.start_later(300)

            self._world.at(self._random.randint(*CLEARED_MS), clear)

    def _look_after(self) -> None:
        """Somebody places a replica where none is, and clears what is damaged and in no set: nobody else has to."""
        for partition, store in zip(self._cluster.partitions, self._stores, strict=True):
            for replica in partition.replicas.values():
                if not replica.pod.is_running or self._world.options.operating:
                    continue
                if replica.host is None:
                    replica.create()
                elif (
                    replica.storage.is_damaged
                    and replica.is_damaged
                    and replica.storage.log_id not in store.record.sets.members
                ):
                    replica.pod.crash()
                    replica.partition.checker.lost_ids.add(replica.storage.log_id)
                    replica.delete()
                    replica.pod.start_later(300)
        self._world.at(CLEARED_MS[1], self._look_after)

    # -- people and operators -----------------------------------------------------------------------------------------

    def _remove(self) -> None:
        """A replica that is in no set of its partition, by the word of a leader that has committed that."""
        partition, store = self._any_partition()
        leader = partition.replicas[store.record.leader].core
        if leader is None or not leader.is_active or leader.log.sets is None:
            return
        sets = leader.log.sets
        if sets.previous_replicas or leader.commit_point <= leader.log.sets_offset:
            return
        outside = [one for one in partition.replicas.values() if one.storage.log_id not in sets.members]
        replica = self._random.choice(outside) if outside else None
        if replica is None or not partition.may_lose(replica):
            return  # somebody named it in a set that would lose its majority with it
        log_id, lost = replica.storage.log_id, partition.checker.lost_ids
        lost.add(log_id)

        def removed(answer: CallResult) -> None:
            if answer.status is CallStatus.ACCEPTED:
                self._world.injected[Injected.REPLICA_REMOVED] += 1
                self._world.log(f"{replica.name} is removed")
            else:
                lost.discard(log_id)
            replica.create()

        replica.remove(log_id, leader.leading_epoch, removed)
