"""Operators of the GitOps storm: the planner of the model beside the real `KubeWorkload` and the real `ensure_pods`."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_fields
from types import SimpleNamespace
from typing import cast

from tests.unit.operator.model import Model, Operator, run
from tests.unit.operator.storm_checks import check_plan
from tests.unit.operator.storm_kube import StormKube

from muster_operator.kube.workload import KubeWorkload
from muster_operator.plan import planner
from muster_operator.plan.actions import Action, CreatePartitions, Elect, ReplaceVolume, RestartPod
from muster_operator.plan.observation import Connection, Observation, PodView
from muster_operator.steps.context import Context
from muster_operator.steps.pods import ensure_pods
from muster_operator.store.port import ClusterKey
from muster_operator.store.workload import settings_trouble

__all__ = ["StormModel", "StormOperator"]

KEY = ClusterKey("ns", "c")


@dataclass
class StormModel(Model):
    losses: int = 0
    """How often a record was lost or taken back."""


class StormOperator(Operator):
    """An operator with caches of its own of what Kubernetes has."""

    def __init__(self, model: StormModel, kube: StormKube, token: int) -> None:
        super().__init__(model, token)
        self._storm = model
        self._losses = 0
        self._kube = kube
        self.workload = KubeWorkload(kube.api.as_client(), "muster:1", clock=lambda: model.now)
        self._seen: Observation | None = None
        self.has_news = False
        """Whether Kubernetes has told anything since the last plan, so that another one is to be made."""
        self.workload.watch(self._told)

    def _told(self, _: ClusterKey) -> None:
        self.has_news = True

    def observe(self) -> Observation:
        run(self.workload.load())
        seen = super().observe()
        infos = run(self.workload.pods(KEY))
        views = tuple(
            with_fields(
                self._view(each.name, each.node_id),
                outdated=each.outdated,
                uid=each.uid,
                container_image=each.image,
                trouble=each.trouble,
            )
            for each in infos
        )
        state = self.workload.state(self.model.cluster)
        return with_fields(
            seen,
            pods=views,
            applied=state.applied,
            conflict=state.conflict,
            refusal=state.refusal,
            default_image=state.default_image,
            volumes=state.volumes,
            stranded=state.stranded,
            invalid_settings=settings_trouble(self.model.cluster),
        )

    def _view(self, name: str, number: int) -> PodView:
        if name not in self.model.running:
            return PodView(name, number, Connection.DOWN, detail="starting")
        return self.model.view(name)

    def replan(self) -> tuple[Action, ...]:
        self.model.now += 0.4
        self._losses = self._storm.losses
        seen = self._seen = self.observe()
        self.has_news = False
        actions = planner.plan(seen, self.model.now)
        check_plan(self.model, self._kube, seen, actions)
        self.todo = [*actions]
        return actions

    def ensure(self) -> None:
        """The step that a reconcile never leaves out, with what was seen when the plan was made."""
        if self._seen is not None:
            context = SimpleNamespace(seen=self._seen, workload=self.workload)
            run(ensure_pods(cast(Context, context), ()))

    def act(self) -> None:
        """In the order of the steps: the pods before what is created, and both before statuses."""
        if self.todo and isinstance(self.todo[0], CreatePartitions):
            self.ensure()
        super().act()
        if not self.todo:
            self.ensure()

    def _do(self, action: Action) -> None:
        if isinstance(action, Elect) and self._losses != self._storm.losses:
            # What was recorded before the call is lost, so the epoch can be named again: one of the calls will fail.
            if self._storm.reaches(action.pod):
                self._elect(action)
        elif isinstance(action, RestartPod):
            run(self.workload.restart_pod(KEY, action.pod, action.uid))
        elif isinstance(action, ReplaceVolume):
            run(self.workload.replace_volume(KEY, action.volume))
        else:
            super()._do(action)
