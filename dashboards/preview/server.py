"""The server behind the page: dashboards, a Prometheus, and the SQL of the committed panels, nothing else."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aiohttp
import asyncpg
from aiohttp import web

from dashboards.preview.bundle import PAGE, Bundle
from dashboards.src import frame, queries

#: Endpoints of Prometheus that the page asks.
_ENDPOINTS: Final = r"{path:query|query_range|label/[A-Za-z_]+/values}"
_PAGE: Final = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>agentwatt</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css"></head>
<body style="margin: 0"><div id="root"></div>
<script>window.preview = %s;</script>
<script src="/page.js"></script></body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the panels' data comes from; either may be absent.

    ``scrape_interval_s`` is what ``$__rate_interval`` is four times of.
    """

    prometheus: str = ""
    postgres: str = ""
    scrape_interval_s: float = 15


class Server:
    """The application of one page."""

    def __init__(self, bundle: Bundle, sources: Sources) -> None:
        """Read the dashboards; nothing is opened yet."""
        self._bundle = bundle
        self._sources = sources
        self._boards = {board["uid"]: board for board in queries.dashboards().values()}
        found = (*queries.of_panels(), *queries.of_variables())
        self._sql = {query.text for query in found if query.kind == "sql"}

    def application(self) -> web.Application:
        """Return the routes."""
        app = web.Application()
        app.router.add_get("/", self._index)
        app.router.add_get("/d/{uid}", self._page)
        app.router.add_get("/page.js", _file(self._bundle.script))
        app.router.add_get("/page.css", _file(self._bundle.styles))
        app.router.add_get("/api/dashboards/{uid}", self._dashboard)
        app.router.add_route("*", f"/api/prometheus/{_ENDPOINTS}", self._prometheus)
        app.router.add_post("/api/sql", self._rows)
        for style, weight in (("Regular", 400), ("Medium", 500)):
            font = _file(self._bundle.fonts / f"inter-latin-{weight}-normal.woff2")
            app.router.add_get(f"/public/fonts/inter/Inter-{style}.woff2", font)
        app.router.add_get("/public/build/img/icons/{folder:[a-z]+}/{name:[a-z0-9-]+}.svg", self._icon)
        return app

    async def _index(self, _: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"/d/{frame.BOARDS['overview'][0]}")

    async def _page(self, _: web.Request) -> web.StreamResponse:
        boards = [{"uid": uid, "title": title.partition("/ ")[2]} for uid, title in frame.BOARDS.values()]
        preview = {"boards": boards, "scrapeIntervalS": self._sources.scrape_interval_s}
        return web.Response(text=_PAGE % json.dumps(preview), content_type="text/html")

    async def _dashboard(self, request: web.Request) -> web.StreamResponse:
        board = self._boards.get(request.match_info["uid"])
        if board is None:
            raise web.HTTPNotFound
        return web.json_response(board)

    async def _icon(self, request: web.Request) -> web.StreamResponse:
        """Answer with Grafana's icon, or with ours where its package lacks one that the library asks for."""
        folder, name = request.match_info["folder"], f"{request.match_info['name']}.svg"
        places = (self._bundle.images / "icons" / folder / name, PAGE / name, PAGE / "icon.svg")
        return web.FileResponse(next(place for place in places if place.is_file()))

    async def _prometheus(self, request: web.Request) -> web.StreamResponse:
        if not self._sources.prometheus:
            return _refused("no Prometheus: start with --prometheus URL")
        url = f"{self._sources.prometheus.rstrip('/')}/api/v1/{request.match_info['path']}"
        form = await request.post() if request.method == "POST" else None
        async with aiohttp.ClientSession() as client:
            data = {key: str(value) for key, value in form.items()} if form else None
            try:
                async with client.request(request.method, url, params=request.query, data=data) as answer:
                    body, status = await answer.read(), answer.status
            except aiohttp.ClientError as error:
                return _refused(f"{url}: {error}")
        return web.Response(body=body, status=status, content_type="application/json")

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        """Answer one of the committed queries; any other text is refused."""
        asked = await request.json()
        if asked["sql"] not in self._sql:
            return _refused("this is no query of a committed dashboard")
        if not self._sources.postgres:
            return _refused("no PostgreSQL: start with --postgres URL")
        start, end = (datetime.fromisoformat(asked[name]).isoformat() for name in ("from", "to"))
        groups = tuple(str(group).replace("'", "''") for group in asked["model_group"])
        sql = queries.filled_sql(asked["sql"], start, end, groups)
        try:
            connection = await asyncpg.connect(self._sources.postgres)
            try:
                async with connection.transaction(readonly=True):
                    statement = await connection.prepare(sql)
                    answer = table(statement.get_attributes(), await statement.fetch())
            finally:
                await connection.close()
        except (OSError, asyncpg.PostgresError) as error:
            return _refused(str(error))
        return web.json_response(answer)


def table(attributes: Sequence[Any], found: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return rows for the page: columns with a kind, instants in milliseconds of the epoch."""
    kinds = {"timestamp": "time", "timestamptz": "time", "date": "time", "bool": "boolean"}
    numbers = {"int2", "int4", "int8", "float4", "float8", "numeric"}
    columns = [
        {"name": a.name, "type": kinds.get(a.type.name, "number" if a.type.name in numbers else "string")}
        for a in attributes
    ]
    return {"columns": columns, "rows": [[_value(value) for value in row] for row in found]}


def _value(value: Any) -> Any:
    match value:
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000
        case Decimal():
            return float(value)
        case _:
            return value


def _file(path: Path) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.FileResponse(path)

    return answer


def _refused(reason: str) -> web.Response:
    return web.json_response({"error": reason}, status=502)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one."""
    return socket.create_server((host, port), family=socket.AF_INET)
