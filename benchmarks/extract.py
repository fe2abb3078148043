"""One million SpendLogs rows out of a real PostgreSQL: this extractor against the best public readers.

    python benchmarks/extract.py                # the other readers go into an environment of their own
    python benchmarks/extract.py --python OTHER/bin/python --rows 200000

A table as LiteLLM 1.108 creates it is filled with rows of a fortnight: metadata of 1.5 to 3 kB as the proxy
writes it, most of it never read, our object in nine rows of ten, retries, failures, response-cache hits and
callers without the plugin. Then each reader brings the same columns, in the same order (start time, request
id), into Parquet files with zstd, one for each date: this project's extractor and, in processes of their own,
ConnectorX, ADBC, psycopg with COPY and Arrow, and DuckDB's postgres extension.

All of them send the same SELECT, which lets the server take the JSON apart, and has the one trick that
matters to the server (a row's metadata is unpacked once); it came with this project, so the others are faster
here than with a SELECT that a reader of a manual would write. What the others are spared: they read in one
statement instead of pages with a watermark, keep identities as they are, leave usage as JSON text and our
object unlooked at, check no value, and replace no row that was read before. A reader that cannot be had is
left out and named. The database is warm for all of them; the least of several runs counts.

The last line is one JSON object: seconds by reader, and the target (ours ≤ 1.1 × the fastest other). Exit 1
when it is missed, or when rows differ.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from pipeline.settings import Settings

TARGET: Final = 1.1
#: Reader -> packages that it needs.
PACKAGES: Final = {
    "connectorx": ("connectorx", "pyarrow"),
    "adbc": ("adbc-driver-postgresql", "adbc-driver-manager", "pyarrow"),
    "psycopg": ("psycopg[binary]", "pyarrow"),
    "duckdb": ("duckdb",),
}
_TABLE: Final = """
CREATE TABLE "LiteLLM_SpendLogs" (
  request_id text NOT NULL PRIMARY KEY, call_type text NOT NULL, api_key text NOT NULL DEFAULT '',
  spend double precision NOT NULL DEFAULT 0, total_tokens integer NOT NULL DEFAULT 0,
  prompt_tokens integer NOT NULL DEFAULT 0, completion_tokens integer NOT NULL DEFAULT 0,
  "startTime" timestamp(3) NOT NULL, "endTime" timestamp(3) NOT NULL, request_duration_ms integer,
  "completionStartTime" timestamp(3), model text NOT NULL DEFAULT '', model_id text DEFAULT '',
  model_group text DEFAULT '', custom_llm_provider text DEFAULT '', api_base text DEFAULT '',
  "user" text DEFAULT '', metadata jsonb DEFAULT '{}', cache_hit text DEFAULT '', cache_key text DEFAULT '',
  request_tags jsonb DEFAULT '[]', team_id text, organization_id text, end_user text,
  requester_ip_address text, messages jsonb DEFAULT '{}', response jsonb DEFAULT '{}', session_id text,
  status text, mcp_namespaced_tool_name text, agent_id text, proxy_server_request jsonb DEFAULT '{}',
  litellm_call_id text, billing_agent_id text)
