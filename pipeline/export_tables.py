"""The tables that ``agentwatt export --to postgres`` keeps: columns, keys, meaning, source of daily rows.

They are small (a week is some hundred rows), hold no prompt, key, user or session, and stand in a schema of
their own: LiteLLM's own migrations must never meet them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Raised whenever a column changes; a database of a later version is left alone.
VERSION: Final = 1
_PERIOD: Final = {"period_start": "date", "period_end": "date"}


@dataclass(frozen=True, slots=True)
class Table:
    """One table: column -> PostgreSQL type, the key, and what a row is.

    ``source`` is the query over the published marts that gives a day's rows (``$first`` included, ``$last``
    not); tables without one hold the figures of a period.
    """

    name: str
    meaning: str
    columns: dict[str, str]
    key: tuple[str, ...]
    source: str = ""

    @property
    def time_column(self) -> str:
        """The column by which rows are replaced."""
        return "day" if "day" in self.columns else "period_start"


WINDOW: Final = Table(
    "agentwatt_window",
    "One exported period (days of the business time zone) and the window of the calls in it (UTC).",
    {
        **_PERIOD,
        "window_start": "timestamp",
        "window_end": "timestamp",
        "exported_at": "timestamp not null",
        "calls": "bigint",
        "engine_calls": "bigint",
        "engine_attempts": "bigint",
        "lower_bound": "boolean",
        "saturation": "text",
        "little_residual": "double precision",
        "notes": "text",
    },
    ("period_start", "period_end"),
)
FIGURE: Final = Table(
    "agentwatt_figure",
    "One headline number of a period as the report prints it; null with a reason where there is none.",
    {
        **_PERIOD,
        "figure": "text",
        "name": "text",
        "position": "integer not null",
        "value": "double precision",
        "unit": "text not null",
        "coverage": "double precision",
        "reason": "text",
    },
    ("period_start", "period_end", "figure", "name"),
)
AGENTS: Final = Table(
    "agentwatt_agents_per_mw",
    "Agents per megawatt of a period by boundary, state and service level; unknown conformity is a miss in "
    "value and a pass in value_upper. Served, not capacity.",
    {
        **_PERIOD,
        "boundary": "text",
        "state": "text",
        "tier": "text",
        "synthetic": "boolean not null",
        "value": "double precision",
        "value_upper": "double precision",
        "any_conformity": "double precision",
        "pooled_rule": "double precision",
        "measured_low": "double precision",
        "measured_high": "double precision",
        "week_low": "double precision",
        "week_high": "double precision",
        "week_reason": "text",
        "agent_hours": "double precision",
        "conformant_agent_hours": "double precision",
        "megawatt_hours": "double precision",
        "coverage": "double precision",
    },
    ("period_start", "period_end", "boundary", "state", "tier"),
)
AGENT_DAY: Final = Table(
    "agentwatt_agent_day",
    "Conformant agent-hours and energy of a business day; sum both before dividing.",
    {
        "day": "date",
        "boundary": "text",
        "state": "text",
        "tier": "text",
        "synthetic": "boolean not null",
        "conformant_agent_hours": "double precision not null",
        "megawatt_hours": "double precision not null",
    },
    ("day", "boundary", "state", "tier"),
)
CALL_DAY: Final = Table(
    "agentwatt_call_day",
    "Calls that started on a UTC day, and their tokens.",
    {
        "day": "date",
        "model_group": "text",
        "client": "text",
        "initiator": "text",
        "outcome": "text",
        "calls": "bigint not null",
        "engine_calls": "bigint not null",
        "engine_attempts": "bigint not null",
        "input_tokens": "double precision",
        "output_tokens": "double precision",
        "calls_with_input": "bigint not null",
        "calls_with_cached": "bigint not null",
        "spend": "double precision",
    },
    ("day", "model_group", "client", "initiator", "outcome"),
    """
    SELECT day, COALESCE(model_group, 'unknown') AS model_group, COALESCE(client, 'unknown') AS client,
      COALESCE(initiator, 'unknown') AS initiator, COALESCE(outcome, 'unknown') AS outcome,
      SUM(calls)::BIGINT AS calls, SUM(engine_calls)::BIGINT AS engine_calls,
      SUM(engine_attempts)::BIGINT AS engine_attempts, SUM(input_tokens) AS input_tokens,
      SUM(output_tokens) AS output_tokens, SUM(calls_with_input)::BIGINT AS calls_with_input,
      SUM(calls_with_cached)::BIGINT AS calls_with_cached, SUM(spend) AS spend
    FROM mart_call_day WHERE day >= $first AND day < $last GROUP BY 1, 2, 3, 4, 5
    """,
)
_PREFIX_KEYS: Final = """CAST(hour AS DATE) AS day, COALESCE(model_group, 'unknown') AS model_group,
      COALESCE(category, 'unknown') AS category, COALESCE(position, 'unknown') AS position,
      COALESCE(break_reason, 'unknown') AS break_reason"""
REALISED_DAY: Final = Table(
    "agentwatt_realised_day",
    "Sums behind the realised prefix hit: cached ÷ reporting_input, over calls whose backend reported cached "
    "tokens; reporting_calls ÷ calls is the coverage.",
    {
        "day": "date",
        "model_group": "text",
        "category": "text",
        "position": "text",
        "break_reason": "text",
        "calls": "bigint not null",
        "reporting_calls": "bigint not null",
        "input_tokens": "double precision",
        "reporting_input_tokens": "double precision",
        "cached_tokens": "double precision",
    },
    ("day", "model_group", "category", "position", "break_reason"),
    f"""
    SELECT {_PREFIX_KEYS}, SUM(calls)::BIGINT AS calls, SUM(reporting_calls)::BIGINT AS reporting_calls,
      SUM(input_tokens) AS input_tokens, SUM(reporting_input_tokens) AS reporting_input_tokens,
      SUM(cached_tokens) AS cached_tokens
    FROM mart_realised WHERE hour >= $first AND hour < $last GROUP BY 1, 2, 3, 4, 5
    """,  # noqa: S608 - constants of this module
)
POTENTIAL_DAY: Final = Table(
    "agentwatt_potential_day",
    "Sums behind the potential prefix hit within a retention: potential ÷ input over calls whose prefix is "
    "known; the reporting columns repeat it over the calls of the realised hit.",
    {
        "day": "date",
        "retention": "text",
        "model_group": "text",
        "category": "text",
        "position": "text",
        "break_reason": "text",
        "calls": "bigint not null",
        "input_tokens": "double precision",
        "potential_tokens": "double precision",
        "reporting_input_tokens": "double precision",
        "reporting_potential_tokens": "double precision",
    },
    ("day", "retention", "model_group", "category", "position", "break_reason"),
    f"""
    SELECT {_PREFIX_KEYS}, retention, SUM(calls)::BIGINT AS calls, SUM(input_tokens) AS input_tokens,
      SUM(potential_tokens) AS potential_tokens, SUM(reporting_input_tokens) AS reporting_input_tokens,
      SUM(reporting_potential_tokens) AS reporting_potential_tokens
    FROM mart_potential WHERE hour >= $first AND hour < $last GROUP BY 1, 2, 3, 4, 5, retention
    """,  # noqa: S608
)
PROMPT_DAY: Final = Table(
    "agentwatt_prompt_day",
    "Calls by prompt length in powers of two: more than up_to_tokens ÷ 2, at most up_to_tokens.",
    {
        "day": "date",
        "model_group": "text",
        "up_to_tokens": "bigint",
        "calls": "bigint not null",
        "input_tokens": "double precision",
    },
    ("day", "model_group", "up_to_tokens"),
    """
    SELECT day, COALESCE(model_group, 'unknown') AS model_group,
      CAST(POWER(2, CEIL(bucket * LOG2(1.02) - 1e-9)) AS BIGINT) AS up_to_tokens,
      SUM(calls)::BIGINT AS calls, SUM(input_tokens) AS input_tokens
    FROM mart_prompt_bucket WHERE day >= $first AND day < $last GROUP BY 1, 2, 3
    """,
)
ENERGY_DAY: Final = Table(
    "agentwatt_energy_day",
    "Measured energy of a business day, all pools together; covered_s ÷ window_s is its coverage.",
    {
        "day": "date",
        "boundary": "text",
        "megawatt_hours": "double precision not null",
        "covered_s": "double precision not null",
        "window_s": "double precision not null",
    },
    ("day", "boundary"),
    """
    SELECT business_day AS day, scope AS boundary, SUM(joules) / 3.6e9 AS megawatt_hours,
      SUM(covered_s) AS covered_s, SUM(window_s) AS window_s
    FROM mart_energy_hour WHERE pool = '*' AND business_day >= $first AND business_day < $last GROUP BY 1, 2
    """,
)
HUMAN_DAY: Final = Table(
    "agentwatt_human_day",
    "Human-hours of a business day under a cap on gaps, and how many people had any.",
    {
        "day": "date",
        "idle_cap_s": "double precision",
        "human_hours": "double precision not null",
        "people": "bigint not null",
    },
    ("day", "idle_cap_s"),
    """
    SELECT business_day AS day, idle_cap_s, SUM(human_hours) AS human_hours,
      COUNT(DISTINCT user_key)::BIGINT AS people
    FROM mart_human_hour WHERE scope = 'all' AND business_day >= $first AND business_day < $last GROUP BY 1, 2
    """,
)
CATALOGUE: Final = Table(
    "agentwatt_catalogue",
    "What resending the tool catalogues cost in a period, by client, and what exposing keep tools saves.",
    {
        **_PERIOD,
        "client": "text",
        "calls": "bigint not null",
        "calls_with_tools": "bigint not null",
        "catalogues": "bigint not null",
        "tools_per_call": "double precision",
        "tokens_per_call": "double precision",
        "catalogue_tokens": "bigint",
        "source": "text not null",
        "ms_per_call": "double precision",
        "keep": "bigint not null",
        "saved_tokens": "bigint",
        "saved_ms_per_call": "double precision",
    },
    ("period_start", "period_end", "client"),
)
ENGINE_DAY: Final = Table(
    "agentwatt_engine_day",
    "The engine's own prefix counters of a UTC day; queries far above prompts mean that it counted twice.",
    {
        "day": "date",
        "target": "text",
        "hit_tokens": "double precision",
        "query_tokens": "double precision",
        "prompt_tokens": "double precision",
        "preemptions": "double precision",
        "resets": "double precision",
    },
    ("day", "target"),
    """
    SELECT CAST(hour AS DATE) AS day, target, SUM(hit_tokens) AS hit_tokens,
      SUM(query_tokens) AS query_tokens, SUM(prompt_tokens) AS prompt_tokens,
      SUM(preemptions) AS preemptions, SUM(resets) AS resets
    FROM mart_engine_prefix WHERE hour >= $first AND hour < $last GROUP BY 1, 2
    """,
)

#: Every table, figures first.
TABLES: Final = (WINDOW, FIGURE, AGENTS, CATALOGUE, AGENT_DAY, CALL_DAY, REALISED_DAY,
                 POTENTIAL_DAY, PROMPT_DAY, ENERGY_DAY, HUMAN_DAY, ENGINE_DAY)  # fmt: skip
