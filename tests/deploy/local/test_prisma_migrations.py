"""Migrations as plain SQL: in order, once, recorded together with what they did."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import database
from deploy.local.migrations import apply_migrations
from deploy.local.prisma import ProxyInstallation
from deploy.local.process import StackError
from deploy.local.services import PostgresService


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresService]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DATABASE_URL", raising=False)
        with PostgresService(tmp_path_factory.mktemp("postgres")) as service:
            yield service


@pytest.fixture
def url(postgres: PostgresService) -> Iterator[str]:
    yield postgres.create_database("migrated")
    postgres.drop_database("migrated")


def write(folder: Path, name: str, sql: str) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "migration.sql").write_text(sql)


def names(url: str) -> list[str]:
    query = 'SELECT array_agg(migration_name ORDER BY started_at, migration_name) FROM "_prisma_migrations"'
    return list(database.fetch_value(url, query) or [])


def test_litellms_own_migrations_give_its_spend_table_and_are_applied_once(url: str) -> None:
    installation = ProxyInstallation.of()
    available = len(list(installation.migrations.glob("*/migration.sql")))
    assert apply_migrations(url, installation.migrations) == available
    assert apply_migrations(url, installation.migrations) == 0
    assert len(names(url)) == available
    assert database.fetch_value(url, 'SELECT count(*) FROM "LiteLLM_SpendLogs"') == 0


def test_migrations_run_in_the_order_of_their_names_and_are_recorded_with_their_checksum(
    url: str, tmp_path: Path
) -> None:
    write(tmp_path, "2_fill it's", "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)")
    write(tmp_path, "1_create", "CREATE TABLE t (n int);")
    assert apply_migrations(url, tmp_path) == 2
    assert database.fetch_value(url, "SELECT sum(n) FROM t") == 3
    assert names(url) == ["1_create", "2_fill it's"]
    checksum = "SELECT checksum FROM \"_prisma_migrations\" WHERE migration_name = '1_create'"
    assert database.fetch_value(url, checksum) == hashlib.sha256(b"CREATE TABLE t (n int);").hexdigest()


def test_a_failing_migration_is_named_undone_and_can_be_repeated(url: str, tmp_path: Path) -> None:
    write(tmp_path, "1_create", "CREATE TABLE t (n int)")
    write(tmp_path, "2_broken", "INSERT INTO t VALUES (1); INSERT INTO absent VALUES (1)")
    with pytest.raises(StackError, match="migration 2_broken failed"):
        apply_migrations(url, tmp_path)
    assert names(url) == ["1_create"]
    assert database.fetch_value(url, "SELECT count(*) FROM t") == 0
    write(tmp_path, "2_broken", "INSERT INTO t VALUES (1) -- repaired, ends in a comment")
    assert apply_migrations(url, tmp_path) == 1
    assert names(url) == ["1_create", "2_broken"]


def test_an_index_can_be_created_concurrently(url: str, tmp_path: Path) -> None:
    write(tmp_path, "1_create", "CREATE TABLE t (n int)")
    write(tmp_path, "2_index", "CREATE INDEX CONCURRENTLY t_n ON t (n)")
    assert apply_migrations(url, tmp_path) == 2
    assert database.fetch_value(url, "SELECT count(*) FROM pg_indexes WHERE indexname = 't_n'") == 1


def test_a_folder_without_migrations_is_an_error(url: str, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no migrations"):
        apply_migrations(url, tmp_path)
