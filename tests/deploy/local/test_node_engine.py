"""The stand-in for Prisma's query engine, against a real PostgreSQL, through its HTTP interface.

Requests are written as Prisma's Python client writes them: GraphQL text in a JSON body.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import database, services
from deploy.local.prisma import ENGINE_COMMIT, PrismaToolchain, ProxyInstallation
from deploy.local.process import ManagedProcess, StackError
from deploy.local.services import PostgresService, free_port

SCHEMA = """
datasource client {
  provider = "postgresql"
  url      = env("DATABASE_URL")
}

generator client {
  provider = "prisma-client-py"
}

// A comment, as LiteLLM's schema has them
model Note {
  id       String   @id @default(uuid())
  title    String   @unique
  body     Json?
  tags     Json     @default("[]") // a list
  labels   String[]
  count    Int      @default(0)
  big      BigInt?
  amount   Decimal?
  blob     Bytes?
  made     DateTime @default(now())
  parts    Part[]
}

model Part {
  id     Int    @id @default(autoincrement())
  noteId String @map("note_id")
  meta   Json?
  note   Note   @relation(fields: [noteId], references: [id])
}
"""

TABLES = (
    'DROP TABLE IF EXISTS "Part", "Note"',
    """CREATE TABLE "Note" (
        id text PRIMARY KEY, title text UNIQUE NOT NULL, body jsonb, tags jsonb NOT NULL DEFAULT '[]',
        labels text[], count int NOT NULL DEFAULT 0, big bigint, amount numeric, blob bytea,
        made timestamp(3) NOT NULL DEFAULT now())""",
    """CREATE TABLE "Part" (
        id serial PRIMARY KEY, note_id text NOT NULL REFERENCES "Note" (id), meta jsonb)""",
)


class EngineClient:
    """What the Python client does over HTTP."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(self, method: str, path: str, body: object = None, *, transaction: str | None = None) -> Any:
        connection = http.client.HTTPConnection("localhost", self.port, timeout=20)
        headers = {"X-transaction-id": transaction} if transaction else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            assert response.status == 200
            return json.loads(response.read())
        finally:
            connection.close()

    def answer(self, text: str, *, transaction: str | None = None) -> Any:
        return self.send("POST", "/", {"query": text, "variables": {}}, transaction=transaction)

    def result(self, text: str, *, transaction: str | None = None) -> Any:
        answer = self.answer(text, transaction=transaction)
        assert "errors" not in answer, answer
        return answer["data"]["result"]

    def error_code(self, text: str) -> str | None:
        code = self.answer(text)["errors"][0]["user_facing_error"].get("error_code")
        return None if code is None else str(code)

    def raw(self, sql: str, *parameters: object) -> Any:
        arguments = f"query: {json.dumps(sql)}, parameters: {json.dumps(json.dumps(parameters))}"
        return self.result(f"mutation {{ result: queryRaw({arguments}) }}")

    def create(self, title: str, fields: str = "") -> Any:
        return self.result(
            f"mutation {{ result: createOneNote(data: {{ title: {json.dumps(title)} {fields} }}) "
            "{ id title body tags labels count big amount blob made } }"
        )


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresService]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DATABASE_URL", raising=False)
        with PostgresService(tmp_path_factory.mktemp("postgres")) as service:
            yield service


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toolchain = PrismaToolchain(ProxyInstallation.of()).prepare_engine()
    return toolchain.scripts / "query-engine"


def start_engine(program: Path, schema: Path, url: str, log: Path) -> tuple[ManagedProcess, EngineClient]:
    client = EngineClient(free_port())
    process = ManagedProcess(
        "the query engine",
        [str(program), "-p", str(client.port), "--enable-metrics", "--enable-raw-queries"],
        log=log,
        env={"PATH": os.environ["PATH"], "PRISMA_DML_PATH": str(schema), "DATABASE_URL": url},
    )

    def answers() -> bool:
        try:
            return bool(client.send("GET", "/status") == {"status": "ok"})
        except OSError:
            return False

    process.start()
    try:
        process.wait_until(answers, timeout_s=60, advice="")
    except BaseException:
        process.stop()
        raise
    return process, client


