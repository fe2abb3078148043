"""Metrics text: names as exposed, kinds, labels, and lines that cannot be read."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extract.metrics_text import parse

AT = datetime(2026, 3, 29, 12)
SAMPLE = Path(__file__).parents[3].parent / "shared" / "reference" / "samples" / "vllm_metrics_0.32.prom"


def test_a_counter_without_total_keeps_its_name() -> None:
    parsed = parse(
        "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
        'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="a"} 9e9\n',
        AT,
    )
    (sample,) = parsed.samples
    assert (sample.name, sample.kind, sample.value) == (
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        9e9,
    )


def test_kinds_come_from_the_family_and_creation_times_are_left_out() -> None:
    text = """# TYPE vllm:hits counter
vllm:hits_total{engine="0"} 5
vllm:hits_created{engine="0"} 1.7e9
# TYPE vllm:ttft histogram
vllm:ttft_bucket{le="+Inf"} 2
vllm:ttft_sum 0.5
vllm:ttft_count 2
# TYPE x summary
x_sum 1
plain 1
"""
    found = {s.name: s.kind for s in parse(text, AT).samples}
    assert found == {
        "vllm:hits_total": "counter",
        "vllm:ttft_bucket": "histogram",
        "vllm:ttft_sum": "histogram",
        "vllm:ttft_count": "histogram",
        "x_sum": "untyped",
        "plain": "untyped",
    }


def test_only_matching_names_are_kept() -> None:
    text = "vllm:a 1\nDCGM_b 2\nprocess_c 3\n"
    assert [s.name for s in parse(text, AT, "vllm:|DCGM_").samples] == ["vllm:a", "DCGM_b"]


def test_a_bad_line_is_counted_and_the_others_are_kept() -> None:
    parsed = parse('a 1\nb{x="unclosed 2\n9c 3\nd 4\ne not-a-number\n', AT)
    assert [s.name for s in parsed.samples] == ["a", "d"]
    assert parsed.rejected == {"unreadable line": 3}


def test_a_timestamp_on_the_line_wins_and_special_values_are_read() -> None:
    parsed = parse("a 1 1774785600000\nb NaN\nc +Inf\n# EOF\n", AT)
    assert [s.ts for s in parsed.samples] == [datetime(2026, 3, 29, 12), AT, AT]
    assert math.isnan(parsed.samples[1].value)
    assert parsed.samples[2].value == math.inf


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=4)
)
def test_labels_survive_escaping_and_have_sorted_keys(labels: dict[str, str]) -> None:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    text = "m{" + ",".join(f'{k}="{escaped(v)}"' for k, v in labels.items()) + "} 1\n"
    (sample,) = parse(text, AT).samples
    assert json.loads(sample.labels) == labels
    assert list(json.loads(sample.labels)) == sorted(labels)


@given(st.text(max_size=300))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    parsed = parse(text, AT)
    assert len(parsed.samples) + parsed.rejected.total() <= text.count("\n") + 1


def test_a_recorded_engine_is_read_whole() -> None:
    if not SAMPLE.exists():
        pytest.skip("the recorded metrics are not beside the repository")
    parsed = parse(SAMPLE.read_text(), AT)
    assert not parsed.rejected
    found = {s.name: s.kind for s in parsed.samples}
    assert found["vllm:prefix_cache_hits_total"] == "counter"
    assert found["vllm:kv_cache_usage_perc"] == "gauge"
    assert found["vllm:time_to_first_token_seconds_bucket"] == "histogram"
    assert "untyped" not in found.values()
