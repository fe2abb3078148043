"""Which pieces may be remembered, under which key, and how one is described without its text."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_plugin.counting_pieces import catalogue_is_plain, shape, why_stock
from gateway_plugin.counting_sum import faithful


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("just text", None),
        ([{"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "high"}}], "image"),
        ([{"type": "image_url", "image_url": {"url": "https://a/b.png", "detail": "low"}}], None),
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64,A", "detail": "high"}}], None),
        ([{"type": "tool_result", "content": [{"url": "http://a", "detail": "high"}]}], "image"),
        ([{"type": "document", "source": {"media_type": "application/pdf", "data": "A"}}], "pdf"),
        ([{"type": "file", "file": {"file_data": "data:application/pdf;base64,A"}}], "pdf"),
    ],
)
def test_only_what_is_no_function_of_the_message_is_left_to_litellm(content: Any, reason: str | None) -> None:
    message = {"role": "user", "content": content}
    assert why_stock(message, default_images=False) == reason
    assert why_stock(message, default_images=True) == (None if reason == "image" else reason)


@pytest.mark.parametrize(
    ("tool", "plain"),
    [
        ({"name": "a", "description": "b", "input_schema": {"type": "object", "properties": {}}}, True),
        ({"type": "function", "function": {"name": "a", "parameters": {"required": ["x"]}}}, True),
        (
            {"name": "a", "input_schema": {"properties": {"x": {"enum": ["a", 1, True], "default": None}}}},
            True,
        ),
        ({"name": "a", "input_schema": {"properties": {"x": {"type": ["string", "null"]}}}}, True),
        ({"name": "a", "input_schema": {"properties": {"default": {"description": None}}}}, False),
        ({"name": "a", "description": None}, False),
        ({"name": "a", "description": float("nan")}, False),
        ({"name": "a", "description": ["x"]}, False),
        ({"name": "a", "description": {"x": [1]}}, False),
        ({"name": "a", "input_schema": {"properties": {"properties": {"type": "null"}}}}, True),
        ({"name": "a", "input_schema": {"properties": {"x": {"enum": [None]}}}}, False),
        ({"name": "a", "input_schema": {"properties": {"x": {"enum": [["a"]]}}}}, False),
        ({"functionDeclarations": [{"name": "a"}]}, False),
    ],
)
def test_json_text_is_a_key_only_where_null_and_lists_are_not_rendered(
    tool: dict[str, Any], plain: bool
) -> None:
    assert catalogue_is_plain([tool]) is plain


def test_catalogue_entries_that_are_no_tools_are_skipped_by_the_classifier() -> None:
    assert catalogue_is_plain(["x", None, {"name": "a"}])

    class Odd(dict[str, Any]):
        pass

    assert not catalogue_is_plain([Odd(name="a")])


def test_exact_bytes_tell_types_and_orders_apart() -> None:
    values: list[Any] = [1, 1.0, True, "1", None, float("nan"), [1], (1,), {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert len({faithful(value) for value in values}) == len(values)
    assert faithful({"a": ["x", {"b": "\ud800"}]}) == faithful({"a": ["x", {"b": "\ud800"}]})
    with pytest.raises(ValueError, match="unmarshallable"):
        faithful({"a": object()})


def test_exact_bytes_do_not_depend_on_who_else_holds_the_value() -> None:
    text = "".join(["sha", "red"])
    shared = [text, text]
    apart = ["".join(["sha", "red"]), "".join(["shar", "ed"])]
    assert faithful(shared) == faithful(apart)


def test_a_shape_shows_structure_and_lengths_but_no_text() -> None:
    secret = "account 4711"
    value = {
        "role": "user",
        "content": [{"type": "text", "text": secret}, secret, 5, None, {"type": secret}],
        secret: {"type": "tool_use"},
    }
    described = shape(value)
    assert secret not in described
    assert described == (
        "{role: user, content: [{type: text, text: str[12]}, str[12], int, NoneType, … 5], "
        "key: {type: tool_use}}"
    )
    assert shape([[[[[[1]]]]]]) == "[[[[[list[1]]]]]]"
