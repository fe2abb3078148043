"""Quantities by day and week and by who, on cases whose answers are worked out by hand."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures, run
from pipeline.errors import ConfigError
from pipeline.figures.registry import DIMENSIONS, QUANTITIES, SECTIONS
from pipeline.figures.relations import RELATIONS
from pipeline.figures.series import COLUMNS, series
from tests.pipeline.sql.synthetic import MONDAY, Settings, build, event, metric, scenario, session


def at(seconds: float) -> Any:
    return MONDAY + timedelta(seconds=seconds)


def values(
    lake: Path, name: str, *, by: str = "all", period: str = "window", **options: Any
) -> dict[Any, Any]:
    """Values of one quantity of one dimension, by part, or by (start, member, part)."""
    settings = options.pop("settings", Settings())
    table = series(lake, settings, (name,), period=period, by=(by,), **options)  # type: ignore[arg-type]
    rows = [r for r in table.rows() if r["dimension"] == by]
    if by == "all" and period == "window":
        return {r["part"]: r["value"] for r in rows}
    return {(r["start"], r["member"], r["part"]): r["value"] for r in rows}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("series")
    scenario(root)
    run.build(root, Settings())
    return root


def test_every_quantity_has_a_row_for_every_member_of_each_of_its_dimensions(lake: Path) -> None:
    rows = series(lake, Settings(), period="day", by=tuple(DIMENSIONS)).rows()
    assert list(rows[0]) == list(COLUMNS)
    days = {date(2026, 3, 2), date(2026, 3, 3)}
    for quantity in QUANTITIES.values():
        mine = [r for r in rows if r["figure"] == quantity.name]
        assert {r["dimension"] for r in mine} == set(quantity.dimensions) - {
            "key"
        }  # no key has an alias here
        assert {r["start"] for r in mine} == days
        assert all((r["value"] is None) == (r["reason"] is not None) for r in mine), quantity.name


def test_each_row_tells_its_coverage_and_shares_of_evidence(lake: Path) -> None:
    for row in series(lake, Settings(), period="week", by=("all", "client")).rows():
        for of in ("session", "turn"):
            assert sum(row[f"{of}_e{n}"] for n in range(1, 6)) == pytest.approx(1)
        assert row["coverage"] is None or 0 <= row["coverage"] <= 1


def test_a_pooled_row_always_comes_with_its_profiles(lake: Path) -> None:
    rows = series(lake, Settings(), ("calls_per_turn",), period="week", by=("all",)).rows()
    assert [r["dimension"] for r in rows] == ["all", "profile"]


def test_additive_quantities_of_days_add_up_to_those_of_the_week(lake: Path) -> None:
    ratios = [
        q.name for q in QUANTITIES.values() if q.relation in {"call_sum", "regime", "potential", "in_turn"}
    ]
    names = [
        n for n in ratios if n not in {"mean_concurrency", "profile_share"}
    ]  # hours, and shares of others
    by = ("all", "team", "client", "model", "profile")
    daily = series(lake, Settings(), names, period="day", by=by).rows()
    weekly = series(lake, Settings(), names, period="week", by=by).rows()
    for row in weekly:
        days = [
            r
            for r in daily
            if all(r[k] == row[k] for k in ("figure", "part", "dimension", "member"))
            and r["value"] is not None
        ]
        assert sum(r["top"] for r in days) == pytest.approx(row["top"] or 0)
        assert sum(r["bottom"] for r in days) == pytest.approx(row["bottom"] or 0)
    assert any(row["value"] for row in weekly)


def test_the_window_as_one_period_equals_the_four_figures(lake: Path) -> None:
    four = figures.compute(lake, Settings()).figures
    human = {row["idle_cap_s"]: row for row in four["calls_per_human_hour"]["values"]}
    for cap, name in ((300, "g = 5 min"), (900, "g = 15 min"), (1800, "g = 30 min")):
        assert values(lake, "calls_per_human_hour")[name] == pytest.approx(human[cap]["value"])
        assert values(lake, "duty_cycle")[name] == pytest.approx(human[cap]["duty_cycle"])
        assert values(lake, "active_people")[name] == pytest.approx(human[cap]["mean_active_people"])
    assert values(lake, "amplification")["all"] == pytest.approx(human[300]["amplification"])
    assert values(lake, "mean_concurrency")["all"] == pytest.approx(human[300]["mean_concurrency"], rel=0.01)
    length = values(lake, "prompt_length")
    assert {k: length[k] for k in ("p50", "p90", "p95", "p99", "mean")} == pytest.approx(
        four["prompt_length"]["value"]
    )
    assert values(lake, "input_to_output")["all"] == pytest.approx(
        four["prompt_length"]["input_to_output"]["value"]
    )
    assert values(lake, "realised_hit")["all"] == pytest.approx(four["prefix_hit"]["value"]["realised"])
    assert values(lake, "potential_hit")["300 s"] == pytest.approx(
        four["prefix_hit"]["value"]["potential_300"]
    )
    in_turn = four["calls_per_human_hour"]["calls_per_in_turn_hour"]["values"]
    assert values(lake, "calls_per_in_turn_hour") == pytest.approx(in_turn)
    for name in ("calls_per_user_prompt", "turns_per_session", "calls_per_turn"):
        assert values(lake, name)["all"] == pytest.approx(four["calls_per_human_hour"][name]["value"])


@pytest.mark.parametrize("period", ["day", "week", "window"])
def test_people_times_duty_times_amplification_is_the_mean_concurrency(lake: Path, period: str) -> None:
    people = values(lake, "active_people", period=period, by="all")
    duty = values(lake, "duty_cycle", period=period, by="all")
    amplification = values(lake, "amplification", period=period, by="all")
    mean = values(lake, "mean_concurrency", period=period, by="all")
    assert people
    for key, active in people.items():
        plain = "all" if period == "window" else (*key[:2], "all")
        product = active * duty[key] * amplification[plain]
        assert product == pytest.approx(mean[plain], rel=0.01)


# -- work


def test_failing_turns_are_set_against_those_without_a_failure(tmp_path: Path) -> None:
    def calls(turn: str, number: int, offset: float, **fields: Any) -> list[dict[str, Any]]:
        return [
            event(
                f"{turn}{n}", at(offset + 5 * n), turn_id=turn, initiator="user" if n == 0 else "agent",
                **(fields if n == number - 1 else {}),
            )
            for n in range(number)
        ]  # fmt: skip

    lake = build(
        tmp_path,
        [
            *calls("good", 2, 0),
            *calls("fine", 4, 100),
            *calls("bad", 9, 200, outcome="failure", error_class="Timeout"),
        ],
    )
    assert values(lake, "failing_turn_share")["all"] == pytest.approx(1 / 3)
    assert values(lake, "failing_turn_amplification")["all"] == pytest.approx(9 / 3)


def test_calls_of_subagents_raise_concurrency_inside_a_turn_and_the_subagent_share(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", duration_ms=10_000),
            event("b", at(2), agent_id="x", agent_kind="subagent", duration_ms=8_000),
            event("c", at(4), agent_id="y", agent_kind="subagent", duration_ms=6_000),
            event("d", at(20), duration_ms=10_000),
        ],
    )
    assert values(lake, "intra_turn_concurrency")["all"] == pytest.approx((10 + 8 + 6 + 10) / 20)
    assert values(lake, "subagent_share")["all"] == pytest.approx(0.5)
    assert values(lake, "agent_started_share")["all"] == pytest.approx(3 / 4)


def test_calls_in_flight_are_weighted_by_time_and_shown_by_hour_of_the_business_week(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", duration_ms=3_600_000),
            event("b", at(0), duration_ms=720_000),  # a fifth of the hour
            event("c", at(0), duration_ms=144_000),  # a twenty-fifth
        ],
    )
    window = {"since": MONDAY, "until": MONDAY + timedelta(hours=1)}
    assert values(lake, "calls_in_flight", **window) == {"p50": 1, "p95": 2, "max": 3}
    settings = Settings(business_time_zone="Asia/Tokyo")
    figure = figures.compute(lake, settings, **window).figures["calls_per_human_hour"]
    (hour,) = figure["concurrency_quantiles_by_hour_of_week"]
    assert hour["hour"] == 17  # Monday 08:00 UTC
    assert (hour["p50"], hour["p90"], hour["p99"], hour["max"], hour["seconds"]) == (1, 2, 3, 3, 3600)
    assert hour["mean"] == pytest.approx(1 + 0.2 + 0.04)


def test_levels_of_concurrency_fill_every_hour_and_integrate_to_the_time_in_flight(lake: Path) -> None:
    rows = figures.load(lake, "marts/concurrency_level").rows()
    calls = figures.load(lake, "facts/call").rows()
    assert sum(r["calls_in_flight"] * r["seconds"] for r in rows) == pytest.approx(
        sum(c["duration_ms"] for c in calls if c["is_engine"]) / 1000
    )
    by_hour: dict[Any, float] = {}
    for r in rows:
        by_hour[r["hour_start"]] = by_hour.get(r["hour_start"], 0.0) + r["seconds"]
    inner = sorted(by_hour)[1:-1]
    assert len(inner) > 20
    assert {by_hour[h] for h in inner} == {3600.0}


# -- profiles


@pytest.mark.parametrize(
    ("calls", "tokens", "profile"),
    [
        (1, 20_000, "chat-only"),
        (1, 900_000, "chat-only"),  # a long prompt without a tool is still a chat
        (3, 60_000, "readers"),
        (5, 80_000, "coders"),
        (8, 90_000, "deep-loop"),  # 720,000 tokens a turn
        (16, 1_000, "deep-loop"),  # sixteen calls a turn
        (15, 1_000, "readers"),
    ],
)
def test_a_visit_is_of_one_profile_by_its_loops_and_its_tokens_a_turn(
    tmp_path: Path, calls: int, tokens: int, profile: str
) -> None:
    lake = build(
        tmp_path,
        [
            event(
                f"e{turn}-{n:02d}", at(100 * turn + 3 * n), turn_id=f"t{turn}", input_tokens=tokens,
                initiator="agent" if n else "user",
            )
            for turn in range(3) for n in range(calls)
        ],
    )  # fmt: skip
    assert values(lake, "profile_share") == {profile: 1.0}


def test_calls_without_a_session_or_a_turn_are_of_no_profile(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), session_key=None, session_evidence="E5"),
            event("b", at(0), initiator="agent"),
            event("c", at(10), session_key="s9", agent_id="x", agent_kind="subagent"),
        ],
    )
    shares = values(lake, "profile_share")
    assert shares == pytest.approx({"unattributed": 1 / 3, "unknown": 1 / 3, "readers": 1 / 3})


def test_profiles_spread_tokens_a_turn_that_the_pool_hides(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            *session("chat", MONDAY, turns=4, calls=1, user="u1"),
            *[
                event(f"d{n:02d}", at(30 * n), session_key="deep", turn_id="d", input_tokens=60_000,
                      initiator="agent" if n else "user", user_hash="u2")
                for n in range(20)
            ],
        ],
    )  # fmt: skip
    by = values(lake, "tokens_per_turn", by="profile")
    assert {member: v for (_, member, _), v in by.items()} == {"chat-only": 6500.0, "deep-loop": 1_200_000.0}
    human = figures.compute(lake, Settings()).figures["calls_per_human_hour"]["by"]["profile"]
    assert {r["profile"] for r in human} == {"chat-only", "deep-loop"}


def test_a_visit_that_runs_over_midnight_keeps_its_profile_on_both_days(tmp_path: Path) -> None:
    midnight = MONDAY.replace(hour=23, minute=59)
    lake = build(tmp_path, session("s", midnight, turns=1, calls=40, gap_s=4))
    by = values(lake, "prompt_length", by="profile", period="day")
    assert {(start, member) for start, member, _ in by} == {
        (date(2026, 3, 2), "deep-loop"), (date(2026, 3, 3), "deep-loop"),
    }  # fmt: skip


# -- prompts, reuse, outcomes, gateway


def test_ratios_of_tokens_rest_on_the_calls_that_know_all_their_parts(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), input_tokens=1000, cached_tokens=600, output_tokens=100),
            event("b", at(5), input_tokens=3000, cached_tokens=None, output_tokens=50),
            event("c", at(9), input_tokens=500, cached_tokens=100, output_tokens=None),
        ],
    )
    assert values(lake, "input_to_output")["all"] == pytest.approx(4000 / 150)
    assert values(lake, "new_to_output")["all"] == pytest.approx(400 / 100)
    assert values(lake, "new_tokens_per_call")["mean"] == pytest.approx((400 + 400) / 2)


def test_the_context_at_the_end_is_that_of_the_last_main_call_of_each_visit(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", input_tokens=10_000, output_tokens=100),
            event("b", at(5), input_tokens=20_000, output_tokens=200),
            event("c", at(9), agent_id="x", agent_kind="subagent", input_tokens=90_000),
            event("d", at(12), initiator="auxiliary", input_tokens=300),
            event("e", at(9000), initiator="user", input_tokens=31_000, output_tokens=None),
        ],
    )
    assert values(lake, "context_at_end")["p50"] == pytest.approx((20_200 + 31_000) / 2)


def test_catalogue_tokens_are_counted_ones_or_the_catalogues_share_of_the_bytes(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), count_catalogue_tokens=5000, tool_count=9, tools_bytes=9),
            event("b", at(5), input_tokens=8000, prompt_bytes=32_000, tools_bytes=4_000, tool_count=3),
            event("c", at(9), tool_count=0, tools_bytes=0),
            event("d", at(12)),
        ],
    )
    assert values(lake, "catalogue_tokens_per_call")["all"] == pytest.approx((5000 + 1000 + 0) / 3)


def test_the_reuse_gap_is_what_was_possible_less_what_was_reported_on_the_same_calls(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"prompt_bytes": 4000, "shared_bytes": 3000, "prefix_steps": "[[5, 3000]]"}
    lake = build(
        tmp_path,
        [
            event("a", at(0), **shared, cached_tokens=500),
            event("b", at(9), **shared, cached_tokens=None),
            event("c", at(20), prompt_bytes=None, shared_bytes=None, cached_tokens=900),
        ],
    )
    assert values(lake, "reuse_gap")["all"] == pytest.approx((750 - 500) / 1000)
    rows = series(lake, Settings(), ("reuse_gap",), period="window").rows()
    assert rows[0]["coverage"] == pytest.approx(1 / 3)


def test_the_prefix_hit_is_told_for_every_regime(tmp_path: Path) -> None:
    reasons = ("system_changed", "tools_changed", "history_edited", "retrieved_context", "compaction")
    lake = build(
        tmp_path,
        [event("a", at(0), initiator="user")]
        + [
            event(f"b{n}", at(60 * (n + 1)), break_reason=reason, cached_tokens=100 * (n + 1),
                  prompt_bytes=4000, shared_bytes=2000, prefix_steps="[[60, 2000]]")
            for n, reason in enumerate(reasons)
        ],
    )  # fmt: skip
    realised = values(lake, "realised_hit_by_regime")
    for n, reason in enumerate(reasons):
        assert realised[f"break: {reason}"] == pytest.approx(0.1 * (n + 1))
    assert realised["idle: 10–60 s"] == pytest.approx(0.3)
    assert values(lake, "potential_hit_by_regime")["category: within"] == pytest.approx(0.5)
    assert {"position: 1", "position: 2", "position: 3+"} <= set(realised)


def test_the_engines_counters_stand_beside_the_gateways_and_their_difference_is_told(tmp_path: Path) -> None:
    names = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
    metrics = [
        metric(at(-60 + 600 * n), name, 1000 * n * share)
        for name, share in zip(names, (0.9, 1), strict=True)
        for n in range(6)
    ]
    calls = [event("a", at(10), cached_tokens=700), event("b", at(700), cached_tokens=700)]
    lake = build(tmp_path, calls, metrics=metrics)
    assert values(lake, "engine_hit")["all"] == pytest.approx(0.9)
    assert values(lake, "engine_disagreement")["all"] == pytest.approx(0.9 - 0.7)


def test_calls_at_hosted_providers_are_not_set_against_our_engines(tmp_path: Path) -> None:
    names = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
    metrics = [metric(at(600 * n), name, 1000 * n) for n in range(5) for name in names]
    lake = build(tmp_path, [event("a", at(10), provider="anthropic", cached_tokens=1)], metrics=metrics)
    (row,) = series(lake, Settings(), ("engine_disagreement",), period="window").rows()
    assert row["value"] is None
    assert "no hour with engine counters" in row["reason"]


def test_written_tokens_are_a_third_share_beside_hits_and_misses(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), input_tokens=15_635, cached_tokens=0, cache_write_tokens=15_624),
            event("b", at(9), input_tokens=17_000, cached_tokens=16_000, cache_write_tokens=500),
            event("c", at(20), input_tokens=5_000, cached_tokens=0, cache_write_tokens=None),
        ],
    )
    assert values(lake, "cache_write_share")["all"] == pytest.approx(16_124 / 32_635)
    assert values(lake, "realised_hit")["all"] == pytest.approx(16_000 / 37_635)


def engine(*samples: tuple[float, float, float]) -> list[dict[str, Any]]:
    """Samples of an engine's counters: (second, hits, queries)."""
    return [
        metric(at(second), f"vllm:prefix_cache_{name}_total", value)
        for second, hits, queries in samples
        for name, value in (("hits", hits), ("queries", queries))
    ]


