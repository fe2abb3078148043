"""The published checklist and traps as machine checks: pass, warn, fail or unknown, each with its evidence.

A check that lacks its evidence says unknown and names the file it would need; it never passes by default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pipeline.sizing import deployed, planned
from pipeline.sizing.evidence import Check, Evidence, Outcome, Status

CHECKS: Final[tuple[tuple[str, str, Callable[[Evidence], Outcome]], ...]] = (
    ("measured_week", "Are the three figures measured over a week?", planned.week),
    ("measured_inputs", "Which inputs are measured rather than assumed?", planned.tags),
    ("sized_on_quantile", "Is the fleet sized on a quantile rather than a mean?", planned.basis),
    ("session_affinity", "Is session affinity on?", deployed.affinity),
    (
        "regimes",
        "Does the fleet hold where the prefix cache does not hit and where sessions fail?",
        planned.regimes,
    ),
    ("prefix_by_situation", "Is the prefix hit known by situation, not as one number?", planned.segmented),
    ("model_switch", "Does anything move live sessions between models?", planned.model_switch),
    ("max_num_seqs", "Does --max-num-seqs come from the cache budget?", deployed.max_num_seqs),
    ("admission_gateway", "Is admission control on at the gateway?", deployed.admission),
    ("admission_engine", "Is admission control on at the engine?", deployed.engine_admission),
    ("request_timeout", "Is the request timeout at most 600 s?", deployed.timeout),
    ("retries", "Do retries multiply the load?", deployed.retries),
    ("batch_interval", "Is the spend writer's interval raised?", deployed.batch_interval),
    ("spend_queue", "Does the spend queue stay far from its limit?", planned.spend_queue),
    ("postgres_pool", "Do the pools fit the database?", planned.postgres),
    ("shared_limits", "Are limits shared between workers?", deployed.redis),
    ("hpa_metric", "Does the autoscaler avoid memory?", deployed.hpa),
    ("resources", "Are requests equal to limits?", deployed.resources),
    ("startup_margin", "Is the burst during a start-up covered?", planned.startup),
    ("metric_renames", "Do dashboards name renamed engine metrics?", deployed.renames),
    ("headroom", "Is capacity reserved?", planned.headroom),
)


def run(evidence: Evidence) -> list[Check]:
    """Every check over what was given, in a fixed order."""
    return [Check(name, *check(evidence), question=question) for name, question, check in CHECKS]


def worst(checks: Sequence[Check]) -> Status:
    """The most severe status: fail, then warn, then unknown, then pass."""
    order: tuple[Status, ...] = ("fail", "warn", "unknown", "pass")
    return min((c.status for c in checks), key=order.index, default="unknown")
