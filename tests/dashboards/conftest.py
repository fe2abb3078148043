"""A PostgreSQL server that holds an exported week, and a Prometheus that scrapes working services."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.services import PostgresService
from pipeline import export as exporting
from pipeline import run
from pipeline.settings import PowerSettings, Settings
from tests.dashboards.live import Live, scraped
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


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Return a Prometheus that has scraped a real proxy and the engine under traffic."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: apt-get install --no-install-recommends prometheus")
    with scraped(tmp_path_factory.mktemp("live")) as server:
        yield server
