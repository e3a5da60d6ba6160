"""Everything that fails in the safety phase, at random times, as the options say."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.cluster import Cluster, Partition
from tests.simulation.injected import Injected
from tests.simulation.operator import rogue_call
from tests.simulation.operator_process import OperatorProcess
from tests.simulation.planned import PlannedStore
from tests.simulation.pod import Pod
from tests.simulation.store import Api, Store

__all__ = ["Mischief"]


class Mischief:
    def __init__(
        self,
        cluster: Cluster,
        api: Api,
        stores: Sequence[Store | PlannedStore],
        operators: Sequence[OperatorProcess],
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random
        self._api = api
        self._stores = stores
        self._operators = operators
        self._plan()

    def _plan(self) -> None:
        options, every = self._world.options, self._world.every
        every(options.crash_every_ms, self._crash_one)
        every(options.all_crash_every_ms, self._crash_all)
        every(options.freeze_every_ms, self._freeze)
        every(options.partition_every_ms, self._cut_off)
        every(options.flip_every_ms, self._flip)
        every(options.wipe_every_ms, self._wipe)
        every(options.full_every_ms, self._fill_disk)
        every(options.broken_every_ms, self._break_disk)
        every(options.slow_every_ms, self._slow_disk)
        every(options.jump_every_ms, self._jump_clock)
        every(options.move_every_ms, lambda: self._want("move"))
        every(options.resign_every_ms, lambda: self._want("resign"))
        every(options.change_every_ms, lambda: self._want("change"))
        every(options.rogue_every_ms, self._call_as_rogue)
        every(options.operator_crash_every_ms, self._crash_operator)
        every(options.outage_every_ms, self._outage)
        every(options.lag_every_ms, lambda: self._api.lag(self._random.choice(self._operators).name))
        every(options.clean_every_ms, self._clean)
        every(options.checkpoint_every_ms, self._publish_checkpoints)
        every(options.learn_every_ms, self._learn)

    def _any_pod(self) -> Pod:
        return self._random.choice(list(self._cluster.pods.values()))

    def _any_partition(self) -> tuple[Partition, Store | PlannedStore]:
        partition = self._random.choice(self._cluster.partitions)
        return partition, self._stores[partition.index]

    # -- processes ----------------------------------------------------------------------------------------------------

    def _crash_one(self) -> None:
        pod = self._any_pod()
        power = self._random.random() < self._world.options.power_loss
        if self._world.options.flush_os and power and not self._cluster.may_lose(pod):
            power = False
        pod.crash(power=power)
        self._start_later(pod)

    def _start_later(self, pod: Pod, within_ms: int = 0) -> None:
        self._world.at(self._random.randint(1, within_ms or self._world.options.restart_ms_max), pod.start)

    def _crash_all(self) -> None:
        self._world.injected[Injected.CRASH_OF_ALL] += 1
        power = not self._world.options.flush_os and self._random.random() < self._world.options.power_loss
        for pod in self._cluster.pods.values():
            pod.crash(power=power)
            self._start_later(pod)

    def _freeze(self) -> None:
        pod = self._any_pod()
        pod.frozen_until = self._world.now_ms + self._random.randint(1, self._world.options.freeze_ms_max)
        self._world.log(f"{pod.name} freezes until {pod.frozen_until}")

    def _jump_clock(self) -> None:
        pod = self._any_pod()
        self._world.injected[Injected.CLOCK_JUMP] += 1
        pod.wall_offset_ms = self._random.choice((-1, 1)) * self._random.randint(0, 3_600_000)
        self._world.log(f"{pod.name} has its wall clock {pod.wall_offset_ms} ms off")

    def _clean(self) -> None:
        for replica in self._any_pod().replicas:
            replica.clean()

    def _publish_checkpoints(self) -> None:
        for replica in self._any_pod().replicas:
            replica.publish_checkpoint()

    # -- network ------------------------------------------------------------------------------------------------------

    def _cut_off(self) -> None:
        """One pod from some of the others, in one direction or both; perhaps from the operators too."""
        random = self._random
        pod = self._any_pod()
        duration = random.randint(50, self._world.options.partition_ms_max)
        others = [*self._cluster.pods, *dict.fromkeys(one.name for one in self._operators)]
        both = random.random() < 0.5
        share = random.choice((0.5, 1.0))
        self._world.log(f"{pod.name} is cut off for {duration}")
        for other in others:
            if random.random() < share:
                self._world.block(pod.name, other, duration)
                if both:
                    self._world.block(other, pod.name, duration)

    # -- disks --------------------------------------------------------------------------------------------------------

    def _flip(self) -> None:
        """In the log of one partition; the pod stops at it."""
        pod = self._any_pod()
        replica = self._random.choice(pod.replicas)
        if replica.partition.may_lose(replica):
            pod.crash()
            if replica.flip_bit():
                self._world.injected[Injected.BIT_FLIPPED] += 1
                self._world.log(f"{replica.name} has a flipped bit")
            self._start_later(pod, 300)

    def _wipe(self) -> None:
        """A volume is lost: what comes back are other replicas."""
        pod = self._any_pod()
        if self._cluster.may_lose(pod):
            pod.crash()
            for replica in pod.replicas:
                replica.partition.checker.lost_ids.add(replica.storage.log_id)
            pod.lose_volume()
            self._world.injected[Injected.VOLUME_LOST] += 1
            self._world.log(f"{pod.name} lost its volume: {' '.join(r.storage.log_id[:4] for r in pod.replicas)}")
            self._start_later(pod, 300)

    def _fill_disk(self) -> None:
        pod = self._any_pod()
        pod.full = True
        self._world.log(f"{pod.name} has a full disk")

        def room() -> None:
            pod.full = False

        self._world.at(self._random.randint(200, 1_500), room)

    def _break_disk(self) -> None:
        pod = self._any_pod()
        pod.broken_until = self._world.now_ms + self._random.randint(1, 400)
        self._world.log(f"{pod.name} has I/O errors until {pod.broken_until}")

    def _slow_disk(self) -> None:
        pod = self._any_pod()
        pod.slow_until = self._world.now_ms + self._random.randint(100, 2_000)

    # -- operators ----------------------------------------------------------------------------------------------------

    def _want(self, what: str) -> None:
        self._random.choice(self._operators).wants = what

    def _call_as_rogue(self) -> None:
        partition, store = self._any_partition()
        rogue_call(partition, store.record)

    def _crash_operator(self) -> None:
        name = self._random.choice(self._operators).name
        self._world.log(f"{name} crashes")
        self._world.injected[Injected.OPERATOR_CRASH] += 1
        for operator in self._operators:
            if operator.name == name:
                operator.crash()

    def _outage(self) -> None:
        self._api.down_until = self._world.now_ms + self._random.randint(100, 4_000)
        self._world.log(f"the API server is away until {self._api.down_until}")

    def _learn(self) -> None:
        """Some replicas outside of the set get the log from whoever leads."""
        partition, store = self._any_partition()
        if self._world.options.plan or self._world.options.operating:
            return  # the plan names the learners
        ids = [replica.storage.log_id for replica in partition.replicas.values()]
        outside = [log_id for log_id in ids if log_id not in store.record.sets.members]
        learners = tuple(self._random.sample(outside, self._random.randint(0, len(outside))))
        for replica in partition.replicas.values():
            if replica.core is not None:
                replica.set_learners(learners)