"""
#: One row's metadata, as the proxy writes it: what it tells of key, model, cost and usage, and our object.
_METADATA: Final = """
jsonb_build_object(
  'batch_models', NULL, 'usage_object', jsonb_build_object(
    'prompt_tokens', 1000 + n % 90000, 'completion_tokens', 50 + n % 700, 'total_tokens', 1050 + n % 90700,
    'prompt_tokens_details', jsonb_build_object('cached_tokens', (1000 + n % 90000) * (n % 10) / 11,
    'audio_tokens', 0),
    'completion_tokens_details', jsonb_build_object('reasoning_tokens', n % 50)),
  'user_api_key', md5((n % 200)::text), 'user_api_key_alias', 'team-key-' || n % 200,
  'user_api_key_team_id', 'team-' || n % 20, 'user_api_key_team_alias', 'The team number ' || n % 20,
  'user_api_key_org_id', NULL, 'user_api_key_user_id', 'user-' || n % 1500, 'requester_ip_address',
  '10.0.0.1',
  'applied_guardrails', '[]'::jsonb, 'mcp_tool_call_metadata', NULL, 'vector_store_request_metadata', NULL,
  'guardrail_information', NULL, 'additional_usage_values', jsonb_build_object(
    'cache_read_input_tokens', (1000 + n % 90000) * (n % 10) / 11, 'cache_creation_input_tokens', 0),
  'model_map_information', jsonb_build_object('model_map_key', 'coder-large', 'model_map_value',
  jsonb_build_object(
    'key', 'coder-large', 'max_tokens', 8192, 'max_input_tokens', 262144, 'input_cost_per_token', 0.000001,
    'output_cost_per_token', 0.000004, 'cache_read_input_token_cost', 0.0000001, 'litellm_provider',
    'hosted_vllm',
    'mode', 'chat', 'supports_vision', false, 'supports_function_calling', true, 'supports_reasoning', true,
    'supported_openai_params',
    '["tools","tool_choice","temperature","top_p","stream","stop","seed"]'::jsonb)),
  'cost_breakdown', jsonb_build_object('input_cost', 0.001, 'output_cost', 0.002, 'total_cost', 0.003),
  'litellm_overhead_time_ms', 4.2, 'attempted_retries', n % 50 / 49, 'max_retries', 2, 'status',
  CASE WHEN n % 100 = 7 THEN 'failure' ELSE 'success' END, 'error_information',
  CASE WHEN n % 100 = 7 THEN jsonb_build_object('error_class', 'Timeout', 'error_code', '408',
    'llm_provider', 'hosted_vllm', 'traceback', repeat('File "/app/litellm/router.py", line 1 in call ',
    20)) END,
  'spend_logs_metadata', CASE WHEN n % 10 < 9 THEN jsonb_build_object('agentwatt', jsonb_build_object(
    'schema', 1, 'event_id', '0198c0de-0000-7000-8000-' || lpad(to_hex(n), 12, '0'), 'outcome', 'success',
    'started_us', 1772409600000000 + n * 1200000::bigint, 'session_key', md5('s' || n / 40), 'session_id',
    md5('i' || n / 40), 'session_source', 'x-claude-code-session-id', 'session_evidence', 'E1',
    'agent_id', 'main',
    'agent_kind', 'main', 'turn_id', md5('t' || n / 8), 'turn_index', n / 8 % 5 + 1, 'call_index',
    n % 8 + 1,
    'turn_evidence', 'E3', 'initiator', CASE WHEN n % 8 = 0 THEN 'user' ELSE 'agent' END, 'client',
    'claude-code',
    'client_version', '2.1.283', 'user_hash', md5('u' || n % 1500), 'user_source', 'end_user', 'route',
    'chat',
    'cached_tokens', (1000 + n % 90000) * (n % 10) / 11, 'usage_source', 'provider', 'prompt_bytes',
    4000 + n % 360000, 'shared_bytes', (4000 + n % 360000) * 9 / 10, 'break_reason', 'none', 'idle_ms',
    1234.5,
    'system_digest', left(md5('y' || n % 9), 16), 'tools_digest', left(md5('z' || n % 9), 16),
    'tool_count', 24,
    'tools_bytes', 48211, 'state', 'ok', 'queue_ms', 1.25, 'pre_call_ms', 2.5, 'ttft_ms', 812.25,
    'duration_ms', 4012.5, 'count_ms', 11.5, 'count_calls', 1, 'attempts', 1))
    ELSE '{"note": "from the caller"}'::jsonb END)
"""
_FILL: Final = f"""
INSERT INTO "LiteLLM_SpendLogs" (request_id, call_type, api_key, spend, total_tokens, prompt_tokens,
  completion_tokens, "startTime", "endTime", "completionStartTime", model, model_id, model_group,
  custom_llm_provider, api_base, "user", metadata, cache_hit, team_id, end_user, session_id, status,
  messages, response,
  litellm_call_id)
SELECT 'chatcmpl-' || md5(n::text), 'acompletion', md5('k' || n % 200), n % 1000 / 1e5, 1050 + n % 90700,
  1000 + n % 90000, 50 + n % 700, timestamp '2026-03-02' + n * interval '1.2 seconds',
  timestamp '2026-03-02' + n * interval '1.2 seconds' + interval '4.0125 seconds',
  timestamp '2026-03-02' + n * interval '1.2 seconds' + interval '0.812 seconds', 'hosted_vllm/coder-large',
  md5('d' || n % 4), 'coder-large', 'hosted_vllm', 'http://engine:8000/v1', 'user-' || n % 1500,
  {_METADATA},
  CASE WHEN n % 500 = 3 THEN 'True' ELSE 'False' END, 'team-' || n % 20, 'person-' || n % 1500,
  md5('i' || n / 40),
  CASE WHEN n % 100 = 7 THEN 'failure' ELSE 'success' END, '{{}}', '{{}}', md5('c' || n)
FROM generate_series($first, $last) AS n
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One reader's result."""

    reader: str
    seconds: float
    rows: int
    bytes: int
    peak_mb: float


def settings_for(url: str, lake: Path) -> Settings:
    """Return settings that read the database at *url* into *lake*."""
    from pydantic import SecretStr

    from pipeline.settings import DatabaseSettings, Settings

    return Settings(
        lake=lake,
        hash_secret=SecretStr("a secret of the benchmark"),
        database=DatabaseSettings(url=SecretStr(url)),
    )