def test_an_engines_hit_is_hits_by_queries_and_null_without_a_query(tmp_path: Path) -> None:
    calls = [event("a", at(0)), event("b", at(900))]
    busy = build(tmp_path / "busy", calls, metrics=engine((-60, 0, 0), (600, 30, 100)))
    idle = build(tmp_path / "idle", calls, metrics=engine((-60, 30, 100), (600, 30, 100)))
    assert values(busy, "engine_hit") == {"all": pytest.approx(0.30)}
    (row,) = series(idle, Settings(), ("engine_hit",), period="window").rows()
    assert row["value"] is None
    assert row["reason"] == "no engine counters, or no query"


def test_preemptions_stand_beside_the_engines_hit(tmp_path: Path) -> None:
    more = [metric(at(s), "vllm:num_preemptions_total", n) for s, n in ((-60, 2), (600, 9))]
    lake = build(
        tmp_path,
        [event("a", at(0)), event("b", at(900))],
        metrics=[*engine((-60, 0, 0), (600, 30, 100)), *more],
    )
    assert figures.compute(lake, Settings()).figures["prefix_hit"]["engine"]["preemptions"] == 7


def test_a_websocket_logged_as_one_record_is_no_call_of_generation(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user"),
            event("w", at(60), route=None, call_type="_aresponses_websocket", duration_ms=3_600_000,
                  input_tokens=900_000, ttft_ms=None, session_key=None, session_evidence="E5"),
        ],
    )  # fmt: skip
    found = figures.compute(lake, Settings())
    assert found.counts["calls_not_of_generation"] == 1
    assert found.figures["prompt_length"]["value"]["p50"] == 1000
    assert found.figures["calls_per_human_hour"]["coverage"]["attended_share"] == 0.5
    assert values(lake, "mean_concurrency", until=at(3600))["all"] == pytest.approx(2 / 3600)