@pytest.fixture(scope="module")
def running(
    program: Path, postgres: PostgresService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineClient]:
    folder = tmp_path_factory.mktemp("engine")
    (folder / "schema.prisma").write_text(SCHEMA)
    # The engine looks into this module of the client to learn in which form it reads raw rows.
    (folder / "_raw_query.py").write_text(
        "value = raw_value['prisma__value']; kind = raw_value['prisma__type']"
    )
    process, client = start_engine(program, folder / "schema.prisma", postgres.url, folder / "engine.log")
    try:
        yield client
    finally:
        process.stop()


@pytest.fixture
def engine(running: EngineClient, postgres: PostgresService) -> EngineClient:
    database.execute(postgres.url, *TABLES)
    return running


def note_count(postgres: PostgresService) -> int:
    return int(database.fetch_value(postgres.url, 'SELECT count(*) FROM "Note"'))


def test_the_version_is_that_of_the_wasm_build(program: Path) -> None:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout == f"query-engine {ENGINE_COMMIT}\n"


def test_json_text_is_stored_as_json_and_not_as_a_string(
    engine: EngineClient, postgres: PostgresService
) -> None:
    created = engine.create("a", r'body: "{\"k\": [1, \"x\"]}" tags: "[\"t\"]"')
    assert json.loads(created["body"]) == {"k": [1, "x"]}
    row = "SELECT jsonb_typeof(body) || jsonb_typeof(tags) || (body->'k'->>1) FROM \"Note\""
    assert database.fetch_value(postgres.url, row) == "objectarrayx"


def test_json_that_is_a_string_stays_a_string(engine: EngineClient, postgres: PostgresService) -> None:
    engine.create("a", r'body: "\"text\""')
    assert database.fetch_value(postgres.url, "SELECT body #>> '{}' FROM \"Note\"") == "text"


def test_json_of_nested_creations_and_updates_is_tagged_too(
    engine: EngineClient, postgres: PostgresService
) -> None:
    engine.create("a", r'parts: { create: [{ meta: "{\"n\": 1}" }] }')
    engine.result(
        r"""mutation { result: updateOneNote(where: { title: "a" } data: { body: "{\"u\": 2}"
        parts: { updateMany: { where: { id: { gt: 0 } } data: { meta: "{\"n\": 3}" } } } }) { id } }"""
    )
    assert database.fetch_value(postgres.url, "SELECT meta->>'n' FROM \"Part\"") == "3"
    assert database.fetch_value(postgres.url, "SELECT body->>'u' FROM \"Note\"") == "2"


def test_a_json_column_can_be_set_back_to_null(engine: EngineClient, postgres: PostgresService) -> None:
    engine.create("a", r'body: "{}"')
    engine.result('mutation { result: updateOneNote(where: { title: "a" } data: { body: DbNull }) { id } }')
    assert database.fetch_value(postgres.url, 'SELECT body IS NULL FROM "Note"') is True


def test_json_columns_can_be_filtered_by_value_and_by_path(engine: EngineClient) -> None:
    engine.create("a", r'body: "{\"k\": \"x\"}"')
    engine.create("b", r'body: "{\"k\": \"y\"}"')
    by_value = r'query { result: findManyNote(where: { body: { equals: "{\"k\": \"x\"}" } }) { title } }'
    assert engine.result(by_value) == [{"title": "a"}]
    by_path = r'query { result: findManyNote(where: { body: { path: ["k"] equals: "\"y\"" } }) { title } }'
    assert engine.result(by_path) == [{"title": "b"}]
    part = r'query { result: findManyNote(where: { body: { path: ["k"] string_contains: "y" } }) { title } }'
    assert engine.result(part) == [{"title": "b"}]