def statement(url: str) -> str:
    """Return the SELECT of the extractor without its pages: the server takes the JSON apart for everybody."""
    from pipeline.extract.database import connection
    from pipeline.extract.spend_logs import discover

    async def look() -> str:
        settings = settings_for(url, Path("unused"))
        async with connection(settings) as database:
            query = await discover(database, settings)
            return f'{query.rows} ORDER BY t."startTime", t.request_id'

    return asyncio.run(look())


# -- the other readers; each runs in a process of its own


def _by_date(batches: Iterable[Any], out: Path) -> int:
    """Write Arrow batches, which come in their order, to one file for each date; return how many rows."""
    import pyarrow.compute
    import pyarrow.parquet

    rows = 0
    writers: dict[Any, Any] = {}
    for batch in batches:
        first = 0
        for part in batch["start_time"].cast("date32").value_counts().to_pylist():
            day, count = part["values"], part["counts"]
            if day not in writers:
                folder = out / f"date={day}"
                folder.mkdir(parents=True)
                writers[day] = pyarrow.parquet.ParquetWriter(
                    folder / "rows.parquet", batch.schema, compression="zstd"
                )
            writers[day].write(batch.slice(first, count))
            first += count
        rows += first
    for writer in writers.values():
        writer.close()
    return rows


def _connectorx(url: str, query: str, out: Path) -> int:
    import connectorx

    parts = urlsplit(url)
    if socket := dict(parse_qsl(parts.query)).get("host"):  # it wants the folder of a socket as the host
        who = parts.netloc.rpartition("@")[0]
        url = urlunsplit(parts._replace(netloc=f"{who}@{quote(socket, safe='')}", query=""))
    return _by_date([connectorx.read_sql(url, query, return_type="arrow")], out)


def _adbc(url: str, query: str, out: Path) -> int:
    import adbc_driver_postgresql.dbapi
    import pyarrow

    with adbc_driver_postgresql.dbapi.connect(url) as con, con.cursor() as cursor:
        cursor.execute(query)
        return _by_date((pyarrow.table(batch) for batch in cursor.fetch_record_batch()), out)


def _psycopg(url: str, query: str, out: Path) -> int:
    import io

    import psycopg
    import pyarrow.csv

    buffer = io.BytesIO()
    with (
        psycopg.connect(url) as con,
        con.cursor() as cursor,
        cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER)") as copy,
    ):  # type: ignore[arg-type]
        for block in copy:
            buffer.write(block)
    buffer.seek(0)
    table = pyarrow.csv.read_csv(buffer, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True))
    return _by_date([table], out)


def _duckdb(url: str, query: str, out: Path) -> int:
    import duckdb

    con = duckdb.connect()
    con.execute("INSTALL postgres")
    con.execute("LOAD postgres")
    con.execute(f"ATTACH '{url}' AS pg (TYPE postgres, READ_ONLY)")
    quoted = query.replace("'", "''")
    con.execute(
        f"COPY (SELECT *, start_time::DATE AS date FROM postgres_query('pg', '{quoted}')) TO '{out}' "
        "(FORMAT parquet, COMPRESSION zstd, PARTITION_BY (date))"
    )
    found = con.execute(f"SELECT COUNT(*) FROM '{out}/*/*.parquet'").fetchone()
    return int(found[0]) if found else 0


READERS: Final[dict[str, Callable[[str, str, Path], int]]] = {
    "connectorx": _connectorx,
    "adbc": _adbc,
    "psycopg": _psycopg,
    "duckdb": _duckdb,
}


def _ours(url: str, out: Path) -> int:
    from pipeline.extract.spend_logs import extract
    from pipeline.lake import Lake

    lake = Lake(out)
    lake.prepare()
    report = asyncio.run(extract(lake, settings_for(url, out)))
    if report.rejected or report.repaired:
        raise SystemExit(f"rows were set aside or repaired: {report.rejected} {report.repaired}")
    return report.rows_written


