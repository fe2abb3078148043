"""Public reports of operators of such gateways, each with the test that keeps us from repeating it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent

#: report -> (severity, tests as "file::name", or why it does not concern the plugin)
REPORTS: dict[str, tuple[str, tuple[str, ...] | str]] = {
    # identity: session, turn, agent, user, and the metadata channel
    "BerriAI/litellm#15103": (
        "H",
        (
            "test_payloads.py::test_the_clients_metadata_is_found_on_each_kind_of_route",
            "test_identity.py::test_each_client_names_its_session",
        ),
    ),
    "BerriAI/litellm#31584": (
        "H",
        (
            "test_hook.py::test_a_success_completes_the_row_whether_the_bucket_was_copied_or_not",
            "sinks/test_spend_logs.py::test_the_bucket_is_the_proxys_own_or_none",
        ),
    ),
    "BerriAI/litellm!26120": (
        "M",
        (
            "test_hook.py::test_a_pass_through_call_finds_its_session_when_its_headers_are_known",
            "test_outcomes.py::test_each_request_leaves_one_open_and_one_final_record",
        ),
    ),
    "BerriAI/litellm#14201": (
        "H",
        (
            "test_hook.py::test_metadata_of_any_type_is_survived_and_left_as_it_was",
            "test_outcomes.py::test_each_request_leaves_one_open_and_one_final_record",
        ),
    ),
    "BerriAI/litellm#35197": (
        "H",
        (
            "test_outcomes.py::test_nothing_of_ours_reaches_the_provider",
            "test_hook.py::test_a_failure_tags_the_metadata_that_its_row_is_built_from",
        ),
    ),
    "BerriAI/litellm#30662": ("H", ("test_hook.py::test_nothing_but_json_values_is_put_into_the_request",)),
    "raine/claude-code-proxy!156": (
        "M",
        (
            "test_identity.py::test_each_client_names_its_session",
            "test_identity.py::test_headers_of_odd_types_are_dropped_and_names_are_made_uniform",
        ),
    ),
    "anomalyco/opencode#42694": (
        "H",
        ("test_identity.py::test_without_an_id_the_session_is_inferred_from_its_head_and_says_so",),
    ),
    "anthropics/claude-code#49207": (
        "H",
        (
            "test_agents.py::test_parallel_subagents_of_one_kind_are_told_apart",
            "test_recorder.py::test_a_subagent_that_its_client_does_not_name_is_a_stream_of_its_own",
        ),
    ),
    "BYK/loreai!1701": (
        "M",
        ("test_recorder.py::test_a_short_first_call_of_a_named_subagent_is_no_compaction_of_its_parent",),
    ),
    "BerriAI/litellm!31688": (
        "M",
        (
            "test_identity.py::test_the_same_id_of_two_users_is_two_sessions",
            "test_recorder.py::test_equal_ids_of_two_tenants_never_share_a_stream",
        ),
    ),
    "BerriAI/litellm#27955": (
        "M",
        (
            "test_hook.py::test_a_call_is_found_by_context_when_the_success_lost_our_mark",
            "test_hook.py::test_a_success_completes_the_row_whether_the_bucket_was_copied_or_not",
        ),
    ),
    # rows: missing, duplicated, late, mislabelled
    "BerriAI/litellm#35958": (
        "H",
        (
            "test_hook.py::test_a_request_whose_task_ends_without_any_event_is_closed_as_aborted",
            "test_recorder.py::test_a_call_that_is_open_for_too_long_is_closed_as_aborted_and_a_late_success_wins",
        ),
    ),
    "BerriAI/litellm#36426": (
        "M",
        ("test_payloads.py::test_without_a_logging_payload_the_record_is_degraded_not_lost",),
    ),
    "BerriAI/litellm#39749": (
        "H",
        "response ids are never read: event_id is ours; colliding rows are found by the pipeline",
    ),
    "BerriAI/litellm#35563": ("M", ("test_recorder.py::test_client_sent_call_ids_may_repeat",)),
    "BerriAI/litellm#39455": (
        "H",
        (
            "test_hook.py::test_failed_tries_count_as_attempts_of_the_one_call",
            "test_payloads.py::test_attempts_count_retries_and_fallbacks",
        ),
    ),
    "BerriAI/litellm#39057": (
        "H",
        (
            "test_payloads.py::test_an_answer_from_the_response_cache_is_marked",
            "sinks/test_metrics.py::test_calls_that_did_no_whole_engine_work_stay_out_of_the_token_figures",
        ),
    ),
    "BerriAI/litellm#24888": (
        "M",
        (
            "test_recorder.py::test_instants_outside_the_call_are_unknown_and_a_stepped_clock_bends_no_duration",
        ),
    ),
    # callbacks: twice, never, or harming the request
    "BerriAI/litellm#5118": ("H", ("test_hook.py::test_success_events_that_fire_twice_count_once",)),
    "BerriAI/litellm!31172": (
        "H",
        (
            "test_hook.py::test_hooks_that_slow_or_break_requests_are_left_alone",
            "test_outcomes.py::test_each_request_leaves_one_open_and_one_final_record",
        ),
    ),
    "BerriAI/litellm#27518": (
        "M",
        ("test_hook.py::test_a_success_that_no_pre_call_hook_saw_is_built_from_scratch",),
    ),
    "BerriAI/litellm!39869": (
        "H",
        (
            "test_hook.py::test_a_thread_may_iterate_the_logged_metadata_while_we_write",
            "test_hook.py::test_an_error_of_ours_leaves_the_request_as_it_was",
        ),
    ),
    "BerriAI/litellm!7930": (
        "H",
        (
            "sinks/test_redis_stream.py::test_a_hanging_server_is_given_up_within_the_deadline_and_put_never_waits",
        ),
    ),
    # usage and cached tokens
    "larsderidder/context-lens#51": (
        "H",
        ("test_usage.py::test_inclusive_and_exclusive_records_of_the_same_call_agree",),
    ),
    "BerriAI/litellm!26919": ("M", ("test_usage.py::test_fresh_tokens_are_neither_read_nor_written",)),
    "BerriAI/litellm#18750": (
        "M",
        (
            "test_usage.py::test_each_provider_shape_gives_its_tokens",
            "test_usage.py::test_negative_counts_are_flagged_and_never_used",
        ),
    ),
    "maximhq/bifrost#4746": (
        "M",
        "a provider whose streams always say zero shows only over many calls: the pipeline compares them",
    ),
    "BerriAI/litellm#36091": (
        "H",
        (
            "test_usage.py::test_unknown_cached_tokens_are_not_a_miss",
            "test_payloads.py::test_recorded_logging_payloads_give_usage_and_times",
        ),
    ),
    "vllm-project/vllm!40912": (
        "H",
        (
            "test_usage.py::test_unknown_cached_tokens_are_not_a_miss",
            "sinks/test_metrics.py::test_lengths_prefixes_and_coverage_are_counted_in_tokens",
        ),
    ),
    "vllm-project/vllm#7299": (
        "M",
        ("test_usage.py::test_estimated_usage_keeps_totals_and_forgets_cached_tokens",),
    ),
    # serialisation, size, secrets
    "BerriAI/litellm#21290": (
        "H",
        ("test_text.py::test_hostile_names_chosen_by_a_client_lose_neither_record_nor_row",),
    ),
    "UKGovernmentBEIS/inspect_ai!3802": (
        "M",
        (
            "test_prefix.py::test_lone_surrogates_hash_the_same_twice",
            "test_hashing.py::test_any_text_hashes_to_the_same_digest_twice",
            "test_text.py::test_any_text_becomes_valid_utf_8_without_nul",
        ),
    ),
    "BerriAI/litellm#12354": ("M", ("test_hook.py::test_nothing_but_json_values_is_put_into_the_request",)),
    "BerriAI/litellm#41499": (
        "M",
        (
            "test_event.py::test_a_row_object_never_exceeds_its_limit_and_keeps_the_event_id",
            "test_identity.py::test_a_huge_session_id_is_bounded_and_still_tells_two_apart",
        ),
    ),
    "BerriAI/litellm!35678": (
        "H",
        (
            "test_recorder.py::test_no_text_of_the_prompt_no_key_and_no_address_gets_into_a_record",
            "test_guard.py::test_one_line_a_minute_is_logged_without_the_message",
        ),
    ),
    # the Redis buffer
    "BerriAI/litellm#33872": (
        "H",
        "the plugin only produces; draining with acknowledgement after the commit is the collector's",
    ),
    "BerriAI/litellm#19163": (
        "M",
        (
            "test_hook.py::test_a_wrong_redis_address_is_told_at_start",
            "test_hook.py::test_samples_and_final_records_reach_the_metrics",
        ),
    ),
    "BerriAI/litellm#27919": (
        "M",
        (
            "sinks/test_redis_stream.py::test_a_server_that_accepts_and_never_answers_does_not_hang_the_writer",
        ),
    ),
    "BerriAI/litellm#8159": (
        "M",
        (
            "sinks/test_connection.py::test_a_real_cluster_of_one_node_takes_a_pipeline_of_our_keys",
            "sinks/test_connection.py::test_an_acl_user_is_used",
        ),
    ),
    "rhesis-ai/rhesis#1769": (
        "H",
        (
            "sinks/test_redis_stream.py::test_a_memory_limit_is_an_outage_that_ends",
            "sinks/test_redis_stream.py::test_a_read_only_replica_is_an_outage",
            "sinks/test_redis_stream.py::test_the_stream_is_capped_and_expires",
        ),
    ),
    "theopenco/llmgateway!2986": (
        "H",
        (
            "sinks/test_redis_stream.py::test_a_killed_server_costs_nothing_that_fits_into_the_queue",
            "sinks/test_redis_stream.py::test_records_go_to_disk_while_redis_is_away_and_come_back_in_order",
        ),
    ),
    # Prometheus at the gateway
    "BerriAI/litellm#10595": (
        "M",
        (
            "sinks/test_metrics.py::test_several_workers_add_up_on_one_page",
            "test_preflight.py::test_several_workers_without_shared_metrics_are_said",
        ),
    ),
    # what really breaks a prefix
    "anthropics/claude-code#68900": (
        "H",
        ("test_prefix.py::test_the_attribution_block_of_old_clients_is_left_out",),
    ),
    "anomalyco/opencode#43249": (
        "H",
        (
            "test_recorder.py::test_the_whole_course_of_a_compaction_stays_in_one_turn",
            "test_recorder.py::test_a_title_is_auxiliary_and_no_turn",
        ),
    ),
    "maximhq/bifrost#3362": (
        "M",
        (
            "test_prefix.py::test_each_break_has_its_reason",
            "test_prefix.py::test_building_a_chain_changes_nothing_in_the_request",
        ),
    ),
}


def defined(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize("report", REPORTS)
def test_each_report_has_a_test_that_exists_or_a_reason(report: str) -> None:
    severity, tests = REPORTS[report]
    assert severity in ("H", "M")
    if isinstance(tests, str):
        assert len(tests) > 20
        return
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        assert name in defined(ROOT / file), test


def test_serious_reports_are_nearly_all_covered_by_a_test() -> None:
    serious = [tests for severity, tests in REPORTS.values() if severity == "H"]
    assert len(serious) >= 24
    assert sum(isinstance(tests, tuple) for tests in serious) >= len(serious) - 2
