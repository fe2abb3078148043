"""What stands beside agents per megawatt, as lines for Markdown, CSV and the terminal.

Both intervals, the upper conformity bound, capacity, conventions, parts, companions, provisioned power,
external work and Little's law: whatever the figure holds, so that no form of the report tells less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipeline.report.text import NONE, Line, number, sentence, share

FIGURE: Final = "agents_per_megawatt"
#: The table of these lines in the report.
TABLE: Final = "beside"
_UNIT: Final = "agents/MW"
_COMPANIONS: Final = (
    ("wh_per_session", "energy per session", "Wh"),
    ("wh_per_turn", "energy per turn", "Wh"),
    ("wh_per_call", "energy per call", "Wh"),
    ("wh_per_million_new_tokens", "energy per million new tokens", "Wh"),
    ("joules_per_output_token", "energy per output token", "J"),
    ("joules_per_token", "energy per new and output token", "J"),
    ("agents_per_gpu", "in a turn per GPU", "agents"),
    ("agents_per_kilowatt", "in a turn per kilowatt", "agents"),
)


def lines(figure: Mapping[str, Any]) -> list[Line]:
    """Return every number beside the values, one a line, for Markdown and CSV."""
    if "values" not in figure:
        return []
    return [*_rows(figure), *_capacity(figure), *_parts(figure), *_around(figure)]


def sentences(figure: Mapping[str, Any]) -> list[str]:
    """Return the same in a few sentences, for a terminal."""
    if "values" not in figure:
        return []
    found: list[str] = []
    lead = next((r for r in figure["values"] if _is_headline(figure, r)), None)
    if lead is not None:
        found += _lead(figure, lead)
    capacity = figure["capacity"]
    least = "at least " if capacity.get("lower_bound") else ""
    why = f" ({capacity['reason']})" if capacity["reason"] else ""
    found.append(f"Capacity, not served: {least}{number(capacity['value'])}{why}.")
    little = figure["littles_law"]
    off = _why_no_little(figure) or f"off by {share(little['residual'])}, 2 % is allowed"
    found.append(f"Little's law over the window: {off}.")
    for own in figure["companions"]:
        told = [
            f"{number(own[key])} {unit} {what.removeprefix('energy ')}" for key, what, unit in _COMPANIONS
        ]
        idle = f"idle share {share(own['idle_share'])}"
        found.append(f"Energy of the work, an allocation, {own['boundary']}: {'; '.join([*told, idle])}.")
    if provisioned := figure.get("provisioned"):
        told = []
        for key, name in (("declared", "declared"), ("public_constants", "on public constants")):
            value, reason = (provisioned[key][k] for k in ("agents_per_provisioned_megawatt", "reason"))
            told.append(f"{name} {number(value)}" + (f" ({reason})" if reason else ""))
        found.append(f"Provisioned, not measured, agents per megawatt: {'; '.join(told)}.")
        found.append(provisioned["public_constants"]["meaning"])
    outside = figure["external"]["agent_hours"]
    if outside:
        hours = ", ".join(f"{number(h)} {s.replace('_', '-')}" for s, h in outside.items())
        found.append(f"At providers without our power, not in the ratio, agent-hours: {hours}.")
    found += [f"Measured, in no pool: {e['device']}, {e['boundary']}." for e in figure["elsewhere"]]
    found += [f"No ratio at the {boundary}: {why}." for boundary, why in figure["refused"].items()]
    return found


def _lead(figure: Mapping[str, Any], lead: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the headline rests on: intervals, conventions, parts."""
    week = lead["week_interval"]
    weekly = _to(week["value"]) if week["value"] else f"none ({week['reason']})"
    yield (
        f"{name_of(lead)}: {number(lead['value'])} to {number(lead['value_upper'])} by conformity; "
        f"measurement interval {_to(lead['measurement_interval'])}; week to week {weekly}."
    )
    opened = next((r for r in figure["values"] if r["state"] == "open" and "sensitivity" in r), None)
    for row in (lead, opened):
        for convention, caps in (row or {}).get("sensitivity", {}).items():
            told = ", ".join(f"{cap} {number(value)}" for cap, value in caps.items())
            yield f"By {convention}, {(row or {})['state'].replace('_', '-')}: {told}."
    groups = [
        f"{g['model_group'] or 'unknown'} adds {number(g['contribution'])}"
        + (f", on its own energy {number(g['value'])}" if g["value"] is not None else "")
        for g in lead.get("by_model_group", ())
    ]
    profiles = [f"{p['profile']} adds {number(p['contribution'])}" for p in lead.get("by_profile", ())]
    yield f"Of the value: {'; '.join([*groups, *profiles])}."


