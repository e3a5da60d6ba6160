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

__all__ = ["PodSessions"]


class PodSessions:
    """`http` stays the caller's (podapi.client.new_session)."""

    def __init__(self, http: aiohttp.ClientSession, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._notify: list[Notify] = []
        self._sessions: dict[ClusterKey, dict[str, PodSession]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._crashed: Callable[[BaseException], None] | None = None

    def watch(self, notify: Notify, crashed: Callable[[BaseException], None]) -> None:
        """Call `notify` with the key of a cluster when something about one of its pods changed, and `crashed` when a
        session died of a bug: it would look like a pod that never changes.
        """
        self._notify.append(notify)
        self._crashed = crashed

    def sync(self, key: ClusterKey, pods: Sequence[PodInfo], suspect_after_s: float) -> None:
        """Have one session for each of these pods. Another address is another session; a restart in place is not.

        A pod that was deleted by force is not among them any more, or only the next one of its name, which has no
        address yet; but its process still runs, and is about to end. As long as it answers its leaders are moved, all
        at once, which takes less than to find out that they are dead. Without `pods` all sessions end.
        """
        sessions = self._sessions.setdefault(key, {})
        wanted = {pod.name: pod for pod in pods}
        for name in [*sessions]:
            session, pod = sessions[name], wanted.get(name)
            if pods and session.is_up and (pod is None or not pod.api_address):
                session.info = replace(session.info, phase=PodPhase.GONE)
            elif pod is None or pod.api_address != session.info.api_address:
                self._end(sessions.pop(name))
            else:
                session.info, session.suspect_after_s = pod, suspect_after_s
        for pod in pods:
            if pod.name not in sessions:
                session = PodSession(self._http, pod, suspect_after_s, self._clock, partial(self._tell, key))
                sessions[pod.name] = session
                session.start(self._crashed)
        if not sessions:
            del self._sessions[key]

    def views(self, key: ClusterKey) -> tuple[PodView, ...]:
        """By node id."""
        return tuple(sorted((each.view() for each in self._of(key).values()), key=lambda view: view.node_id))

    def get(self, key: ClusterKey, pod: str) -> PodSession | None:
        return self._of(key).get(pod)

    def runs(self, key: ClusterKey) -> dict[str, int]:
        """How many streams were opened to each pod."""
        return {name: session.runs for name, session in self._of(key).items()}

    async def close(self) -> None:
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
