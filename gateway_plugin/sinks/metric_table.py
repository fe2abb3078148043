"""Every metric of the plugin: name, kind, labels with their closed value lists, and buckets.

One table for the sink, the documentation and the tests. No label ever holds a session, turn, user, key or
free text; a value outside its list becomes ``other``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from gateway_plugin.event import BREAK_REASONS, INITIATORS

Kind = Literal["counter", "gauge", "histogram"]
OTHER: Final = "other"

#: Values of every label, without ``other``.
LABELS: Final[dict[str, tuple[str, ...]]] = {
    "initiator": INITIATORS,
    "route": ("chat", "messages", "responses", "embeddings", "pass_through"),
    "outcome": ("success", "failure", "rejected", "aborted"),
    "position": ("1", "2", "3+", "unknown"),
    "break_reason": BREAK_REASONS,
    "cached": ("reported", "unknown"),
    "hook": (
        "start",
        "pre_call",
        "logging",
        "success",
        "failure",
        "attempt",
        "failed_attempt",
        "watch",
        "metrics",
        "spans",
    ),
    "reason": (
        "queue_full",
        "unencodable",
        "shutdown",
        "spool_full",
        "spool_corrupt",
    ),
    "way": ("stream", "spool"),
    "kind": (
        "duplicate_ending",
        "late_begin",
        "foreign_event",
        "no_bucket",
        "open_table_full",
        "outcome_revised",
        "serialise_fallback",
        "suspect_usage",
        "watchdog_aborted",
        "stream_evicted",
        "head_cut",
        "state_late",
        "state_error",
        "write_error",
        "spool_error",
        "writer_restart",
    ),
    "phase": ("auth", "limits", "router_checks", "routing_strategy", "request", "post_call"),
}

#: Prompt lengths in tokens; the 8K to 256K powers of two are the sizes that capacity is planned for.
TOKEN_BUCKETS: Final = (
    1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 49152.0, 65536.0, 98304.0, 131072.0, 196608.0, 262144.0,
    524288.0, 1048576.0,
)  # fmt: skip
#: Seconds of work on the request path.
COST_BUCKETS: Final = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5)
TIME_BUCKETS: Final = (1e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric. ``mode`` is how the values of several workers combine in a gauge."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    mode: Literal["livesum", "livemin", "livemax", "mostrecent"] = "livesum"

    @property
    def exposed(self) -> str:
        """The name on the metrics page."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _c(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"agentwatt_{name}", "counter", text, labels)


def _h(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"agentwatt_{name}", "histogram", text, labels, buckets)


def _g(
    name: str, text: str, mode: Literal["livesum", "livemin", "livemax", "mostrecent"] = "livesum"
) -> Metric:
    return Metric(f"agentwatt_{name}", "gauge", text, mode=mode)


CALLS: Final = _c("calls", "Calls that ended", "initiator", "route", "outcome")
PROMPT_TOKENS: Final = _h(
    "prompt_tokens", "Input tokens per call, as the backend counted them", TOKEN_BUCKETS, "initiator"
)
NEW_TOKENS: Final = _h(
    "new_tokens",
    "Input tokens per call that no earlier call of its session, agent and model had sent",
    TOKEN_BUCKETS,
    "initiator",
)
OUTPUT_TOKENS: Final = _c("output_tokens", "Generated tokens", "initiator")
INPUT_TOKENS: Final = _c(
    "input_tokens",
    "Input tokens of successful calls, by whether the backend reported cached tokens",
    "position",
    "break_reason",
    "cached",
)
POTENTIAL_TOKENS: Final = _c(
    "prefix_potential_tokens",
    "Input tokens that an earlier call had sent as a prefix",
    "position",
    "break_reason",
    "cached",
)
REALISED_TOKENS: Final = _c(
    "prefix_realised_tokens",
    "Input tokens that the backend served from its prefix cache",
    "position",
    "break_reason",
)
OVERHEAD: Final = _h("gateway_overhead_seconds", "Receipt to the first provider call", TIME_BUCKETS, "route")
COUNTING: Final = _h("token_count_seconds", "Time in LiteLLM's token counter per call", TIME_BUCKETS, "phase")
COUNT_WAIT: Final = _h(
    "token_count_wait_seconds", "Wait for LiteLLM's counting limiter per call", TIME_BUCKETS
)
PLUGIN_COST: Final = _h("plugin_seconds", "Time of this plugin on the request path per call", COST_BUCKETS)
PLUGIN_ERRORS: Final = _c("plugin_errors", "Errors inside the plugin; no request is affected", "hook")
ODDITIES: Final = _c("oddities", "Unusual things that happened to calls or to the plugin", "kind")
EVENTS_WRITTEN: Final = _c("events_written", "Event records that left the process", "way")
EVENTS_LOST: Final = _c("events_lost", "Event records that were lost", "reason")
OPEN_CALLS: Final = _g("open_calls", "Calls under way")
QUEUE_RECORDS: Final = _g("event_queue_records", "Event records waiting in memory")
SPOOL_RECORDS: Final = _g("spool_records", "Event records waiting on disk")
SPOOL_BYTES: Final = _g("spool_bytes", "Bytes of event records waiting on disk")
TELEMETRY_UP: Final = _g(
    "telemetry_up", "1 when event records reach Redis (or disk, without Redis)", "livemin"
)
STATE_STREAMS: Final = _g("state_streams", "Streams (session and agent) remembered")
STATE_BYTES: Final = _g("state_bytes", "Memory of remembered prefix chains, bytes")
LOOP_LAG: Final = _g("event_loop_lag_seconds", "Longest lateness of a timer since the last sample", "livemax")
LOOP_LAG_HISTOGRAM: Final = _h("event_loop_late_seconds", "Lateness of a timer at each sample", TIME_BUCKETS)
SPEND_QUEUE_ROWS: Final = _g("litellm_spend_queue_rows", "SpendLogs rows waiting for the database")
SPEND_QUEUE_BYTES: Final = _g("litellm_spend_queue_bytes", "Bytes of SpendLogs rows waiting")
SPEND_QUEUE_CAP: Final = _g(
    "litellm_spend_queue_max_bytes", "Bytes above which LiteLLM drops its oldest rows", "livemax"
)
LOGGING_QUEUE: Final = _g("litellm_logging_queue_tasks", "Logging tasks waiting")
LOGGING_RUNNING: Final = _g("litellm_logging_running_tasks", "Logging tasks running")
LOGGING_QUEUE_CAP: Final = _g("litellm_logging_queue_max_tasks", "Bound of the logging queue", "livemax")
LOGGING_TIMEOUTS: Final = _g("litellm_logging_timed_out_tasks", "Logging tasks cut off since start")
COUNTS_WAITING: Final = _g("litellm_token_counts_waiting", "Token counts waiting for the limiter")
COUNTS_RUNNING: Final = _g("litellm_token_counts_running", "Token counts running under the limiter")
COUNTS_CAP: Final = _g("litellm_token_counts_max", "Token counts that may run at once", "livemax")
DB_CONNECTIONS: Final = _g("db_connections", "Connections of the database server in use (opt-in)", "livemax")
DB_CONNECTIONS_CAP: Final = _g("db_max_connections", "max_connections of the database server", "livemax")

METRICS: Final[tuple[Metric, ...]] = tuple(v for v in dict(globals()).values() if isinstance(v, Metric))
