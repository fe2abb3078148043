"""The incremental counter against the LiteLLM that is installed: same result, same error, whatever the shape.

Run the file with every supported version. LiteLLM is imported once per session, and only by these tests.
"""

from __future__ import annotations

import base64
import copy
import os
import socket
import struct
import sys
import time
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway_plugin import counting_stock
from gateway_plugin.counting_incremental import IncrementalCounter
from gateway_plugin.counting_stock import Stock

CLAUDE = "claude-sonnet-4-5"
#: tiktoken's newest encoding, LiteLLM's Hugging Face tokenizer, the legacy message constants, an alias.
MODELS = ("gpt-4o", CLAUDE, "gpt-3.5-turbo-0301", "coder-large")
PROPERTY = settings(
    max_examples=250,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("litellm", reason="LiteLLM is not installed")
        module.Message(role="user", content="")  # builds LiteLLM's lazy models while warnings are silenced
        return module


@pytest.fixture(scope="module")
def stock(litellm: Any) -> Stock:
    return counting_stock.load()


@pytest.fixture
def counter(stock: Stock) -> IncrementalCounter:
    return IncrementalCounter(stock, check_share=0.0)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def outcome(function: Any, *args: Any, **kwargs: Any) -> tuple[str, Any]:
    """The result, or the error's type and text: both must be LiteLLM's own."""
    try:
        return "result", function(*copy.deepcopy(args), **copy.deepcopy(kwargs))
    except Exception as error:  # noqa: BLE001 - whatever LiteLLM raises is the expected outcome
        return type(error).__name__, str(error)


def assert_same(
    counter: IncrementalCounter, stock: Stock, runs: int = 2, **arguments: Any
) -> tuple[str, Any]:
    """Assert the counter's outcome, first and later, is LiteLLM's; return it."""
    expected = outcome(stock.token_counter, **arguments)
    for _ in range(runs):
        assert outcome(counter.token_counter, **arguments) == expected
    assert counter.counts["own_error"] == 0
    return expected


def png(width: int, height: int) -> str:
    raw = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + struct.pack(">LL", width, height) + b"\0" * 8
    return "data:image/png;base64," + base64.b64encode(raw).decode()


def tool(name: str = "read", **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    function = {"name": name, "description": f"{name} a file", "parameters": parameters}
    return {"type": "function", "function": function}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


# -- generated conversations

_MARKERS = ["<|endoftext|>", "<|im_start|>", "<|fim_prefix|>"]
words = st.sampled_from(["def", "return", "Größe", "日本語", "🙂", "\n\n    ", "x = 1", "", *_MARKERS])
texts = st.one_of(
    st.lists(words, max_size=8).map(" ".join),
    st.text(max_size=30),
    st.integers(170, 190).map(lambda n: "ab cd " * n),  # around the length of one encoded chunk
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(-2, 2), texts),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
image_urls = st.one_of(
    st.builds(
        lambda detail, width: {"url": png(width, 700), "detail": detail},
        st.sampled_from(["low", "high", "auto"]),
        st.integers(1, 3000),
    ),
    st.sampled_from(
        [
            "https://example.invalid/a.png",
            {"url": "https://example.invalid/a.png"},
            {"url": "", "detail": "high"},
            {"url": "x", "detail": "huge"},
            "",
            None,
        ]
    ),
)
text_parts = st.one_of(
    st.builds(lambda t: {"type": "text", "text": t}, texts),
    st.builds(lambda t: {"type": "text", "text": t, "cache_control": {"type": "ephemeral"}}, texts),
)
sources = st.one_of(
    st.builds(lambda t: {"type": "text", "media_type": "text/plain", "data": t}, texts),
    st.builds(lambda p: {"type": "content", "content": p}, st.lists(text_parts, max_size=2)),
    st.sampled_from(
        [
            {"type": "base64", "media_type": "image/png", "data": "AAAA"},
            {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            {"type": "url", "url": "https://example.invalid/b.png"},
            {"type": "file", "file_id": "f"},
        ]
    ),
)
leaf_parts = st.one_of(
    text_parts,
    texts,
    st.builds(lambda u: {"type": "image_url", "image_url": u}, image_urls),
    st.builds(lambda s: {"type": "image", "source": s}, sources),
    st.builds(lambda s, t: {"type": "document", "source": s, "title": t}, sources, texts),
    st.builds(lambda t: {"type": "file", "file": {"filename": t, "file_data": "data:text/plain,A"}}, texts),
    st.builds(lambda t: {"type": "thinking", "thinking": t, "signature": "s"}, texts),
    st.just({"type": "redacted_thinking", "data": "zzzz"}),
    st.builds(lambda t: {"type": "tool_reference", "tool_name": t}, texts),
    st.builds(
        lambda t, p: {"type": "search_result", "source": t, "title": t, "content": p},
        texts,
        st.lists(text_parts, max_size=2),
    ),
)
odd_parts = st.sampled_from([{"type": "input_audio"}, {"type": "video_url"}, {"type": "text"}, {}, None, 7])
parts = st.one_of(
    leaf_parts,
    leaf_parts,
    st.builds(lambda t, v: {"type": "tool_use", "id": "1", "name": t, "input": v}, texts, json_values),
    st.builds(
        lambda c: {"type": "tool_result", "tool_use_id": "1", "content": c, "is_error": False},
        st.one_of(texts, st.lists(leaf_parts, max_size=2), st.none()),
    ),
    st.just({"type": "tool_result", "content": "no id"}),
)
contents = st.one_of(texts, texts, st.none(), st.lists(parts, max_size=3))
tool_calls = st.lists(
    st.builds(
        lambda n, a: {"id": "1", "type": "function", "function": {"name": n, "arguments": a}},
        texts,
        st.one_of(texts, st.none(), json_values),
    ),
    max_size=2,
)
one_message = st.one_of(
    st.builds(user, contents),
    st.builds(lambda c: {"role": "system", "content": c}, contents),
    st.builds(lambda c, n: {"role": "user", "name": n, "content": c}, contents, texts),
    st.builds(lambda c, t: {"role": "assistant", "content": c, "tool_calls": t}, contents, tool_calls),
    st.builds(lambda a: {"role": "assistant", "function_call": {"name": "f", "arguments": a}}, texts),
    st.builds(lambda c: {"role": "tool", "tool_call_id": "1", "content": c}, contents),
    st.builds(
        lambda t, c: {
            "role": "tool",
            "content": t,
            "search_results": [{"source": t, "title": t, "content": [{"text": t}], "citations": c}],
        },
        texts,
        json_values,
    ),
    st.builds(
        lambda t, v: {"role": "assistant", "content": t, "reasoning_content": t, "extra": v},
        texts,
        json_values,
    ),
)
odd_message = st.one_of(
    st.builds(lambda p: user([p]), odd_parts),
    st.sampled_from(
        [
            {"role": "assistant", "tool_calls": "x"},
            {"role": "assistant", "tool_calls": [{"id": "1"}]},
            {"role": "assistant", "function_call": 3},
            {},
            None,
            "text",
        ]
    ),
    st.dictionaries(st.text(max_size=5), json_values, max_size=3),
)
conversations = st.lists(st.one_of(*[one_message] * 9, odd_message), max_size=40)
good_conversations = st.lists(one_message, max_size=40)

schemas: Any = st.deferred(
    lambda: st.one_of(
        st.builds(
            lambda t, d: {"type": t, "description": d},
            st.sampled_from(["string", "integer", "boolean", "null", "x"]),
            texts,
        ),
        st.builds(lambda e: {"type": "string", "enum": e}, st.lists(texts | st.none(), max_size=3)),
        st.builds(lambda s: {"type": "array", "items": s}, schemas),
        objects,
        st.sampled_from(
            [
                {"type": ["string", "null"], "default": None},
                {"anyOf": [{"type": "string"}, {"type": "null"}]},
            ]
        ),
    )
)
objects = st.builds(
    lambda p, r: {"type": "object", "properties": p, "required": list(p)[:r]},
    st.dictionaries(st.text(max_size=8), schemas, max_size=4),
    st.integers(0, 3),
)
one_tool = st.one_of(
    st.builds(
        lambda n, d, p: {"type": "function", "function": {"name": n, "description": d, "parameters": p}},
        texts,
        texts,
        objects,
    ),
    st.builds(
        lambda n, d, p: {"name": n, "description": d, "input_schema": p}, texts, texts | st.none(), objects
    ),
    st.just({"type": "web_search_20250305", "name": "web_search", "max_uses": 3}),
    st.builds(lambda n, p: {"functionDeclarations": [{"name": n, "parameters": p}]}, texts, objects),
)
ODD_TOOLS = (
    "x",
    {"function": "y"},
    {"name": "z", "input_schema": None},
    None,
    {"name": "a", "input_schema": {"properties": {"x": {"type": "array"}}}},
    {"name": "a", "input_schema": {"properties": {"x": {"type": "array", "items": []}}}},
    {"name": "a", "input_schema": {"properties": ["x"]}},
    {"name": "a", "input_schema": {"properties": {"x": True}}},
    {"name": ["a"], "description": {"b": 1}},
    {"name": "a", "description": float("nan")},
)
catalogues = st.none() | st.lists(st.one_of(*[one_tool] * 6, st.sampled_from(ODD_TOOLS)), max_size=5)
choices = st.one_of(
    st.builds(lambda n: {"type": "function", "function": {"name": n}}, texts),
    st.sampled_from(
        [None, "auto", "none", "required", {}, {"type": "tool", "name": "x"}, {"function": None}]
    ),
)
options = st.fixed_dictionaries(
    {
        "count_response_tokens": st.sampled_from([False, False, True, None]),
        "use_default_image_token_count": st.sampled_from([False, True, None]),
        "default_token_count": st.sampled_from([None, None, 0, 7, -5000, True]),
    }
)
models = st.sampled_from(MODELS)


@PROPERTY
@given(models, conversations, catalogues, choices, options)
def test_every_shape_has_litellm_s_result_or_error_the_first_time_and_later(
    counter: IncrementalCounter,
    stock: Stock,
    model: str,
    messages: Any,
    tools: Any,
    choice: Any,
    flags: Any,
) -> None:
    assert_same(counter, stock, model=model, messages=messages, tools=tools, tool_choice=choice, **flags)


@PROPERTY
@given(models, good_conversations, catalogues, st.lists(st.integers(1, 20), max_size=4))
def test_a_growing_conversation_is_counted_like_litellm_at_every_step(
    counter: IncrementalCounter, stock: Stock, model: str, messages: Any, tools: Any, steps: list[int]
) -> None:
    end = 0
    for step in [*steps, len(messages)]:
        end = min(len(messages), end + step)
        assert_same(counter, stock, runs=1, model=model, messages=messages[:end], tools=tools)


@PROPERTY
@given(models, conversations, catalogues, st.integers(0, 400), st.booleans())
def test_the_counter_that_stops_at_a_threshold_gives_litellm_s_answer(
    counter: IncrementalCounter,
    stock: Stock,
    model: str,
    messages: Any,
    tools: Any,
    threshold: int,
    images: bool,
) -> None:
    if stock.reach is None:  # an older release, which has no such counter to replace
        assert not hasattr(sys.modules[counting_stock.COUNTER_MODULE], "messages_reach_token_count")
        return
    arguments = (model, messages, threshold, tools, images)
    expected = outcome(stock.reach, *arguments)
    assert outcome(counter.messages_reach_token_count, *arguments) == expected
    assert outcome(counter.messages_reach_token_count, *arguments) == expected
    assert counter.counts["own_error"] == 0


@PROPERTY
@given(models, st.one_of(texts, st.lists(st.one_of(texts, st.integers()), max_size=3)), st.booleans())
def test_texts_are_counted_like_litellm(
    counter: IncrementalCounter, stock: Stock, model: str, text: Any, response: bool
) -> None:
    assert_same(counter, stock, model=model, text=text, count_response_tokens=response)


@PROPERTY
@given(json_values, json_values, json_values)
def test_random_json_in_any_argument_never_adds_an_error(
    counter: IncrementalCounter, stock: Stock, messages: Any, tools: Any, choice: Any
) -> None:
    assert_same(counter, stock, model="gpt-4o", messages=messages, tools=tools, tool_choice=choice)


# -- chosen cases


def test_pydantic_messages_and_tuples_of_messages_are_counted_like_litellm(
    litellm: Any, counter: IncrementalCounter, stock: Stock
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = litellm.Message(role="assistant", content="hello there", tool_calls=[call])
    inner = {"role": "assistant", "content": None, "tool_calls": message.tool_calls}
    for messages in ([message, user("x")], (user("x"),), [], (), [inner], [inner] * 20):
        assert_same(counter, stock, model="gpt-4o", messages=messages)
    assert counter.counts["piece_opaque"] > 0


def test_a_tuple_where_a_list_was_counted_before_is_told_apart(
    counter: IncrementalCounter, stock: Stock
) -> None:
    part = {"type": "text", "text": "one two three"}
    listed = assert_same(counter, stock, model="gpt-4o", messages=[user([part])])
    tupled = assert_same(counter, stock, model="gpt-4o", messages=[user((part,))])
    assert listed != tupled


def test_values_with_the_same_json_text_in_a_catalogue_are_told_apart(
    counter: IncrementalCounter, stock: Stock
) -> None:
    def outcomes(*values: Any) -> set[Any]:
        found = set()
        for value in values:
            tools = [tool(x={"type": "string", "description": {"why": [value] * 20}})]
            found.add(assert_same(counter, stock, runs=3, model=CLAUDE, messages=[], tools=tools))
        return found

    assert len(outcomes([1], (1,), [1])) == 2
    outcomes(None, float("nan"), float("inf"), None)


def test_the_order_of_keys_in_a_catalogue_is_part_of_its_key(
    counter: IncrementalCounter, stock: Stock
) -> None:
    names = ["zeta", "path", "alpha", "limit", "offset"]
    schema = {name: {"type": "string", "description": name * 3} for name in names}
    forward, backward = [tool(**schema)], [tool(**{name: schema[name] for name in sorted(names)})]
    for tools in (forward, backward, forward):
        assert_same(counter, stock, model="gpt-4o", messages=[], tools=tools)
    assert counter.counts["catalogue_missed"] == 2


def test_a_catalogue_keeps_its_count_from_the_first_to_the_fourth_call(
    counter: IncrementalCounter, stock: Stock
) -> None:
    plain = [tool(path={"type": "string"}), {"name": "b", "input_schema": {"type": "object"}}]
    for tools in (plain, [*plain, {"name": "c", "description": None}], tuple(plain), plain):
        for model in MODELS:
            assert_same(counter, stock, runs=4, model=model, messages=[user("x")], tools=tools)


def test_text_above_the_sampling_limit_is_estimated_as_litellm_does(
    counter: IncrementalCounter, stock: Stock
) -> None:
    limit = sys.modules[counting_stock.COUNTER_MODULE].TOKEN_COUNTER_MAX_EXACT_CHARS
    text = "count me in, " * (limit // 13 + 2)
    assert len(text) > limit
    assert_same(counter, stock, model="gpt-4o", messages=[user("hi"), user(text)])


def test_special_token_markers_in_text_are_counted_not_refused(
    counter: IncrementalCounter, stock: Stock
) -> None:
    for model in MODELS:
        for marker in [*_MARKERS, "<|endofprompt|>", "<|fim_suffix|>", "<META>", "\n\nHuman:", "<EOT>"]:
            found = assert_same(counter, stock, model=model, messages=[user(f"code: {marker} end")])
            assert found[0] == "result"


def test_pdfs_are_counted_by_litellm_every_time(counter: IncrementalCounter, stock: Stock) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
    messages = [user([{"type": "document", "source": source}])] * 20
    assert assert_same(counter, stock, model="gpt-4o", messages=messages)[0] == "result"
    assert counter.counts["piece_pdf"] == 40


def test_high_detail_images_behind_a_url_are_fetched_by_litellm_every_time(
    counter: IncrementalCounter, stock: Stock
) -> None:
    image = {"url": "https://example.invalid/a.png", "detail": "high"}
    message = user([{"type": "image_url", "image_url": image}])
    # Nothing can be fetched here, so LiteLLM's own attempt is what both outcomes show.
    assert assert_same(counter, stock, model="gpt-4o", messages=[message])[0] != "result"
    found = assert_same(
        counter, stock, model="gpt-4o", messages=[message] * 20, use_default_image_token_count=True
    )
    assert found[0] == "result"
    assert counter.counts["piece_missed"] == 1


def test_a_custom_tokenizer_goes_to_litellm(counter: IncrementalCounter, stock: Stock) -> None:
    custom = {"type": "openai_tokenizer", "tokenizer": None}
    assert_same(counter, stock, runs=1, model="gpt-4o", custom_tokenizer=custom, messages=[user("hello")])
    assert counter.counts["stock_custom_tokenizer"] == 1


def test_a_refused_block_raises_litellm_s_error_without_counting_the_rest_again(
    counter: IncrementalCounter, stock: Stock
) -> None:
    messages = [user("long " * 50), user([{"type": "input_audio"}])]
    assert assert_same(counter, stock, model="gpt-4o", messages=messages)[0] != "result"
    assert (counter.counts["piece_missed"], counter.counts["stock_raised"]) == (1, 2)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "x"}, {"type": "image", "source": {"type": "base64", "data": "AAAA"}}],
        [
            {
                "type": "tool_result",
                "tool_use_id": "1",
                "content": [{"type": "image", "source": {"type": "url"}}],
            }
        ],
        [{"type": "document", "source": {"type": "text", "data": "words"}}],
        [{"type": "video_url", "video_url": {"url": "u"}}],
        [{"type": "input_audio", "input_audio": {}}],
    ],
)
def test_provider_native_blocks_have_litellm_s_outcome(
    counter: IncrementalCounter, stock: Stock, content: Any
) -> None:
    for model in MODELS:
        assert_same(counter, stock, model=model, messages=[user(content)])


def test_nulls_in_a_prompt_have_litellm_s_outcome(counter: IncrementalCounter, stock: Stock) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    for messages in (
        [user([{"type": "image_url", "image_url": None}])],
        [{"role": "assistant", "content": None, "tool_calls": [call]}],
        [user([])],
        [user(None)],
        None,
    ):
        assert_same(counter, stock, model="gpt-4o", messages=messages)


def test_array_schemas_without_items_and_odd_schemas_have_litellm_s_outcome(
    counter: IncrementalCounter, stock: Stock
) -> None:
    circle: dict[str, Any] = {"type": "object", "properties": {}}
    circle["properties"]["self"] = circle
    schemas_ = ({"type": "array"}, {"type": "array", "items": []}, True, {"type": "object", "properties": 3})
    for schema in (*schemas_, circle):
        arguments = {"model": "gpt-4o", "messages": [user("hi")], "tools": [tool(x=schema)]}
        expected = outcome(stock.token_counter, **arguments)
        for _ in range(2):
            found = outcome(counter.token_counter, **arguments)
            # How deep a circle gets before Python gives up depends on the stack below.
            assert found == expected or (found[0] == expected[0] == "RecursionError")


def test_odd_tool_entries_have_litellm_s_outcome(counter: IncrementalCounter, stock: Stock) -> None:
    for entry in ODD_TOOLS:
        assert_same(counter, stock, model="gpt-4o", messages=[], tools=[entry, tool()])
    assert_same(counter, stock, model="gpt-4o", messages=[], tools=list(ODD_TOOLS[:4]))


def test_deeply_nested_and_circular_messages_have_litellm_s_outcome(
    counter: IncrementalCounter, stock: Stock
) -> None:
    circle: dict[str, Any] = {"a": 1}
    circle["self"] = circle
    deep: Any = "x"
    for _ in range(2500):
        deep = [deep]
    for value in (circle, deep):
        messages = [{"role": "user", "content": "hi", "extra": value}] * 20
        expected = stock.token_counter("gpt-4o", messages=messages)
        assert [counter.token_counter("gpt-4o", messages=messages) for _ in range(2)] == [expected] * 2


def test_a_disabled_token_counter_stays_disabled(
    litellm: Any, counter: IncrementalCounter, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counter.token_counter("gpt-4o", messages=[user("hello world")]) > 0
    monkeypatch.setattr(litellm, "disable_token_counter", True)
    assert_same(counter, stock, model="gpt-4o", messages=[user("hello world")])
    assert counter.token_counter("gpt-4o", messages=[user("hello world")]) == 0


def test_later_counts_of_a_long_conversation_take_a_fraction_of_litellm_s_time(
    counter: IncrementalCounter, stock: Stock
) -> None:
    messages = [user(f"line {i}: " + "words and more words " * 40) for i in range(100)]
    counter.token_counter(CLAUDE, messages=messages)

    def best(function: Any) -> float:
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            function(CLAUDE, messages=messages)
            times.append(time.perf_counter() - begin)
        return min(times)

    assert best(counter.token_counter) < best(stock.token_counter) / 10


def test_the_sampled_self_check_agrees_with_litellm(stock: Stock) -> None:
    counter = IncrementalCounter(stock, check_share=1.0)
    messages = [user(f"message {i}") for i in range(40)]
    for end in range(10, 40, 10):
        counter.token_counter("gpt-4o", messages=messages[:end], tools=[tool(x={"type": "string"})])
        counter.background.drain()
    assert (counter.counts["checked"], counter.counts["mismatched"], counter.active) == (3, 0, True)
    counter.background.close()
