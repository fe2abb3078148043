"""The served ratio by model group: of its own pool, or of a declared share of a pool that several use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pipeline.power.served import Served
from pipeline.sql import parameters


def by_model_group(
    whole: Served, pools: Sequence[Served], declared: Sequence[parameters.Pool], state: str, tier: str
) -> list[dict[str, Any]]:
    """Return one entry per model group of ours for a state and service level.

    ``contribution`` is its part of the boundary's value (they add up); ``value`` is over the energy that
    serves the group: its pool's, or the share that the pool's rule gives it; null with a reason where no rule
    does.
    """
    found = []
    mine: dict[str | None, float] = defaultdict(float)
    for cell in whole.of("main", state, tier):
        mine[cell.model_group] += cell.lower
    for group, hours in sorted(mine.items(), key=lambda item: item[0] or ""):
        entry: dict[str, Any] = {
            "model_group": group,
            "contribution": hours / whole.energy.mwh,
            "agent_hours": hours,
            "pool": None,
            "split": None,
            "value": None,
        }
        serving = [p for p in declared if group in p.model_groups]
        names = sorted({p.name for p in serving})
        if not declared:
            one = len(mine) == 1
            entry |= {"value": hours / whole.energy.mwh} if one else {"value": None}
            entry["reason"] = None if one else "all groups share all devices: declare power.pools and a split"
        elif len(names) != 1:
            entry["reason"] = (
                f"served by {len(names)} pools ({', '.join(names)}): its energy is not told apart"
            )
        else:
            pool = next((p for p in pools if p.energy.pool == names[0]), None)
            entry |= {"pool": names[0]} | _of_pool(pool, serving, str(group), state, tier)
        found.append(entry)
    return found


def _of_pool(
    pool: Served | None, serving: Sequence[parameters.Pool], group: str, state: str, tier: str
) -> dict[str, Any]:
    if pool is None or pool.energy.joules <= 0:
        return {"reason": "its pool has no measured energy in this boundary"}
    if pool.energy.problems:
        return {"reason": "; ".join(pool.energy.problems)}
    hours = sum(c.lower for c in pool.of("main", state, tier) if c.model_group == group)
    groups = {g for p in serving for g in p.model_groups}
    rules = {p.split for p in serving}
    if len(groups) == 1:
        return {"value": hours / pool.energy.mwh, "split": "sole group of its pool", "reason": None}
    if rules == {"shares"}:
        shares = {p.shares[group] for p in serving}
        if len(shares) > 1:
            return {"reason": "its share changed inside the window"}
        share = shares.pop()
        value = hours / (pool.energy.mwh * share) if share > 0 else None
        reason = None if value is not None else "its declared share of the energy is 0"
        return {"value": value, "split": f"declared share {share:g}", "reason": reason}
    if rules == {"llm_active"}:
        mwh = _by_time_in_flight(pool, group, tier)
        if mwh <= 0:
            return {"split": "time in flight", "reason": "no call of its own was in flight"}
        return {"value": hours / mwh, "split": "time in flight", "reason": None}
    return {"reason": f"shares its pool with {', '.join(sorted(groups - {group}))} and no split is declared"}


def _by_time_in_flight(pool: Served, group: str, tier: str) -> float:
    """MWh of a group: each hour's energy by time in flight, hours without any by that of the whole window."""
    all_: dict[Any, float] = defaultdict(float)
    own: dict[Any, float] = defaultdict(float)
    for cell in pool.agents:
        if cell.state == "llm_active" and cell.tier == tier:
            all_[cell.hour] += cell.total
            own[cell.hour] += cell.total if cell.model_group == group else 0.0
    total = sum(all_.values())
    if total <= 0:
        return 0.0
    whole = sum(own.values()) / total
    return (
        sum(h.joules * (own[h.hour] / all_[h.hour] if all_[h.hour] > 0 else whole) for h in pool.hours)
        / 3.6e9
    )
