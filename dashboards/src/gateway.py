"""Gateway: what it costs a call, LiteLLM's own failure modes, and the health of the plugin."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src import expressions as e
from dashboards.src.frame import build
from dashboards.src.panels import AMBER, GREEN, RED, Panel, Query, lines, number, thresholds


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return build(
        "gateway",
        "What does the gateway itself cost a call, is LiteLLM near one of its limits, and is the telemetry "
        "complete?",
        [("Cost of the gateway", _cost()), ("Token counting", _counting()),
         ("LiteLLM's own limits", _limits()), ("Telemetry", _telemetry())],
        live=True,
    )  # fmt: skip


def _cost() -> list[Panel]:
    return [
        lines(
            "Receipt to first provider call",
            "Everything that happens to a call before a provider sees it. Above 250 ms look at the phases "
            "beside it and at the event loop below.",
            "s",
            Query(e.quantile(0.5, "agentwatt_gateway_overhead_seconds"), "P50"),
            Query(e.quantile(0.95, "agentwatt_gateway_overhead_seconds"), "P95"),
            Query(e.quantile(0.99, "agentwatt_gateway_overhead_seconds"), "P99"),
            low=0,
            steps=thresholds((0.25, RED)),
            link="overview",
        ),
        lines(
            "Mean time per call by part",
            "Means, so that the parts can be compared: LiteLLM's queue before the handler (its own metric), "
            "all of the gateway, the token counter in it, waiting for the counter's limiter, this plugin.",
            "s",
            Query(e.mean("litellm_request_queue_time_seconds"), "queue before the handler"),
            Query(e.mean("agentwatt_gateway_overhead_seconds"), "receipt to first provider call"),
            Query(e.mean("agentwatt_token_count_seconds"), "of it: token counting"),
            Query(e.mean("agentwatt_token_count_wait_seconds"), "of it: waiting for the limiter"),
            Query(e.mean("agentwatt_plugin_seconds"), "of it: this plugin"),
            low=0,
            link="overview",
        ),
        lines(
            "Overhead by route",
            "95th percentile by API route; messages and responses do more work before a call than chat.",
            "s",
            Query(e.quantile(0.95, "agentwatt_gateway_overhead_seconds", "route"), "{{route}}"),
            low=0,
            link="overview",
        ),
        lines(
            "Overhead as LiteLLM measures it",
            "LiteLLM's own figure: total latency minus the provider's, calls without streaming only. For "
            "comparison; it includes what happens after the answer.",
            "s",
            Query(e.quantile(0.95, "litellm_overhead_latency_metric", "model_group"), "P95 {{model_group}}"),
            low=0,
            link="overview",
        ),
    ]


def _counting() -> list[Panel]:
    return [
        lines(
            "Token counting per call by phase",
            "Time in LiteLLM's token counter, by the phase of the request that asked. Minutes of CPU go here "
            "when long prompts are counted for rate limits and again for routing.",
            "s",
            Query(e.quantile(0.95, "agentwatt_token_count_seconds", "phase"), "P95 {{phase}}"),
            low=0,
            link="overview",
        ),
        lines(
            "Wait for the counting limiter",
            "Time that calls wait until the counter may run. It grows when more calls count at once than the "
            "limiter allows.",
            "s",
            Query(e.quantile(0.95, "agentwatt_token_count_wait_seconds"), "P95"),
            Query(e.mean("agentwatt_token_count_wait_seconds"), "mean"),
            low=0,
            link="overview",
        ),
        lines(
            "Counting limiter",
            "Counts that run, that wait, and how many may run at once (per worker). Waiting ones for "
            "minutes: "
            "add workers, or switch on the incremental counter.",
            "short",
            Query("sum(agentwatt_litellm_token_counts_running{@})", "running"),
            Query("sum(agentwatt_litellm_token_counts_waiting{@})", "waiting"),
            Query("max(agentwatt_litellm_token_counts_max{@})", "limit of a worker"),
            low=0,
            link="overview",
        ),
        lines(
            "Event loop lateness",
            "How late a timer fires at worst. While the loop is late no call makes progress. Above 250 ms "
            "somebody blocks it: token counting, a large JSON body, a synchronous callback.",
            "s",
            Query("max by (instance) (agentwatt_event_loop_lag_seconds{@})", "worst {{instance}}"),
            Query(e.quantile(0.99, "agentwatt_event_loop_late_seconds"), "P99 of samples"),
            low=0,
            steps=thresholds((0.25, RED)),
            link="overview",
        ),
    ]


def _limits() -> list[Panel]:
    return [
        lines(
            "SpendLogs queue",
            "Rows of spend that wait for the database, in bytes, beside the bytes at which a worker "
            "drops its "
            "oldest rows (64 MB unless set). Growth means that the database does not keep up.",
            "bytes",
            Query("sum by (instance) (agentwatt_litellm_spend_queue_bytes{@})", "waiting {{instance}}"),
            Query("max(agentwatt_litellm_spend_queue_max_bytes{@})", "limit of a worker"),
            low=0,
            link="sizing",
        ),
        lines(
            "SpendLogs rows waiting",
            "The same queue in rows. Thousands of small rows are harmless; few huge ones are not: see bytes.",
            "short",
            Query("sum by (instance) (agentwatt_litellm_spend_queue_rows{@})", "{{instance}}"),
            low=0,
            link="sizing",
        ),
        lines(
            "Logging queue",
            "Tasks of LiteLLM's logging worker that wait and run, beside the bound above which it "
            "drops them. "
            "Timed-out ones were cut off and left no row and no event of success.",
            "short",
            Query("sum(agentwatt_litellm_logging_queue_tasks{@})", "waiting"),
            Query("sum(agentwatt_litellm_logging_running_tasks{@})", "running"),
            Query("sum(agentwatt_litellm_logging_timed_out_tasks{@})", "timed out since start"),
            Query("max(agentwatt_litellm_logging_queue_max_tasks{@})", "limit of a worker"),
            low=0,
            link="overview",
        ),
        lines(
            "Database connections",
            "Connections of the proxy's PostgreSQL beside its limit; only with the plugin's setting "
            "db_connections. At the limit every worker loses its database at once.",
            "short",
            Query("max(agentwatt_db_connections{@})", "in use"),
            Query("max(agentwatt_db_max_connections{@})", "limit"),
            low=0,
            link="sizing",
        ),
        lines(
            "Requests in flight",
            "All requests inside the proxy, health checks and key management included, beside the "
            "model calls "
            "among them.",
            "short",
            Query("sum(litellm_in_flight_requests{@})", "all requests"),
            Query("sum(agentwatt_open_calls{@})", "model calls"),
            low=0,
            link="overview",
        ),
        lines(
            "Outcomes",
            "Calls that ended, by outcome. rejected = the gateway refused (limits, budget); failure = the "
            "provider did; aborted = the client left.",
            "reqps",
            Query("sum by (outcome) (rate(agentwatt_calls_total{@}[@]))", "{{outcome}}"),
            stacked=True,
            low=0,
            link="overview",
        ),
        lines(
            "Deployments in trouble",
            "Deployments that LiteLLM took out for a while, failed attempts, and fallbacks that failed as "
            "well. A cooled-down deployment moves its sessions to cold caches.",
            "ops",
            Query("sum(rate(litellm_deployment_cooled_down_total{@}[@]))", "cooled down"),
            Query("sum(rate(litellm_deployment_failure_responses_total{@}[@]))", "failed attempts"),
            Query("sum(rate(litellm_deployment_failed_fallbacks_total{@}[@]))", "failed fallbacks"),
            low=0,
            link="prefix",
        ),
        lines(
            "Callbacks that failed",
            "Failures that LiteLLM counts for any of its callbacks, ours included. Compare it with the "
            "plugin's own errors below.",
            "ops",
            Query("sum(rate(litellm_callback_logging_failures_metric_total{@}[@]))", "callback failures"),
            low=0,
            link="overview",
        ),
    ]


def _telemetry() -> list[Panel]:
    return [
        number(
            "Event stream",
            "Whether every worker's records reach Redis. Down: they go to the spool where one is set, else "
            "they wait in memory and the oldest are lost.",
            "short",
            Query("min(agentwatt_telemetry_up{@})"),
            steps=thresholds((1, GREEN), base=RED),
            names={"0": "down", "1": "up"},
            span=6,
            link="overview",
        ),
        number(
            "Events lost",
            "Records lost in the last hour, for whatever reason. Each is a call that only the ledger knows.",
            "short",
            Query("sum(rate(agentwatt_events_lost_total{@}[1h])) * 3600 or vector(0)"),
            steps=thresholds((0.5, RED)),
            decimals=0,
            span=6,
            link="overview",
        ),
        number(
            "Cost of the plugin, P99",
            "Time of this plugin on the request path per call.",
            "s",
            Query(e.quantile(0.99, "agentwatt_plugin_seconds")),
            steps=thresholds((0.005, AMBER), (0.025, RED)),
            span=6,
            link="overview",
        ),
        number(
            "Plugin errors",
            "Errors inside the plugin per minute. No request is affected, but a record may be poorer.",
            "opm",
            Query("sum(rate(agentwatt_plugin_errors_total{@}[@])) * 60 or vector(0)"),
            steps=thresholds((0.1, AMBER), (1, RED)),
            span=6,
            link="overview",
        ),
        lines(
            "Event records",
            "Records written by way, and lost by reason. Two records a call (open and final) are normal.",
            "cps",
            Query("sum by (way) (rate(agentwatt_events_written_total{@}[@]))", "written to {{way}}"),
            Query("sum by (reason) (rate(agentwatt_events_lost_total{@}[@]))", "lost: {{reason}}"),
            low=0,
            link="overview",
        ),
        lines(
            "Records waiting",
            "Records in memory and on disk. On disk for long: Redis is away. The spool drops its oldest "
            "records when it is full.",
            "short",
            Query("sum(agentwatt_event_queue_records{@})", "in memory"),
            Query("sum(agentwatt_spool_records{@})", "on disk"),
            low=0,
            link="overview",
        ),
        lines(
            "Unusual things",
            "Counted oddities by kind. state_late is normal under load (the shared state had not arrived in "
            "time); duplicate_ending and foreign_event tell of other callbacks; write_error of Redis.",
            "cps",
            Query("sum by (kind) (rate(agentwatt_oddities_total{@}[@]))", "{{kind}}"),
            low=0,
            link="overview",
        ),
        lines(
            "Errors by hook",
            "Where inside the plugin an error was caught.",
            "cps",
            Query("sum by (hook) (rate(agentwatt_plugin_errors_total{@}[@]))", "{{hook}}"),
            low=0,
            link="overview",
        ),
        lines(
            "Remembered state",
            "Memory of prefix chains of all workers. At its bound the oldest streams are forgotten and count "
            "as first calls again (oddity stream_evicted).",
            "bytes",
            Query("sum(agentwatt_state_bytes{@})", "bytes"),
            low=0,
            span=8,
            link="prefix",
        ),
        lines(
            "Streams remembered",
            "Sessions and agents whose prefixes are remembered by all workers.",
            "short",
            Query("sum(agentwatt_state_streams{@})", "streams"),
            low=0,
            span=8,
            link="prefix",
        ),
        lines(
            "Spool on disk",
            "Bytes of event records on disk. At spool_max_bytes of a worker the oldest are dropped.",
            "bytes",
            Query("sum by (instance) (agentwatt_spool_bytes{@})", "{{instance}}"),
            low=0,
            span=8,
            link="overview",
        ),
    ]
