"""The login of `muster ui`, and the names of the host that it answers to."""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.recorded_clusters import recorded
from tests.unit.cli.ui.site import site

from muster_cli.errors import CliError, CliUsageError
from muster_cli.main import cli
from muster_cli.ui.app import is_this_machine
from muster_cli.ui.login import Doorkeeper, parse_logins, password_line, token_line
from muster_cli.ui.serve import Door


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def login_file(directory: Path, *lines: str) -> Path:
    file = directory / "logins"
    file.write_text("\n".join(["# who is on call", "", *lines]))
    return file


async def test_only_the_right_password_or_token_is_let_in(tmp_path: Path) -> None:
    file = login_file(tmp_path, password_line("anna", "s3:cret"), token_line("probe", "t0ken"))
    keeper = Doorkeeper(file)
    for right in (basic("anna", "s3:cret"), basic("anna", "s3:cret"), "Bearer t0ken", "bearer t0ken"):
        assert await keeper.admits(right), right
    wrong = ("", "Basic", "Basic !", "Bearer", "Bearer x", "Digest t0ken", basic("anna", "s3"), basic("bob", "s3:cret"))
    for each in (*wrong, basic("probe", "t0ken"), basic("anna", "s" * 5000), basic("anna", "s3:cret")[:-4]):
        assert not await keeper.admits(each), each


async def test_name_that_is_taken_out_of_the_file_is_not_let_in_any_more(tmp_path: Path) -> None:
    keeper = Doorkeeper(login_file(tmp_path, password_line("anna", "secret")))
    assert await keeper.admits(basic("anna", "secret"))
    login_file(tmp_path, password_line("bob", "secret"))
    os.utime(tmp_path / "logins", ns=(1, 1))
    assert not await keeper.admits(basic("anna", "secret"))
    assert await keeper.admits(basic("bob", "secret"))
    (tmp_path / "logins").write_text("damaged\n")
    assert await keeper.admits(basic("bob", "secret")), "what was read before stays in force"


def test_file_that_cannot_be_taken_is_named_with_its_line_and_nothing_of_it(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="line 3") as told:
        Doorkeeper(login_file(tmp_path, "anna:plain:secret"))
    assert "secret" not in told.value.message
    for line in ("anna:scrypt:00:00", "anna:sha256:zz", ":sha256:" + "0" * 64, "anna:sha256:" + "x" * 64):
        with pytest.raises(ValueError, match="line 1: neither"):
            parse_logins(line.encode())
    with pytest.raises(ValueError, match="it names nobody"):
        parse_logins(b"# nobody\n")


async def test_without_a_login_pages_are_401_and_have_nothing_of_the_cluster(tmp_path: Path) -> None:
    file = login_file(tmp_path, password_line("anna", "secret"))
    async with site(recorded("healthy"), login_file=file) as pages:
        for path in ("/", "/cluster/shop/orders", "/static/ui.js", "/nothing"):
            answer = await pages.get(path)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="Muster"')
            assert "orders" not in await answer.text()
            assert (await pages.get(path, Authorization=basic("anna", "wrong"))).status == 401
        assert not pages.server.asked, "the API server is not asked for strangers"
        answer = await pages.get(
            "/cluster/shop/orders", Authorization=basic("anna", "secret"), Host="muster.example.com"
        )
        text = await answer.text()
        assert (answer.status, "secret" in text, "scrypt" in text) == (200, False, False)


async def test_without_a_login_it_answers_to_names_of_this_machine_only() -> None:
    async with site(recorded("healthy")) as pages:
        answer = await pages.get("/", Host="rebound.example.com:9650")
        assert (answer.status, "orders" in await answer.text()) == (403, False)
        assert (await pages.get("/", Host="127.0.0.1:9650")).status == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "a.localhost", "127.0.0.1", "127.8.8.8:80", "[::1]:9", "::1"]
)
def test_names_of_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize(
    "host", ["", ":80", "10.0.0.1", "0.0.0.0", "localhost.evil.com", "127.0.0.1.evil.com:1", "[::]:9"]
)
def test_names_of_others(host: str) -> None:
    assert not is_this_machine(host)


async def test_answers_forbid_what_a_page_does_not_need() -> None:
    async with site(recorded("healthy")) as pages:
        for path in ("/", "/nothing", "/static/ui.css"):
            headers = (await pages.get(path)).headers
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


def test_other_addresses_than_loopback_take_a_login_file(tmp_path: Path) -> None:
    with pytest.raises(CliUsageError, match=r"0\.0\.0\.0 is not loopback"):
        Door("0.0.0.0", 0, None, None, None).check()
    Door("0.0.0.0", 0, login_file(tmp_path), None, None).check()
    with pytest.raises(CliUsageError, match="both of"):
        Door("127.0.0.1", 0, None, tmp_path, None).check()
    with pytest.raises(CliError, match="cannot use"):
        Door("127.0.0.1", 0, None, tmp_path / "none", tmp_path / "none").tls()
    result = CliRunner().invoke(cli, ["ui", "--local", "--listen", "10.0.0.1"])
    assert (result.exit_code, "--login-file" in result.output) == (2, True)


def test_lines_of_a_login_file_are_made_by_the_command(tmp_path: Path) -> None:
    made = CliRunner().invoke(cli, ["ui", "--new-password", "anna"], input="secret\nsecret\n")
    assert (made.exit_code, "secret" in made.stdout) == (0, False)
    token = CliRunner().invoke(cli, ["ui", "--new-token", "probe"])
    shown = token.stderr.strip().rpartition(" ")[2]
    keeper = Doorkeeper(login_file(tmp_path, made.stdout, token.stdout))
    assert asyncio.run(keeper.admits(basic("anna", "secret")))
    assert asyncio.run(keeper.admits(f"Bearer {shown}"))
    assert shown not in token.stdout
    assert CliRunner().invoke(cli, ["ui", "--new-token", "a:b"]).exit_code == 2
