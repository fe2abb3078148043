"""A figures report of a week, in the shape of ``report.json``."""

from __future__ import annotations

import copy
from typing import Any

_REPORT: dict[str, Any] = {
    "meta": {"window": {"start": "2026-11-16T00:00:00", "end": "2026-11-23T00:00:00", "hours": 168.0}},
    "calls_per_human_hour": {
        "value": {"5 min": 52.0, "15 min": 41.0, "30 min": 36.0},
        "values": [
            {"idle_cap_s": 300, "value": 52.0, "duty_cycle": 0.11, "amplification": 1.4},
            {"idle_cap_s": 900, "value": 41.0, "duty_cycle": 0.09, "amplification": 1.4},
        ],
        "by_day": [
            {"day": "2026-11-16", "idle_cap_s": 900, "human_hours": 96.0},
            {"day": "2026-11-17", "idle_cap_s": 900, "human_hours": 120.0},
            {"day": "2026-11-17", "idle_cap_s": 300, "human_hours": 100.0},
        ],
        "peak_concurrent_calls": 9,
    },
    "prompt_length": {
        "value": {"p50": 71_000.0, "p95": 128_000.0, "mean": 74_000.0},
        "input_to_output": {"value": 160.0, "calls": 1000},
    },
    "prefix_hit": {
        "value": {"realised": 0.95},
        "realised": {"value": 0.95, "reason": None},
        "coverage": {"share_of_input_tokens": 0.98},
        "by": {
            "category": [
                {"category": "within", "calls": 900, "realised": 0.97},
                {"category": "boundary", "calls": 90, "realised": 0.85},
                {"category": "model_switch", "calls": 10, "realised": 0.08},
            ]
        },
    },
    "agents_per_megawatt": {
        "value": 1200.0,
        "headline": {"boundary": "node", "state": "in_turn", "tier": "10s/20"},
        "synthetic": False,
        "values": [
            {"state": "open", "boundary": "node", "value": 2500.0, "synthetic": False},
            {"state": "llm_active", "boundary": "node", "value": 300.0, "synthetic": False},
        ],
    },
}


def report() -> dict[str, Any]:
    """A fresh copy."""
    return copy.deepcopy(_REPORT)
