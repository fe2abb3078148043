"""Beside the ratio: energy per session, turn, call and token, idle share, agents per board and per kilowatt.

Energy per request is an allocation: many requests share the hardware, so the energy of the measured seconds
is divided by what began in them. No meter in front of an engine sees one request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipeline.power import places
from pipeline.power.energy import Energy
from pipeline.sql.evidence import ratio

if TYPE_CHECKING:
    import duckdb

_LEAST_REPORTING: Final = 0.8
ALLOCATION: Final = (
    "an allocation: energy of the measured seconds, idle power and failures included, ÷ what began in them; "
    "requests share the hardware, no single one was metered"
)


def companions(con: duckdb.DuckDBPyConnection, energy: Energy, mean_agents: float | None) -> dict[str, Any]:
    """Return the companions of one boundary; unknown ones are null with a reason beside them.

    Args:
        con: engine with the marts built.
        energy: measured energy of the boundary.
        mean_agents: conformant agent-hours of the headline state and tier ÷ measured hours.
    """
    row = con.execute(
        "SELECT sessions, turns, calls, input_tokens, reporting_input_tokens, new_tokens, output_tokens, "
        "calls_with_output FROM mart_agent_work WHERE scope = $scope AND pool = $pool",
        {"scope": energy.scope, "pool": energy.pool},
    ).fetchone()
    sessions, turns, calls, tokens, reporting, new, output, with_output = row or (None,) * 8
    wh = energy.joules / 3600
    told = ratio(reporting, tokens)
    answered = ratio(with_output, calls)
    boards = len(energy.devices) if energy.scope == "board" else _boards(con, energy.pool)
    result: dict[str, Any] = {
        "boundary": energy.scope,
        "meaning": ALLOCATION,
        "wh_per_session": ratio(wh, sessions),
        "wh_per_turn": ratio(wh, turns),
        "wh_per_call": ratio(wh, calls),
        "wh_per_million_new_tokens": None,
        "joules_per_output_token": None,
        "joules_per_token": None,
        "idle_share": energy.idle_share,
        "idle_convention": "each device at its least hourly mean power; part of the ratio, not subtracted",
        "agents_per_gpu": None if mean_agents is None else ratio(mean_agents, boards),
        "gpus": boards,
        "agents_per_kilowatt": None
        if mean_agents is None
        else ratio(mean_agents, (energy.mean_watts or 0.0) / 1e3),
        "counts": {"sessions": sessions, "turns": turns, "calls": calls},
        "coverage": {"cached_tokens_reported": told, "output_reported": answered},
        "reasons": {},
    }
    if not calls:
        result["reasons"]["wh_per_call"] = "no call of ours began in a measured second"
        return result
    if answered is None or answered < _LEAST_REPORTING:
        result["reasons"] |= {"joules_per_output_token": "too few calls report their output"}
    else:
        result["joules_per_output_token"] = ratio(energy.joules, output)
    if told is None or told < _LEAST_REPORTING:
        result["reasons"]["wh_per_million_new_tokens"] = (
            "cached tokens are unknown for too much of the input: new tokens cannot be told from cached ones"
        )
        return result
    # the input whose cached part is unknown is taken to have the same share of new tokens
    whole_new = float(new) / told
    result["wh_per_million_new_tokens"] = ratio(wh * 1e6, whole_new)
    if result["joules_per_output_token"] is not None:
        result["joules_per_token"] = ratio(energy.joules, whole_new + float(output))
    if boards is None:
        result["reasons"]["agents_per_gpu"] = "no board is measured, so their number is unknown"
    return result


def _boards(con: duckdb.DuckDBPyConnection, pool: str = places.ALL) -> int | None:
    row = con.execute(
        "SELECT COUNT(DISTINCT device) FROM prm_power_place WHERE scope = 'board' AND pool = $pool",
        {"pool": pool},
    ).fetchone()
    return int(row[0]) if row and row[0] else None


def board_models(con: duckdb.DuckDBPyConnection, fallback: str | None) -> list[str | None]:
    """Return the model name of every measured board: its exporter's label, else *fallback*."""
    rows = con.execute(
        "SELECT device, labels FROM prm_power_series WHERE scope = 'board' ORDER BY device, labels"
    ).fetchall()
    names: dict[str, str | None] = {}
    for name, text in rows:
        labels = places.label_map(text)
        told = labels.get("modelName") or labels.get("gpu_name") or labels.get("name")
        names[name] = names.get(name) or told
    return [told or fallback for told in names.values()]
