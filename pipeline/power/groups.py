"""The served ratio by model group: of its own pool, or of a declared share of a pool that several use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pipeline.power import cells
from pipeline.power.cells import EnergyHour, Served, by_day
from pipeline.power.served import contribution, week_interval
from pipeline.sql import parameters

_NOTHING: Final = {"value": None, "value_upper": None, "measurement_interval": None, "week_interval": None}


def by_model_group(
    whole: Served, pools: Sequence[Served], declared: Sequence[parameters.Pool], state: str, tier: str
) -> list[dict[str, Any]]:
    """Return one entry per model group of ours for a state and service level.

    ``contribution`` is its part of the boundary's value (they add up); ``value`` is over the energy that
    serves the group: its pool's, or the share that the pool's rule gives it; null with a reason where no rule
    does. Both have both intervals.
    """
    found = []
    whole = whole.only(lambda x: x.state == state and x.tier == tier)
    names = {c.model_group for c in whole.of("main", state, tier)}
    for group in sorted(names, key=lambda name: name or ""):
        mine = whole.only(lambda x, g=group: x.model_group == g)  # type: ignore[misc]
        entry: dict[str, Any] = {"model_group": group, "pool": None, "split": None, **_NOTHING}
        entry |= contribution(mine, state, tier)
        serving = [p for p in declared if group in p.model_groups]
        own_pools = sorted({p.name for p in serving})
        if not declared:
            one = len(names) == 1
            entry |= _value(mine, state, tier) if one else {}
            entry["reason"] = None if one else "all groups share all devices: declare power.pools and a split"
        elif len(own_pools) != 1:
            entry["reason"] = (
                f"served by {len(own_pools)} pools ({', '.join(own_pools)}): its energy is not told apart"
            )
        else:
            pool = next((p for p in pools if p.energy.pool == own_pools[0]), None)
            entry |= {"pool": own_pools[0]} | _of_pool(pool, serving, str(group), state, tier)
        found.append(entry)
    return found


def _value(part: Served, state: str, tier: str) -> dict[str, Any]:
    """Return the ratio of *part* over its energy, with both intervals."""
    own = part.of("main", state, tier)
    return {
        "value": sum(c.lower for c in own) / part.energy.mwh,
        "value_upper": sum(c.upper for c in own) / part.energy.mwh,
        "megawatt_hours": part.energy.mwh,
        "measurement_interval": cells.interval(part, state, tier),
        "week_interval": week_interval(by_day(part, own)),
    }


def _of_pool(
    pool: Served | None, serving: Sequence[parameters.Pool], group: str, state: str, tier: str
) -> dict[str, Any]:
    if pool is None or pool.energy.joules <= 0:
        return {"reason": "its pool has no measured energy in this boundary"}
    if pool.energy.problems:
        return {"reason": "; ".join(pool.energy.problems)}
    mine = pool.only(lambda x: x.model_group == group)
    groups = {g for p in serving for g in p.model_groups}
    rules = {p.split for p in serving}
    if len(groups) == 1:
        return _value(mine, state, tier) | {"split": "sole group of its pool", "reason": None}
    if rules == {"shares"}:
        shares = {p.shares[group] for p in serving}
        if len(shares) > 1:
            return {"reason": "its share changed inside the window"}
        share = shares.pop()
        split = {"split": f"declared share {share:g}"}
        if share <= 0:
            return split | {"reason": "its declared share of the energy is 0"}
        return _value(mine.scaled(lambda _: share), state, tier) | split | {"reason": None}
    if rules == {"llm_active"}:
        mine = _by_time_in_flight(pool, mine, group, tier)
        if mine.energy.mwh <= 0:
            return {"split": "time in flight", "reason": "no call of its own was in flight"}
        return _value(mine, state, tier) | {"split": "time in flight", "reason": None}
    return {"reason": f"shares its pool with {', '.join(sorted(groups - {group}))} and no split is declared"}


def _by_time_in_flight(pool: Served, mine: Served, group: str, tier: str) -> Served:
    """Each hour's energy by time in flight, hours without any by that of the whole window."""
    all_: dict[Any, float] = defaultdict(float)
    own: dict[Any, float] = defaultdict(float)
    for cell in pool.agents:
        if cell.state == "llm_active" and cell.tier == tier:
            all_[cell.hour] += cell.total
            own[cell.hour] += cell.total if cell.model_group == group else 0.0
    total = sum(all_.values())
    whole = sum(own.values()) / total if total > 0 else 0.0

    def share(hour: EnergyHour) -> float:
        return own[hour.hour] / all_[hour.hour] if all_[hour.hour] > 0 else whole

    return mine.scaled(share)
