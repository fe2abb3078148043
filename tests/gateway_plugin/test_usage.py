from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.usage import Usage, as_mapping, normalise

#: (name, usage, input, cached, cache write, output, reasoning)
SHAPES: list[tuple[str, dict[str, Any], int | None, int | None, int | None, int | None, int | None]] = [
    (
        "OpenAI chat",
        {
            "prompt_tokens": 100,
            "completion_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
        100,
        64,
        None,
        30,
        20,
    ),
    ("OpenAI chat, no details", {"prompt_tokens": 100, "completion_tokens": 3}, 100, None, None, 3, None),
    (
        "OpenAI Responses",
        {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 4},
        },
        100,
        0,
        None,
        7,
        4,
    ),
    (
        "Anthropic raw: cache counts stand beside input_tokens",
        {
            "input_tokens": 1000,
            "cache_read_input_tokens": 16000,
            "cache_creation_input_tokens": 0,
            "output_tokens": 5,
        },
        17000,
        16000,
        0,
        5,
        None,
    ),
    (
        "Anthropic through LiteLLM: cache counts stand inside prompt_tokens",
        {"prompt_tokens": 17000, "cache_read_input_tokens": 16000, "completion_tokens": 5},
        17000,
        16000,
        None,
        5,
        None,
    ),
    (
        "Anthropic through LiteLLM, a write",
        {
            "prompt_tokens": 15635,
            "completion_tokens": 1,
            "cache_creation_input_tokens": 15624,
            "cache_read_input_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 15624},
        },
        15635,
        0,
        15624,
        1,
        None,
    ),
    ("Anthropic raw, no cache keys", {"input_tokens": 12, "output_tokens": 5}, 12, None, None, 5, None),
    (
        "Bedrock Converse",
        {"inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 9000, "cacheWriteInputTokens": 7},
        9017,
        9000,
        7,
        5,
        None,
    ),
    (
        "Bedrock Converse, only a write",
        {"inputTokens": 10, "outputTokens": 5, "cacheWriteInputTokens": 7},
        17,
        None,
        7,
        5,
        None,
    ),
    ("Bedrock Converse, no cache keys", {"inputTokens": 10, "outputTokens": 5}, 10, None, None, 5, None),
    (
        "Gemini: thoughts are generated tokens that candidatesTokenCount leaves out",
        {
            "promptTokenCount": 50,
            "candidatesTokenCount": 6,
            "thoughtsTokenCount": 4,
            "cachedContentTokenCount": 40,
        },
        50,
        40,
        None,
        10,
        4,
    ),
    ("Gemini without thoughts", {"promptTokenCount": 50, "candidatesTokenCount": 6}, 50, None, None, 6, None),
    (
        "DeepSeek",
        {
            "prompt_tokens": 100,
            "prompt_cache_hit_tokens": 90,
            "prompt_cache_miss_tokens": 10,
            "completion_tokens": 2,
        },
        100,
        90,
        None,
        2,
        None,
    ),
    (
        "vLLM, details on",
        {
            "prompt_tokens": 234,
            "completion_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 224, "created_cache_tokens": 0, "text_tokens": None},
        },
        234,
        224,
        0,
        6,
        None,
    ),
    (
        "vLLM, details off",
        {"prompt_tokens": 234, "completion_tokens": 6, "prompt_tokens_details": None},
        234,
        None,
        None,
        6,
        None,
    ),
    (
        "vLLM Responses",
        {
            "input_tokens": 234,
            "input_tokens_details": {"cached_tokens": 224, "cache_write_tokens": 3},
            "output_tokens": 6,
        },
        234,
        224,
        3,
        6,
        None,
    ),
    (
        "Gemini multimodal with negative per-modality counts: totals stand",
        {
            "prompt_tokens": 6237,
            "completion_tokens": 1,
            "prompt_tokens_details": {"text_tokens": -3327, "cached_tokens": 4064},
        },
        6237,
        4064,
        None,
        1,
        None,
    ),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s[0])
def test_each_provider_shape_gives_its_tokens(shape: Any) -> None:
    _, raw, *expected = shape
    usage = normalise(raw)
    assert [usage.input, usage.cached, usage.cache_write, usage.output, usage.reasoning] == expected
    assert usage.source == "provider"


def test_inclusive_and_exclusive_records_of_the_same_call_agree() -> None:
    inclusive = normalise({"prompt_tokens": 17000, "cache_read_input_tokens": 16000, "completion_tokens": 1})
    exclusive = normalise({"input_tokens": 1000, "cache_read_input_tokens": 16000, "output_tokens": 1})
    assert (inclusive.input, inclusive.cached, inclusive.fresh) == (
        exclusive.input,
        exclusive.cached,
        exclusive.fresh,
    )
    assert inclusive.cached / inclusive.input == pytest.approx(0.941, abs=5e-4)  # type: ignore[operator]
    assert (inclusive.semantics, exclusive.semantics) == ("inclusive", "exclusive")


def test_fresh_tokens_are_neither_read_nor_written() -> None:
    assert (
        normalise(
            {"prompt_tokens": 15635, "cache_creation_input_tokens": 15624, "cache_read_input_tokens": 0}
        ).fresh
        == 11
    )


def test_unknown_cached_tokens_are_not_a_miss() -> None:
    assert normalise({"prompt_tokens": 10}).cached is None
    assert normalise({"prompt_tokens": 10}).fresh is None
    assert normalise({"prompt_tokens": 10, "cache_read_input_tokens": 0}).cached == 0


def test_negative_counts_are_flagged_and_never_used() -> None:
    usage = normalise({"prompt_tokens": -5, "completion_tokens": 3})
    assert usage.suspect
    assert usage.input is None


def test_more_cached_than_input_loses_the_cache_figures_and_keeps_the_totals() -> None:
    usage = normalise(
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}, "completion_tokens": 1}
    )
    assert usage.suspect
    assert (usage.input, usage.cached, usage.output) == (10, None, 1)