def test_every_scalar_type_comes_back_as_the_client_reads_it(engine: EngineClient) -> None:
    created = engine.create(
        "a",
        'labels: ["x", "y"] big: 9007199254740993 amount: "12.340000000000000001" '
        'blob: "aGVsbG8=" made: "2026-03-04T05:06:07.008Z" count: 7',
    )
    assert created["labels"] == ["x", "y"]
    assert int(created["big"]) == 9007199254740993
    assert created["amount"] == "12.340000000000000001"
    assert created["blob"] == "aGVsbG8="
    assert created["made"].startswith("2026-03-04T05:06:07.008")
    assert created["count"] == 7
    assert created["body"] is None


def test_a_missing_row_is_null_and_no_error(engine: EngineClient) -> None:
    assert engine.result('query { result: findUniqueNote(where: { title: "absent" }) { id } }') is None


def test_relations_are_loaded_with_their_own_arguments(engine: EngineClient) -> None:
    engine.create("a", r'parts: { create: [{ meta: "1" }, { meta: "2" }, { meta: "3" }] }')
    loaded = engine.result(
        'query { result: findFirstNote(where: { parts: { some: { meta: { equals: "2" } } } }) '
        "{ title parts(take: 2 orderBy: { id: desc }) { meta } } }"
    )
    assert loaded == {"title": "a", "parts": [{"meta": "3"}, {"meta": "2"}]}


def test_duplicates_can_be_skipped_in_bulk(engine: EngineClient, postgres: PostgresService) -> None:
    engine.create("a")
    rows = " ".join(f'{{ title: "{title}" body: "{{}}" }}' for title in "abc")
    created = engine.result(
        f"mutation {{ result: createManyNote(data: [{rows}] skipDuplicates: true) {{ count }} }}"
    )
    assert created == {"count": 2}
    assert database.fetch_value(postgres.url, "SELECT count(*) FROM \"Note\" WHERE body = '{}'::jsonb") == 2


def test_upsert_creates_first_and_increments_then(engine: EngineClient) -> None:
    upsert = (
        'mutation { result: upsertOneNote(where: { title: "a" } create: { title: "a" count: 1 } '
        "update: { count: { increment: 5 } }) { count } }"
    )
    assert engine.result(upsert) == {"count": 1}
    assert engine.result(upsert) == {"count": 6}


def test_rows_are_grouped_and_summed(engine: EngineClient) -> None:
    for title, count in (("a", 1), ("b", 2), ("c", 2)):
        engine.create(title, f"count: {count}")
    grouped = engine.result(
        "query { result: groupByNote(by: [count] orderBy: { count: asc }) "
        "{ count _count { _all } _sum { count } } }"
    )
    assert grouped == [
        {"count": 1, "_count": {"_all": 1}, "_sum": {"count": 1}},
        {"count": 2, "_count": {"_all": 2}, "_sum": {"count": 4}},
    ]
    assert engine.result("query { result: aggregateNote { _count { _all } } }") == {"_count": {"_all": 3}}


def test_a_violated_unique_constraint_has_prismas_error_code(engine: EngineClient) -> None:
    engine.create("a")
    assert engine.error_code('mutation { result: createOneNote(data: { title: "a" }) { id } }') == "P2002"


def test_an_unknown_field_has_prismas_error_code(engine: EngineClient) -> None:
    assert engine.error_code('query { result: findFirstNote(where: { nothing: "a" }) { id } }') == "P2009"


def test_an_unknown_model_and_broken_text_are_errors_and_not_crashes(engine: EngineClient) -> None:
    assert (
        "unknown operation" in engine.answer("query { result: findManyGhost { id } }")["errors"][0]["error"]
    )
    assert "Syntax Error" in engine.answer("query { result: ")["errors"][0]["error"]
    assert engine.send("GET", "/status") == {"status": "ok"}


def begin(engine: EngineClient) -> str:
    return str(engine.send("POST", "/transaction/start", {"max_wait": 2000, "timeout": 5000})["id"])


