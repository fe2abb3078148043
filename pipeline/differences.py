"""Classes of difference between the books of a window, and what they add up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

EVENTS_ROWS: Final = "events and rows"
ROWS_LAKE: Final = "rows and lake"

#: class -> (whether it is explained, why). The order is that of the report.
CLASSES: Final[dict[str, tuple[bool, str]]] = {
    "retries and fallbacks": (
        True,
        "a row is an attempt: calls with more than one row; the count is the rows beyond the first",
    ),
    "response-cache hit": (
        True,
        "answered from LiteLLM's response cache: rows repeat the tokens of the first answer at no spend",
    ),
    "ended after its last event": (
        True,
        "the row knows the end of a call whose final record was lost",
    ),
    "open": (True, "the call had not ended, or its worker was killed: LiteLLM writes rows at the end"),
    "aborted": (True, "the client went away: LiteLLM often writes no row for an aborted stream"),
    "rejected after the hook": (True, "refused by another hook or guardrail after ours had seen the request"),
    "too fresh": (True, "ended within five minutes of the last reading of the ledger, or later: run again"),
    "shared call id": (
        False,
        "clients sent the same x-litellm-call-id several times: rows of one id replace each other and cannot "
        "be joined",
    ),
    "counted by LiteLLM, no row": (
        False,
        "LiteLLM's daily sums counted it: disable_spend_logs, a provider's null or repeated response id that "
        "collided, or a row that was dropped",
    ),
    "unknown to LiteLLM's ledger": (
        False,
        "no row and no daily sum: no-log in the request body (litellm_settings.global_disable_no_log_param "
        "forbids it), or logging that failed",
    ),
    "failure without a row": (False, "a call failed and LiteLLM wrote no row of it"),
    "rejected before the hook": (
        True,
        "refused at authentication, budget or rate limit: no hook runs, the row carries nothing of ours",
    ),
    "not a call of generation": (True, "another endpoint, which the plugin does not follow"),
    "event lost": (
        False,
        "the row carries our object but its event never came: the stream was trimmed, Redis was away, or "
        "collection is behind",
    ),
    "no object of ours": (
        False,
        "a successful row without our object that joins no event: the plugin was not loaded in that worker, "
        "or another success callback replaced the metadata",
    ),
    "late row": (True, "in the database and not in the lake yet: agentwatt run reads it"),
    "deleted in the database": (True, "in the lake, no longer in the database: its retention removed it"),
    "counted without a row": (False, "a daily sum counts more requests than rows exist"),
    "row not counted": (
        False,
        "the daily sum counts fewer requests than rows: its queue was lost or is behind",
    ),
    "token or spend sums differ": (
        False,
        "the daily sum of a day with equal counts differs from its rows by more than one per mille",
    ),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One class of difference between two books, and how many calls, rows or requests are in it."""

    compared: str
    name: str
    count: int
    explained: bool
    why: str
    samples: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain values."""
        return {
            "compared": self.compared,
            "class": self.name,
            "count": self.count,
            "explained": self.explained,
            "why": self.why,
            "samples": list(self.samples),
        }


@dataclass(slots=True)
class Reconciliation:
    """What the books of a window say."""

    since: date
    until: date
    calls: int = 0
    events: int = 0
    rows_in_lake: int = 0
    rows_in_database: int = 0
    daily: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def unexplained_percent(self) -> float:
        """The larger share of what no class explains: of the calls, or of a daily table's requests."""
        shares = [0.0]
        for compared in {d.compared for d in self.differences}:
            base = self.calls if compared == EVENTS_ROWS else self.rows_in_database
            open_ = sum(d.count for d in self.differences if d.compared == compared and not d.explained)
            if open_:
                shares.append(100 * open_ / base if base else 100.0)
        return max(shares)

    def summary(self) -> dict[str, Any]:
        """Return the totals as plain values."""
        return {
            "since": self.since,
            "until": self.until,
            "calls": self.calls,
            "events": self.events,
            "rows_in_lake": self.rows_in_lake,
            "rows_in_database": self.rows_in_database,
            "daily_requests": self.daily,
            "unexplained_percent": round(self.unexplained_percent(), 3),
        }
