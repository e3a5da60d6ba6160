"""What happens to the API server's data and its watches, as the options say."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.simulation.injected import Injected
from tests.simulation.operating.machine import CLUSTER, NAMESPACE, Kubernetes
from tests.simulation.operating.objects import Backup
from tests.simulation.operating.operator import RealOperator
from tests.simulation.operating.record import TOPIC, Recorded
from tests.simulation.operating.server import ApiServer

from muster_operator.api.models import CoordinatorCluster, OffsetsPartition, OffsetsTopic, partition_object_name

__all__ = ["ApiMischief"]

BACKUP_EVERY_MS = 700


class ApiMischief:
    def __init__(
        self, server: ApiServer, recorded: Recorded, kubernetes: Kubernetes, operators: Sequence[RealOperator]
    ) -> None:
        self._server = server
        self._world = server.world
        self._recorded = recorded
        self._kubernetes = kubernetes
        self._operators = operators
        self._random = Random(f"api mischief {server.world.options.seed}")
        self._backups: list[Backup] = []
        options, every = self._world.options, self._world.every
        every(BACKUP_EVERY_MS if options.restore_every_ms else 0, self._back_up)
        every(options.restore_every_ms, self._restore)
        every(options.lose_status_every_ms, self._lose_status)
        every(options.lag_every_ms, lambda: self._server.end_watches())

    def _back_up(self) -> None:
        if self._kubernetes.is_set_up:
            self._backups.append(self._server.objects.backup())

    def _restore(self) -> None:
        """etcd from a backup. Revisions go on, or the operators are started again: Kubernetes demands one of them."""
        if not self._backups:
            return
        backup = self._random.choice(self._backups[-4:])
        bump = self._random.random() < 0.5
        self._world.log(f"etcd is restored from revision {backup.revision} of {self._server.objects.revision}")
        self._world.injected[Injected.STORE_RESTORED] += 1
        self._server.objects.restore(backup, bump=bump)
        self._server.end_watches()
        self._recorded.restored()
        if not bump:
            self._backups = [backup]  # later ones have revisions that come again
            for operator in self._operators:
                operator.kill()

    def _lose_status(self) -> None:
        """Of one object, or of several at once."""
        count = self._world.options.partitions
        partitions = [(OffsetsPartition.plural, partition_object_name(TOPIC, index)) for index in range(count)]
        every = [(CoordinatorCluster.plural, CLUSTER), (OffsetsTopic.plural, TOPIC), *partitions]
        for plural, name in self._random.sample(every, self._random.choice((1, 1, 2, len(every)))):
            self._world.log(f"the status of {plural} {name} is lost")
            self._world.injected[Injected.STATUS_LOST] += 1
            self._server.objects.lose_status(plural, NAMESPACE, name)
        self._recorded.restored()