def work(reader: str, url: str, query: str, out: Path) -> None:
    """Run one reader in this process and print its result as JSON."""
    began = time.perf_counter()
    rows = _ours(url, out) if reader == "agentwatt" else READERS[reader](url, query, out)
    seconds = time.perf_counter() - began
    files = list(out.rglob("*.parquet"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        orjson.dumps(asdict(Run(reader, seconds, rows, sum(p.stat().st_size for p in files), peak))).decode()
    )


def environment(folder: Path) -> str:
    """Make an environment with the other readers in *folder* if it is not there; return its interpreter."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        for packages in PACKAGES.values():
            subprocess.run(
                [python, "-m", "pip", "install", "--quiet", "orjson", *packages],
                check=False,
                capture_output=True,
            )
    return str(python)


def measure(reader: str, python: str, url: str, query: str, folder: Path) -> Run | str:
    """Run *reader* once in a process of its own; return its result, or why there is none."""
    out = folder / reader
    shutil.rmtree(out, ignore_errors=True)
    done = subprocess.run(
        [
            python,
            str(Path(__file__).resolve()),
            "--work",
            reader,
            "--url",
            url,
            "--query",
            query,
            "--out",
            str(out),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no message"])[-1][:200]
    return Run(**orjson.loads(done.stdout.strip().splitlines()[-1]))


def fill(url: str, rows: int) -> int:
    """Create the table with *rows* rows; return its size in bytes."""
    import asyncpg

    async def go() -> int:
        con = await asyncpg.connect(url)
        await con.execute("SET synchronous_commit = off")
        await con.execute(_TABLE)
        step = 50_000
        for first in range(0, rows, step):
            last = min(first + step, rows) - 1
            await con.execute(_FILL.replace("$first", str(first)).replace("$last", str(last)))
            print(f"{min(first + step, rows)} of {rows} rows written", file=sys.stderr)
        await con.execute('CREATE INDEX ON "LiteLLM_SpendLogs" ("startTime", request_id)')
        await con.execute('VACUUM ANALYZE "LiteLLM_SpendLogs"')
        size = await con.fetchval("SELECT pg_table_size('\"LiteLLM_SpendLogs\"')")
        await con.close()
        return int(size)

    return asyncio.run(go())


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description="SpendLogs rows into Parquet, against public readers.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=2, help="runs of each reader (the least is taken)")
    parser.add_argument("--python", help="interpreter that has the other readers; default: one is made")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--query", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.work, options.url, options.query, options.out)
        return 0
    if options.rows < 1 or options.repeat < 1:
        parser.error("--rows and --repeat must be at least 1")
    from deploy.local.services import PostgresService

    with tempfile.TemporaryDirectory(prefix="agentwatt-extract-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        others = options.python or environment(folder / "readers")
        with PostgresService(folder / "pg") as server:
            size = fill(server.url, options.rows)
            query = statement(server.url)
            found: dict[str, list[Run]] = {}
            absent: dict[str, str] = {}
            for _ in range(options.repeat):
                for reader in (*READERS, "agentwatt"):
                    if reader in absent:
                        continue
                    python = sys.executable if reader == "agentwatt" else others
                    result = measure(reader, python, server.url, query, folder)
                    if isinstance(result, str):
                        absent[reader] = result
                        print(f"{reader} did not run: {result}", file=sys.stderr)
                    else:
                        found.setdefault(reader, []).append(result)
                        print(f"{reader}: {result.seconds:.1f} s", file=sys.stderr)
    return _judge(options.rows, size, found, absent)


def _judge(rows: int, size: int, found: dict[str, list[Run]], absent: dict[str, str]) -> int:
    best = {reader: min(runs, key=lambda r: r.seconds) for reader, runs in found.items()}
    print(f"{rows} rows, {size / 1e9:.2f} GB in the table\n")
    print(f"{'reader':<12}{'seconds':>10}{'rows/s':>10}{'Parquet MB':>12}{'peak MB':>10}")
    for run in sorted(best.values(), key=lambda r: r.seconds):
        print(
            f"{run.reader:<12}{run.seconds:>10.2f}{run.rows / run.seconds:>10.0f}{run.bytes / 1e6:>12.1f}"
            f"{run.peak_mb:>10.0f}"
        )
    for reader, why in absent.items():
        print(f"{reader:<12}   left out: {why}")
    others = {reader: run for reader, run in best.items() if reader != "agentwatt"}
    ours = best.get("agentwatt")
    complete = all(run.rows == rows for run in best.values())
    result: dict[str, Any] = {
        "rows": rows,
        "table_bytes": size,
        "runs": [asdict(run) for run in best.values()],
        "left_out": absent,
        "complete": complete,
        "met": False,
    }
    if ours and others:
        fastest = min(others.values(), key=lambda r: r.seconds)
        value = ours.seconds / fastest.seconds
        result |= {
            "fastest_other": fastest.reader,
            "targets": [
                {"name": "ours ÷ fastest other", "value": value, "at_most": TARGET, "met": value <= TARGET}
            ],
            "met": complete and value <= TARGET,
        }
        print(
            f"{'met   ' if result['met'] else 'MISSED'} ours ÷ {fastest.reader} {value:.2f} "
            f"(target ≤ {TARGET:g})"
        )
    else:
        print("MISSED there is nothing to compare")
    print(orjson.dumps(result).decode())
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
