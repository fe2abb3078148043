"""A PostgreSQL server that holds an exported week."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.services import PostgresService
from pipeline import export as exporting
from pipeline import run
from pipeline.settings import PowerSettings, Settings
from tests.pipeline.sql.synthetic import scenario


@pytest.fixture(scope="session")
def exported_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a database that the week of the synthetic scenario was exported into."""
    lake: Path = tmp_path_factory.mktemp("lake")
    scenario(lake)
    settings = Settings(lake=lake, power=PowerSettings(presets=["dcgm"]))
    run.build(lake, settings)
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DATABASE_URL", raising=False)
        with PostgresService(tmp_path_factory.mktemp("postgres")) as service:
            exporting.export(settings, service.url)
            yield service.url
