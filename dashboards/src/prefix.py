"""Prefix cache: what could be reused, what was, and where it gets lost."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src import expressions as e
from dashboards.src.frame import Row, build
from dashboards.src.panels import AMBER, GREEN, RED, Query, lines, number, thresholds


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return build(
        "prefix",
        "How much of the prompts could be reused, how much was, and where does it get lost: in the client's "
        "prompts, on the way to another engine, or by eviction?",
        _rows(),
        live=True,
        model_variable=True,
    )


def _rows() -> list[Row]:
    return [
        (
            "Hit",
            [
                number(
                    "Realised (gateway)",
                    "Σ cached ÷ Σ input tokens over calls whose backend reported cached tokens.",
                    "percentunit",
                    Query(e.REALISED),
                    steps=thresholds((0.4, AMBER), (0.7, GREEN), base=RED),
                    span=6,
                    link="overview",
                ),
                number(
                    "Potential (gateway)",
                    "Share of input tokens that an earlier call of the same session, agent and model had "
                    "sent, over the same calls. What the realised hit could be.",
                    "percentunit",
                    Query(e.POTENTIAL),
                    span=6,
                    link="sizing",
                ),
                number(
                    "Hit of the engines",
                    "The engines' own counters, tokens, all their traffic. Counted at admission, so it runs "
                    "ahead of the gateway's figure by the length of a call.",
                    "percentunit",
                    Query(e.ENGINE_HIT),
                    span=6,
                    link="engines",
                ),
                number(
                    "Coverage",
                    "Share of input tokens whose backend reported cached tokens. Below 80 % the realised hit "
                    "speaks of a part of the traffic only: switch on prompt-token details at the engine.",
                    "percentunit",
                    Query(
                        f"sum({e.REPORTED}) / (sum(rate(agentwatt_input_tokens_total{{@}}[@])) > 0)",
                    ),
                    steps=thresholds((0.8, GREEN), base=RED),
                    span=6,
                    link="gateway",
                ),
                lines(
                    "Gateway against engine",
                    "Potential and realised hit at the gateway beside the engines' own. Realised far below "
                    "potential: prefixes are evicted or calls land on other engines. Engine far above "
                    "gateway: recomputation after preemption, or lookups counted twice (see below).",
                    "percentunit",
                    Query(e.POTENTIAL, "potential"),
                    Query(e.REALISED, "realised"),
                    Query(e.ENGINE_HIT, "engine"),
                    low=0,
                    high=1,
                    link="engines",
                ),
                lines(
                    "Potential that was not realised",
                    "Input tokens per second that an earlier call had sent and that the backend computed "
                    "again. This is the prefill that better affinity or a larger cache would save.",
                    "short",
                    Query(
                        """sum(rate(agentwatt_prefix_potential_tokens_total{@,cached="reported"}[@]))
                        - sum(rate(agentwatt_prefix_realised_tokens_total{@}[@]))""",
                        "tokens/s computed again",
                    ),
                    link="sizing",
                ),
            ],
        ),
        (
            "Where it is lost",
            [
                lines(
                    "Realised hit by position in the turn",
                    "1 is the call that a person initiated: it comes after a pause, so it shows what idle "
                    "time costs. 2 and 3+ follow within seconds; below 80 % there, affinity is broken.",
                    "percentunit",
                    Query(e.hit_by("position"), "{{position}}"),
                    low=0,
                    high=1,
                    link="sizing",
                ),
                lines(
                    "Potential hit by position in the turn",
                    "The same cut for what could be reused. A gap to the panel beside it is the backend's, a "
                    "low value here is the client's.",
                    "percentunit",
                    Query(e.potential_by("position"), "{{position}}"),
                    low=0,
                    high=1,
                    link="sizing",
                ),
                lines(
                    "Realised hit by break reason",
                    "Why the prefix of a call ended where it did. none = the prompt only grew: it should hit "
                    "nearly in full.",
                    "percentunit",
                    Query(e.hit_by("break_reason"), "{{break_reason}}"),
                    low=0,
                    high=1,
                    link="sizing",
                ),
                lines(
                    "Input tokens by break reason",
                    "How many tokens each reason concerns. model_switch, tools_changed and tool_reorder can "
                    "be avoided in the client's settings; compaction and history_edited are its habits.",
                    "short",
                    Query(
                        "sum by (break_reason) (rate(agentwatt_input_tokens_total{@}[@]))",
                        "{{break_reason}}",
                    ),
                    stacked=True,
                    low=0,
                    link="sizing",
                ),
                lines(
                    "Share of tokens after a model switch",
                    "Input tokens of calls whose stream used another model before. Each such call finds a "
                    "cold cache. Above 10 %, look at routing rules and fallbacks that change the model.",
                    "percentunit",
                    Query(
                        """(sum(rate(agentwatt_input_tokens_total{@,break_reason="model_switch"}[@]))
                        or vector(0)) / (sum(rate(agentwatt_input_tokens_total{@}[@])) > 0)""",
                        "after a model switch",
                    ),
                    low=0,
                    reach=0.2,
                    steps=thresholds((0.1, RED)),
                    link="gateway",
                ),
                lines(
                    "New tokens per call",
                    "Input tokens that no earlier call of the stream had sent: what must be computed "
                    "whatever "
                    "the cache does.",
                    "short",
                    Query(e.quantile(0.5, "agentwatt_new_tokens"), "P50"),
                    Query(e.quantile(0.95, "agentwatt_new_tokens"), "P95"),
                    low=0,
                    link="sizing",
                ),
            ],
        ),
        (
            "Affinity and engines",
            [
                lines(
                    "Hit by engine",
                    "The engines' own hit, one line each. Lines far apart under the same model: sessions "
                    "stick to some engines only. All low while the potential is high: sessions stick "
                    "to none.",
                    "percentunit",
                    Query(
                        f"sum by (instance, model_name) ({e.ENGINE_HITS}) "
                        f"/ (sum by (instance, model_name) ({e.ENGINE_QUERIES}) > 0)",
                        "{{model_name}} {{instance}}",
                    ),
                    low=0,
                    high=1,
                    link="engines",
                ),
                lines(
                    "Load by engine",
                    "Prompt tokens per second of each engine. Affinity that is too sticky shows here as one "
                    "engine that carries the load of all.",
                    "short",
                    Query(
                        "sum by (instance, model_name) (rate(vllm:prompt_tokens_total{@m}[@]))",
                        "{{model_name}} {{instance}}",
                    ),
                    stacked=True,
                    low=0,
                    link="engines",
                ),
                lines(
                    "Prompt tokens by source",
                    "Where the engines' prompt tokens came from. local_compute is prefill work; "
                    "external_kv_transfer comes from another engine or tier. From vLLM 0.16 on.",
                    "short",
                    Query("sum by (source) (rate(vllm:prompt_tokens_by_source_total{@m}[@]))", "{{source}}"),
                    stacked=True,
                    low=0,
                    link="engines",
                ),
                lines(
                    "Can the engine's hit be believed?",
                    "Tokens looked up ÷ prompt tokens, and preemptions. Above 1.05 lookups are counted more "
                    "than once (requests that failed to get blocks), and with preemptions the counters miss "
                    "the recomputation: trust the gateway's figure then.",
                    "short",
                    Query(
                        f"sum({e.ENGINE_QUERIES}) / (sum(rate(vllm:prompt_tokens_total{{@m}}[@])) > 0)",
                        "lookups ÷ prompts",
                    ),
                    Query("sum(rate(vllm:num_preemptions_total{@m}[@]))", "preemptions/s"),
                    low=0,
                    steps=thresholds((1.05, RED)),
                    link="engines",
                ),
            ],
        ),
    ]
