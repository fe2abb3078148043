from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway_plugin.settings import PluginSettings
from gateway_plugin.sinks import metric_table as table
from gateway_plugin.sinks import semconv

TEXT = (Path(__file__).resolve().parents[2] / "docs/plugin.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> dict[str, list[str]]:
    """First cell (without backticks) -> the other cells, of every table in the section."""
    found = {}
    for line in section(title).splitlines():
        cells = [c.strip() for c in line.strip("|").split(" | ")]
        if match := re.fullmatch(r"`([^`]+)`", cells[0]):
            found[match.group(1)] = cells[1:]
    return found


def test_every_setting_is_documented_with_its_meaning_and_nothing_else_is() -> None:
    documented = rows("Settings")
    assert set(documented) == set(PluginSettings.model_fields)
    for name, field in PluginSettings.model_fields.items():
        assert documented[name][-1] == field.description


def test_every_default_is_documented() -> None:
    documented = rows("Settings")
    for name, field in PluginSettings.model_fields.items():
        default = field.default
        if isinstance(default, bool):
            assert documented[name][0] == str(default).lower()
        elif isinstance(default, (int, float)):
            assert float(documented[name][0]) == default
        elif default is None:
            assert documented[name][0] == "none"


def test_every_metric_is_documented_and_nothing_else_is() -> None:
    documented = {k: v for k, v in rows("Metrics").items() if k.startswith("agentwatt_")}
    assert set(documented) == {m.exposed for m in table.METRICS}
    for metric in table.METRICS:
        kind, labels, meaning = documented[metric.exposed]
        assert kind.split()[0] == metric.kind
        assert labels == (", ".join(metric.labels) or "–")
        assert meaning == metric.help


@pytest.mark.parametrize("label", table.LABELS)
def test_every_label_list_is_documented(label: str) -> None:
    assert rows("Metrics")[label] == [" · ".join(table.LABELS[label])]


def test_every_span_attribute_is_documented() -> None:
    assert {k: v[0].strip("`") for k, v in rows("Span attributes").items()} == dict(
        semconv.attributes("latest")
    )
