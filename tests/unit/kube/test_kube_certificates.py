"""Certificates on Kubernetes: one record, made once, adopted, renewed; what pods and readers get of it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("cryptography")

from cryptography import x509
from tests.support.certificates import Authority, operator
from tests.unit.kube.test_manifests import cluster, pod
from tests.unit.operator.storm_kube import NAMESPACE, StormApi

from muster_coordinator.security.roles import member_of, parse_member
from muster_coordinator.security.tls import TlsFiles, server_context
from muster_operator.api.conditions import Condition, ConditionType
from muster_operator.api.models import CoordinatorCluster, Security
from muster_operator.certificates.issuing import expiry, signed_by
from muster_operator.certificates.rotation import AUTHORITY_LIFETIME, LEAF_LIFETIME, SETTLE
from muster_operator.kube.certificates import RECORDS, Certificates
from muster_operator.kube.claims import LOOK_EVERY_S
from muster_operator.kube.client import Json, KubeError
from muster_operator.kube.manifests import is_secured
from muster_operator.kube.workload import KubeWorkload
from muster_operator.store.port import ClusterKey

KEY = ClusterKey("ns", "a")
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
RECORD = f"{SECRETS}/{RECORDS}"


class Broken(StormApi):
    """Refuses what is `refused`, as a part of the method and the path."""

    refused = ""

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        if self.refused and self.refused in f"{method} {path}":
            raise KubeError(403, f"{method} {path}: 403 forbidden")
        return super()._ask(method, path, body)


class Site:
    """An API server, and operators that come and go; time passes for all of them."""

    def __init__(self, root: Path) -> None:
        self.api = Broken()
        self.now = datetime.now(UTC).replace(microsecond=0)
        self._began = self.now
        self._root = root
        self._operators = 0

    def operator(self) -> Certificates:
        self._operators += 1
        folder = self._root / f"operator-{self._operators}"
        return Certificates(self.api.as_client(), folder, self._passed, lambda: self.now)

    def _passed(self) -> float:
        return (self.now - self._began).total_seconds()

    def later(self, by: timedelta = timedelta(seconds=LOOK_EVERY_S)) -> None:
        self.now += by

    def secret(self, name: str) -> dict[str, bytes]:
        found = self.api.objects.get("secrets", NAMESPACE, name)
        assert found is not None, f"there is no Secret {name}"
        return {file: base64.b64decode(each) for file, each in found["data"].items()}

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.api.objects.all("secrets")]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def asking(**fields: Any) -> CoordinatorCluster:
    declared = cluster()
    return replace(declared, spec=replace(declared.spec, security=Security(**fields)))


def ready() -> CoordinatorCluster:
    declared = cluster()
    is_ready = Condition(type=ConditionType.READY, status="True", reason="AllDeclared")
    return replace(declared, status=replace(declared.status, conditions=(is_ready,)))


def mounted(site: Site, root: Path, name: str) -> TlsFiles:
    """The files as a pod sees them."""
    directory = root / name
    directory.mkdir(exist_ok=True)
    for file, content in site.secret(name).items():
        (directory / file).write_bytes(content)
    return TlsFiles.of(directory)


def uri(certificate: bytes) -> str:
    names = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    (found,) = names.value.get_values_for_type(x509.UniformResourceIdentifier)
    return str(found)


async def test_pods_and_readers_get_leaves_of_their_roles_and_not_the_key_of_the_ca(site: Site) -> None:
    certificates = site.operator()
    assert await certificates.keep(cluster())
    assert site.names() == ["a-pod-tls", "a-reader-tls", RECORDS]
    pods, reader = site.secret("a-pod-tls"), site.secret("a-reader-tls")
    assert uri(pods["tls.crt"]) == "muster://ns/a/pod/*"
    assert uri(reader["tls.crt"]) == "muster://ns/a/reader"
    assert all(signed_by(each["tls.crt"], each["ca.crt"]) for each in (pods, reader))
    assert set(pods) == set(reader) == {"tls.crt", "tls.key", "ca.crt"}
    assert certificates.tls(KEY) is not None
    assert certificates.end(KEY) == expiry(pods["tls.crt"]).timestamp()
    found = site.api.objects.get("secrets", NAMESPACE, "a-pod-tls")
    assert found is not None
    assert found["metadata"]["ownerReferences"][0]["name"] == "a", "they go with the cluster"


async def test_files_of_the_secret_are_what_a_pod_can_use(site: Site, tmp_path: Path) -> None:
    await site.operator().keep(cluster())
    server_context(mounted(site, tmp_path, "a-pod-tls"))
    assert parse_member("muster://ns/a/pod/*").pod == "*"
    assert member_of({"subjectAltName": (("URI", "muster://ns/a/pod/*"),)}).cluster == "ns/a"


async def test_another_operator_adopts_what_is_there(site: Site) -> None:
    await site.operator().keep(cluster())
    before = site.api.objects.revision
    second = site.operator()
    await second.keep(cluster())
    assert site.api.objects.revision == before
    assert second.tls(KEY) is not None


async def test_operator_that_comes_second_in_a_race_reads_what_the_first_has_made(site: Site) -> None:
    first, second = site.operator(), site.operator()
    await second.keep(replace(cluster(), metadata=replace(cluster().metadata, name="b", uid="2")))
    site.api.objects.remove(("secrets", NAMESPACE, RECORDS))  # `second` takes what it has read for what is there
    await first.keep(cluster())
    made = site.secret("a-pod-tls")
    await second.keep(cluster())
    assert site.secret("a-pod-tls") == made, "the CA of the first counts"


async def test_leaves_are_renewed_at_half_of_their_life_and_the_ca_stays(site: Site) -> None:
    certificates = site.operator()
    await certificates.keep(cluster())
    before, tls = site.secret("a-pod-tls"), certificates.tls(KEY)
    assert tls is not None
    context = tls.context
    site.later(LEAF_LIFETIME / 2 - timedelta(hours=1))
    assert not await certificates.keep(cluster())
    assert site.secret("a-pod-tls") == before
    site.later(timedelta(hours=1))
    assert await certificates.keep(cluster())
    after = site.secret("a-pod-tls")
    assert after["tls.crt"] != before["tls.crt"]
    assert after["ca.crt"] == before["ca.crt"]
    assert certificates.tls(KEY) is tls, "sessions have it"
    assert tls.context is not context, "the operator's own leaf is new as well"


@pytest.mark.parametrize("why", ["half of its life is over", "a person asks for it"])
async def test_a_ca_is_exchanged_in_steps(site: Site, why: str) -> None:
    certificates, declared = site.operator(), cluster()
    await certificates.keep(declared)
    first = site.secret("a-pod-tls")
    if why == "a person asks for it":
        declared = asking(ca_round=1)
    else:
        site.later(AUTHORITY_LIFETIME / 2)
    await certificates.keep(declared)
    announced = site.secret("a-pod-tls")
    assert announced["ca.crt"].startswith(first["ca.crt"])
    assert announced["ca.crt"].count(b"BEGIN") == 2
    site.later(SETTLE)
    await certificates.keep(declared)
    switched = site.secret("a-pod-tls")
    assert not signed_by(switched["tls.crt"], first["ca.crt"])
    assert switched["ca.crt"].count(b"BEGIN") == 2
    site.later(SETTLE)
    await certificates.keep(declared)
    assert site.secret("a-reader-tls")["ca.crt"].count(b"BEGIN") == 1
    settled = site.api.objects.revision
    site.later(SETTLE)
    await certificates.keep(declared)
    assert site.api.objects.revision == settled, "the exchange is over"


async def test_what_cannot_be_renewed_stays_in_force_and_is_told(site: Site) -> None:
    certificates = site.operator()
    await certificates.keep(cluster())
    before = site.secret("a-pod-tls")
    site.later(LEAF_LIFETIME / 2)
    site.api.refused = RECORDS
    assert await certificates.keep(cluster())
    assert "403 forbidden" in certificates.trouble(KEY)
    assert certificates.tls(KEY) is not None
    assert site.secret("a-pod-tls") == before
    site.api.refused = ""
    site.later()
    assert await certificates.keep(cluster())
    assert certificates.trouble(KEY) == ""
    assert site.secret("a-pod-tls") != before


async def test_operator_that_starts_and_cannot_renew_tells_when_ends_what_is_in_force(site: Site) -> None:
    """Else the alert on certificates that are not renewed would go out with its restart."""
    first = site.operator()
    await first.keep(cluster())
    site.later(LEAF_LIFETIME / 2)
    site.api.refused = f"PUT {RECORD}"
    another = site.operator()
    await another.keep(cluster())
    assert "403 forbidden" in another.trouble(KEY)
    assert another.end(KEY) == first.end(KEY) > 0


async def test_a_damaged_record_is_no_reason_for_another_ca(site: Site) -> None:
    await site.operator().keep(cluster())
    before = site.secret("a-pod-tls")
    found = site.api.objects.get("secrets", NAMESPACE, RECORDS)
    assert found is not None
    site.api.objects.handle("PUT", RECORD, {}, {**found, "data": {"a": base64.b64encode(b"{").decode()}})
    another = site.operator()
    await another.keep(cluster())
    assert "a cannot be read" in another.trouble(KEY)
    assert another.tls(KEY) is None
    assert site.secret("a-pod-tls") == before


async def test_a_record_that_somebody_deletes_is_written_again(site: Site) -> None:
    certificates = site.operator()
    await certificates.keep(cluster())
    before = site.secret("a-pod-tls")
    site.api.objects.remove(("secrets", NAMESPACE, RECORDS))
    site.later()
    await certificates.keep(cluster())
    assert RECORDS in site.names()
    assert site.secret("a-pod-tls") == before


async def drifted(certificates: Certificates, *, gone: bool = False) -> set[ClusterKey]:
    return await certificates.drifted(lambda _: not gone)


@pytest.mark.parametrize("name", ["a-pod-tls", "a-reader-tls", RECORDS])
@pytest.mark.parametrize("how", ["deleted", "changed", "damaged"])
async def test_secret_that_somebody_deletes_or_changes_is_noticed_by_a_look_and_back_with_the_next_reconcile(
    site: Site, name: str, how: str
) -> None:
    """Also at a cluster that is ready, and without a moment's rest between two looks."""
    certificates = site.operator()
    await certificates.keep(ready())
    before = {each: site.secret(each) for each in site.names()}
    assert await drifted(certificates) == set()
    if how == "deleted":
        site.api.objects.remove(("secrets", NAMESPACE, name))
    else:
        found = site.api.objects.get("secrets", NAMESPACE, name)
        assert found is not None
        file = "a" if name == RECORDS else "tls.crt"
        data = {**found["data"], file: "AAAA"} if how == "damaged" else {"mine": "AAAA"}
        site.api.objects.handle("PUT", f"{SECRETS}/{name}", {}, {**found, "data": data})
    assert await drifted(certificates) == {KEY}
    assert await drifted(certificates) == set(), "told once, whether or not somebody reconciles"
    await certificates.keep(ready())
    now = {each: site.secret(each) for each in site.names()}
    assert {each: {**now[each], **files} for each, files in before.items()} == now, "and nobody gets another CA"
    settled = site.api.objects.revision
    assert await drifted(certificates) == set()
    site.later()
    await certificates.keep(ready())
    assert site.api.objects.revision == settled


