"""Power and agents per megawatt: live approximations beside the weekly truth."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src import expressions as e
from dashboards.src.frame import build
from dashboards.src.panels import AMBER, GREEN, RED, Panel, Query, Sql, bars, grid, lines, number, thresholds

_WEEK = """agentwatt.agentwatt_agents_per_mw
    WHERE period_end - period_start = 7 AND $__timeFilter(period_start)"""


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return build(
        "power",
        "What do the boards draw, what do agents get for it, and how many agents does a megawatt carry? Live "
        "panels are approximations (calls under way, boards only); the weekly figures are the measured ones.",
        [("Live (Prometheus)", _live()), ("Weekly truth (PostgreSQL)", _weekly())],
        live=True,
        sql=True,
        model_variable=True,
    )


def _live() -> list[Panel]:
    return [
        number(
            "Board power now",
            "Sum over all boards, from energy counters where they move, else from power gauges. Boards only.",
            "watt",
            Query(f"sum({e.BOARD_WATTS})"),
            span=6,
            link="engines",
        ),
        number(
            "Agents per MW, live approximation",
            "Calls under way ÷ board megawatts: agents in the state llm_active, subagents included, whatever "
            "their service level. The weekly figure counts root agents in a turn that kept the service "
            "level, so the two differ by design; use this one for its course, not for its height.",
            "short",
            Query(f"sum(avg_over_time(agentwatt_open_calls{{@}}[@])) / (sum({e.BOARD_WATTS}) / 1e6)"),
            decimals=0,
            span=6,
            link="overview",
        ),
        number(
            "Energy per generated token",
            "Board watts ÷ generated tokens per second. It rises when batches shrink: idle boards draw a "
            "third of their power for nothing.",
            "joule",
            Query(f"sum({e.BOARD_WATTS}) / (sum(rate(vllm:generation_tokens_total{{@m}}[@])) > 0)"),
            span=6,
            link="engines",
        ),
        number(
            "Boards measured",
            "Boards that report power now. Fewer than you own: a sensor is silent, and the weekly figure "
            "leaves that time out for all.",
            "short",
            Query(f"count({e.BOARD_WATTS})"),
            steps=thresholds((1, GREEN), base=RED),
            span=6,
            link="engines",
        ),
        lines(
            "Power by host",
            "Board power of each host. A host that stays at idle power while others are full is not used.",
            "watt",
            Query(f"sum by (Hostname) ({e.BOARD_WATTS})", "{{Hostname}}"),
            stacked=True,
            low=0,
            link="engines",
        ),
        lines(
            "Power by board",
            "Each board by its UUID. A line that ends is a sensor that went silent.",
            "watt",
            Query(e.BOARD_WATTS, "{{Hostname}} {{UUID}}"),
            low=0,
            link="engines",
        ),
        lines(
            "Calls under way and power",
            "Whether power (right axis) follows the work. Power that stays up without calls is idle power; "
            "it stays in the denominator of every figure.",
            "short",
            Query("sum(avg_over_time(agentwatt_open_calls{@}[@]))", "calls under way"),
            Query(f"sum({e.BOARD_WATTS})", "board power"),
            low=0,
            right={"board power": "watt"},
            link="overview",
        ),
        lines(
            "Agents per MW over time, live approximation",
            "The second number above as a course. Falling at night is idle power, falling by day is a "
            "slower engine or shorter batches.",
            "short",
            Query(
                f"sum(avg_over_time(agentwatt_open_calls{{@}}[@])) / (sum({e.BOARD_WATTS}) / 1e6)",
                "calls under way per MW",
            ),
            low=0,
            link="overview",
        ),
    ]


def _weekly() -> list[Panel]:
    return [
        grid(
            "Agents per megawatt of the newest week",
            "Conformant agent-hours ÷ megawatt-hours by power boundary, agent state and service level. value "
            "counts turns of unknown conformity as misses, value_upper as passes; measured_* is the interval "
            "from sensors and gaps, week_* from week to week. Served, not capacity.",
            "none",
            Sql(
                """SELECT boundary, state, tier, value, value_upper, measured_low, measured_high, week_low,
                week_high, any_conformity, pooled_rule, agent_hours, megawatt_hours, coverage, synthetic
                FROM agentwatt.agentwatt_agents_per_mw
                WHERE (period_start, period_end) = (SELECT period_start, period_end
                  FROM agentwatt.agentwatt_window ORDER BY period_start DESC, period_end LIMIT 1)
                ORDER BY boundary, state, value DESC NULLS LAST, tier"""
            ),
            units={"coverage": "percentunit", "value": "short", "value_upper": "short"},
            widths={
                "tier": 130,
                "measured_low": 115,
                "measured_high": 115,
                "any_conformity": 115,
                "megawatt_hours": 120,
            },
            link="sizing",
        ),
        lines(
            "Agents in a turn per megawatt, by week",
            "The headline figure by service level and boundary. Compare it with its interval before calling "
            "a step a change.",
            "short",
            Sql(
                f"""SELECT CAST(period_start AS timestamp) AS "time",
                boundary || ', ' || tier AS metric, value FROM {_WEEK} AND state = 'in_turn' ORDER BY 1, 2""",  # noqa: S608 - a constant
                series=True,
            ),
            past="8w",
            low=0,
            link="sizing",
        ),
        lines(
            "Agents in a turn per megawatt, by day",
            "Conformant agent-hours of each business day ÷ its measured energy. Days with little work are "
            "low because idle power stays in.",
            "short",
            Sql(
                """SELECT CAST(day AS timestamp) AS "time", boundary || ', ' || tier AS metric,
                SUM(conformant_agent_hours) / NULLIF(SUM(megawatt_hours), 0) AS value
                FROM agentwatt.agentwatt_agent_day
                WHERE state = 'in_turn' AND $__timeFilter(day) GROUP BY 1, 2 ORDER BY 1, 2""",
                series=True,
            ),
            past="8w",
            low=0,
            link="sizing",
        ),
        lines(
            "Measured energy by day",
            "Energy of the measured seconds of each business day, by boundary.",
            "watth",
            Sql(
                """SELECT CAST(day AS timestamp) AS "time", boundary AS metric,
                megawatt_hours * 1e6 AS value
                FROM agentwatt.agentwatt_energy_day WHERE $__timeFilter(day) ORDER BY 1, 2""",
                series=True,
            ),
            past="8w",
            bars=True,
            low=0,
            link="sizing",
        ),
        lines(
            "Coverage of power by day",
            "Share of the day in which every device was measured. Below 80 % the day's ratio rests on a part "
            "of it: repair the silent sensor.",
            "percentunit",
            Sql(
                """SELECT CAST(day AS timestamp) AS "time", boundary AS metric,
                covered_s / NULLIF(window_s, 0) AS value
                FROM agentwatt.agentwatt_energy_day WHERE $__timeFilter(day) ORDER BY 1, 2""",
                series=True,
            ),
            past="8w",
            low=0,
            high=1,
            steps=thresholds((0.8, GREEN), base=AMBER),
            link="sizing",
        ),
        bars(
            "Agents per megawatt by state, newest week",
            "open ⊇ in_turn ⊇ llm_active: what a seat with an agent open, a working agent and a waiting "
            "agent cost, under the service level that most of them keep.",
            "short",
            Sql(
                """SELECT boundary || ', ' || state AS metric, value FROM agentwatt.agentwatt_agents_per_mw
                WHERE (period_start, period_end) = (SELECT period_start, period_end
                  FROM agentwatt.agentwatt_window ORDER BY period_start DESC, period_end LIMIT 1)
                AND tier = (SELECT tier FROM agentwatt.agentwatt_agents_per_mw WHERE value IS NOT NULL
                  GROUP BY tier ORDER BY SUM(value) DESC, tier LIMIT 1)
                ORDER BY value DESC"""
            ),
            span=24,
            link="sizing",
        ),
    ]
