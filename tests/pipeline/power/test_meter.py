"""A meter's own log becomes a series: times, zones, devices and rows that cannot be read."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipeline.errors import ConfigError
from pipeline.lake import Lake
from pipeline.power.commands import power_app
from pipeline.power.meter import Columns, read
from tests.pipeline.power.cases import Source, figure, one_tier, row, turns


def rows(lake: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as con:
        return con.execute(
            f"SELECT ts, target, name, labels, value FROM '{lake}/raw/metrics/*/*.parquet' ORDER BY ALL"
        ).fetchall()


def text(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_local_times_with_and_without_an_offset_become_utc(tmp_path: Path) -> None:
    log = text(
        tmp_path / "m.csv",
        "when,kw\n2026-07-01 12:00:00,1.5\n2026-07-01T12:01:00+05:30,2\n1782900000,3\n1782900060000,4\n",
    )
    read(Lake(tmp_path / "lake"), log, metric="pdu_kw", target="pdu-1",
         columns=Columns("when", "kw", zone="Europe/Berlin"))  # fmt: skip
    assert rows(tmp_path / "lake") == [
        (datetime(2026, 7, 1, 6, 31), "pdu-1", "pdu_kw", "{}", 2.0),
        (datetime(2026, 7, 1, 10, 0), "pdu-1", "pdu_kw", "{}", 1.5),
        (datetime(2026, 7, 1, 10, 0), "pdu-1", "pdu_kw", "{}", 3.0),
        (datetime(2026, 7, 1, 10, 1), "pdu-1", "pdu_kw", "{}", 4.0),
    ]


def test_rows_that_cannot_be_read_are_counted_by_reason(tmp_path: Path) -> None:
    log = text(tmp_path / "m.csv", "time,value\nnever,1\n2026-07-01T00:00:00Z,n/a\n2026-07-01T00:00:00Z,7\n")
    report = read(Lake(tmp_path / "lake"), log, metric="m", target="t", columns=Columns("time", "value"))
    assert report.as_dict()["rejected"] == {"no time": 1, "no number": 1}
    assert report.samples == 1


def test_the_same_file_replaces_its_own_rows(tmp_path: Path) -> None:
    log = text(tmp_path / "m.csv", "time,value\n2026-07-01T00:00:00Z,7\n")
    for _ in range(2):
        read(Lake(tmp_path / "lake"), log, metric="m", target="t", columns=Columns("time", "value"))
    assert len(rows(tmp_path / "lake")) == 1


def test_parquet_with_devices_is_read_by_its_own_types(tmp_path: Path) -> None:
    log = tmp_path / "m.parquet"
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT TIMESTAMP '2026-07-01 00:00:00' AS t, 5 AS w, 'left' AS d UNION ALL "
            f"SELECT TIMESTAMP '2026-07-01 00:00:00', 6, 'right') TO '{log}' (FORMAT parquet)"
        )
    report = read(Lake(tmp_path / "lake"), log, metric="m", target="t", columns=Columns("t", "w", "d"))
    assert report.devices == {"left", "right"}
    assert [r[3:] for r in rows(tmp_path / "lake")] == [
        ('{"device":"left"}', 5.0),
        ('{"device":"right"}', 6.0),
    ]


@pytest.mark.parametrize(
    ("name", "content", "metric", "zone", "message"),
    [
        ("m.csv", "time,watt\n1,1\n", "m", "UTC", "no column value"),
        ("m.csv", "time,value\nx,1\n", "m", "UTC", "No reading"),
        ("m.xlsx", "time,value\n", "m", "UTC", "neither CSV nor Parquet"),
        ("m.csv", "time,value\n1,1\n", "not a name", "UTC", "no metric name"),
        ("m.csv", "time,value\n1,1\n", "m", "Mars/Base", "no IANA time zone"),
    ],
)
def test_what_cannot_be_read_is_an_error(
    tmp_path: Path, name: str, content: str, metric: str, zone: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(Lake(tmp_path / "lake"), text(tmp_path / name, content), metric=metric, target="t",
             columns=Columns("time", "value", zone=zone))  # fmt: skip
    with pytest.raises(ConfigError, match="no file"):
        read(Lake(tmp_path), tmp_path / "absent.csv", metric="m", target="t", columns=Columns("a", "b"))


def test_the_command_brings_a_meter_into_the_figure(tmp_path: Path) -> None:
    lines = [f"2026-03-02T08:{n:02d}:00Z,2.0" for n in range(60)]
    lines = ["2026-03-02T07:59:00Z,2.0", *lines, "2026-03-02T09:00:00Z,2.0"]
    log = text(tmp_path / "rack.csv", "time,kw\n" + "\n".join(lines) + "\n")
    command = ["meter", str(log), "--metric", "rack_kw", "--value-column", "kw", "--format", "json"]
    done = CliRunner().invoke(power_app, [*command, "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 0, done.output
    assert '"samples": 62' in done.stdout
    source = Source("rack meter", "rack_kw", "gauge", "rack", factor=1000, identity_labels=["device"])
    found = figure(tmp_path / "lake", turns("s1", 0) + turns("s2", 0), [], one_tier(sources=[source]))
    assert row(found, boundary="rack")["value"] == pytest.approx(600 / 3600 / 2e-3)