@pytest.mark.parametrize("entry", [None, "AAAA"])
async def test_record_that_somebody_damages_is_noticed_also_when_another_cluster_has_read_it_since(
    site: Site, entry: str | None
) -> None:
    path = f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/coordinatorclusters"
    for name in ("a", "b"):
        site.api.objects.handle("POST", path, {}, {"metadata": {"name": name}})
    certificates = site.operator()
    other = replace(cluster(), metadata=replace(cluster().metadata, name="b"))
    for each in (cluster(), other):
        await certificates.keep(each)
    assert await drifted(certificates) == set(), "the second one has written what the first one had found in order"
    before = site.secret(RECORDS)
    found = site.api.objects.get("secrets", NAMESPACE, RECORDS)
    assert found is not None
    data = {name: each for name, each in found["data"].items() if name != "a"} | ({"a": entry} if entry else {})
    site.api.objects.handle("PUT", RECORD, {}, {**found, "data": data})
    site.later()
    await certificates.keep(other)
    assert await drifted(certificates) == {KEY}
    await certificates.keep(cluster())
    assert site.secret(RECORDS) == before
    assert await drifted(certificates) == set()


async def test_secret_that_cannot_be_made_again_is_told_and_tried_again_until_it_is_there(site: Site) -> None:
    certificates = site.operator()
    await certificates.keep(ready())
    site.api.objects.remove(("secrets", NAMESPACE, "a-pod-tls"))
    site.api.refused = "a-pod-tls"
    for _ in range(2):
        assert await drifted(certificates) == {KEY}
        await certificates.keep(ready())
        assert "403 forbidden" in certificates.trouble(KEY)
    site.api.refused = ""
    assert await drifted(certificates) == {KEY}
    await certificates.keep(ready())
    assert certificates.trouble(KEY) == ""
    assert "a-pod-tls" in site.names()


