"""The operator's loop: key from the queue, observe, plan, carry out the steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Any

import structlog

from muster_coordinator.tracing.ports import Spans
from muster_operator.api.durations import parse_duration
from muster_operator.api.models import CoordinatorCluster
from muster_operator.attempts import FIRST_DELAY_S, MAX_DELAY_S, Attempts
from muster_operator.clock import Clock
from muster_operator.failovers import Failovers
from muster_operator.metrics import OperatorMetrics
from muster_operator.phases import Phases
from muster_operator.plan.actions import Action, RestartPod
from muster_operator.plan.backups import backups_due
from muster_operator.plan.group_facts import GroupFacts
from muster_operator.plan.groups import counting, leaders_of_groups
from muster_operator.plan.maintenance import as_asked, hides_in
from muster_operator.plan.metadata import token_above
from muster_operator.plan.observation import BackupsDue, Observation, PodView
from muster_operator.plan.planner import plan
from muster_operator.plan.record import as_recorded
from muster_operator.plan.resets import key_of
from muster_operator.plan.rollout import how_it_ended
from muster_operator.plan.window import opens
from muster_operator.pods.sessions import PodSessions
from muster_operator.queue import KeyQueue
from muster_operator.steps import STEPS
from muster_operator.steps.context import Context, Memory
from muster_operator.steps.elect import elect
from muster_operator.steps.record import record_leadership
from muster_operator.store.port import ClusterKey, ClusterRecords, ConflictError, Store, StoreError
from muster_operator.store.workload import GatewayState, Workload, WorkloadState, settings_trouble
from muster_operator.traces import Traces
from muster_operator.turns import Turns

log = structlog.get_logger(__name__)

RESYNC_S = 30.0
"""Every cluster is looked at this often even if nothing happens, in seconds."""


class Reconciler:
    """Level-triggered: whatever wakes it, it observes everything and plans anew.

    Clusters run side by side, each serially. `random` gives numbers in [0, 1), for jitter. With a `namespace` it looks
    after the clusters in it, and after no others.
    """

    def __init__(
        self,
        store: Store,
        workload: Workload,
        pods: PodSessions,
        clock: Clock,
        random: Callable[[], float],
        metrics: OperatorMetrics,
        namespace: str | None = None,
        turns: Turns | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._store = store
        self._workload = workload
        self._pods = pods
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._namespace = namespace
        self._turns = turns or Turns()
        self._spans = spans
        self._queue = KeyQueue(metrics.queue_seconds.observe)
        self._memory: dict[ClusterKey, Memory] = {}
        self._failures: dict[ClusterKey, int] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._crashed: asyncio.Future[None] | None = None

    def enqueue(self, key: ClusterKey) -> None:
        """Reconcile this key soon, if it is one of ours."""
        if self._namespace in (None, key.namespace):
            self._queue.add(key)

    async def run(self) -> None:
        """Reconcile until cancelled, or until a bug raises what no step may raise. Ends calls to pods, not sessions."""
        watches = [self._store.watch(self.enqueue), self._workload.watch(self.enqueue)]
        self._pods.watch(self.enqueue, self._crash)
        self._crashed = asyncio.get_running_loop().create_future()
        dispatcher = asyncio.create_task(self._dispatch())
        self._tasks[dispatcher] = None
        try:
            await self._crashed
        finally:
            for unwatch in watches:
                unwatch()
            self._queue.close()
            for key in self._memory:
                self._turns.end(key)
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    async def _dispatch(self) -> None:
        while True:
            self._spawn(self._work(await self._queue.get()))

    async def _work(self, key: ClusterKey) -> None:
        started = self._clock.monotonic()
        result = "done"
        try:
            await self.reconcile(key)
            self._failures.pop(key, None)
            if key in self._memory:
                self._metrics.last_success.labels(*key).set(self._clock.wall())
            self._queue.add_later(key, self._next_look(key))
        except ConflictError as error:
            # The store shows by now what the other writer wrote: plan anew at once.
            result = "overtaken"
            self._metrics.conflicts.inc()
            self._queue.add(key)
            log.info("record_overtaken", key=str(key), error=str(error))
        except StoreError as error:
            result = "failed"
            self._queue.add_later(key, self._retry_delay(key))
            log.warning("reconcile_failed", key=str(key), error=str(error))
        except Exception as error:
            result = "crashed"
            self._crash(error)
        finally:
            self._metrics.reconcile_seconds.labels(result).observe(self._clock.monotonic() - started)
            self._queue.done(key)

    async def reconcile(self, key: ClusterKey) -> None:
        """Observe, plan, carry out the steps once. Raises StoreError; the steps after a failed one do not run."""
        memory = self._memory.get(key)
        if memory is None:
            memory = self._memory[key] = self._new_memory(key)
        seen = await self._observe(key, memory)
        actions = self._plan(seen, memory)
        self._follow_rollout(seen, actions, memory.traces)
        memory.phases.plan(seen, actions, self._clock.monotonic())
        if memory.traces is not None:
            memory.traces.plan(seen, actions)
        memory.failovers.follow(seen.partitions, actions, self._clock.monotonic(), self._clock.wall())
        context = Context(
            key=key,
            seen=seen,
            memory=memory,
            store=self._store,
            workload=self._workload,
            pods=self._pods,
            clock=self._clock,
            metrics=self._metrics,
            spawn=lambda call: self._spawn(self._background(key, call)),
        )
        for step in STEPS:
            started = self._clock.monotonic()
            outcome = await step(context, actions)
            if step is record_leadership:
                memory.recorded(self._clock.monotonic())
            elif step is elect:
                memory.called(self._clock.monotonic())
            if outcome is not None and memory.said.get(step.__name__) != outcome.text:
                memory.said[step.__name__] = outcome.text
                took_ms = round((self._clock.monotonic() - started) * 1000, 1)
                log.info("step", key=str(key), step=step.__name__, code=outcome.code, text=outcome.text, ms=took_ms)
        if seen.cluster is None and not seen.topics:
            del self._memory[key]
            self._metrics.forget(*key)

    def _new_memory(self, key: ClusterKey) -> Memory:
        traces = Traces(self._spans, self._clock, str(key)) if self._spans is not None else None
        return Memory(Attempts(self._random), Failovers(self._metrics), Phases(self._metrics), traces)

    def _plan(self, seen: Observation, memory: Memory) -> tuple[Action, ...]:
        """The plan. What has changed in nothing since a plan that had no actions is not planned again: such looks, at
        all clusters, would be most of what many clusters cost.
        """
        settled = _settled(seen)
        if settled is not None and settled == memory.calm:
            return ()
        actions = plan(seen, self._clock.wall())
        memory.calm = settled if not actions else None
        return actions

    async def _observe(self, key: ClusterKey, memory: Memory) -> Observation:
        records, infos, token = await asyncio.gather(
            self._store.observe(key), self._workload.pods(key), self._store.fencing_token(key)
        )
        cluster = records.cluster
        if cluster is not None:
            self._pods.sync(key, infos, parse_duration(cluster.spec.failover.suspect_after))
        else:
            self._pods.sync(key, (), suspect_after_s=0.0)  # ends all sessions
        pods, now = self._pods.views(key), self._clock.monotonic()
        if cluster is not None:
            pods = as_asked(cluster, pods, memory.idle_since, now)
        memory.token = token_above(max(memory.token, token), pods)
        self._settle(key, memory, records, pods)
        memory.steady_in_s = _next_steady(cluster, pods, memory.idle_since, now)
        state = self._workload.state(cluster) if cluster is not None else WorkloadState()
        gateway = state.gateway or GatewayState()
        self._metrics.certificates_end.labels(*key).set(state.certificates_end)
        jobs, restores = self._workload.backups, self._workload.restores
        if cluster is not None:
            self._metrics.show_backups(cluster)
        access = None
        if cluster is not None and cluster.spec.access.muster_users and records.users is not None:
            access = self._workload.access(cluster, records.users)
        seen = Observation(
            namespace=key.namespace,
            name=key.name,
            cluster=cluster,
            topics=records.topics,
            partitions=records.partitions,
            pods=pods,
            bootstrap=self._workload.bootstrap(cluster, infos) if cluster else "",
            fencing_token=memory.token,
            image=memory.image,
            attempts=memory.attempts.view(self._clock.monotonic()),
            busy=frozenset(memory.busy),
            failovers=tuple(memory.failovers.records),
            applied=state.applied,
            conflict=state.conflict,
            refusal=state.refusal,
            default_image=state.default_image,
            rollout_waits=self._rollout_waits(key, cluster) if cluster is not None else "",
            outdated_definitions=state.outdated_definitions,
            volumes=state.volumes,
            volume_size=state.volume_size,
            archive_size=state.archive_size,
            growing=state.growing,
            growth_refused=state.growth_refused,
            stranded=state.stranded,
            certificates=state.certificates,
            certificates_end=state.certificates_end,
            gateway_waits=gateway.waits,
            gateway_trouble=gateway.trouble,
            gateway_bootstrap=gateway.bootstrap,
            invalid_settings=settings_trouble(cluster) if cluster is not None else "",
            users=records.users,
            access=access,
            groups=records.groups,
            backups=records.backups,
            backup_jobs=jobs.jobs(key) if jobs is not None else None,
            restore=restores.facts(cluster) if restores is not None and cluster is not None else None,
            backups_due=backups_due(cluster, self._clock.wall()) if cluster is not None else BackupsDue(),
        )
        if not seen.groups:
            return seen
        keys = [reset for each in seen.groups if (reset := key_of(each)) is not None]
        resets = memory.resets.view(keys, self._clock.monotonic())
        return with_fields(seen, group_facts=self._group_facts(seen, memory), reset_facts=resets)

    def _group_facts(self, seen: Observation, memory: Memory) -> Mapping[str, GroupFacts]:
        generations = {each.spec.group: each.metadata.generation for each in counting(seen.groups or ()).values()}
        memory.groups.forget((pod.name for pod in seen.pods if pod.is_up), generations)
        return memory.groups.view(generations, leaders_of_groups(seen), self._clock.monotonic())

    def _rollout_waits(self, key: ClusterKey, cluster: CoordinatorCluster) -> str:
        """The reason why no pod is replaced now; "" if one may be."""
        if closed := opens(cluster.spec.rollout.window, self._clock.wall()):
            return f"spec.rollout.window opens {closed}"
        other = self._turns.other(key, self._clock.monotonic())
        return f"the pods of cluster {other} are being replaced" if other is not None else ""

    def _follow_rollout(self, seen: Observation, actions: Sequence[Action], traces: Traces | None) -> None:
        """Have or end the turn. Between the look at it (`_observe`) and this nothing is awaited."""
        key = ClusterKey(seen.namespace, seen.name)
        ended = "the cluster is gone" if seen.cluster is None else how_it_ended(seen)
        if traces is not None:
            traces.rollout(actions, ended)
        if ended:
            self._turns.end(key)
        elif seen.cluster is not None and any(isinstance(each, RestartPod) for each in actions):
            away_s = parse_duration(seen.cluster.spec.failover.replace_after)
            self._turns.take(key, self._clock.monotonic(), away_s)

    def _settle(self, key: ClusterKey, memory: Memory, records: ClusterRecords, pods: tuple[PodView, ...]) -> None:
        """Forget elections that ended well, and failures that a restart of their pod made meaningless."""
        runs = self._pods.runs(key)
        memory.attempts.forget(pod for pod, run in runs.items() if run != memory.runs.get(pod))
        memory.runs = runs
        now = self._clock.monotonic()
        logs = {pod.name: pod.replicas for pod in pods}
        led = 0
        topics = {each.metadata.name: each for each in records.topics}
        for shown in records.partitions:
            topic = topics.get(shown.spec.topic_ref.name)
            partition = shown if topic is None else as_recorded(topic, shown)
            replica = logs.get(partition.status.leader or "", {}).get(partition.spec.index)
            if replica is not None and replica.is_active:
                led += 1
                took_s = memory.attempts.settle(partition.metadata.name, now)
                if took_s is not None:
                    self._metrics.election_seconds.observe(took_s)
                    memory.led(partition.metadata.name, now)
        before, since = memory.leaderless
        self._metrics.leaderless_seconds.labels(*key).inc(before * (now - since))
        memory.leaderless = len(records.partitions) - led, now
        self._metrics.leaderless.labels(*key).set(memory.leaderless[0])
        self._metrics.count_partitions(*key, (each.status.state for each in records.partitions))

    def _next_look(self, key: ClusterKey) -> float:
        """Seconds until this key is due without any event."""
        memory = self._memory.get(key)
        due = memory.attempts.next_due(self._clock.monotonic()) if memory is not None else None
        soon = memory.steady_in_s if memory is not None else None
        return min((each for each in (due, soon) if each is not None), default=RESYNC_S)

    def _retry_delay(self, key: ClusterKey) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = min(FIRST_DELAY_S * 2.0 ** min(failures - 1, 20), MAX_DELAY_S)
        return delay_s * (0.5 + 0.5 * self._random())

    async def _background(self, key: ClusterKey, call: Coroutine[Any, Any, None]) -> None:
        try:
            await call
        except Exception as error:
            self._crash(error)
        else:
            self._queue.add(key)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def _crash(self, error: BaseException) -> None:
        """End the loop with a bug's exception. An operator that went on with a part of its work would look healthy."""
        if self._crashed is not None and not self._crashed.done():
            self._crashed.set_exception(error)


def _settled(seen: Observation) -> Observation | None:
    """The observation without how long pods have been up; None if that, or how long they are away, matters yet."""
    if seen.cluster is None:
        return None
    young_s = parse_duration(seen.cluster.spec.failover.rebalance_after)
    if not all(pod.is_up and pod.steady_s >= young_s for pod in seen.pods):
        return None
    return with_fields(seen, pods=tuple(with_fields(pod, steady_s=0.0) for pod in seen.pods))


def _next_steady(
    cluster: CoordinatorCluster | None, pods: tuple[PodView, ...], idle_since: dict[str, float], now: float
) -> float | None:
    """Seconds until a pod has been up, away, or fenced for long enough to change the plan."""
    if cluster is None:
        return None
    failover = cluster.spec.failover
    up_s, away_s = parse_duration(failover.rebalance_after), parse_duration(failover.replace_after)
    bounds = [(pod, bound_s) for pod in pods for bound_s in ((up_s,) if pod.is_up else (up_s, away_s))]
    left = [*(bound_s - pod.steady_s for pod, bound_s in bounds), *hides_in(cluster, idle_since, now)]
    return min((each for each in left if 0 < each < RESYNC_S), default=None)
