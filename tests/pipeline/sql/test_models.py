"""The files of the models keep the rules that every model must keep."""

from __future__ import annotations

import re

import pytest
import sqlglot
from sqlglot import exp

from pipeline.sql import models

MODELS = (*models.STAGING, *models.FACTS, *models.CALL_MARTS, *models.METRIC_MARTS)
EVERYTHING = (*MODELS, *models.audit_names())
#: JSON is taken apart in these, with functions that each engine spells its own way.
OPENS_JSON = {"stg_row", "stg_prefix_step"}


def test_every_file_is_a_model_that_runs_or_an_audit() -> None:
    found = {p.stem for p in models.ROOT.glob("*/*.sql")}
    assert found == set(EVERYTHING)


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_model_states_name_grain_and_sources(name: str) -> None:
    header = models.load(name).header
    assert header.startswith(f"{name}: ")
    for word in ("Grain:" if name != "mart_saturation" else "Grain", "Sources:"):
        assert word in header
    assert ("Severity:" if name in models.audit_names() else "Meaning:") in header


@pytest.mark.parametrize("name", MODELS)
def test_facts_and_marts_name_their_columns_and_group_by_them(name: str) -> None:
    tree = sqlglot.parse_one(models.load(name).sql, read="duckdb")
    if not name.startswith("stg_"):
        selects = tree.selects if isinstance(tree, exp.Select) else tree.left.selects  # type: ignore[union-attr]
        assert not any(s.is_star for s in selects)
    assert not re.search(r"GROUP BY ALL|read_parquet|\bFILTER\b", models.load(name).sql, re.IGNORECASE)


@pytest.mark.parametrize("name", [n for n in EVERYTHING if n not in OPENS_JSON])
def test_models_carry_over_to_clickhouse(name: str) -> None:
    sql = re.sub(r"\$([a-z_]+)", r"'\1'", models.load(name).sql)
    (out,) = sqlglot.transpile(
        sql, read="duckdb", write="clickhouse", unsupported_level=sqlglot.ErrorLevel.RAISE
    )
    assert sqlglot.parse_one(out, read="clickhouse").find(exp.Select)


@pytest.mark.parametrize("name", EVERYTHING)
def test_models_read_no_relation_that_is_built_after_them(name: str) -> None:
    tree = sqlglot.parse_one(models.load(name).sql, read="duckdb")
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    read = {t.name for t in tree.find_all(exp.Table)} - own
    built = [n for n in MODELS if n in read]
    allowed = MODELS[: MODELS.index(name)] if name in MODELS else MODELS
    assert set(built) <= set(allowed)
    assert all(t.startswith(("raw_", "prm_")) for t in read - set(built))