async def test_secrets_of_a_cluster_that_is_gone_and_those_of_a_person_are_not_looked_at(site: Site) -> None:
    certificates = site.operator()
    await certificates.keep(cluster())
    site.api.objects.remove(("secrets", NAMESPACE, "a-pod-tls"))
    site.api.refused = "a-pod-tls"  # a look would say so
    assert await drifted(certificates, gone=True) == set()
    site.later()
    await certificates.keep(asking(pod_secret="mine", operator_secret="theirs"))
    assert await drifted(certificates) == set()


async def test_what_another_operator_has_written_is_taken_over(site: Site) -> None:
    first, second = site.operator(), site.operator()
    await first.keep(cluster())
    await second.keep(asking(ca_round=1))
    assert await drifted(first) == {KEY}
    revision = site.api.objects.revision
    await first.keep(asking(ca_round=1))
    assert site.api.objects.revision == revision
    assert await drifted(first) == set()


async def test_operator_that_starts_writes_nothing_where_all_is_as_it_was(site: Site) -> None:
    await site.operator().keep(cluster())
    revision, second = site.api.objects.revision, site.operator()
    for _ in range(2):
        await second.keep(cluster())
        site.later()
        assert await drifted(second) == set()
    assert second.trouble(KEY) == ""
    assert site.api.objects.revision == revision