def test_outcomes_tell_latency_of_tasks_and_turns_speed_and_where_time_went(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", duration_ms=10_000, ttft_ms=2000, output_tokens=81),
            event("b", at(40), duration_ms=10_000, ttft_ms=6000, output_tokens=81, input_tokens=50_000,
                  overhead_ms=1000.0),
            event("c", at(300), initiator="user", duration_ms=20_000, ttft_ms=None),
        ],
    )  # fmt: skip
    assert values(lake, "turn_latency")["p50"] == pytest.approx((50 + 20) / 2)
    assert values(lake, "task_latency")["p90"] == pytest.approx(50 + 20)
    speed = values(lake, "interactivity")
    assert speed["p50"] == pytest.approx((80 / 8 + 80 / 4) / 2)
    assert speed["slow90"] == pytest.approx(10 + 0.1 * 10)
    first = values(lake, "first_token_time")
    assert (first["≤8K p95"], first["40–80K p95"]) == pytest.approx((2, 6))
    assert values(lake, "decode_share")["all"] == pytest.approx((8 + 4) / (8 + 4 + 2 + 5))


def test_the_gateways_phases_and_its_counting_are_told_by_size(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), queue_ms=1.0, overhead_ms=10.0, count_ms=4.0, tools_bytes=0),
            event("b", at(5), queue_ms=3.0, overhead_ms=30.0, count_ms=8.0, tools_bytes=0),
            event("c", at(9), input_tokens=50_000, tools_bytes=20_000, count_ms=90.0),
        ],
    )
    overhead = values(lake, "gateway_overhead")
    assert (overhead["queue mean"], overhead["overhead p50"], overhead["count p50"]) == (2, 20, 8)
    cost = values(lake, "counting_cost")
    assert cost["≤8K tokens, catalogue none mean"] == pytest.approx(6)
    assert cost["40–80K tokens, catalogue 16–64 kB p95"] == pytest.approx(90)


