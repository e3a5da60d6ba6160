"""config/ui: `muster ui` as a Deployment asks for what exists, with the rights that its pages need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from tests.support.recorded_clusters import recorded
from tests.support.rights import granted
from tests.unit.cli.ui.site import site

from muster_cli.ui.command import ui
from muster_cli.ui.login import password_line

CONFIG = Path(__file__).parents[4] / "config"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((CONFIG / "ui" / "ui.yaml").read_text()))
PAGES = ("", "/groups", "/group?id=billing", "/explain?of=0", "/transactions", "/kafka", "/doctor")


def one(kind: str) -> dict[str, Any]:
    (found,) = (each for each in OBJECTS if each["kind"] == kind)
    return found


def test_deployment_calls_the_command_as_it_is_with_a_login_and_a_certificate(tmp_path: Path) -> None:
    pod = one("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (tmp_path / "logins").write_text(password_line("anna", "secret"))
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).touch()
    command, *arguments = (each.replace("/door", str(tmp_path)) for each in container["args"])
    asked = ui.make_context(command, arguments).params
    assert (command, asked["listen"], asked["port"]) == ("ui", "0.0.0.0", container["ports"][0]["containerPort"])
    assert [asked[name].name for name in ("login_file", "tls_cert", "tls_key")] == ["logins", "tls.crt", "tls.key"]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/door"]
    assert pod["volumes"][0]["secret"]["secretName"] == "muster-ui"
    assert (
        one("Service")["spec"]["selector"].items()
        <= one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    )


async def test_pages_read_what_the_service_account_may_and_do_without_metrics() -> None:
    roles = list(yaml.safe_load_all((CONFIG / "roles.yaml").read_text()))
    bound = {each["roleRef"]["name"] for each in OBJECTS if each["kind"].endswith("RoleBinding")}
    assert bound == {"muster-view", "muster-ui"}
    allowed = {
        (resource, verb)
        for _, resource, verb, _ in granted(each for each in (*roles, *OBJECTS) if each["metadata"]["name"] in bound)
    }
    objects = recorded("healthy")
    objects["coordinatorclusters"][0]["spec"] |= {"upstream": {"bootstrapServers": "kafka:9092"}, "gateway": {}}
    async with site(objects) as pages:
        for path in PAGES:
            await pages.text(f"/cluster/shop/orders{path}")
        assert ("nodes", "list") in pages.server.asked
        assert pages.server.asked - allowed == {("pods/proxy", "get")}