async def test_operator_that_starts_makes_a_secret_that_was_deleted_while_none_ran(site: Site) -> None:
    await site.operator().keep(ready())
    site.api.objects.remove(("secrets", NAMESPACE, "a-pod-tls"))
    await site.operator().keep(ready())
    assert "a-pod-tls" in site.names()


async def test_operator_that_died_before_the_secrets_were_made_is_followed_by_one_that_makes_them(site: Site) -> None:
    site.api.refused = "-reader-tls"
    await site.operator().keep(ready())
    assert site.names() == ["a-pod-tls", RECORDS]
    site.api.refused = ""
    await site.operator().keep(ready())
    assert site.names() == ["a-pod-tls", "a-reader-tls", RECORDS]


async def test_cluster_of_the_same_name_that_is_made_again_gets_its_own_secrets(site: Site) -> None:
    await site.operator().keep(ready())
    for name in ("a-pod-tls", "a-reader-tls"):  # they go with the cluster, and the record stays
        site.api.objects.remove(("secrets", NAMESPACE, name))
    again = ready()
    await site.operator().keep(replace(again, metadata=replace(again.metadata, uid="u-2")))
    assert site.names() == ["a-pod-tls", "a-reader-tls", RECORDS]


async def test_records_of_clusters_that_are_gone_are_dropped_when_a_new_one_comes(site: Site) -> None:
    path = f"/apis/muster.dev/v1alpha1/namespaces/{NAMESPACE}/coordinatorclusters"
    site.api.objects.handle("POST", path, {}, {"metadata": {"name": "a"}})
    certificates = site.operator()
    for name in ("a", "gone", "new"):
        named = replace(cluster(), metadata=replace(cluster().metadata, name=name))
        await certificates.keep(named)
    assert set(site.secret(RECORDS)) == {"a", "new"}


