"""The sessions of all clusters: one per pod that has an address, started and stopped as pods come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import aiohttp

from muster_operator.clock import Clock
from muster_operator.plan.observation import PodView
from muster_operator.pods.session import PodSession
from muster_operator.store.port import ClusterKey, Notify
from muster_operator.store.workload import PodInfo, PodPhase


class PodSessions:
    """`http` (podapi.client.new_session) belongs to the caller, who closes it after `close`."""

    def __init__(self, http: aiohttp.ClientSession, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._notify: list[Notify] = []
        self._sessions: dict[ClusterKey, dict[str, PodSession]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._crashed: Callable[[BaseException], None] | None = None

    def watch(self, notify: Notify, crashed: Callable[[BaseException], None]) -> None:
        """Call `notify` with the key of a cluster when one of its pods has changed. Call `crashed` when a session ended
        by a defect: without that, its pod would look like one that never changes.
        """
        self._notify.append(notify)
        self._crashed = crashed

    def sync(self, key: ClusterKey, pods: Sequence[PodInfo], suspect_after_s: float) -> None:
        """Have one session for each of `pods`. A pod with another address gets another session; a pod that restarts in
        place keeps its session. Without `pods` all sessions end.

        A pod that was deleted by force is missing in `pods`, or only its successor of the same name is there, without
        an address. Its process still runs and is about to end. While it answers, its session stays, so that its leaders
        are moved all at once, which is faster than to find out that the pod is dead.
        """
        sessions = self._sessions.setdefault(key, {})
        wanted = {pod.name: pod for pod in pods}
        for name in [*sessions]:
            session, pod = sessions[name], wanted.get(name)
            if pods and session.is_up and (pod is None or not pod.api_address):
                session.update(replace(session.info, phase=PodPhase.GONE), suspect_after_s)
            elif pod is None or pod.api_address != session.info.api_address:
                self._end(sessions.pop(name))
            else:
                session.update(pod, suspect_after_s)
        for pod in pods:
            if pod.name not in sessions:
                session = PodSession(self._http, pod, suspect_after_s, self._clock, partial(self._tell, key))
                sessions[pod.name] = session
                session.start(self._crashed)
        if not sessions:
            del self._sessions[key]

    def views(self, key: ClusterKey) -> tuple[PodView, ...]:
        """One view for each pod, in the order of node ids."""
        return tuple(sorted((each.view() for each in self._of(key).values()), key=lambda view: view.node_id))

    def get(self, key: ClusterKey, pod: str) -> PodSession | None:
        return self._of(key).get(pod)

    def runs(self, key: ClusterKey) -> dict[str, int]:
        """The number of streams opened so far, by pod."""
        return {name: session.runs for name, session in self._of(key).items()}

    async def close(self) -> None:
        """End all sessions."""
        for sessions in self._sessions.values():
            for session in sessions.values():
                self._end(session)
        self._sessions.clear()
        if self._ending:
            await asyncio.wait(self._ending)

    def _of(self, key: ClusterKey) -> dict[str, PodSession]:
        return self._sessions.get(key, {})

    def _end(self, session: PodSession) -> None:
        task = session.stop()
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _tell(self, key: ClusterKey) -> None:
        for notify in self._notify:
            notify(key)
