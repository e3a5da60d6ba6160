"""The HTTP side of the pages: addresses, who may see them, and what a browser may do with them. It only answers GET."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from importlib.resources import files
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Handler
from jinja2 import Environment, PackageLoader, StrictUndefined

from muster_cli.errors import CliError
from muster_cli.oncall.screen import short
from muster_cli.ui.login import Doorkeeper
from muster_cli.ui.views import NotThereError, Page, Views

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""The headers that let in nothing from other hosts, no script in a page, and no page of others around it."""
STATIC = {"ui.css": "text/css", "ui.js": "text/javascript"}
ASKED_MAX = 1024
"""Characters of what is asked for in an address."""


class Asked:
    """The address of a request, parsed."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    @property
    def cluster(self) -> tuple[str, str]:
        """Namespace and name."""
        return self._request.match_info["namespace"], self._request.match_info["name"]

    def text(self, name: str) -> str:
        return self._request.query.get(name, "")[:ASKED_MAX]

    def number(self, name: str) -> int:
        """1 unless there is one."""
        text = self.text(name)[:6]
        return int(text) if text.isascii() and text.isdigit() else 1


class Application:
    """The pages of one source. `doorkeeper`: None on loopback, where only requests to this machine are answered.
    `interval_s`: how often an open page asks whether something has changed.
    """

    def __init__(self, views: Views, doorkeeper: Doorkeeper | None, interval_s: float) -> None:
        self._views = views
        self._doorkeeper = doorkeeper
        self._interval_s = interval_s
        self._templates = Environment(
            loader=PackageLoader("muster_cli.ui", "pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals.update(short=short, version=version("muster"))

    def made(self) -> web.Application:
        """The application, for a runner."""
        app = web.Application(middlewares=[self._guard])
        at, views = "/cluster/{namespace}/{name}", self._views
        pages: tuple[tuple[str, Callable[[Asked], Awaitable[Page]]], ...] = (
            ("/", lambda _: views.clusters()),
            (at, lambda asked: views.overview(*asked.cluster)),
            (f"{at}/groups", lambda asked: views.groups(*asked.cluster, asked.text("q"), asked.number("page"))),
            (f"{at}/group", lambda asked: views.group(*asked.cluster, asked.text("id"))),
            (f"{at}/explain", lambda asked: views.explained(*asked.cluster, asked.text("of"), asked.text("kind"))),
            (f"{at}/transactions", lambda asked: views.transactions(*asked.cluster)),
            (f"{at}/kafka", lambda asked: views.kafka(*asked.cluster)),
            (f"{at}/doctor", lambda asked: views.doctor(*asked.cluster)),
        )
        for path, page in pages:
            app.router.add_get(path, self._page(page))
        app.router.add_get("/static/{file}", self._static)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        answer: web.StreamResponse
        if self._doorkeeper is None and not is_this_machine(request.host):
            answer = web.Response(status=403, text="without a login it answers to names of this machine only\n")
        elif self._doorkeeper and not await self._doorkeeper.admits(request.headers.get("Authorization", "")):
            answer = web.Response(status=401, text="log in\n", headers={"WWW-Authenticate": 'Basic realm="Muster"'})
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as error:
                answer = web.Response(status=error.status, text=f"{error.reason}\n")
        answer.headers.update(HEADERS)
        return answer

    def _page(self, make: Callable[[Asked], Awaitable[Page]]) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            try:
                page = await make(Asked(request))
            except NotThereError as error:
                page = Page("problem", "Not there", {"problem": str(error), "trouble": ""}, 404)
            except CliError as error:
                page = Page("problem", "Nothing is reached", {"problem": error.message, "trouble": ""}, 503)
            return self._rendered(request, page)

        return answer

    def _rendered(self, request: web.Request, page: Page) -> web.Response:
        text = self._templates.get_template(f"{page.template}.html.j2").render(
            page.values, page=page, interval_s=self._interval_s
        )
        body = text.encode("utf-8", "replace")
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if page.status == 200 and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(
            body=body, status=page.status, content_type="text/html", charset="utf-8", headers={"ETag": tag}
        )

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in STATIC:
            raise web.HTTPNotFound
        content = (files("muster_cli.ui") / "pages" / name).read_bytes()
        return web.Response(body=content, content_type=STATIC[name], charset="utf-8")


def is_this_machine(host: str) -> bool:
    """Tells whether the Host of a request names loopback. A page of another site, whose name somebody has made to mean
    this machine, does not get past it.
    """
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdigit() or (":" in name and not name.endswith("]")):
        name = host
    name = name.removeprefix("[").removesuffix("]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
