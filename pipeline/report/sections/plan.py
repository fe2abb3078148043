"""What was predicted against what was measured, and the checklist over what is deployed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.report import text
from pipeline.report.blocks import Block, Cell, Column, Row, Section, Text, number, share, table, words
from pipeline.report.cards import change_words

_SIGNS: Final = {"pass": "✓ pass", "warn": "! warn", "fail": "✗ fail", "unknown": "? unknown"}
_ORDER: Final = ("fail", "warn", "unknown", "pass")
_SHARES: Final = ("people.duty_cycle", "calls.prefix_hit")


def verified(document: Mapping[str, Any]) -> Section:
    """The section of plan against measured, and of this window against the one before."""
    found, change = document["plan_check"], document["change"]
    blocks: list[Block] = []
    rows = found.get("rows") or ()
    blocks += table(
        "plan_check",
        "Assumption by assumption",
        "Assumption",
        ("Predicted", Column("Held if", numeric=False), "Measured", Column("Verdict", numeric=False)),
        [_row(r) for r in rows],
        whole=True,
        definition="plan_check",
    )
    blocks += _change(change, document["meta"]["conventions"]["business_time_zone"])
    if not rows:
        lead = f"Nothing to compare: {found.get('reason')}."
    elif found["holds"]:
        lead = "Every assumption that the window can judge held."
    else:
        broken = text.count(len(found["broke"]), "assumption")
        lead = f"{broken} did not hold. First suspect: {found['first_suspect']}."
    if rows:
        blocks.append(Text(f"Prediction: {found['source']}.", small=True))
    return Section("plan_check", "What was planned, and what came", lead, "plan_check", tuple(blocks))


def _change(change: Mapping[str, Any], zone: str) -> list[Block]:
    window = change["window"]
    if window is None:
        return [Text(f"No comparison with the window before: {change['reason']}.", small=True)]
    return table(
        "change",
        "Against the window before",
        "Figure",
        ("Now", "Before", Column("Change", numeric=False)),
        [
            Row(
                r["name"],
                (share(r["now"]), share(r["before"]), words(change_words(r, brief=True)))
                if r["is_share"]
                else (number(r["now"]), number(r["before"]), words(change_words(r, brief=True))),
            )
            for r in change["rows"]
        ],
        definition="change",
        whole=True,
        note=f"The window before: {text.window(window, zone)}.",
    )


def _row(row: Mapping[str, Any]) -> Row:
    cell = share if row["name"] in _SHARES else number
    if row["low"] is None:
        held = ""
    elif row["high"] is None:
        held = f"at least {cell(row['low']).shown}"
    elif row["low"] == 0:
        held = f"at most {cell(row['high']).shown}"
    else:
        held = f"{cell(row['low']).shown} to {cell(row['high']).shown}"
    verdict = {"holds": "✓ held", "broke": "✗ did not hold", "unknown": "? unknown"}[row["verdict"]]
    return Row(
        row["meaning"].replace("rho,", "ρ,"),
        (cell(row["predicted"]), words(held), cell(row["measured"]), Cell(verdict)),
        row["reason"],
    )


def checklist(document: Mapping[str, Any]) -> Section:
    """The section of the checklist, what fails first."""
    found = sorted(document["checklist"], key=lambda c: _ORDER.index(c["status"]))
    counts = {s: sum(c["status"] == s for c in found) for s in _ORDER}
    said = ", ".join(f"{n} {'unknown' if s == 'unknown' else s}" for s, n in counts.items() if n)
    columns = (Column("Status", numeric=False), Column("What was seen", numeric=False))
    blocks: list[Block] = []
    for name, title, statuses, folded in (
        ("checklist", "What needs a look", ("fail", "warn"), False),
        ("checklist_passed", "What passed", ("pass",), True),
    ):
        blocks += table(
            name,
            title,
            "Question",
            columns,
            [
                Row(c["question"], (Cell(_SIGNS[c["status"]]), Cell(c["evidence"])))
                for c in found
                if c["status"] in statuses
            ],
            whole=True,
            folded=folded,
            definition="checklist",
        )
    unknown = [c["question"] for c in found if c["status"] == "unknown"]
    if unknown:
        blocks.append(
            Text(
                "Not looked at, because the files are not declared (sizing.proxy_config, chart_values, "
                f"dashboards, engine_command): {' '.join(unknown)}",
                small=True,
            )
        )
    return Section("checklist", "Checklist", f"{said or 'no check'}.", "checklist", tuple(blocks))
