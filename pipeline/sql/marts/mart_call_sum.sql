-- mart_call_sum: sums over calls behind every ratio that is published by day, week and who.
-- Grain: (day, business_day, team_id, key_alias, client, model_group, profile).
-- Sources: mart_placed_call. Parameters: $window_start, $window_end.
-- Meaning: numerators and denominators, each over the calls that carry what it needs; names ending in _calls count
--   those. Profile is that of the call's visit, everything else the call's own. reuse_… are over engine calls that
--   report cached tokens and have a known chain, so that their difference is what reuse was left lying.
--   catalogue_tokens are the gateway's own count, else input tokens × tool bytes ÷ prompt bytes.
-- Additive: yes.
SELECT
  start_date AS day,
  business_day,
  team_id,
  key_alias,
  client,
  model_group,
  profile,
  COUNT(*) AS calls,
  SUM(is_attended) AS attended_calls,
  SUM(is_engine) AS engine_calls,
  SUM(CASE WHEN is_engine = 1 THEN COALESCE(attempts, 1) ELSE 0 END) AS engine_attempts,
  SUM(has_session) AS session_calls,
  SUM(CASE WHEN agent_kind = 'subagent' THEN 1 ELSE 0 END) AS subagent_calls,
  SUM(CASE WHEN initiator IN ('user', 'agent') THEN 1 ELSE 0 END) AS initiator_calls,
  SUM(CASE WHEN initiator = 'agent' THEN 1 ELSE 0 END) AS agent_calls,
  SUM(CASE WHEN outcome = 'failure' THEN 1 ELSE 0 END) AS failed_calls,
  SUM(CASE WHEN outcome = 'aborted' THEN 1 ELSE 0 END) AS aborted_calls,
  SUM(CASE WHEN outcome = 'open' THEN 1 ELSE 0 END) AS open_calls,
  SUM(CASE WHEN outcome = 'rejected' THEN 1 ELSE 0 END) AS rejected_calls,
  SUM(response_cache_hit) AS response_cache_hits,
  SUM(CASE WHEN source = 'both' THEN 1 ELSE 0 END) AS both_calls,
  SUM(CASE WHEN source = 'event' THEN 1 ELSE 0 END) AS event_only_calls,
  SUM(CASE WHEN source = 'row' THEN 1 ELSE 0 END) AS row_only_calls,
  SUM(has_user) AS user_known_calls,
  SUM(CASE WHEN session_evidence = 'E1' THEN 1 ELSE 0 END) AS session_e1_calls,
  SUM(CASE WHEN session_evidence = 'E2' THEN 1 ELSE 0 END) AS session_e2_calls,
  SUM(CASE WHEN session_evidence = 'E3' THEN 1 ELSE 0 END) AS session_e3_calls,
  SUM(CASE WHEN session_evidence = 'E4' THEN 1 ELSE 0 END) AS session_e4_calls,
  SUM(CASE WHEN session_evidence IN ('E1', 'E2', 'E3', 'E4') THEN 0 ELSE 1 END) AS session_e5_calls,
  SUM(CASE WHEN turn_evidence = 'E1' THEN 1 ELSE 0 END) AS turn_e1_calls,
  SUM(CASE WHEN turn_evidence = 'E2' THEN 1 ELSE 0 END) AS turn_e2_calls,
  SUM(CASE WHEN turn_evidence = 'E3' THEN 1 ELSE 0 END) AS turn_e3_calls,
  SUM(CASE WHEN turn_evidence = 'E4' THEN 1 ELSE 0 END) AS turn_e4_calls,
  SUM(CASE WHEN turn_evidence IN ('E1', 'E2', 'E3', 'E4') THEN 0 ELSE 1 END) AS turn_e5_calls,
  SUM(CASE WHEN profile_evidence = 'tools' THEN 1 ELSE 0 END) AS profile_tools_calls,
  SUM(CASE WHEN profile_evidence = 'loops' THEN 1 ELSE 0 END) AS profile_loops_calls,
  SUM(CASE WHEN profile_evidence = 'tokens' THEN 1 ELSE 0 END) AS profile_tokens_calls,
  SUM(CASE WHEN profile_evidence = 'none' THEN 1 ELSE 0 END) AS profile_none_calls,
  SUM(CASE WHEN tool_reads IS NOT NULL THEN 1 ELSE 0 END) AS told_calls,
  SUM(tool_reads) AS tool_reads,
  SUM(tool_edits) AS tool_edits,
  SUM(tool_runs) AS tool_runs,
  SUM(tool_others) AS tool_others,
  SUM(CASE WHEN is_attended = 1 THEN flight_us ELSE 0 END) / 3.6e9 AS attended_flight_hours,
  SUM(CASE WHEN is_attended = 1 AND agent_kind = 'main' AND outcome <> 'failure' THEN flight_us ELSE 0 END) / 3.6e9
    AS attended_main_flight_hours,
  SUM(flight_us) / 3.6e9 AS flight_hours,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 THEN 1 ELSE 0 END) AS input_calls,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 THEN input_tokens END) AS input_tokens,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND usage_source = 'estimated' THEN 1 ELSE 0 END)
    AS estimated_calls,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND output_tokens IS NOT NULL THEN 1 ELSE 0 END)
    AS input_output_calls,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND output_tokens IS NOT NULL THEN input_tokens END)
    AS input_output_input_tokens,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 THEN output_tokens END) AS input_output_output_tokens,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND hit_tokens IS NOT NULL THEN 1 ELSE 0 END) AS cached_calls,
  SUM(CASE WHEN is_engine = 1 AND hit_tokens IS NOT NULL THEN input_tokens END) AS cached_input_tokens,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 THEN hit_tokens END) AS cached_tokens,
  SUM(CASE WHEN is_engine = 1 AND hit_tokens IS NOT NULL THEN cache_write_tokens END) AS cache_write_tokens,
  SUM(CASE WHEN is_engine = 1 AND hit_tokens IS NOT NULL AND cache_write_tokens IS NOT NULL THEN 1 ELSE 0 END)
    AS written_calls,
  SUM(CASE WHEN is_engine = 1 AND hit_tokens IS NOT NULL AND cache_write_tokens IS NOT NULL THEN input_tokens END)
    AS written_input_tokens,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND hit_tokens IS NOT NULL AND output_tokens IS NOT NULL
    THEN 1 ELSE 0 END) AS new_output_calls,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND output_tokens IS NOT NULL
    THEN input_tokens - hit_tokens END) AS new_output_new_tokens,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND hit_tokens IS NOT NULL THEN output_tokens END)
    AS new_output_output_tokens,
  SUM(CASE WHEN is_engine = 1 AND potential_inf_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_calls,
  SUM(CASE WHEN is_engine = 1 AND potential_inf_tokens IS NOT NULL THEN input_tokens END) AS chain_input_tokens,
  SUM(CASE WHEN is_engine = 1 THEN potential_inf_tokens END) AS potential_inf_tokens,
  SUM(CASE WHEN is_engine = 1 AND potential_3600_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_3600_calls,
  SUM(CASE WHEN is_engine = 1 AND potential_3600_tokens IS NOT NULL THEN input_tokens END)
    AS chain_3600_input_tokens,
  SUM(CASE WHEN is_engine = 1 THEN potential_3600_tokens END) AS potential_3600_tokens,
  SUM(CASE WHEN is_engine = 1 AND potential_300_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_300_calls,
  SUM(CASE WHEN is_engine = 1 AND potential_300_tokens IS NOT NULL THEN input_tokens END) AS chain_300_input_tokens,
  SUM(CASE WHEN is_engine = 1 THEN potential_300_tokens END) AS potential_300_tokens,
  SUM(CASE WHEN is_engine = 1 AND hit_tokens IS NOT NULL AND potential_inf_tokens IS NOT NULL THEN 1 ELSE 0 END)
    AS reuse_calls,
  SUM(CASE WHEN is_engine = 1 AND hit_tokens IS NOT NULL AND potential_inf_tokens IS NOT NULL THEN input_tokens END)
    AS reuse_input_tokens,
  SUM(CASE WHEN is_engine = 1 AND hit_tokens IS NOT NULL AND potential_inf_tokens IS NOT NULL
    THEN potential_inf_tokens - hit_tokens END) AS reuse_left_tokens,
  SUM(CASE WHEN is_engine = 1 AND catalogue_tokens IS NOT NULL THEN 1 ELSE 0 END) AS catalogue_calls,
  SUM(CASE WHEN is_engine = 1 AND count_catalogue_tokens IS NOT NULL THEN 1 ELSE 0 END) AS catalogue_counted_calls,
  SUM(CASE WHEN is_engine = 1 THEN catalogue_tokens END) AS catalogue_tokens,
  SUM(CASE WHEN is_engine = 1 THEN tool_count END) AS tools,
  SUM(CASE WHEN is_engine = 1 AND outcome = 'success' AND ttft_ms >= 0 AND duration_ms >= ttft_ms THEN 1 ELSE 0 END)
    AS timed_calls,
  SUM(CASE WHEN is_engine = 1 AND outcome = 'success' THEN 1 ELSE 0 END) AS success_calls,
  SUM(CASE WHEN is_engine = 1 AND outcome = 'success' AND ttft_ms >= 0 AND duration_ms >= ttft_ms
    THEN GREATEST(0.0, ttft_ms - COALESCE(overhead_ms, 0)) END) / 3.6e6 AS prefill_hours,
  SUM(CASE WHEN is_engine = 1 AND outcome = 'success' AND ttft_ms >= 0 AND duration_ms >= ttft_ms
    THEN duration_ms - ttft_ms END) / 3.6e6 AS decode_hours,
  SUM(CASE WHEN queue_ms >= 0 THEN 1 ELSE 0 END) AS queue_calls,
  SUM(CASE WHEN queue_ms >= 0 THEN queue_ms END) AS queue_ms,
  SUM(CASE WHEN pre_call_ms >= 0 THEN 1 ELSE 0 END) AS pre_call_calls,
  SUM(CASE WHEN pre_call_ms >= 0 THEN pre_call_ms END) AS pre_call_ms,
  SUM(CASE WHEN overhead_ms >= 0 THEN 1 ELSE 0 END) AS overhead_calls,
  SUM(CASE WHEN overhead_ms >= 0 THEN overhead_ms END) AS overhead_ms,
  SUM(CASE WHEN plugin_ms >= 0 THEN 1 ELSE 0 END) AS plugin_calls,
  SUM(CASE WHEN plugin_ms >= 0 THEN plugin_ms END) AS plugin_ms,
  SUM(CASE WHEN count_ms >= 0 THEN 1 ELSE 0 END) AS count_calls,
  SUM(CASE WHEN count_ms >= 0 THEN count_ms END) AS count_ms
FROM mart_placed_call
WHERE start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
GROUP BY start_date, business_day, team_id, key_alias, client, model_group, profile