def test_losses_and_coverage_are_shares_of_all_calls_by_route_and_version(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), litellm_version="1.102.3"),
            event("b", at(5), outcome="aborted", cached_tokens=None, litellm_version="1.108.7"),
            event(
                "c",
                at(9),
                route="responses",
                session_key=None,
                session_evidence="E5",
                litellm_version="1.108.7",
            ),
            event("d", at(12), outcome="failure", litellm_version="1.108.7"),
        ],
    )
    losses = values(lake, "losses")
    assert (losses["aborted"], losses["failed"], losses["without a session"]) == (0.25, 0.25, 0.25)
    assert losses["known from its event alone"] == 1
    covered = values(lake, "coverage_by_version")
    assert covered["chat, LiteLLM 1.102.3: cached tokens"] == 1
    assert covered["chat, LiteLLM 1.108.7: cached tokens"] == 0.5
    assert covered["responses, LiteLLM 1.108.7: session"] == 0


# -- who and when


def test_coverage_is_cut_into_days_of_the_business_time_zone_like_every_other_figure(tmp_path: Path) -> None:
    sunday = MONDAY - timedelta(hours=9)  # Sunday 23:00 UTC is Monday in Tokyo
    lake = build(tmp_path, [event("a", sunday, litellm_version="1"), event("b", MONDAY, litellm_version="2")])
    for zone, first in (("UTC", date(2026, 3, 1)), ("Asia/Tokyo", date(2026, 3, 2))):
        found = values(lake, "coverage_by_version", period="day", settings=Settings(business_time_zone=zone))
        days = {(start, part) for start, _, part in found if part.endswith(": user")}
        monday = date(2026, 3, 2)
        assert days == {(first, "chat, LiteLLM 1: user"), (monday, "chat, LiteLLM 2: user")}