def _to(interval: list[float] | None) -> str:
    return NONE if interval is None else f"{number(interval[0])} to {number(interval[1])}"


def remarks(figure: Mapping[str, Any]) -> list[str]:
    """Return the sentences that say what these lines mean and do not mean."""
    if "values" not in figure:
        return []
    found = [sentence(figure["convention"])]
    if figure["values"]:
        found += [
            "The measurement interval bounds this window's value: sensors, silent devices, turns of unknown "
            "conformity, and the time at either end of a turn that the gateway's clock cannot tell. The "
            "week-to-week interval says what other weeks would bring.",
            "Tool gaps count up to the cap; idle gaps longer than the cap count nothing.",
        ]
    found += [sentence(f"Energy of the work: {c['meaning']}") for c in figure["companions"][:1]]
    provisioned = figure.get("provisioned")
    if provisioned:
        public = provisioned["public_constants"]
        found += [f"Provisioned power: {public['meaning']}", f"Constants: {public['source']}."]
    saturation = figure["saturation"]
    if saturation["reason"]:
        found.append(sentence(saturation["reason"]))
    return found


def name_of(row: Mapping[str, Any]) -> str:
    """Name a row by state, service level and boundary."""
    name = f"{row['state'].replace('_', '-')}, {row['tier']}, {row['boundary']}"
    return f"{name}, synthetic" if row.get("synthetic") else name


def _line(
    name: str, value: float | None, unit: str = _UNIT, reason: str | None = None, *, shown: str | None = None
) -> Line:
    written = share(value) if unit == "share" else number(value)
    return Line(FIGURE, name, value, shown or written, unit, None, reason)


def _range(name: str, interval: Mapping[str, Any] | list[float] | None, reason: str) -> Iterator[Line]:
    """Yield the ends of an interval, or why there is none."""
    if isinstance(interval, Mapping):
        reason, interval = interval.get("reason") or reason, interval.get("value")
    if interval is None:
        yield _line(name, None, reason=reason)
        return
    yield _line(f"{name}, from", interval[0])
    yield _line(f"{name}, to", interval[1])


