"""LiteLLM's own migrations, applied with plain SQL.

Prisma's schema engine is a native program that is not at hand. The migrations are SQL files, so they are run
in their order and recorded the way Prisma records them; `prisma migrate` would find nothing left to do.
"""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any

from deploy.local import database
from deploy.local.process import StackError

_RECORDS = """
CREATE TABLE IF NOT EXISTS "_prisma_migrations" (
    id VARCHAR(36) PRIMARY KEY NOT NULL,
    checksum VARCHAR(64) NOT NULL,
    finished_at TIMESTAMPTZ,
    migration_name VARCHAR(255) NOT NULL,
    logs TEXT,
    rolled_back_at TIMESTAMPTZ,
    started_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    applied_steps_count INTEGER NOT NULL DEFAULT 0
)
"""


def apply_migrations(url: str, folder: Path) -> int:
    """Bring a database to the newest migration in `folder`; returns how many were applied now.

    A migration and its record are committed together, but for those that create an index concurrently.

    Raises:
        StackError: the folder holds no migrations, or one failed; names it.
    """
    scripts = {path.parent.name: path.read_bytes() for path in sorted(folder.glob("*/migration.sql"))}
    if not scripts:
        raise StackError(f"no migrations in {folder}; is litellm-proxy-extras complete?")

    async def work() -> int:
        import asyncpg

        connection = await database.connect(url)
        try:
            await connection.execute(_RECORDS)
            known = {
                record["migration_name"]
                for record in await connection.fetch(
                    'SELECT migration_name FROM "_prisma_migrations" WHERE finished_at IS NOT NULL'
                )
            }
            pending = {name: content for name, content in scripts.items() if name not in known}
            for name, content in pending.items():
                try:
                    await _apply(connection, name, content)
                except asyncpg.PostgresError as error:
                    raise StackError(
                        f"migration {name} failed: {error}.\n"
                        "Is the database empty, or was it made by another LiteLLM release?"
                    ) from error
            return len(pending)
        finally:
            await connection.close()

    return database.blocking(work)


async def _apply(connection: Any, name: str, content: bytes) -> None:
    """Run one migration and record it, in one implicit transaction where PostgreSQL allows that."""
    quoted = name.replace("'", "''")  # part of a script, so no bound parameters
    record = (
        'INSERT INTO "_prisma_migrations" '  # noqa: S608 - content of an installed package, quoted
        "(id, checksum, finished_at, migration_name, applied_steps_count) "
        f"VALUES ('{uuid.uuid4()}', '{hashlib.sha256(content).hexdigest()}', now(), '{quoted}', 1)"
    )
    text = content.decode("utf-8")
    if "CONCURRENTLY" in text.upper():  # not allowed in a transaction; such a migration is one statement
        await connection.execute(text)
        await connection.execute(record)
    else:
        await connection.execute(f"{text}\n;\n{record}")