async def test_secrets_of_a_person_are_used_and_none_is_made(site: Site, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ns/a")
    files = authority.write("mine", operator("ns/a"))
    data = {file: (tmp_path / "mine" / file).read_bytes() for file in ("tls.crt", "tls.key", "ca.crt")}
    declared = asking(pod_secret="pods", operator_secret="mine")
    certificates = site.operator()
    await certificates.keep(declared)
    assert "mine" in certificates.trouble(KEY), "it is not there yet"
    encoded = {file: base64.b64encode(each).decode() for file, each in data.items()}
    body = {"metadata": {"name": "mine"}, "data": encoded}
    site.api.objects.handle("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", {}, body)
    site.later()
    await certificates.keep(declared)
    assert certificates.trouble(KEY) == ""
    assert certificates.end(KEY) == expiry(files.certificate.read_bytes()).timestamp()
    assert site.names() == ["mine"]
    workload = KubeWorkload(site.api.as_client(), "muster:1", certificates=certificates)
    await workload.ensure_pods(declared)
    made = site.api.objects.get("statefulsets", NAMESPACE, "a")
    assert made is not None
    (volume,) = made["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"]["secretName"] == "pods"


# -- pods -------------------------------------------------------------------------------------------------------------


def template(site: Site) -> Json:
    found = site.api.objects.get("statefulsets", NAMESPACE, "a")
    assert found is not None
    spec: Json = found["spec"]["template"]["spec"]
    return spec


async def test_pods_that_run_plain_stay_so_until_there_are_none(site: Site) -> None:
    """A plain pod and one with certificates do not hear each other: replaced one by one, they would lose majorities."""
    await KubeWorkload(site.api.as_client(), "muster:1").ensure_pods(cluster())
    workload = KubeWorkload(site.api.as_client(), "muster:1", certificates=site.operator())
    await workload.ensure_pods(cluster())
    assert not is_secured(template(site))
    await workload.ensure_pods(cluster(image="muster:2"))
    assert template(site)["containers"][0]["image"] == "muster:2"
    assert not is_secured(template(site))
    declared = cluster(image="muster:2")
    await workload.ensure_pods(replace(declared, spec=replace(declared.spec, pods=0)))
    await workload.ensure_pods(cluster(image="muster:2", pods=3))
    assert is_secured(template(site))
    await workload.ensure_pods(cluster(image="muster:3", pods=3))
    assert is_secured(template(site)), "and stay so"


async def test_an_operator_that_starts_calls_pods_with_certificates_at_once_and_never_plainly(site: Site) -> None:
    first = KubeWorkload(site.api.as_client(), "muster:1", certificates=site.operator())
    await first.ensure_pods(cluster())
    raw = pod("a-0", podIP="10.0.0.1")
    raw["spec"] = template(site)
    site.api.refused = RECORDS
    broken = KubeWorkload(site.api.as_client(), "muster:1", certificates=site.operator())
    broken.deliver_pod("ADDED", raw)
    (info,) = await broken.pods(KEY)
    assert (info.api_address, info.tls) == ("", None)
    site.api.refused = ""
    second = KubeWorkload(site.api.as_client(), "muster:1", certificates=site.operator())
    second.deliver_pod("ADDED", raw)
    (info,) = await second.pods(KEY)
    assert info.api_address == "10.0.0.1:9640"
    assert info.tls is not None