def _is_headline(figure: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    return all(row[k] == v for k, v in (figure.get("headline") or {"state": None}).items())


def _rows(figure: Mapping[str, Any]) -> Iterator[Line]:
    for row in figure["values"]:
        name = name_of(row)
        yield _line(f"{name}: unknown turns as passes", row["value_upper"])
        yield _line(f"{name}: any conformity", row["any_conformity"])
        yield _line(f"{name}: pooled rule", row["pooled_rule"])
        yield from _range(f"{name}: measurement interval", row["measurement_interval"], "no bounds")
        yield from _range(f"{name}: week to week", row["week_interval"], "too few days")
        estimate = row.get("estimate")
        if estimate is not None:
            yield _line(f"{name}: if {estimate['assumption']}", estimate["value"], reason=estimate["reason"])
        if row.get("subagents_beside") is not None:
            yield _line(f"{name}: subagents, not counted", row["subagents_beside"])
        if row.get("pue") is not None:
            yield _line(f"{name}: PUE ({row['pue_source']})", row["pue"], "factor")


def _capacity(figure: Mapping[str, Any]) -> Iterator[Line]:
    """Capacity is never a served row: it has a name of its own."""
    found = figure["capacity"]["rows"] or [figure["capacity"]]
    for row in found:
        name = f"capacity: {name_of(row)}" if "state" in row else "capacity"
        value = row["value"]
        least = "at least " if row.get("lower_bound") and value is not None else ""
        yield _line(name, value, reason=row.get("reason"), shown=f"{least}{number(value)}")
        if row.get("interval"):
            yield from _range(f"{name}, interval", row["interval"], "no interval")


def _parts(figure: Mapping[str, Any]) -> Iterator[Line]:
    """Conventions, weeks, model groups and profiles of the headline, conventions of the open state too."""
    lead = next((r for r in figure["values"] if _is_headline(figure, r)), None)
    if lead is None:
        return
    opened = next((r for r in figure["values"] if r["state"] == "open" and "sensitivity" in r), None)
    for row in (lead, opened):
        for convention, caps in (row or {}).get("sensitivity", {}).items():
            for cap, value in caps.items():
                yield _line(f"{name_of(row or {})}: {convention} {cap}", value)
    name = name_of(lead)
    for week in lead.get("by_week", ()):
        yield _line(f"{name}: week {week['week']}", week["value"])
        yield from _range(
            f"{name}: week {week['week']}, measurement interval", week["measurement_interval"], "no bounds"
        )
        yield from _range(f"{name}: week {week['week']}, week to week", week["week_interval"], "too few days")
    for group in lead.get("by_model_group", ()):
        part = f"{name}: model group {group['model_group'] or 'unknown'}"
        yield _line(f"{part}, adds", group["contribution"])
        split = f" ({group['split']})" if group["split"] else ""
        yield _line(f"{part}, on its own energy{split}", group["value"], reason=group["reason"])
        if group["value"] is not None:
            yield from _range(f"{part}, measurement interval", group["measurement_interval"], "no bounds")
            yield from _range(f"{part}, week to week", group["week_interval"], "too few days")
    for profile in lead.get("by_profile", ()):
        part = f"{name}: profile {profile['profile']}"
        yield _line(f"{part}, adds", profile["contribution"])
        yield from _range(f"{part}, measurement interval", profile["contribution_interval"], "no bounds")
        yield from _range(f"{part}, week to week", profile["contribution_week_interval"], "too few days")


def _why_no_little(figure: Mapping[str, Any]) -> str | None:
    """Why Little's law was not checked: its own reason, or what the imported calls lack."""
    little = figure["littles_law"]
    if little.get("residual") is not None:
        return None
    return little.get("reason") or figure.get("unavailable", {}).get("littles_law") or "unknown"


def _around(figure: Mapping[str, Any]) -> Iterator[Line]:
    for tier, unknown in figure["coverage"]["turns_of_unknown_conformity"].items():
        yield _line(f"turns of unknown conformity, {tier}", unknown, "share")
    little = figure["littles_law"]
    yield _line("Little's law, residual", little.get("residual"), "share", _why_no_little(figure))
    if little.get("residual") is not None:
        yield _line("Little's law, mean agents in a turn", little["mean_agents_in_turn"], "agents")
        yield _line("Little's law, rate × residence", little["rate_times_residence"], "agents")
    for boundary in figure["boundaries"]:
        where = f"{boundary['boundary']}{', synthetic' if boundary['synthetic'] else ''}"
        yield _line(f"energy, {where}", boundary["megawatt_hours"], "MWh")
        yield _line(f"mean power, {where}", boundary["mean_watts"], "W")
        yield _line(f"measured share of the window, {where}", boundary["coverage"], "share")
        yield _line(f"seconds left out, {where}", boundary["excluded_s"], "s")
        accuracy = f"sensor accuracy ({boundary['accuracy_source']}), {where}"
        yield _line(accuracy, boundary["accuracy_percent"], "± %")
    for found in figure["companions"]:
        where = found["boundary"]
        for key, what, unit in _COMPANIONS:
            yield _line(f"{what}, {where}", found[key], unit, found["reasons"].get(key))
        yield _line(f"idle share of the energy, {where}", found["idle_share"], "share")
    yield from _provisioned(figure.get("provisioned"))
    external = figure["external"]
    for state, hours in external["agent_hours"].items():
        name = f"at providers without our power, not in the ratio, {state.replace('_', '-')}"
        yield _line(name, hours, "agent-hours")
    for entry in figure["elsewhere"]:
        yield _line(
            f"measured, in no pool: {entry['device']}, {entry['boundary']}", None, NONE, entry["reason"]
        )
    for boundary, why in figure["refused"].items():
        yield _line(f"no ratio at the {boundary}", None, reason=why)


def _provisioned(provisioned: Mapping[str, Any] | None) -> Iterator[Line]:
    if not provisioned:
        return
    unit = "agents per provisioned MW"
    for key, name in (
        ("declared", "provisioned, declared"),
        ("public_constants", "provisioned, public constants"),
    ):
        found = provisioned[key]
        yield _line(f"{name}, not measured", found["agents_per_provisioned_megawatt"], unit, found["reason"])
        if found.get("provisioned_megawatts") is not None:
            yield _line(f"{name}, power", found["provisioned_megawatts"], "MW")
