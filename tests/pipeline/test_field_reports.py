"""Public reports of operators about ledgers, usage, engines, time and databases, each with our test of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent

#: report -> (severity, tests as "file::name")
REPORTS: dict[str, tuple[str, tuple[str, ...]]] = {
    # SpendLogs rows: missing, duplicated, late, mislabelled
    "BerriAI/litellm#35958": (
        "H",
        (
            "sql/test_staging.py::test_an_open_record_without_an_end_stays_open_and_has_no_end",
            "test_figures_series.py::test_losses_and_coverage_are_shares_of_all_calls_by_route_and_version",
        ),
    ),
    "BerriAI/litellm#36426": (
        "M",
        (
            "sql/test_staging.py::test_a_row_without_our_object_joins_by_an_unambiguous_call_id",
            "test_reconcile.py::test_every_class_of_call_is_told_apart",
        ),
    ),
    "BerriAI/litellm#39749": (
        "H",
        (
            "sql/test_staging.py::test_unattributed_rows_are_kept_even_when_their_ids_collide",
            "test_reconcile.py::test_every_class_of_call_is_told_apart",
        ),
    ),
    "BerriAI/litellm#35563": (
        "M",
        ("sql/test_staging.py::test_a_call_id_that_two_calls_share_joins_nothing",),
    ),
    "BerriAI/litellm#39455": (
        "H",
        ("sql/test_staging.py::test_retries_are_attempts_of_one_call_and_their_spend_adds_up",),
    ),
    "BerriAI/litellm#39057": (
        "H",
        (
            "test_figures.py::test_response_cache_hits_and_rejected_calls_count_as_calls_but_not_in_the_hit",
            "sql/test_facts.py::test_only_generation_that_reached_an_engine_is_engine_load",
        ),
    ),
    "BerriAI/litellm#37260": (
        "L",
        ("sql/test_staging.py::test_a_failure_refused_before_our_hook_is_rejected_not_engine_load",),
    ),
    "BerriAI/litellm#24888": (
        "M",
        ("sql/test_staging.py::test_a_failures_zero_duration_is_unknown_and_counted",),
    ),
    # usage and cached-token accounting
    "larsderidder/context-lens#51": (
        "H",
        ("extract/test_spend_row.py::test_usage_is_one_meaning_in_many_spellings",),
    ),
    "BerriAI/litellm!26919": (
        "M",
        ("test_figures_series.py::test_written_tokens_are_a_third_share_beside_hits_and_misses",),
    ),
    "BerriAI/litellm#18750": (
        "M",
        (
            "extract/test_spend_row.py::test_impossible_usage_is_unknown_and_counted",
            "sql/test_staging.py::test_impossible_cached_tokens_are_set_aside_and_counted",
        ),
    ),
    "maximhq/bifrost#4746": (
        "M",
        ("test_figures.py::test_a_mode_that_never_reports_hits_while_its_twin_does_is_set_aside",),
    ),
    "BerriAI/litellm#36091": (
        "H",
        (
            "extract/test_spend_row.py::test_usage_is_one_meaning_in_many_spellings",
            "sql/test_staging.py::test_cached_tokens_of_aborted_estimated_and_silent_calls_are_unknown",
        ),
    ),
    "vllm-project/vllm!40912": (
        "H",
        (
            "sql/test_staging.py::test_zero_cached_tokens_are_a_miss_not_unknown",
            "test_figures.py::test_the_hit_is_a_ratio_of_sums_over_reporting_calls_with_coverage",
        ),
    ),
    "vllm-project/vllm#7299": (
        "M",
        ("sql/test_staging.py::test_cached_tokens_of_aborted_estimated_and_silent_calls_are_unknown",),
    ),
    # vLLM metrics
    "vllm-project/vllm#25780": (
        "M",
        (
            "test_figures_series.py::test_preemptions_stand_beside_the_engines_hit",
            "test_figures_series.py::test_the_engines_counters_stand_beside_the_gateways_and_their_difference_is_told",
        ),
    ),
    "vllm-project/vllm#43736": (
        "M",
        ("test_figures.py::test_an_engine_that_counts_more_queries_than_prompt_tokens_is_marked",),
    ),
    "vllm-project/vllm!29330": (
        "H",
        (
            "test_figures.py::test_old_and_new_names_of_one_counter_are_never_added",
            "extract/test_series.py::test_what_is_not_there_is_an_error_that_names_what_was_looked_for",
        ),
    ),
    "vllm-project/vllm!14136": (
        "L",
        ("test_figures_series.py::test_an_engines_hit_is_hits_by_queries_and_null_without_a_query",),
    ),
    "volcano-sh/kthena!1042": (
        "H",
        (
            "extract/test_series.py::test_after_a_restart_the_new_value_is_the_increase",
            "extract/test_series.py::test_a_gap_or_a_missing_sample_is_unknown_and_not_zero",
            "test_figures.py::test_engine_counters_survive_a_restart_and_a_renaming",
        ),
    ),
    # time, human hours, call counts
    "BerriAI/litellm#25234": (
        "H",
        (
            "extract/test_spend_logs.py::test_instants_do_not_depend_on_the_servers_time_zone",
            "test_robustness.py::test_the_night_the_clocks_change_loses_and_doubles_no_call",
        ),
    ),
    "BerriAI/litellm#29568": (
        "M",
        (
            "test_robustness.py::test_the_days_of_a_range_are_the_range_in_any_time_zone",
            "test_figures.py::test_counts_of_days_add_up_to_the_range_and_the_end_is_not_included",
        ),
    ),
    "BerriAI/litellm#41859": (
        "M",
        ("test_figures_series.py::test_a_websocket_logged_as_one_record_is_no_call_of_generation",),
    ),
    "adewale/claude-history-explorer#1": (
        "H",
        (
            "test_figures.py::test_a_gap_up_to_the_cap_counts_in_full_and_a_longer_one_not_at_all",
            "test_figures.py::test_a_days_human_hours_are_at_most_the_length_of_the_local_day",
            "test_robustness.py::test_a_session_of_thirty_days_has_the_hours_that_somebody_worked_in_it",
        ),
    ),
    # databases and drift of schemas
    "duckdb/duckdb-postgres#308": (
        "M",
        (
            "extract/test_spend_logs.py::test_metadata_of_any_shape_gives_a_row",
            "extract/test_spend_logs.py::test_our_object_survives_a_double_encoded_row",
        ),
    ),
    "duckdb/duckdb-postgres#381": (
        "H",
        (
            "extract/test_spend_logs.py::test_reading_again_replaces_rows_and_takes_late_ones",
            "extract/test_spend_staging.py::test_a_repeated_row_keeps_what_was_read_last",
            "extract/test_spend_logs.py::test_pages_lose_and_repeat_nothing_among_equal_start_times",
        ),
    ),
    "duckdb/duckdb#18767": (
        "L",
        ("extract/test_spend_staging.py::test_an_instant_is_the_same_in_every_spelling",),
    ),
    "BerriAI/litellm#4717": (
        "H",
        (
            "extract/test_spend_logs.py::test_missing_columns_are_null_and_named",
            "extract/test_spend_logs.py::test_every_layout_gives_the_same_typed_row",
        ),
    ),
    "BerriAI/litellm#40119": (
        "L",
        ("extract/test_spend_logs.py::test_the_same_request_id_in_two_partitions_stays_two_rows",),
    ),
    "BerriAI/litellm#10667": (
        "M",
        (
            "extract/test_spend_logs.py::test_cache_hit_text_has_three_states",
            "extract/test_spend_logs.py::test_times_kept_as_text_are_read_in_every_spelling",
        ),
    ),
}


def defined(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize("report", REPORTS)
def test_each_report_has_a_test_that_exists(report: str) -> None:
    severity, tests = REPORTS[report]
    assert severity in ("H", "M", "L")
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        assert name.startswith("test_"), test
        assert name in defined(ROOT / file), test


def test_the_reports_of_every_group_are_there() -> None:
    assert len(REPORTS) == 30
    assert sum(severity == "H" for severity, _ in REPORTS.values()) >= 13
