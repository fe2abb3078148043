"""Which tests answer the field reports on token counting, and the two that need a process of their own."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: Row of the field reports -> tests that hold what it asks for.
ROWS = {
    "B49 provider-native blocks make the counter raise": (
        "test_provider_native_blocks_have_litellm_s_outcome",
        "test_a_refused_block_raises_litellm_s_error_without_counting_the_rest_again",
        "test_a_count_that_raises_is_an_error_of_that_request_and_still_raises",
    ),
    "B50 nulls crash the counter": (
        "test_nulls_in_a_prompt_have_litellm_s_outcome",
        "test_random_json_in_any_argument_never_adds_an_error",
    ),
    "B52 array schemas without items": (
        "test_array_schemas_without_items_and_odd_schemas_have_litellm_s_outcome",
        "test_a_catalogue_that_cannot_be_counted_has_no_tokens_in_the_facts",
        "test_a_fault_of_ours_falls_back_to_litellm_with_one_warning",
    ),
    "B53 tool entries that are no tools": (
        "test_odd_tool_entries_have_litellm_s_outcome",
        "test_catalogue_entries_that_are_no_tools_are_skipped_by_the_classifier",
    ),
    "B55 special-token markers in text": ("test_special_token_markers_in_text_are_counted_not_refused",),
    "B56 counting on the event loop": (
        "test_counts_in_threads_and_on_the_loop_are_measured_per_request",
        "test_small_requests_go_on_while_a_million_tokens_are_counted_off_the_loop",
        "test_later_counts_of_a_long_conversation_take_a_fraction_of_litellm_s_time",
    ),
    "B58 a vocabulary fetched at import": (
        "test_importing_the_meter_loads_neither_litellm_nor_a_tokenizer",
        "test_installing_and_counting_need_no_network",
    ),
}


def test_every_field_report_has_its_tests() -> None:
    defined = {
        node.name
        for path in HERE.glob("test_counting*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name for names in ROWS.values() for name in names} <= defined
    assert {row.split()[0] for row in ROWS} == {"B49", "B50", "B52", "B53", "B55", "B56", "B58"}


def _python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_importing_the_meter_loads_neither_litellm_nor_a_tokenizer() -> None:
    done = _python(
        "import sys, gateway_plugin.counting, gateway_plugin.counting_advice\n"
        "gateway_plugin.counting.install()\n"
        "print(sorted({'litellm', 'tiktoken', 'tokenizers'} & set(sys.modules)))"
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_installing_and_counting_need_no_network() -> None:
    pytest.importorskip("tiktoken", reason="LiteLLM is not installed")
    done = _python(
        "import os, socket\n"
        "os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'\n"
        "def refuse(*a, **k): raise OSError('no network')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse\n"
        "from gateway_plugin import counting\n"
        "meter = counting.install(exact=True, incremental=True, check_share=0.0)\n"
        "import litellm\n"
        "messages = [{'role': 'user', 'content': 'hello world'}]\n"
        "counts = [litellm.token_counter(m, messages=messages) for m in ('gpt-4o', 'claude-sonnet-4-5')]\n"
        "print(meter.reason, [count > 5 for count in counts])"
    )
    assert (done.stdout.strip(), done.returncode) == ("None [True, True]", 0), done.stderr