def test_estimated_usage_keeps_totals_and_forgets_cached_tokens() -> None:
    usage = normalise(
        {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens": 4},
        estimated=True,
    )
    assert (usage.input, usage.output, usage.cached, usage.cache_write, usage.source) == (
        100,
        4,
        None,
        None,
        "estimated",
    )


@pytest.mark.parametrize("nothing", [None, {}, [], "usage", 7, object(), {"prompt_tokens": None}])
def test_no_usage_has_source_none(nothing: object) -> None:
    assert normalise(nothing) == Usage()


@pytest.mark.parametrize("value", [True, "12", 1.5, -1, 1 << 60, None, [], {}])
def test_what_is_no_count_is_unknown(value: object) -> None:
    assert normalise({"prompt_tokens": value, "completion_tokens": 1}).input is None


def test_whole_floats_are_counts() -> None:
    assert normalise({"prompt_tokens": 12.0}).input == 12


def test_objects_of_a_library_are_dumped() -> None:
    class Details:
        def model_dump(self) -> dict[str, int]:
            return {"cached_tokens": 5}

    class Response:
        def model_dump(self) -> dict[str, Any]:
            return {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": Details()}

    assert normalise(Response()).cached == 5


def test_an_object_whose_dump_fails_is_empty() -> None:
    class Broken:
        def model_dump(self) -> dict[str, int]:
            raise ValueError("no")

    assert as_mapping(Broken()) == {}
    assert as_mapping(dict) == {}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_keys = st.sampled_from(
    [
        "prompt_tokens",
        "input_tokens",
        "inputTokens",
        "promptTokenCount",
        "prompt_tokens_details",
        "input_tokens_details",
        "cached_tokens",
        "cache_read_input_tokens",
        "cacheReadInputTokens",
        "cache_creation_input_tokens",
        "cache_creation",
        "completion_tokens",
        "output_tokens",
        "thoughtsTokenCount",
    ]
)


@given(
    st.dictionaries(_keys, _json | st.dictionaries(_keys, _json, max_size=3), max_size=6) | _json,
    st.booleans(),
)
def test_any_json_gives_consistent_usage(raw: object, estimated: bool) -> None:
    usage = normalise(raw, estimated=estimated)
    if usage.input is not None:
        assert (usage.cached or 0) + (usage.cache_write or 0) <= usage.input
    if estimated:
        assert usage.cached is None
    assert usage.fresh is None or usage.fresh >= 0
