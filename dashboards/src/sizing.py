"""Weekly sizing: the four figures and the series behind them, from the exported tables."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src.frame import build
from dashboards.src.panels import GREEN, RED, Panel, Sql, bars, grid, lines, number, thresholds

_NEWEST = """(period_start, period_end) = (SELECT period_start, period_end FROM agentwatt.agentwatt_window
    WHERE $__timeFilter(period_start) ORDER BY period_start DESC, period_end LIMIT 1)"""
_GROUPS = "model_group IN ($model_group)"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return build(
        "sizing",
        "The weekly figures that size the platform: calls per human-hour, prompt lengths, prefix hit, agents "
        "per megawatt; written by `agentwatt export --to postgres`.",
        [("The four figures", _figures()), ("Demand", _demand()), ("Reuse", _reuse()),
         ("Tool catalogues", _catalogues())],
        live=False,
        sql=True,
        groups=True,
    )  # fmt: skip


def _headline(title: str, description: str, unit: str, figure: str, name: str, link: str) -> Panel:
    return number(
        title,
        description,
        unit,
        Sql(
            f"""SELECT DISTINCT ON (period_start) CAST(period_start AS timestamp) AS "time", value
            FROM agentwatt.agentwatt_figure
            WHERE figure = '{figure}' AND name LIKE '{name}' AND period_end - period_start = 7
            AND $__timeFilter(period_start) ORDER BY period_start, position""",  # noqa: S608 - constants
            series=True,
        ),
        span=6,
        link=link,
    )


def _figures() -> list[Panel]:
    return [
        _headline(
            "Calls per human-hour",
            "Calls of attended sessions ÷ the union of the time in which people worked with agents, gaps up "
            "to 15 min counted as work. The convention on gaps moves it: see the table for 5 and 30 min.",
            "none",
            "calls_per_human_hour",
            "gaps up to 15 min",
            "overview",
        ),
        _headline(
            "Prompt length, P95",
            "95th percentile of input tokens per call. It decides how many agents fit into the KV cache.",
            "short",
            "prompt_length",
            "P95",
            "prefix",
        ),
        _headline(
            "Realised prefix hit",
            "Σ cached ÷ Σ input over calls whose backend reported cached tokens. It decides the "
            "prefill load.",
            "percentunit",
            "prefix_hit",
            "realised",
            "prefix",
        ),
        _headline(
            "Agents in a turn per megawatt",
            "Of the first service level; lower bound where the engines were never near their limit. "
            "The table "
            "names boundary and tier.",
            "short",
            "agents_per_megawatt",
            "in-turn, %",
            "power",
        ),
        grid(
            "All headline numbers of the newest period",
            "As the report prints them, with the share of the traffic that each rests on. A number without a "
            "value has a reason.",
            "none",
            Sql(
                f"""SELECT figure, name, value, unit, coverage, reason FROM agentwatt.agentwatt_figure
                WHERE {_NEWEST} ORDER BY figure, position"""  # noqa: S608
            ),
            units={"coverage": "percentunit", "value": "none"},
            widths={"figure": 190, "name": 300, "value": 110, "unit": 190, "coverage": 90},
            height=14,
            link="power",
        ),
        grid(
            "What to know about them",
            "Windows, counts, and notes that a reader must know: synthetic power, lost records, "
            "lower bounds.",
            "none",
            Sql(
                """SELECT TO_CHAR(period_start, 'YYYY-MM-DD') AS "from",
                TO_CHAR(period_end - 1, 'YYYY-MM-DD') AS "to", calls, engine_calls, engine_attempts,
                lower_bound, little_residual, REPLACE(notes, CHR(10), ' · ') AS notes, exported_at
                FROM agentwatt.agentwatt_window WHERE $__timeFilter(period_start)
                ORDER BY period_start DESC, period_end"""
            ),
            units={"little_residual": "percentunit"},
            widths={
                "from": 100,
                "to": 100,
                "calls": 90,
                "engine_calls": 100,
                "engine_attempts": 125,
                "lower_bound": 100,
                "little_residual": 110,
                "exported_at": 160,
            },
            height=6,
            link="power",
        ),
    ]


def _demand() -> list[Panel]:
    return [
        lines(
            "Calls by initiator and day",
            "Calls that started on a UTC day. Agents' calls grow faster than people's prompts: that is the "
            "load to plan for.",
            "short",
            Sql(
                f"""SELECT CAST(day AS timestamp) AS "time", initiator AS metric, SUM(calls) AS value
                FROM agentwatt.agentwatt_call_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1, 2 ORDER BY 1, 2""",  # noqa: S608
                series=True,
            ),
            bars=True,
            stacked=True,
            low=0,
            link="overview",
        ),
        lines(
            "Human-hours by day",
            "Time that people worked with agents on a business day, under three caps on gaps.",
            "none",
            Sql(
                """SELECT CAST(day AS timestamp) AS "time",
                'gaps up to ' || ROUND(idle_cap_s / 60) || ' min' AS metric, human_hours AS value
                FROM agentwatt.agentwatt_human_day WHERE $__timeFilter(day) ORDER BY 1, 2""",
                series=True,
            ),
            low=0,
            link="overview",
        ),
        lines(
            "People by day",
            "People (or keys, where no person is named) with any attended work on a business day.",
            "short",
            Sql(
                """SELECT CAST(day AS timestamp) AS "time", MAX(people) AS people
                FROM agentwatt.agentwatt_human_day WHERE $__timeFilter(day) GROUP BY 1 ORDER BY 1""",
                series=True,
            ),
            bars=True,
            low=0,
            link="overview",
        ),
        lines(
            "Calls per human-hour by week",
            "The figure under each convention. The three belong together: quote them together.",
            "none",
            Sql(
                """SELECT CAST(period_start AS timestamp) AS "time", name AS metric, value
                FROM agentwatt.agentwatt_figure WHERE figure = 'calls_per_human_hour'
                AND name LIKE 'gaps up to %' AND period_end - period_start = 7
                AND $__timeFilter(period_start) ORDER BY 1, 2""",
                series=True,
            ),
            low=0,
            link="overview",
        ),
        bars(
            "Prompt lengths",
            "Calls by prompt length, in powers of two, over the time range. The last bars decide the "
            "KV cache.",
            "short",
            Sql(
                f"""SELECT 'up to ' || CASE WHEN up_to_tokens < 1024 THEN CAST(up_to_tokens AS text)
                  ELSE up_to_tokens / 1024 || 'K' END AS metric, SUM(calls) AS value
                FROM agentwatt.agentwatt_prompt_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY up_to_tokens ORDER BY up_to_tokens"""  # noqa: S608
            ),
            link="prefix",
        ),
        lines(
            "Prompt length by week",
            "Percentiles of input tokens per call.",
            "short",
            Sql(
                """SELECT CAST(period_start AS timestamp) AS "time", name AS metric, value
                FROM agentwatt.agentwatt_figure WHERE figure = 'prompt_length'
                AND period_end - period_start = 7 AND $__timeFilter(period_start) ORDER BY 1, 2""",
                series=True,
            ),
            low=0,
            link="prefix",
        ),
        lines(
            "Tokens by day",
            "Input and output tokens of calls that report them.",
            "short",
            Sql(
                f"""SELECT CAST(day AS timestamp) AS "time", SUM(input_tokens) AS input,
                SUM(output_tokens) AS output FROM agentwatt.agentwatt_call_day
                WHERE {_GROUPS} AND $__timeFilter(day) GROUP BY 1 ORDER BY 1""",  # noqa: S608
                series=True,
            ),
            low=0,
            link="engines",
        ),
        lines(
            "Spend by day",
            "What LiteLLM booked for the calls of a UTC day, from its ledger. Its own pages use "
            "other windows "
            "and may differ; agentwatt reconcile says why.",
            "currencyUSD",
            Sql(
                f"""SELECT CAST(day AS timestamp) AS "time", model_group AS metric, SUM(spend) AS value
                FROM agentwatt.agentwatt_call_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1, 2 ORDER BY 1, 2""",  # noqa: S608
                series=True,
            ),
            bars=True,
            stacked=True,
            low=0,
            link="gateway",
        ),
    ]


def _reuse() -> list[Panel]:
    return [
        lines(
            "Prefix hit by day",
            "Realised hit and, on the same calls, the potential without a limit on age. Sums before "
            "division.",
            "percentunit",
            Sql(
                f"""SELECT CAST(day AS timestamp) AS "time",
                SUM(cached_tokens) / NULLIF(SUM(reporting_input_tokens), 0) AS realised
                FROM agentwatt.agentwatt_realised_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1 ORDER BY 1""",  # noqa: S608
                series=True,
            ),
            Sql(
                f"""SELECT CAST(day AS timestamp) AS "time",
                'potential, ' || CASE retention WHEN 'inf' THEN 'any age'
                  ELSE 'within ' || retention || ' s' END AS metric,
                SUM(reporting_potential_tokens) / NULLIF(SUM(reporting_input_tokens), 0) AS value
                FROM agentwatt.agentwatt_potential_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1, 2 ORDER BY 1, 2""",  # noqa: S608
                series=True,
            ),
            low=0,
            high=1,
            link="prefix",
        ),
        lines(
            "Engine against gateway by day",
            "The engines' own counters beside the calls' reported tokens. Apart: other traffic on the "
            "engines, lookups counted twice, or calls that do not report.",
            "percentunit",
            Sql(
                """SELECT CAST(day AS timestamp) AS "time",
                SUM(hit_tokens) / NULLIF(SUM(query_tokens), 0) AS engine
                FROM agentwatt.agentwatt_engine_day WHERE $__timeFilter(day) GROUP BY 1 ORDER BY 1""",
                series=True,
            ),
            Sql(
                """SELECT CAST(day AS timestamp) AS "time",
                SUM(cached_tokens) / NULLIF(SUM(reporting_input_tokens), 0) AS gateway
                FROM agentwatt.agentwatt_realised_day WHERE $__timeFilter(day) GROUP BY 1 ORDER BY 1""",
                series=True,
            ),
            low=0,
            high=1,
            link="engines",
        ),
        grid(
            "Prefix hit by category",
            "Where reuse is lost, over the time range. boundary = the first call of a turn that is not the "
            "first of its session.",
            "none",
            Sql(
                f"""SELECT category, SUM(calls) AS calls, SUM(input_tokens) AS input_tokens,
                SUM(cached_tokens) / NULLIF(SUM(reporting_input_tokens), 0) AS realised,
                SUM(reporting_calls) * 1.0 / NULLIF(SUM(calls), 0) AS coverage
                FROM agentwatt.agentwatt_realised_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1 ORDER BY SUM(input_tokens) DESC NULLS LAST"""  # noqa: S608
            ),
            units={"realised": "percentunit", "coverage": "percentunit", "input_tokens": "short"},
            span=12,
            link="prefix",
        ),
        grid(
            "Prefix hit by break reason",
            "Why prefixes ended, over the time range.",
            "none",
            Sql(
                f"""SELECT break_reason, SUM(calls) AS calls, SUM(input_tokens) AS input_tokens,
                SUM(cached_tokens) / NULLIF(SUM(reporting_input_tokens), 0) AS realised,
                SUM(reporting_calls) * 1.0 / NULLIF(SUM(calls), 0) AS coverage
                FROM agentwatt.agentwatt_realised_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1 ORDER BY SUM(input_tokens) DESC NULLS LAST"""  # noqa: S608
            ),
            units={"realised": "percentunit", "coverage": "percentunit", "input_tokens": "short"},
            span=12,
            link="prefix",
        ),
        lines(
            "Coverage of cached tokens by day",
            "Share of calls whose backend reported cached tokens. The realised hit speaks of these alone.",
            "percentunit",
            Sql(
                f"""SELECT CAST(day AS timestamp) AS "time",
                SUM(reporting_calls) * 1.0 / NULLIF(SUM(calls), 0) AS coverage
                FROM agentwatt.agentwatt_realised_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1 ORDER BY 1""",  # noqa: S608
                series=True,
            ),
            low=0,
            high=1,
            steps=thresholds((0.8, GREEN), base=RED),
            link="prefix",
        ),
        lines(
            "Tries per call by day",
            "Attempts that reached an engine ÷ calls. Above 1.05 retries and fallbacks load the engines "
            "beyond what people ask for.",
            "none",
            Sql(
                f"""SELECT CAST(day AS timestamp) AS "time",
                SUM(engine_attempts) * 1.0 / NULLIF(SUM(engine_calls), 0) AS attempts_per_call
                FROM agentwatt.agentwatt_call_day WHERE {_GROUPS} AND $__timeFilter(day)
                GROUP BY 1 ORDER BY 1""",  # noqa: S608
                series=True,
            ),
            low=0,
            link="gateway",
        ),
    ]


def _catalogues() -> list[Panel]:
    return [
        bars(
            "Tokens spent on tool catalogues",
            "Every call sends the descriptions of all its tools again, and the gateway counts them again. By "
            "client, newest period. Where it is large, expose fewer tools (see the table).",
            "short",
            Sql(
                f"""SELECT client AS metric, catalogue_tokens AS value FROM agentwatt.agentwatt_catalogue
                WHERE {_NEWEST} AND catalogue_tokens IS NOT NULL ORDER BY value DESC, client"""  # noqa: S608
            ),
            span=8,
            link="gateway",
        ),
        grid(
            "What fewer tools would save",
            "Catalogues by client, newest period: tools and tokens sent with each call, and what would not "
            "be sent if keep tools were exposed. estimated = from bytes, because no counter saw the "
            "catalogue. agentwatt catalogue shows it by key or team.",
            "none",
            Sql(
                f"""SELECT client, calls, calls_with_tools, catalogues, tools_per_call, tokens_per_call,
                catalogue_tokens, source, ms_per_call, keep, saved_tokens, saved_ms_per_call
                FROM agentwatt.agentwatt_catalogue WHERE {_NEWEST}
                ORDER BY catalogue_tokens DESC NULLS LAST, client"""  # noqa: S608
            ),
            units={"tokens_per_call": "short", "catalogue_tokens": "short", "saved_tokens": "short",
                   "ms_per_call": "ms", "saved_ms_per_call": "ms"},
            widths={"client": 120, "calls_with_tools": 125, "tokens_per_call": 125, "catalogue_tokens": 125,
                    "saved_ms_per_call": 140},
            span=16,
            height=8,
            link="gateway",
        ),
    ]  # fmt: skip
