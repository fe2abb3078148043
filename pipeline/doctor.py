"""Checks of the surroundings: settings, lake, stream, database, clocks. Nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pipeline.errors import AgentwattError, ConfigError, ExitCode
from pipeline.lake import Lake
from pipeline.settings import Settings

#: Clocks that differ by more than this shift intervals between proxy, stream and lake.
_MAX_SKEW_S = 2.0


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome of one check: ok, warn (works, with a limit), fail, or skip (not configured)."""

    check: str
    state: Literal["ok", "warn", "fail", "skip"]
    detail: str
    next: str = ""
    code: ExitCode = ExitCode.OK

    def as_dict(self) -> dict[str, Any]:
        """Return the printed part."""
        row = asdict(self)
        del row["code"]
        return row


def examine(settings: Settings) -> list[Check]:
    """Run every check."""
    return [*_settings(settings), *_lake(settings), *_stream(settings), *_database(settings)]


def exit_code(checks: list[Check]) -> ExitCode:
    """Usage errors before unreachable services; warnings do not fail."""
    codes = {c.code for c in checks if c.state == "fail"}
    return next((c for c in (ExitCode.USAGE, ExitCode.UNREACHABLE) if c in codes), ExitCode.OK)


def _settings(settings: Settings) -> Iterator[Check]:
    if settings.hash_secret is None:
        yield Check(
            "hash secret",
            "warn",
            "not set: rows without an event get no user unless the plugin's secret is found in Redis",
            "Set AGENTWATT_HASH_SECRET to the plugin's secret.",
        )
    else:
        yield Check("hash secret", "ok", "set")
    power = settings.power
    if not power.sources:
        yield Check("power", "warn", "no source is declared: the usual GPU exporter's names are looked for")
    else:
        made_up = [s.name for s in power.sources if s.synthetic]
        detail = f"{len(power.sources)} sources" + (f", synthetic: {', '.join(made_up)}" if made_up else "")
        yield Check("power", "ok", detail)


def _lake(settings: Settings) -> Iterator[Check]:
    try:
        Lake(settings.lake).prepare()
    except AgentwattError as error:
        yield _failed("lake", error)
    else:
        yield Check("lake", "ok", f"{settings.lake} can be written")


def _stream(settings: Settings) -> Iterator[Check]:
    if settings.redis.url is None:
        yield Check("event stream", "skip", "no Redis URL: events are not collected", "Set REDIS_URL.")
        return
    from gateway_plugin.event import SECRET_KEY
    from pipeline.extract.redis_server import client, text

    key, group = settings.redis.stream_key, settings.redis.group
    try:
        with client(settings.redis) as connection:
            info: Any = connection.info()
            version = (
                f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}"
            )
            major = int(str(info["redis_version"]).split(".")[0])
            if major < 7:
                yield Check(
                    "event stream server", "warn", f"{version}: trimmed entries cannot be counted before 7"
                )
            else:
                yield Check("event stream server", "ok", version)
            if settings.hash_secret is None and connection.exists(SECRET_KEY):
                yield Check("hash secret in Redis", "ok", "the plugin's own secret is used for rows")
            seconds, micros = connection.time()
            yield _skew("event stream clock", seconds + micros / 1e6 - time.time())
            if not connection.exists(key):
                yield Check(
                    "event stream",
                    "warn",
                    f"no stream {key} yet",
                    "Send a call through the proxy with the plugin on.",
                )
                return
            stream: Any = connection.xinfo_stream(key)
            groups: Any = connection.xinfo_groups(key)
            lag = next((g.get("lag") for g in groups if text(g["name"]) == group), stream["length"])
            yield Check("event stream", "ok", f"{stream['length']} entries, {lag} not yet collected")
    except AgentwattError as error:
        yield _failed("event stream", error)


def _database(settings: Settings) -> Iterator[Check]:
    if settings.database.url is None:
        yield Check("database", "skip", "no database URL: SpendLogs is not extracted", "Set DATABASE_URL.")
        return
    import asyncio

    try:
        yield from asyncio.run(_examine_database(settings))
    except AgentwattError as error:
        yield _failed("database", error)


async def _examine_database(settings: Settings) -> list[Check]:
    from pipeline.extract.database import connection
    from pipeline.extract.spend_logs import discover

    checks = []
    async with connection(settings) as database:
        version, clock = await database.fetchrow(
            "SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8"
        )
        checks.append(Check("database server", "ok", f"PostgreSQL {version}"))
        checks.append(_skew("database clock", float(clock) - time.time()))
        query = await discover(database, settings)
        if query.missing:
            checks.append(
                Check("SpendLogs", "warn", f"no column {', '.join(query.missing)}: those values will be null")
            )
        else:
            checks.append(Check("SpendLogs", "ok", "all columns are there"))
        indexed = await database.fetchval(
            "SELECT count(*) FROM pg_indexes WHERE tablename = $1 AND indexdef LIKE '%(\"startTime\"%'",
            settings.database.table,
        )
        if not indexed:
            checks.append(
                Check(
                    "SpendLogs index", "warn", 'no index begins with "startTime": every page scans the table'
                )
            )
    return checks


def _skew(name: str, seconds: float) -> Check:
    detail = f"{seconds:+.2f} s against this machine"
    if abs(seconds) > _MAX_SKEW_S:
        return Check(name, "warn", detail, "Synchronise the clocks (NTP).")
    return Check(name, "ok", detail)


def _failed(name: str, error: AgentwattError) -> Check:
    code = ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.UNREACHABLE
    return Check(name, "fail", str(error), error.next_step, code)