def test_a_day_is_a_day_of_the_business_time_zone_and_a_week_begins_on_its_monday(tmp_path: Path) -> None:
    sunday = MONDAY - timedelta(hours=9)  # Sunday 23:00 UTC is Monday in Tokyo
    lake = build(tmp_path, [event("a", sunday, initiator="user"), event("b", MONDAY, initiator="user")])
    for zone, weeks in (("UTC", {date(2026, 2, 23), date(2026, 3, 2)}), ("Asia/Tokyo", {date(2026, 3, 2)})):
        found = values(lake, "prompt_length", period="week", settings=Settings(business_time_zone=zone))
        assert {start for start, _, _ in found} == weeks


def test_a_quantity_is_loaded_by_its_name_like_any_table(lake: Path) -> None:
    table = figures.load(lake, "calls_per_turn", period="week", by=["team"], columns=["member", "value"])
    assert table.rows() == [
        {"member": "t1", "value": pytest.approx((4 * 5 + 2 * 3 + 2 * 3) / 8)},
        {"member": "t2", "value": pytest.approx(4)},
    ]
    assert "calls_per_turn" in figures.names()
    frame = figures.load(lake, "realised_hit").pandas()
    assert set(frame["dimension"]) == {"all", "profile"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ("calls_per_week",)}, "There is no figure calls_per_week"),
        ({"by": ("user",)}, "There is no dimension user"),
        ({"period": "month"}, "There is no period month"),
        ({"since": date(2030, 1, 1)}, "holds no call in the window"),
    ],
)
def test_what_does_not_exist_is_explained(lake: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        series(lake, Settings(), **options)


def test_the_registry_is_whole() -> None:
    assert {q.name for s in SECTIONS for q in s.quantities} == set(QUANTITIES)
    for quantity in QUANTITIES.values():
        assert bool(quantity.stats) != bool(quantity.top)
        assert quantity.relation in RELATIONS
        assert set(quantity.dimensions) <= set(DIMENSIONS)
