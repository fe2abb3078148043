"""Overview: who is working, what they ask for, and whether they wait."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src import expressions as e
from dashboards.src.frame import Row, build
from dashboards.src.panels import AMBER, GREEN, RED, Query, Sql, bars, lines, number, thresholds


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return build(
        "overview",
        "Who is working with agents, what do they ask the gateway for, and does anybody wait? Start "
        "here; the "
        "titles lead to the details.",
        _rows(),
        live=True,
        sql=True,
        model_variable=True,
    )


def _rows() -> list[Row]:
    return [
        (
            "Now",
            [
                number(
                    "Calls under way",
                    "Calls that the gateway has open at this moment: agents waiting for a model, subagents "
                    "and auxiliary calls included. It is not the number of people: an agent that runs a tool "
                    "is not in it. Zero for long in working hours means that nobody reaches this gateway.",
                    "short",
                    Query("sum(agentwatt_open_calls{@})"),
                    link="gateway",
                ),
                number(
                    "User turns",
                    "User-initiated calls a minute: how often a person sent a prompt to an agent. Auxiliary "
                    "calls are not in it. Compare it with the same hour of last week before concluding that "
                    "people left.",
                    "opm",
                    Query('sum(rate(agentwatt_calls_total{@,initiator="user"}[@])) * 60'),
                    link="sizing",
                ),
                number(
                    "Calls per turn",
                    "All calls of agents ÷ calls that a person initiated. When it grows, agents need more "
                    "steps for the same prompts, and the engines carry more load for the same people.",
                    "short",
                    Query(e.CALLS_PER_TURN),
                    decimals=1,
                    link="sizing",
                ),
                number(
                    "Prefix hit",
                    "Share of input tokens that the backend served from its prefix cache, over calls whose "
                    "backend reported it. Below half of the potential, look at affinity and evictions.",
                    "percentunit",
                    Query(e.REALISED),
                    steps=thresholds((0.4, AMBER), (0.7, GREEN), base=RED),
                    link="prefix",
                ),
                number(
                    "Not succeeded",
                    "Share of calls that failed, were rejected or were aborted. Aborted calls are mostly "
                    "people who pressed escape; the gateway view tells the kinds apart.",
                    "percentunit",
                    Query(e.NOT_SUCCEEDED),
                    steps=thresholds((0.05, AMBER), (0.2, RED)),
                    link="gateway",
                ),
                number(
                    "Board power",
                    "Sum of the boards' measured power, energy counters first. Boards only: host, network "
                    "and cooling are not in it.",
                    "watt",
                    Query(f"sum({e.BOARD_WATTS})"),
                    link="power",
                ),
            ],
        ),
        (
            "Who is working",
            [
                lines(
                    "Calls by initiator",
                    "Calls that ended, by who initiated them. A growing share of unknown means that a client "
                    "sends neither ids nor roles that tell: look at its evidence in the weekly report.",
                    "reqps",
                    Query("sum by (initiator) (rate(agentwatt_calls_total{@}[@]))", "{{initiator}}"),
                    stacked=True,
                    low=0,
                    link="sizing",
                ),
                lines(
                    "Calls under way (agents waiting for a model)",
                    "The live stand-in for agents in the state llm_active: mean and peak of open calls by "
                    "gateway. Subagents count as well, and gaps in which an agent runs tools do not. Agents "
                    "in a turn are a weekly figure, because a turn is known only when it is over.",
                    "short",
                    Query("sum by (job) (avg_over_time(agentwatt_open_calls{@}[@]))", "mean {{job}}"),
                    Query("sum by (job) (max_over_time(agentwatt_open_calls{@}[@]))", "peak {{job}}"),
                    low=0,
                    link="power",
                ),
                lines(
                    "Calls by route",
                    "Calls that ended by API route. A route that stops while others go on points at one "
                    "client or at one provider.",
                    "reqps",
                    Query("sum by (route) (rate(agentwatt_calls_total{@}[@]))", "{{route}}"),
                    stacked=True,
                    low=0,
                    link="gateway",
                ),
                bars(
                    "Agents in a turn, newest week",
                    "Mean number of agents over the measured time of the newest exported week: with a "
                    "session open, in a turn (a model or a tool at work), waiting for a model. Known only "
                    "when turns are over, hence from PostgreSQL.",
                    "short",
                    Sql(
                        """SELECT a.state || ', from ' || TO_CHAR(a.period_start, 'YYYY-MM-DD') AS metric,
                        MAX(a.agent_hours / NULLIF(e.hours, 0)) AS value
                        FROM agentwatt.agentwatt_agents_per_mw a CROSS JOIN LATERAL (
                          SELECT SUM(d.covered_s) / 3600 AS hours FROM agentwatt.agentwatt_energy_day d
                          WHERE d.boundary = a.boundary AND d.day >= a.period_start AND d.day < a.period_end
                        ) e
                        WHERE a.period_start = (SELECT MAX(period_start) FROM agentwatt.agentwatt_window
                          WHERE period_end - period_start = 7) AND a.period_end - a.period_start = 7
                        GROUP BY 1 ORDER BY value DESC NULLS LAST"""
                    ),
                    link="sizing",
                ),
                lines(
                    "Tokens in and out",
                    "Input tokens of successful calls (cached ones included) and generated tokens. Agents "
                    "send far more than they get: a falling ratio means shorter contexts or longer answers.",
                    "short",
                    Query("sum(rate(agentwatt_input_tokens_total{@}[@]))", "input tokens/s"),
                    Query("sum(rate(agentwatt_output_tokens_total{@}[@]))", "output tokens/s"),
                    low=0,
                    span=24,
                    link="prefix",
                ),
            ],
        ),
        (
            "Service level",
            [
                lines(
                    "Requests within the first tier",
                    "Share of the engines' requests with a first token within 10 s, and of gaps between "
                    "tokens of at most 50 ms (20 tokens/s): the tier '20 tok/s, 10 s', pooled over all "
                    "requests. Whether a turn conforms is a rule about its own calls and stands in the "
                    "weekly figures.",
                    "percentunit",
                    Query(e.within("vllm:time_to_first_token_seconds", "10"), "first token ≤ 10 s"),
                    Query(e.within("vllm:inter_token_latency_seconds", "0.05"), "token gap ≤ 50 ms"),
                    low=0,
                    high=1,
                    steps=thresholds((0.95, GREEN), base=AMBER),
                    link="engines",
                ),
                lines(
                    "Prompt length",
                    "Input tokens per call, median and 95th percentile, read from buckets. When the 95th "
                    "percentile approaches the model's limit, expect compactions and refused calls.",
                    "short",
                    Query(e.quantile(0.5, "agentwatt_prompt_tokens"), "P50"),
                    Query(e.quantile(0.95, "agentwatt_prompt_tokens"), "P95"),
                    low=0,
                    link="sizing",
                ),
                lines(
                    "First token at the engine",
                    "Time to first token of the engines, by model. Above 10 s agents feel stuck: look at the "
                    "queue and the KV cache of that model.",
                    "s",
                    Query(
                        e.quantile(0.95, "vllm:time_to_first_token_seconds", "model_name", engine=True),
                        "P95 {{model_name}}",
                    ),
                    low=0,
                    link="engines",
                ),
                lines(
                    "Time in the gateway before the first provider call",
                    "What the gateway itself costs a call, by route. Above a quarter of a second, see which "
                    "phase: token counting, limits, or a blocked event loop.",
                    "s",
                    Query(e.quantile(0.95, "agentwatt_gateway_overhead_seconds", "route"), "P95 {{route}}"),
                    low=0,
                    link="gateway",
                ),
            ],
        ),
    ]