def test_a_transaction_is_invisible_until_it_is_committed(
    engine: EngineClient, postgres: PostgresService
) -> None:
    identity = begin(engine)
    engine.result('mutation { result: createOneNote(data: { title: "a" }) { id } }', transaction=identity)
    assert note_count(postgres) == 0
    engine.send("POST", f"/transaction/{identity}/commit")
    assert note_count(postgres) == 1


def test_a_transaction_that_is_rolled_back_leaves_nothing(
    engine: EngineClient, postgres: PostgresService
) -> None:
    identity = begin(engine)
    engine.result('mutation { result: createOneNote(data: { title: "a" }) { id } }', transaction=identity)
    engine.send("POST", f"/transaction/{identity}/rollback")
    assert note_count(postgres) == 0


def test_a_closed_transaction_is_reported_with_prismas_error_code(engine: EngineClient) -> None:
    identity = begin(engine)
    engine.send("POST", f"/transaction/{identity}/commit")
    answer = engine.send("POST", f"/transaction/{identity}/commit")
    assert answer["errors"][0]["user_facing_error"]["error_code"] == "P2028"


def batch(engine: EngineClient, titles: str) -> Any:
    queries = [f'mutation {{ result: createOneNote(data: {{ title: "{t}" }}) {{ title }} }}' for t in titles]
    body = {"batch": [{"query": query, "variables": {}} for query in queries], "transaction": True}
    return engine.send("POST", "/", body)


def test_a_batch_answers_each_of_its_queries(engine: EngineClient, postgres: PostgresService) -> None:
    assert batch(engine, "ab") == {
        "batchResult": [{"data": {"result": {"title": "a"}}}, {"data": {"result": {"title": "b"}}}]
    }
    assert note_count(postgres) == 2


def test_a_batch_that_fails_leaves_nothing(engine: EngineClient, postgres: PostgresService) -> None:
    assert batch(engine, "aba")["errors"][0]["user_facing_error"]["error_code"] == "P2002"
    assert note_count(postgres) == 0


def test_raw_rows_carry_their_types_for_the_client_release_that_expects_it(engine: EngineClient) -> None:
    engine.create("a", r'body: "{\"k\": 1}" labels: ["x"] big: 5')
    [row] = engine.raw('SELECT title, body, labels, big, blob, count FROM "Note" WHERE title = $1', "a")
    assert row["title"] == {"prisma__type": "string", "prisma__value": "a"}
    assert row["body"]["prisma__type"] == "json"
    assert row["labels"] == {
        "prisma__type": "array",
        "prisma__value": [{"prisma__type": "string", "prisma__value": "x"}],
    }
    assert row["big"] == {"prisma__type": "bigint", "prisma__value": "5"}
    assert row["blob"] == {"prisma__type": "null", "prisma__value": None}
    assert row["count"] == {"prisma__type": "int", "prisma__value": 0}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'n'::name", "n"),
        ("'c'::\"char\"", "c"),
        ("'pg_class'::regclass", "pg_class"),
        ("'int4'::regtype", "integer"),
        ("'now'::regproc", "now"),
    ],
)
def test_catalogue_types_are_read_as_text(engine: EngineClient, expression: str, expected: str) -> None:
    [row] = engine.raw(f"SELECT {expression} AS value")
    assert row["value"] == {"prisma__type": "string", "prisma__value": expected}


def test_a_list_of_names_is_read_as_a_list_of_text(engine: EngineClient) -> None:
    [row] = engine.raw(
        "SELECT array_agg(typname ORDER BY typname) AS value FROM pg_type WHERE oid IN (16, 25)"
    )
    assert [item["prisma__value"] for item in row["value"]["prisma__value"]] == ["bool", "text"]


def test_a_raw_statement_answers_the_number_of_rows(engine: EngineClient) -> None:
    engine.create("a")
    arguments = r'query: "UPDATE \"Note\" SET count = 9", parameters: "[]"'
    assert engine.result(f"mutation {{ result: executeRaw({arguments}) }}") == 1


