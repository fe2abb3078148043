"""What resending the tool catalogue costs, per key, team or client, and what exposing fewer tools would save.

A pure function over final call records (or rows of the lake with the same names). A catalogue is sent, and
counted, with every call; the advice turns that into tokens and milliseconds per call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

#: LiteLLM's own rule of thumb, used only where no call of the data has a measured catalogue.
BYTES_PER_TOKEN: Final = 4.0

Source = Literal["measured", "estimated", "none"]


@dataclass(frozen=True, slots=True)
class CatalogueAdvice:
    """One key, team or client. Times in milliseconds of token counting; None where it was not measured.

    ``saved_…`` are per call, for calls that send more than ``keep`` tools, on the assumption that tools are
    equally long; ``source`` tells whether tokens were counted or derived from bytes.
    """

    name: str | None
    calls: int
    calls_with_tools: int
    catalogues: int
    tools_per_call: float | None
    catalogue_tokens_per_call: float | None
    catalogue_tokens_total: int | None
    source: Source
    counts_per_call: float | None
    catalogue_ms_per_call: float | None
    keep: int
    saved_tokens_per_call: float | None
    saved_tokens_total: int | None
    saved_ms_per_call: float | None


@dataclass(slots=True)
class _Sums:
    calls: int = 0
    # (tools, tokens, calls) of calls with tools
    sent: list[tuple[int, float | None, int]] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    estimated: bool = False
    counted_calls: int = 0
    runs: int = 0
    ms: float = 0.0
    tokens: int = 0


def advise(
    records: Iterable[Mapping[str, Any]],
    *,
    by: Literal["key_alias", "team_id", "client"] = "key_alias",
    keep: int = 20,
) -> list[CatalogueAdvice]:
    """Return one advice per key, team or client, the most resent tokens first.

    Args:
        records: final records with ``tool_count``, ``tools_bytes``, ``tools_digest`` and, where the exact
            meter ran, ``count_catalogue_tokens``, ``count_ms``, ``count_calls`` and ``count_tokens``. One
            may stand for several calls of one catalogue: ``calls`` of them, ``counted`` of these with the
            sums of the last three.
        by: the field to group by; None is a group of its own.
        keep: number of tools that would be exposed instead.

    Raises:
        ValueError: *keep* is negative.
    """
    if keep < 0:
        raise ValueError(f"keep must not be negative, is {keep}")
    rows = list(records)
    ratio = _tokens_per_byte(rows)
    groups: defaultdict[str | None, _Sums] = defaultdict(_Sums)
    for row in rows:
        _add(groups[row.get(by)], row, ratio)
    found = [_advice(name, sums, keep) for name, sums in groups.items()]
    return sorted(found, key=lambda a: (-(a.catalogue_tokens_total or 0), a.name or ""))


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


def _tokens_per_byte(rows: Iterable[Mapping[str, Any]]) -> float:
    tokens = size = 0.0
    for row in rows:
        counted, length = _number(row, "count_catalogue_tokens"), _number(row, "tools_bytes")
        if counted and length:
            calls = int(_number(row, "calls") or 1)
            tokens, size = tokens + calls * counted, size + calls * length
    return tokens / size if size else 1.0 / BYTES_PER_TOKEN


def _add(sums: _Sums, row: Mapping[str, Any], tokens_per_byte: float) -> None:
    calls = int(_number(row, "calls") or 1)
    sums.calls += calls
    ms, runs, tokens = (_number(row, name) for name in ("count_ms", "count_calls", "count_tokens"))
    if ms is not None and runs is not None and tokens is not None:
        sums.counted_calls += int(_number(row, "counted") or 1)
        sums.ms, sums.runs, sums.tokens = sums.ms + ms, sums.runs + int(runs), sums.tokens + int(tokens)
    tools = _number(row, "tool_count")
    if not tools:
        return
    size, catalogue = _number(row, "tools_bytes"), _number(row, "count_catalogue_tokens")
    if catalogue is None and size is not None:
        catalogue = size * tokens_per_byte
        sums.estimated = True
    sums.sent.append((int(tools), catalogue, calls))
    if isinstance(row.get("tools_digest"), str):
        sums.digests.add(row["tools_digest"])


def _advice(name: str | None, sums: _Sums, keep: int) -> CatalogueAdvice:
    with_tools = sum(n for *_, n in sums.sent)
    known = [(tools, tokens, n) for tools, tokens, n in sums.sent if tokens is not None]
    known_calls = sum(n for *_, n in known)
    total = sum(n * tokens for _, tokens, n in known)
    saved = sum(n * tokens * max(0, tools - keep) / tools for tools, tokens, n in known)
    per_call = total / known_calls if known else None
    saved_per_call = saved / known_calls if known else None
    runs_per_call = sums.runs / sums.counted_calls if sums.counted_calls else None
    ms_per_token = sums.ms / sums.tokens if sums.tokens else None

    def ms(tokens: float | None) -> float | None:
        if tokens is None or ms_per_token is None or runs_per_call is None:
            return None
        return round(tokens * runs_per_call * ms_per_token, 3)

    return CatalogueAdvice(
        name=name,
        calls=sums.calls,
        calls_with_tools=with_tools,
        catalogues=len(sums.digests),
        tools_per_call=sum(t * n for t, _, n in sums.sent) / with_tools if with_tools else None,
        catalogue_tokens_per_call=per_call,
        catalogue_tokens_total=round(total) if known else None,
        source="none" if not known else "estimated" if sums.estimated else "measured",
        counts_per_call=runs_per_call,
        catalogue_ms_per_call=ms(per_call),
        keep=keep,
        saved_tokens_per_call=saved_per_call,
        saved_tokens_total=round(saved) if known else None,
        saved_ms_per_call=ms(saved_per_call),
    )
