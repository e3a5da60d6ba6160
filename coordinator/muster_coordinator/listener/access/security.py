"""Guards of the requests about ACLs and credentials: DESCRIBE on the cluster to see them, ALTER to change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster_coordinator.errors import ErrorCode
from muster_coordinator.listener.access.asked import Guard, Rights
from muster_coordinator.listener.exchange import ClientAnswer
from muster_coordinator.listener.state import Handler
from muster_coordinator.requests import security as s
from muster_coordinator.security.acls import Operation

_CODE, _TEXT = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "Cluster authorization failed."


def on_cluster(operation: Operation, refused: Callable[[Any], object]) -> Guard:
    """`refused` makes the answer to a client without the right."""

    def guard(request: Any, exchange: ClientAnswer, rights: Rights, handler: Handler) -> None:
        if rights.cluster(operation):
            handler(request, exchange)
        else:
            exchange.answer(refused(request))

    return guard


GUARDS: dict[type, Guard] = {
    s.DescribeAclsRequest: on_cluster(Operation.DESCRIBE, lambda _: s.DescribeAclsResponse(_CODE, _TEXT)),
    s.CreateAclsRequest: on_cluster(
        Operation.ALTER, lambda r: s.CreateAclsResponse(tuple([s.AclChange(_CODE, _TEXT)] * len(r.creations)))
    ),
    s.DeleteAclsRequest: on_cluster(
        Operation.ALTER, lambda r: s.DeleteAclsResponse(tuple([s.AclChange(_CODE, _TEXT)] * len(r.filters)))
    ),
    s.DescribeClientQuotasRequest: on_cluster(
        Operation.DESCRIBE_CONFIGS, lambda _: s.DescribeClientQuotasResponse(_CODE, _TEXT)
    ),
    s.DescribeUserScramCredentialsRequest: on_cluster(
        Operation.DESCRIBE, lambda _: s.DescribeUserScramCredentialsResponse(_CODE, _TEXT)
    ),
    s.AlterUserScramCredentialsRequest: on_cluster(
        Operation.ALTER,
        lambda r: s.AlterUserScramCredentialsResponse(
            tuple([s.UserCredentials(user, _CODE, _TEXT) for user in r.users])
        ),
    ),
}
