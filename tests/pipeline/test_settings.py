"""Settings: layers, origins, bounds and explanations."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import ConfigError
from pipeline.layers import load
from pipeline.settings import PowerSource, Settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AGENTWATT_") or name in {"DATABASE_URL", "REDIS_URL"}:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def origin(key: str, **arguments: Any) -> tuple[Any, str]:
    (row,) = [r for r in load(**arguments).rows() if r["key"] == key]
    return row["value"], row["origin"]


def test_defaults_are_those_of_the_definitions() -> None:
    settings = Settings()
    assert settings.idle_caps_s == [300, 900, 1800]
    assert settings.tool_caps_s == [60, 300, 1800, None]
    assert settings.retentions_s == [math.inf, 3600, 300]
    assert [(t.speed_tok_s, t.ttft_s) for t in settings.slo_tiers] == [(20, 10), (60, 5), (180, 3)]
    assert settings.visit_gap_s == 1800
    assert settings.power.pue is None


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert origin("redis.batch") == (1000, "default")
    (tmp_path / "agentwatt.yaml").write_text("redis: {batch: 2}\nlake: from-file\n")
    assert origin("redis.batch") == (2, f"file {tmp_path / 'agentwatt.yaml'}")
    monkeypatch.setenv("AGENTWATT_REDIS__BATCH", "3")
    assert origin("redis.batch") == (3, "env AGENTWATT_REDIS__BATCH")
    assert origin("redis.batch", flags={"redis.batch": 4}) == (4, "flag")
    assert origin("lake") == ("from-file", f"file {tmp_path / 'agentwatt.yaml'}")
    assert origin("redis.batch", flags={"redis.batch": None})[0] == 3


def test_our_section_of_the_proxys_file_is_read_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model_list: []\nagentwatt: {business_time_zone: Europe/Berlin}\n")
    assert load().settings.business_time_zone == "Europe/Berlin"


def test_a_proxy_file_without_our_section_gives_way_to_agentwatt_yaml(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model_list: []\n")
    (tmp_path / "agentwatt.yaml").write_text("lake: elsewhere\n")
    assert load().settings.lake == Path("elsewhere")


def test_plain_urls_are_a_fallback_and_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://user:hunter2@host/0")
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:hunter2@host/db")
    assert origin("redis.url") == ("********", "env REDIS_URL")
    monkeypatch.setenv("AGENTWATT_REDIS__URL", "redis://other/0")
    assert origin("redis.url") == ("********", "env AGENTWATT_REDIS__URL")
    assert "hunter2" not in json.dumps(load().rows())
    assert "hunter2" not in repr(load().settings)


def test_the_plugins_secret_serves_the_pipeline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTWATT_PLUGIN__SECRET", "shared")
    secret = load().settings.hash_secret
    assert secret is not None
    assert secret.get_secret_value() == "shared"
    assert origin("hash_secret")[1] == "env AGENTWATT_PLUGIN__SECRET"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"redis": {"batchh": 3}}, r"redis\.batchh: unknown key .*did you mean batch\?"),
        ({"redis": {"batch": 0}}, r"redis\.batch = 0: .*greater than or equal to 1"),
        ({"business_time_zone": "Mars"}, r"business_time_zone 'Mars' is no IANA time zone"),
        ({"power": {"pue": 1.4}}, "pue is set without pue_source"),
        ({"power": {"pue": 0.4, "pue_source": "guess"}}, r"power\.pue = 0\.4"),
        ({"user_precedence": ["owner"]}, "'end_user', 'user_id' or 'key'"),
        ({"visit_gap_s": float("inf")}, r"visit_gap_s = inf"),
        ({"tool_caps_s": [-1]}, r"tool_caps_s\.0.* = -1"),
        ({"slo_tiers": []}, "slo_tiers"),
    ],
)
def test_an_error_names_key_value_and_what_is_allowed(
    tmp_path: Path, values: dict[str, Any], expected: str
) -> None:
    import yaml

    (tmp_path / "agentwatt.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ConfigError, match=expected) as caught:
        load()
    assert "agentwatt.yaml" in str(caught.value)


def test_an_error_never_shows_a_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "agentwatt.yaml").write_text(
        "redis: {url: [redis://u:hunter2@h]}\nhash_secret: {a: hunter2}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["[1, 2", "a: b: c", "- 1\n- 2", "just text"])
def test_a_damaged_file_is_explained(tmp_path: Path, text: str) -> None:
    (tmp_path / "agentwatt.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"agentwatt\.yaml"):
        load()


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path / "none.yaml")


def test_an_unreadable_variable_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTWATT_IDLE_CAPS_S", "5,15,30")
    with pytest.raises(ConfigError, match="written as JSON"):
        load()


def test_an_unknown_variable_is_only_noticed_since_the_plugin_shares_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENTWATT_REDIS__MAXLEN", "5")
    monkeypatch.setenv("AGENTWATT_PLUGIN__ENABLED", "true")
    assert load().notices == ["AGENTWATT_REDIS__MAXLEN is not a pipeline setting"]


def test_words_for_no_cap_and_no_end_are_read(tmp_path: Path) -> None:
    (tmp_path / "agentwatt.yaml").write_text("tool_caps_s: [60, none]\nretentions_s: [.inf, 300]\n")
    settings = load().settings
    assert settings.tool_caps_s == [60, None]
    assert settings.retentions_s == [math.inf, 300]
    assert json.loads(json.dumps(origin("retentions_s")[0])) == ["inf", 300.0]


@pytest.mark.parametrize(
    ("unit", "kind", "scale", "factor"),
    [
        ("W", "gauge", 1, 1.0),
        ("mJ", "counter", 1, 1e-3),
        ("W", "gauge", 10, 10.0),
        ("kWh", "counter", 1, 3.6e6),
    ],
)
def test_a_power_sources_factor_leads_to_watts_or_joules(
    unit: Any, kind: Any, scale: float, factor: float
) -> None:
    source = PowerSource(name="s", metric="m", unit=unit, kind=kind, scope="board", scale=scale)
    assert source.factor == pytest.approx(factor)


def test_a_gauge_of_joules_is_refused() -> None:
    with pytest.raises(ValueError, match="unit J does not fit kind gauge"):
        PowerSource(name="s", metric="m", unit="J", kind="gauge", scope="board")