def test_broken_sql_has_prismas_error_code(engine: EngineClient) -> None:
    arguments = 'query: "SELECT nonsense", parameters: "[]"'
    assert engine.error_code(f"mutation {{ result: queryRaw({arguments}) }}") == "P2010"


def test_raw_rows_keep_prismas_own_shape_for_newer_clients(
    program: Path, postgres: PostgresService, tmp_path: Path
) -> None:
    (tmp_path / "schema.prisma").write_text(SCHEMA)
    process, client = start_engine(program, tmp_path / "schema.prisma", postgres.url, tmp_path / "engine.log")
    try:
        assert client.raw("SELECT 1 AS n") == {"columns": ["n"], "types": ["int"], "rows": [[1]]}
    finally:
        process.stop()


def test_the_engine_ends_by_itself_on_the_signals_of_the_client(
    program: Path, postgres: PostgresService, tmp_path: Path
) -> None:
    (tmp_path / "schema.prisma").write_text(SCHEMA)
    for number in (signal.SIGINT, signal.SIGTERM):
        process, client = start_engine(
            program, tmp_path / "schema.prisma", postgres.url, tmp_path / f"{number}.log"
        )
        try:
            assert client.raw("SELECT 1 AS n")
            os.kill(process.pid, number)
            assert process.wait(timeout_s=10) == 0
        finally:
            process.stop()


def test_a_database_that_goes_away_has_prismas_error_code(program: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.prisma").write_text(SCHEMA)
    with PostgresService(tmp_path) as postgres:
        process, client = start_engine(
            program, tmp_path / "schema.prisma", postgres.url, tmp_path / "engine.log"
        )
        try:
            assert client.raw("SELECT 1 AS n")
            postgres.__exit__(None, None, None)
            codes = {client.error_code("query { result: findFirstNote { id } }") for _ in range(2)}
            assert codes <= {"P1001", "P1017"}
            assert client.send("GET", "/status") == {"status": "ok"}
        finally:
            process.stop()


def test_an_engine_that_does_not_reach_its_database_ends_with_the_reason(
    program: Path, tmp_path: Path
) -> None:
    (tmp_path / "schema.prisma").write_text(SCHEMA)
    result = subprocess.run(
        [program, "-p", "1"],
        env={
            "PATH": os.environ["PATH"],
            "PRISMA_DML_PATH": str(tmp_path / "schema.prisma"),
            "DATABASE_URL": f"postgresql://someone:secret@127.0.0.1:{free_port()}/nowhere",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "ECONNREFUSED" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize(
    ("parameters", "reached"), [("", True), ("?sslmode=prefer", True), ("?sslmode=require", False)]
)
def test_a_server_without_encryption_is_reached_unless_encryption_is_required(
    parameters: str, reached: bool, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schema.prisma").write_text(SCHEMA)
    port = free_port()
    monkeypatch.setitem(services.POSTGRES_SETTINGS, "listen_addresses", "127.0.0.1")
    monkeypatch.setitem(services.POSTGRES_SETTINGS, "port", str(port))
    monkeypatch.setattr(services.database, "create_database", lambda url, name: url)
    with PostgresService(tmp_path):
        url = f"postgresql://postgres:any@127.0.0.1:{port}/postgres{parameters}"
        if not reached:
            with pytest.raises(StackError, match="does not support SSL"):
                start_engine(program, tmp_path / "schema.prisma", url, tmp_path / "engine.log")
            return
        process, client = start_engine(program, tmp_path / "schema.prisma", url, tmp_path / "engine.log")
        try:
            assert client.raw("SELECT 1 AS n")
        finally:
            process.stop()


def test_an_engine_without_a_database_says_so(program: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.prisma").write_text(SCHEMA)
    result = subprocess.run(
        [program, "-p", "1"],
        env={"PATH": os.environ["PATH"], "PRISMA_DML_PATH": str(tmp_path / "schema.prisma")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "neither DATABASE_URL nor" in result.stderr
