"""Settings of power: what is refused, and that the documentation's examples and tables are true."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import ValidationError

from pipeline.power import known, provisioned
from pipeline.settings import PowerPreset, PowerSettings
from tests.pipeline.power.cases import figure, one_tier, row, turns, watts

DOCUMENT = Path(__file__).parents[3] / "docs" / "power.md"


def examples() -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(3))
def test_the_documents_examples_are_valid_settings(number: int) -> None:
    assert len(examples()) == 3
    PowerSettings.model_validate(yaml.safe_load(examples()[number])["power"])


def test_the_document_names_every_preset_and_series_and_constant() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert set(known.PRESETS) == set(get_args(PowerPreset))
    for preset, series in known.PRESETS.items():
        assert f"| `{preset}` |" in text
        assert all(f"`{s.metric}`" in text for s in series)
    assert "| " + " | ".join(provisioned.PUBLIC_KW_PER_GPU) + " |" in text
    assert "| " + " | ".join(f"{kw:.2f}" for kw in provisioned.PUBLIC_KW_PER_GPU.values()) + " |" in text


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ({"name": "a", "model_groups": []}, "model_groups"),
        ({"name": "*", "model_groups": ["g"]}, "name"),
        ({"name": "a", "model_groups": ["g"], "split": "shares"}, "shares belong to split"),
        ({"name": "a", "model_groups": ["g"], "shares": {"g": 1}}, "shares belong to split"),
        (
            {"name": "a", "model_groups": ["g", "h"], "split": "shares", "shares": {"g": 1}},
            "every model group",
        ),
        (
            {"name": "a", "model_groups": ["g"], "split": "shares", "shares": {"g": 0.5}},
            "add up to 1",
        ),
        ({"name": "a", "model_groups": ["g"], "since": "2026-03-02", "until": "2026-03-01"}, "not before"),
    ],
)
def test_pools_that_make_no_sense_are_refused(pool: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        PowerSettings.model_validate({"pools": [pool]})


def test_two_ways_to_map_model_groups_are_refused_together() -> None:
    both = {"pools": [{"name": "a", "model_groups": ["g"]}], "model_groups": {"g": ["n"]}}
    with pytest.raises(ValidationError, match="use one of them"):
        PowerSettings.model_validate(both)


def test_times_of_validity_become_naive_utc() -> None:
    pool = {"name": "a", "model_groups": ["g"], "since": "2026-03-02T10:00:00+02:00"}
    settings = PowerSettings.model_validate({"pools": [pool]})
    assert settings.pools[0].since == datetime(2026, 3, 2, 8)


@pytest.mark.parametrize(
    ("preset", "labels", "value", "expected"),
    [
        ("nvidia_smi", {"uuid": "a"}, 400, 400),
        ("kepler", {"chassis_id": "1", "source": "redfish"}, 400, 400),
        ("ipmi", {}, 400, 400),
        ("redfish", {"id": "PSU"}, 400, 400),
        ("scaphandre", {}, 4e8, 400),
        ("apc_pdu", {"rPDU2DeviceStatusIndex": "1"}, 40, 400),
        ("servertech_pdu", {"st4UnitIndex": "1", "st4InputCordIndex": "1"}, 400, 400),
    ],
)
def test_every_preset_leads_to_watts(
    tmp_path: Path, preset: str, labels: dict[str, str], value: float, expected: float
) -> None:
    series = known.PRESETS[preset][-1]
    metrics = watts("x", value, metric_name=series.metric, **labels)
    found = figure(tmp_path, turns("s1", 0) + turns("s2", 0), metrics, one_tier(presets=[preset]))
    assert found["boundaries"][0]["mean_watts"] == pytest.approx(expected)
    assert row(found, boundary=series.scope)["value"] == pytest.approx(600 / 3600 / expected * 1e6)
