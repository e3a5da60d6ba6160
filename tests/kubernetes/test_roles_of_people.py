"""What people may do who are bound to muster-view, or to muster-operate as well: the table in docs/cli.md."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kubernetes.test_on_call import muster
from tests.support.kube import kubectl
from tests.support.muster_cluster import MusterCluster, wait_until
from tests.support.platform_team import READY_S

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

OURS = ("coordinatorclusters", "offsetstopics", "offsetspartitions", "musterusers", "consumergroups", "musterbackups")
READ = [
    *(f"list {each}.muster.dev" for each in OURS),
    "list pods",
    "get pods/log",
    "list services",
    "list persistentvolumeclaims",
    "list events",
    "list statefulsets.apps",
    "list deployments.apps",
    "list poddisruptionbudgets.policy",
    "list networkpolicies.networking.k8s.io",
]
ACT = [
    "patch coordinatorclusters.muster.dev",
    "patch offsetstopics.muster.dev",
    "patch offsetspartitions.muster.dev",
    "patch consumergroups.muster.dev",
    "create consumergroups.muster.dev",
    "patch coordinatorclusters.muster.dev/scale",
    "delete pods",
    "create pods/eviction",
]
NOBODY = [
    "get secrets",
    "list secrets",
    "get pods/proxy",
    "create pods/exec",
    "create pods",
    "create musterusers.muster.dev",
    "patch musterusers.muster.dev",
    "create musterbackups.muster.dev",
    "create coordinatorclusters.muster.dev",
    *(f"delete {each}.muster.dev" for each in OURS),
    *(f"patch {each}.muster.dev/status" for each in OURS),
    "delete persistentvolumeclaims",
    "patch statefulsets.apps",
    "patch configmaps",
    "create rolebindings.rbac.authorization.k8s.io",
]
ROLES_OF = {"looks": READ, "acts": [*READ, *ACT]}


def review(namespace: str, account: str, right: str) -> dict[str, object]:
    verb, resource = right.split()
    named, _, subresource = resource.partition("/")
    plural, _, group = named.partition(".")
    about = {"namespace": namespace, "verb": verb, "group": group, "resource": plural, "subresource": subresource}
    user = f"system:serviceaccount:{namespace}:{account}"
    meta = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    return {**meta, "spec": {"user": user, "resourceAttributes": about}}


def test_api_server_lets_each_role_do_what_the_table_says_and_no_more(
    roles: dict[str, Path], muster_cluster: MusterCluster
) -> None:
    namespace = muster_cluster.namespace
    asked = [(account, right) for account in roles for right in (*READ, *ACT, *NOBODY)]
    reviews = [review(namespace, account, right) for account, right in asked]
    items = {"apiVersion": "v1", "kind": "List", "items": reviews}
    shown = ("-o", 'jsonpath={.status.allowed}{"\\n"}', "-f", "-")
    answers = kubectl("create", *shown, stdin=json.dumps(items)).stdout.split()
    may = {about for about, answer in zip(asked, answers, strict=True) if answer == "true"}
    assert may == {(account, right) for account, rights in ROLES_OF.items() for right in rights}


def test_with_the_view_role_alone_every_command_that_acts_is_refused_by_the_api_server(
    roles: dict[str, Path], muster_cluster: MusterCluster
) -> None:
    cluster = muster_cluster
    last = f"{cluster.name}-2"
    number = str(next(each.index for each in cluster.partitions().values() if each.leader == last))
    kinds = "coordinatorclusters,offsetspartitions"
    generations = {each["metadata"]["uid"]: each["metadata"]["generation"] for each in cluster.objects(kinds)}
    commands = [
        ("move", number, f"{cluster.name}-0"),
        ("drain", last),
        ("drain", last, "--dry-run"),
        ("fence", last),
        ("restart", last),
        ("restart", "--all"),
    ]
    acts = "no operator acts"  # it was replaced by the tests before
    wait_until(lambda: acts not in muster(roles["looks"], *commands[0]).stderr, "an operator acts", READY_S)
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(lambda command: muster(roles["looks"], *command), commands))
    told = {" ".join(command): (each.returncode, each.stderr) for command, each in zip(commands, done, strict=True)}
    assert [(code, "403" in text, "forbidden" in text) for code, text in told.values()] == [(1, True, True)] * 6, told
    after = {each["metadata"]["uid"]: each["metadata"]["generation"] for each in cluster.objects(kinds)}
    assert after == generations


def test_without_a_role_nothing_is_shown(roles: dict[str, Path], muster_cluster: MusterCluster) -> None:
    result = muster(roles["nobody"], "status")
    assert (result.returncode, result.stdout) == (2, "")
    assert "403" in result.stderr
